"""Values of parameters: every tier and every state, without a disk; then what a file does to them."""

from __future__ import annotations

import json
import random
import string
import struct

import msgspec
import pytest
from test_resolve import BOX, T, a_spec

from tunegen.choosing import store
from tunegen.choosing.document import Entry, Manifest, decode, encode, merged
from tunegen.choosing.published import Publications
from tunegen.choosing.resolve import Tier
from tunegen.choosing.values import base_of, judge, parts_of, resolve_values, values_entry
from tunegen.errors import ParameterError
from tunegen.making.spec import digest_of
from tunegen.parallel import serial
from tunegen.parameters import Parameter, read_schema

SCHEMA = read_schema(
    [
        Parameter("parallel.minimum", "int", 1000, 1, 1 << 40, unit="elements", doc="From here on, threads."),
        Parameter("parallel.grain", "int", 100, 1, 1 << 40, unit="elements", doc="A multiple of it."),
        Parameter("ratio", "float", 0.5, 0.0, 1.0, doc="A number."),
        Parameter("exact", "bool", True, doc="A switch."),
        Parameter("note", "string", "", doc="A text."),
        Parameter("way", "enum", "left", choices=("left", "right"), doc="One of two."),
    ],
    ["parallel.grain <= parallel.minimum"],
)
SPEC = msgspec.structs.replace(a_spec(), schema=SCHEMA)
SERIAL = msgspec.structs.replace(SPEC, parallel=serial("it is short"))
KEY = SPEC.tuning_key(T)
FOUR = msgspec.structs.replace(BOX, threads=4)


def some(minimum=5000, **changes):
    return {**SCHEMA.defaults, "parallel.minimum": minimum, **changes}


def tier(*entries, name="user manifest", source="manifest", box=BOX, status="loaded", problem=""):
    scopes = {"lib": {"kern[f32]": list(entries)}, "other": {"kern[f32]": [values_entry(KEY, some(77))]}}
    return Tier(name, source, Manifest("file", status, problem, box, scopes), path=f"/{name}")


def resolved(*tiers, spec=SPEC, box=BOX, generation=None):
    return resolve_values(spec, T, box, tiers, generation)


def facts(found):
    return found.values["parallel.minimum"], found.source, found.state, found.tuned


def test_without_entries_the_portable_defaults_hold():
    found = resolved(tier())
    assert (found.values, found.source, found.state, found.tuned) == (SCHEMA.defaults, "default", "missing", False)
    assert [(c.tier, c.state) for c in found.consulted] == [("user manifest", "missing"), ("portable defaults", "ok")]


def test_an_entry_of_this_box_is_ok_and_keeps_its_evidence():
    found = resolved(tier(values_entry(KEY, some(), {"kind": "crossover"})))
    assert facts(found) == (5000, "manifest", "ok", True)
    assert (found.path, found.reason, found.evidence) == ("/user manifest", "", {"kind": "crossover"})


def test_a_kernel_without_parameters_has_none():
    found = resolved(tier(values_entry(KEY, some())), spec=a_spec())
    assert (found.values, found.source, found.state) == ({}, "default", "ok")


@pytest.mark.parametrize(
    ("field", "then", "said"),
    [
        ("abi", 0, "abi changed from 0 to 1"),
        ("implementation", "older", "implementation changed from older to k.j2"),
        ("device", "gpu", "device changed from gpu to cpu"),
    ],
)
def test_a_stale_entry_says_what_changed(field, then, said):
    old = values_entry(msgspec.structs.replace(KEY, **{field: then}), some())
    found = resolved(tier(old))
    assert facts(found) == (1000, "default", "stale", False)
    assert found.reason == said
    assert facts(resolved(tier(old, values_entry(KEY, some(6000))))) == (6000, "manifest", "ok", True)


def test_a_digest_that_was_tampered_with_is_stale():
    wrong = msgspec.structs.replace(values_entry(KEY, some()), digest="sha256:0")
    assert "does not match" in resolved(tier(wrong)).reason


