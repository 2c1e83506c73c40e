"""The manifest as a document: whatever is in it, reading does not raise, and bad entries cost nothing."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunegen.box import Box
from tunegen.choosing import document
from tunegen.choosing.document import Entry, Invalid, Place, RegimeWinner, decode, encode, merged

BOX = Box("x86_64", "amd", "25", "97", "znver4", ("avx", "avx2"), 2)
PLAIN = msgspec.to_builtins(BOX)
GOOD = {"digest": "sha256:1", "regimes": [{"if": "M <= 2", "winner": "a"}, {"winner": "b", "perm": {"r": 1}}]}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
KEYS = ("tunegen", "box", "scopes", "names", "kernels", "regimes", "digest", "winner", "if", "perm", "params", "parts",
        "templates", "evidence", "lib", "k[f32]", *PLAIN)  # fmt: skip


def a_document(**changes):
    return {"tunegen": 1, "box": PLAIN, "scopes": {"lib": {"kernels": {"k[f32]": [GOOD]}}}, **changes}


def read(value):
    return decode(json.dumps(value).encode(), "file")


def test_a_good_document_is_read():
    manifest = read(a_document(more=[1]))
    assert (manifest.status, manifest.box) == ("loaded", BOX)
    entry = manifest.scopes["lib"]["k[f32]"][0]
    assert entry.winner("M <= 2").winner == "a"
    assert entry.winner("").perm == {"r": 1}
    assert entry.winner("N > 1") is None


def test_the_result_of_writing_reads_back_the_same():
    entry = Entry([RegimeWinner("r", "", {"x": 0.1, "y": True, "z": 1, "s": '1\n\t"ü'}, {"ratio": 1.1})], "sha256:2")
    raw = merged(a_document(), PLAIN, "lib", "k[f32]", entry)
    first, second = decode(encode(raw), "file").scopes["lib"]["k[f32]"]
    assert first == entry
    assert [type(v) for v in first.regimes[0].perm.values()] == [float, bool, int, str]
    assert second.digest == "sha256:1"
    assert encode(json.loads(encode(raw))) == encode(raw)


@given(st.binary(max_size=200))
def test_no_bytes_make_reading_raise(data):
    assert decode(data, "file").status in ("loaded", "malformed", "newer")


@given(st.data(), st.binary(max_size=3))
def test_no_damage_to_a_good_document_makes_reading_raise(data, noise):
    text = encode(a_document())
    at = data.draw(st.integers(0, len(text)))
    until = data.draw(st.integers(at, len(text)))
    decode(text[:at] + noise + text[until:], "file")


def places(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


@given(st.data(), JSON)
def test_no_value_anywhere_makes_reading_raise(data, value):
    """Any value in any place, and any value under any name that means something."""
    raw = json.loads(json.dumps(a_document(names={"k": "b"})))
    path = data.draw(st.sampled_from(list(places(raw))[1:]))
    inner = raw
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    if isinstance(inner, dict):
        inner[data.draw(st.sampled_from(KEYS))] = value
    manifest = document.from_raw(raw, "file")
    for entry in manifest.entries("lib", "k", "k[f32]", ("lib",)):
        assert isinstance(entry, Entry | Invalid)
        if isinstance(entry, Entry):
            entry.winner("")
    document.from_raw(value, "file")


@pytest.mark.parametrize(
    ("data", "status", "problem"),
    [
        (b"", "malformed", "not JSON"),
        (b"{}", "malformed", "neither a manifest"),
        (b"[]", "malformed", "not list"),
        (b'{"gemm": 1}', "malformed", "neither a manifest"),
        (b'{"tunegen": 2}', "newer", "format 2 is newer than 1"),
        (b'{"tunegen": 0}', "malformed", "no format number"),
        (b'{"tunegen": "1"}', "malformed", "no format number"),
        (b'{"tunegen": true}', "malformed", "no format number"),
        (b'{"tunegen": 1}', "malformed", "the box cannot be read"),
        (b"[" * 100_000, "malformed", "not JSON"),
        (b'{"a":' * 50_000, "malformed", "not JSON"),
        (b'"\xff"', "malformed", "not JSON"),
        (b"\xef\xbb\xbf{}", "malformed", "not JSON"),
        (b" " * (document.MAX_BYTES + 1), "malformed", "too many"),
    ],
    ids=range(14),
)
def test_what_is_no_manifest_says_why(data, status, problem):
    manifest = decode(data, "file")
    assert (manifest.status, manifest.scopes, manifest.names) == (status, {}, {})
    assert problem in manifest.problem


@pytest.mark.parametrize(
    "bad",
    [3, "x", None, [], {}, {"regimes": []}, {"regimes": [{}]}, {"regimes": [{"winner": 3}]}, {"regimes": "x"},
     {"regimes": [{"winner": "a"}], "digest": 5}, {"regimes": [{"winner": "a", "if": None}]},
     {"regimes": [{"winner": "a"}], "templates": {"x": 1}}],
)  # fmt: skip
def test_a_bad_entry_is_invalid_and_its_neighbours_are_not(bad):
    manifest = read(a_document(scopes={"lib": {"kernels": {"k[f32]": [bad, GOOD], "l[f32]": [GOOD]}}, "other": bad}))
    first, second = manifest.scopes["lib"]["k[f32]"]
    assert isinstance(first, Invalid)
    assert first.reason
    assert second.digest == "sha256:1"
    assert len(manifest.scopes["lib"]["l[f32]"]) == 1


def test_unknown_sections_and_fields_survive_a_merge():
    raw = a_document(future={"a": [1, None]}, scopes={"lib": {"kernels": {"k[f32]": [{**GOOD, "new": 1}]}, "extra": 2},
                                                     "other": {"kernels": 5}})  # fmt: skip
    result = merged(raw, {**PLAIN, "information": {}}, "lib", "k[f32]", Entry([RegimeWinner("c")], "sha256:3"))
    assert result["future"] == {"a": [1, None]}
    assert result["scopes"]["lib"]["extra"] == 2
    assert result["scopes"]["other"] == {"kernels": 5}
    assert result["scopes"]["lib"]["kernels"]["k[f32]"][1] == {**GOOD, "new": 1}
    assert raw["scopes"]["lib"]["kernels"]["k[f32]"] == [{**GOOD, "new": 1}]


def test_a_flat_map_survives_a_merge_as_names():
    result = merged({"gemm": "mr4", "lib:k": "r1"}, PLAIN, "lib", "k[f32]", Entry([RegimeWinner("c")], "sha256:3"))
    manifest = document.from_raw(result, "file")
    assert manifest.names == {"gemm": "mr4", "lib:k": "r1"}
    assert [e.regimes[0].winner for e in manifest.entries("lib", "k", "k[f32]", ("lib",))] == ["c", "r1"]


def an_entry(winner, llvm="22", templates=None, gate="bitwise()"):
    parts = {"llvm": llvm, "gate": gate, "perm": winner, "templates": "x" + winner}
    return Entry([RegimeWinner(winner)], f"sha256:{winner}{llvm}{gate}{templates}", {}, parts, templates or {"t": "1"})


def test_an_environment_keeps_one_entry_and_pushes_out_no_other():
    raw = {}
    others = [an_entry("a", llvm="21"), an_entry("a", templates={"t": "2"}), an_entry("a", gate="ulp(1.0)")]
    for entry in (*others, *(an_entry(winner) for winner in "abcdefghijk")):
        raw = merged(raw, PLAIN, "lib", "k", entry)
    kept = document.from_raw(raw, "file").scopes["lib"]["k"]
    assert kept == [an_entry("k"), *reversed(others)]


def test_a_kernel_keeps_its_newest_entries():
    raw = {}
    for llvm in range(20):
        raw = merged(raw, PLAIN, "lib", "k", an_entry("a", llvm=str(llvm)))
    kept = document.from_raw(raw, "file").scopes["lib"]["k"]
    assert [e.parts["llvm"] for e in kept] == [str(19 - i) for i in range(document.KEPT_ENTRIES)]


@given(JSON)
def test_a_merge_into_any_document_can_be_read_back(value):
    raw = {"tunegen": 1, "box": value, "scopes": {"lib": {"kernels": value}, "x": value}, "more": value}
    result = merged(raw, PLAIN, "lib", "k", an_entry("a"))
    assert decode(encode(result), "file").scopes["lib"]["k"][0] == an_entry("a")


def test_entries_of_the_two_kinds_keep_out_of_each_others_way():
    """Each is replaced, and cut off, among its own."""
    winners = [an_entry("a", llvm=str(n)) for n in range(document.KEPT_ENTRIES + 2)]
    values = [Entry([], f"sha256:v{n}", {"x": n}) for n in range(document.KEPT_ENTRIES + 2)]
    raw = {}
    for one, other in zip(winners, values, strict=True):
        raw = merged(raw, PLAIN, "lib", "k", one)
        raw = merged(raw, PLAIN, "lib", "k", other)
    manifest = document.from_raw(raw, "file")
    assert manifest.entries("lib", "k", "k", ("lib",)) == winners[:1:-1]
    assert manifest.values("lib", "k") == values[:1:-1]
    again = Entry([], "sha256:v9", {"x": 99}, {}, {}, {"kind": "manual"})
    raw = merged(raw, PLAIN, "lib", "k", again)
    manifest = document.from_raw(raw, "file")
    assert manifest.entries("lib", "k", "k", ("lib",)) == winners[:1:-1]
    assert manifest.values("lib", "k") == [again, *values[-2:1:-1]]


def test_values_written_by_hand_give_way_to_those_that_are_set():
    raw = merged(a_document(scopes={"lib": {"kernels": {"k": [{"params": {"x": 1}}, GOOD]}}}), PLAIN, "lib", "k",
                 Entry([], "sha256:v", {"x": 2}))  # fmt: skip
    manifest = document.from_raw(raw, "file")
    assert [e.params for e in manifest.values("lib", "k")] == [{"x": 2}]
    assert [e.digest for e in manifest.entries("lib", "k", "k", ("lib",))] == ["sha256:1"]


def test_an_entry_of_both_kinds_is_read_as_both():
    both = {"params": {"x": 1}, "regimes": [{"winner": "a"}]}
    manifest = read(a_document(scopes={"lib": {"kernels": {"k": [both]}}}))
    assert manifest.values("lib", "k") == manifest.entries("lib", "k", "k", ("lib",))


def test_entries_are_taken_out_by_place_and_all_else_survives():
    raw = a_document(names={"k": "a", "n": 5}, future=[1])
    raw["scopes"] = {"lib": {"kernels": {"k[f32]": [GOOD, {"params": {"x": 1}}, 7], "l": "odd"}, "more": 1}, "odd": 2}
    assert document.places(raw) == [
        Place("", "k", "winners", ""),
        Place("lib", "k[f32]", "winners", "sha256:1"),
        Place("lib", "k[f32]", "values", ""),
        Place("lib", "k[f32]", "winners", ""),
    ]
    before = encode(raw)
    left = document.without(raw, lambda place, entry: place.kind == "values" or isinstance(entry, Invalid))
    assert left["scopes"]["lib"] == {"kernels": {"k[f32]": [GOOD], "l": "odd"}, "more": 1}
    assert (left["scopes"]["odd"], left["future"], left["names"]) == (2, [1], {"k": "a", "n": 5})
    nothing = document.without(raw, lambda place, entry: True)
    assert nothing["scopes"]["lib"] == {"kernels": {"l": "odd"}, "more": 1}
    assert nothing["names"] == {"n": 5}
    assert encode(raw) == before
    assert document.without({"gemm": "a", "x:y": "b"}, lambda place, entry: place.key == "gemm") == {"x:y": "b"}


@given(JSON)
def test_taking_entries_out_of_any_document_does_not_raise(value):
    raw = {"tunegen": 1, "box": value, "scopes": {"lib": {"kernels": value}, "x": value}, "names": value}
    left = document.without(raw, lambda place, entry: False)
    assert decode(encode(left), "file").status == decode(encode(raw), "file").status
    document.places(document.without(raw, lambda place, entry: True))
