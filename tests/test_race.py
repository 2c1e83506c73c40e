"""The race decides on made-up times: no clock, no kernel."""

from __future__ import annotations

import math
import pickle
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunegen.harness import race


def sampler(speeds: dict[str, float], noise: float = 0.0, seed: int = 0) -> race.Sampler:
    """Times per call from a speed per runner, each blurred by up to `noise`."""
    rng = random.Random(seed)
    return lambda runner, case: speeds[runner] * (1 + noise * rng.random())


def ratio_of(times: race.Times, runner: str) -> race.Verdict:
    return race.compare(times, runner, "default", sorted({case for _, case in times}))


def test_the_order_rotates_and_every_round_is_whole() -> None:
    seen: list[str] = []

    def sample(runner: str, case: str) -> float:
        seen.append(runner)
        return 1.0

    times = race.rounds(sample, ["a", "b", "c"], ["x"], lambda done: done >= 3)
    assert seen == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert all(len(samples) == 3 for samples in times.values())


def test_the_order_turns_round_after_a_full_turn_so_that_neighbours_change() -> None:
    seen: list[str] = []

    def sample(runner: str, case: str) -> float:
        seen.append(runner)
        return 1.0

    race.rounds(sample, ["a", "b", "c"], ["x"], lambda done: done >= 6)
    assert seen[9:] == ["c", "b", "a", "a", "c", "b", "b", "a", "c"]
    for position in range(3):
        assert sorted(seen[position::3]) == ["a", "a", "b", "b", "c", "c"]


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_a_sample_that_is_no_positive_number_is_refused_with_its_runner_and_case(wrong: float) -> None:
    with pytest.raises(race.Refused, match="b on x") as caught:
        race.rounds(lambda runner, case: wrong if runner == "b" else 1.0, ["a", "b"], ["x"], lambda n: n >= 1)
    assert pickle.loads(pickle.dumps(caught.value)).runner == "b"


def test_a_faster_runner_wins_with_its_ratio_as_evidence() -> None:
    times = race.rounds(sampler({"default": 2.0, "a": 1.0}), ["default", "a"], ["x", "y"], lambda n: n >= 15)
    verdict = ratio_of(times, "a")
    assert verdict.wins
    assert verdict.ratio == pytest.approx(2.0)
    assert verdict.pairs == 15


def test_a_gain_below_the_minimum_is_no_win() -> None:
    times = race.rounds(sampler({"default": 1.005, "a": 1.0}), ["default", "a"], ["x"], lambda n: n >= 15)
    assert not ratio_of(times, "a").wins


def test_one_bad_case_disqualifies_however_good_the_others_are() -> None:
    def sample(runner: str, case: str) -> float:
        return {"default": 1.0, "a": 0.2 if case == "x" else 1.1}[runner]

    times = race.rounds(sample, ["default", "a"], ["x", "y"], lambda n: n >= 9)
    verdict = ratio_of(times, "a")
    assert verdict.ratio > 2
    assert verdict.worst == pytest.approx(1 / 1.1)
    assert not verdict.wins


def test_equal_runners_never_win_against_each_other_whatever_the_noise() -> None:
    """Fifty identical variants and much noise: nobody is crowned."""
    speeds = {"default": 1.0, **{f"v{i}": 1.0 for i in range(50)}}
    for seed in range(10):
        times = race.rounds(sampler(speeds, noise=0.3, seed=seed), list(speeds), ["x", "y"], lambda n: n >= 15)
        verdicts = [ratio_of(times, runner) for runner in speeds if runner != "default"]
        winner = race.decide(verdicts, {})
        again = race.rounds(sampler(speeds, 0.3, seed + 100), ["default", "v0"], ["x", "y"], lambda n: n >= 15)
        assert winner is None or not race.confirmed(ratio_of(again, "v0"))


def test_ties_go_to_the_preferred_runner() -> None:
    verdicts = [race.Verdict(name, ratio, (1.4, 1.6), 1.4, 15) for name, ratio in [("new", 1.505), ("old", 1.5)]]
    assert race.decide(verdicts, {"old": 0, "new": 1}) == verdicts[1]
    assert race.decide(verdicts, {"new": 0, "old": 1}) == verdicts[0]
    clear = [verdicts[0], race.Verdict("old", 1.3, (1.2, 1.4), 1.2, 15)]
    assert race.decide(clear, {"old": 0}) == clear[0]


