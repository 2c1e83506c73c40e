"""`pytest --tune-gate SCOPE`: a test per variant, in its own words, and nothing at all without the option."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from toys import TOY, write_library

from tunegen.harness.child import in_child
from tunegen.harness.protocol import Outcome

PLUGIN = Path(__file__).parents[1] / "pytest_tunegen.py"
RIGHT = TOY.replace("out[...] = -1", "out[...] = 2").replace("gate=", 'define={"declined": "3"}, gate=')
"""Row 2 answers as the reference does, row 3 declines, row 4 is for no box, the others are wrong."""
CRASH = """
define void @{{ symbol }}(ptr %x, ptr %out, i64 %N, ptr %scratch) {
  store volatile i32 0, ptr inttoptr (i64 64 to ptr)
  ret void
}
"""
Pytest = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run_pytest(tmp_path: Path) -> Pytest:
    """Runs pytest in a folder of its own, with the plugin, and the libraries of this test within reach."""
    (tmp_path / "plugin").mkdir()
    shutil.copy(PLUGIN, tmp_path / "plugin")
    (tmp_path / "suite").mkdir()

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        folders = [str(tmp_path / "libraries"), str(tmp_path / "plugin")]
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "pytest_tunegen", "-p", "no:cacheprovider", *arguments],
            capture_output=True, text=True, timeout=120, cwd=tmp_path / "suite",
            env={**os.environ, "PYTHONPATH": os.pathsep.join(folders), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        )  # fmt: skip

    return run


def test_there_is_a_test_per_variant_that_says_what_the_gate_says(run_pytest: Pytest, tmp_path: Path) -> None:
    name = write_library(tmp_path / "libraries", RIGHT)
    (tmp_path / "suite" / "test_own.py").write_text("def test_own(): ...")
    done = run_pytest("--tune-gate", name, "-v", "-rs")
    lines = done.stdout.splitlines()
    node = f"tune-gate/{name}::toy_f32__"
    states = {line.split()[0].removeprefix(node): line.split()[1] for line in lines if line.startswith(node)}
    assert states == {"row1": "FAILED", "row2": "PASSED", "row3": "SKIPPED", "row4": "SKIPPED", "five": "FAILED"}
    assert "test_own.py::test_own PASSED" in done.stdout
    assert "2 failed, 2 passed, 2 skipped" in lines[-1]
    assert "toy_f32__row1 is wrong: awkward N=1: out[0]: got 1.0, expected 2.0, allowed" in done.stdout
    assert "declined: row 3 is not for here" in done.stdout
    assert "ineligible: requires amx-tile" in done.stdout
    assert f"tune gate: {name}" in done.stdout
    assert "Traceback" not in done.stdout
    assert done.returncode == 1


def test_tests_are_picked_as_any_others_and_a_crash_is_a_failure(run_pytest: Pytest, tmp_path: Path) -> None:
    name = write_library(tmp_path / "libraries", TOY, {"toy.ll.j2": CRASH})
    done = run_pytest("--tune-gate", name, "-k", "row1 or row2")
    assert "2 failed, 3 deselected" in done.stdout
    assert "collected 5 items / 3 deselected / 2 selected" in done.stdout
    assert "toy_f32__row2 is crashed: gate: awkward N=0: SIGSEGV" in done.stdout


def test_without_the_option_nothing_of_tunegen_is_imported(run_pytest: Pytest, tmp_path: Path) -> None:
    (tmp_path / "suite" / "test_own.py").write_text(
        "import json, sys\n"
        "def test_own(): print(json.dumps([m for m in sys.modules if m.split('.')[0] in ('tunegen', 'numpy')]))"
    )
    done = run_pytest("-s", "-q")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[0].rstrip(".")) == []


def test_a_scope_that_is_nowhere_is_an_error_of_usage(run_pytest: Pytest) -> None:
    done = run_pytest("--tune-gate", "no_such_scope")
    assert done.returncode == 4
    assert "--tune-gate: no scope or module 'no_such_scope'" in done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_variant_that_hangs_or_ends_its_process_is_an_outcome() -> None:
    def hang(announce: Callable[[str, str], None]) -> Outcome:
        announce("gate", "case one")
        while True:
            pass

    def leave(announce: Callable[[str, str], None]) -> Outcome:
        announce("compile", "")
        os._exit(7)

    assert in_child(hang, 0.5) == Outcome("timed out", "gate: case one: nothing for 0.5 s")
    assert in_child(leave) == Outcome("crashed", "compile: exit code 7")
    assert in_child(lambda announce: Outcome("passed")) == Outcome("passed")
