"""The measuring room: the only place that looks at a clock."""

from __future__ import annotations

import ctypes
import gc
import os
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import pairwise, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

SAMPLE_NS = 300_000
"""A sample repeats its call until it is about this long, far above the timer's resolution."""
RESOLUTIONS = 1000
"""A sample is at least this many steps of the clock long."""
MAX_REPETITIONS = 100_000
ATTEMPTS = 3
"""How often a sample that took no time is taken again, with twice the calls, before the clock is refused."""
INPLACE_BYTES = 256 << 10
"""Copies of operands that calls update in place stay within this, so that a hot sample stays in the cache."""
COLD_BYTES = 128 << 20
"""Copies of cold operands stay within this: of a large table of which a call reads little, there are few."""
MAX_COPIES = 4096

Clock = Callable[[], int]
"""Nanoseconds since some fixed moment."""

clock: Clock = time.perf_counter_ns
cpu_clock: Clock = time.thread_time_ns
"""Processor time of this thread: it stands still while somebody else has the core."""
process_clock: Clock = time.process_time_ns
"""Processor time of all threads of this process together."""


def native_clock() -> int:
    """Address of `int clock_gettime(int, struct timespec *)`, the clock of a loop that is native code.

    Raises `ValueError` on a system without it.
    """
    found = getattr(ctypes.CDLL(None), "clock_gettime", None)
    if found is None:
        raise ValueError("this system has no clock_gettime")
    return int(ctypes.cast(found, ctypes.c_void_p).value or 0)


def today() -> str:
    """The date in UTC, for reports: "2026-01-31"."""
    return time.strftime("%Y-%m-%d", time.gmtime())


def now_s() -> float:
    """Seconds on the monotonic clock, for budgets."""
    return time.monotonic()


def used_s() -> float:
    """Processor seconds of this process, all its threads, and the children that it waited for."""
    return sum(os.times()[:4])


sleep_s: Callable[[float], None] = time.sleep
"""Takes seconds."""


@cache
def resolution_ns(clock: Clock = clock) -> int:
    """The smallest step of a clock that is seen in a few tries; 1 for a clock that stands still."""
    readings = [clock() for _ in range(200)]
    return min((b - a for a, b in pairwise(readings) if b > a), default=1)


class ClockError(ValueError):
    """The clock stood still while something ran."""


class Operands:
    """Arguments of a call, and as many copies of them as a sample has calls.

    Copies are for operands that a call updates in place (`restore`, positions: each call of a sample has its own, as it
    was) and for cold operands (each call has its own, out of the cache). Otherwise all calls share one set.
    """

    def __init__(self, arguments: Sequence[Any], restore: Sequence[int] = (), *, cold: bool = False) -> None:
        self.saved = {i: np.array(arguments[i]) for i in restore}
        self.cold = cold
        self.sets: list[tuple[Any, ...]] = [tuple(arguments)]

    @property
    def most(self) -> int:
        """How many calls a sample may have."""
        if not self.saved and not self.cold:
            return MAX_REPETITIONS
        copied = self.sets[0] if self.cold else self.saved.values()
        used = sum(value.nbytes for value in copied if isinstance(value, np.ndarray))
        return max(1, min((COLD_BYTES if self.cold else INPLACE_BYTES) // max(used, 1), MAX_COPIES))

    def ready(self, calls: int) -> Iterable[tuple[Any, ...]]:
        """Arguments for this many calls in a row, as the declared case has them: restored, and cold if it says so."""
        if not self.saved and not self.cold:
            return repeat(self.sets[0], calls)
        copied = range(len(self.sets[0])) if self.cold else self.saved
        while len(self.sets) < calls:
            self.sets.append(tuple(_copy(a) if i in copied else a for i, a in enumerate(self.sets[0])))
        for arguments in self.sets[:calls]:
            for position, value in self.saved.items():
                arguments[position][...] = value
        if self.cold:
            evict()
        return self.sets[:calls]


def _copy(value: Any) -> Any:
    """A copy of an array at the same place within a cache line, on which speed depends; other values as they are."""
    if not isinstance(value, np.ndarray):
        return value
    if not value.flags.c_contiguous:
        return value.copy(order="K")
    buffer = np.empty(value.nbytes + 2 * LINE_BYTES, np.uint8)
    start = (value.ctypes.data - buffer.ctypes.data) % LINE_BYTES
    copy = buffer[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
    copy[...] = value
    return copy


LINE_BYTES = 64
EVICT_BYTES = 64 << 20
"""What is streamed through the cache to evict all else, unless `size_eviction` was told how large the last one is."""
_eviction: list[NDArray[np.uint8]] = []


def size_eviction(last_cache_bytes: int) -> None:
    """Makes `evict` fit for a last-level cache of this size."""
    _eviction[:] = [np.zeros(2 * last_cache_bytes, np.uint8)]


def evict() -> None:
    """Takes what was used so far out of the caches: streams through twice the last one."""
    if not _eviction:
        size_eviction(EVICT_BYTES // 2)
    _eviction[0] += 1


class Runner:
    """One callable on one set of operands. `sample` is its time per call in nanoseconds."""

    def __init__(
        self, call: Callable[..., Any], arguments: Sequence[Any] | Operands, restore: Sequence[int] = ()
    ) -> None:
        """`restore` are the positions of operands that a call updates in place: each call starts as they were.

        Runners that share their `Operands` share the copies.
        """
        self.call = call
        self.operands = arguments if isinstance(arguments, Operands) else Operands(arguments, restore)
        self.repetitions = 1

    def warm_up(self, clock: Clock = clock) -> None:
        """First calls, which compile and touch memory; then sizes the sample."""
        self.settle()
        once = max(min(self._time(1, clock) for _ in range(2)), 1)
        wanted = max(SAMPLE_NS, RESOLUTIONS * resolution_ns(clock))
        self.repetitions = max(1, min(wanted // once, self.operands.most))
        if 1 < self.repetitions < self.operands.most:
            # calls in a row are faster than a single one, most of all where only the operands are cold
            taken = max(self._time(self.repetitions, clock), 1)
            self.repetitions = max(1, min(wanted * self.repetitions // taken, self.operands.most))

    def settle(self) -> None:
        """A call that nobody times."""
        for arguments in self.operands.ready(1):
            self.call(*arguments)

    def sample(self, clock: Clock = clock) -> float:
        """Nanoseconds per call, from a run of `repetitions` calls. Raises `ClockError` for a clock that stood still."""
        for attempt in range(ATTEMPTS):
            repetitions = min(self.repetitions << attempt, self.operands.most)
            taken = self._time(repetitions, clock)
            if taken > 0:
                return taken / repetitions
        raise ClockError(f"the clock measured {taken} ns for {repetitions} calls")

    def _time(self, repetitions: int, clock: Clock) -> int:
        ready = self.operands.ready(repetitions)
        call, collecting = self.call, gc.isenabled()
        gc.disable()
        try:
            start = clock()
            for arguments in ready:
                call(*arguments)
            return clock() - start
        finally:
            if collecting:
                gc.enable()
