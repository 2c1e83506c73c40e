"""The policies relaunch and restart, `-- --tune`, and programs that start at once or are ended: in child processes."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from stage import WINS, Stage
from toys import GENERIC, TOY_TEMPLATE

from tunegen import knobs


@pytest.fixture
def stage(tmp_path, tmp_path_factory):
    return Stage(tmp_path, tmp_path_factory.getbasetemp() / "objects")


RELAUNCH = 'missing="relaunch"'


def test_relaunch_starts_again_once_and_finds_itself_tuned(stage):
    program = stage.program(stage.make_library(), RELAUNCH)
    program.write_text(program.read_text().replace("import os, sys", "import os, sys; print('start', os.getpid())"))
    done = stage.run(program, "a b", "\n")
    one, two, row = done.stdout.splitlines()
    assert (one, row, done.returncode) == (two, r"row 3 ['a b', '\n']", 0), done.stderr
    assert done.stderr.splitlines()[1:] == ["this box is tuned now: starting again"]
    assert len(stage.starts) == 1


def test_relaunch_becomes_auto_with_a_word(stage):
    program = stage.program(stage.make_library(), RELAUNCH).read_text()
    done = stage.run("-", "x", input=program)
    assert (done.returncode, done.stdout) == (0, "row 3 ['x']\n")
    word = "not started again, but stamped in place: its program text came through standard input"
    assert done.stderr.splitlines()[1:] == [word]


def test_relaunch_does_not_start_again_for_nothing(stage):
    program = stage.program(stage.make_library("pass"), RELAUNCH)
    done = stage.run(program)
    assert (done.returncode, done.stdout) == (0, "row 2 []\n")
    assert "starting again" not in done.stderr
    assert done.stderr.count("NOT TUNED") == 1


def test_what_stays_untuned_is_said_once_after_a_new_start(stage):
    """Two scopes, of which one cannot be tuned."""
    one, two = stage.make_library(), stage.make_library("pass")
    program = stage.program(one, RELAUNCH)
    program.write_text(f"import {two}\n{program.read_text()}")
    done = stage.run(program)
    assert (done.returncode, done.stdout) == (0, "row 3 []\n")
    assert done.stderr.count("NOT TUNED FOR THIS BOX: 1 kernel\n") == 1
    assert len(stage.starts) == 2
    again = stage.run(program)
    assert (again.stdout, len(stage.starts)) == ("row 3 []\n", 2), "it is not started again for ever"


def test_what_went_wrong_is_said_before_a_new_start(stage):
    """The new process knows what is not tuned, but not why."""
    one, two = stage.make_library(), stage.make_library("sys.exit('no luck')")
    program = stage.program(one, RELAUNCH)
    program.write_text(f"import {two}\n{program.read_text()}")
    said = stage.run(program).stderr.splitlines()
    word = f"{two}: its tuner failed with exit code 1: no luck"
    assert said.count(word) == 1
    assert said.index(word) < said.index("this box is tuned now: starting again")


def test_restart_tunes_and_asks_for_a_new_start(stage):
    program = stage.program(stage.make_library(), 'missing="restart"')
    done = stage.run(program)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.endswith("this box is tuned now: start the program again\n")
    assert stage.run(program).stdout == "row 3 []\n"
    asked = stage.run(program, "--", "--tune")
    assert (asked.returncode, asked.stdout, len(stage.starts)) == (3, "", 2)
    assert asked.stderr.endswith("start the program again, without `-- --tune`\n")


def test_restart_runs_when_tuning_fails(stage):
    done = stage.run(stage.program(stage.make_library("sys.exit(1)"), 'missing="restart"'))
    assert (done.returncode, done.stdout) == (0, "row 2 []\n")
    assert "its tuner failed with exit code 1: this is the tuner" in done.stderr


def test_the_environment_names_the_policy_and_the_demand_is_narrowed(stage):
    both = GENERIC + GENERIC.replace("def toy", "def tea")
    wins = "\n".join(f"tunegen.tune_manifest_set('{{name}}:{kernel}', 'row3')" for kernel in ("toy", "tea"))
    name = stage.make_library(wins, both, generic=TOY_TEMPLATE)
    done = stage.run(stage.program(name, 'kernels=["toy[f32]"]'), TUNE_POLICY="auto")
    assert (done.stdout, stage.starts) == ("row 3 []\n", ["--only toy[f32]"]), done.stderr
    done = stage.run(stage.program(name, ""), "--", "--tune=tea,toy[f64]", "x")
    assert (done.stdout, stage.starts[1:]) == ("row 3 ['--', 'x']\n", ["--only tea[f32],tea[f64],toy[f64] --retune"])


PACKAGE = "from app import main\nmain()\n"
FORKING = """
import os, sys, tunegen, {name}
tunegen.apply_policy()
if os.fork():
    os.wait()
else:
    tunegen.apply_policy(missing="auto")
    print("row", {name}.toy.stamp["f32"].default.emitted[3:], sys.argv[1:])
