"""Manifests as files: merged, atomic, durable, and never the reason that something stops."""

from __future__ import annotations

import errno
import json
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import filelock
import msgspec
import pytest

from tunegen.box import Box
from tunegen.choosing import document, store
from tunegen.choosing.document import Entry, RegimeWinner
from tunegen.choosing.values import base_of
from tunegen.errors import ParameterError, StoreError
from tunegen.parameters import Key, Parameter, read_schema

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


def test_what_a_killed_writer_left_is_taken_away_by_the_next(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, left = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    others = [path.with_name(name) for name in (f".{path.name}.12345678.x", "notes", f".other{path.name}.12345678")]
    for other in others:
        other.touch()
    write(path)
    assert not os.path.exists(left)
    assert all(other.exists() for other in others)


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


KEY = Key("lib", "k", "k", "f32")
SCHEMA = read_schema(
    [Parameter(name, "int", 0, 0, 1 << 40, doc="A number.") for name in ("a", "b")], ["a <= b or b < 1"]
)


def set_some(path, partial, **options):
    def complete(entries):
        return SCHEMA.completed(partial, base_of(entries, KEY, SCHEMA))

    return store.set_values(path, BOX, {}, KEY, complete, {"kind": "manual"}, **options)


def values(path):
    return [entry.params for entry in store.read(path).values("lib", "k[f32]")]


def test_values_are_set_beside_winners_on_top_of_what_is_there(path):
    write(path)
    assert set_some(path, {"a": 1})
    change = set_some(path, {"b": 2})
    assert values(path) == [{"a": 1, "b": 2}]
    assert [p.kind for p in change.updated] == ["values"]
    assert [p.kind for p in change.preserved] == ["winners"]
    assert change.pruned == ()
    assert store.read(path).entries("lib", "k", "k[f32]", ("lib",)) == [an_entry()]
    (entry,) = store.read(path).values("lib", "k[f32]")
    assert entry.parts == {"library": "lib", "kernel": "k", "implementation": "k", "element_type": "f32",
                           "device": "cpu", "abi": "1"}  # fmt: skip
    assert entry.evidence == {"kind": "manual"}


def test_values_that_are_refused_touch_no_file(path):
    with pytest.raises(ParameterError, match="a=-1"):
        set_some(path, {"a": -1})
    assert not path.exists()
    set_some(path, {"a": 1})
    before = path.read_bytes()
    for wrong in ({"a": True}, {"c": 1}, {"a": 5, "b": 4}):
        with pytest.raises(ParameterError):
            set_some(path, wrong)
    assert path.read_bytes() == before


def test_setting_repairs_an_entry_that_the_schema_rejects(path):
    set_some(path, {"a": 1})
    path.write_text(path.read_text().replace('"a": 1', '"a": -7'))
    assert values(path) == [{"a": -7, "b": 0}]
    set_some(path, {"b": 2})
    assert values(path) == [{"a": 0, "b": 2}]


def test_values_of_another_abi_are_kept_beside(path):
    old = msgspec.structs.replace(KEY, abi=0)
    store.set_values(path, BOX, {}, old, lambda entries: {"a": 9, "b": 9})
    change = set_some(path, {"a": 1})
    assert values(path) == [{"a": 1, "b": 0}, {"a": 9, "b": 9}]
    assert len(change.preserved) == 1


SETTER = """
import sys
from tunegen.choosing import store
from tunegen.choosing.values import base_of
from tunegen.box import Box
from tunegen.parameters import Key, Parameter, read_schema
from pathlib import Path
path, name = Path(sys.argv[1]), sys.argv[2]
box = Box("x86_64", "amd", "25", "97", "znver4", ("avx", "avx2"), 2)
key = Key("lib", "k", "k", "f32")
schema = read_schema([Parameter(n, "int", 0, 0, 1 << 40, doc="A number.") for n in "ab"], ())
for i in range(1, 31):
    complete = lambda entries: schema.completed({name: i}, base_of(entries, key, schema))
    store.set_values(path, box, {}, key, complete)
    found = base_of(store.read(path).values("lib", "k[f32]"), key, schema)
    assert found[name] == i, found
"""


def test_two_processes_that_set_different_parameters_of_one_key_both_survive(path):
    writers = [subprocess.Popen([sys.executable, "-c", SETTER, str(path), name]) for name in "ab"]
    assert [w.wait(timeout=120) for w in writers] == [0, 0]
    assert values(path) == [{"a": 30, "b": 30}]


HOLDER = """
import sys
from pathlib import Path
from tunegen.choosing import store
with store._locked(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_a_lock_held_by_another_process_names_it_and_writes_nothing(path):
    path.parent.mkdir(parents=True)
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"locked\n"
        for attempt in (
            lambda: set_some(path, {"a": 1}, timeout_s=0.05),
            lambda: store.write(path, BOX, {}, "lib", "k[f32]", an_entry(), timeout_s=0.05),
        ):
            with pytest.raises(StoreError, match=rf"locked for 0.05 s by process {holder.pid} on ") as error:
                attempt()
            assert error.value.status == "locked"
        assert not path.exists()
    finally:
        holder.communicate(timeout=60)
    set_some(path, {"a": 1})


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (errno.EROFS, "read_only"),
        (errno.EACCES, "read_only"),
        (errno.EPERM, "read_only"),
        (errno.ENOSPC, "write_failed"),
        (errno.EIO, "write_failed"),
    ],
)
@pytest.mark.parametrize("step", ["mkdir", "lock", "mkstemp", "replace"])
def test_a_disk_that_says_no_is_told_from_one_that_fails(path, monkeypatch, number, status, step):
    if step in ("mkstemp", "replace"):
        set_some(path, {"a": 1})

    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))

    where = {"mkdir": (os, "mkdir"), "lock": (filelock.FileLock, "acquire"), "mkstemp": (tempfile, "mkstemp"),
             "replace": (os, "replace")}[step]  # fmt: skip
    monkeypatch.setattr(*where, refuse)
    with pytest.raises(StoreError, match=f"{path.name} cannot be written") as error:
        set_some(path, {"a": 2})
    assert error.value.status == status
    assert pickle.loads(pickle.dumps(error.value)).status == status
    monkeypatch.undo()
    assert values(path) == ([{"a": 1, "b": 0}] if step in ("mkstemp", "replace") else [])


@pytest.fixture
def closed_folder():
    """A folder that this process may read and not write to, whoever it runs as."""
    with tempfile.TemporaryDirectory() as name:
        folder, root = Path(name), os.geteuid() == 0
        set_some(folder / "there.tune.json", {"a": 1})
        folder.chmod(0o555)
        if root:
            os.seteuid(65534)
        try:
            yield folder
        finally:
            if root:
                os.seteuid(0)
            folder.chmod(0o755)


@pytest.mark.parametrize("name", ["there.tune.json", "new.tune.json", "below/new.tune.json"])
def test_a_read_only_folder_is_read_and_said_to_be_read_only(closed_folder, name):
    there = closed_folder / "there.tune.json"
    with pytest.raises(StoreError, match=f"{Path(name).name} cannot be written") as error:
        set_some(closed_folder / name, {"a": 2})
    assert error.value.status == "read_only"
    assert store.read(there).status == "loaded"
    assert values(there) == [{"a": 1, "b": 0}]


def test_why_a_file_is_left_alone_is_a_status(path):
    path.parent.mkdir(parents=True)
    path.write_text('{"tunegen": 2}')
    for attempt in (lambda: set_some(path, {"a": 1}), lambda: store.remove(path, lambda place, entry: True)):
        with pytest.raises(StoreError) as error:
            attempt()
        assert error.value.status == "newer"
    assert path.read_text() == '{"tunegen": 2}'
    other = path.with_name("other.tune.json")
    write(other, box=msgspec.structs.replace(BOX, threads=9))
    with pytest.raises(StoreError) as error:
        set_some(other, {"a": 1})
    assert error.value.status == "foreign"
    other.write_text("{")
    with pytest.raises(StoreError) as error:
        store.remove(other, lambda place, entry: True)
    assert error.value.status == "malformed"
    assert other.read_text() == "{"


def test_entries_are_removed_by_what_they_are(path):
    assert not store.remove(path, lambda place, entry: True)
    assert not path.parent.exists()
    write(path)
    set_some(path, {"a": 1})
    write(path, key="l[f32]")
    change = store.remove(path, lambda place, entry: place.key == "k[f32]" and place.kind == "values")
    assert ([p.key for p in change.pruned], len(change.preserved), change.updated) == (["k[f32]"], 2, ())
    assert values(path) == []
    before = path.stat().st_mtime_ns
    assert not store.remove(path, lambda place, entry: False)
    assert path.stat().st_mtime_ns == before
    store.remove(path, lambda place, entry: True)
    assert store.read(path).scopes == {"lib": {}}
    path.write_text('{"gemm": "mr4"}')
    assert store.remove(path, lambda place, entry: place.key == "gemm")
    assert not path.exists()


def test_siblings_are_the_same_box_with_other_numbers_of_threads_the_nearest_first(tmp_path):
    assert store.siblings(tmp_path / "nowhere", BOX) == []
    for changes in (
        {},
        {"threads": 16},
        {"threads": 4},
        {"threads": 3, "model": "1"},
        {"cpu": "znver4-t", "threads": 1},
    ):
        other = msgspec.structs.replace(BOX, **changes)
        write(tmp_path / other.file_name, box=other)
        write(tmp_path / f"app-{other.file_name}", box=other)
    (tmp_path / f"{BOX.cpu}-t9-broken.tune.json").write_text("{")
    assert [m.box.threads for m in store.siblings(tmp_path, BOX)] == [4, 16]
    assert [m.box.threads for m in store.siblings(tmp_path, BOX, "app-")] == [4, 16]
