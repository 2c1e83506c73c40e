"""The self-evaluation counts right: mistakes, refusals, agreement, regret and fidelity, on runs that are made up."""

from __future__ import annotations

import json
import subprocess
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tunegen.grid import REFERENCE
from tunegen.harness import fooled, selftest, trials
from tunegen.harness.fooled import Line
from tunegen.harness.selftest import Homes, Size
from tunegen.harness.simulate import identical, synthetic
from tunegen.kernels import exp, gemm
from tunegen.public.kernel import KernelMethods
from tunegen.public.record import tune_manifest_set
from tunegen.signature import ELEMENT_TYPES

F32 = ELEMENT_TYPES["f32"]
SMALL = Size(simulated=3, real=3, keys=("exp[f32]",))


class FakeBench:
    """A bench whose variants have the speeds that a test says; 100 for all others."""

    speeds: dict[str, float] = {}

    def __init__(self, *_: Any) -> None:
        self.taken: list[str] = []

    def move(self, series: int) -> None:
        """The same speeds everywhere."""

    def sample(self, suffix: str, case_name: str, number: int = 0) -> float:
        self.taken.append(suffix)
        return self.speeds.get(suffix, 100.0)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> type[FakeBench]:
    monkeypatch.setattr(trials, "Bench", FakeBench)
    monkeypatch.setattr(FakeBench, "speeds", {})
    return FakeBench


def by_name(lines: list[Line], part: str) -> Line:
    return next(line for line in lines if part in line.name)


def test_simulated_parts_say_what_they_tried_and_under_which_noise() -> None:
    (aa,) = fooled.simulated_aa(SMALL.simulated)
    assert aa.value == 0
    assert aa.reached
    assert {"bursts", "drift"} < set(aa.detail)
    assert any(name.startswith("trace") for name in aa.detail)
    wrong, power, _, small = fooled.simulated_power(SMALL.simulated)
    assert wrong.reached
    assert 0 <= power.value <= 1
    assert len(power.detail) > len(small.detail) == 6


def test_a_harness_that_is_fooled_fails_its_own_examination(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fooled, "contest", lambda: lambda space, bench, clock: space.runners[1])
    (aa,) = fooled.simulated_aa(SMALL.simulated)
    assert aa.value == SMALL.simulated
    assert not aa.reached
    assert "NOT REACHED" in str(aa)


def test_the_keys_are_twelve_of_the_scope() -> None:
    assert len(set(selftest.KEYS)) == 12
    assert set(selftest.KEYS) < set(selftest.targets())


def test_regret_and_distance_are_those_of_the_second_race(bench: type[FakeBench]) -> None:
    space = synthetic({"default": 100.0, "a": 90.0, "b": 80.0, "c": 70.0, REFERENCE: 900.0}, "default")
    bench.speeds = {"default": 100.0, "a": 82.0, "b": 80.0, "c": 81.0}
    found = trials.compare(exp, F32, space, ["a", "b", "a"])
    assert found.best == "b"
    assert found.regrets == [0.025, 0.0, 0.025]
    assert found.spread == pytest.approx(0.025, abs=0.001)
    assert trials.compare(exp, F32, space, ["b", "b"]).spread == 0


def test_an_exhaustive_race_makes_a_space_per_regime_with_what_an_untuned_box_runs(
    library: Any, bench: type[FakeBench]
) -> None:
    from toys import REGIMES

    toy: KernelMethods = library(REGIMES.replace('case("some", N=8)', 'case("one", N=1), case("some", N=8)')).toy
    bench.speeds = {"row3": 50.0}
    spaces = trials.record(toy, F32, rounds=3)
    small, other = spaces
    assert (small.condition, small.default, small.cases) == ("N <= 2", "row1", ("one",))
    assert (other.condition, other.default, other.cases) == ("", "row2", ("some",))
    assert spaces[0].runners == ["row1", "row2", "row3", "five", REFERENCE], "row 4 needs what this box has not"
    assert spaces[0].best() == "row3"
    assert all(len(samples) == 3 for by_case in spaces[1].samples.values() for samples in by_case.values())


def run_of(*outcomes: str) -> Any:
    """Stands for real tunes: each outcome is a winner, `refused`, or a problem."""
    left = iter(outcomes)

    def tune_once(scope: str, keys: Any, home: Path, cache: Path, options: Any = ()) -> trials.Tuned:
        outcome = next(left)
        if outcome == "refused":
            return trials.Tuned({}, 1.0, ["exp[f32]"])
        if outcome.startswith("exit"):
            return trials.Tuned({}, 1.0, [], outcome)
        return trials.Tuned({"exp[f32]": {"": outcome}}, 1.0)

    return tune_once


