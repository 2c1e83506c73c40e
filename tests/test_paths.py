"""Where files live, and which folders are trusted."""

from __future__ import annotations

import os

import msgspec
import pytest

from tunegen import paths


def test_without_settings_folders_lie_under_home_and_never_in_the_current_one(monkeypatch, tmp_path):
    for name in ("TUNE_HOME", "TUNE_CACHE", "HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    for folder in (paths.user_manifests(), paths.system_manifests(), paths.object_cache()):
        assert folder.is_absolute()
        assert not folder.is_relative_to(tmp_path / "here")
        assert folder.name == "tunegen"
    assert not paths.object_cache().is_relative_to(tmp_path)


def test_a_private_folder_is_made_for_its_user_alone(tmp_path):
    folder = tmp_path / "a" / "b"
    assert paths.private_folder(folder) == ""
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o1777])
def test_a_folder_that_others_can_write_to_is_refused_with_its_mode(tmp_path, mode):
    tmp_path.chmod(mode)
    assert f"{mode & 0o777:04o}" in paths.private_folder(tmp_path)


def test_a_folder_of_somebody_else_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    assert "another user" in paths.private_folder(tmp_path)


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot be used" in paths.private_folder(tmp_path / "file")
    assert "cannot be used" in paths.private_folder(tmp_path / "file" / "below")


def test_json_for_others_has_a_question_mark_for_what_it_cannot_hold():
    assert paths.as_json({"path": "/h\udcff\n\u00e9"}) == '{"path": "/h?\\n\u00e9"}'.encode()
    assert paths.as_json({"path": "/h\u00e9"}) == msgspec.json.encode({"path": "/h\u00e9"})
