"""Manifests as files: merged, atomic, durable, and never the reason that something stops."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile

import msgspec
import pytest

from tunegen.box import Box
from tunegen.choosing import document, store
from tunegen.choosing.document import Entry, RegimeWinner
from tunegen.errors import StoreError

BOX = Box("x86_64", "amd", "25", "97", "znver4", ("avx", "avx2"), 2)


def an_entry(winner="a", digest="sha256:1"):
    return Entry([RegimeWinner(winner)], digest, {}, {"llvm": digest}, {})


def write(path, key="k[f32]", entry=None, scope="lib", box=BOX):
    store.write(path, box, {"cores": 2}, scope, key, entry or an_entry())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "home" / "lib" / BOX.file_name


def test_what_was_written_is_read(path):
    write(path)
    manifest = store.read(path)
    assert (manifest.status, manifest.box) == ("loaded", BOX)
    assert manifest.scopes == {"lib": {"k[f32]": [an_entry()]}}
    assert json.loads(path.read_text())["box"]["information"] == {"cores": 2}
    assert path.read_bytes().endswith(b"}\n")


def test_no_temporary_or_holder_file_is_left(path):
    write(path)
    assert {p.name for p in path.parent.iterdir()} - {f".{path.name}.lock"} == {path.name}


def test_a_file_cut_at_any_byte_is_read_and_written_again(path):
    """Never an exception, and the neighbour in the folder is none the worse."""
    write(path)
    other = path.with_name(msgspec.structs.replace(BOX, threads=4).file_name)
    write(other, box=msgspec.structs.replace(BOX, threads=4))
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        manifest = store.read(path)
        assert manifest.status == ("loaded" if cut == len(whole) - 1 else "malformed")
        assert store.read(other).status == "loaded"
    path.write_bytes(whole[: len(whole) // 2])
    write(path, key="l[f32]")
    assert store.read(path).scopes == {"lib": {"l[f32]": [an_entry()]}}
    assert path.with_name(f"{path.name}.unreadable").read_bytes() == whole[: len(whole) // 2]


def test_files_that_cannot_be_read_are_set_aside_under_names_of_their_own(path, caplog):
    path.parent.mkdir(parents=True)
    for text in ("first", "second"):
        path.write_text(text)
        write(path)
    assert [path.with_name(f"{path.name}.unreadable{n}").read_text() for n in ("", "1")] == ["first", "second"]
    assert "could not be read (not JSON" in caplog.text


def test_a_newer_format_is_left_alone(path):
    path.parent.mkdir(parents=True)
    path.write_text('{"tunegen": 2, "future": true}')
    with pytest.raises(StoreError, match="left alone: format 2 is newer"):
        write(path)
    assert path.read_text() == '{"tunegen": 2, "future": true}'


def test_a_file_of_another_box_is_left_alone(path):
    write(path, box=msgspec.structs.replace(BOX, threads=4))
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"another box \(threads: 4 there, 2 here"):
        write(path)
    assert path.read_bytes() == before


def test_what_others_wrote_survives(path):
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"tunegen": 1, "box": msgspec.to_builtins(BOX), "future": [1], "scopes": {"x": 5}}))
    write(path)
    write(path, scope="other", key="m[f64]")
    raw = json.loads(path.read_text())
    assert raw["future"] == [1]
    assert raw["scopes"]["x"] == 5
    assert store.read(path).scopes["other"] == {"m[f64]": [an_entry()]}
    assert store.read(path).scopes["lib"] == {"k[f32]": [an_entry()]}


def test_a_flat_map_becomes_the_names_of_the_file(path):
    path.parent.mkdir(parents=True)
    path.write_text('{"gemm": "mr4"}')
    write(path)
    assert store.read(path).names == {"gemm": "mr4"}


@pytest.mark.parametrize("name", ["nothing.tune.json", "file/below.tune.json", "x" * 300, "nul\0"])
def test_reading_what_is_not_there_does_not_raise(tmp_path, name):
    (tmp_path / "file").write_text("")
    assert store.read(tmp_path / name).status in ("not_found", "unreadable")


def test_a_folder_and_a_forbidden_file_are_unreadable(tmp_path, monkeypatch):
    assert store.read(tmp_path).status == "unreadable"
    path = tmp_path / "x"
    path.write_text("{}")
    monkeypatch.setattr(type(path), "read_bytes", lambda self: (_ for _ in ()).throw(PermissionError(13, "denied")))
    assert (store.read(path).status, store.read(path).problem) == ("unreadable", "denied")


def test_a_large_file_is_not_read(tmp_path):
    path = tmp_path / "x.tune.json"
    with path.open("wb") as file:
        file.truncate(document.MAX_BYTES + 1)
    assert store.read(path).status == "malformed"


WRITER = """
import sys
from pathlib import Path
from tunegen.box import Box
from tunegen.choosing import store
from tunegen.choosing.document import Entry, RegimeWinner
path, who = Path(sys.argv[1]), sys.argv[2]
box = Box("x86_64", "amd", "25", "97", "znver4", ("avx", "avx2"), 2)
for i in range(20):
    entry = Entry([RegimeWinner(who)], f"sha256:{who}{i}")
    store.write(path, box, {}, f"lib{who}", f"k{i}", entry)
    store.write(path, box, {}, "shared", "k", Entry([RegimeWinner(who)], f"sha256:{who}"))
