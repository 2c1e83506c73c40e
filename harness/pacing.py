"""The pace: a tuner beside a program that serves uses a share of one core, and sleeps for the rest of the time.

The parent and its worker never work at the same time, so each sleeps off the processor time that it used itself; the
parent that of workers that ended, too. What was used is slept off in one go, between two steps, never in a sample.
"""

from __future__ import annotations

from collections.abc import Callable

from tunegen.harness.measure import now_s, sleep_s, used_s

WORK_S = 0.2
"""Nobody sleeps before it used this much: whoever wakes up finds its data out of the caches."""
SLICE_S = 0.25
"""A rest is made of pieces of this length: after each it is said that this process lives, and whether it has to end."""


class Pace:
    """Processor time at most `share` of the wall time, for one process; all of it with None.

    `now` and `used` are seconds on a clock and of processor time, `sleep` takes seconds.
    """

    def __init__(
        self, share: float | None = None, now: Callable[[], float] = now_s, used: Callable[[], float] = used_s,
        sleep: Callable[[float], None] = sleep_s,
    ) -> None:  # fmt: skip
        self.share = 1.0 if share is None else share
        self.rests = share is not None
        self.now = now
        self._used = used
        self._sleep = sleep
        # what this process used by now took it as long at least
        self._paid_s, self._since = 0.0, now() - used()

    def working_s(self) -> float:
        """Seconds on the clock that gives work its time. With a share it is processor time: neither a rest counts, nor
        the time in which a busy program leaves no processor.
        """
        return self._used() if self.rests else self.now()

    def rest(self, over: Callable[[], bool], say: Callable[[float], None] = lambda seconds: None) -> bool:
        """Sleeps off what was used since the last rest, unless it is `over`, and says how long each piece of it was.

        Returns whether there was one.
        """
        if not self.rests or (used := self._used() - self._paid_s) < WORK_S:
            return False
        end, slept = self._since + used / self.share, False
        while (left := end - (begin := self.now())) > 0 and not over():
            self._sleep(min(left, SLICE_S))
            slept = True
            say(self.now() - begin)
        self._paid_s, self._since = self._paid_s + used, self.now()
        return slept
