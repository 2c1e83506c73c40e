"""Points under constraints: walked lazily, counted by reasoning, and cut with a word where that takes too long."""

from __future__ import annotations

import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunegen import points
from tunegen.errors import ExpressionError
from tunegen.expressions import Expression

NAMES = ("a", "b", "c", "d")


@st.composite
def wheres(draw):
    """Conjunctions over some of four axes."""
    name, number = st.sampled_from(NAMES), st.integers(0, 12)
    parts = [
        f"{draw(name)} * {draw(name)} {draw(st.sampled_from(['<=', '>', '==']))} {draw(number)}"
        if draw(st.booleans())
        else f"({draw(name)} < {draw(number)} or {draw(name)} + {draw(name)} >= {draw(number)})"
        for _ in range(draw(st.integers(1, 4)))
    ]
    return " and ".join(parts)


AXES = st.fixed_dictionaries({n: st.lists(st.integers(0, 6), min_size=1, max_size=4, unique=True) for n in NAMES})


@given(wheres(), AXES)
def test_a_walk_and_a_count_agree_with_brute_force_and_keep_its_order(where, axes):
    whole = Expression(where, NAMES)
    parts = points.parts_of(whole, axes, {}, ())
    expected = [p for v in itertools.product(*axes.values()) if whole(p := dict(zip(axes, v, strict=True)))]
    assert list(points.walk(axes, parts, {}, points.Steps())) == expected
    assert points.count(axes, parts, {}) == points.Count(len(expected))


def test_a_constraint_is_taken_apart_at_its_ands():
    where = Expression("(a < 2 and b < 'é and') and not (c or d) and (a or b)", NAMES)
    parts = where.conjuncts()
    assert [part.text for part in parts] == ["a < 2", "b < 'é and'", "not (c or d)", "a or b"]
    assert [part.names for part in parts] == [("a",), ("b",), ("c", "d"), ("a", "b")]
    assert Expression("a or b", NAMES).conjuncts() == (Expression("a or b", NAMES),)


def test_a_chain_of_constraints_over_10_to_the_12_points_is_counted_exactly():
    """Tied to its neighbours alone, an axis is counted once per value of a neighbour."""
    axes = {f"x{i}": range(10) for i in range(12)}
    where = Expression(" and ".join(f"x{i} <= x{i + 1}" for i in range(11)), tuple(axes))
    assert points.count(axes, where.conjuncts(), {}) == points.Count(293_930)


def test_independent_axes_multiply_however_many_there_are():
    axes = {f"x{i}": range(100) for i in range(20)}
    where = Expression("x0 < x1 and x2 != x3", tuple(axes))
    assert points.count(axes, where.conjuncts(), {}) == points.Count(4950 * 9900 * 100**16)


def test_a_count_that_takes_too_long_is_cut_and_says_at_least():
    axes = {name: range(100) for name in NAMES}
    where = Expression("a * b + c * d != 17", NAMES)
    cut = points.count(axes, where.conjuncts(), {}, steps=1000)
    assert not cut.exact
    assert 0 < cut.rows <= 1000
    assert str(cut) == f"at least {cut.rows}"
    assert str(points.Count(1_234_567)) == "1,234,567"


def test_what_a_part_rules_out_is_never_visited():
    """The first axis decides: all steps but one go to its values."""
    axes = {"a": range(1000), "b": range(1000), "c": range(1000)}
    steps = points.Steps(2003)
    found = list(
        points.walk(axes, Expression("a == 999 and b == 999 and c > 998", ("a", "b", "c")).conjuncts(), {}, steps)
    )
    assert found == []
    assert steps.ended
    steps = points.Steps(3000)
    assert (
        len(list(points.walk(axes, Expression("a == 999 and b == 999 and c > 998", NAMES).conjuncts(), {}, steps))) == 1
    )
    assert not steps.ended


def test_a_walk_of_a_million_points_keeps_none_of_them():
    axes = {"a": range(100), "b": range(100), "c": range(100)}
    tracemalloc.start()
    found = sum(1 for _ in itertools.islice(points.walk(axes, (), {}, points.Steps()), 50_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == 50_000
    assert peak < 200_000


def test_a_part_may_guard_the_next_one_against_values_of_another_type():
    axes = {"kind": ["none", 4, 8], "b": [False, True]}
    where = Expression("b and kind != 'none' and kind <= 4", tuple(axes))
    parts = points.parts_of(where, axes, {}, ())
    assert list(points.walk(axes, parts, {}, points.Steps())) == [{"kind": 4, "b": True}]
    assert points.count(axes, parts, {}) == points.Count(1)


def test_parts_that_name_what_is_not_given_are_left_out():
    axes = {"a": [1, 2, 3]}
    where = Expression("a < 3 and a <= limit", ("a", "limit"))
    assert [p.text for p in points.parts_of(where, axes, {}, ("limit",))] == ["a < 3"]
    given = {"limit": 1}
    parts = points.parts_of(where, axes, given, ("limit",))
    assert points.count(axes, parts, given) == points.Count(1)
    assert points.parts_of(None, axes, {}, ("limit",)) == ()


def test_a_value_that_does_not_fit_is_named():
    with pytest.raises(ExpressionError, match=r"row \{'a': 'x'\}: where 'a < 2'"):
        points.holds(Expression("a < 2", NAMES), {"a": "x", "b": 1})
