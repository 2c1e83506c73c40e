"""A calibration's decisions, on benches that are made up: no clock, no kernel."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tunegen.harness.decisions import Rejected
from tunegen.harness.disturbances import Disturbance, all_kinds, read_traces
from tunegen.harness.trial import KernelTrial
from tunegen.parameters import Parameter, Schema, read_schema

MINIMUM = Parameter("parallel.minimum_elements", "int", 65536, 1, 1 << 40, (), "elements", "when")
GRAIN = Parameter("parallel.grain", "int", 4096, 0, 1 << 20, (), "elements", "how much")
LIMIT = Parameter("parallel.maximum_participants", "int", 0, 0, 64, (), "threads", "on how many")
SCHEMA = read_schema([MINIMUM, GRAIN, LIMIT], [])
GOVERNING = SCHEMA.names


class Bench:
    """Calls of N elements take `time(setting, N)`; a call is split from `parallel.minimum_elements` on."""

    def __init__(self, time: Callable[[dict[str, Any], int], float], threads: int = 2, memory: int = 1 << 30,
                 wrong: Callable[[dict[str, Any]], bool] = lambda setting: False) -> None:  # fmt: skip
        self.time, self.threads, self.memory_bytes, self.wrong = time, threads, memory, wrong
        self.compared: list[tuple[Any, ...]] = []

    def bytes_of(self, sizes: Any) -> int:
        return 8 * int(sizes["N"])

    def path(self, setting: Any, sizes: Any) -> Any:
        split = sizes["N"] >= setting["parallel.minimum_elements"]
        return (setting["parallel.grain"], setting["parallel.maximum_participants"]) if split else "serial"

    def times(self, settings: Sequence[Any], cases: Sequence[Any], pairs: int) -> Any:
        for index, setting in enumerate(settings):
            if self.wrong(setting):
                raise Rejected(index, "out differs")
        self.compared.append((settings, cases))
        return {
            (str(i), str(j)): [self.time(setting, sizes["N"])] * pairs
            for (i, setting), (j, sizes) in itertools.product(enumerate(settings), enumerate(cases))
        }


def split_time(setting: dict[str, Any], n: int) -> float:
    """Two threads pay 10,000 ns per region: from 20,000 elements on it is worth it."""
    return n / 2 + 10_000.0 if n >= setting["parallel.minimum_elements"] else float(n)


def trial(bench: Bench, schema: Schema = SCHEMA, **base: Any) -> KernelTrial:
    return KernelTrial(schema, GOVERNING, "f32", {**schema.defaults, **base}, bench)


def ask(bench: Bench, grid: Sequence[int] = (1 << 12, 1 << 16), **keywords: Any) -> Any:
    asked = trial(bench)
    returned = asked.threshold("parallel.minimum_elements", lambda n: {"N": n}, grid=grid, **keywords)
    (decision,) = asked.decisions
    return returned, decision


def test_a_threshold_is_where_always_begins_to_beat_never():
    value, decision = ask(Bench(split_time))
    assert decision.outcome == "found"
    assert 20_000 < value < 30_000
    assert decision.values == {"parallel.minimum_elements": value}
    assert decision.evidence["kind"] == "crossover"


def test_the_value_is_in_the_parameters_unit_whatever_the_callback_counts_in():
    """The grid counts thousands of elements; what is stored is elements, and is what a call of that size needs."""
    asked = trial(Bench(split_time))
    value = asked.threshold("parallel.minimum_elements", lambda n: {"N": 1000 * n}, grid=(8, 64))
    assert value % 1000 == 0
    assert 20_000 < value < 30_000


def test_where_never_always_wins_the_reason_to_stay_serial_is_kept():
    value, decision = ask(Bench(lambda setting, n: n + (1e6 if n >= setting["parallel.minimum_elements"] else 0)))
    assert decision.outcome == "moved"
    assert decision.evidence["kind"] == "never"
    assert value == (1 << 20) + 1, "just beyond the largest size that was seen to lose"
    assert "at no size" in decision.reason


def test_a_default_that_is_serial_at_all_sizes_tried_stays():
    bench = Bench(lambda setting, n: n + (1e6 if n >= setting["parallel.minimum_elements"] else 0))
    value, decision = ask(bench, (256, 1024), bounds=(64, 4096))
    assert value == 65536
    assert decision.outcome == "kept"


def test_a_threshold_that_loses_nowhere_moves_down_to_the_least_size_that_was_seen_to_win():
    """That is no crossover, and not called one. A value that is lower already stays."""

    def pays(setting: dict[str, Any], n: int) -> float:
        return n / (2 if n >= max(setting["parallel.minimum_elements"], 3000) else 1)

    value, decision = ask(Bench(pays))
    assert (value, decision.outcome, decision.evidence["kind"]) == (4096, "moved", "always")
    asked = trial(Bench(pays), **{"parallel.minimum_elements": 100})
    assert asked.threshold("parallel.minimum_elements", lambda n: {"N": n}, grid=(1 << 12, 1 << 16)) == 100
    assert asked.decisions[0].outcome == "kept"


def test_no_difference_keeps_the_value_and_says_so():
    value, decision = ask(Bench(lambda setting, n: float(n)))
    assert (value, decision.outcome) == (65536, "kept")
    assert "no difference" in decision.reason


def test_a_search_that_was_disturbed_is_made_once_more():
    """For its first three looks everything is upside down."""
    looks = itertools.count()

    def disturbed(setting: dict[str, Any], n: int) -> float:
        return 1e9 / split_time(setting, n) if next(looks) < 6 else split_time(setting, n)

    value, decision = ask(Bench(disturbed))
    assert decision.outcome == "found"
    assert 20_000 < value < 30_000


def test_two_searches_that_disagree_change_nothing():
    """In the first one threads always lose, as they do when two cores are one; then they always win."""
    looks = itertools.count()

    def moody(setting: dict[str, Any], n: int) -> float:
        split = n >= setting["parallel.minimum_elements"]
        first = next(looks) < 16
        return n * (1.0 if not split else 1.5 if first else 0.5)

    value, decision = ask(Bench(moody))
    assert (value, decision.outcome) == (65536, "kept")
    assert "one search says never, another one always" in decision.reason


def test_one_thread_skips_what_is_about_threads():
    bench = Bench(split_time, threads=1)
    asked = trial(bench)
    assert asked.threshold("parallel.minimum_elements", lambda n: {"N": n}, grid=(1 << 12,)) is None
    asked.best([{"parallel.grain": 64}], [{"N": 1 << 16}])
    assert [(d.outcome, d.reason) for d in asked.decisions] == [("skipped", "one thread")] * 2
    assert not bench.compared


def test_sizes_beyond_the_memory_limit_are_not_tried():
    bench = Bench(split_time, memory=8 << 14)
    _, decision = ask(bench, (1 << 12, 1 << 16))
    assert max(cases[0]["N"] for _, cases in bench.compared) <= 1 << 14
    assert decision.evidence["kind"] == "never"
    _, decision = ask(Bench(split_time, memory=8), (1 << 12, 1 << 16))
    assert (decision.outcome, "memory" in decision.reason) == ("skipped", True)
    asked = trial(Bench(split_time, memory=8))
    asked.best([{"parallel.grain": 64}], [{"N": 1 << 16}])
    assert asked.decisions[0].outcome == "skipped"


def test_a_wrong_output_fails_the_question_and_changes_nothing():
    value, decision = ask(Bench(split_time, wrong=lambda setting: setting["parallel.minimum_elements"] == 1))
    assert decision.outcome == "failed"
    assert "minimum" in decision.reason
    assert value == 65536


def test_settings_that_take_the_same_path_are_never_compared():
    bench = Bench(lambda setting, n: float(n))
    bench.path = lambda setting, sizes: "serial"  # type: ignore[method-assign]
    _, decision = ask(bench)
    assert not bench.compared
    assert "same code path" in decision.reason
    asked = trial(bench)
    asked.best([{"parallel.grain": 64}, {"parallel.grain": 128}], [{"N": 1 << 16}])
    assert not bench.compared
    assert asked.decisions[0].outcome == "kept"


def grain_time(setting: dict[str, Any], n: int) -> float:
    """A grain of 1024 is the best, by 20 %."""
    return n * (1.0 if setting["parallel.grain"] == 1024 else 1.2)


GRAINS = [{"parallel.grain": g, "parallel.maximum_participants": p} for g in (256, 1024, 8192) for p in (0, 1)]


def test_the_best_candidate_is_found_jointly_and_is_in_force_afterwards():
    asked = trial(Bench(grain_time))
    values = asked.best(GRAINS, [{"N": 1 << 17}, {"N": 1 << 18}])
    assert values["parallel.grain"] == 1024
    assert asked.values["parallel.minimum_elements"] == 65536
    (decision,) = asked.decisions
    assert decision.names == ("parallel.grain", "parallel.maximum_participants")
    assert decision.outcome == "found"
    assert decision.evidence["final"][0]["ratio"] == pytest.approx(1.2)
    assert decision.evidence["confirmed"][0]["ratio"] == pytest.approx(1.2)


def test_no_candidate_that_wins_keeps_the_values_with_the_evidence():
    asked = trial(Bench(lambda setting, n: float(n)))
    assert asked.best(GRAINS, [{"N": 1 << 17}])["parallel.grain"] == 4096
    assert asked.decisions[0].outcome == "kept"
    assert asked.decisions[0].evidence["final"]


def test_a_wrong_candidate_is_out_and_named():
    asked = trial(Bench(grain_time, wrong=lambda setting: setting["parallel.grain"] == 1024))
    asked.best(GRAINS, [{"N": 1 << 17}])
    (decision,) = asked.decisions
    assert decision.outcome == "kept"
    assert {line["values"]["parallel.grain"] for line in decision.evidence["rejected"]} == {1024}
    asked = trial(Bench(grain_time, wrong=lambda setting: setting["parallel.grain"] == 4096))
    asked.best(GRAINS, [{"N": 1 << 17}])
    assert asked.decisions[0].outcome == "failed", "the values in force themselves are wrong"


def test_candidates_that_break_a_rule_are_left_out():
    schema = read_schema([MINIMUM, GRAIN, LIMIT], ["parallel.grain <= parallel.minimum_elements"])
    bench = Bench(grain_time)
    asked = trial(bench, schema, **{"parallel.minimum_elements": 4096})
    asked.best([{"parallel.grain": 1024}, {"parallel.grain": 8192}], [{"N": 1 << 17}])
    raced = {setting["parallel.grain"] for settings, _ in bench.compared for setting in settings}
    assert raced == {1024, 4096}


def test_a_threshold_is_forced_as_far_as_the_rules_admit():
    schema = read_schema([MINIMUM, GRAIN, LIMIT], ["parallel.grain <= parallel.minimum_elements"])
    bench = Bench(split_time)
    trial(bench, schema).threshold("parallel.minimum_elements", lambda n: {"N": n}, grid=(1 << 12, 1 << 16))
    assert {settings[1]["parallel.minimum_elements"] for settings, _ in bench.compared} == {4096}


def test_later_questions_build_on_earlier_answers():
    bench = Bench(split_time)
    asked = trial(bench)
    value = asked.threshold("parallel.minimum_elements", lambda n: {"N": n}, grid=(1 << 12, 1 << 16))
    bench.compared.clear()
    asked.best([{"parallel.grain": 64}], [{"N": 1 << 17}])
    assert {s["parallel.minimum_elements"] for settings, _ in bench.compared for s in settings} == {value}


def test_unknown_parameters_are_errors_of_the_callback():
    asked = trial(Bench(split_time))
    with pytest.raises(KeyError, match="no int parameter"):
        asked.threshold("parallel.minimum_rows", lambda n: {"N": n}, grid=(1,))
    with pytest.raises(KeyError, match="no parameter"):
        asked.best([{"grain": 1}], [{"N": 1}])


KINDS = all_kinds(read_traces())


@pytest.mark.parametrize("kind", KINDS)
def test_noise_alone_changes_no_value(kind: str) -> None:
    """Made-up noise and every trace recorded on a real box, where all settings take equally long."""
    for seed in range(5):
        disturb, clock = KINDS[kind](random.Random(seed)), [0.0]

        class Noisy(Bench):
            def times(
                self, settings: Sequence[Any], cases: Sequence[Any], pairs: int,
                disturb: Disturbance = disturb, clock: list[float] = clock,
            ) -> Any:  # fmt: skip
                found: dict[tuple[str, str], list[float]] = {}
                for _ in range(pairs):
                    for i, j in itertools.product(range(len(settings)), range(len(cases))):
                        clock[0] += 3e-4
                        found.setdefault((str(i), str(j)), []).append(cases[j]["N"] * disturb(clock[0]))
                return found

        asked = trial(Noisy(lambda setting, n: float(n)))
        asked.best(GRAINS, [{"N": 1 << 17}, {"N": 1 << 18}])
        asked.threshold("parallel.minimum_elements", lambda n: {"N": n}, grid=(1 << 12, 1 << 16))
        assert {decision.outcome for decision in asked.decisions} == {"kept"}, asked.decisions
        assert asked.values == SCHEMA.defaults
