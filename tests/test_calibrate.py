"""Calibration: what becomes of a callback's answers, of its failures, and of an interruption."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
import pytest

import tunegen
from tunegen import cli
from tunegen.box import this_box
from tunegen.choosing import published, store
from tunegen.cli.calibrate import size
from tunegen.harness import calibrate, noise, reports
from tunegen.harness.calibrate import Limits, calibratable
from tunegen.harness.decisions import Rejected, TimeOver
from tunegen.harness.forced import ForcedBench, call_path
from tunegen.harness.supply import Supply
from tunegen.harness.trial import KernelTrial
from tunegen.public.sources import target_manifest

HEADER = """
import numpy as np
from tunegen import In, Out, bitwise, case, f32, f64, floats, split, tune_scope

scope = tune_scope(name=__name__, templates="templates")
asked = []

def elements(trial):
    asked.append(trial.element_type)
    trial.threshold("parallel.minimum_elements", lambda n: {"N": n}, grid=(1 << 10, 1 << 12), bounds=(1 << 8, 1 << 14))

def grains(trial):
    trial.best([{"parallel.grain": 64}, {"parallel.grain": 128}], [{"N": 1 << 13}])

def broken(trial):
    raise ZeroDivisionError("oh")
"""
TOY = """
@scope.tune(gen="toy.ll.j2", gate=bitwise(), cases=[case("some", N=8)], fallback="row1 if N <= 2; row2; reference",
            parallel=split("N", when="N >= parallel.minimum_elements", grain="parallel.grain",
                           participants="parallel.maximum_participants"))
@scope.tune_param("parallel.minimum_elements", default=4096, minimum=1, maximum=1 << 40, doc="when", calibrate=elements)
@scope.tune_param("parallel.grain", default=32, minimum=0, maximum=1 << 20, doc="how much", calibrate=grains)
@scope.tune_param("parallel.maximum_participants", default=0, minimum=0, maximum=64, doc="on how many")
@scope.tune_grid(row=[1, 2, 3])
def toy(x: In[f32, "N"], out: Out[f32, "N"]) -> None:
    out[...] = -1
