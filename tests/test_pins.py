"""Pins of a program: one row of a kernel, asked for by name, until it is taken back."""

from __future__ import annotations

import json

import numpy as np
import pytest
from toys import COMPANIONS, GENERIC, REGIMES, TOY_TEMPLATE, ran

import tunegen
from tunegen.box import this_box
from tunegen.errors import KernelNotFound
from tunegen.public import sources
from tunegen.public.settings import effective


def test_a_pin_holds_from_the_first_call_or_from_the_next_load_until_it_is_taken_back(library):
    made = library()
    tunegen.pin("toy", "row3")
    assert ran(made.toy) == 3
    tunegen.pin(made.toy, "row1")
    assert ran(made.toy) == 3, "a stamp is frozen"
    tunegen.load()
    assert ran(made.toy) == 1
    tunegen.pin(made.toy, "reference")
    tunegen.load(made.__name__)
    assert ran(made.toy) == -1
    tunegen.pin("toy", None)
    tunegen.pin("toy", None)
    tunegen.load()
    assert ran(made.toy) == 2


def test_a_pin_goes_before_files_and_published_values_but_not_before_the_environment(library, monkeypatch, tmp_path):
    made = library()
    assert tunegen.tune_manifest_set(made.toy, "row3")
    tunegen.tune_manifest("app", tmp_path)
    (tmp_path / f"app-{this_box().file_name}").write_text('{"toy": "row3"}')
    tunegen.pin("toy", "row1")
    assert ran(made.toy) == 1
    (tmp_path / "named.json").write_text('{"toy": "five"}')
    monkeypatch.setenv("TUNE_MANIFEST", str(tmp_path / "named.json"))
    tunegen.load()
    assert ran(made.toy) == 5
    monkeypatch.setenv("TUNE_POLICY", "reference")
    tunegen.load()
    assert ran(made.toy) == -1


def test_sessions_that_are_made_later_see_it_below_what_they_were_given(library, tmp_path):
    made = library()
    before = tunegen.session()
    tunegen.pin("toy", "row3")
    after = tunegen.session()
    tunegen.pin("toy", None)
    (tmp_path / "own.json").write_text('{"toy": "five"}')
    assert [ran(s.bind(made.toy)) for s in (before, after, tunegen.session())] == [2, 3, 2]
    tunegen.pin("toy", "row3")
    assert ran(tunegen.session(pins={"toy": "row1"}).bind(made.toy)) == 1
    assert ran(tunegen.session(manifest=tmp_path / "own.json").bind(made.toy)) == 5


@pytest.mark.parametrize("pin", [("toy[f64]", "row3"), ("toy", "row3", "f64")])
def test_a_pin_may_be_for_one_element_type(library, pin):
    made = library(GENERIC, {"generic.ll.j2": TOY_TEMPLATE})
    tunegen.pin(*pin)
    assert (ran(made.toy), ran(made.toy, dtype=np.float64)) == (1, 3)
    tunegen.pin("toy", "row2")
    tunegen.load()
    assert (ran(made.toy), ran(made.toy, dtype=np.float64)) == (2, 2), "the last one counts"
    tunegen.pin(made.toy, None, "f64")
    tunegen.load()
    assert (ran(made.toy), ran(made.toy, dtype=np.float64)) == (2, 1)


def test_a_pin_holds_in_all_regimes_and_for_companions(library):
    made, family = library(REGIMES), library(COMPANIONS)
    tunegen.pin(made.toy, "row3")
    tunegen.pin(family.toy, "row4")
    assert (ran(made.toy, 2), ran(made.toy, 3)) == (3, 3)
    assert (ran(family.toy, 2), ran(family.pack), ran(family.unpack)) == (4, 4, 4)


@pytest.mark.parametrize(
    ("pin", "said"),
    [
        (("tea", "row1"), "no kernel 'tea'"),
        (("toy", "row9"), "toy: 'row9' is no row; rows are reference, row1"),
        (("toy", ""), "toy: '' is no row"),
        (("toy", 3), "toy: 3 is no row"),
        (("toy[f64]", "row1"), "toy has no element type 'f64'; there are f32"),
        (("toy", "row1", "f64"), "toy has no element type 'f64'; there are f32"),
        (("tea", None), "no kernel 'tea'"),
    ],
)
def test_a_pin_that_names_nothing_is_an_error_and_changes_nothing(library, pin, said):
    made = library()
    tunegen.pin("toy", "row3")
    with pytest.raises(KernelNotFound, match=said):
        tunegen.pin(*pin)
    assert ran(made.toy) == 3


def test_a_pin_says_whose_kernel_it_means_where_names_clash(library):
    one, two = library(), library()
    with pytest.raises(KernelNotFound, match="ambiguous"):
        tunegen.pin("toy", "row3")
    tunegen.pin(f"{two.__name__}:toy", "row3")
    tunegen.pin(one.toy, "row1")
    assert (ran(one.toy), ran(two.toy)) == (1, 3)


def test_a_pin_that_cannot_run_here_passes_on_and_says_why(library):
    made = library()
    assert tunegen.tune_manifest_set(made.toy, "row3")
    tunegen.pin("toy", "row4")
    assert ran(made.toy) == 3
    (row,) = tunegen.tune_status()
    assert (row.emitted, row.source, row.state, row.tuned) == ("row3", "manifest", "ok", True)
    first = tunegen.explain("toy").tiers[1]
    assert (first["tier"], first["suffix"], first["state"]) == ("program pin", "row4", "ineligible")


def test_status_explain_and_config_show_a_pin(library):
    made = library()
    tunegen.pin("toy", "row3")
    (row,) = tunegen.tune_status()
    assert (str(row), row.tuned) == ("toy[f32]: row3 (pin)", True)
    explanation = tunegen.explain("toy")
    assert explanation.source == "pin"
    assert "  program pin: row3: ok" in explanation.lines()
    name = f"{made.__name__}: pin of toy[f32]"
    (shown,) = [row for row in effective() if row.name == name]
    assert (shown.value, shown.origin) == ("row3", "application")
    with tunegen.session(pins={"toy": "row1"}) as session:
        (shown,) = [row for row in effective(session) if row.name == name]
        assert (shown.value, shown.origin) == ("row1", "call")
    tunegen.pin("toy", None)
    assert name not in [row.name for row in effective()]


def test_a_pin_is_no_word_of_a_manifest_and_reaches_no_other_process(library, child):
    made = library()
    tunegen.pin("toy", "row3")
    ran(made.toy)
    assert not [path for path in sources.files_at_hand() if path.exists()]
    done = child(f"import json, tunegen, {made.__name__}; print(json.dumps([str(r) for r in tunegen.tune_status()]))")
    assert json.loads(done.stdout) == ["toy[f32]: row2 (fallback: no manifest entry)"], done.stderr
