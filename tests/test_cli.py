"""The command line as a user meets it: results on stdout, words on stderr, and exit codes that mean something."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = ("tune", "status", "explain", "show", "propose", "inspect", "set", "forget", "doctor", "config")


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment with manifests and objects of its own."""
    return {**os.environ, "TUNE_HOME": str(tmp_path / "home"), "TUNE_CACHE": str(tmp_path / "cache")}


def tunegen(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "tunegen", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)


def test_status_json_has_a_row_per_kernel_and_element_type(home: dict[str, str]) -> None:
    done = tunegen(home, "status", "kernels", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["tuned"] == 0
    assert found["total"] == len(found["kernels"])
    keys = {"kernel", "element_type", "asked", "emitted", "source", "state", "reason", "scope", "path", "regimes"}
    assert all(keys <= set(row) for row in found["kernels"])
    assert {row["kernel"] for row in found["kernels"]} >= {"exp", "gemm", "softmax"}


@pytest.mark.parametrize("command", ["config kernels", "inspect", "status kernels", "explain gemm", "cache list"])
def test_folders_with_bytes_that_are_no_utf_8_are_no_problem(home: dict[str, str], command: str) -> None:
    odd = {name: home[name] + os.fsdecode(b"\xff\n") for name in ("TUNE_HOME", "TUNE_CACHE")}
    done = tunegen(home | odd, *command.split(), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    json.loads(done.stdout)


def test_status_as_a_table_names_what_runs_and_the_command_to_tune(home: dict[str, str]) -> None:
    done = tunegen(home, "status")
    assert done.returncode == 0
    assert "exp[f32]" in done.stdout
    assert "tunegen tune kernels" in done.stdout


def test_explain_walks_the_tiers_of_the_regime_that_the_sizes_fall_into(home: dict[str, str]) -> None:
    done = tunegen(home, "explain", "gemm[f32]", "--json", "M=1", "N=64", "K=64")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["regime"]
    assert found["sizes"] == {"M": 1, "N": 64, "K": 64}
    assert {tier["tier"] for tier in found["tiers"]} >= {"session pin", "user manifest", "system manifest", "fallback"}
    text = tunegen(home, "explain", "kernels:gemm")
    assert "the unconditional regime" in text.stdout


def test_show_prints_ir_and_assembly_of_what_is_stamped_or_named(home: dict[str, str]) -> None:
    both = tunegen(home, "show", "add")
    assert both.returncode == 0, both.stderr
    assert "define void @add_f32__" in both.stdout
    assert ".text" in both.stdout
    one = json.loads(tunegen(home, "show", "add[f64]", "--variant", "vl4_unroll1_nostream", "--ir", "--json").stdout)
    assert set(one) == {"kernel", "variant", "ir"}
    assert "<4 x double>" in one["ir"]


def test_a_threaded_foreign_box_is_named_field_by_field(home: dict[str, str]) -> None:
    tuned = tunegen(home, "tune", "kernels", "--only", "add[f32]", "--effort", "quick", "--noisy-ok")
    assert tuned.returncode == 0, tuned.stderr
    threads = {**home, "TUNE_THREADS": "7"}
    row = next(r for r in json.loads(tunegen(threads, "status", "--json").stdout)["kernels"] if r["kernel"] == "add")
    assert row["state"] == "foreign"
    assert "threads" in row["reason"]
    assert "7 here" in row["reason"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["explain", "gemn"], "gemn"),
        (["explain", "gemm", "Q=1"], "M, K, N"),
        (["explain", "gemm", "M=x"], "M=128"),
        (["explain", "gemm[i8]"], "f32, f64"),
        (["status", "no_such_scope"], "kernels"),
        (["show", "add", "--variant", "vl3"], "vl4_unroll1_nostream"),
        (["tune", "kernels", "--effort", "heroic"], "thorough"),
        (["frobnicate"], "status"),
        ([], "COMMAND"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_names_what_is_allowed(
    home: dict[str, str], arguments: list[str], word: str
) -> None:
    done = tunegen(home, *arguments)
    assert done.returncode == 2
    assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("variable", ["TUNE_MODE", "TUNE_POLICY", "TUNE_THREADS", "TUNE_LOG"])
def test_a_bad_environment_variable_is_named_with_what_is_allowed(home: dict[str, str], variable: str) -> None:
    done = tunegen({**home, variable: "nonsense"}, "status")
    assert done.returncode == 2
    assert f"{variable}='nonsense'" in done.stderr
    assert "allowed" in done.stderr


def test_every_command_explains_itself(home: dict[str, str]) -> None:
    for command in COMMANDS:
        done = tunegen(home, command, "--help")
        assert done.returncode == 0
        assert "--json" in done.stdout


def test_a_reader_that_goes_away_is_no_crash(home: dict[str, str]) -> None:
    command = f"{sys.executable} -P -m tunegen show gemm --asm | head -1"
    done = subprocess.run(["bash", "-c", command], env=home, capture_output=True, text=True)
    assert "Traceback" not in done.stderr


def test_the_doctor_examines_this_box_and_its_exit_code_is_that_of_a_refusal(home: dict[str, str]) -> None:
    done = tunegen(home, "doctor", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == (3 if found["verdict"] == "refused" else 0), done.stderr
    assert {"noise", "load", "steal", "affinity", "cgroup quota", "governor", "turbo", "huge pages"} == {
        check["name"] for check in found["checks"]
    }
    assert {check["state"] for check in found["checks"]} <= {"ok", "bad", "unknown"}
    table = tunegen(home, "doctor")
    assert "affinity" in table.stdout
    assert "what to do" in table.stdout
