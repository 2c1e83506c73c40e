"""The commands that show and change parameters: results on stdout, words on stderr, exit codes that mean something."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from toys import PARAMETERS, write_library

from tunegen.tuning.results import Write


@pytest.fixture
def run(tmp_path):
    """Runs a command where a library with parameters can be named; `run.package` is its name."""
    name = write_library(tmp_path, PARAMETERS)

    def tunegen(*arguments, **environment):
        return subprocess.run(
            [sys.executable, "-P", "-m", "tunegen", *arguments], capture_output=True, text=True, timeout=120,
            cwd=tmp_path, env={**os.environ, **environment},
        )  # fmt: skip

    tunegen.package = name
    return tunegen


def result(done):
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_values_are_set_shown_and_forgotten(run):
    name = run.package
    done = run("set", f"{name}:toy", "large.minimum=50", "exact=false", "note=two words", "ratio=1")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{name}:toy[f32]: large.minimum=50 " in done.stdout
    assert "exact=false" in done.stdout
    proposal = result(run("propose", name, "--json"))["proposal"]
    assert [row["key"] for row in proposal["covered"]] == ["toy[f32]"]
    values = proposal["covered"][0]["values"]
    assert (values["large.minimum"], values["exact"], values["note"], values["ratio"]) == (50, False, "two words", 1.0)
    assert type(values["ratio"]) is float
    shown = run("explain", "toy", "--scope", name, "N=60")
    assert "row2 from fallback" in shown.stdout
    assert "parameters: large.minimum=50" in shown.stdout
    assert "from manifest" in shown.stdout
    explained = result(run("explain", "toy", "--scope", name, "--json"))
    assert explained["values_source"] == "manifest"
    assert [t["state"] for t in explained["value_tiers"] if t["tier"] == "user manifest"] == ["ok"]
    forgotten = result(run("forget", f"{name}:toy", "--json"))
    assert [row["key"] for row in forgotten["pruned"]] == ["toy[f32]"]
    assert set(forgotten) == set(Write.__struct_fields__)
    assert run("forget", f"{name}:toy").stdout == "there was nothing to forget\n"
    assert result(run("propose", name, "--json"))["proposal"]["covered"] == []


def test_inspect_lists_every_entry_and_names_the_box(run):
    name = run.package
    assert run("inspect").stdout == "there are no manifests for this box\n"
    set_ = result(run("set", f"{name}:toy", "ratio=0.25", "--json"))
    assert (set_["status"], set_["updated"][0]["values"]["ratio"]) == ("updated", 0.25)
    (file,) = result(run("inspect", "--json"))["files"]
    assert (file["path"], file["local"], file["entries"][0]["key"]) == (set_["path"], True, "toy[f32]")
    text = run("inspect", set_["path"]).stdout
    assert "this box" in text
    assert "ratio=0.25" in text
    missing = run("inspect", "nothing.json")
    assert (missing.returncode, missing.stderr) == (1, "tunegen: nothing.json: no such file\n")


def test_a_path_can_be_named_for_set_and_forget(run, tmp_path):
    path = str(tmp_path / "own.tune.json")
    assert run("set", f"{run.package}:toy", "ratio=0.25", "--path", path).returncode == 0
    assert result(run("forget", "--all", "--path", path, "--json"))["pruned"][0]["key"] == "toy[f32]"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("set", "NAME:toy", "nothing=1"), "unknown parameter 'nothing'; there are large.minimum"),
        (("set", "NAME:toy", "large.minimum=true"), "allowed is a whole number from 1 to 10000 (elements)"),
        (("set", "NAME:toy", "large.minimum=0"), "allowed is a whole number from 1 to 10000 (elements)"),
        (("set", "NAME:toy", "exact=1"), "allowed is True or False"),
        (("set", "NAME:toy", "parallel.grain=5000"), "the rule 'parallel.grain <= parallel.minimum' does not hold"),
        (("set", "NAME:toy", "large.minimum"), "write NAME=VALUE"),
        (("set", "NAME:tea", "ratio=1"), "no kernel 'tea'"),
        (("set", "NAME:toy"), "NAME=VALUE"),
        (("forget",), "name a kernel, or say --stale or --all"),
        (("forget", "NAME:toy[f64]"), "no element type 'f64'"),
        (("propose", "nowhere"), "no scope or module 'nowhere'"),
    ],
)
def test_wrong_usage_is_exit_code_2_says_what_is_allowed_and_writes_nothing(run, tmp_path, arguments, said):
    done = run(*(argument.replace("NAME", run.package) if ":" in argument else argument for argument in arguments))
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "home").exists()


def test_a_command_that_could_not_save_says_so_and_does_not_exit_0(run, tmp_path):
    (tmp_path / "file").write_text("")
    named = {"TUNE_MANIFEST": str(tmp_path / "file" / "x.tune.json")}
    done = run("set", f"{run.package}:toy", "ratio=0.25", "--json", **named)
    assert done.returncode == 1
    assert json.loads(done.stdout)["status"] == "write_failed"
    assert "nothing was saved" in done.stderr
    (tmp_path / "newer.json").write_text('{"tunegen": 2}')
    newer = {"TUNE_MANIFEST": str(tmp_path / "newer.json")}
    for arguments in (("set", f"{run.package}:toy", "ratio=0.25"), ("forget", f"{run.package}:toy")):
        done = run(*arguments, **newer)
        assert (done.returncode, "format 2 is newer" in done.stderr) == (1, True)
    assert (tmp_path / "newer.json").read_text() == '{"tunegen": 2}'


def test_applying_a_proposal_that_cannot_be_met_is_a_failure(run):
    """The callback of this library asks nothing, so nothing is found."""
    done = run("propose", run.package, "--apply", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["applied"]["status"] == "incomplete"
    assert done.stderr != ""
