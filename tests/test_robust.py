"""Robust choices over made-up spaces: the smallest worst slowdown wins, whatever wins on average."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tunegen.errors import StoreError
from tunegen.fallback import parse_fallback
from tunegen.harness.robust import best_chain, read_labelled, robust
from tunegen.harness.simulate import Space, synthetic, write_spaces


def space(condition: str = "", key: str = "gemm[f32]", **ns: float) -> Space:
    return msgspec.structs.replace(synthetic(ns, next(iter(ns)), key), condition=condition)


def test_a_runner_that_is_never_far_behind_beats_one_that_is_mostly_the_best() -> None:
    found = robust({
        "idle": [space(mid=100.0, fast=80.0, steady=84.0)],
        "loaded": [space(mid=100.0, fast=130.0, steady=90.0)],
        "other": [space(mid=100.0, fast=80.0, steady=84.0)],
    })  # fmt: skip
    (choice,) = found
    assert choice.fallback == "steady; reference"
    assert choice.worst == pytest.approx(84 / 80)
    assert choice.picks[0].slowdowns == pytest.approx({"idle": 1.05, "loaded": 1.0, "other": 1.05})
    assert choice.picks[0].default_worst == pytest.approx(1.25)


def test_boxes_with_other_features_are_served_by_the_same_chain() -> None:
    """The wide rows run on one box alone; the rest of the chain serves the others."""
    (choice,) = robust({
        "wide": [space(vl8=100.0, vl16=60.0, vl4=170.0)],
        "narrow": [space(vl8=100.0, vl4=150.0)],
        "old": [space(vl4=300.0, reference=900.0)],
    })  # fmt: skip
    assert choice.fallback == "vl16; vl8; vl4; reference"
    assert choice.worst == 1.0


def test_a_chain_is_not_longer_than_it_has_to_be() -> None:
    (choice,) = robust({"wide": [space(vl8=100.0, vl16=100.0)], "narrow": [space(vl8=100.0)]})
    assert choice.fallback == "vl8; reference"


def test_regimes_keep_their_conditions_and_make_a_chain_that_a_declaration_takes() -> None:
    (choice,) = robust({
        "a": [space(nr32=90.0, nr64=100.0), space("M <= 2", nr32=200.0, nr64=100.0)],
        "b": [space("M <= 2", nr32=150.0, nr64=100.0), space(nr32=80.0, nr64=100.0)],
    })  # fmt: skip
    assert choice.fallback == "nr64 if M <= 2; nr32; reference"
    assert parse_fallback(choice.fallback, {"nr32", "nr64"}, ("M",)).regimes == ("M <= 2", "")


def test_a_reference_that_wins_ends_the_chain() -> None:
    (choice,) = robust({"a": [space(row1=100.0, reference=50.0)]})
    assert choice.fallback == "reference"


def test_keys_are_chosen_apart() -> None:
    found = robust({"a": [space(key="exp[f32]", a=1.0, b=2.0), space(key="exp[f64]", a=2.0, b=1.0)]})
    assert {choice.key: choice.fallback for choice in found} == {
        "exp[f32]": "a; reference",
        "exp[f64]": "b; reference",
    }


def test_the_search_is_exact_where_a_greedy_one_is_not() -> None:
    """x is the best first item for three spaces, but leaves the fourth to a poor one."""
    slow = {"one": {"x": 1.0, "y": 1.1}, "two": {"x": 1.0, "y": 1.1}, "three": {"y": 1.2, "z": 1.0}}
    assert best_chain(slow) == ("x", "z")


def test_files_are_told_apart_by_name_and_a_bad_one_is_named(tmp_path: Path) -> None:
    one, other = tmp_path / "idle.json", tmp_path / "loaded.json"
    write_spaces(one, [space(a=1.0)])
    write_spaces(other, [space(a=2.0)])
    assert set(read_labelled([one, other])) == {"idle.json", "loaded.json"}
    other.write_text("{}")
    with pytest.raises(StoreError, match=r"loaded\.json"):
        read_labelled([one, other])
