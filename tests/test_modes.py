"""Modes: one winner in normal, the whole grid in tune and test, and a gate around every variant in test."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from toys import COMPANIONS, GENERIC, TOY, TOY_TEMPLATE, ran

import tunegen
from tunegen.errors import CompileError, Declined, GateError, KnobError, RenderError
from tunegen.making import make

RIGHT = TOY.replace("out[...] = -1", "out[...] = 3")


def call(variant, dtype=np.float32):
    out = np.zeros(3, dtype)
    result = variant(out + 1, out)
    return int(result[0])


def test_in_normal_mode_the_reference_is_the_only_variant(library):
    made = library()
    assert list(made.toy.variants()) == ["reference"]
    assert call(made.toy.variants()["reference"]) == -1
    assert ran(made.toy) == 2


def test_in_tune_mode_every_row_is_a_callable_made_at_its_first_call(library, monkeypatch):
    monkeypatch.setenv("TUNE_MODE", "tune")
    made = library()
    variants = made.toy.variants()
    assert list(variants) == ["reference", "row1", "row2", "row3", "row4", "five"]
    assert make.counters["rendered"] == 0
    assert [call(variants[name]) for name in ("reference", "row1", "row2", "row3", "five")] == [-1, 1, 2, 3, 5]
    assert make.counters["rendered"] == 4
    assert made.toy.variants()["row1"] is variants["row1"]
    assert int(variants["row1"](np.zeros(2, np.float32))[0]) == 1


def test_a_variant_checks_its_arguments_as_the_kernel_does(library, monkeypatch):
    monkeypatch.setenv("TUNE_MODE", "tune")
    for variant in (library().toy.variants()[name] for name in ("reference", "row1")):
        with pytest.raises(TypeError, match="operand x"):
            variant(np.zeros(3, np.int32), np.zeros(3, np.float32))


@pytest.mark.parametrize("mode", ["tune", "test"])
def test_in_tune_and_test_mode_the_kernel_runs_its_reference(library, monkeypatch, mode):
    made = library(COMPANIONS)
    assert tunegen.tune_manifest_set(made.toy, "row4")
    monkeypatch.setenv("TUNE_MODE", mode)
    tunegen.load()
    assert (ran(made.toy), ran(made.pack)) == (-1, -1)
    (row,) = tunegen.tune_status()
    assert (row.emitted, row.source, row.tuned, row.reason) == (
        "reference", "reference", False, "TUNE_MODE is not normal"
    )  # fmt: skip
    with pytest.raises(tunegen.KernelNotFound, match="not stamped, because TUNE_MODE is not normal"):
        tunegen.explain("toy")
    monkeypatch.setenv("TUNE_MODE", "normal")
    tunegen.load()
    assert (ran(made.toy), ran(made.pack)) == (4, 4)


def test_in_test_mode_a_wrong_variant_raises_with_operand_index_and_values(library, monkeypatch):
    monkeypatch.setenv("TUNE_MODE", "test")
    variants = library(RIGHT).toy.variants()
    assert call(variants["reference"]) == 3
    assert call(variants["row3"]) == 3
    with pytest.raises(GateError) as caught:
        call(variants["row1"])
    error = caught.value
    assert (error.operand, error.index, error.got, error.expected) == ("out", (0,), 1.0, 3.0)
    assert str(error) == "toy__row1: operand out[0]: got 1.0, expected 3.0, allowed bitwise()"
    assert int(variants["row3"](np.zeros(2, np.float32))[0]) == 3
    assert variants["row3"](x=np.zeros(0, np.float32)).shape == (0,)


INOUT = """
@scope.tune(gen="twice.ll.j2", gate=bound("N"), cases=[case("some", N=8)])
@scope.tune_perm(row=1)
def twice(x: InOut[floats, "N"]) -> None:
    x *= 2
"""
TWICE = """
define void @{{ symbol }}(ptr %x, i64 %N, ptr %scratch) {
  %v = load {{ T.llvm }}, ptr %x
  %w = fadd {{ T.llvm }} %v, %v
  store {{ T.llvm }} %w, ptr %x
  ret void
}
"""


def test_the_oracle_of_an_updated_operand_starts_from_what_was_there(library, monkeypatch):
    monkeypatch.setenv("TUNE_MODE", "test")
    variant = library(INOUT, templates={"twice.ll.j2": TWICE}).twice.variants()["row1"]
    for dtype in (np.float32, np.float64):
        x = np.full(1, 3, dtype)
        assert variant(x) is x
        assert x[0] == 6
    with pytest.raises(GateError, match=r"operand x\[1\]: got 1.0, expected 2.0"):
        variant(np.ones(2, np.float32))


@pytest.mark.parametrize(
    ("template", "error"),
    [("{{ decline('no') }}", Declined), ("{{ nonsense }}", RenderError), ("nonsense", CompileError)],
)
@pytest.mark.parametrize("mode", ["tune", "test"])
def test_a_variant_that_cannot_be_made_raises_each_time(library, monkeypatch, mode, template, error):
    monkeypatch.setenv("TUNE_MODE", mode)
    variant = library(templates={"toy.ll.j2": template}).toy.variants()["row1"]
    for _ in range(2):
        with pytest.raises(error):
            call(variant)


def test_an_element_type_that_declines_says_why_and_the_other_runs(library, monkeypatch):
    monkeypatch.setenv("TUNE_MODE", "tune")
    decline = '{% if T.name == "f64" %}{{ decline("no f64 here") }}{% endif %}\n'
    variant = library(GENERIC, templates={"generic.ll.j2": decline + TOY_TEMPLATE}).toy.variants()["row1"]
    assert call(variant) == 1
    with pytest.raises(Declined, match="f64: no f64 here"):
        call(variant, np.float64)


@pytest.mark.parametrize("name", ["TUNE_MODE", "TUNE_POLICY", "TUNE_THREADS", "TUNE_LOG"])
def test_a_bad_value_is_an_error_that_lists_the_legal_ones_at_each_use(library, monkeypatch, name):
    made = library()
    monkeypatch.setenv(name, "nonsense")
    for use in (lambda: ran(made.toy), tunegen.tune_status, tunegen.load, lambda: ran(made.toy)):
        with pytest.raises(KnobError, match=f"{name}='nonsense': allowed"):
            use()
    monkeypatch.delenv(name)
    assert ran(made.toy) == 2


def test_an_unknown_variable_is_reported_once(library, monkeypatch, caplog):
    monkeypatch.setenv("TUNE_MOED", "test")
    one, two = library(), library()
    for _ in range(2):
        assert (ran(one.toy), ran(two.toy)) == (2, 2)
        tunegen.load()
        tunegen.apply_policy()
    assert caplog.text.count("unknown environment variable TUNE_MOED") == 1


def test_a_row_that_cannot_be_made_is_said_once_however_often_the_kernel_is_loaded(library, caplog):
    made = library(templates={"toy.ll.j2": "nonsense"})
    with caplog.at_level(logging.WARNING, "tunegen"):
        for _ in range(3):
            assert ran(made.toy) == -1
            tunegen.load()
    said = [record.message.partition(":")[0] for record in caplog.records]
    assert said == ["toy_f32__row2", "toy_f32__row1"]
