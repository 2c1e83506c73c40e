"""The object cache: warm is as cold, but nothing is rendered or compiled; nothing in it is believed without a check."""

from __future__ import annotations

import logging
import os
import threading

import pytest
from toys import TOY, ran, write_library

import tunegen
from tunegen.making import cache as cache_room
from tunegen.making import make
from tunegen.making.cache import ObjectCache, Record


def fresh(made):
    """The next call starts as in a new process, but for what is on the disk."""
    cache_room._cache_in.cache_clear()
    make.counters.clear()
    make._mapped.clear()
    tunegen.load(made.__name__)


def files(tmp_path, kind):
    return sorted((tmp_path / "cache" / kind).iterdir())


def test_cold_renders_and_compiles_and_warm_does_not(library):
    made = library()
    assert ran(made.toy) == 2
    assert (make.counters["rendered"], make.counters["hits"]) == (1, 0)
    fresh(made)
    assert ran(made.toy) == 2
    assert (make.counters["rendered"], make.counters["compiled"], make.counters["hits"]) == (0, 0, 1)
    assert make.counters["linked"] == 1


WARM = """
import sys
import numpy as np
from tunegen.making import make
import {name} as made
out = np.zeros(3, np.float32)
made.toy(out + 1, out)
print(int(out[0]), make.counters["rendered"], make.counters["compiled"], "jinja2" in sys.modules)
"""


def test_a_warm_process_neither_renders_nor_compiles_nor_imports_jinja2(child, tmp_path):
    code = WARM.format(name=write_library(tmp_path / "libraries"))
    first, second = child(code), child(code)
    assert (first.stdout, first.stderr) == ("2 1 2 True\n", "")
    assert (second.stdout, second.stderr) == ("2 0 0 False\n", "")


def test_processes_that_start_at_once_share_a_cold_cache(child, tmp_path):
    code = WARM.format(name=write_library(tmp_path / "libraries"))
    done = []
    threads = [threading.Thread(target=lambda: done.append(child(code))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(d.stdout.split()[0], d.stderr) for d in done] == [("2", "")] * 3
    assert child(code).stdout == "2 0 0 False\n"
    names = [p.name for kind in ("index", "objects") for p in files(tmp_path, kind)]
    assert len(names) == 4
    assert all(len(name) == 64 for name in names)


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b"", lambda b: b[:99] + b"\1" + b[100:], lambda b: b + b"x"]
)
def test_a_damaged_object_is_made_again(library, tmp_path, caplog, damage):
    made = library()
    assert ran(made.toy) == 2
    before = {path: path.read_bytes() for path in files(tmp_path, "objects")}
    for path, data in before.items():
        path.write_bytes(damage(data))
    fresh(made)
    assert ran(made.toy) == 2
    assert make.counters["rendered"] == 1
    assert "damaged object in the cache is made again" in caplog.text
    toy = [path for path in before if path.read_bytes() == before[path]]
    assert toy


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"templates": 5}', b"\xff", b'{"templates": {}, "object": "../../x"}']
)
def test_a_damaged_record_is_made_again(library, tmp_path, data):
    made = library()
    assert ran(made.toy) == 2
    for path in files(tmp_path, "index"):
        path.write_bytes(data)
    fresh(made)
    assert ran(made.toy) == 2
    assert make.counters["rendered"] == 1


def test_an_object_that_is_gone_is_made_again(library, tmp_path):
    made = library()
    assert ran(made.toy) == 2
    for path in files(tmp_path, "objects"):
        path.unlink()
    fresh(made)
    assert ran(made.toy) == 2
    assert len(files(tmp_path, "objects")) >= 1


@pytest.mark.parametrize("name", ["toy.ll.j2", "loop.ll.j2"])
def test_an_edited_file_of_a_template_is_rendered_again(library, name):
    made = library()
    assert ran(made.toy) == 2
    path = made.scope.templates.folder / name
    path.write_text(path.read_text() + "\n; edited\n")
    fresh(made)
    assert ran(made.toy) == 2
    assert (make.counters["rendered"], make.counters["hits"]) == (1, 0)


