"""A contest on made-up samples: no clock, no kernel."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_noise import QUIET, bursts
from toys import TOY

from tunegen import f32
from tunegen.harness import bench as bench_module
from tunegen.harness import race
from tunegen.harness.bench import Bench
from tunegen.harness.contest import Contest
from tunegen.harness.measure import ClockError
from tunegen.harness.noise import Noise, judge
from tunegen.harness.protocol import Message, RegimeResult, Trying


class Made:
    """A bench whose runners have given speeds, with some noise; `later` are speeds from the confirmation on."""

    def __init__(self, speeds: dict[str, float], later: dict[str, float] | None = None, spread: float = 0.002) -> None:
        self.speeds = {"reference": 10.0, **speeds}
        self.later = {**self.speeds, **(later or {})}
        self.spread = spread
        self.rng = random.Random(1)
        self.said: list[Trying] = []
        self.sampled: list[tuple[str, str]] = []

    def tell(self, message: Message) -> None:
        assert isinstance(message, Trying)
        self.said.append(message)

    def move(self, series: int) -> None:
        """Other places, and the same speeds."""

    def sample(self, suffix: str, case_name: str, number: int = 0) -> float:
        stage = self.said[-1].stage
        self.sampled.append((suffix, stage))
        speed = (self.later if stage == "confirm" else self.speeds)[suffix]
        return speed * 1000 * self.rng.lognormvariate(0.0, self.spread)


def contest(bench: Made, incumbent: str = "", **changes: Any) -> Contest:
    made = Contest(
        condition="", cases=("x", "y"), default="default", incumbent=incumbent, bench=bench, tell=bench.tell, pairs=15,
        finalists=4, now=lambda: 0.0, **changes,
    )  # fmt: skip
    for runner in bench.speeds:
        if runner != "reference":
            made.screen(runner)
    return made


def final(bench: Made, incumbent: str = "", **changes: Any) -> RegimeResult:
    return contest(bench, incumbent, **changes).final(1e9, {"passed": 1})


def test_the_faster_runner_wins_with_evidence_and_all_samples() -> None:
    found = final(Made({"default": 2.0, "a": 1.0, "b": 1.5}))
    assert found.winner == "a"
    assert found.gain == pytest.approx(2.0, rel=0.01)
    assert found.reference_gain == pytest.approx(10.0, rel=0.02)
    evidence = found.evidence
    assert evidence["runner_up"] == "b"
    assert evidence["confirmed"]["ratio"] == pytest.approx(2.0, rel=0.01)
    assert evidence["pairs"] == 15
    assert evidence["floor"] < 0.01
    assert set(found.samples) == {"default", "a", "b", race.TWIN}
    assert {len(ns) for by_case in found.samples.values() for ns in by_case.values()} == {15}
    assert set(found.confirmation) == {"default", "a", race.TWIN}
    assert set(found.samples["a"]) == {"x", "y"}


def test_who_runs_next_is_named_before_each_sample() -> None:
    bench = Made({"default": 2.0, "a": 1.0, "b": 1.5})
    final(bench)
    assert [(said.suffix, said.stage) for said in bench.said] == bench.sampled
    assert {said.stage for said in bench.said} == {"screen", "reference", "final", "confirm"}


def test_a_confirmation_only_demotes() -> None:
    """Whoever did not win the final is not crowned, however well it runs later."""
    lost = final(Made({"default": 1.0, "a": 0.5, "b": 0.999}, later={"a": 1.1, "b": 0.1}))
    assert lost.winner == "default"
    assert lost.gain == 1.0
    assert "confirmed" not in lost.evidence
    assert set(lost.confirmation) == {"default", "a", race.TWIN}


def test_a_demoted_winner_leaves_the_place_to_an_incumbent_that_stands() -> None:
    found = final(Made({"default": 1.0, "a": 0.5, "old": 0.7}, later={"a": 1.1}), incumbent="old")
    assert found.winner == "old"
    assert found.gain == pytest.approx(1 / 0.7, rel=0.01)
    assert set(found.confirmation) == {"default", "a", "old", race.TWIN}
    assert final(Made({"default": 1.0, "a": 0.5, "old": 0.99}, {"a": 1.1}), incumbent="old").winner == "default"


def test_ties_go_to_the_incumbent_then_the_fallback_then_the_grid() -> None:
    speeds = {"default": 2.0, "z": 1.0, "y": 1.001, "x": 1.002}
    grid = {"x": 0, "y": 1, "z": 2}

    def place(suffix: str) -> tuple[int, ...]:
        return (grid.get(suffix, 9),)

    assert final(Made(speeds), place=place).winner == "x"
    assert final(Made(speeds), place=place, chain=("y", "x")).winner == "y"
    assert final(Made(speeds), place=place, chain=("y", "x"), incumbent="z").winner == "z"
    assert final(Made({**speeds, "z": 0.9}), place=place, chain=("y",)).winner == "z"


def test_a_gain_within_the_noise_of_the_race_is_no_win() -> None:
    """What counts is how the default does against itself, in the same rounds; a probe of other work goes on record."""
    speeds = {"default": 1.05, "a": 1.0}
    loud = judge(bursts(spread=0.12), bursts(), 1.0)
    quiet, noisy = final(Made(speeds), probe=lambda: loud), final(Made(speeds, spread=0.5))
    assert (quiet.winner, noisy.winner) == ("a", "default")
    assert noisy.evidence["floor"] > 0.05
    assert quiet.evidence["floor"] < 0.01
    assert quiet.evidence["box"]["verdict"] == "noisy"
    assert quiet.noise is not None
    assert quiet.noise.native.floor == pytest.approx(loud.native.floor)


def test_the_box_is_looked_at_before_between_and_after() -> None:
    bench = Made({"default": 2.0, "a": 1.0})
    seen: list[str] = []

    def probe() -> Noise:
        seen.append(bench.said[-1].stage)
        return QUIET

    found = final(bench, probe=probe)
    assert seen == ["screen", "final", "confirm"]
    assert found.evidence["box"]["bursts"] == 3 * QUIET.bursts


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("stage", ["screen", "final", "confirm"])
def test_samples_that_are_no_positive_numbers_cost_their_runner_alone(wrong: float, stage: str) -> None:
    class Flaky(Made):
        def sample(self, suffix: str, case_name: str, number: int = 0) -> float:
            ns = super().sample(suffix, case_name, number)
            return wrong if suffix == "flaky" and self.said[-1].stage == stage else ns

    found = final(Flaky({"default": 2.0, "flaky": 0.5, "a": 1.0}))
    assert found.winner == ("default" if stage == "confirm" else "a")
    assert "no positive number" in found.evidence["refused"]["flaky"]
    assert all(math.isfinite(ns) for by in found.samples.values() for all_ns in by.values() for ns in all_ns)


def test_a_race_goes_on_while_it_is_undecided_and_no_longer() -> None:
    """A clear gain is decided at the first look; a small one beside noise takes more rounds, and has them."""
    clear = final(Made({"default": 2.0, "a": 1.0}))
    assert (clear.winner, clear.evidence["pairs"], clear.evidence["confirmed"]["pairs"]) == ("a", 15, 15)
    small = final(Made({"default": 1.06, "a": 1.0}, spread=0.05))
    assert small.winner == "a"
    assert small.evidence["pairs"] > 15
    none = final(Made({"default": 1.0, "a": 1.0}, spread=0.05))
    assert none.winner == "default"
    assert len(none.samples["a"]["x"]) == 240


def test_who_has_lost_leaves_the_race_and_the_others_go_on() -> None:
    found = final(Made({"default": 1.06, "a": 1.0, "slow": 1.5}, spread=0.05))
    assert found.winner == "a"
    assert len(found.samples["slow"]["x"]) == 15 < len(found.samples["a"]["x"])


def test_near_ties_of_the_screening_are_told_apart_in_heats() -> None:
    """Of twelve that screening could not tell apart four are finalists; what the heats saw is not in the final."""
    speeds = {"default": 1.2, **{f"v{i}": 1.1 for i in range(12)}, "best": 1.0}
    bench = Made(speeds, spread=0.1)
    found = final(bench)
    assert found.winner == "best"
    assert len(set(found.samples) - {"default", race.TWIN}) == 4
    heats = {suffix for suffix, stage in bench.sampled if stage == "heat"}
    assert len(heats) > 8
    assert bench.said[-1].stage == "confirm"


def test_clear_differences_need_no_heat() -> None:
    bench = Made({"default": 2.0, **{f"v{i}": 1.0 + i / 10 for i in range(10)}})
    assert final(bench).winner == "v0"
    assert {suffix for suffix, stage in bench.sampled if stage == "heat"} == {"default"}


def test_who_is_hopeless_in_the_first_round_of_screening_is_not_looked_at_again() -> None:
    bench = Made({"default": 1.0, "slow": 3.0, "a": 0.9})
    assert contest(bench).screened["slow"] == pytest.approx(1 / 3, rel=0.05)
    assert bench.sampled.count(("slow", "screen")) == 2, "one round of two cases"
    assert bench.sampled.count(("a", "screen")) > 2


def test_the_confirmation_has_its_operands_in_other_places() -> None:
    class Moved(Made):
        moves: list[tuple[int, str]] = []

        def move(self, series: int) -> None:
            self.moves = [*self.moves, (series, self.said[-1].stage)]

    bench = Moved({"default": 2.0, "a": 1.0})
    final(bench)
    assert bench.moves == [(0, "screen"), (1, "final")], "and every final those of the screening"


def test_a_default_that_cannot_be_measured_is_an_error() -> None:
    with pytest.raises(race.Refused, match="default on x"):
        contest(Made({"default": math.nan, "a": 1.0}))


def test_a_reference_that_cannot_be_measured_is_no_rival_and_no_gain() -> None:
    found = final(Made({"reference": math.nan, "default": 2.0, "a": 1.0}))
    assert (found.winner, found.reference_gain) == ("a", 0.0)


def jitter(rng: random.Random, kind: str) -> Callable[[], float]:
    """Factors by which a box disturbs one sample after the other."""
    if kind == "plain":
        return lambda: rng.lognormvariate(0.0, 0.03)
    state = {"slow": False, "drift": 0.0}

    def step() -> float:
        if rng.random() < 0.05:
            state["slow"] = not state["slow"]
        state["drift"] += rng.gauss(0.0, 0.004)
        return math.exp(state["drift"]) * (1.8 if state["slow"] else 1.0) * rng.lognormvariate(0.0, 0.01)

    return step


@pytest.mark.parametrize("kind", ["plain", "bursts and drift"])
def test_of_fifty_identical_variants_none_is_crowned_in_a_hundred_tunes(kind: str) -> None:
    class Same(Made):
        def sample(self, suffix: str, case_name: str, number: int = 0) -> float:
            return 1000 * factor()

    winners = []
    for seed in range(100):
        factor = jitter(random.Random(seed), kind)
        winners.append(final(Same({"default": 1.0, **{f"v{i}": 1.0 for i in range(50)}})).winner)
    assert winners == ["default"] * 100


def test_a_gain_of_a_tenth_is_found_in_the_same_noise() -> None:
    """The caution is worth something only if it does not refuse everything."""

    class Better(Made):
        def sample(self, suffix: str, case_name: str, number: int = 0) -> float:
            return self.speeds[suffix] * 1000 * factor()

    found = []
    for seed in range(20):
        factor = jitter(random.Random(seed), "plain")
        found.append(final(Better({"default": 1.1, "a": 1.0, **{f"v{i}": 1.1 for i in range(10)}})).winner)
    assert found.count("a") >= 18
    assert set(found) <= {"a", "default"}


def test_a_bench_shares_operands_between_runners_and_cools_them_as_the_case_declares(
    library: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_module, "last_cache_bytes", lambda: 1 << 20)
    toy = library(TOY.replace('case("some", N=8)', 'case("hot", N=8), case("cold", N=8, cold=True)')).toy
    bench = Bench(toy.spec, f32, {"a": toy.reference, "b": toy.reference})
    for suffix in ("a", "b"):
        for case_name in ("hot", "cold"):
            assert bench.sample(suffix, case_name) > 0
    assert bench.runners["a", "cold"].operands is bench.runners["b", "cold"].operands
    assert [len(bench.operands[name]) for name in ("hot", "cold")] == [race.PLACES, 1]
    assert [bench.operands[name][0].cold for name in ("hot", "cold")] == [False, True]
    assert len(bench.operands["hot"][0].sets) == 1
    assert len(bench.operands["cold"][0].sets) >= bench.runners["a", "cold"].repetitions


def test_rounds_have_their_operands_in_other_places_which_all_runners_of_a_round_share(
    library: Callable[..., Any],
) -> None:
    seen: list[tuple[str, int]] = []

    def noting(name: str) -> Callable[..., Any]:
        return lambda x, out: seen.append((name, out.ctypes.data))

    toy = library(TOY).toy
    bench = Bench(toy.spec, f32, {"a": noting("a"), "b": noting("b")})
    places: list[set[int]] = []
    for number in range(2 * race.PLACES):
        seen.clear()
        bench.sample("a", "some", number)
        bench.sample("b", "some", number)
        assert {address for _, address in seen[-2:]} == {seen[-1][1]}
        places.append({address for _, address in seen[-2:]})
    assert places[: race.PLACES] == places[race.PLACES :]
    assert len(set.union(*places)) == race.PLACES
    bench.move(1)
    bench.sample("a", "some")
    assert seen[-1][1] not in set.union(*places), "a second race does not share the places of the first"


def test_operands_that_calls_update_begin_in_new_places_as_they_began_in_the_old(library: Callable[..., Any]) -> None:
    made = library("""
        @scope.tune(gen="toy.ll.j2", gate=bitwise(), cases=[case("some", N=8)], fallback="reference")
        @scope.tune_grid(row=[1])
        def grow(x: In[f32, "N"], out: InOut[f32, "N"]) -> None:
            out += 1 + abs(x)
    """)
    seen: list[float] = []

    def call(x: Any, out: Any) -> None:
        seen.append(float(out[0]))
        made.grow.reference(x, out)

    bench = Bench(made.grow.spec, f32, {"a": call})
    bench.sample("a", "some")
    bench.move(1)
    bench.sample("a", "some")
    assert len(set(seen)) == 1


def test_places_are_the_same_in_every_run_and_few_for_large_operands() -> None:
    one, other = (bench_module.placed(np.arange(10.0), 3, 1) for _ in range(2))
    assert one.ctypes.data % 4096 == other.ctypes.data % 4096
    assert one.ctypes.data != other.ctypes.data
    assert (one == np.arange(10.0)).all()
    given = np.arange(10.0)
    assert bench_module.placed(given, 0, 1) is given, "the first place is where numpy put it"
    assert bench_module.placed(2.5, 3, 1) == 2.5
    assert len({bench_module.placed(given, place, 0).ctypes.data % 4096 for place in range(1, 9)}) > 5
    huge = np.broadcast_to(np.float32(0), (1 << 30,))
    assert bench_module.count_for([given, 1.0]) == race.PLACES
    assert bench_module.count_for([huge]) == bench_module.FEWEST_PLACES


def test_a_clock_that_stands_still_refuses_the_runner_it_stood_still_for(
    library: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = library(TOY).toy
    bench = Bench(toy.spec, f32, {"a": toy.reference})
    bench.sample("a", "some")

    def stands_still() -> float:
        raise ClockError

    monkeypatch.setattr(bench.runners["a", "some"], "sample", stands_still)
    with pytest.raises(race.Refused, match="a on some"):
        bench.sample("a", "some")
