"""When a race ends: on made-up verdicts and times."""

from __future__ import annotations

import random

import pytest

from tunegen.harness import looks, race
from tunegen.harness.looks import Look
from tunegen.harness.race import Verdict


def verdict(name: str, low: float, high: float, worst: tuple[float, float] = (0.99, 1.2)) -> Verdict:
    return Verdict(name, (low + high) / 2, (low, high), (worst[0] + worst[1]) / 2, 15, worst)


def seen(*verdicts: Verdict, floor: float = 0.002) -> Look:
    return Look({each.runner: each for each in verdicts}, floor)


def test_a_race_is_looked_at_again_after_twice_as_many_rounds() -> None:
    assert looks.schedule(15) == [15, 30, 60, 120, 240]


def test_every_look_has_its_share_of_the_risk() -> None:
    assert pytest.approx(0.99) == looks.LOOK_CONFIDENCE
    ordered = [float(i) for i in range(15)]
    assert race.interval_of_median(ordered, looks.LOOK_CONFIDENCE) == (2, 12)
    assert race.interval_of_median(ordered) == (3, 11)


@pytest.mark.parametrize(
    ("look", "left"),
    [
        (seen(verdict("a", 1.05, 1.06)), []),  # sure to win
        (seen(verdict("a", 0.97, 1.005)), []),  # sure not to
        (seen(verdict("a", 0.99, 1.03)), ["a"]),
        (seen(verdict("a", 1.05, 1.30)), []),  # nobody to be told apart from
        (seen(verdict("a", 1.05, 1.30), verdict("b", 1.02, 1.03)), []),  # b is surely behind
        (seen(verdict("a", 1.05, 1.30), verdict("b", 1.04, 1.20)), ["a", "b"]),
        (seen(verdict("a", 1.05, 1.06), verdict("b", 1.045, 1.06)), []),  # a tie, as well as can be told
        (seen(verdict("a", 1.05, 1.06), verdict("b", 0.90, 1.09)), ["a", "b"]),
        (seen(verdict("a", 1.05, 1.06), floor=0.08), ["a"]),  # below what chance makes so far
        (seen(verdict("a", 1.05, 1.06, (0.90, 0.96))), []),  # surely too slow on a case
        (seen(verdict("a", 1.05, 1.06, (0.95, 0.99))), ["a"]),  # perhaps too slow on a case
    ],
)
def test_a_race_goes_on_among_those_whom_more_rounds_may_help(look: Look, left: list[str]) -> None:
    assert look.open() == left


def test_a_confirmation_goes_on_until_it_is_certain_whether_it_stands_by_a_winner() -> None:
    assert seen(verdict("a", 1.001, 1.06)).unconfirmed() == []
    assert seen(verdict("a", 0.99, 1.06)).unconfirmed() == ["a"]
    assert seen(verdict("a", 0.99, 1.005)).unconfirmed() == []
    assert seen(verdict("a", 1.02, 1.06, (0.95, 0.99))).unconfirmed() == ["a"]


def test_a_look_compares_everybody_with_the_default_and_that_with_its_twin() -> None:
    rng = random.Random(1)
    runners = ["default", "a", race.TWIN]
    speeds = {"default": 1.0, "a": 0.9, race.TWIN: 1.0}
    times = race.rounds(lambda r, _: speeds[r] * rng.gauss(1, 0.005), runners, ["x", "y"], lambda n: n >= 30)
    found = looks.look(times, "default", ["x", "y"])
    assert list(found.verdicts) == ["a"]
    assert found.verdicts["a"].ratio == pytest.approx(1 / 0.9, rel=0.01)
    assert 0 < found.floor < 0.01