def test_real_tunes_report_failures_refusals_agreement_and_regret(
    monkeypatch: pytest.MonkeyPatch, bench: type[FakeBench], tmp_path: Path
) -> None:
    space = synthetic({"default": 100.0, "a": 80.0, "b": 81.0}, "default", "exp[f32]")
    monkeypatch.setattr(trials, "record", lambda *_: [space])
    monkeypatch.setattr(trials, "tune_once", run_of("a", "refused", "b", "a"))
    bench.speeds = {"a": 80.0, "b": 81.0}
    lines = list(selftest.real_tunes(Homes(tmp_path, SMALL), "tunes", nullcontext()))
    assert "of 4 (1 of 4 keys refused)" in lines[0].name
    assert lines[0].reached, "a refusal is no failure"
    assert by_name(lines, "distance").reached
    assert by_name(lines, "worst regret").value == pytest.approx(1 / 80)
    monkeypatch.setattr(trials, "tune_once", run_of("exit code 1: no", "a", "default"))
    lines = list(selftest.real_tunes(Homes(tmp_path, SMALL), "tunes", nullcontext()))
    assert not lines[0].reached
    assert not by_name(lines, "distance").reached
    assert not by_name(lines, "worst regret").reached


def test_when_every_tune_is_refused_there_is_nothing_to_compare(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(trials, "tune_once", run_of(*["refused"] * 9))
    (line,) = selftest.real_tunes(Homes(tmp_path, SMALL), "loaded", nullcontext())
    assert "(9 of 9 keys refused)" in line.name


def test_no_further_tune_begins_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ticks = iter(range(0, 10_000, 50))
    monkeypatch.setattr(selftest, "now_s", lambda: float(next(ticks)))
    monkeypatch.setattr(trials, "tune_once", run_of("a", "a", "a"))
    homes = Homes(tmp_path, Size(real=3, tune_minutes=2.0))
    assert len(homes.tunes("tunes")) == 2


def test_a_noisy_box_is_tuned_all_the_same_when_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TUNE_MODE", "tune")
    monkeypatch.setattr(selftest, "run_again", lambda *_: None)
    given: list[Any] = []

    def tune_once(*arguments: Any) -> trials.Tuned:
        given.append(arguments[-1])
        return trials.Tuned({}, 1.0, ["exp[f32]"])

    monkeypatch.setattr(trials, "tune_once", tune_once)
    selftest.main(["--quick", "--parts", "tunes", "--noisy-ok"])
    selftest.main(["--quick", "--parts", "tunes"])
    assert given[0] == ["--noisy-ok"]
    assert given[-1] == []
    assert "refused" in capsys.readouterr().out


def test_the_scope_is_simulated_on_its_recorded_spaces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    homes = Homes(tmp_path, SMALL)
    homes.spaces["exp[f32]"] = [identical(5), synthetic({"default": 1e5, "good": 0.7e5}, "default")]
    lines = list(selftest.simulated_scope(homes))
    assert [line.value for line in lines if "median" in line.name] == [0, 0]
    assert all(line.reached for line in lines)
    assert len(lines) == 4


def answer(code: int, out: bytes = b"", err: bytes = b"") -> Any:
    return lambda *_, **__: subprocess.CompletedProcess([], code, out, err)


def test_a_real_tune_is_read_from_the_report_and_the_exit_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    regimes = [{"condition": "N <= 8", "winner": "a"}, {"condition": "", "winner": "b"}]
    report: dict[str, list[dict[str, Any]]] = {
        "reports": [{"key": "exp[f32]", "result": {"regimes": regimes}}, {"key": "add[f32]", "result": None}]
    }
    monkeypatch.setattr(trials.subprocess, "run", answer(0, json.dumps(report).encode()))
    tuned = trials.tune_once("kernels", ["exp[f32]"], tmp_path, tmp_path)
    assert tuned.winners == {"exp[f32]": {"N <= 8": "a", "": "b"}}
    report["reports"][1]["refused"] = True
    monkeypatch.setattr(trials.subprocess, "run", answer(3, json.dumps(report).encode()))
    partly = trials.tune_once("kernels", ["exp[f32]", "add[f32]"], tmp_path, tmp_path)
    assert partly.refused == ["add[f32]"]
    assert set(partly.winners) == {"exp[f32]"}
    for out in (b"", b'{"reports": []}'):
        monkeypatch.setattr(trials.subprocess, "run", answer(3, out, b"too noisy"))
        assert trials.tune_once("kernels", ["exp[f32]"], tmp_path, tmp_path).refused == ["exp[f32]"]
    monkeypatch.setattr(trials.subprocess, "run", answer(0, b'{"reports": []}'))
    assert trials.tune_once("kernels", ["exp[f32]"], tmp_path, tmp_path).problem == "it reported nothing"
    monkeypatch.setattr(trials.subprocess, "run", answer(1))
    failed = trials.tune_once("kernels", ["exp[f32]"], tmp_path, tmp_path)
    assert not failed.refused
    assert failed.problem


def test_an_examination_in_which_the_copies_did_not_race_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "same_body", lambda *_: trials.Raced("default", 1, 39))
    wins, raced = selftest.real_aa(SMALL)
    assert wins.value == 0
    assert not raced.reached


