"""The box: its identity, how two of them differ, and what the environment presents."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from tunegen import box as box_room
from tunegen.box import Box, differences, this_box
from tunegen.errors import KnobError

BOX = Box("x86_64", "amd", "25", "97", "znver4", ("avx", "avx2", "fma"), 2)


def test_the_file_name_holds_the_cpu_the_threads_and_the_identity():
    assert re.fullmatch(r"znver4-t2-[0-9a-f]{8}\.tune\.json", BOX.file_name)
    assert BOX.file_name == msgspec.structs.replace(BOX).file_name


@pytest.mark.parametrize("field", Box.__struct_fields__)
def test_each_field_is_part_of_the_identity_and_is_named_when_it_differs(field):
    other = {"features": ("avx",), "threads": 4}.get(field, "other")
    changed = msgspec.structs.replace(BOX, **{field: other})
    assert changed.id != BOX.id
    assert [d.field for d in differences(changed, BOX)] == [field]
    assert differences(BOX, BOX) == []


def test_features_differ_by_name():
    theirs = msgspec.structs.replace(BOX, features=("avx", "avx512f", "avx512vl"))
    assert [str(d) for d in differences(theirs, BOX)] == ["features: +avx512f +avx512vl there, +avx2 +fma here"]
    fewer = msgspec.structs.replace(BOX, features=("avx", "fma"))
    assert str(differences(fewer, BOX)[0]) == "features: none more there, +avx2 here"


def test_threads_come_from_the_environment_first(monkeypatch):
    monkeypatch.setenv("TUNE_THREADS", "7")
    assert this_box().threads == 7
    monkeypatch.setenv("TUNE_THREADS", "many")
    with pytest.raises(KnobError):
        this_box()


def test_without_the_environment_threads_are_whole_cores_within_the_quota(tmp_path):
    for cpu in range(8):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{cpu % 4},{cpu % 4 + 4}\n")
    assert box_room.threads_for(tuple(range(8)), tmp_path) == 4
    assert box_room.threads_for((0, 4, 1), tmp_path) == 2
    assert box_room.threads_for((0, 1, 2, 3), tmp_path) == 4
    assert box_room.threads_for((4,), tmp_path) == 1
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cpu.max").write_text("250000 100000\n")
    assert box_room.threads_for(tuple(range(7)), tmp_path) == 3
    assert box_room.threads_for((0, 4), tmp_path) == 1
    assert box_room.threads_for(tuple(range(8)), tmp_path) == 4, "a process keeps its answer"


def test_threads_are_no_difference_for_what_never_uses_them():
    theirs = msgspec.structs.replace(BOX, threads=9)
    assert differences(theirs, BOX, ignore_threads=True) == []
    other = msgspec.structs.replace(theirs, model="1")
    assert [d.field for d in differences(other, BOX, ignore_threads=True)] == ["model"]


def test_features_are_masked_with_what_needs_them_and_forced_ones_are_said(monkeypatch, caplog):
    host = ("x86_64-linux", "znver4", frozenset({"sse4.2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512vl"}))
    monkeypatch.setattr(box_room, "_host", lambda: host)
    monkeypatch.setenv("TUNE_FEATURES", "-avx512f, +amx-tile,nonsense,-nothing")
    box = this_box()
    assert box.features == ("amx-tile", "avx", "avx2", "f16c", "fma", "sse4.2")
    assert box.target_features == "+amx-tile,+avx,+avx2,+f16c,+fma,+sse4.2,-avx512f,-avx512vl"
    said = " ".join(r.message for r in caplog.records)
    assert "forces amx-tile" in said
    assert "'nonsense' is ignored" in said
    assert "'-nothing' is ignored" in said


def test_another_thread_count_or_mask_is_another_box(monkeypatch):
    seen = {this_box().id}
    for name, value in (("TUNE_THREADS", "1999"), ("TUNE_FEATURES", "-sse2,-neon")):
        monkeypatch.setenv(name, value)
        assert this_box().id not in seen
        seen.add(this_box().id)


def test_ancestry_is_in_llvms_names_nearest_first():
    assert box_room.ancestry("znver4") == (
        "znver4", "znver3", "x86-64-v4", "znver2", "znver1", "x86-64-v3", "x86-64-v2", "x86-64"
    )  # fmt: skip
    assert box_room.ancestry("skylake-avx512")[:2] == ("skylake-avx512", "skylake")
    assert box_room.ancestry("neoverse-v1")[0] == "neoverse-v1"
    assert box_room.ancestry("no such cpu") == ()


def test_a_cpu_that_archspec_lacks_descends_from_one_that_it_has():
    for cpu, parent in box_room.UNLISTED.items():
        above = box_room.ancestry(parent)
        assert above, parent
        assert box_room.ancestry(cpu) == (cpu, *above)


def test_ancestry_is_what_archspec_itself_makes_of_its_table():
    import archspec.cpu

    table = box_room._targets()
    for name, target in archspec.cpu.TARGETS.items():
        assert box_room._ancestors(name, table) == tuple(a.name for a in target.ancestors)


def test_information_can_be_written_down():
    told = json.loads(json.dumps(box_room.information()))
    assert set(told) == {"ancestry", "cache_bytes", "cores", "logical_threads", "system"}
    assert 1 <= told["cores"] <= told["logical_threads"]
