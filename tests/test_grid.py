"""The grid: rows, their names, and lazily enumerated products."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tunegen import points
from tunegen.errors import ExpressionError
from tunegen.expressions import Expression
from tunegen.grid import LIMITS, Grid, Perm, Product, suffix_of

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
    assume(not any("reserved" in sentence for sentence in grid.check()))
    assert list(grid.check()) == []
    assert grid.count().rows == math.prod(map(len, values.values()))
    for row in grid:
        assert row.suffix.isidentifier()
        assert grid.find(row.suffix) == row
    assert grid.find("no such row") is None


def test_rows_count_in_reading_order_and_the_last_axis_varies_fastest():
    product = Product({"a": (1, 2), "b": (1, 2, 3)}, Expression("a + b != 4", ("a", "b")))
    grid = Grid((Perm({"a": 9, "b": 9}, "first"), product))
    assert [row.suffix for row in grid] == ["first", "a1_b1", "a1_b2", "a2_b1", "a2_b3"]
    assert grid.count().rows == 5


def test_a_large_product_is_counted_without_being_kept():
    grid = Grid((Product({"a": tuple(range(50)), "b": tuple(range(50))}, Expression("a < b", ("a", "b"))),))
    assert grid.count().rows == 50 * 49 // 2
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
        raise AssertionError("; ".join(Grid(parts).check()))


def test_a_where_that_does_not_fit_its_values_is_an_expression_error():
    with pytest.raises(ExpressionError, match="row"):
        list(Product({"a": ("x",)}, Expression("a > 1", ("a",))).rows())


LARGE = {
    "mr": tuple(range(1, 33)),
    "nv": tuple(range(1, 17)),
    "kc": tuple(range(32, 1024, 32)),
    "unroll": (1, 2, 4, 8, 16),
    "ahead": tuple(range(16)),
    "pack": (False, True),
}
"""2,539,520 points."""
WHERE = "mr * nv + nv < registers and mr * nv >= 8 and ahead * kc <= 8192"


EXPLICIT = "mr8_nv1_kc32_unroll1_ahead1_pack"


def large(where: str = WHERE, **changes: tuple) -> Grid:
    values = {**LARGE, **changes}
    return Grid((Perm(dict.fromkeys(values, 1), "plain"), Product(values, Expression(where, (*values, *LIMITS)))))


def test_a_grid_of_millions_is_checked_counted_and_searched_by_name_without_a_walk(monkeypatch):
    """No more than a few thousand values are tried in all that a declaration and a load do."""
    taken = 0

    def take(steps, some=1):
        nonlocal taken
        taken += some
        steps.left -= some
        return steps.left >= 0

    monkeypatch.setattr(points.Steps, "take", take)
    grid = large()
    assert list(grid.check()) == []
    assert grid.count() == points.Count(2_132_801)
    row = grid.find("mr31_nv16_kc992_unroll16_ahead8_pack")
    assert row is not None
    assert row.perm == {"mr": 31, "nv": 16, "kc": 992, "unroll": 16, "ahead": 8, "pack": True}
    assert grid.find("mr1_nv1_kc32_unroll1_ahead0_pack") is None  # mr * nv >= 8
    assert grid.find("mr31_nv16_kc992_unroll16_ahead8_pack_") is None
    assert grid.place("plain") < grid.place("mr8_nv1_kc32_unroll1_ahead0_nopack") < grid.place(row.suffix)
    assert taken < 10_000


def test_a_limit_of_the_box_prunes_rows_there_and_nowhere_else():
    grid = large()
    there = grid.on({"registers": 32, "vector_bytes": 64})
    assert there.count().rows < grid.count().rows
    assert all(row.suffix == "plain" or row.perm["mr"] * row.perm["nv"] + row.perm["nv"] < 32
               for row in itertools.islice(there, 1000))  # fmt: skip
    name = "mr31_nv16_kc32_unroll1_ahead0_pack"
    assert grid.find(name) is not None
    assert there.find(name) is None
    assert there.find("plain") is not None


def test_an_axis_may_have_the_name_of_a_limit():
    grid = Grid((Product({"registers": (8, 16)}, Expression("registers < 16", ("registers",))),))
    assert [row.suffix for row in grid.on({"registers": 4})] == ["registers8"]


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ((Perm(dict.fromkeys(LARGE, 1), EXPLICIT), large().parts[1]), f"'{EXPLICIT}' is taken"),
        ((*large().parts, Product(LARGE, Expression("mr == 8 and nv == 1", tuple(LARGE)))), "'mr8_nv1_.*' is taken"),
        ((*large().parts, Perm({**dict.fromkeys(LARGE, 1), "mr": 8, "kc": 32, "pack": True})), "'mr8.*' is taken"),
        (large(kc=(64, 32, 64)).parts, "'mr1_nv8_kc64_.*' is taken"),
        (large("mr > 64").parts[1:], "no rows"),
        ((Product({"kind": ("a", "a_b"), "b": (1, 2)}),), "'kind_a' and 'kind_a_b' run together"),
        ((Product({**LARGE, "how": ("a-b",)}),), "'mr1_.*_how_a-b' is no identifier"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_millions_of_rows_is_said_with_one_of_them(parts, problem):
    with pytest.raises(AssertionError, match=problem):
        raise AssertionError("; ".join(Grid(tuple(parts)).check()))


def test_products_that_share_points_but_no_row_are_fine():
    """Two constraints that exclude each other: the names are the same, the rows are not."""
    low, high = (Product(LARGE, Expression(text, tuple(LARGE))) for text in ("mr < 16", "mr >= 16"))
    assert list(Grid((low, high)).check()) == []


@given(st.data())
def test_what_is_found_by_name_is_what_a_walk_meets_first(data):
    """Strings with `_` make names that can be read in two ways: the first row in reading order counts."""
    words = st.sampled_from(["x", "x_b", "x_b_x", "b_x"])
    values = {axis: tuple(data.draw(st.lists(words, min_size=1, max_size=4, unique=True))) for axis in "abb2"}
    grid = Grid((Product(values),))
    rows = list(grid)
    for row in rows:
        assert grid.find(row.suffix) == next(r for r in rows if r.suffix == row.suffix)
    if len({row.suffix for row in rows}) < len(rows):
        assert any("run together" in sentence for sentence in grid.check())


def test_corners_take_each_value_that_some_row_takes():
    grid = Grid((Perm({"a": 9, "b": 9}), Product({"a": (1, 2, 3), "b": (1, 2)}, Expression("a != 2", ("a", "b")))))
    corners = list(grid.corners())
    assert {row.perm["a"] for row in corners} == {1, 3, 9}
    assert {row.perm["b"] for row in corners} == {1, 2, 9}
    assert len(list(large().corners())) <= 1 + sum(map(len, LARGE.values()))


def test_a_message_names_the_first_rows_and_counts_the_rest():
    assert Grid((Product({"a": (1, 2)}),)).names() == "a1, a2"
    assert large().names(2) == "plain, mr1_nv8_kc32_unroll1_ahead0_nopack, ... (2,132,801 in all)"
