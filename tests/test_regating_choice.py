"""Which winner of another LLVM is asked about, and what the gate's word makes of it: without a disk or a process."""

from __future__ import annotations

import msgspec
import pytest
from test_resolve import LLVM, SPEC, T, a_spec, choice, entry, facts, manifest, other, tier

import tunegen
from tunegen.choosing.resolve import Outcome, Sources, Tier, consult, resolve
from tunegen.grid import Perm

OLD = "21.0"
UPGRADED = f"llvm changed from {OLD} to {LLVM}"
PASSED, REFUSED = Outcome("ok"), Outcome("failed", "wrong: it answers 3")
BOX = manifest().box
AGED = entry("r3", llvm=OLD)
NOW = entry("r3").digest
NAMED = msgspec.structs.replace(BOX, features=(*BOX.features, "feature-of-old"))
UNLIKE = "features: +feature-of-old there, none more here"


def gated(*tiers, said=PASSED, spec=SPEC, **options):
    """The default choice with a gate that says `said`, and what it was asked."""
    asked = []

    def gate_again(suffix, digest):
        asked.append((suffix, digest))
        return said[suffix] if isinstance(said, dict) else said

    make = options.pop("make", lambda row: Outcome("ok"))
    found = resolve(spec, T, options.pop("box", BOX), Sources(tiers, make, LLVM, ("lib",), gate_again))
    return found.default, asked


def test_a_winner_that_passes_the_gate_again_stays_stamped_and_is_marked():
    found, asked = gated(tier(AGED))
    assert facts(found) == ("r3", "manifest", "stale", False)
    assert (found.asked, found.reason) == ("r3", f"{UPGRADED}; it passed the gate again")
    assert found.path == "/user manifest"
    assert asked == [("r3", NOW)]


def test_a_winner_that_the_gate_refuses_falls_through_with_the_reason():
    found, _ = gated(tier(AGED), said=REFUSED)
    assert facts(found) == ("r2", "fallback", "stale", False)
    assert (found.asked, found.reason) == ("r3", f"{UPGRADED}; wrong: it answers 3")


def test_where_nobody_can_gate_a_winner_falls_through_as_any_stale_one():
    assert facts(choice(tier(AGED))) == ("r2", "fallback", "stale", False)
    assert choice(tier(AGED)).reason == UPGRADED


@pytest.mark.parametrize(
    "now",
    [
        a_spec(files={"k.j2": b"edited"}),
        a_spec(define={"epilogue": "gelu"}),
        a_spec(fn=other),
        a_spec(gate=tunegen.bound("N")),
        a_spec(grid=(*(Perm({"r": r}) for r in (1, 2)), Perm({"r": 3.0}, "r3"))),
    ],
)
def test_where_more_than_llvm_changed_the_gate_is_not_asked(now):
    found, asked = gated(tier(AGED), spec=now)
    assert (found.state, found.emitted, asked) == ("stale", "r2", [])
    assert found.reason.endswith(UPGRADED) or UPGRADED in found.reason


@pytest.mark.parametrize("field", ["digest", "parts"])
def test_an_entry_that_does_not_say_the_truth_of_itself_is_not_gated(field):
    wrong = {"digest": "sha256:0"} if field == "digest" else {"parts": {**AGED.parts, "llvm": "20.0"}}
    found, asked = gated(tier(msgspec.structs.replace(AGED, **wrong)))
    assert (found.emitted, found.state, asked) == ("r2", "stale", [])


def test_an_entry_of_another_box_is_not_gated():
    found, asked = gated(tier(AGED, box=msgspec.structs.replace(BOX, model="1")))
    assert (found.emitted, found.state, asked) == ("r2", "foreign", [])


def test_a_box_whose_features_another_llvm_names_is_this_one_still():
    found, asked = gated(tier(AGED, box=NAMED))
    assert (facts(found), asked) == (("r3", "manifest", "stale", False), [("r3", NOW)])
    assert found.reason == f"{UPGRADED}, {UNLIKE}; it passed the gate again"
    assert gated(tier(AGED, box=NAMED), said=REFUSED)[0].reason == f"{UPGRADED}, {UNLIKE}; wrong: it answers 3"