def test_a_decline_is_kept_and_forgotten_when_a_file_of_its_template_changes(library):
    made = library(TOY.replace("gate=", 'define={"declined": "2"}, gate='))
    assert ran(made.toy) == 1
    assert make.counters["rendered"] == 2
    fresh(made)
    assert ran(made.toy) == 1
    assert (make.counters["rendered"], make.counters["hits"]) == (0, 1)
    path = made.scope.templates.folder / "toy.ll.j2"
    path.write_text(path.read_text().replace("decline(", "'' if 1 else ("))
    fresh(made)
    assert ran(made.toy) == 2


def test_a_decline_for_an_undefined_symbol_depends_on_the_macro_that_calls_it(library):
    """The whole closure, not the main template alone."""
    call = "declare void @nowhere()\n{% macro stop() %}  call void @nowhere(){% endmacro %}"
    text = (
        '{% import "stop.j2" as s %}'
        + """
{% if perm.row == 2 %}declare void @nowhere(){% endif %}
define void @{{ symbol }}(ptr %x, ptr %out, i64 %N, ptr %scratch) {
{{ s.stop() if perm.row == 2 }}
  store float {{ hexf(perm.row, "f32") }}, ptr %out
  ret void
}
"""
    )
    made = library(templates={"toy.ll.j2": text, "stop.j2": call})
    assert ran(made.toy, 1) == 1
    (made.scope.templates.folder / "stop.j2").write_text("{% macro stop() %}  ; nothing{% endmacro %}")
    fresh(made)
    assert ran(made.toy, 1) == 2


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_that_others_can_write_to_is_refused_and_everything_runs(library, tmp_path, caplog, mode):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(mode)
    made = library()
    assert ran(made.toy) == 2
    assert f"objects are not cached: others can write to {tmp_path / 'cache'} (mode {mode:04o})" in caplog.text
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_folder_below_that_others_can_write_to_is_refused_too(tmp_path, caplog):
    ObjectCache(tmp_path / "cache")
    (tmp_path / "cache" / "objects").chmod(0o777)
    assert ObjectCache(tmp_path / "cache").folder is None
    assert "objects" in caplog.text


def test_folders_and_files_are_for_the_user_alone(library, tmp_path):
    made = library()
    assert ran(made.toy) == 2
    for path in (tmp_path / "cache").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0


def test_a_cache_in_the_way_of_a_file_keeps_nothing_and_everything_runs(library, tmp_path, caplog):
    (tmp_path / "cache").write_text("")
    made = library()
    assert ran(made.toy) == 2
    assert "objects are not cached" in caplog.text


def test_a_full_disk_is_said_and_everything_runs(library, monkeypatch, caplog):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    made = library()
    assert ran(made.toy) == 2
    assert "could not be cached" in caplog.text
    assert "No space left" in caplog.text


def test_what_a_key_covers(library, monkeypatch):
    """Another CPU feature, thread of passes or LLVM is another object; another thread count is the same."""
    made = library()
    assert ran(made.toy) == 2
    for name, value, rendered in (("TUNE_THREADS", "3", 0), ("TUNE_FEATURES", "-avx512f,-sve,-avx2,-sse4a,-crc", 1)):
        monkeypatch.setenv(name, value)
        fresh(made)
        assert ran(made.toy) == 2
        assert make.counters["rendered"] == rendered
    for name in ("PASSES", "ABI"):
        monkeypatch.setattr(make, name, "another")
        fresh(made)
        assert ran(made.toy) == 2
        assert make.counters["rendered"] == 1


def test_names_that_lead_out_of_the_folder_are_not_read(tmp_path):
    kept = ObjectCache(tmp_path / "cache")
    (tmp_path / "secret").write_bytes(b"{}")
    assert kept.record("../../secret") is None
    assert kept.image("../../secret") is None
    assert kept.image("") is None


def test_a_record_and_an_image_round_trip(tmp_path):
    kept = ObjectCache(tmp_path / "cache")
    kept.put_record("a" * 64, Record({"t": "1"}, declined='why\n"ü'))
    assert kept.record("a" * 64) == Record({"t": "1"}, declined='why\n"ü')
    assert kept.image(kept.put_image(b"bytes")) == b"bytes"
    assert kept.record("b" * 64) is None


def test_nothing_is_said_when_all_is_well(library, caplog):
    with caplog.at_level(logging.DEBUG, "tunegen"):
        assert ran(library().toy) == 2
    assert caplog.text == ""
