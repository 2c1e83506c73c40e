"""The noise probe on clocks that the test winds, and its verdicts on made-up bursts."""

from __future__ import annotations

import argparse
import os
import random
from typing import Any

import pytest

from tunegen import knobs
from tunegen.box import effective_threads, this_box
from tunegen.harness import noise, race, tuner
from tunegen.harness.disturbances import gaussian
from tunegen.harness.noise import Noise, judge, merged
from tunegen.harness.simulate import contest, replay, synthetic
from tunegen.harness.spawn import Stop


def bursts(count: int = 200, ns: float = 100_000.0, spread: float = 0.004, seed: int = 0) -> list[float]:
    """Times of equal bursts with some noise."""
    rng = random.Random(seed)
    return [ns * rng.lognormvariate(0.0, spread) for _ in range(count)]


QUIET = judge(bursts(seed=1), bursts(seed=2), 1.0)


class World:
    """A clock and a processor clock that bursts move on; every `stolen`-th burst somebody else has the core as long."""

    def __init__(self, stolen: int = 0) -> None:
        self.wall = 0
        self.cpu = 0
        self.stolen = stolen
        self.count = 0
        self.rng = random.Random(3)

    def burst(self) -> None:
        taken = int(100_000 * self.rng.lognormvariate(0.0, 0.004))
        self.count += 1
        self.cpu += taken
        self.wall += taken * (2 if self.stolen and self.count % self.stolen == 0 else 1)

    def probe(self, seconds: float = 0.05) -> Noise:
        return noise.probe(seconds, lambda: self.wall, lambda: self.cpu, (self.burst, self.burst))


def test_equal_bursts_on_a_core_of_our_own_are_quiet() -> None:
    assert QUIET.verdict == "quiet"
    assert QUIET.reason == ""
    assert 0 < QUIET.floor < 0.01


def test_a_probe_lasts_as_long_as_it_is_told_and_long_enough_for_a_race_of_pairs() -> None:
    world = World()
    seen = world.probe(0.05)
    assert seen.verdict == "quiet"
    assert seen.share == pytest.approx(1.0)
    assert 0.05e9 <= world.wall <= 0.052e9
    assert World().probe(0.0).bursts == 2 * noise.PAIRS


@pytest.mark.parametrize(("stolen", "verdict"), [(20, "noisy"), (2, "refused"), (1, "refused")])
def test_another_process_on_the_core_shows_as_wall_time_without_processor_time(stolen: int, verdict: str) -> None:
    seen = World(stolen).probe()
    assert seen.verdict == verdict
    assert "something else has the core" in seen.reason


def test_bursts_that_fidget_are_noisy_and_then_refused() -> None:
    assert judge(bursts(), bursts(spread=0.1), 1.0).verdict == "noisy"
    assert judge(bursts(), bursts(spread=0.4), 1.0).verdict == "refused"
    assert "chance makes gains" in judge(bursts(), bursts(spread=0.4), 1.0).reason


def test_a_single_hiccup_says_nothing() -> None:
    times = bursts()
    times[100] *= 20
    assert judge(times, bursts(), 1.0).verdict == "quiet"


def test_a_box_that_turned_slow_in_between_shows_against_the_fastest_burst_of_all_probes() -> None:
    """A busy sibling slows every burst of one probe alike, so that probe alone looks quiet."""
    slow = judge(bursts(seed=3), bursts(ns=180_000.0, seed=4), 1.0)
    assert slow.verdict == "quiet"
    together = merged([QUIET, slow, slow])
    assert together.verdict == "noisy"
    assert "bytecode usually runs 1.8" in together.reason
    assert together.bursts == 600


def test_what_passed_before_the_middle_of_a_tune_counts_for_less_than_what_lasted() -> None:
    bad = judge(bursts(spread=0.4), bursts(), 0.5)
    assert merged([bad, QUIET, QUIET]).verdict != "refused"
    assert merged([bad, bad, QUIET]).verdict == "refused"
    assert merged([QUIET]) == QUIET


@pytest.mark.parametrize("wrong", [0.0, -5.0])
def test_bursts_that_took_no_time_are_refused(wrong: float) -> None:
    with pytest.raises(race.Refused, match="noise probe"):
        judge([*bursts(), wrong], bursts(), 1.0)


def test_the_evidence_is_short_and_plain() -> None:
    assert set(QUIET.evidence()) == {"verdict", "floor", "slowdown", "share", "bursts"}
    assert all(type(value) in (str, int, float) for value in QUIET.evidence().values())