@pytest.mark.parametrize(
    ("box", "one"),
    [
        (NAMED, entry("r3")),
        (NAMED, msgspec.structs.replace(AGED, digest="")),
        (NAMED, msgspec.structs.replace(AGED, digest="sha256:0")),
        (msgspec.structs.replace(NAMED, threads=BOX.threads + 1), AGED),
        (msgspec.structs.replace(NAMED, model="1"), AGED),
    ],
)
def test_a_box_with_other_features_is_another_one_unless_llvm_alone_can_be_why(box, one):
    found, asked = gated(tier(one, box=box))
    assert (found.emitted, found.state, asked) == ("r2", "foreign", [])
    assert UNLIKE in found.reason


@pytest.mark.parametrize(
    "tiers",
    [
        (tier(AGED, entry("r1")),),
        (tier(entry("r1"), AGED),),
        (tier(AGED), tier(entry("r1"), name="system manifest")),
        (tier(AGED), tier(names={"kern": "r1"}, name="system manifest")),
    ],
)
def test_a_choice_of_this_environment_goes_before_one_of_another_llvm(tiers):
    """So two environments of one box, each with its own LLVM, do not stamp each other's winners."""
    found, asked = gated(*tiers)
    assert (found.emitted, found.tuned, asked) == ("r1", True, [])


def test_a_winner_that_passed_goes_before_a_profile_and_the_first_that_passes_wins():
    profile = tier(entry("r1"), name="profile", source="profile")
    assert gated(tier(AGED), profile)[0].emitted == "r3"
    refused, asked = gated(tier(AGED, entry("r2", llvm=OLD)), profile, said={"r3": REFUSED, "r2": PASSED})
    assert (refused.emitted, [suffix for suffix, _ in asked]) == ("r2", ["r3", "r2"])
    assert gated(tier(AGED), profile, said=REFUSED)[0].source == "profile"


def test_a_policy_that_wants_the_reference_is_above_it():
    forced = Tier("TUNE_POLICY", "reference", suffix="reference")
    assert gated(forced, tier(AGED))[1] == []


def test_the_reference_needs_no_gate():
    found, asked = gated(tier(entry("reference", llvm=OLD)))
    assert facts(found) == ("reference", "manifest", "stale", False)
    assert (found.reason, asked) == (f"{UPGRADED}; the reference is as it was", [])


@pytest.mark.parametrize("state", ["declined", "failed"])
def test_what_cannot_be_made_any_more_falls_through(state):
    found, _ = gated(tier(AGED), make=lambda row: Outcome(state, "why") if row.suffix == "r3" else Outcome("ok"))
    assert facts(found) == ("r2", "fallback", "stale", False)
    assert found.reason == f"{UPGRADED}; why"


def test_each_regime_has_its_own_word():
    spec = a_spec("r2 if N <= 2; r2 if N <= 9; r2")
    aged = entry({"N <= 2": "r3", "N <= 9": "reference", "": "r1"}, spec, OLD)
    said = {"r3": REFUSED, "r1": PASSED}
    found = resolve(spec, T, BOX, Sources([tier(aged)], lambda row: Outcome("ok"), LLVM, (), lambda s, _: said[s]))
    assert [(c.emitted, c.source) for c in found.choices] == [
        ("r2", "fallback"), ("reference", "manifest"), ("r1", "manifest")
    ]  # fmt: skip
    assert not any(c.tuned for c in found.choices)


def test_an_explanation_says_the_same():
    found = consult(SPEC, T, BOX, Sources([tier(AGED)], lambda r: Outcome("ok"), LLVM, (), lambda s, d: PASSED), 0)
    assert [(c.tier, c.state, c.usable) for c in found] == [
        ("user manifest", "stale", True), ("fallback", "ok", True)
    ]  # fmt: skip
    assert found[0].reason == f"{UPGRADED}; it passed the gate again"
