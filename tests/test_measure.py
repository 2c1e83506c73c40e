"""Measuring with a clock that the test winds."""

from __future__ import annotations

import numpy as np
import pytest

from tunegen.harness import measure
from tunegen.harness.measure import INPLACE_BYTES, MAX_REPETITIONS, SAMPLE_NS, ClockError, Operands, Runner


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


def test_the_sample_is_sized_by_calls_in_a_row_where_a_single_one_is_slower() -> None:
    """A clock that costs ten calls to read."""

    class Costly(Clock):
        def __call__(self) -> int:
            self.now += 10_000
            return self.now

    clock = Costly(1000)
    runner = Runner(clock.work, [])
    runner.warm_up(clock)
    # the resolution is 10 us here, so a sample lasts 10 ms
    assert 9_000 < runner.repetitions < 10_000


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


def test_each_call_of_a_sample_has_an_operand_of_its_own_to_update_and_so_starts_as_it_was() -> None:
    """A short kernel that accumulates needs repetitions as any other, and its values must not run away."""
    clock = Clock(1)
    seen: list[float] = []

    def double(array: np.ndarray) -> None:
        seen.append(float(array[0]))
        array *= 2
        clock.work()

    runner = Runner(double, [np.ones(INPLACE_BYTES // 8 // 8)], restore=[0])
    runner.warm_up(clock)
    assert runner.repetitions == 8
    runner.sample(clock)
    runner.sample(clock)
    assert set(seen) == {1.0}


def test_operands_that_are_updated_in_place_stay_in_the_cache() -> None:
    """A large one is measured call by call."""
    runner = Runner(Clock(1).work, [np.ones(INPLACE_BYTES)], restore=[0])
    runner.warm_up(Clock(1))
    assert runner.repetitions == 1


def test_cold_operands_are_other_ones_at_each_call_and_out_of_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    evictions: list[int] = []
    monkeypatch.setattr(measure, "evict", lambda: evictions.append(len(addresses)))
    clock = Clock(SAMPLE_NS // 10)
    addresses: list[int] = []

    def read(array: np.ndarray, scalar: float) -> None:
        assert (array == 3.0).all()
        assert scalar == 0.5
        addresses.append(array.ctypes.data)
        clock.work()

    operand = np.full((4, 8), 3.0, np.float32)
    runner = Runner(read, Operands([operand, 0.5], cold=True))
    runner.warm_up(clock)
    assert runner.repetitions == 10
    addresses.clear()
    evictions.clear()
    runner.sample(clock)
    assert len(set(addresses)) == 10
    assert evictions == [0]
    assert {address % 64 for address in addresses} == {operand.ctypes.data % 64}


def test_of_large_cold_operands_there_are_few_copies() -> None:
    large = np.broadcast_to(np.float32(1), (measure.COLD_BYTES // 4 // 3, 1))
    assert Operands([large], cold=True).most == 3
    assert Operands([np.ones(4), 0.5], cold=True).most == measure.MAX_COPIES


def test_copies_keep_the_layout_of_an_operand() -> None:
    strided = np.zeros((6, 4), np.float32).T
    copy = measure._copy(strided)
    assert copy.strides == strided.strides
    assert measure._copy(None) is None
    assert measure._copy(np.empty((0, 3))).shape == (0, 3)


def test_evicting_streams_through_twice_the_last_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_eviction", [])
    measure.size_eviction(1000)
    measure.evict()
    assert measure._eviction[0].size == 2000
    assert (measure._eviction[0] == 1).all()


def test_a_sample_of_no_time_is_taken_again_with_more_calls() -> None:
    """A coarse clock: ten calls fall between two of its ticks."""
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1

    runner = Runner(call, [])
    runner.repetitions = 10
    assert runner.sample(lambda: 1000 * (calls // 25)) == 50.0
    with pytest.raises(ClockError, match="0 ns for 40 calls"):
        runner.sample(lambda: 0)


def test_a_sample_is_long_against_a_coarse_clock() -> None:
    coarse = 4 * SAMPLE_NS

    class Coarse(Clock):
        def __call__(self) -> int:
            self.now += 100
            return self.now // coarse * coarse

    assert measure.resolution_ns(Coarse(0)) == 1
    clock = Coarse(0)
    clock.now = coarse - 1000
    assert measure.resolution_ns(clock) == coarse


def test_nothing_is_collected_while_the_clock_runs() -> None:
    import gc

    seen: list[bool] = []
    Runner(lambda: seen.append(gc.isenabled()), []).sample(iter(range(9)).__next__)
    assert seen == [False]
    assert gc.isenabled()
