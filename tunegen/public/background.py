"""The background of the policy live: one thread of a process has kernel by kernel tuned, and swaps winners in.

The tuner of each is a child process of low priority. Where another process has the turn, and in forks, the
thread takes over what others find.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

import msgspec

from tunegen import log
from tunegen.box import this_box
from tunegen.choosing import store
from tunegen.errors import StoreError, TunegenError
from tunegen.making.compile import llvm_version
from tunegen.public import attempts
from tunegen.public.automatic import TIMEOUT_S, Tuned, Wish, tried, turn_of, worth_a_try
from tunegen.public.host import BACKGROUND
from tunegen.public.launching import Tuner
from tunegen.public.scope import Scope, scopes
from tunegen.public.sources import read_manifest, target_manifest
from tunegen.public.status import Row
from tunegen.public.swapping import swap

SHARE = 0.25
"""The share of one core that a tuner has when nobody says one."""
LOOK_S = 5.0
"""How often a process that waits for another one looks what that has found."""
BREATH_S = 0.2
"""Between two kernels: whoever waits for the turn has it then."""
AT_ONCE_S = 1.0
"""How long a tuner may go on that is not wanted any more. What it knows is in its journal."""

State = Literal["off", "tuning", "waiting", "paused", "stopped", "failed", "done"]


class Name(NamedTuple):
    """A kernel and element type of a scope: `mylib:gemm[f32]`."""

    scope: str
    key: str

    def __str__(self) -> str:
        return f"{self.scope}:{self.key}"


class Status(msgspec.Struct, frozen=True):
    """What goes on in the background. Kernels are named as `mylib:gemm[f32]`.

    `state` is `off` where no policy started it, `tuning`, `waiting` where another process tunes and its winners are
    taken over, `paused`, `stopped`, `done`, or `failed` after an error that nobody foresaw. `key` is what the tuner is
    at, "" between two. `tuned` was found since the start, `left` is to come, `problems` says what was given up and why.
    """

    state: State
    key: str = ""
    tuned: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class Begun(NamedTuple):
    """How many kernels are to come, whether any of them is new, and a sentence for each that is not worth a try."""

    left: int
    new: bool
    problems: tuple[str, ...]


class Background:
    """What is left to tune in this process, and the thread that is at it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._left: list[Name] = []
        self._tuned: list[Name] = []
        self._problems: dict[Name, str] = {}
        self._unsaid: dict[str, list[Name]] = {}
        self._entries: dict[Name, object] = {}
        self._attempts: attempts.Attempts = {}
        self._wish = Wish(False, TIMEOUT_S, False, lambda text: None, swap, SHARE, self._hold)
        self._at: Name | None = None
        self._tuner: Tuner | None = None
        self._thread: threading.Thread | None = None
        self._state: State = "off"
        self._paused = self._stopped = False
        self._asides = 0
        self.follows = False

    @property
    def _rests(self) -> bool:
        """Whether no tuner may start: paused, or while this process tunes at once."""
        return self._paused or self._asides > 0

    def begin(self, rows: Sequence[Row], share: float, timeout_s: float | None) -> Begun:
        """Takes on what is not tuned, each kernel once in a process. `timeout_s` is for each of them.

        Raises `RuntimeError` where no thread can be started.
        """
        fresh, known, problems = _worth_a_try(rows) if not self.follows else ([_name(row) for row in rows], {}, [])
        entries = {name: _entries(name) for name in fresh}
        with self._changed:
            limited, timeout_s = timeout_s is not None, timeout_s or TIMEOUT_S / share
            self._wish = self._wish._replace(timeout_s=timeout_s, limited=limited, share=share)
            new = [name for name in fresh if name not in {*self._left, *self._tuned, *self._problems}]
            problems += [f"{name}: {self._problems[name]}" for name in fresh if name in self._problems]
            self._left += new
            self._entries |= {name: entries[name] for name in new}
            begins = bool(new or (self._left and self._thread is None)) and not self.follows
            self._attempts |= known
            if self._left:
                self._stopped = False
                self._start()
            return Begun(len(self._left), begins, tuple(problems))

    def _start(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=BACKGROUND, daemon=True)
            thread.start()
            self._state = "waiting" if self.follows else "tuning"
            self._thread = thread
        self._changed.notify_all()

    def _run(self) -> None:
        try:
            if self.follows:
                self._rest(LOOK_S)
            while self._goes_on():
                self._rest(BREATH_S if self._round() else LOOK_S)
        except BaseException as error:
            self._settle(self._left, f"{type(error).__name__}: {error}")
            self._report()
            with self._changed:
                self._end("failed")

    def _goes_on(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or not self._rests)
        if self._stopped or not self._left:
            self._report()
        with self._changed:
            if not self._stopped and self._left:
                return True
            self._end("stopped" if self._stopped else "done")
            return False

    def _report(self) -> None:
        """Says once what was given up."""
        with self._changed:
            problems, self._unsaid = self._unsaid, {}
        for problem, names in problems.items() if not self.follows else ():
            # a log that fails is the program's own affair
            with suppress(Exception):
                log.warning("not tuned in the background: %s: %s", ", ".join(map(str, names)), problem)

    def _end(self, state: State) -> None:
        self._state, self._thread, self._at, self._tuner = state, None, None, None
        self._changed.notify_all()

    def _rest(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._rests or not self._left, seconds)

    def _round(self) -> bool:
        """Takes over what others have found, and tunes one kernel, unless others have the turn. Whether it has."""
        self._take_over()
        for scope in self._scopes() if not self.follows else ():
            try:
                with store.turn(turn_of(scope), 0.0):
                    self._state = "tuning"
                    # whoever had the turn before may have tuned it
                    self._take_over()
                    self._tune(scope)
                    return True
            except StoreError as error:
                if error.status != "locked":
                    self._settle([name for name in self._left if name.scope == scope.name], str(error))
                    return True
            finally:
                # not before others can have the turn
                with self._changed:
                    self._at = None
                    self._changed.notify_all()
        self._state = "waiting"
        return False

    def _scopes(self) -> list[Scope]:
        return [scopes()[name] for name in dict.fromkeys(name.scope for name in self._left)]

    def _take_over(self) -> None:
        """Swaps in what a manifest has and had not when this looked last, whoever wrote it."""
        for scope in self._scopes():
            found = store.read(target_manifest(scope.name, this_box())).scopes.get(scope.name, {})
            known = attempts.read(turn_of(scope)) if self.follows else {}
            for name in [name for name in self._left if name.scope == scope.name]:
                entries, attempt = found.get(name.key), known.get(str(name))
                if entries and entries != self._entries.get(name):
                    self._entries[name] = entries
                    self._swap(scope, name)
                # the last try counts as over from the start, and has a reason in the end
                elif attempt and attempt.over() and attempt.reason and attempt != self._attempts.get(str(name)):
                    self._settle([name], attempt.reason)

    def _swap(self, scope: Scope, name: Name) -> None:
        try:
            if not swap(scope, [name.key]):
                self._settle([name])
        except Exception as error:
            self._settle([name], f"{type(error).__name__}: {error}")

    def _tune(self, scope: Scope) -> None:
        """Tunes the kernel of a scope that was tried least: one whose program ended each time lets others go first."""
        known = attempts.read(turn_of(scope))
        with self._changed:
            names = [name for name in self._left if name.scope == scope.name]
            if self._rests or self._stopped or not names:
                return
            name = min(names, key=lambda n: known[str(n)].tries if str(n) in known else 0)
            self._at = name
        try:
            wish = self._wish._replace(say=lambda text: log.info("%s: %s", name, text.rstrip()))
            tuned = tried(scope, [name.key], wish)
        except Exception as error:
            tuned = Tuned(problems=(f"{type(error).__name__}: {error}",))
        with self._changed:
            self._tuner = None
            if tuned.found or tuned.problems:
                self._settle([name], "; ".join(tuned.problems) if not tuned.found else "")

    def _settle(self, names: Sequence[Name], problem: str = "") -> None:
        """Takes off the list what is tuned, or is given up with a problem."""
        with self._changed:
            self._left = [name for name in self._left if name not in names]
            if problem:
                self._problems |= dict.fromkeys(names, problem)
                self._unsaid.setdefault(problem, []).extend(names)
            else:
                self._tuned += names

    def _hold(self, tuner: Tuner) -> None:
        """Knows the tuner that is at work. It ends at once where it was not to begin."""
        with self._changed:
            self._tuner = tuner
            unwanted = self._rests or self._stopped
        if unwanted:
            tuner.stop(AT_ONCE_S)


