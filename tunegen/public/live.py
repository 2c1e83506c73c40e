"""`tunegen.live`: tuning in the background of this process, watched, paused and ended.

It ends with the process, and a fork of the process takes over what its parent finds.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module

from tunegen import forks
from tunegen.public import launching
from tunegen.public.background import AT_ONCE_S, Background, Begun, Status
from tunegen.public.status import Row


class Live(Background):
    """Tuning in the background of this process. Any thread may call its functions."""

    _registered = False

    def pause(self) -> None:
        """Ends the tuner that is at work, and starts no other one until `resume`. Returns when it has ended.

        What it has found stays in its journal, and the pause is no failed attempt.
        """
        with self._changed:
            self._paused = True
        self._end_tuner()

    def resume(self) -> None:
        """Goes on after `pause`."""
        with self._changed:
            self._paused = False
            self._changed.notify_all()

    def _end_tuner(self) -> None:
        with self._changed:
            tuner = self._tuner
            self._changed.notify_all()
        if tuner is not None:
            tuner.stop(launching.GRACE_S)
        with self._changed:
            self._changed.wait_for(lambda: self._at is None, launching.GRACE_S)

    def stop(self) -> None:
        """Ends the tuner and this thread of the process, until a policy is applied again."""
        self._stop(launching.GRACE_S)

    def status(self) -> Status:
        """What goes on now."""
        with self._changed:
            state = "paused" if self._paused and self._thread is not None else self._state
            tuned, left = tuple(map(str, self._tuned)), tuple(map(str, self._left))
            problems = tuple(f"{name}: {problem}" for name, problem in self._problems.items())
            return Status(state, str(self._at or ""), tuned, left, problems)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until nothing goes on in the background any more. False when that takes more than `timeout_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: self._thread is None, timeout_s)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Has no tuner in the background while this process tunes at once."""
        with self._changed:
            self._asides += 1
        try:
            self._end_tuner()
            yield
        finally:
            with self._changed:
                self._asides -= 1
                self._changed.notify_all()

    def begin(self, rows: Sequence[Row], share: float, timeout_s: float | None) -> Begun:
        """Takes on what is not tuned; see `Background`."""
        with self._changed:
            if not self._registered:
                self._registered = True
                atexit.register(self._at_exit)
                # the thread logs and locks files: no fork may begin before it is settled which lock comes first
                for module in ("logging", "filelock"):
                    import_module(module)
                    forks.go_before(module)
                if hasattr(os, "register_at_fork"):
                    os.register_at_fork(after_in_child=self._forked)
        return super().begin(rows, share, timeout_s)

    def _stop(self, grace_s: float) -> None:
        with self._changed:
            self._stopped = True
            tuner, thread = self._tuner, self._thread
            self._changed.notify_all()
        if tuner is not None:
            tuner.stop(grace_s)
        if thread is not None:
            thread.join(launching.GRACE_S)

    def _at_exit(self) -> None:
        with suppress(KeyboardInterrupt):
            self._stop(AT_ONCE_S)

    def _forked(self) -> None:
        """In the child of a fork: the tuner is the parent's, and the winners are for both."""
        follows = self._thread is not None and not self._stopped
        self._changed, self._thread, self._tuner, self._at = threading.Condition(), None, None, None
        self._paused, self._asides, self.follows = False, 0, follows
        if follows:
            with suppress(RuntimeError), self._changed:
                self._start()


live = Live()
"""That of this process."""