def test_every_part_of_the_key_is_in_the_digest():
    for field in KEY.__struct_fields__:
        other = msgspec.structs.replace(KEY, **{field: 9 if field == "abi" else "other"})
        assert digest_of(parts_of(other)) != digest_of(parts_of(KEY))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (some(0), "parallel.minimum=0"),
        (some(exact=1), "exact=1"),
        (some(True), "parallel.minimum=True"),
        (some(way="up"), "way='up'"),
        (some(ratio=1), "ratio=1"),
        (some(50), "parallel.grain <= parallel.minimum"),
        ({"parallel.minimum": 5000}, "ratio is missing"),
        (some(more=1), "unknown parameter 'more'"),
    ],
)
def test_values_that_the_schema_rejects_are_invalid_and_never_used(wrong, said):
    found = resolved(tier(values_entry(KEY, wrong)))
    assert facts(found) == (1000, "default", "invalid", False)
    assert said in found.reason


def test_an_entry_of_another_box_is_foreign_and_the_fields_are_named():
    found = resolved(tier(values_entry(KEY, some()), box=FOUR))
    assert facts(found) == (1000, "default", "foreign", False)
    assert found.reason == "threads: 4 there, 2 here"
    assert facts(resolved(tier(values_entry(KEY, some()), box=FOUR), spec=SERIAL)) == (5000, "manifest", "ok", True)


def test_values_of_another_number_of_threads_are_for_serial_kernels_alone():
    siblings = msgspec.structs.replace(tier(values_entry(KEY, some()), box=FOUR), serial=True)
    assert resolved(tier(), siblings).source == "default"
    assert facts(resolved(tier(), siblings, spec=SERIAL)) == (5000, "manifest", "ok", True)


def test_values_written_by_hand_are_unverified_and_used():
    found = resolved(tier(Entry([], "", some())))
    assert facts(found) == (5000, "manifest", "unverified", True)
    assert resolved(tier(Entry([], "", some(0)))).state == "invalid"


@pytest.mark.parametrize("status", ["unreadable", "malformed", "newer"])
def test_a_file_that_cannot_be_used_is_invalid(status):
    found = resolved(tier(status=status, problem="because"))
    assert facts(found) == (1000, "default", "invalid", False)
    assert status in found.reason
    assert "because" in found.reason


def test_winners_are_no_values():
    from test_resolve import entry

    assert resolved(tier(entry("r3"), values_entry(KEY, some()))).values["parallel.minimum"] == 5000


def generation(**where):
    place = Publications()
    return place.publish({(KEY, where.get("box", BOX)): some(3000)}, {KEY: SCHEMA})


def all_tiers():
    return [
        Tier("session pin", "pin", values={"kern[f32]": {"parallel.minimum": 1001}}),
        tier(values_entry(KEY, some(2000)), name="TUNE_MANIFEST"),
        Tier("program pin", "pin"),
        Tier("published value", "published"),
        tier(values_entry(KEY, some(4000)), name="application manifest"),
        tier(values_entry(KEY, some(5000)), name="user manifest"),
        tier(values_entry(KEY, some(6000)), name="system manifest"),
        tier(values_entry(KEY, some(7000)), name="profile a", source="profile", box=None),
        tier(values_entry(KEY, some(8000)), name="profile b", source="profile", box=None),
    ]


def test_the_highest_tier_with_a_usable_set_wins_and_every_tier_is_shown():
    tiers = all_tiers()
    expected = [1001, 2000, None, 3000, 4000, 5000, 6000, 7000, 8000]
    sources = ["session", "manifest", None, "published", "manifest", "manifest", "manifest", "profile", "profile"]
    for first in range(len(tiers)):
        found = resolved(*tiers[first:], generation=generation())
        assert [c.tier for c in found.consulted] == [*(t.name for t in tiers[first:]), "portable defaults"]
        if expected[first] is not None:
            assert (found.values["parallel.minimum"], found.source) == (expected[first], sources[first])
            assert found.tuned is (sources[first] != "profile")
            assert found.state == ("ok" if found.tuned else "missing")


