"""The policy auto: programs that tune when they start, in processes of their own, with fast tuners."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from stage import WINS, Stage
from toys import HEADER, TOY

from tunegen.public import attempts, launching


@pytest.fixture
def stage(tmp_path, tmp_path_factory):
    return Stage(tmp_path, tmp_path_factory.getbasetemp() / "objects")


def test_auto_tunes_once_stamps_in_place_and_goes_on(stage):
    name = stage.make_library()
    program = stage.program(name, 'missing="auto"')
    done = stage.run(program, "a", TUNE_LOG="info")
    assert (done.returncode, done.stdout) == (0, "row 3 ['a']\n"), done.stderr
    assert f"tuning 1 kernel of {name} for this box, for 1800 s at most\n" in done.stderr
    assert f"tunegen: tuner of {name}: this is the tuner\n" in done.stderr
    assert stage.starts == ["--only toy[f32]"]
    assert stage.remembered == {}
    again = stage.run(program)
    assert (again.stdout, again.stderr, len(stage.starts)) == ("row 3 []\n", "", 1)


@pytest.mark.parametrize(
    ("body", "reason", "tries"),
    [
        ("raise ValueError('no luck')", "its tuner failed with exit code 1: ValueError: no luck", 1),
        ("pass", "no winner was found for toy[f32]", 1),
        ("sys.exit(3)", "its tuner refused: this box is too noisy to measure on", 3),
    ],
)
def test_a_tuner_that_finds_nothing_never_stops_the_program_and_is_not_started_for_ever(stage, body, reason, tries):
    name = stage.make_library(body)
    program = stage.program(name, 'missing="auto"')
    for start in range(1, tries + 1):
        done = stage.run(program)
        assert (done.returncode, done.stdout, len(stage.starts)) == (0, "row 2 []\n", start), done.stderr
        assert done.stderr.count("NOT TUNED FOR THIS BOX: 1 kernel") == 1
        assert f"{name}: {reason}\n" in done.stderr
    over = stage.run(program)
    assert (over.returncode, over.stdout, len(stage.starts)) == (0, "row 2 []\n", tries)
    assert "toy[f32] is not tried again: " in over.stderr
    assert f"`-- --tune` or `tunegen tune {name}` tries again; this is remembered in " in over.stderr
    stage.tuner(name, WINS)
    assert stage.run(program).stdout == "row 3 []\n", "a change of the library is a reason to try again"
    assert stage.remembered == {}


HANGING = """
import signal, subprocess
{ignore}
child = subprocess.Popen(["sleep", "1000"])
with open("ready", "w") as file:
    print(os.getpid(), *[child.pid][:{ignored}], file=file)
while True:
    signal.pause()
"""
TIME_IS_OVER = """
import subprocess
from tunegen.public import launching
launching.GRACE_S = 0.1 if {ignored} else 60
def over(process, timeout_s):
    assert timeout_s == 77
    with open("ready") as ready, open("pids", "w") as pids:
        pids.write(ready.read())
    raise subprocess.TimeoutExpired("tuner", timeout_s)