def test_a_second_race_can_only_demote() -> None:
    assert race.confirmed(race.Verdict("a", 1.2, (1.1, 1.3), 1.0, 15))
    assert not race.confirmed(race.Verdict("a", 1.2, (0.99, 1.3), 1.0, 15))
    assert not race.confirmed(race.Verdict("a", 1.2, (1.1, 1.3), 0.9, 15))


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=60))
def test_the_interval_holds_the_median_and_stays_in_the_range(samples: list[float]) -> None:
    ordered = sorted(samples)
    low, high = race.interval_of_median(ordered)
    assert ordered[0] <= low <= ordered[len(ordered) // 2] <= high <= ordered[-1]


@pytest.mark.parametrize(("n", "k"), [(5, 0), (6, 0), (9, 1), (15, 3), (25, 7), (31, 9)])
def test_the_interval_is_that_of_the_tables(n: int, k: int) -> None:
    """Order statistics for a 95 % interval of the median, as statistics books tabulate them."""
    assert race.interval_of_median([float(i) for i in range(n)]) == (k, n - 1 - k)


def test_noise_is_the_median_step_of_the_default() -> None:
    assert race.noise({("default", "x"): [1.0, 1.1, 1.1]}, "default", ["x"]) == pytest.approx(0.05)
    assert race.noise({("default", "x"): [1.0]}, "default", ["x"]) == 0


def test_the_floor_is_what_the_default_seems_to_gain_over_itself() -> None:
    """In nineteen of twenty races or so, an equal runner stays within it, and more rounds make it smaller."""
    runners = ["default", "a", race.TWIN]
    speeds = dict.fromkeys(runners, 1.0)
    for noise in (0.01, 0.05):
        above, floors = 0, {15: 0.0, 120: 0.0}
        for seed in range(200):
            for rounds in floors:
                times = race.rounds(sampler(speeds, noise, seed), runners, ["x"], lambda n, enough=rounds: n >= enough)
                floors[rounds] += race.floor(times, "default", ["x"])
                above += ratio_of(times, "a").ratio > 1 + race.floor(times, "default", ["x"])
        assert above <= 40
        assert floors[120] < floors[15] / 2
    still = {(runner, "x"): [2.0] * 15 for runner in ("default", race.TWIN)}
    assert race.floor(still, "default", ["x"]) == 0


def test_a_few_wild_samples_raise_neither_floor_nor_spread() -> None:
    times = {("default", "x"): [1.0, 1.01, 1.0, 5.0, 1.0, 1.01, 1.0, 1.01, 1.0], (race.TWIN, "x"): [1.005] * 9}
    assert race.floor(times, "default", ["x"]) < 0.02
    assert race.spread(times, race.TWIN, "default", ["x"]) < 0.02


def test_who_leaves_a_race_is_judged_by_the_rounds_that_it_ran() -> None:
    def field(times: race.Times, done: int) -> list[str]:
        return [] if done >= 20 else ["default", "a", "b"] if done < 9 else ["default", "b"]

    numbers: list[int] = []

    def sample(runner: str, case: str, number: int) -> float:
        numbers.append(number)
        return {"default": 2.0, "a": 1.0, "b": 4.0}[runner] * (1 if number < 9 else 3)

    times = race.contested(sample, field, ["x"])
    assert {runner: len(times[runner, "x"]) for runner in ("default", "a", "b")} == {"default": 20, "a": 9, "b": 20}
    assert (ratio_of(times, "a").ratio, ratio_of(times, "a").pairs) == (2.0, 9)
    assert sorted(set(numbers)) == list(range(20))


def test_a_gain_in_half_of_the_places_is_no_steady_one() -> None:
    """The median of few rounds may say so all the same."""
    here = [1.2 if number % race.PLACES < 5 else 0.99 for number in range(32)]
    times = {("default", "x"): here, ("a", "x"): [1.0] * 32}
    verdict = ratio_of(times, "a")
    assert verdict.interval[0] > 0.98
    assert not verdict.steady
    assert not race.confirmed(verdict)
    nearly = {("default", "x"): [1.2 if n % race.PLACES > 1 else 0.999 for n in range(32)], ("a", "x"): [1.0] * 32}
    assert race.confirmed(ratio_of(nearly, "a"))


def test_a_win_is_above_the_floor_and_runners_within_it_are_tied() -> None:
    verdict = race.Verdict("a", 1.2, (1.1, 1.3), 1.0, 15)
    assert verdict.beats(0.05)
    assert not verdict.beats(0.11)
    near = race.Verdict("old", 1.16, (1.1, 1.3), 1.0, 15)
    assert race.decide([verdict, near], {"old": 0}) == verdict
    assert race.decide([verdict, near], {"old": 0}, 0.05) == near
    assert race.decide([verdict, near], {"old": 0}, 0.5) is None
