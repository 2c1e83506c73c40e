"""The engine tunes a library to the end, whatever its variants do, and loses nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tunegen.harness import tuner
from tunegen.harness.report import Report

LIBRARY = """
import numpy as np
from tunegen import In, Out, bitwise, case, f32, tune_scope

scope = tune_scope(name="faulty", templates="templates")

@scope.tune(gen="copy.ll.j2", gate=bitwise(), cases=[case("some", N=4096)], fallback="slow; reference")
@scope.tune_perm(kind="crash", suffix="crash")
@scope.tune_perm(kind="slow", suffix="slow")
@scope.tune_perm(kind="wrong", suffix="wrong")
@scope.tune_perm(kind="declines", suffix="declines")
@scope.tune_perm(kind="broken", suffix="broken")
@scope.tune_perm(kind="exits", suffix="exits", requires="sse2|neon")
@scope.tune_perm(kind="fast", suffix="fast")
@scope.tune_perm(kind="elsewhere", suffix="elsewhere", requires="amx-tile,sve")
def copy(x: In[f32, "N"], out: Out[f32, "N"]) -> None:
    out[...] = x

@scope.tune(gen="copy.ll.j2", gate=bitwise(), cases=[case("some", N=64)], fallback="crash; slow; reference")
@scope.tune_perm(kind="crash", suffix="crash")
@scope.tune_perm(kind="slow", suffix="slow")
def copy_with_bad_default(x: In[f32, "N"], out: Out[f32, "N"]) -> None:
    out[...] = x
"""
TEMPLATE = """
{% import "tunegen/lib/vector.ll.j2" as v with context %}
{% if perm.kind == "declines" %}{{ decline("not here") }}{% endif %}
{% set vl = 4 if perm.kind == "fast" else 1 %}
{% if perm.kind == "exits" %}declare void @_exit(i32){% endif %}

{{ v.head() }}
entry:
{% if perm.kind == "crash" %}
  store volatile i32 1, ptr inttoptr (i64 8 to ptr)
{% elif perm.kind == "exits" %}
  call void @_exit(i32 0)
{% elif perm.kind == "broken" %}
  this is no instruction
{% endif %}
{% call(at, mask) v.sweep("i", "%N", vl, 1) %}
{{ v.load("%a." ~ at[0], vl, "%x", "%" ~ at[0], mask) }}
{% if perm.kind == "wrong" %}
  %b.{{ at[0] }} = fadd {{ v.type(vl) }} %a.{{ at[0] }}, %a.{{ at[0] }}
{% elif perm.kind == "slow" %}
  %q.{{ at[0] }} = fdiv {{ v.type(vl) }} %a.{{ at[0] }}, {{ v.splat(1.0) }}
  %b.{{ at[0] }} = fdiv {{ v.type(vl) }} %q.{{ at[0] }}, {{ v.splat(1.0) }}
{% else %}
  %b.{{ at[0] }} = fadd {{ v.type(vl) }} %a.{{ at[0] }}, {{ v.splat(-0.0) }}
{% endif %}
{{ v.store("%b." ~ at[0], vl, "%out", "%" ~ at[0], mask) }}
{% endcall %}
  ret void
}
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A library whose variants fail in many ways."""
    package = tmp_path / "faulty"
    (package / "templates").mkdir(parents=True)
    (package / "__init__.py").write_text(LIBRARY)
    (package / "templates" / "copy.ll.j2").write_text(TEMPLATE)
    return tmp_path


def run(library: Path, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "TUNE_HOME": str(library / "home"),
        "TUNE_CACHE": str(library / "cache"),
        "PYTHONPATH": str(library),
        **changes,
    }
    return subprocess.run(
        [sys.executable, "-P", *arguments], cwd=library, env=environment, capture_output=True, text=True, timeout=240
    )


def test_every_failing_variant_is_a_row_with_a_reason_and_the_rest_is_tuned(library: Path) -> None:
    """A crash, a wrong answer, a decline, broken IR and a call that exits cost their own variant alone."""
    done = run(library, "-m", "tunegen", "tune", "faulty", "--effort", "quick", "--noisy-ok", "--json")
    assert done.returncode == 0, done.stderr
    reports = {report["key"]: report for report in json.loads(done.stdout)["reports"]}
    outcomes = {suffix: outcome["state"] for suffix, outcome in reports["copy[f32]"]["outcomes"].items()}
    assert {outcomes.pop("slow"), outcomes.pop("fast")} <= {"passed", "slower"}
    assert outcomes == {
        "crash": "crashed",
        "wrong": "wrong",
        "declines": "declined",
        "broken": "failed",
        "exits": "declined",
        "elsewhere": "ineligible",
    }
    assert "SIGSEGV" in reports["copy[f32]"]["outcomes"]["crash"]["reason"]
    assert "_exit" in reports["copy[f32]"]["outcomes"]["exits"]["reason"]
    second = reports["copy_with_bad_default[f32]"]
    assert second["problem"] == ""
    assert second["result"]["regimes"][0]["evidence"]["baseline"] == "slow"


def test_the_manifest_holds_the_winner_with_its_evidence_and_a_program_runs_it(library: Path) -> None:
    done = run(library, "-m", "tunegen.harness", "faulty", "--only", "copy", "--effort", "quick", "--noisy-ok")
    assert done.returncode == 0, done.stderr
    assert "copy[f32]:" in done.stderr
    (path,) = (library / "home" / "faulty").glob("*.tune.json")
    (entry,) = json.loads(path.read_text())["scopes"]["faulty"]["kernels"]["copy[f32]"]
    (regime,) = entry["regimes"]
    assert {"kind", "baseline", "ratio", "interval", "pairs", "noise", "reference"} <= set(regime["evidence"])
    assert regime["winner"] in ("fast", "slow", "reference")
    script = dedent("""
        import faulty
        choice = faulty.copy.stamp["f32"].default
        print(choice.source, choice.emitted, choice.state)
    """)
    shown = run(library, "-c", script)
    assert shown.stdout.split() == ["manifest", regime["winner"], "ok"]


def test_what_is_tuned_is_not_tuned_again_but_with_retune(library: Path) -> None:
    first = run(library, "-m", "tunegen.harness", "faulty", "--only", "copy", "--effort", "quick", "--noisy-ok")
    assert first.returncode == 0
    again = run(library, "-m", "tunegen", "tune", "faulty", "--dry-run", "--json")
    assert json.loads(again.stdout) == {"faulty": {"copy_with_bad_default[f32]": 2}}
    forced = run(library, "-m", "tunegen", "tune", "faulty", "--dry-run", "--json", "--retune")
    assert set(json.loads(forced.stdout)["faulty"]) == {"copy[f32]", "copy_with_bad_default[f32]"}


def test_where_nothing_could_be_saved_nothing_is_measured(library: Path) -> None:
    (library / "home").write_text("a file where a folder should be")
    done = run(library, "-m", "tunegen", "tune", "faulty", "--only", "copy", "--effort", "quick", "--json")
    assert done.returncode == 1
    assert ".tune.json cannot be written: Not a directory" in done.stderr
    assert json.loads(done.stdout)["reports"] == []


NEWER = """
import os, sys
if "tunegen.harness.worker" in sys.orig_argv:
    with open(os.environ["TUNE_MANIFEST"], "w") as file:
        file.write('{"tunegen": 2}')
