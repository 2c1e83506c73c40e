"""The grid: rows, their names, and lazily enumerated products."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tunegen.errors import ExpressionError
from tunegen.expressions import Expression
from tunegen.grid import Grid, Perm, Product, suffix_of

WORDS = st.from_regex(r"[a-z][a-z0-9]{0,4}", fullmatch=True)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
KINDS = [st.booleans(), st.integers(-999, 999), FLOATS, WORDS]


@pytest.mark.parametrize(
    ("value", "piece"),
    [
        (True, "x"),
        (False, "nox"),
        (4, "x4"),
        (-4, "xm4"),
        (0.5, "x0d5"),
        (1.0, "x1d0"),
        (-0.25, "xm0d25"),
        (1e-7, "x1em07"),
        (1e20, "x1ep20"),
        ("avx2", "x_avx2"),
        ("1", "x_1"),
    ],
)
def test_the_piece_of_a_value(value, piece):
    assert suffix_of({"x": value}) == piece
    assert suffix_of({"before": 1, "x": value}) == f"before1_{piece}"


@given(st.one_of(*KINDS), st.one_of(*KINDS))
def test_distinct_values_of_an_axis_have_distinct_names(a, b):
    """`1`, `1.0`, `True` and `"1"` are four different values."""
    assume((type(a), repr(a)) != (type(b), repr(b)))
    assert suffix_of({"x": a}) != suffix_of({"x": b})


@given(st.data())
def test_names_are_identifiers_and_find_their_rows(data):
    """Formatting and finding round-trip for a grid whose axes have one type each."""
    kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    axes = data.draw(st.lists(WORDS, min_size=len(kinds), max_size=len(kinds), unique=True))
    drawn = [data.draw(st.lists(kind, min_size=1, max_size=3, unique_by=repr)) for kind in kinds]
    values = {axis: tuple(some) for axis, some in zip(axes, drawn, strict=True)}
    grid = Grid((Product(values),))
    assume(not any("reserved" in sentence for sentence in grid.check(set())))
    assert list(grid.check(set())) == []
    assert len(grid) == math.prod(map(len, values.values()))
    for row in grid:
        assert row.suffix.isidentifier()
        assert grid.find(row.suffix) == row
    assert grid.find("no such row") is None


def test_rows_count_in_reading_order_and_the_last_axis_varies_fastest():
    product = Product({"a": (1, 2), "b": (1, 2, 3)}, Expression("a + b != 4", ("a", "b")))
    grid = Grid((Perm({"a": 9, "b": 9}, "first"), product))
    assert [row.suffix for row in grid] == ["first", "a1_b1", "a1_b2", "a2_b1", "a2_b3"]
    assert len(grid) == 5


def test_a_large_product_is_counted_without_being_kept():
    grid = Grid((Product({"a": tuple(range(50)), "b": tuple(range(50))}, Expression("a < b", ("a", "b"))),))
    assert len(grid) == 50 * 49 // 2
    assert next(iter(grid)).suffix == "a0_b1"


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ((Perm({"a": 1}), Perm({"b": 1})), r"\{'b': 1\}.*same axes"),
        ((Perm({"a": 1, "b": 2}), Perm({"b": 2, "a": 1})), "same order"),
        ((Perm({"a": 1}), Product({"a": (2, 1)})), r"\{'a': 1\}.*'a1' is taken"),
        ((Product({"a": (3, 3)}),), "'a3' is taken"),
        ((Perm({"a": "x-y"}),), "'a_x-y' is no identifier"),
        ((Perm({}),), "no identifier"),
        ((Perm({"a": 1}, "größe"),), "no identifier"),
        ((Perm({"a": 1}, "reference"),), "reserved"),
        ((Perm({"reference": True}),), "reserved"),
        ((Product({"a": ()}),), "a has no values"),
        ((Product({"a": (1,)}, Expression("a > 1", ("a",))),), "no rows"),
        ((Product({"a": ("x",)}, Expression("a > 1", ("a",))),), r"row \{'a': 'x'\}: where 'a > 1'"),
    ],
)
def test_what_is_wrong_with_a_grid_is_said_with_row_and_value(parts, problem):
    with pytest.raises(AssertionError, match=problem):
        raise AssertionError("; ".join(Grid(parts).check(set())))


def test_a_where_that_does_not_fit_its_values_is_an_expression_error():
    with pytest.raises(ExpressionError, match="row"):
        list(Product({"a": ("x",)}, Expression("a > 1", ("a",))).rows())