launching._await = over
"""
"""The time is over as soon as the tuner hangs, on a fast box and on a slow one."""


@pytest.mark.parametrize("ignored", [0, 1])
def test_a_tuner_that_hangs_is_ended_and_with_its_group_when_it_does_not_listen(stage, ignored):
    os.mkfifo(stage.folder / "ready")
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN)" if ignored else ""
    name = stage.make_library(HANGING.format(ignore=ignore, ignored=ignored))
    program = stage.program(name, 'missing="auto", timeout_s=77')
    program.write_text(TIME_IS_OVER.format(ignored=ignored) + program.read_text())
    done = stage.run(program)
    assert (done.returncode, done.stdout) == (0, "row 2 []\n"), done.stderr
    assert f"{name}: its tuner was not ready after 77 s\n" in done.stderr
    assert stage.starts == ["--only toy[f32] --budget 69.300s"]
    attempt = stage.remembered[f"{name}:toy[f32]"]
    assert (attempt["tries"], attempt["ended"]) == (1, False)
    for pid in (stage.folder / "pids").read_text().split():
        state = Path(f"/proc/{pid}/stat")
        assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize("what", ["script", "interpreter", "compiler", "home"])
def test_what_is_absent_never_stops_the_program(stage, what):
    name = stage.make_library()
    program = stage.program(name, 'missing="auto"')
    change = {
        "script": f"import {name}, os; os.unlink({name}.scope.tuner)",
        "interpreter": "import sys; sys.executable = ''; sys.prefix = '/nowhere'",
        "compiler": "import sys; sys.modules['llvmlite'] = None",
        "home": "open('file', 'w').close()",
    }[what]
    program.write_text(f"{change}\n{program.read_text()}")
    more = {"TUNE_HOME": str(stage.folder / "file" / "home")} if what == "home" else {}
    done = stage.run(program, **more)
    row = -1 if what == "compiler" else 2
    assert (done.returncode, done.stdout, stage.starts) == (0, f"row {row} []\n", []), done.stderr
    said = {"script": "can't open file", "interpreter": "no Python interpreter", "compiler": "llvmlite",
            "home": "cannot be written: Not a directory"}  # fmt: skip
    assert said[what] in done.stderr


def test_a_kernel_of_a_script_cannot_be_tuned_and_that_is_said(stage):
    name = stage.make_library()
    body = HEADER.replace("__name__", "'inscript'").replace('"templates"', f"'libraries/{name}/templates'") + TOY
    program = stage.folder / "own.py"
    program.write_text(f"{body}\nimport tunegen\ntunegen.apply_policy(missing='auto')\nprint('on')")
    done = stage.run(program)
    assert (done.returncode, done.stdout) == (0, "on\n")
    assert "inscript: it is declared in a script or a notebook, which a tuner cannot import" in done.stderr
    assert "to tune them" not in done.stderr


@pytest.mark.parametrize(
    ("policy", "environment", "row", "note"),
    [
        ("auto", {"TUNE_MODE": "tune"}, -1, None),
        ("relaunch", {"TUNE_MODE": "test"}, -1, None),
        ("restart", {"TUNE_POLICY": "fallback"}, 2, None),
        ("auto", {"TUNE_POLICY": "reference"}, -1, None),
        ("auto", {"TUNE_MANIFEST": "mine.tune.json"}, 2, "TUNE_MANIFEST says what to use"),
        ("restart", {"TUNE_MANIFEST": "mine.tune.json"}, 2, "TUNE_MANIFEST says what to use"),
        ("relaunch", {"TUNE_PARENT": "1"}, 2, "it was started by a program that tunes, process 1"),
        ("auto", {"PYTEST_CURRENT_TEST": "x"}, 2, "it is a test, or was started by one"),
    ],
)
def test_where_nothing_is_tuned_automatically(stage, policy, environment, row, note):
    done = stage.run(stage.program(stage.make_library(), f'missing="{policy}"'), **environment)
    assert (done.returncode, done.stdout, stage.starts) == (0, f"row {row} []\n", []), done.stderr
    if note is None:
        assert done.stderr == ""
    else:
        assert "NOT TUNED FOR THIS BOX" in done.stderr
        assert f"\nnot tuned automatically: {note}\n" in done.stderr


@pytest.mark.parametrize("environment", [{"TUNE_PARENT": "1"}, {"PYTEST_CURRENT_TEST": "x"}, {"TUNE_MANIFEST": ""}])
def test_where_all_is_tuned_no_word_says_who_does_not_tune(stage, environment):
    program = stage.program(stage.make_library(), 'missing="auto"')
    assert stage.run(program).stdout == "row 3 []\n"
    (manifest,) = stage.folder.glob("home/*/*.tune.json")
    done = stage.run(program, **{name: value or str(manifest) for name, value in environment.items()})
    assert (done.stdout, done.stderr, len(stage.starts)) == ("row 3 []\n", "", 1)


def test_what_a_tuned_program_starts_and_what_a_tuner_starts_do_not_tune(stage):
    """Neither does a tuner whose library is so bold as to apply a policy when it is imported."""
    name = stage.make_library(WINS + "\nimport subprocess; subprocess.run([sys.executable, 'app.py'], check=True)")
    with (stage.libraries / name / "__init__.py").open("a") as library:
        library.write("\nimport tunegen\ntunegen.apply_policy(missing='auto')\n")
    program = stage.program(name, "")
    program.write_text(program.read_text() + "    import subprocess\n    if 'again' in sys.argv:\n"
                       "        import glob\n        [os.unlink(f) for f in glob.glob('home/*/*.tune.json')]\n"
                       "        subprocess.run([sys.executable, 'app.py'])\n")  # fmt: skip
    done = stage.run(program, "again")
    assert done.stdout == "row 2 []\nrow 3 ['again']\n" or done.stdout == "row 3 ['again']\nrow 2 []\n", done.stderr
    assert len(stage.starts) == 1


@pytest.mark.parametrize("text", ['{"x": 1}', "[" * 100_000, "\0", "", '{"a:b[f32]": {"digest": 1}}', "x" * (2 << 20)])
def test_what_is_remembered_may_be_damaged(tmp_path, text):
    file = tmp_path / "box.attempts.json"
    file.write_text(text)
    assert attempts.read(file) == {}
    attempts.write(file, {"a:b[f32]": attempts.Attempt("d", 2)})
    assert attempts.read(file) == {"a:b[f32]": attempts.Attempt("d", 2)}
    attempts.write(file, {"a:b[f32]": None})
    assert not file.exists()


@pytest.mark.parametrize(
    ("code", "ended"),
    [(-9, "its tuner was ended by signal 9"), (143, "its tuner was ended by signal 15"), (130, "by signal 2")],
)
def test_a_tuner_that_was_interrupted_was_cut_short(code, ended):
    found = launching._ending(code, [])
    assert (found.problem.endswith(ended), found.cut) == (True, True)


REAL = TOY.replace("out[...] = -1", "out[...] = 3")
HARNESS = "from tunegen.harness.tuner import main\nmain('{name}', [*sys.argv[1:], '--effort', 'quick', '--noisy-ok'])"


def test_a_real_tune_at_the_start_of_a_program(stage):
    """One row of the kernel is right, and so the winner."""
    name = stage.make_library(HARNESS, REAL)
    done = stage.run(stage.program(name, 'missing="auto"'), TUNE_LOG="info")
    assert (done.returncode, done.stdout) == (0, "row 3 []\n"), done.stderr
    assert "NOT TUNED" not in done.stderr
    assert done.stderr.count("toy[f32]: row3 (") == 1, "no line comes twice"
    assert f"\ntunegen: tuner of {name}: toy[f32]: row3 (" in done.stderr