"""


def test_a_result_that_cannot_be_saved_is_said_and_the_exit_code_is_not_0(library: Path) -> None:
    """A newer version of tunegen writes the file while this one measures."""
    (library / "faulty" / "__init__.py").write_text(LIBRARY + NEWER)
    named = library / "named.tune.json"
    done = run(library, "-m", "tunegen", "tune", "faulty", "--only", "copy", "--effort", "quick", "--noisy-ok",
               TUNE_MANIFEST=str(named))  # fmt: skip
    assert done.returncode == 1
    assert "not saved" in done.stdout
    assert named.read_text() == '{"tunegen": 2}'


def test_kernels_of_a_script_are_refused_with_a_clear_word(library: Path) -> None:
    script = library / "script.py"
    script.write_text(LIBRARY + "\nfrom tunegen.harness.tuner import main\nmain('faulty')\n")
    (library / "templates").mkdir()
    (library / "templates" / "copy.ll.j2").write_text(TEMPLATE)
    done = run(library, str(script), "--noisy-ok")
    assert done.returncode == 1
    assert "move it to a module" in done.stderr


def test_a_kernel_of_one_scope_leaves_the_other_scopes_alone(library: Path) -> None:
    done = run(library, "-m", "tunegen", "tune", "kernels", "faulty", "--only", "copy", "--effort", "quick",
               "--noisy-ok", "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [report["key"] for report in json.loads(done.stdout)["reports"]] == ["copy[f32]"]


def test_an_unknown_kernel_or_duration_is_a_usage_error(library: Path) -> None:
    unknown = run(library, "-m", "tunegen", "tune", "faulty", "--only", "copi")
    assert unknown.returncode == 2
    assert "copi" in unknown.stderr
    assert "copy[f32]" in unknown.stderr
    budget = run(library, "-m", "tunegen", "tune", "faulty", "--budget", "soon")
    assert budget.returncode == 2
    assert "90s" in budget.stderr


def test_a_regime_without_cases_is_no_race_and_leaves_nothing_to_tune(library: Path) -> None:
    """It costs no time, its winner is the fallback's, and the kernel counts as tuned."""
    text = LIBRARY.replace('fallback="slow; reference"', 'fallback="fast if N >= 1000000; slow; reference"')
    (library / "faulty" / "__init__.py").write_text(text)
    only = ("-m", "tunegen", "tune", "faulty", "--only", "copy", "--json")
    done = run(library, *only, "--effort", "quick", "--noisy-ok")
    assert done.returncode == 0, done.stderr
    (report,) = json.loads(done.stdout)["reports"]
    assert [regime["condition"] for regime in report["result"]["regimes"]] == [""]
    assert json.loads(run(library, *only, "--dry-run").stdout) == {"faulty": {}}
    script = dedent("""
        import faulty, tunegen
        large, other = faulty.copy.stamp["f32"].choices
        (row,) = [row for row in tunegen.tune_status("faulty") if row.kernel == "copy"]
        print(large.condition, large.emitted, large.source, other.source, row.tuned)
    """)
    assert run(library, "-c", script).stdout.strip() == "N >= 1000000 fast fallback manifest True"


def test_a_report_whose_path_is_no_utf_8_reaches_whoever_draws_it():
    reading, writing = os.pipe()
    _, send = tuner._speaker(writing)
    send(Report("k[f32]", None, "no winner", {}, path=os.fsdecode(b"/h\xff")))
    with os.fdopen(reading, "rb") as lines:
        assert json.loads(lines.readline())["report"]["path"] == "/h?"
