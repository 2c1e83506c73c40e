"""Measuring with a clock that the test winds."""

from __future__ import annotations

import numpy as np
import pytest

from tunegen.harness.measure import MAX_REPETITIONS, SAMPLE_NS, Runner


class Clock:
    """A clock that each call of the measured function moves on."""

    def __init__(self, step_ns: int) -> None:
        self.now = 0
        self.step_ns = step_ns

    def __call__(self) -> int:
        return self.now

    def work(self, *_: object) -> None:
        self.now += self.step_ns


def test_repetitions_fill_the_sample_and_the_result_is_per_call() -> None:
    clock = Clock(1000)
    runner = Runner(clock.work, [])
    runner.warm_up(clock)
    assert runner.repetitions == SAMPLE_NS // 1000
    assert runner.sample(clock) == 1000


def test_a_long_call_is_measured_once_and_a_tiny_one_not_for_ever() -> None:
    for step, expected in ((10 * SAMPLE_NS, 1), (0, MAX_REPETITIONS)):
        clock = Clock(step)
        runner = Runner(clock.work, [])
        runner.warm_up(clock)
        assert runner.repetitions == expected


def test_a_clock_that_stands_still_is_refused() -> None:
    runner = Runner(lambda: None, [])
    with pytest.raises(ValueError, match="measured 0 ns"):
        runner.sample(lambda: 0)


def test_operands_that_are_updated_in_place_start_each_sample_as_they_were() -> None:
    clock = Clock(1)
    seen: list[float] = []

    def double(array: np.ndarray) -> None:
        seen.append(float(array[0]))
        array *= 2
        clock.work()

    runner = Runner(double, [np.ones(1)], restore=[0])
    runner.warm_up(clock)
    runner.sample(clock)
    runner.sample(clock)
    assert seen[-2:] == [1.0, 1.0]
