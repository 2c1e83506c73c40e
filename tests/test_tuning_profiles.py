"""Profiles by hand: exported from a tuned box, imported under a selector, all or nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from toys import PARAMETERS, ran

import tunegen
from tunegen import tuning
from tunegen.box import this_box
from tunegen.choosing.profiles import write_profile
from tunegen.choosing.selecting import Selector
from tunegen.errors import ProfileError, ScopeNotFound
from tunegen.tuning.profiling import read_selector


@pytest.fixture
def tuned(library, tmp_path):
    """A library with a winner and a value in the manifest of this box, and the profile made of them."""
    made = library(PARAMETERS)
    assert tunegen.tune_manifest_set(made.toy, "row3")
    assert tuning.set(made.toy, {"ratio": 0.25}, load=False)
    exported = tuning.export_profile(made.__name__, "microarchitecture")
    path = tmp_path / "boxes.json"
    path.write_bytes(write_profile(exported.profile))
    tuning.forget()
    tunegen.load()
    return made, path


def test_a_profile_says_where_it_comes_from(tuned):
    _, path = tuned
    found = json.loads(path.read_text())
    assert found["selector"] == {"microarchitecture": this_box().cpu}
    assert found["provenance"]["cpu"] == this_box().cpu
    assert {"llvm", "tunegen"} <= set(found["provenance"]["versions"])
    assert found["kernels"]["toy[f32]"]["regimes"][-1]["winner"] == "row3"
    assert found["kernels"]["toy[f32]"]["params"]["ratio"] == 0.25


def test_an_imported_profile_serves_kernels_and_values_below_what_is_tuned(tuned):
    made, path = tuned
    assert ran(made.toy) == 1
    found = tuning.import_profile(path, "microarchitecture")
    assert (found.status, [r.key for r in found.rows]) == ("updated", ["toy[f32]"])
    tunegen.load()
    assert ran(made.toy) == 3
    assert made.toy.values["f32"]["ratio"] == 0.25
    assert made.toy.value_choices["f32"].source == "profile"
    assert tuning.propose().covered == ()
    assert tuning.set(made.toy, {"ratio": 0.75})
    tunegen.load()
    assert made.toy.values["f32"]["ratio"] == 0.75
    assert tuning.import_profile(path, "microarchitecture").status == "updated", "the same name is replaced"


def test_the_selector_is_the_one_that_is_given(tuned):
    made, path = tuned
    found = tuning.import_profile(path, {"features": [this_box().features[0]]})
    assert json.loads(Path(found.path).read_text())["selector"] == {"features": [this_box().features[0]]}
    assert tuning.import_profile(path, Selector(microarchitecture="znver9")).status == "updated"
    tunegen.load()
    assert ran(made.toy) == 1, "it is for other boxes"


def test_a_profile_with_anything_wrong_is_refused_as_a_whole(tuned):
    made, path = tuned
    good = json.loads(path.read_text())
    wrongs = {
        "rejects": lambda p: p["kernels"]["toy[f32]"]["params"].update(ratio=7.0),
        "row": lambda p: p["kernels"]["toy[f32]"]["regimes"][-1].update(winner="row9"),
        "kernel": lambda p: p["kernels"].update({"tea[f32]": {"params": {"a": 1}}}),
        "abi": lambda p: p.update(tuning_abi=0),
        "scope": lambda p: p.update(scope="nowhere"),
    }
    for name, change in wrongs.items():
        bad = json.loads(json.dumps(good))
        change(bad)
        path.write_text(json.dumps(bad))
        found = tuning.import_profile(path, "microarchitecture")
        assert (found.status, found.rows, bool(found.reason)) == ("refused", (), True), name
    tunegen.load()
    assert ran(made.toy) == 1


def test_an_import_that_would_be_ambiguous_is_refused(tuned, tmp_path):
    _, path = tuned
    assert tuning.import_profile(path, "microarchitecture").status == "updated"
    other = tmp_path / "other.json"
    other.write_bytes(path.read_bytes())
    found = tuning.import_profile(other, "microarchitecture")
    assert (found.status, "ambiguous beside" in found.reason) == ("refused", True)
    assert tuning.import_profile(other, "model").status == "updated", "one is more specific"


@pytest.mark.parametrize(("content", "status"), [(None, "not_found"), ("{", "malformed"), ("[]", "malformed")])
def test_a_file_that_is_no_profile_is_a_result(library, tmp_path, content, status):
    library(PARAMETERS)
    path = tmp_path / "x.json"
    if content is not None:
        path.write_text(content)
    assert tuning.import_profile(path, "model").status == status
    assert tuning.import_profile(tmp_path, "model").status == "unreadable"


def test_a_folder_that_cannot_be_written_is_a_result(tuned, tmp_path, monkeypatch):
    _, path = tuned
    monkeypatch.setenv("TUNE_HOME", str(tmp_path / "closed"))
    (tmp_path / "closed").write_text("")
    assert tuning.import_profile(path, "model").status == "write_failed"
    assert "closed" in tuning.import_profile(path, "model").path


@pytest.mark.parametrize(
    ("text", "selector"),
    [
        ("microarchitecture=znver4", {"microarchitecture": "znver4"}),
        ("features=avx2, fma", {"features": ["avx2", "fma"]}),
        ("model=amd/25/97", {"model": {"vendor": "amd", "family": "25", "model": "97"}}),
        (
            "models=amd/25/97,amd/25/17",
            {"models": [{"vendor": "amd", "family": "25", "model": m} for m in ("97", "17")]},
        ),
    ],
)
def test_selectors_are_written_as_text(text, selector):
    assert json.loads(msgspec.json.encode(read_selector(text))) == selector


@pytest.mark.parametrize("text", ["", "cpu=x", "model=amd", "model=amd/1/2,amd/1/3", "features=", "models=a/b"])
def test_a_text_that_is_no_selector_is_an_error(text):
    with pytest.raises(ProfileError, match="the selector"):
        read_selector(text)


def test_wrong_arguments_are_an_error(library, tmp_path):
    made = library(PARAMETERS)
    with pytest.raises(ScopeNotFound):
        tuning.export_profile("nowhere", "model")
    with pytest.raises(ProfileError):
        tuning.export_profile(made.__name__, "model")
    with pytest.raises(ProfileError, match="unknown field"):
        tuning.import_profile(tmp_path / "x.json", {"cpu": "x"})


def run(tmp_path, *arguments):
    return subprocess.run(
        [sys.executable, "-P", "-m", "tunegen", "profile", *arguments], capture_output=True, text=True, timeout=120,
        cwd=tmp_path / "libraries", env=dict(os.environ),
    )  # fmt: skip


def test_the_command_exports_and_imports(tuned, tmp_path):
    made, path = tuned
    again = run(tmp_path, "export", made.__name__, "-o", str(tmp_path / "out.json"), "--selector", "model")
    assert (again.returncode, "nothing to export" in again.stderr) == (1, True)
    assert tuning.set(made.toy, {"ratio": 0.25}, load=False)
    done = run(tmp_path, "export", made.__name__, "-o", str(tmp_path / "out.json"), "--selector", "model", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["profile"]["kernels"]["toy[f32]"]["params"]["ratio"] == 0.25
    wrong = run(tmp_path, "export", made.__name__, "-o", "x.json", "--selector", "cpu")
    assert (wrong.returncode, "is none of model, models" in wrong.stderr) == (2, True)
    for name, text in (("manifest.json", '{"tunegen": 1}'), ("map.json", '{"toy": "row3"}')):
        (tmp_path / name).write_text(text)
        kind = run(tmp_path, "import", str(tmp_path / name), "--selector", "model")
        assert (kind.returncode, "taken over as a prior" in kind.stderr) == (1, True)
    refused = run(tmp_path, "import", str(path), "--selector", "model")
    assert (refused.returncode, "is none that was imported" in refused.stderr) == (1, True)