def test_the_quietest_core_is_the_one_that_is_ours_and_a_tie_goes_to_the_last() -> None:
    busy = judge(bursts(), bursts(), 0.5)
    assert noise.quietest([0, 1, 2], lambda core: busy if core == 2 else QUIET) == 1
    assert noise.quietest([0, 1, 2], lambda core: QUIET) == 2


def test_of_cores_of_two_kinds_a_fast_one_is_taken() -> None:
    small = judge(bursts(ns=250_000.0), bursts(ns=250_000.0), 1.0)
    assert noise.quietest([0, 1, 2], lambda core: small if core else QUIET) == 0


def test_of_many_cores_a_few_are_looked_at() -> None:
    seen: list[int] = []

    def look(core: int) -> Noise:
        seen.append(core)
        return QUIET

    assert noise.quietest(range(128), look) in range(128)
    assert len(seen) <= noise.PROBED_CORES


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system pins no thread")
def test_pinning_takes_one_allowed_core_and_leaves_the_box_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = os.sched_getaffinity(0)
    monkeypatch.setattr(noise, "_on_core", lambda core: QUIET)
    before, threads, wanted = this_box(), effective_threads(), knobs.THREADS.get()
    try:
        core = noise.pin()
        assert os.sched_getaffinity(0) == {core}
        assert core in allowed
        assert (this_box(), effective_threads()) == (before, threads)
    finally:
        os.sched_setaffinity(0, allowed)
        knobs.change({knobs.THREADS.name: None if wanted is None else str(wanted)})


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system pins no thread")
def test_a_real_probe_says_something_and_leaves_the_affinity_as_it_was() -> None:
    allowed = os.sched_getaffinity(0)
    seen = noise.probe_quietest(0.0)
    assert seen.verdict in ("quiet", "noisy", "refused")
    assert os.sched_getaffinity(0) == allowed


@pytest.mark.parametrize(
    ("seen", "arguments", "code", "tunes"),
    [
        (QUIET, [], 0, True),
        (judge(bursts(), bursts(spread=0.1), 1.0), [], 0, True),
        (judge(bursts(), bursts(), 0.5), [], 3, False),
        (judge(bursts(), bursts(), 0.5), ["--noisy-ok"], 0, True),
    ],
)
def test_a_tune_is_refused_before_it_starts_unless_the_user_insists(
    monkeypatch: pytest.MonkeyPatch, seen: Noise, arguments: list[str], code: int, tunes: bool
) -> None:
    started: list[bool] = []
    monkeypatch.setattr(tuner, "probe_quietest", lambda: seen)
    monkeypatch.setattr(tuner, "tune", lambda *_, **__: started.append(True) or iter(()))
    parser = argparse.ArgumentParser()
    tuner.add_options(parser)
    options = parser.parse_args(arguments)
    options.events = None
    something: Any = [object()]
    assert tuner._tune(something, options, Stop(), 0.0) == code
    assert bool(started) == tunes


def found_under(deviation: float, gains: dict[str, float], tunes: int = 30) -> tuple[float, list[float]]:
    """The floor that a probe sees under normal noise, and the true gains of the winners of simulated tunes in it."""
    rng = random.Random(1)
    floor = judge([1e5 * rng.gauss(1, deviation) for _ in range(2000)], bursts(), 1.0).native.floor
    space = synthetic({"default": 1e5, **{name: 1e5 / gain for name, gain in gains.items()}}, "default")
    winners = [replay(space, contest(), gaussian(random.Random(seed), deviation), seed) for seed in range(tunes)]
    return floor, [space.gain(winner) for winner in winners]


def test_on_a_quiet_box_tunes_agree_as_the_threshold_says() -> None:
    floor, chosen = found_under(0.031, {f"v{i}": 1 + i / 200 for i in range(-6, 7)})
    assert floor == pytest.approx(noise.QUIET_FLOOR, abs=0.003)
    assert sum(gain >= 1.03 / 1.02 for gain in chosen) >= 28


def test_on_a_box_that_is_refused_too_little_would_be_found() -> None:
    others = {f"v{i}": 1.0 for i in range(50)}
    floor, chosen = found_under(0.155, {**others, "good": 1.1})
    assert floor == pytest.approx(noise.WORST_FLOOR, abs=0.01)
    assert sum(gain > 1 for gain in chosen) <= 20
    assert sum(gain > 1 for gain in found_under(0.1, {**others, "good": 1.1})[1]) >= 24
