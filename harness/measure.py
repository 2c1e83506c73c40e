"""The measuring room: the only place that looks at a clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

SAMPLE_NS = 300_000
"""A sample repeats its call until it is about this long, far above the timer's resolution."""
MAX_REPETITIONS = 100_000

Clock = Callable[[], int]
"""Nanoseconds since some fixed moment."""

clock: Clock = time.perf_counter_ns


def now_s() -> float:
    """Seconds on the monotonic clock, for budgets."""
    return time.monotonic()


class Runner:
    """One callable on one set of operands. `sample` is its time per call in nanoseconds."""

    def __init__(self, call: Callable[..., Any], arguments: Sequence[Any], restore: Sequence[int] = ()) -> None:
        """`restore` are the positions of operands that a call updates in place: reset before every sample."""
        self.call = call
        self.arguments = tuple(arguments)
        self.saved = {i: np.array(arguments[i]) for i in restore}
        self.repetitions = 1

    def warm_up(self, clock: Clock = clock) -> None:
        """First calls, which compile and touch memory; then sizes the sample."""
        self.call(*self.arguments)
        once = max(min(self._time(1, clock) for _ in range(2)), 1)
        self.repetitions = max(1, min(SAMPLE_NS // once, MAX_REPETITIONS)) if not self.saved else 1

    def sample(self, clock: Clock = clock) -> float:
        """Nanoseconds per call, from a run of `repetitions` calls. Raises `ValueError` for a clock that stood still."""
        taken = self._time(self.repetitions, clock)
        if taken <= 0:
            raise ValueError(f"the clock measured {taken} ns for {self.repetitions} calls")
        return taken / self.repetitions

    def _time(self, repetitions: int, clock: Clock) -> int:
        for position, value in self.saved.items():
            self.arguments[position][...] = value
        call, arguments = self.call, self.arguments
        start = clock()
        for _ in range(repetitions):
            call(*arguments)
        return clock() - start
