"""An upgrade of LLVM alone: what was chosen goes through the gate again in a child, once, and stays when it passes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import msgspec
import numpy as np
import pytest
from stage import FREE, Stage
from toys import ran, write_library

import tunegen
from tunegen import knobs, tuning
from tunegen.box import this_box
from tunegen.choosing import store
from tunegen.choosing.document import KEPT_ENTRIES
from tunegen.errors import ProfileError
from tunegen.harness import recheck
from tunegen.harness.protocol import Outcome as GateOutcome
from tunegen.harness.target import incumbents, standing, targets
from tunegen.making.spec import digest_of
from tunegen.public import host, record, regating, sources
from tunegen.public.target import Target
from tunegen.signature import ELEMENT_TYPES

OLD = "21.0"
T = ELEMENT_TYPES["f32"]

# Row 2 answers as the reference does, 3 answers something else, 4 crashes, 5 never ends. Row 1 is what an untuned box
# runs; nobody gates that when a program starts.
TOYS = """
@scope.tune(gen="toy.ll.j2", gate=bitwise(), cases=[case("some", N=8), case("one", N=1)],
            fallback="row1 if N <= 2; row1; reference")
@scope.tune_grid(row=[1, 2, 3, 4, 5])
def toy(x: In[f32, "N"], out: Out[f32, "N"]) -> None:
    out[...] = 2

@scope.tune(gen="toy.ll.j2", gate=bitwise(), cases=[case("some", N=8)], fallback="row1; reference")
@scope.tune_grid(row=[1, 2, 3, 4, 5])
def second(x: In[f32, "N"], out: Out[f32, "N"]) -> None:
    out[...] = 2

import sys
with open({log!r}, "a") as log:
    print(getattr(sys.modules["__main__"].__spec__, "name", "-"), file=log)
"""
TEMPLATE = """\
{% import "loop.ll.j2" as loop with context %}
define void @{{ symbol }}(ptr %x, ptr %out, i64 %N, ptr %scratch) "no-builtins" {
entry:
  %slot = alloca i32
{% if perm.row == 4 %}
  store volatile i32 0, ptr inttoptr (i64 64 to ptr)
{% elif perm.row == 5 %}
  br label %for_ever
for_ever:
  store volatile i32 0, ptr %slot
  br label %for_ever
{% endif %}
{% if perm.row != 5 %}{{ loop.fill("%out", perm.row) }}{% endif %}
}
"""
PROGRAM = """
import numpy as np
import tunegen
from {name} import second, toy
def ran(kernel, n=3):
    out = np.zeros(n, np.float32)
    kernel(np.zeros(n, np.float32), out)
    return int(out[0])
print(ran(toy), ran(second))
for row in tunegen.tune_status():
    print(row, row.tuned)
