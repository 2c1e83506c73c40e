"""Budgets and interruptions: what a run decides before it has to end is saved, and nothing else is claimed.

The parent is driven by workers that follow a script, on a clock that the script moves; the last tests kill real ones.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from toys import REGIMES, TOY

from tunegen.box import this_box
from tunegen.harness import crew, engine, noise, tuner
from tunegen.harness.engine import Settings, tune
from tunegen.harness.journal import Journal, path_for
from tunegen.harness.pacing import Pace
from tunegen.harness.plan import EFFORTS, LEAST_WEIGHT, Budget, weight
from tunegen.harness.protocol import (
    Candidate,
    Job,
    Message,
    Outcome,
    Ready,
    RegimeResult,
    Result,
    Screened,
    Trying,
)
from tunegen.harness.report import Report
from tunegen.harness.spawn import Died, Stop
from tunegen.harness.target import targets
from tunegen.public.scope import find_scope
from tunegen.public.sources import target_manifest
from tunegen.public.status import load

Script = Callable[[Job], Iterator[Message | Died]]


class Clock:
    """Seconds that only the script moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Theatre:
    """Runs the engine on a toy library with workers that follow a script."""

    def __init__(self, made: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scope = find_scope(made.__name__)
        self.clock = Clock()
        self.jobs: list[Job] = []
        self.stop = Stop()
        self.patch = monkeypatch
        for module in (engine, crew):
            monkeypatch.setattr(module, "now_s", self.clock)

    def run(self, script: Script, **settings: Any) -> list[Report]:
        """Tunes everything anew and returns the reports."""
        return list(self.going(script, **settings))

    def going(self, script: Script, **settings: Any) -> Iterator[Report]:
        """The same, report by report."""

        def messages(job: Job, stop: Stop, silence_s: float) -> Iterator[Message | Died]:
            self.jobs.append(job)
            return script(job)

        self.patch.setattr(crew, "messages", messages)
        chosen = targets(self.scope, retune=True)
        return tune(chosen, lambda event: None, Settings(**settings), stop=self.stop)

    @property
    def manifest(self) -> Path:
        """Where winners go."""
        return target_manifest(self.scope.name, this_box())

    def winners(self, key: str = "toy[f32]") -> dict[str, str]:
        """The newest entry of a key: winners by condition."""
        entry = json.loads(self.manifest.read_bytes())["scopes"][self.scope.name]["kernels"][key][0]
        return {regime.get("if", ""): regime["winner"] for regime in entry["regimes"]}


@pytest.fixture
def theatre(library: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Theatre]:
    """`theatre(body)`: a toy library on stage."""
    return lambda body=TOY: Theatre(library(body), monkeypatch)


THREE = "".join(TOY.replace("def toy", f"def toy{n}") for n in range(3))
"""Three kernels of the same kind."""


def won(winner: str, condition: str = "", **more: Any) -> RegimeResult:
    return RegimeResult(condition, winner, 1.5, 2.0, {"kind": "isolated", "ratio": 1.5}, **more)


def plain(job: Job, ratio: float = 1.5, regimes: tuple[str, ...] = ("",)) -> Iterator[Message]:
    """A worker to whom nothing happens: row3 passes, is fast and wins."""
    yield Ready()
    if job.stage == "screen":
        yield Trying("row3", "gate", 0, 1, "identity3")
        yield Candidate("row3", Outcome("passed"), "identity3")
        yield from (Screened(condition, "row3", ratio) for condition in regimes)
        yield Result([], untried=2)
    else:
        yield Result([won("row3", condition) for condition in regimes])


def test_all_are_screened_before_the_first_final_and_the_largest_gain_goes_first(theatre: Any) -> None:
    stage = theatre(THREE)
    gains = {"toy0": 1.1, "toy1": 1.9, "toy2": 1.4}
    reports = stage.run(lambda job: plain(job, gains[job.kernel]))
    assert [job.stage for job in stage.jobs] == ["screen"] * 3 + ["final"] * 3
    assert [report.key for report in reports] == ["toy1[f32]", "toy2[f32]", "toy0[f32]"]
    assert not any(report.problem for report in reports)
    assert [job.screened for job in stage.jobs[3:]] == [{"": {"row3": gain}} for gain in (1.9, 1.4, 1.1)]
    assert all(job.untried == 2 and job.passed == ["row3"] for job in stage.jobs[3:])


def test_time_for_finals_is_in_proportion_to_the_gain_and_what_is_left_over_goes_on(theatre: Any) -> None:
    stage = theatre(THREE)
    gains = {"toy0": 1.1, "toy1": 1.9, "toy2": 1.0}

    def script(job: Job) -> Iterator[Message]:
        stage.clock.now += 1
        ready, *others = plain(job, gains[job.kernel])
        yield ready
        stage.clock.now += 4
        yield from others

    stage.run(script, budget_s=100.0)
    screens, finals = [job.seconds for job in stage.jobs[:3]], [job.seconds for job in stage.jobs[3:]]
    # from the second worker on, the second that a start takes is known
    assert screens == pytest.approx([60 / 3, 55 / 2 - 1, 50 - 1])
    share = 85 * 0.9 / (0.9 + 0.1 + LEAST_WEIGHT)
    assert finals == pytest.approx([share - 1, 80 * 0.1 / (0.1 + LEAST_WEIGHT) - 1, 75 - 1])
    assert [job.limit_s for job in stage.jobs] == pytest.approx([80, 74, 69, 84, 79, 74])


def test_when_screening_takes_longer_than_its_share_what_was_screened_is_decided(theatre: Any) -> None:
    stage = theatre(THREE)

    def script(job: Job) -> Iterator[Message]:
        stage.clock.now += 85
        return plain(job)

    reports = {report.key: report.problem for report in stage.run(script, budget_s=100.0)}
    assert reports == {
        "toy0[f32]": "",
        "toy1[f32]": "the budget ended before its turn",
        "toy2[f32]": "the budget ended before its turn",
    }
    assert stage.winners("toy0[f32]") == {"": "row3"}


def test_a_slow_gate_ends_in_time_for_the_finals_and_what_was_screened_by_then_is_decided(theatre: Any) -> None:
    """A baseline that was not gated in time is not known, and no final is held without it."""
    stage = theatre(THREE)

    def script(job: Job) -> Iterator[Message]:
        if job.stage == "final":
            yield from plain(job)
            return
        gated = ["row1", "row2"] if job.kernel == "toy0" else ["row1"]
        yield from (Candidate(suffix, Outcome("passed")) for suffix in gated)
        yield Result([], "the budget ended", untried=3)

    reports = {report.key: report.problem for report in stage.run(script, budget_s=100.0)}
    late = "the budget ended before its final"
    assert reports == {"toy1[f32]": late, "toy2[f32]": late, "toy0[f32]": ""}
    assert stage.jobs[0].limit_s == pytest.approx(80)
    assert stage.jobs[2].limit_s == pytest.approx(80)


def test_no_worker_starts_after_the_budget(theatre: Any) -> None:
    stage = theatre(THREE)

    def script(job: Job) -> Iterator[Message]:
        stage.clock.now += 19 if job.stage == "screen" else 60
        return plain(job)

    reports = stage.run(script, budget_s=100.0)
    assert [report.problem for report in reports] == ["", "the budget ended before its final",
                                                      "the budget ended before its final"]  # fmt: skip
    assert len(stage.jobs) == 4


def test_without_a_budget_nothing_is_cut_short() -> None:
    clock = Clock()
    budget = Budget(EFFORTS["quick"], 2, None, Pace(now=clock))
    clock.now += 1000
    assert budget.limit_s is None
    assert not budget.over
    assert budget.screening_s(1) == pytest.approx(0.6 * EFFORTS["quick"].seconds)
    assert budget.final_s([1.5, 1.5]) == pytest.approx(0.4 * EFFORTS["quick"].seconds)
    assert weight(0.5) == weight(1.0) == LEAST_WEIGHT
    assert weight(9.0) == 1.0


def test_after_a_signal_what_is_decided_is_saved_and_nothing_else_begins(theatre: Any) -> None:
    stage = theatre(THREE)
    reports = []
    for report in stage.going(plain):
        reports.append(report)
        if len(reports) == 1:
            stage.stop.ask(signal.SIGTERM)
    assert [report.problem for report in reports] == ["", *["interrupted before its final"] * 2]
    assert stage.stop.exit_code == 143
    assert stage.winners(reports[0].key) == {"": "row3"}
    assert len(stage.jobs) == 4


def test_a_final_that_was_stopped_keeps_the_winners_of_the_regimes_it_did_not_decide(theatre: Any) -> None:
    stage = theatre(REGIMES)
    both = ("N <= 2", "")
    stage.run(lambda job: plain(job, regimes=both))
    load()

    def stopped(job: Job) -> Iterator[Message]:
        yield from plain(job) if job.stage == "screen" else [Result([won("five", "N <= 2")], "interrupted")]

    (report,) = stage.run(stopped)
    assert report.problem == "interrupted before all regimes were decided"
    assert stage.winners() == {"N <= 2": "five", "": "row3"}
    entry = json.loads(stage.manifest.read_bytes())["scopes"][stage.scope.name]["kernels"]["toy[f32]"][0]
    assert all(regime["evidence"]["ratio"] == 1.5 for regime in entry["regimes"])


def test_a_final_that_decided_nothing_writes_nothing(theatre: Any) -> None:
    stage = theatre()
    (report,) = stage.run(lambda job: plain(job) if job.stage == "screen" else iter([Result([], "the budget ended")]))
    assert report.problem == "the budget ended before its final was decided"
    assert not stage.manifest.exists()


def test_a_worker_that_ends_by_the_signal_is_nobodys_fault(theatre: Any) -> None:
    stage = theatre()

    def script(job: Job) -> Iterator[Message | Died]:
        yield Ready()
        yield Trying("row3", "gate", 0, 1, "identity3")
        stage.stop.ask(signal.SIGINT)
        yield Died("signal SIGTERM")

    (report,) = stage.run(script)
    assert (report.problem, report.outcomes, stage.stop.exit_code) == ("interrupted", {}, 130)
    assert Journal(path_for(stage.manifest, stage.scope.name)).known("toy[f32]") == {}


def test_a_second_signal_ends_everything_at_once() -> None:
    stop = Stop()
    stop.ask(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        stop.ask(signal.SIGTERM)
    assert stop.exit_code == 130


def test_signals_are_caught_inside_the_block_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Stop().listening() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_next_run_knows_what_the_last_one_found_out_and_crowns_on_a_fresh_final(theatre: Any) -> None:
    stage = theatre()

    def dies(job: Job) -> Iterator[Message | Died]:
        yield Ready()
        if "row3" not in job.passed:
            yield Trying("row3", "gate", 0, 2, "identity3")
            yield Candidate("row3", Outcome("passed"), "identity3")
            yield Screened("", "row3", 1.5)
        if "row2" not in job.excluded:
            yield Trying("row2", "gate", 1, 2, "identity2")
            yield Died("signal SIGSEGV")
        else:
            stage.stop.ask(signal.SIGINT)
            yield Result([], "interrupted")

    (report,) = stage.run(dies)
    assert report.problem == "interrupted before its final"
    assert report.outcomes["row2"].state == "crashed"
    assert not stage.manifest.exists()
    stage.stop, stage.jobs = Stop(), []
    (report,) = stage.run(plain)
    first, final = stage.jobs
    assert {suffix: (known.identity, known.outcome.state) for suffix, known in first.known.items()} == {
        "row3": ("identity3", "passed"),
        "row2": ("identity2", "crashed"),
    }
    assert first.order == ["row3"]
    assert first.passed == []
    assert first.screened == {}
    assert final.stage == "final"
    assert report.problem == ""


def test_a_candidate_that_kills_every_worker_ends_the_kernel_and_not_the_run(theatre: Any) -> None:
    stage = theatre(THREE)

    def script(job: Job) -> Iterator[Message | Died]:
        if job.kernel != "toy1":
            yield from plain(job)
            return
        yield Trying("row1", "gate", 0, 1)
        yield Died("signal SIGILL")

    problems = {report.key: report.problem for report in stage.run(script)}
    assert problems == {"toy0[f32]": "", "toy1[f32]": problems["toy1[f32]"], "toy2[f32]": ""}
    assert "keep dying of row1" in problems["toy1[f32]"]


def test_what_a_too_noisy_box_measured_is_written_only_on_request(theatre: Any) -> None:
    stage = theatre()
    loud = noise.judge([1.0, 2.0] * 20, [1.0] * 40, 0.3)
    assert loud.verdict == "refused"

    def script(job: Job) -> Iterator[Message]:
        yield from plain(job) if job.stage == "screen" else [Result([won("row3", noise=loud)])]

    (report,) = stage.run(script)
    assert report.refused
    assert "core" in report.problem
    assert not stage.manifest.exists()
    (report,) = stage.run(script, noisy_ok=True)
    assert (report.refused, report.problem) == (False, "")
    assert stage.winners() == {"": "row3"}


def test_the_report_says_where_the_time_went_and_leaves_the_samples_to_their_file(theatre: Any) -> None:
    stage = theatre()

    def script(job: Job) -> Iterator[Message]:
        def later(message: Message, seconds: float) -> Message:
            stage.clock.now += seconds
            return message

        yield later(Ready(), 2)
        if job.stage == "screen":
            yield later(Trying("row3", "gate", 0, 1), 0)
            yield later(Candidate("row3", Outcome("passed"), "id"), 10)
            yield later(Trying("row3", "screen", 0, 1), 0)
            yield later(Result([]), 4)
        else:
            yield later(Trying("row3", "final", 0, 1), 0)
            yield later(Trying("row3", "confirm", 0, 1), 7)
            yield later(Result([won("row3", samples={"row3": {"some": [1.0]}})]), 3)

    (report,) = stage.run(script)
    assert report.seconds == {"start-up": 4, "gate": 10, "screen": 4, "final": 7, "confirm": 3}
    assert report.result is not None
    assert report.result.regimes[0].samples == {}
    (file,) = stage.manifest.parent.glob("*.samples/toy_f32.json")
    assert json.loads(file.read_bytes())["regimes"][""]["final"] == {"row3": {"some": [1.0]}}


def test_the_manifest_before_a_run_is_kept_once_however_many_kernels_it_writes(theatre: Any) -> None:
    stage = theatre(THREE)
    for winner in ("row1", "row2", "row3"):
        stage.run(lambda job, winner=winner: plain(job) if job.stage == "screen" else iter([Result([won(winner)])]))
    assert len(list((stage.manifest.parent / "history").iterdir())) == 2


LIBRARY = """
import os
import numpy as np
from tunegen import In, Out, bitwise, case, f32, tune_scope

scope = tune_scope(name="many", templates="templates")

@scope.tune(gen="copy.ll.j2", gate=bitwise(), cases=[case("some", N=4096)], fallback="row0; reference")
@scope.tune_grid(row=list(range(60)))
def copy(x: In[f32, "N"], out: Out[f32, "N"]) -> None:
    if x.dtype == np.float64:  # the gate asks for the answer in higher precision
        with open(os.path.join(os.path.dirname(__file__), "asked"), "a") as file:
            file.write("x")
    out[...] = x
"""
TEMPLATE = """
{% import "tunegen/lib/vector.ll.j2" as v with context %}
{{ v.head() }}
entry:
  %tag = alloca i32
  store volatile i32 {{ perm.row }}, ptr %tag
{% call(at, mask) v.sweep("i", "%N", 4, 1) %}
{{ v.load("%a." ~ at[0], 4, "%x", "%" ~ at[0], mask) }}
{{ v.store("%a." ~ at[0], 4, "%out", "%" ~ at[0], mask) }}
{% endcall %}
  ret void
}
"""


class Many:
    """A library with so many variants that a run can be caught in the middle of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.package = folder / "many"
        (self.package / "templates").mkdir(parents=True)
        (self.package / "__init__.py").write_text(LIBRARY)
        (self.package / "templates" / "copy.ll.j2").write_text(TEMPLATE)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Starts a tuner."""
        return self.program([sys.executable, "-P", "-m", *arguments, "--effort", "quick", "--noisy-ok"])

    def program(self, command: list[str]) -> subprocess.Popen[str]:
        """Starts a program that finds the library, and places of its own."""
        places = {"TUNE_HOME": str(self.folder / "home"), "TUNE_CACHE": str(self.folder / "cache")}
        return subprocess.Popen(
            command, cwd=self.folder, text=True, env={**os.environ, **places, "PYTHONPATH": str(self.folder)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def lines(self) -> int:
        """How much the journal holds."""
        return sum(path.read_bytes().count(b"\n") for path in self.folder.glob("home/many/*.journal.jsonl"))

    def outcomes(self) -> dict[str, str]:
        """States by suffix, out of the journal."""
        (path,) = self.folder.glob("home/many/*.journal.jsonl")
        return {suffix: known.outcome.state for suffix, known in Journal(path).known("copy[f32]").items()}

    def questions(self) -> int:
        """How often the gate asked the reference."""
        path = self.package / "asked"
        return len(path.read_text()) if path.exists() else 0

    def catch(self, process: subprocess.Popen[str], lines: int = 6) -> None:
        """Waits until a run is in the middle of its candidates."""
        while self.lines() < lines:
            assert process.poll() is None, process.communicate()
            os.sched_yield()


def children(pid: int) -> list[int]:
    """The processes that a process started."""
    return [int(p) for path in Path(f"/proc/{pid}/task").glob("*/children") for p in path.read_text().split()]


@pytest.fixture
def many(tmp_path: Path) -> Many:
    return Many(tmp_path)


FACES = [("tunegen.harness", "many"), ("tunegen", "tune", "many")]


@pytest.mark.parametrize("face", FACES, ids=["script", "command"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"])
def test_a_signal_ends_a_run_with_its_exit_code_and_the_journal_kept(
    many: Many, face: tuple[str, ...], number: int, code: int
) -> None:
    process = many.start(*face)
    many.catch(process)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == code, err
    assert "interrupted before its final" in out + err
    assert "Traceback" not in err
    found = many.outcomes()
    assert 1 <= len(found) < 60
    assert set(found.values()) == {"passed"}


@pytest.mark.skipif(sys.platform != "linux", reason="workers end with their parent on Linux alone")
def test_kill_9_loses_the_measurement_in_flight_and_the_next_run_goes_on(many: Many) -> None:
    process = many.start("tunegen.harness", "many")
    many.catch(process, 20)
    workers = children(process.pid)
    assert workers
    process.kill()
    process.communicate()
    for worker in workers:
        while Path(f"/proc/{worker}").exists():
            os.sched_yield()
    before, asked = many.outcomes(), many.questions()
    assert len(before) >= 9
    resumed = many.start("tunegen", "tune", "many", "--json")
    out, err = resumed.communicate(timeout=240)
    assert resumed.returncode == 0, err
    (report,) = json.loads(out)["reports"]
    assert before.keys() <= report["outcomes"].keys()
    assert report["result"]["regimes"][0]["evidence"]["pairs"] >= 7
    assert set(report["seconds"]) >= {"start-up", "gate", "screen", "final"}
    # once more: every gate is known, so the reference is not asked at all
    asked = many.questions()
    again = many.start("tunegen", "tune", "many", "--json", "--retune", "--diff", "--strict", "wrong,crashed")
    out, err = again.communicate(timeout=240)
    assert again.returncode == 0, err
    assert many.questions() == asked
    found = json.loads(out)
    assert [change["what"] in ("same", "changed") for change in found["changes"]["many"]] == [True]


PROGRAM = """
import os, subprocess, sys
subprocess.run(sys.argv[1:], env={**os.environ, "TUNE_PARENT": str(os.getpid())})
"""


@pytest.mark.skipif(sys.platform != "linux", reason="tuners end with a program that was killed on Linux alone")
def test_a_tuner_ends_with_the_program_that_started_it_when_that_one_is_killed(many: Many) -> None:
    """It may be waiting for a worker. What holds the pipe open is the program, and the tuner that it started."""
    command = [sys.executable, "-P", "-m", "tunegen.harness", "many", "--effort", "quick", "--noisy-ok"]
    program = many.program([sys.executable, "-c", PROGRAM, *command])
    many.catch(program)
    program.kill()
    _, err = program.communicate(timeout=120)
    assert "interrupted before its final" in err
    assert 1 <= len(many.outcomes()) < 60


@pytest.mark.parametrize(
    ("named", "mode", "asked"),
    [
        (str(os.getppid()), "", 1), ("1000000000", "", 0), ("1000000000", "tune", 1), ("1", "tune", 0),
        ("", "tune", 0), ("any", "tune", 0),
    ],
    ids=["parent", "other", "program that is gone", "program of its parent", "nobody", "nonsense"],
)  # fmt: skip
def test_a_tuner_ends_with_its_parent_only_when_that_one_named_itself(
    monkeypatch: pytest.MonkeyPatch, named: str, mode: str, asked: int
) -> None:
    found: list[tuple[int, int]] = []
    monkeypatch.setenv("TUNE_PARENT", named)
    monkeypatch.setenv("TUNE_MODE", mode)
    monkeypatch.setattr(tuner, "end_with_parent", lambda parent, number: found.append((parent, number)))
    monkeypatch.setattr(tuner, "_run", lambda *_: 0)
    with pytest.raises(SystemExit):
        tuner.main("any", [])
    assert [(str(parent), number) for parent, number in found] == [(named, signal.SIGTERM)] * asked


def test_a_tuner_hears_the_signals_that_its_program_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[object] = []

    def look(*_: object) -> int:
        found.extend([signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.getsignal(signal.SIGCHLD)])
        return 0

    monkeypatch.setattr(tuner, "_run", look)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
    handler = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(SystemExit):
            tuner.main("any", [])
    finally:
        signal.signal(signal.SIGCHLD, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert found == [set(), signal.SIG_DFL]


def test_a_strict_run_fails_by_the_states_it_names(many: Many) -> None:
    text = (many.package / "__init__.py").read_text()
    (many.package / "__init__.py").write_text(text.replace("range(60)", "range(3)"))
    template = many.package / "templates" / "copy.ll.j2"
    template.write_text('{% if perm.row == 1 %}{{ decline("not here") }}{% endif %}' + TEMPLATE)
    lenient = many.start("tunegen", "tune", "many", "--strict", "wrong,crashed")
    _, err = lenient.communicate(timeout=240)
    assert lenient.returncode == 0, err
    for face in FACES:
        process = many.start(*face, "--retune", "--strict", "declined")
        _, err = process.communicate(timeout=240)
        assert process.returncode == 1
        assert "copy[f32]: row1: declined: not here" in err
    process = many.start("tunegen", "tune", "many", "--strict", "bad")
    _, err = process.communicate(timeout=240)
    assert process.returncode == 2
    assert "out of bounds" in err
