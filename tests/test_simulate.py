"""Races on recorded and made-up spaces: no clock, no kernel, and always the same answer."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tunegen.errors import StoreError
from tunegen.grid import REFERENCE
from tunegen.harness import disturbances
from tunegen.harness.contest import Sampling
from tunegen.harness.disturbances import Disturbance, Trace, all_kinds, read_traces
from tunegen.harness.simulate import (
    Clock,
    FakeClock,
    Replay,
    Space,
    best_of,
    contest,
    handicapped,
    identical,
    read_spaces,
    replay,
    synthetic,
    write_spaces,
)

KINDS = all_kinds(read_traces())
RECORDED = Space(
    "gemm[f32]",
    "M <= 2",
    ("a", "b"),
    "default",
    {
        "default": {"a": [1000.0, 1010.0, 1005.0], "b": [5000.0, 5020.0, 5500.0]},
        "fast": {"a": [800.0, 805.0, 950.0], "b": [4000.0, 4005.0, 4001.0]},
        "lopsided": {"a": [400.0, 401.0, 402.0], "b": [6000.0, 6001.0, 6002.0]},
        REFERENCE: {"a": [9000.0, 9000.0, 9000.0], "b": [9000.0, 9000.0, 9000.0]},
    },
)


def quiet(now_s: float) -> float:
    return 1.0


def test_a_space_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "space.json"
    write_spaces(path, [RECORDED, identical(2)])
    assert read_spaces(path) == [RECORDED, identical(2)]
    assert [file.name for file in tmp_path.iterdir()] == ["space.json"]


def test_a_file_that_cannot_be_replayed_is_refused_with_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "space.json"
    for text, word in [("", "no recorded space"), ("{}", "no recorded space"),
                       ('{"tunegen_spaces": 9, "spaces": []}', "format 9")]:  # fmt: skip
        path.write_text(text)
        with pytest.raises(StoreError, match=word):
            read_spaces(path)
    with pytest.raises(StoreError, match="no recorded space"):
        read_spaces(tmp_path / "missing.json")
    with pytest.raises(StoreError, match="could not be written"):
        write_spaces(tmp_path / "missing" / "space.json", [])


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"default": "nobody"}, "nobody"),
        ({"cases": ()}, "no cases"),
        ({"cases": ("a", "b", "c")}, "some case"),
        ({"samples": {"default": {"a": [1.0], "b": [0.0]}}}, "positive"),
        ({"samples": {"default": {"a": [], "b": [1.0]}}}, "some case"),
    ],
)
def test_a_space_without_whole_samples_is_refused(tmp_path: Path, change: dict[str, object], word: str) -> None:
    path = tmp_path / "space.json"
    write_spaces(path, [msgspec.structs.replace(RECORDED, **change)])
    with pytest.raises(StoreError, match=word):
        read_spaces(path)


def test_gain_best_and_regret_come_from_the_medians() -> None:
    assert RECORDED.gain("fast") == pytest.approx((1005 / 805 * 5020 / 4001) ** 0.5)
    assert RECORDED.gain("default") == 1
    assert RECORDED.best() == "fast", "the lopsided one is faster, and loses on a case"
    assert RECORDED.regret("fast") == 0
    assert RECORDED.regret("default") == pytest.approx(RECORDED.gain("fast") - 1)


def test_a_replay_moves_its_own_clock_and_gives_levels_times_the_disturbance() -> None:
    clock = FakeClock()
    bench = Replay(RECORDED, clock, lambda now_s: 2.0 if now_s else 1.0, random.Random(0))
    assert bench.sample("fast", "a") == 805
    assert clock() > 0
    assert bench.sample("fast", "a") == 1610


def test_a_replay_without_a_disturbance_gives_the_recorded_samples_round_by_round() -> None:
    bench = Replay(RECORDED, FakeClock(), None, random.Random(0))
    own = RECORDED.samples
    first = own["default"]["a"].index(bench.sample("default", "a"))
    for index in range(first, first + 5):
        assert bench.sample("fast", "a") == own["fast"]["a"][index % 3]


def test_the_contest_finds_the_fast_one_on_a_recorded_space_and_never_the_lopsided_one() -> None:
    assert replay(RECORDED, contest(), quiet, 0) == "fast"
    for seed in range(20):
        assert replay(RECORDED, contest(), None, seed) in ("fast", "default")
        assert replay(RECORDED, contest(), disturbances.gaussian(random.Random(seed)), seed) == "fast"


def test_one_seed_gives_one_answer() -> None:
    space = synthetic({"default": 100.0, **{f"v{i}": 100.0 - i for i in range(10)}}, "default")
    make: Callable[[], Disturbance] = lambda: KINDS["gaussian 10 %"](random.Random(7))  # noqa: E731
    assert replay(space, contest(), make(), 7) == replay(space, contest(), make(), 7)


@pytest.mark.parametrize("kind", KINDS)
def test_fifty_identical_variants_never_win(kind: str) -> None:
    """Made-up noise, bursts, drift, and every trace that was recorded on a real box."""
    space = identical(50)
    for seed in range(25):
        assert replay(space, contest(), KINDS[kind](random.Random(seed)), seed) == "default"


def test_the_noise_is_real_enough_to_fool_a_naive_tuner() -> None:
    """Blocks of samples and the least of them: this is what the contest is better than."""
    space = identical(50)
    for make in KINDS.values():
        fooled = sum(replay(space, best_of(5), make(random.Random(s)), s) != "default" for s in range(10))
        assert fooled >= 5


def test_a_clear_gain_is_found_in_ordinary_noise() -> None:
    space = synthetic({"default": 1e5, **{f"v{i}": 1e5 for i in range(50)}, "good": 0.8e5}, "default")
    for kind in ("gaussian 3 %", "bursts", "drift"):
        found = [replay(space, contest(), KINDS[kind](random.Random(seed)), seed) for seed in range(10)]
        assert found.count("good") >= 9


def test_a_short_budget_screens_fewer_and_still_crowns_nobody_by_luck() -> None:
    space = identical(50)
    taken = []
    for seconds in (0.01, 15.0):
        clock = FakeClock()
        bench = Replay(space, clock, quiet, random.Random(0))
        assert contest(seconds=seconds)(space, bench, clock) == "default"
        taken.append(clock())
    assert taken[0] < taken[1]


def test_a_clock_that_began_long_ago_leaves_the_whole_budget() -> None:
    """Real clocks count from some moment in the past: everybody is screened all the same."""
    space = identical(10)
    seen: set[str] = set()

    class Spy(Replay):
        def sample(self, suffix: str, case_name: str, number: int = 0) -> float:
            seen.add(suffix)
            return super().sample(suffix, case_name, number)

    clock = FakeClock()
    clock.now_s = 1e6
    assert contest()(space, Spy(space, clock, quiet, random.Random(0)), clock) == "default"
    assert seen >= set(space.runners)


def test_the_incumbent_keeps_its_place_in_a_tie() -> None:
    space = synthetic({"default": 100.0, "new": 80.0, "old": 80.2}, "default")
    assert replay(space, contest(), quiet, 0) == "new"
    assert replay(msgspec.structs.replace(space, incumbent="old"), contest(), quiet, 0) == "old"


def test_any_strategy_can_be_replayed() -> None:
    def first(space: Space, bench: Sampling, clock: Clock) -> str:
        assert bench.sample(space.default, space.cases[0]) > 0
        assert clock() > 0
        return space.runners[0]

    assert replay(RECORDED, first, quiet, 0) == "default"


def test_traces_were_recorded_quiet_and_loaded_and_say_where() -> None:
    traces = read_traces()
    assert {trace.name.partition("-")[2] for trace in traces} == {"quiet", "loaded"}
    for trace in traces:
        assert len(trace.deviations) >= 1000
        assert trace.about
        assert min(trace.factors) > 0
        assert 1 <= trace.percentiles[0] <= trace.percentiles[1] <= trace.percentiles[2]


def test_a_trace_is_replayed_sample_by_sample_and_round_again(tmp_path: Path) -> None:
    trace = Trace("t", "made up", 300.0, [0, 100, 200])
    disturbances.write_trace(trace, tmp_path)
    assert read_traces(tmp_path) == [trace]
    following = disturbances.replayed(trace, random.Random(0))
    seen = [following(0.0) for _ in range(6)]
    assert seen[:3] == seen[3:]
    assert sorted(seen[:3]) == [1.0, 1.1, 1.2]


def test_bursts_come_and_go_and_drift_stays_in_its_range() -> None:
    rng = random.Random(1)
    burst = disturbances.bursts(rng, every_s=0.1, length_s=0.1)
    assert {burst(i / 100) for i in range(500)} == {1.0, disturbances.SLOWDOWN}
    wave = disturbances.drift(rng, depth=0.2)
    values = [wave(i / 10) for i in range(100)]
    assert min(values) >= 1
    assert max(values) <= 1.2
    assert max(values) - min(values) > 0.1


def test_a_handicapped_space_has_a_middling_default() -> None:
    space = handicapped(synthetic({"default": 70.0, "a": 80.0, "b": 90.0, "c": 100.0}, "default"))
    assert space.default == "a"
    assert space.regret(space.default) == pytest.approx(80 / 70 - 1)


def test_little_is_left_behind_on_spaces_that_were_recorded_on_a_real_box() -> None:
    """Regret of the contest on the true levels, under every recorded trace: at most 3 %, at most 1 % in the median."""
    regrets = []
    recorded = read_spaces(Path(__file__).parent / "recorded" / "spaces.json")
    for space in (*recorded, *map(handicapped, recorded)):
        for kind, make in KINDS.items():
            if kind.startswith("trace"):
                regrets += [space.regret(replay(space, contest(), make(random.Random(s)), s)) for s in range(5)]
    assert len(regrets) >= 100
    assert max(regrets) <= 0.03
    assert sorted(regrets)[len(regrets) // 2] <= 0.01


def lone(gain: float, others: int = 50) -> Space:
    """One variant with a gain beside others without one."""
    return synthetic({"default": 1e5, **{f"v{i}": 1e5 for i in range(others)}, "good": 1e5 / gain}, "default")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("trace") and " with " not in kind])
@pytest.mark.parametrize("gain", [1.10, 1.06])
def test_a_small_gain_is_found_under_every_recorded_trace(kind: str, gain: float) -> None:
    found = [replay(lone(gain), contest(), KINDS[kind](random.Random(seed)), seed) for seed in range(40)]
    assert found.count("good") >= 37
    assert set(found) <= {"good", "default"}


def test_ten_tunes_agree_within_two_percent_on_variants_of_all_small_gains() -> None:
    speeds = {f"g{i}": 1e5 / (1 + i / 200) for i in range(-6, 7)}
    space = synthetic({"default": 1e5, **speeds}, "default")
    make = KINDS["trace exp-quiet"]
    gains = [space.gain(replay(space, contest(), make(random.Random(seed)), seed)) for seed in range(10)]
    assert max(gains) / min(gains) <= 1.02
    assert max(space.gain(runner) for runner in space.runners) / min(gains) <= 1.03


def test_the_luck_of_a_place_in_memory_is_no_gain() -> None:
    """Each variant is faster in some places and slower in others, by 3 % in the middle: none is better."""
    make = KINDS["trace exp-quiet"]
    found = [replay(identical(50), contest(), make(random.Random(seed)), seed, luck=0.03) for seed in range(40)]
    assert found.count("default") >= 38


def test_luck_stays_with_its_place_until_the_bench_moves() -> None:
    bench = Replay(identical(1), FakeClock(), quiet, random.Random(1), luck=0.1)
    first = [bench.sample("same0", "small", number) for number in range(16)]
    assert first[:8] == first[8:]
    assert len(set(first)) == 8
    bench.move(1)
    assert bench.sample("same0", "small", 0) not in first
    bench.move(0)
    assert [bench.sample("same0", "small", number) for number in range(16)] == first