"""


@pytest.fixture
def allowed(monkeypatch):
    """Has this process gate as an ordinary program does."""
    monkeypatch.setattr(knobs, "under_pytest", lambda: False)
    monkeypatch.setattr(host, "runners", lambda: iter(()))


@pytest.fixture
def made(library, tmp_path):
    return library(TOYS.replace("{log!r}", repr(str(tmp_path / "imports.log"))), {"toy.ll.j2": TEMPLATE})


def children(tmp_path) -> int:
    """How many children that gate have imported the library."""
    lines = (tmp_path / "imports.log").read_text().split()
    return lines.count("tunegen.harness.recheck")


def age(path: Path, llvm: str = OLD) -> None:
    """Edits a manifest as if all of it had been written under another LLVM."""
    raw = json.loads(path.read_text())
    for scope in raw["scopes"].values():
        for entries in scope["kernels"].values():
            for one in entries:
                one["parts"]["llvm"] = llvm
                one["digest"] = digest_of(one["parts"])
    path.write_text(json.dumps(raw))


def upgraded(made, **winners: str) -> Path:
    """A manifest with these winners, of an older LLVM."""
    path = sources.target_manifest(made.__name__, this_box())
    for name, suffix in winners.items():
        assert tunegen.tune_manifest_set(f"{made.__name__}:{name}", suffix)
    age(path)
    sources.refresh()
    return path


def status(kernel):
    (row,) = tunegen.tune_status(kernels=[kernel.name])
    return row


def test_all_winners_of_a_scope_are_gated_by_one_child_and_remembered(made, allowed, tmp_path, caplog):
    path = upgraded(made, toy="row2", second="row3")
    real = record.llvm_version()
    assert (ran(made.toy), ran(made.second)) == (2, 1)
    assert (status(made.toy).emitted, status(made.toy).state, status(made.toy).tuned) == ("row2", "stale", False)
    said = f"llvm changed from {OLD} to {real}"
    assert str(status(made.toy)) == f"toy[f32]: row2 (manifest: stale, {said}; it passed the gate again)"
    assert status(made.second).reason.startswith(f"{said}; wrong: awkward N=1: out[0]: got 3.0, expected 2.0")
    assert str(status(made.second)).startswith(f"second[f32]: row1 (fallback: row3 stale, {said}; wrong: ")
    assert f"LLVM has changed to {real}: 2 of the winners of {made.__name__}" in caplog.text
    assert "1 of 2 passed" in caplog.text
    remembered = json.loads(regating.path_for(made.__name__, this_box()).read_text())
    assert [name.split()[:2] for name in remembered] == [["toy[f32]", "row2"], ["second[f32]", "row3"]]
    for _ in range(2):
        regating._verdicts.clear()
        tunegen.load()
        assert (ran(made.toy), ran(made.second)) == (2, 1)
    assert children(tmp_path) == 1
    assert path.with_name(path.name.replace(".tune.json", ".regated.json")).exists()


def test_winners_of_a_box_whose_features_another_llvm_names_are_found_and_gated(made, allowed, tmp_path):
    """The features are in the name of the file, so the upgrade leads to another one."""
    path = upgraded(made, toy="row2", second="row2")
    raw = json.loads(path.read_text())
    raw["box"]["features"].append("zz-feature")
    path.unlink()
    then = msgspec.structs.replace(this_box(), features=(*this_box().features, "zz-feature"))
    path.with_name(then.file_name).write_text(json.dumps(raw))
    tunegen.load()
    assert (ran(made.toy), ran(made.second)) == (2, 2)
    said = "features: +zz-feature there, none more here; it passed the gate again"
    assert status(made.toy).reason == f"llvm changed from {OLD} to {record.llvm_version()}, {said}"
    assert str(path.with_name(then.file_name)) == status(made.toy).path
    assert tunegen.tune_manifest_set(made.toy, "row3")
    tunegen.load()
    assert (ran(made.toy), ran(made.second)) == (3, 2), "what is chosen now goes first, and costs no other kernel"
    assert children(tmp_path) == 1


def test_a_tune_finds_it_untuned_and_tries_it_first(made, allowed):
    upgraded(made, toy="row2", second="row3")
    for when in ("gated", "refused"):
        target = Target(made.toy if when == "gated" else made.second, T)
        assert standing(target) == {}
        assert incumbents(target) == ({"": "row2", "N <= 2": "row2"} if when == "gated" else {})
    assert [target.key for target in targets(made.scope)] == ["toy[f32]", "second[f32]"]
    assert tunegen.tune_manifest_set(made.toy, "row2")
    tunegen.load()
    assert [target.key for target in targets(made.scope)] == ["second[f32]"]


def test_a_process_that_may_not_gate_says_why_and_a_tuner_still_tries_it_first(made, tmp_path):
    upgraded(made, toy="row2")
    assert ran(made.toy) == 1
    assert status(made.toy).reason.endswith("; not gated again: it is a test, or was started by one")
    assert incumbents(Target(made.toy, T)) == {"": "row2", "N <= 2": "row2"}
    assert children(tmp_path) == 0


@pytest.mark.parametrize(
    ("runner", "may"),
    [("tunegen.harness", False), ("sphinx", False), ("pytest", False), ("tunegen.cli", True),
     ("joblib.externals.loky.backend", True)],
)  # fmt: skip
def test_tuners_tests_and_documentation_builds_start_no_child(made, monkeypatch, runner, may):
    monkeypatch.setattr(knobs, "under_pytest", lambda: False)
    monkeypatch.setattr(host, "runners", lambda: iter([(runner, host.RUNNERS[runner])]))
    assert regating._why_not(made.toy.spec) == ("" if may else f"it is {host.RUNNERS[runner]}")


@pytest.mark.parametrize("mode", ["tune", "test"])
def test_in_other_modes_nothing_is_gated(made, allowed, monkeypatch, mode, tmp_path):
    upgraded(made, toy="row2")
    monkeypatch.setenv("TUNE_MODE", mode)
    tunegen.load()
    assert ran(made.toy) == 2  # the reference
    assert children(tmp_path) == 0


def test_what_holds_in_its_regime_alone_is_used_there_alone(made, allowed, tmp_path):
    winners = {"N <= 2": "row3", "": "row2"}
    made_now = record.entry_for(made.toy.spec, T, this_box(), winners, {})
    age(record.write_entry(made.toy.spec, T, this_box(), made_now))
    tunegen.load()
    assert (ran(made.toy, 1), ran(made.toy, 3)) == (1, 2)
    assert [(r.condition, r.emitted, r.source, r.tuned) for r in status(made.toy).regimes] == [
        ("N <= 2", "row1", "fallback", False), ("", "row2", "manifest", False)
    ]  # fmt: skip
    assert children(tmp_path) == 1


def test_a_variant_that_crashes_costs_itself_alone(made, allowed, tmp_path):
    upgraded(made, toy="row4", second="row2")
    assert (ran(made.toy), ran(made.second)) == (1, 2)
    assert "; crashed: gate: awkward N=0: SIGSEGV" in status(made.toy).reason
    assert children(tmp_path) == 1


def test_a_program_that_wants_no_word_of_its_children_has_verdicts_too(made, allowed, tmp_path):
    upgraded(made, toy="row2", second="row3")
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert (ran(made.toy), ran(made.second)) == (2, 1)
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert "; wrong: " in status(made.second).reason


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_variant_that_hangs_is_a_verdict(made, monkeypatch):
    monkeypatch.setattr(recheck, "STEP_S", 0.5)
    winner = regating.Winner(made.__name__, "toy", "f32", "row5", "")
    said = recheck.verdict(made.__name__, 3, winner)
    assert said == regating.Verdict(3, "timed out: gate: awkward N=0: nothing for 0.5 s")


@pytest.mark.parametrize(
    ("outcome", "lasting"),
    [(("wrong", "3"), True), (("crashed", "gate: SIGSEGV"), True), (("declined", "no"), True),
     (("crashed", "gate: SIGKILL"), False), (("out of memory", "run: MemoryError"), False)],
)  # fmt: skip
def test_what_says_nothing_of_a_winner_is_not_remembered(made, monkeypatch, outcome, lasting):
    monkeypatch.setattr(recheck, "recheck", lambda *_, **options: GateOutcome(*outcome))
    said = recheck.verdict(made.__name__, 0, regating.Winner(made.__name__, "toy", "f32", "row2", ""))
    assert said == regating.Verdict(0, ": ".join(outcome), lasting)


def test_a_library_that_cannot_be_imported_again_is_asked_at_the_next_start(made, allowed, tmp_path):
    upgraded(made, toy="row2")
    package = tmp_path / "libraries" / made.__name__ / "__init__.py"
    package.write_text("raise RuntimeError('not twice')")
    assert ran(made.toy) == 1
    assert f"not gated again: {made.__name__} cannot be imported: RuntimeError: not twice" in status(made.toy).reason
    assert not regating.path_for(made.__name__, this_box()).exists()


def interpreter(folder: Path, body: str) -> str:
    """A program in the place of Python."""
    path = folder / "instead"
    path.write_text(f"#!{sys.executable}\nimport json, sys, time\n{dedent(body)}")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("sys.exit(3)", "the child ended with exit code 3"),
        ('print(\'no word of ours\'); print(\'{"number": 7, "reason": ""}\')', "the child ended with exit code 0"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "the child ended with exit code -11"),
        (None, "no child could be started: "),
    ],
)
def test_a_child_that_fails_leaves_all_to_the_next_start(made, allowed, monkeypatch, tmp_path, body, why):
    program = interpreter(tmp_path, body) if body is not None else "/nowhere/python"
    monkeypatch.setattr(host, "interpreter", lambda: program)
    upgraded(made, toy="row2", second="row2")
    assert (ran(made.toy), ran(made.second)) == (1, 1)
    assert f"; not gated again: {why}" in status(made.toy).reason
    assert not regating.path_for(made.__name__, this_box()).exists()


def test_without_an_interpreter_nothing_is_gated(made, allowed, monkeypatch):
    monkeypatch.setattr(host, "interpreter", lambda: "")
    upgraded(made, toy="row2")
    assert ran(made.toy) == 1
    assert status(made.toy).reason.endswith("not gated again: no Python interpreter was found")


def test_a_child_that_hangs_before_it_says_anything_is_not_waited_for_again(made, allowed, monkeypatch, tmp_path):
    monkeypatch.setattr(host, "interpreter", lambda: interpreter(tmp_path, "time.sleep(600)"))
    monkeypatch.setattr(regating, "LIMIT_S", 0.5)
    upgraded(made, toy="row2")
    assert ran(made.toy) == 1
    assert status(made.toy).reason.endswith("; the child was not ready after 0.5 s")
    remembered = json.loads(regating.path_for(made.__name__, this_box()).read_text())
    assert list(remembered.values()) == ["the child was not ready after 0.5 s"]


def test_what_a_child_said_before_its_time_was_over_is_kept(made, allowed, monkeypatch):
    late = ([regating.Verdict(0, "")], "the child was not ready after 120 s", True)
    monkeypatch.setattr(regating, "_run", lambda job: late)
    upgraded(made, toy="row2", second="row2")
    assert (ran(made.toy), ran(made.second)) == (2, 1)
    assert status(made.second).reason.endswith("not gated again: the child was not ready after 120 s")
    assert len(json.loads(regating.path_for(made.__name__, this_box()).read_text())) == 1


def spoil(path: Path, kind: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "huge":
        with path.open("wb") as file:
            file.truncate(regating.MAX_BYTES + 1)
    else:
        path.write_bytes({"empty": b"", "half": b'{"toy[f32] row2', "list": b"[1]", "numbers": b'{"a": 1}',
                          "deep": b"[" * 100_000, "bytes": b"\xff\xfe"}[kind])  # fmt: skip


@pytest.mark.parametrize("kind", ["empty", "half", "list", "numbers", "deep", "bytes", "huge", "pipe", "folder"])
def test_a_damaged_record_is_none_and_is_written_anew(made, allowed, kind, tmp_path):
    path = regating.path_for(made.__name__, this_box())
    spoil(path, kind)
    upgraded(made, toy="row2")
    assert ran(made.toy) == 2
    assert children(tmp_path) == 1
    if kind != "folder":
        assert len(json.loads(path.read_text())) == 1


def test_a_record_that_grows_keeps_the_newest(made, allowed, monkeypatch):
    monkeypatch.setattr(regating, "MOST_VERDICTS", 2)
    path = regating.path_for(made.__name__, this_box())
    spoil(path, "empty")
    path.write_text(json.dumps({"old": "", "older": "x" * 9999}))
    upgraded(made, toy="row2")
    assert ran(made.toy) == 2
    kept = json.loads(path.read_text())
    assert next(iter(kept)) == "older"
    assert len(kept["older"]) == regating.LONGEST_REASON
    assert len(kept) == 2


def test_where_nothing_can_be_written_each_start_gates_and_says_so(made, allowed, monkeypatch, tmp_path, caplog):
    manifest_file = tmp_path / "elsewhere.tune.json"
    upgraded(made, toy="row2").rename(manifest_file)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TUNE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("TUNE_MANIFEST", str(manifest_file))
    for starts in (1, 2):
        regating._verdicts.clear()
        tunegen.load()
        assert (ran(made.toy), children(tmp_path)) == (2, starts)
    assert caplog.text.count("go through the gate at each start") == 1


def test_a_process_that_holds_the_turn_for_too_long_is_not_waited_for(made, allowed, monkeypatch, tmp_path):
    upgraded(made, toy="row2")
    path = regating.path_for(made.__name__, this_box())
    monkeypatch.setattr(regating, "LIMIT_S", 0.2)
    with store.turn(path, 0.0):
        assert ran(made.toy) == 1
    assert "not gated again: " in status(made.toy).reason
    assert "has been locked for 0.2 s" in status(made.toy).reason
    path.write_text(json.dumps(dict.fromkeys([w.name for w in regating._put_off], "")))
    tunegen.load()
    assert (ran(made.toy), children(tmp_path)) == (2, 0)


def test_a_manifest_that_lists_winners_without_end_costs_a_few(made, allowed, monkeypatch, tmp_path):
    monkeypatch.setattr(regating, "MOST_WINNERS", 2)
    path = upgraded(made, toy="row3")
    raw = json.loads(path.read_text())
    entries = raw["scopes"][made.__name__]["kernels"]["toy[f32]"]
    for name in ("row4", "row3", "row2", "row1"):
        at = record.entry_for(made.toy.spec, T, this_box(), {"": name, "N <= 2": name}, {})
        entries.append(msgspec.to_builtins(at))
    path.write_text(json.dumps(raw))
    age(path)
    tunegen.load()
    assert ran(made.toy) == 1
    assert (children(tmp_path), len(entries) <= KEPT_ENTRIES) == (1, True)
    assert len(json.loads(regating.path_for(made.__name__, this_box()).read_text())) == 2


def test_a_session_has_it_too(made, allowed):
    upgraded(made, toy="row2")
    with tunegen.session() as session:
        bound = session.bind(made.toy)
        out = np.zeros(3, np.float32)
        bound(np.zeros(3, np.float32), out)
        assert out[0] == 2
        assert bound.stamp["f32"].default.state == "stale"


def test_companions_are_stamped_with_it(library, allowed):
    body = """
    def pack(x: In[f32, "N"], out: Out[f32, "N"]) -> None:
        out[...] = -1

    @scope.tune(gen="toy.ll.j2", gate=bitwise(), cases=[case("some", N=8)], fallback="row1; reference")
    @scope.tune_companion(fn=pack, gen="toy.ll.j2")
    @scope.tune_grid(row=[1, 2, 3])
    def toy(x: In[f32, "N"], out: Out[f32, "N"]) -> None:
        out[...] = 2
    """
    made = library(body)
    upgraded(made, toy="row2")
    assert (ran(made.toy), ran(made.toy.companions["pack"])) == (2, 2)
    upgraded(made).unlink()
    upgraded(made, toy="row3")
    tunegen.load()
    assert (ran(made.toy), ran(made.toy.companions["pack"])) == (1, 1)


def test_an_inspection_says_what_the_gate_said_and_gates_nothing(made, allowed, tmp_path):
    path = upgraded(made, toy="row2", second="row3")
    states = [(e.key, e.state, e.reason) for e in tuning.inspect(path).files[0].entries]
    said = f"llvm changed from {OLD} to {record.llvm_version()}"
    assert states == [("toy[f32]", "stale", said), ("second[f32]", "stale", said)]
    assert children(tmp_path) == 0
    ran(made.toy)
    reasons = [e.reason for e in tuning.inspect(path).files[0].entries]
    assert reasons[0] == f"{said}; it passed the gate again"
    assert reasons[1].startswith(f"{said}; wrong: ")


def test_forget_stale_leaves_what_is_in_use(made, allowed):
    path = upgraded(made, toy="row2", second="row3")
    assert [row.key for row in tuning.forget(stale=True, path=path).pruned] == []
    ran(made.toy)
    assert [row.key for row in tuning.forget(stale=True, path=path).pruned] == ["second[f32]"]
    assert tunegen.tune_manifest_set(made.toy, "row3")
    assert [row.key for row in tuning.forget(stale=True, path=path).pruned] == ["toy[f32]"]
    assert [e.state for e in tuning.inspect(path).files[0].entries] == ["ok"]


def test_a_profile_takes_nothing_that_an_upgrade_made_stale(made, allowed):
    path = upgraded(made, toy="row2")
    assert ran(made.toy) == 2
    with pytest.raises(ProfileError, match=f"toy.f32.: stale: llvm changed from {OLD} to "):
        tuning.export_profile(made.__name__, "model", path)


# programs, each a process of its own


@pytest.fixture
def home(tmp_path):
    """A library with winners of an older LLVM, and the name of its package."""
    body = TOYS.replace("{log!r}", repr(str(tmp_path / "imports.log")))
    return write_library(tmp_path / "libraries", body, {"toy.ll.j2": TEMPLATE})


WRITE = """
import tunegen, {name}
assert tunegen.tune_manifest_set("{name}:toy", "row2") and tunegen.tune_manifest_set("{name}:second", "row3")
"""


def test_the_first_start_gates_and_says_so_and_the_next_one_does_not(home, child, tmp_path):
    assert child(WRITE.format(name=home)).returncode == 0
    age(sources.target_manifest(home, this_box()))
    first, next_one = (child(PROGRAM.format(name=home), **FREE) for _ in range(2))
    for done in (first, next_one):
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert lines[0] == "2 1"
        assert lines[1].startswith(f"toy[f32]: row2 (manifest: stale, llvm changed from {OLD} to ")
        assert lines[1].endswith("; it passed the gate again) False")
    assert "go through the gate again, once" in first.stderr
    assert next_one.stderr == ""
    assert children(tmp_path) == 1
    listed = child("import sys; from tunegen.cli import main; sys.exit(main(sys.argv[1:]))",
                   "status", home, "--json", **FREE)  # fmt: skip
    found = json.loads(listed.stdout)
    assert (found["tuned"], [row["state"] for row in found["kernels"]]) == (0, ["stale", "stale"])
    assert child(PROGRAM.format(name=home), **FREE, TUNE_POLICY="reference").stdout.splitlines()[0] == "2 2"


def test_a_policy_that_tunes_tunes_it_anew(tmp_path):
    stage = Stage(tmp_path, tmp_path / "cache")
    name = stage.make_library(kernels=TOYS.replace("{log!r}", repr(str(tmp_path / "imports.log"))), toy=TEMPLATE)
    stage.run("-c", WRITE.format(name=name))
    age(sources.target_manifest(name, this_box()))
    done = stage.run(stage.program(name, "missing='auto', kernels=['toy']"))
    assert done.stdout.startswith("row 3"), done.stderr
    assert len(stage.starts) == 1
    assert stage.run(stage.program(name, "missing='error', kernels=['second']")).returncode == 3


def test_two_processes_at_once_start_one_child(home, child, tmp_path):
    assert child(WRITE.format(name=home)).returncode == 0
    age(sources.target_manifest(home, this_box()))
    environment = {**os.environ, **FREE, "PYTHONPATH": str(tmp_path / "libraries")}
    programs = [
        subprocess.Popen([sys.executable, "-c", PROGRAM.format(name=home)], env=environment, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3)
    ]  # fmt: skip
    said = [program.communicate(timeout=120) for program in programs]
    assert [out.splitlines()[:1] for out, _ in said] == [["2 1"]] * 3, said
    assert children(tmp_path) == 1


def test_a_start_without_such_an_entry_looks_at_nothing_of_it(home, child):
    code = PROGRAM.format(name=home) + "import sys; print('tunegen.public.regating' in sys.modules)"
    assert child(code, **FREE).stdout.splitlines()[-1] == "False"
    assert child(WRITE.format(name=home)).returncode == 0
    assert child(code, **FREE).stdout.splitlines()[-1] == "False"


def test_a_scope_of_a_script_is_not_gated(home, child, tmp_path):
    script = tmp_path / "libraries" / home / "__init__.py"
    name = sources.target_manifest("__main__", this_box())
    code = f"{script.read_text()}\nimport tunegen\n{{}}"
    run = [sys.executable, str(script)]
    environment = {**os.environ, **FREE}
    script.write_text(code.format("assert tunegen.tune_manifest_set('__main__:toy', 'row2')"))
    subprocess.run(run, env=environment, check=True, timeout=120)
    age(name)
    script.write_text(code.format("print(*tunegen.tune_status(), sep='\\n')"))
    done = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=120)
    assert "toy[f32]: row1 (fallback: row2 stale, " in done.stdout
    assert "not gated again: it is declared in a script or a notebook" in done.stdout