def _name(row: Row) -> Name:
    return Name(row.scope, row.key)


def _entries(name: Name) -> object:
    """What the kernel is stamped with comes from these entries of a manifest, or from elsewhere."""
    manifest = read_manifest(target_manifest(name.scope, this_box()))
    return manifest.scopes.get(name.scope, {}).get(name.key)


def _worth_a_try(rows: Sequence[Row]) -> tuple[list[Name], attempts.Attempts, list[str]]:
    """What is worth a try, what was tried before, and a sentence for each that is not worth it."""
    fresh, known, problems = list[Name](), attempts.Attempts(), list[str]()
    for scope in dict.fromkeys(scopes()[row.scope] for row in rows):
        keys = [row.key for row in rows if row.scope == scope.name]
        try:
            llvm_version()  # without a compiler there is nothing to tune
            free = _is_free(scope)
            before = attempts.read(turn_of(scope))
            # whoever has the turn may be at the last try of one, which has no reason yet
            known_now = {name: a for name, a in before.items() if free or a.reason}
            again, old = worth_a_try(scope, keys, known_now, background=True)
        except (TunegenError, OSError) as error:
            again, before, old = {}, {}, [str(error)]
        fresh += [Name(scope.name, key) for key in again]
        known |= before
        problems += [f"{scope.name}: {problem}" for problem in old]
    return fresh, known, problems


def _is_free(scope: Scope) -> bool:
    """Whether nobody has the turn. Raises `StoreError` where nothing can be written down."""
    try:
        with store.turn(turn_of(scope), 0.0):
            return True
    except StoreError as error:
        if error.status != "locked":
            raise
        return False