def test_the_policy_reference_means_portable_defaults():
    policy = Tier("TUNE_POLICY", "reference", suffix="reference", note="TUNE_POLICY=reference")
    found = resolved(policy, *all_tiers()[1:], generation=generation())
    assert (found.values, found.source, found.tuned) == (SCHEMA.defaults, "default", False)
    assert found.reason == "TUNE_POLICY=reference"
    assert resolved(all_tiers()[0], policy).values["parallel.minimum"] == 1001


def test_a_session_completes_its_values_from_what_stands_below():
    pin = Tier("session pin", "pin", values={"lib:kern[f32]": {"parallel.minimum": 1001}})
    found = resolved(pin, tier(values_entry(KEY, some(5000, note="kept"))))
    assert (found.values, found.source) == (some(1001, note="kept"), "session")
    wrong = Tier("session pin", "pin", values={"kern[f32]": {"parallel.minimum": "many"}})
    found = resolved(wrong, tier(values_entry(KEY, some(5000))))
    assert (found.values["parallel.minimum"], found.source) == (5000, "manifest")
    assert (found.consulted[0].state, "'many'" in found.consulted[0].reason) == ("invalid", True)
    other = Tier("session pin", "pin", values={"kern[f64]": {"parallel.minimum": 1001}})
    assert resolved(other).source == "default"


def test_published_values_are_for_their_own_number_of_threads():
    tiers = [Tier("published value", "published")]
    assert resolved(*tiers, generation=generation(box=FOUR)).source == "default"
    assert resolved(*tiers, generation=generation(box=FOUR), spec=SERIAL).source == "published"
    assert resolved(*tiers).source == "default"


def test_a_profile_is_reported_beside_the_bad_entry_of_this_box():
    profile = tier(values_entry(KEY, some(7000)), name="profile a", source="profile", box=None)
    found = resolved(tier(values_entry(KEY, some(0))), profile)
    assert facts(found) == (7000, "profile", "invalid", False)
    assert "parallel.minimum=0" in found.reason


def test_what_a_partial_set_completes_is_the_newest_set_that_holds():
    bad, good, old = some(0), some(5000, note="x"), some(6000)
    stale = values_entry(msgspec.structs.replace(KEY, abi=0), some(7000))
    entries = [values_entry(KEY, bad), stale, values_entry(KEY, good), values_entry(KEY, old)]
    assert base_of(entries, KEY, SCHEMA) == good
    assert base_of(entries[:2], KEY, SCHEMA) is None
    assert base_of([Entry([], "", old)], KEY, SCHEMA) == old
    assert judge(entries[0], KEY, SCHEMA).state == "invalid"


def doubles():
    rng = random.Random(1)
    bits = (struct.unpack("<d", struct.pack("<Q", rng.getrandbits(64)))[0] for _ in range(300))
    return [d for d in bits if abs(d) < 1e308] + [5e-324, -0.0, 1e16, 0.1, 1 / 3, 2.0**-1022, 1.7976931348623157e308]


def test_a_double_survives_any_number_of_round_trips():
    raw = {}
    for number in doubles():
        entry = Entry([], "sha256:1", {"ratio": number, "whole": 1, "yes": True, "text": "a\n\tb\x00"})
        raw = merged(raw, {**msgspec.to_builtins(BOX)}, "lib", "kern[f32]", entry)
        for _ in range(5):
            raw = json.loads(encode(raw))
            raw = msgspec.json.decode(encode(raw))
        (back,) = decode(encode(raw), "file").values("lib", "kern[f32]")
        assert [(type(v), v) for v in back.params.values()] == [(type(v), v) for v in entry.params.values()]
        assert struct.pack("<d", back.params["ratio"]) == struct.pack("<d", number)


@pytest.mark.parametrize("note", ["two\nlines", "\r\n", "\x00\x1f", '"quoted\\', "\u2028ü𝄞", string.printable])
def test_a_text_of_any_characters_survives_the_file(tmp_path, note):
    path = tmp_path / "x.tune.json"
    store.set_values(path, BOX, {}, KEY, lambda entries: some(note=note))
    assert resolved(Tier("user manifest", "manifest", store.read(path))).values == some(note=note)


def test_a_text_that_no_file_can_hold_is_refused():
    with pytest.raises(ParameterError, match="note="):
        SCHEMA.check(some(note="half a \ud800 pair"))
