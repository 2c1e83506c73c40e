"""Recording winners: one call for a hand-written tuner, which says whether it could."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
from toys import TOY, ran

import tunegen
from tunegen.box import this_box
from tunegen.choosing import store
from tunegen.errors import KernelNotFound
from tunegen.public import sources


def test_the_result_says_where_and_is_true(library):
    made = library()
    written = tunegen.tune_manifest_set("toy", "row3")
    path = sources.target_manifest(made.__name__, this_box())
    assert (bool(written), written.path, written.reason) == (True, str(path), "")
    assert path.parent.name == made.__name__


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("toy", "row9"), "'row9' is no row; rows are reference, row1, row2, row3, row4, five"),
     (("toy", "row3", "f64"), "element type 'f64'; there are f32"), (("tea", "row3"), "no kernel 'tea'")],
)  # fmt: skip
def test_what_cannot_be_meant_is_an_error(library, arguments, said):
    library()
    with pytest.raises(KernelNotFound, match=said):
        tunegen.tune_manifest_set(*arguments)


@pytest.mark.parametrize("suffix", ["row3", "reference"])
def test_a_target_that_cannot_be_written_is_a_result(library, tmp_path, monkeypatch, suffix):
    made = library()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TUNE_MANIFEST", str(tmp_path / "file" / "x.tune.json"))
    written = tunegen.tune_manifest_set(made.toy, suffix)
    assert not written
    assert written.path == str(tmp_path / "file" / "x.tune.json")
    assert "x.tune.json cannot be written: " in written.reason


def forbid_writing(folder, monkeypatch):
    """Makes a folder read-only; for the superuser, who may write everywhere, the system says what it says to others."""
    folder.mkdir()
    folder.chmod(0o555)
    if os.access(folder, os.W_OK):
        real_open, real_mkstemp = os.open, tempfile.mkstemp

        def refuse(path, flags, *rest, **options):
            if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR) and str(path).startswith(str(folder)):
                raise PermissionError(13, "Permission denied", str(path))
            return real_open(path, flags, *rest, **options)

        def refuse_temporary(**options):
            if str(options["dir"]).startswith(str(folder)):
                raise PermissionError(13, "Permission denied", str(options["dir"]))
            return real_mkstemp(**options)

        monkeypatch.setattr(os, "open", refuse)
        monkeypatch.setattr(tempfile, "mkstemp", refuse_temporary)


def test_a_read_only_folder_is_a_result_that_says_so(library, tmp_path, monkeypatch):
    made = library()
    monkeypatch.setattr(store, "LOCK_TIMEOUT_S", 0.2)
    monkeypatch.setenv("TUNE_MANIFEST", str(tmp_path / "closed" / "x.tune.json"))
    forbid_writing(tmp_path / "closed", monkeypatch)
    written = tunegen.tune_manifest_set(made.toy, "row3")
    assert not written
    assert written.reason == f"{tmp_path / 'closed' / 'x.tune.json'} cannot be written: Permission denied"
    assert ran(made.toy) == 2


def test_a_held_lock_and_a_newer_file_are_results(library, tmp_path, monkeypatch):
    made = library()
    path = tmp_path / "x.tune.json"
    monkeypatch.setenv("TUNE_MANIFEST", str(path))
    monkeypatch.setattr(store, "LOCK_TIMEOUT_S", 0.05)
    with store._locked(path):
        assert f"by process {os.getpid()}" in tunegen.tune_manifest_set(made.toy, "row3").reason
    path.write_text('{"tunegen": 2}')
    assert "left alone: format 2 is newer" in tunegen.tune_manifest_set(made.toy, "row3").reason


def test_a_row_that_cannot_be_made_is_not_recorded(library):
    made = library(TOY.replace("gate=", 'define={"declined": "3"}, gate='))
    written = tunegen.tune_manifest_set(made.toy, "row3")
    assert (written.saved, written.reason) == (False, "toy[f32]: row 3 is not for here")
    assert not os.path.exists(written.path)


def test_the_rail_names_the_file(library, tmp_path, monkeypatch):
    """`TUNE_MANIFEST`, then the application's, then the user's."""
    made = library()
    user = tunegen.tune_manifest_set(made.toy, "row1")
    application = tunegen.tune_manifest("app", tmp_path / "data")
    assert tunegen.tune_manifest_set(made.toy, "row2").path == str(application)
    monkeypatch.setenv("TUNE_MANIFEST", str(tmp_path / "named.tune.json"))
    assert tunegen.tune_manifest_set(made.toy, "row3").path == str(tmp_path / "named.tune.json")
    assert application.name == f"app-{this_box().file_name}"
    assert application.parent == tmp_path / "data"
    assert user.path == str(tmp_path / "home" / made.__name__ / this_box().file_name)
    for path in (user.path, application):
        assert len(json.loads(Path(path).read_text())["scopes"][made.__name__]["kernels"]["toy[f32]"]) == 1


def test_the_folder_of_an_application_manifest_is_relative_to_the_caller(tmp_path):
    scope = {"__file__": str(tmp_path / "program.py")}
    exec("import tunegen; path = tunegen.tune_manifest('app', 'data')", scope)
    assert scope["path"].parent == tmp_path / "data"


@pytest.mark.parametrize("name", ["", "a/b", "../a", ".hidden", "a b", "a\0"])
def test_the_name_of_an_application_manifest_is_plain(name):
    with pytest.raises(ValueError, match="no plain name"):
        tunegen.tune_manifest(name)