"""


@pytest.mark.parametrize("host", ["script", "module", "console", "text", "pipe", "forking"])
def test_a_request_tunes_in_every_host_whatever_the_policy(stage, host):
    """It is gone before anything parses the arguments, which keep their bytes."""
    name = stage.make_library()
    program = stage.program(name, "")
    (stage.folder / "pkg").mkdir()
    (stage.folder / "pkg" / "__main__.py").write_text(PACKAGE)
    command, text = {
        "script": ([program], None),
        "module": (["-m", "pkg"], None),
        "console": ([stage.folder / "a pp\n"], None),
        "text": (["-c", program.read_text()], None),
        "pipe": (["-"], program.read_text()),
        "forking": (["-c", FORKING.format(name=name)], None),
    }[host]
    (stage.folder / "a pp\n").write_text(f"import sys; sys.path[0] = {str(stage.folder)!r}\n{PACKAGE}")
    odd = ["a b", "\n", os.fsdecode(b"\xff"), "$(id)"]
    done = stage.run(*command, *odd, "--", "--tune", input=text)
    assert (done.returncode, done.stdout) == (0, f"row 3 {odd}\n"), done.stderr
    assert stage.starts == ["--only toy[f32] --retune"]


@pytest.mark.parametrize(
    ("flag", "environment", "code", "said"),
    [
        ("--tune=nothing", {}, 2, "-- --tune=nothing: no kernel 'nothing'; declared are "),
        ("--tune=toy[f64]", {}, 2, "toy has no element type 'f64'; there are f32"),
        ("--tune=", {}, 2, "-- --tune=: it names no kernel; write -- --tune, or -- --tune=gemm,exp"),
        (
            "--tune",
            {"TUNE_POLICY": "fallback"},
            0,
            "`-- --tune` does nothing: TUNE_MODE or TUNE_POLICY turns tuning off",
        ),
        ("--tune", {"TUNE_MODE": "test"}, 0, "`-- --tune` does nothing"),
        ("--tune", {"PYTEST_CURRENT_TEST": "x"}, 0, "not tuned automatically: it is a test, or was started by one"),
    ],
)
def test_requests_that_tune_nothing(stage, flag, environment, code, said):
    done = stage.run(stage.program(stage.make_library(), ""), "--", flag, "x", **environment)
    assert (done.returncode, stage.starts) == (code, [])
    assert said in done.stderr
    assert done.stdout.endswith(" ['--', 'x']\n" if code == 0 else "")


def test_a_request_goes_into_the_manifest_that_is_named_and_keeps_a_policy_that_refuses(stage):
    named = stage.folder / "mine.tune.json"
    done = stage.run(stage.program(stage.make_library(), 'missing="error"'), "--", "--tune", TUNE_MANIFEST=str(named))
    assert (done.returncode, done.stdout) == (0, "row 3 []\n"), done.stderr
    assert '"row3"' in named.read_text()
    refused = stage.run(stage.program(stage.make_library("pass"), 'missing="error"'), "--", "--tune")
    assert (refused.returncode, refused.stdout) == (3, "")
    assert "no winner was found for toy[f32]" in refused.stderr


def test_the_manifest_of_an_application_gets_its_winners(stage):
    name = stage.make_library()
    program = stage.program(name, 'missing="auto"')
    program.write_text(
        program.read_text().replace("import tunegen\n", "import tunegen\ntunegen.tune_manifest('mine')\n")
    )
    assert stage.run(program).stdout == "row 3 []\n"
    assert len(list(stage.folder.glob("mine-*.tune.json"))) == 1
    assert not list((stage.folder / "home").rglob("*.tune.json"))


def test_two_programs_that_start_at_once_tune_once(stage):
    """The second waits for the first, however long that takes, and then finds the box tuned."""
    go = stage.folder / "go"
    os.mkfifo(go)
    program = stage.program(stage.make_library(f"open({str(go)!r}).read()\n{WINS}"), 'missing="auto"')
    with subprocess.Popen([sys.executable, program], **stage.pipes) as one:
        assert one.stderr is not None
        assert one.stderr.readline().startswith("tuning 1 kernel")
        with subprocess.Popen([sys.executable, program], **stage.pipes) as two:
            assert two.stderr is not None
            assert two.stderr.readline().startswith("another process is tuning")
            go.write_text("now")
            assert [p.communicate()[0] for p in (one, two)] == ["row 3 []\n"] * 2
    assert len(stage.starts) == 1


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_tuner_and_then_the_program(stage, sent):
    ready = stage.folder / "ready"
    os.mkfifo(ready)
    body = f"import signal\nopen({str(ready)!r}, 'w').write(str(os.getpid()))\nsignal.pause()"
    program = stage.program(stage.make_library(body), 'missing="auto"')
    with subprocess.Popen([sys.executable, program], **stage.pipes) as started:
        tuner = int(ready.read_text())
        started.send_signal(sent)
        out, err = started.communicate()
    assert (out, started.returncode) == ("", -sent), err
    with pytest.raises(ProcessLookupError):
        os.kill(tuner, 0)


PAGE = (Path(__file__).parents[1] / "docs" / "policies.md").read_text(encoding="utf-8")


def test_the_page_lists_the_policies_and_its_program_runs(stage):
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE)) == set(knobs.POLICIES)
    (program,) = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    (stage.folder / "app.py").write_text(program)
    for command in re.findall(r"^python (.*)$", PAGE, flags=re.MULTILINE):
        done = stage.run(*shlex.split(command), TUNE_POLICY="fallback")
        assert (done.returncode, done.stdout) == (0, "[1. 1. 1. 1.] ['input.txt']\n"), done.stderr
        assert done.stderr.startswith("`-- --tune")