"""


def test_two_processes_that_write_one_manifest_lose_nothing(path, tmp_path):
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), who]) for who in "ab"]
    assert [w.wait(timeout=60) for w in writers] == [0, 0]
    manifest = store.read(path)
    for who in "ab":
        assert {k: e[0].regimes[0].winner for k, e in manifest.scopes[f"lib{who}"].items()} == {
            f"k{i}": who for i in range(20)
        }
    assert {entry.digest for entry in manifest.scopes["shared"]["k"]} == {"sha256:a", "sha256:b"}


def test_a_lock_that_is_held_too_long_names_its_holder(path, monkeypatch):
    monkeypatch.setattr(store, "LOCK_TIMEOUT_S", 0.05)
    path.parent.mkdir(parents=True)
    with store._locked(path), pytest.raises(StoreError, match=rf"locked for 0.05 s by process {os.getpid()} on "):
        write(path)
    write(path)


def test_a_lock_of_nobody_known_is_said_too(path, monkeypatch):
    monkeypatch.setattr(store, "LOCK_TIMEOUT_S", 0.05)
    path.parent.mkdir(parents=True)
    with store._locked(path):
        path.with_name(f".{path.name}.holder").unlink()
        with pytest.raises(StoreError, match="by an unknown process"):
            write(path)


def test_a_lock_file_that_a_dead_process_left_is_no_obstacle(path):
    path.parent.mkdir(parents=True)
    path.with_name(f".{path.name}.lock").write_text("")
    path.with_name(f".{path.name}.holder").write_text("process 1")
    write(path)
    assert store.read(path).status == "loaded"


@pytest.mark.parametrize("step", ["fsync", "replace", "mkstemp"])
def test_a_disk_that_refuses_leaves_the_old_file_and_no_new_one(path, monkeypatch, step):
    write(path)
    before = path.read_bytes()

    def refuse(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile if step == "mkstemp" else os, step, refuse)
    with pytest.raises(StoreError, match=f"{path.name} cannot be written: No space left"):
        write(path, key="other")
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert {p.name for p in path.parent.iterdir()} - {f".{path.name}.lock"} == {path.name}
    write(path, key="other")


def test_a_folder_that_cannot_be_made_is_a_store_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        write(tmp_path / "file" / "lib" / "x.tune.json")


def test_the_nearest_manifest_differs_in_the_fewest_fields(tmp_path):
    assert store.nearest(tmp_path / "nowhere", BOX) is None
    for changes in ({"threads": 4, "model": "1"}, {"threads": 8}, {"cpu": "znver5", "family": "26", "model": "2"}):
        other = msgspec.structs.replace(BOX, **changes)
        write(tmp_path / other.file_name, box=other)
    (tmp_path / "broken.tune.json").write_text("{")
    path, unlike = store.nearest(tmp_path, BOX)
    assert [str(d) for d in unlike] == ["threads: 8 there, 2 here"]
    assert "-t8-" in path.name