def test_copies_of_one_variant_race_in_a_real_contest(bench: type[FakeBench]) -> None:
    suffix = exp.spec.fallback.items[0].suffix
    raced = trials.same_body(exp, F32, suffix, 5, 1e9)
    assert raced.winner == "default"
    assert raced.runners == 6, "the default and every copy"
    assert raced.samples > 6 * 3
    with pytest.raises(KeyError):
        trials.same_body(exp, F32, "nothing", 5, 10.0)


def test_a_fresh_process_emits_what_was_crowned_by_digest(library: Any, child: Any, tmp_path: Path) -> None:
    """And says so when the template changed behind its back."""
    module = library()
    toy: KernelMethods = module.toy
    assert tune_manifest_set(toy, "row3")
    crowned = trials.digests([(toy, F32)], {"toy[f32]": {"": "row3"}})
    assert crowned["toy[f32]"][""].startswith(("sha256:", *"0123456789abcdef"))
    code = f"""
        import json, {module.__name__} as m
        from tunegen.harness import trials
        from tunegen.signature import ELEMENT_TYPES
        print(json.dumps(trials.emitted([(m.toy, ELEMENT_TYPES["f32"])])))
    """
    fresh = child(code, TUNE_CACHE=str(tmp_path / "fresh"))
    assert json.loads(fresh.stdout) == crowned, fresh.stderr
    template = Path(module.__file__).parent / "templates" / "toy.ll.j2"
    template.write_text(template.read_text().replace('"no-builtins"', '"no-builtins" alwaysinline'))
    changed = child(code, TUNE_CACHE=str(tmp_path / "fresh"))
    assert json.loads(changed.stdout) == {}, "a stale entry is not emitted"


def test_fidelity_compares_every_winner_with_what_is_emitted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TUNE_CACHE", str(tmp_path / "cache"))
    homes = Homes(tmp_path, SMALL)
    homes.last = (trials.Tuned({"exp[f32]": {"": "vl4_unroll1_nostream"}}, 1.0), tmp_path)
    crowned = trials.digests(selftest.targets().values(), homes.last[0].winners)
    for shown, lost in ((crowned, 0), ({"exp[f32]": {"": "another"}}, 1), ({}, 1)):
        monkeypatch.setattr(selftest.subprocess, "run", answer(0, json.dumps(shown).encode()))
        (line,) = selftest.fidelity(homes)
        assert line.value == lost
        assert line.reached == (not lost)


def test_regimes_group_the_cases_as_the_fallback_does() -> None:
    found = trials.regimes(gemm.spec)
    assert sorted(name for names in found.values() for name in names) == sorted(case.name for case in gemm.spec.cases)
    assert len(found) > 1


def test_the_report_is_lines_or_json_and_the_exit_code_says_whether_all_goals_are_reached(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("TUNE_MODE", "tune")
    monkeypatch.setattr(selftest, "run_again", lambda *_: None)
    monkeypatch.setattr(selftest, "QUICK", SMALL)
    assert selftest.main(["--quick", "--parts", "aa"]) == 0
    assert "goal 0: reached" in capsys.readouterr().out
    spaces = tmp_path / "spaces.json"
    assert selftest.main(["--quick", "--parts", "aa", "--json", "--spaces", str(spaces)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["lines"][0]["reached"] is True
    assert spaces.exists()
    monkeypatch.setattr(selftest, "examine", lambda *_: iter([Line("x", 1, "0", False)]))
    assert selftest.main(["--quick"]) == 1
    with pytest.raises(SystemExit) as stopped:
        selftest.main(["--parts", "everything"])
    assert stopped.value.code == 2
