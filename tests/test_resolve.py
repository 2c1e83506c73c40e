"""Who wins: every state of an entry and every tier, without a disk or a compiler."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tunegen import In, Out, bitwise, bound, f32
from tunegen.box import Box
from tunegen.choosing.document import Entry, Invalid, Manifest, RegimeWinner
from tunegen.choosing.resolve import Outcome, Sources, Tier, resolve
from tunegen.digest import sha256
from tunegen.fallback import parse_fallback
from tunegen.gates import GATING
from tunegen.grid import Grid, Perm
from tunegen.making import spec as spec_room
from tunegen.making.render import Templates
from tunegen.making.spec import Function, Spec, digest_of
from tunegen.parallel import serial, split
from tunegen.signature import ELEMENT_TYPES, read_signature

BOX = Box("x86_64", "amd", "25", "97", "znver4", ("avx", "avx2"), 2)
T = ELEMENT_TYPES["f32"]
LLVM = "22.1"
GRID = (Perm({"r": 1}), Perm({"r": 2}), Perm({"r": 3}), Perm({"r": 4}, requires="avx512f"))


def kern(x: In[f32, "N"], out: Out[f32, "N"]) -> None: ...


def templates(**changes):
    made = Templates(Path("/nowhere"))
    texts = {"k.j2": b"text", "macros.j2": b"macros", **changes}
    made._files = {name: (text, sha256(text).hexdigest() if text is not None else "") for name, text in texts.items()}
    return made


SPLIT = split("N", when="N >= 100").read(("N",), ())


def a_spec(fallback="r2; r1; reference", *, grid=GRID, gate=None, define=None, files=None, fn=kern, gen="k.j2",
           parallel=SPLIT):  # fmt: skip
    signature = read_signature(fn, "kern", {})
    function = Function("kern", gen, fn, signature, define or {})
    chain = parse_fallback(fallback, ["r1", "r2", "r3", "r4"], signature.sizes)
    return Spec("lib", "lib", function, Grid(grid), chain, gate or bitwise(), (), templates(**(files or {})),
                parallel=parallel)  # fmt: skip


SPEC = a_spec()


def entry(winners, spec=SPEC, llvm=LLVM):
    """An entry as a tuner would write it for `spec`: winners are suffixes by condition, or one suffix for all sizes."""
    winners = {"": winners} if isinstance(winners, str) else winners
    perms = [row.perm if (row := spec.grid.find(w)) else {} for w in winners.values()]
    names = {name: spec.templates.digest(name) for name in ("k.j2", "macros.j2")}
    parts = spec.parts(perms, names, llvm)
    return Entry([RegimeWinner(w, c, p) for (c, w), p in zip(winners.items(), perms, strict=True)], digest_of(parts),
                 {}, parts, names)  # fmt: skip


def manifest(*entries, box=BOX, names=None, status="loaded", problem=""):
    scopes = {"lib": {"kern[f32]": list(entries)} if entries else {}, "other": {"kern[f32]": [entry("r1")]}}
    return Manifest("file", status, problem, box, scopes, names or {})


def tier(*entries, name="user manifest", source="manifest", **options):
    return Tier(name, source, manifest(*entries, **options), path=f"/{name}")


def resolved(*tiers, spec=SPEC, make=lambda row: Outcome("ok"), llvm=LLVM, box=BOX, namesakes=("lib",)):
    return resolve(spec, T, box, Sources(tiers, make, llvm, namesakes))


def choice(*tiers, **options):
    return resolved(*tiers, **options).default


def facts(found):
    return found.emitted, found.source, found.state, found.tuned


def test_without_entries_the_fallback_chain_runs():
    found = choice()
    assert facts(found) == ("r2", "fallback", "missing", False)
    assert (found.asked, found.reason, found.path) == ("", "no manifest entry", "")


def test_an_entry_of_this_box_is_ok():
    found = choice(tier(entry("r3")))
    assert facts(found) == ("r3", "manifest", "ok", True)
    assert (found.asked, found.reason, found.path) == ("r3", "", "/user manifest")


def test_an_explicit_reference_is_a_choice_like_any_other():
    assert facts(choice(tier(entry("reference")))) == ("reference", "manifest", "ok", True)
    assert facts(choice(tier(names={"kern": "reference"}))) == ("reference", "manifest", "unverified", True)


def test_a_suffix_that_the_grid_does_not_have_is_unknown():
    """By hand, and where the row was there when the entry was written."""
    before = a_spec(grid=(*GRID, Perm({"r": 9})))
    for found in (choice(tier(names={"kern": "r9"})), choice(tier(entry("r9", before)))):
        assert facts(found) == ("r2", "fallback", "unknown", False)
        assert "'r9'" in found.reason
        assert found.asked == "r9"


def test_a_row_whose_requires_fails_here_is_ineligible():
    found = choice(tier(entry("r4")))
    assert facts(found) == ("r2", "fallback", "ineligible", False)
    assert "avx512f" in found.reason


@pytest.mark.parametrize("state", ["declined", "failed"])
def test_what_cannot_be_made_falls_through(state):
    found = choice(tier(entry("r3")), make=lambda row: Outcome(state, "why") if row.suffix == "r3" else Outcome("ok"))
    assert facts(found) == ("r2", "fallback", state, False)
    assert found.reason == "why"


def other(x: In[f32, "N"], out: Out[f32, "N"], s: float = 1.0) -> None: ...


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (a_spec(files={"k.j2": b"edited"}), "template k.j2 changed"),
        (a_spec(files={"macros.j2": b"edited"}), "template macros.j2 changed"),
        (a_spec(files={"macros.j2": None}), "template macros.j2 changed"),
        (a_spec(gate=bound("N")), "gate changed from bitwise() to bound('N')"),
        (a_spec(gate=bound("N", 2.0)), "gate changed from bitwise() to bound('N', 2.0)"),
        (a_spec(define={"epilogue": "gelu"}), "define changed"),
        (a_spec(fn=other), "signature changed"),
        (a_spec(gen="macros.j2"), "signature changed"),
        (a_spec(grid=(*GRID[:2], Perm({"r": 3.0}, "r3"))), "perm changed"),
        (a_spec(grid=(*GRID[:2], Perm({"r": True}, "r3"))), "perm changed"),
        (a_spec(gate=bound("N"), define={"a": 1}), "define changed, gate changed from bitwise() to bound('N')"),
    ],
)
def test_a_stale_entry_says_what_changed(now, said):
    found = choice(tier(entry("r3")), spec=now)
    assert facts(found) == ("r2", "fallback", "stale", False)
    assert found.reason == said


def test_another_llvm_or_abi_makes_an_entry_stale(monkeypatch):
    found = choice(tier(entry("r3", llvm="21.0")))
    assert (found.state, found.reason) == ("stale", "llvm changed from 21.0 to 22.1")
    kept = entry("r3")
    monkeypatch.setattr(spec_room, "ABI", 2)
    found = choice(tier(kept))
    assert (found.state, found.reason) == ("stale", "abi changed from 1 to 2")


def test_an_entry_of_a_weaker_gate_is_stale(monkeypatch):
    kept = entry("r3")
    monkeypatch.setattr(spec_room, "GATING", 99)
    found = choice(tier(kept))
    assert (found.state, found.reason) == ("stale", f"gating changed from {GATING} to 99")
    assert choice(tier(entry("r3")), spec=a_spec(gate=bitwise(nonfinite="ignore"))).state == "stale"


def test_a_digest_that_was_tampered_with_is_stale():
    wrong = msgspec.structs.replace(entry("r3"), digest="sha256:0")
    assert "does not match" in choice(tier(wrong)).reason
    assert choice(tier(msgspec.structs.replace(wrong, parts={}))).state == "stale"


@pytest.mark.parametrize("now", [a_spec(grid=(*GRID, Perm({"r": 9}))), a_spec(fallback="r1; reference")])
def test_other_rows_and_the_chain_are_no_part_of_the_digest(now):
    assert choice(tier(entry("r3")), spec=now).state == "ok"


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [("threads", 4, "threads: 4 there, 2 here"), ("features", ("avx",), "features: none more there, +avx2 here")],
)
def test_an_entry_of_another_box_is_foreign_and_the_fields_are_named(field, value, said):
    theirs = msgspec.structs.replace(BOX, **{field: value})
    found = choice(tier(entry("r3"), box=theirs))
    assert facts(found) == ("r2", "fallback", "foreign", False)
    assert found.reason == said
    assert choice(tier(names={"kern": "r3"}, box=theirs)).state == "foreign"


SERIAL = a_spec(parallel=serial("it is short"))


def test_a_kernel_that_never_uses_threads_stays_tuned_when_their_number_changes():
    theirs = msgspec.structs.replace(BOX, threads=4)
    assert facts(choice(tier(entry("r3"), box=theirs), spec=SERIAL)) == ("r3", "manifest", "ok", True)
    other = msgspec.structs.replace(theirs, model="1")
    found = choice(tier(entry("r3"), box=other), spec=SERIAL)
    assert (found.state, found.reason) == ("foreign", "model: 1 there, 97 here")


def test_a_tier_of_another_number_of_threads_is_asked_for_serial_kernels_alone():
    theirs = msgspec.structs.replace(BOX, threads=4)
    siblings = msgspec.structs.replace(tier(entry("r3"), box=theirs, name="for 4 threads"), serial=True)
    assert facts(choice(tier(), siblings, spec=SERIAL)) == ("r3", "manifest", "ok", True)
    assert facts(choice(tier(entry("r1")), siblings, spec=SERIAL)) == ("r1", "manifest", "ok", True)
    found = choice(tier(), siblings)
    assert facts(found) == ("r2", "fallback", "missing", False)
    assert "for 4 threads" not in [c.tier for c in found.consulted]


def test_entries_that_hold_values_alone_have_no_winner():
    found = choice(tier(Entry([], "sha256:1", {"x": 1}), entry("r3")))
    assert facts(found) == ("r3", "manifest", "ok", True)
    assert facts(choice(tier(Entry([], "sha256:1", {"x": 1})))) == ("r2", "fallback", "missing", False)


def test_a_manifest_of_another_box_nearby_is_foreign_too():
    found = choice(Tier("user manifest", "manifest", path="/x", note="threads: 4 there, 2 here", state="foreign"))
    assert facts(found) == ("r2", "fallback", "foreign", False)
    assert (found.reason, found.path) == ("threads: 4 there, 2 here", "/x")


@pytest.mark.parametrize("status", ["unreadable", "malformed", "newer"])
def test_a_file_that_cannot_be_used_is_invalid(status):
    found = choice(tier(status=status, problem="because"))
    assert facts(found) == ("r2", "fallback", "invalid", False)
    assert status in found.reason
    assert "because" in found.reason


@pytest.mark.parametrize(
    "bad", [Invalid("broken"), entry("r4"), entry("r3", llvm="21.0"), entry("r9", a_spec(grid=(Perm({"r": 9}),)))]
)
def test_one_bad_entry_never_costs_a_good_one(bad):
    """In the same list before it, and in a tier above."""
    for tiers in ([tier(bad, entry("r3"))], [tier(bad, name="above"), tier(entry("r3"))]):
        assert facts(choice(*tiers)) == ("r3", "manifest", "ok", True)


def test_bad_entries_are_reported_one_by_one():
    found = choice(tier(Invalid("broken"), entry("r4")), tier(entry("r3", llvm="21.0"), name="system manifest"))
    assert facts(found) == ("r2", "fallback", "invalid", False)
    assert [(c.tier, c.suffix, c.state) for c in found.consulted] == [
        ("user manifest", "", "invalid"),
        ("user manifest", "r4", "ineligible"),
        ("system manifest", "r3", "stale"),
        ("fallback", "r2", "ok"),
    ]


def test_two_environments_on_one_box_do_not_disturb_each_other():
    both = tier(entry("r3", llvm="22.1"), entry("r1", llvm="21.0"))
    assert facts(choice(both, llvm="22.1")) == ("r3", "manifest", "ok", True)
    assert facts(choice(both, llvm="21.0")) == ("r1", "manifest", "ok", True)


def test_a_hand_written_winner_is_unverified_and_used():
    for written in (tier(names={"kern": "r3"}), tier(Entry([RegimeWinner("r3")]))):
        found = choice(written)
        assert facts(found) == ("r3", "manifest", "unverified", True)
        assert "by hand" in found.reason
    assert choice(tier(names={"kern": "r4"})).state == "ineligible"


@pytest.mark.parametrize("name", ["kern", "kern[f32]", "lib:kern", "lib:kern[f32]"])
def test_a_flat_map_names_a_kernel_in_four_ways(name):
    assert choice(tier(names={name: "r3"}, box=None)).emitted == "r3"
    assert choice(tier(names={name.replace("kern", "kernel"): "r3"}, box=None)).state == "missing"
    assert choice(tier(names={name.replace("f32", "f64").replace("lib", "other"): "r3"}, box=None)).state == (
        "unverified" if name == "kern" else "missing"
    )


def test_an_ambiguous_name_is_reported_and_unused():
    both = ("lib", "other")
    found = choice(tier(names={"kern": "r3"}), namesakes=both)
    assert facts(found) == ("r2", "fallback", "invalid", False)
    assert "'kern' is ambiguous: write one of lib:kern, other:kern" in found.reason
    assert choice(tier(names={"kern": "r3", "lib:kern": "r1"}), namesakes=both).emitted == "r1"


TIERS = (
    "session pin",
    "TUNE_POLICY",
    "TUNE_MANIFEST",
    "program pin",
    "published value",
    "application manifest",
    "user manifest",
    "system manifest",
    "shipped profile",
)


def a_tier(name, suffix="r3"):
    if name == "TUNE_POLICY":
        return Tier(name, "reference", suffix="reference", note="TUNE_POLICY=reference")
    source = {"session pin": "pin", "program pin": "pin", "published value": "published"}.get(name, "manifest")
    source = "profile" if name == "shipped profile" else source
    return tier(names={"kern": suffix}, box=None, name=name, source=source)


@pytest.mark.parametrize("first", range(len(TIERS)))
def test_the_highest_tier_with_a_usable_entry_wins(first):
    """All tiers from `first` down suggest something; those above are empty or hold something unusable."""
    above = [a_tier(n, "r9" if i % 2 else "r4") for i, n in enumerate(TIERS[:first]) if n != "TUNE_POLICY"]
    found = choice(*above, a_tier(TIERS[first], "r3"), *(a_tier(name, "r1") for name in TIERS[first + 1 :]))
    assert found.consulted[-1].tier == TIERS[first]
    assert found.emitted == ("reference" if TIERS[first] == "TUNE_POLICY" else "r3")
    others = {"session pin": "pin", "program pin": "pin", "published value": "published"}
    others |= {"TUNE_POLICY": "reference", "shipped profile": "profile"}
    assert found.source == others.get(TIERS[first], "manifest")
    assert found.tuned is (TIERS[first] not in ("TUNE_POLICY", "shipped profile"))


def test_the_policy_reference_says_so():
    found = choice(a_tier("TUNE_POLICY"), tier(entry("r3")))
    assert facts(found) == ("reference", "reference", "missing", False)
    assert found.reason == "TUNE_POLICY=reference"
    assert choice(a_tier("session pin", "r3"), a_tier("TUNE_POLICY")).emitted == "r3"


@pytest.mark.parametrize(("declines", "runs"), [(("r2",), "r1"), (("r1", "r2"), "reference")])
def test_the_chain_is_tried_in_order_down_to_the_reference(declines, runs):
    found = choice(make=lambda row: Outcome("declined", "no") if row.suffix in declines else Outcome("ok"))
    assert found.emitted == runs
    assert found.source == ("reference" if runs == "reference" else "fallback")
    assert found.state == "missing"


def test_nothing_below_the_winner_is_made():
    made = []
    choice(tier(entry("r3")), make=lambda row: made.append(row.suffix) or Outcome("ok"))
    assert made == ["r3"]


REGIMES = a_spec(fallback="r1 if N <= 2; r3 if N > 99; r2; reference")


def test_each_regime_has_a_choice_of_its_own():
    tuned = entry({"N <= 2": "r3", "N > 99": "reference", "": "r1"}, REGIMES)
    found = resolved(tier(tuned), spec=REGIMES).choices
    assert [(c.condition, c.emitted, c.source) for c in found] == [
        ("N <= 2", "r3", "manifest"),
        ("N > 99", "reference", "manifest"),
        ("", "r1", "manifest"),
    ]


def test_a_regime_that_was_not_tuned_runs_its_chain():
    found = resolved(tier(entry({"": "r3"}, REGIMES)), spec=REGIMES).choices
    assert [(c.emitted, c.source, c.state) for c in found] == [
        ("r1", "fallback", "missing"),
        ("r3", "fallback", "missing"),
        ("r3", "manifest", "ok"),
    ]
    assert found[0].reason == "no winner for N <= 2 in its entry"


def test_a_regime_in_which_nothing_runs_passes_on():
    found = resolved(
        spec=REGIMES, make=lambda row: Outcome("declined") if row.suffix == "r1" else Outcome("ok")
    ).choices
    assert [c.emitted for c in found] == [None, "r3", "r2"]
    assert not found[0].tuned


def test_a_winner_written_by_hand_holds_for_all_regimes():
    found = resolved(tier(names={"kern": "r3"}), spec=REGIMES).choices
    assert [c.emitted for c in found] == ["r3", "r3", "r3"]


def test_names_of_templates_from_a_manifest_read_nothing_outside(tmp_path):
    """A hostile entry names files: they count as missing, so the entry is stale."""
    (tmp_path / "templates").mkdir()
    (tmp_path / "secret").write_text("secret")
    spec = msgspec.structs.replace(SPEC, templates=Templates(tmp_path / "templates"))
    names = ["../secret", str(tmp_path / "secret"), "tunegen/../__init__.py", "tunegen//etc/passwd", "", ".", "a\0b",
             "x" * 5000, "tunegen/", "../templates/../secret"]  # fmt: skip
    assert [spec.templates.source(name) for name in names] == [None] * len(names)
    hostile = msgspec.structs.replace(entry("r3"), templates=dict.fromkeys(names, "0"))
    assert choice(tier(hostile), spec=spec).state == "stale"