"""


@pytest.fixture(autouse=True)
def nothing_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "_publications", published.Publications())
    monkeypatch.setenv("TUNE_THREADS", "2")


class Bench:
    """Two threads win from 2000 elements on, a grain of 64 wins by 20 %."""

    threads, memory_bytes = 2, 1 << 30

    def __init__(self, calls: Callable[[int], None] = lambda number: None) -> None:
        self.number = 0
        self.calls = calls

    def bytes_of(self, sizes: Any) -> int:
        return 8 * int(sizes["N"])

    def path(self, setting: Any, sizes: Any) -> Any:
        return setting["parallel.grain"] if sizes["N"] >= setting["parallel.minimum_elements"] else "serial"

    def times(self, settings: Any, cases: Any, pairs: int) -> Any:
        self.number += 1
        self.calls(self.number)
        return {(str(i), str(j)): [self.time(setting, sizes["N"])] * pairs
                for (i, setting), (j, sizes) in itertools.product(enumerate(settings), enumerate(cases))}  # fmt: skip

    @staticmethod
    def time(setting: Any, n: int) -> float:
        split = n >= setting["parallel.minimum_elements"]
        return (n / 2 + 1000 if split else n) * (1.0 if setting["parallel.grain"] == 64 else 1.2)


def bench_of(bench: Bench) -> Any:
    @contextmanager
    def opened(*_: Any) -> Any:
        yield bench

    return opened


def calibrated(module: Any, bench: Bench | None = None, **keywords: Any) -> Any:
    return calibrate.run(calibratable([module.scope]), Limits(), bench_of=bench_of(bench or Bench()), **keywords)


def decisions(result: Any) -> dict[str, tuple[str, Any]]:
    return {d.names[0]: (d.outcome, d.values[d.names[0]]) for d in result.decisions}


def test_what_is_found_is_published_for_new_sessions_and_not_saved(library):
    module = library(TOY, header=HEADER)
    report = calibrated(module)
    (result,) = report.results
    assert report.finished
    assert decisions(result)["parallel.grain"] == ("found", 64)
    outcome, value = decisions(result)["parallel.minimum_elements"]
    assert outcome == "found"
    assert 2000 < value < 3000
    assert result.published == published.current().number == 1
    assert result.path == ""
    with tunegen.session() as session:
        assert session.bind(module.toy).values["f32"]["parallel.grain"] == 64


def test_saving_merges_into_the_manifest_with_the_evidence(library):
    module = library(TOY, header=HEADER)
    path = target_manifest(module.scope.name, this_box())
    spec, (element_type,) = module.toy.spec, module.toy.signature.element_types
    key, by_hand = spec.tuning_key(element_type), {**spec.schema.defaults, "parallel.maximum_participants": 1}
    store.set_values(path, this_box(), {}, key, lambda entries: by_hand)
    report = calibrated(module, save=True, publish=False)
    (result,) = report.results
    assert result.path == str(path)
    (entry,) = store.read(path).values(module.scope.name, "toy[f32]")
    assert entry.params["parallel.maximum_participants"] == 1, "what was set by hand stays"
    assert entry.params["parallel.grain"] == 64
    assert entry.evidence["kind"] == "calibration"
    assert [d["outcome"] for d in entry.evidence["decisions"]] == ["found", "found"]
    assert published.current().number == 0
    assert report.finished


def test_no_winner_is_saved_with_its_evidence_and_the_default(library):
    module = library(TOY, header=HEADER)
    bench = Bench()
    bench.time = lambda setting, n: float(n)  # type: ignore[method-assign]
    report = calibrated(module, bench, save=True)
    assert {d.outcome for d in report.results[0].decisions} == {"kept"}
    path = target_manifest(module.scope.name, this_box())
    (entry,) = store.read(path).values(module.scope.name, "toy[f32]")
    assert entry.params == module.toy.spec.schema.defaults
    assert "no difference" in entry.evidence["decisions"][0]["reason"]


def test_an_interrupted_batch_keeps_what_it_finished(library):
    two = TOY + TOY.replace("def toy(", "def other(")
    module = library(two, header=HEADER)

    def stop(number: int) -> None:
        if number == 14:
            raise KeyboardInterrupt

    report = calibrated(module, Bench(stop), save=True)
    assert report.ended == "interrupted"
    assert not report.finished
    first = report.results[0]
    outcomes = {name: outcome for name, (outcome, _) in decisions(first).items()}
    assert outcomes["parallel.minimum_elements"] == "found"
    last = report.results[-1]
    assert ("unfinished", "interrupted") in {(d.outcome, d.reason) for d in last.decisions}
    path = target_manifest(module.scope.name, this_box())
    assert store.read(path).values(module.scope.name, "toy[f32]")


def test_time_over_costs_what_was_not_finished_and_says_so(library):
    module = library(TOY, header=HEADER)

    def late(number: int) -> None:
        raise TimeOver

    report = calibrated(module, Bench(late), save=True)
    assert report.ended == "time over"
    (result,) = report.results
    assert {(d.outcome, d.reason) for d in result.decisions} == {("unfinished", "time over")}
    assert (result.path, result.published) == ("", 0)
    assert published.current().number == 0


def test_a_callback_that_raises_costs_its_own_parameters(library):
    module = library(TOY.replace("calibrate=grains", "calibrate=broken"), header=HEADER)
    report = calibrated(module)
    (result,) = report.results
    assert decisions(result)["parallel.minimum_elements"][0] == "found"
    assert decisions(result)["parallel.grain"] == ("failed", 32)
    assert "ZeroDivisionError: oh" in result.decisions[-1].reason
    assert result.published


def test_a_manifest_that_cannot_be_written_is_a_problem_of_its_key(library, monkeypatch):
    module = library(TOY, header=HEADER)

    def refuse(*_: Any, **__: Any) -> None:
        raise tunegen.StoreError("no room")

    monkeypatch.setattr(store, "set_values", refuse)
    report = calibrated(module, save=True)
    assert "no room" in report.results[0].problem
    assert not report.finished


def test_the_report_survives_a_round_trip(library):
    report = calibrated(library(TOY, header=HEADER))
    assert msgspec.json.decode(msgspec.json.encode(report), type=calibrate.CalibrationReport).finished


def test_only_keys_that_are_named_are_calibrated(library):
    module = library(TOY.replace("f32", "floats"), header=HEADER)
    assert [t.key for t in calibratable([module.scope])] == ["toy[f32]", "toy[f64]"]
    assert [t.key for t in calibratable([module.scope], ["toy[f64]"])] == ["toy[f64]"]
    assert calibratable([module.scope], ["other"]) == []


def test_the_path_of_a_call_is_its_variant_and_its_shares(library):
    spec = library(TOY, header=HEADER).toy.spec
    values = spec.schema.defaults
    emitted = ["row1", "row2"]

    def path(n: int, threads: int = 4, **changes: Any) -> Any:
        changed = {f"parallel.{name}": value for name, value in changes.items()}
        return tuple(call_path(spec, emitted, {**values, **changed}, {"N": n}, threads))

    assert path(2) == ("row1", 1, 1, 0)
    assert path(4095) == ("row2", 1, 1, 0)
    assert path(4096) == ("row2", 4, 128, 32)
    assert path(4096, threads=1) == path(4095)
    assert path(4096, maximum_participants=2) == ("row2", 2, 128, 32)
    assert path(4096, maximum_participants=1) == path(4095)
    assert path(4096, grain=0) == ("row2", 4, 4, 1024)
    assert path(4096, grain=1 << 20) == path(4095)
    assert call_path(spec, [None, "row2"], values, {"N": 2}, 1).variant == "row2", "an empty regime passes sizes on"


def test_forced_values_run_for_real_and_outputs_are_validated(library):
    module = library(TOY, header=HEADER)
    (element_type,) = module.toy.signature.element_types
    base = module.toy.spec.schema.defaults
    always, never = ({**base, "parallel.minimum_elements": n} for n in (1, 1 << 40))
    with ForcedBench(module.toy, element_type, base, threads=2, memory_bytes=1 << 20) as bench:
        assert bench.path(always, {"N": 100}) != bench.path(never, {"N": 100})
        times = bench.times([never, always], [{"N": 100}], 3)
    assert {pair: len(samples) for pair, samples in times.items()} == {("0", "0"): 3, ("1", "0"): 3}
    assert all(ns > 0 for samples in times.values() for ns in samples)


def test_a_setting_whose_output_differs_from_the_serial_run_is_rejected(library):
    module = library(TOY, header=HEADER)
    (element_type,) = module.toy.signature.element_types
    base = module.toy.spec.schema.defaults

    def fake(values: Any, threads: int) -> Any:
        class Bound:
            stamp = {"f32": module.toy.stamp["f32"]}

            def __call__(self, x: Any, out: Any) -> None:
                end = -1 if threads > 1 and values["parallel.grain"] == 64 else None
                out[:end] = x[:end]

        return Bound()

    with ForcedBench(module.toy, element_type, base, threads=2, memory_bytes=1 << 20, open_=fake) as bench:
        bench.times([base], [{"N": 5000}], 1)
        with pytest.raises(Rejected) as raised:
            bench.times([base, {**base, "parallel.grain": 64}], [{"N": 5000}], 1)
    assert raised.value.setting == 1
    assert "differs from the serial run at N=5000" in raised.value.reason


def test_nothing_begins_after_the_end(library):
    module = library(TOY, header=HEADER)
    (element_type,) = module.toy.signature.element_types
    base = module.toy.spec.schema.defaults
    seconds = itertools.count()
    with ForcedBench(module.toy, element_type, base, threads=1, memory_bytes=1 << 20, end_s=5.0,
                     now=lambda: float(next(seconds))) as bench, pytest.raises(TimeOver):  # fmt: skip
        bench.times([base, base], [{"N": 10}], 100)
    assert next(seconds) == 6


def test_a_real_run_within_small_limits(library):
    """100 ms and 16 MiB: whatever is found on a busy box, it is a decision about each parameter, and in force."""
    module = library(TOY, header=HEADER)
    module.toy(np.zeros(5, np.float32))
    limits = Limits(duration_s=0.1, memory_bytes=16 << 20)
    report = calibrate.run(calibratable([module.scope]), limits)
    (result,) = report.results
    assert {name for d in result.decisions for name in d.names} == {"parallel.minimum_elements", "parallel.grain"}
    assert all(d.reason for d in result.decisions)
    assert not [d for d in result.decisions if d.outcome == "failed"]
    module.toy.spec.schema.check(result.values)
    assert module.asked == ["f32"]


def test_the_command_calibrates_and_saves(tmp_path, capsys):
    """Within small limits, on whatever box: a decision per parameter, as JSON, as a table and as a file."""
    path = tmp_path / "report.json"
    small = ["--budget", "0.1s", "--memory", "16M", "--noisy-ok"]
    code = cli.run(["calibrate", "kernels", "--only", "exp[f32]", *small, "--json", "--report", str(path)])
    found = json.loads(capsys.readouterr().out)
    assert code in (0, 1)
    assert [result["name"] for result in found["results"]] == ["exp[f32]"]
    decided = {name for d in found["results"][0]["decisions"] for name in d["names"]}
    assert decided == {f"parallel.{n}" for n in ("minimum_elements", "grain", "maximum_participants")} | {
        "stream.minimum_elements"
    }
    report = reports.read(path, calibrate.CalibrationReport)
    assert str(tmp_path) not in path.read_text(), "a report may be passed on"
    assert report.noise
    assert cli.run(["calibrate", "kernels", "--only", "exp[f32]", *small, "--no-save"]) in (0, 1)
    assert "parallel.grain" in capsys.readouterr().out


def test_the_command_refuses_a_box_that_is_too_noisy(capsys, monkeypatch):
    monkeypatch.setattr(noise, "probe_quietest", lambda: noise.judge([1.0, 9.0] * 20, [1.0, 9.0] * 20, 0.1))
    assert cli.run(["calibrate", "kernels", "--only", "exp[f32]"]) == 3
    assert "--noisy-ok" in capsys.readouterr().err


def test_a_terminated_command_says_so(monkeypatch, capsys):
    def terminated(*_: Any, **__: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(KernelTrial, "threshold", terminated)
    code = cli.run(["calibrate", "kernels", "--only", "exp[f32]", "--noisy-ok", "--no-save"])
    assert code == 143
    assert "interrupted" in capsys.readouterr().out


@pytest.mark.parametrize(("text", "count"), [("64K", 65536), ("16M", 16 << 20), ("1GiB", 1 << 30), ("100", 100)])
def test_sizes_are_read_with_their_unit(text, count):
    assert size(text) == count


@pytest.mark.parametrize("text", ["", "0", "1.5G", "M", "-1"])
def test_other_sizes_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError):
        size(text)


def test_operands_are_the_same_numbers_in_shared_memory(library):
    module = library(TOY, header=HEADER)
    supply = Supply(module.toy.spec, module.toy.signature.element_types[0])
    large, small = supply.operands({"N": 5000}), supply.operands({"N": 7})
    assert list(large) == ["x", "out"]
    assert (large["x"][:7] == small["x"]).all()
    assert np.shares_memory(large["x"], small["x"])
    assert not np.shares_memory(large["x"], large["out"])
    assert large["x"].std() > 0.5
    assert supply.operands({"N": 9000})["x"].shape == (9000,)
