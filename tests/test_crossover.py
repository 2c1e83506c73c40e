"""The crossover search tells four outcomes apart, on comparers that are made up."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunegen.harness.crossover import Comparer, Found, Side, find_crossover, side_of
from tunegen.harness.disturbances import Disturbance, all_kinds, read_traces

BOUNDS = (16, 1 << 20)
GRID = (1024, 4096, 16384)
KINDS = all_kinds(read_traces())


def at(threshold: float, width: float = 1.0) -> Comparer:
    """The setting above wins from `threshold` on; within a factor of `width` around it nobody does."""

    def compare(value: int) -> Side:
        if threshold / width < value < threshold * width:
            return "tie"
        return "above" if value >= threshold else "below"

    return compare


def find(compare: Comparer, grid: tuple[int, ...] = GRID) -> Found:
    return find_crossover(compare, grid, BOUNDS)


@given(st.integers(20, 1 << 19))
def test_a_crossover_is_bracketed_wherever_it_lies_in_the_bounds(threshold: int) -> None:
    """Below the grid, inside and above it: the bracket holds the threshold, and is as narrow as was asked for."""
    found = find(at(threshold))
    assert found.kind == "crossover"
    assert found.between is not None
    low, high = found.between
    assert low < threshold <= high
    assert high / low <= 1.1 or high - low == 1
    assert found.value == high


def test_the_edges_of_the_grid_are_no_crossover() -> None:
    """A setting that wins on the whole grid is followed below it, to the bound."""
    found = find(at(1))
    assert str(found) == "always"
    assert min(found.compared) == BOUNDS[0]
    assert found.value is None
    found = find(at(1 << 30))
    assert str(found) == "never"
    assert max(found.compared) == BOUNDS[1]
    assert found.value is None


def test_a_zone_without_a_difference_lies_inside_the_bracket() -> None:
    found = find(at(5000, width=2.0))
    assert found.between is not None
    low, high = found.between
    assert low <= 2500
    assert high >= 10000
    assert low > 2200
    assert high < 11100


def test_answers_that_go_back_and_forth_are_no_stable_crossover() -> None:
    def waves(value: int) -> Side:
        return "above" if value.bit_length() % 2 else "below"

    found = find(waves, (1024, 2048, 4096, 8192))
    assert found.kind == "no stable crossover"
    assert "above, below" in found.reason
    assert found.value is None


def test_a_setting_that_wins_below_and_loses_above_is_no_crossover_of_this_parameter() -> None:
    found = find(lambda value: "below" if value > 4000 else "above")
    assert found.kind == "no stable crossover"
    assert found.value is None


def test_no_difference_anywhere_is_neither_always_nor_never() -> None:
    found = find(lambda value: "tie")
    assert found.kind == "no stable crossover"
    assert "no difference" in found.reason


def test_a_bracket_that_a_second_look_does_not_confirm_is_not_stable() -> None:
    asked: dict[int, int] = {}

    def fickle(value: int) -> Side:
        asked[value] = asked.get(value, 0) + 1
        return "tie" if asked[value] > 1 else at(3000)(value)

    found = find(fickle)
    assert found.kind == "no stable crossover"
    assert "second look" in found.reason


def test_one_lucky_win_among_ties_is_neither_always_nor_never() -> None:
    asked: list[int] = []

    def lucky(value: int) -> Side:
        asked.append(value)
        return "above" if value == 4096 and asked.count(4096) == 1 else "tie"

    found = find(lucky)
    assert found.kind == "no stable crossover"
    assert "second look" in found.reason


def test_a_bracket_widens_to_the_nearest_ends_that_a_second_look_confirms() -> None:
    """Within a factor of 1.5 of the threshold only every first look shows a winner."""
    asked: list[int] = []

    def faint(value: int) -> Side:
        asked.append(value)
        near = 2000 < value < 4500
        return "tie" if near and asked.count(value) > 1 else at(3000)(value)

    found = find(faint)
    assert found.between is not None
    assert found.between[0] <= 2000
    assert found.between[1] >= 4500


def test_settings_that_take_the_same_code_path_are_never_compared() -> None:
    """Below 2000 both settings run the serial code: nothing is measured there, and nothing is concluded."""
    asked: list[int] = []

    def compare(value: int) -> Side:
        asked.append(value)
        return at(8000)(value)

    found = find_crossover(compare, GRID, BOUNDS, paths=lambda v: ("serial", "serial" if v < 2000 else "parallel"))
    assert found.kind == "crossover"
    assert min(asked) >= 2000
    everywhere = find_crossover(compare, GRID, BOUNDS, paths=lambda v: ("serial", "serial"))
    assert everywhere.kind == "no stable crossover"
    assert "same code path" in everywhere.reason
    assert everywhere.compared == {}


def test_each_value_is_compared_once_and_the_ends_of_the_bracket_twice() -> None:
    asked: list[int] = []

    def compare(value: int) -> Side:
        asked.append(value)
        return at(3000)(value)

    found = find(compare)
    assert {value for value in asked if asked.count(value) == 2} == set(found.between or ())
    assert len(asked) <= 30


def test_paired_ratios_are_judged_by_their_interval() -> None:
    assert side_of([1.2] * 9) == "above"
    assert side_of([0.8] * 9) == "below"
    assert side_of([1.01] * 9) == "tie"
    assert side_of([0.7, 0.8, 0.9, 1.0, 1.3, 1.3, 1.4, 1.5, 1.6]) == "tie"
    for bad in ([], [0.0], [-1.0], [float("nan")], [float("inf")]):
        with pytest.raises(ValueError, match="positive"):
            side_of(bad)


@pytest.mark.parametrize("kind", KINDS)
def test_under_noise_a_crossover_is_found_where_it_is_and_equal_settings_have_none(kind: str) -> None:
    """Made-up noise and every trace recorded on a real box: no outcome but the true one, and it is found."""
    for seed in range(10):
        disturb, clock = KINDS[kind](random.Random(seed)), [0.0]

        def pairs(gain: float, disturb: Disturbance = disturb, clock: list[float] = clock) -> list[float]:
            clock[0] += 0.01
            return [gain * disturb(clock[0]) / disturb(clock[0] + 3e-4) for _ in range(15)]

        found = find(lambda value: pairs((value / 5000) ** 0.5))
        assert found.between is not None
        assert GRID[0] <= found.between[0] < 6000
        assert 4000 < found.between[1] <= GRID[-1]
        assert find(lambda value: pairs(1.0)).kind == "no stable crossover"


def test_a_grid_outside_the_bounds_is_refused() -> None:
    for grid, bounds in (((), BOUNDS), ((1,), BOUNDS), (GRID, (0, 5)), (GRID, (5, 5))):
        with pytest.raises(ValueError, match="bounds"):
            find_crossover(at(100), grid, bounds)
