"""The fallback chain and the regimes that its conditions make."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunegen.errors import ExpressionError
from tunegen.fallback import parse_fallback

SUFFIXES = ("a", "b", "c")
SIZES = ("M", "N")


@pytest.mark.parametrize(
    ("text", "regimes", "chains"),
    [
        ("reference", ("",), [("reference",)]),
        ("a; b; reference", ("",), [("a", "b", "reference")]),
        ("a; b", ("",), [("a", "b", "reference")]),
        ("a if M <= 2; b; reference", ("M <= 2", ""), [("a",), ("b", "reference")]),
        ("b; a if M <= 2; c", ("M <= 2", ""), [("b", "a"), ("b", "c", "reference")]),
        ("a if M <= 2; b if M <= 2; c", ("M <= 2", ""), [("a", "b"), ("c", "reference")]),
        ("a if M <= 2; b if N > 4; c", ("M <= 2", "N > 4", ""), [("a",), ("b",), ("c", "reference")]),
        ("a if M <= 2; reference if N > 4; c", ("M <= 2", "N > 4", ""), [("a",), ("reference",), ("c", "reference")]),
        ("a\tif\nM  <=  2;\n  b", ("M <= 2", ""), [("a",), ("b", "reference")]),
    ],
)
def test_each_regime_has_its_chain(text, regimes, chains):
    fallback = parse_fallback(text, SUFFIXES, SIZES)
    assert fallback.regimes == regimes
    assert [fallback.chain(i) for i in range(len(regimes))] == chains


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty item"),
        ("a;", "empty item"),
        ("a;; b", "empty item"),
        ("d; a", "'d' is neither a row nor 'reference'"),
        ("a; d if M < 2", "'d' is neither"),
        ("a if", "condition is missing after 'a'"),
        ("a if K < 2", "unknown name 'K'.*M, N"),
        ("a if M", "no condition"),
        ("a when M < 2", "after 'a' comes `if`"),
        ("a b", "after 'a' comes `if`"),
        ("if M < 2", "'if' is neither"),
    ],
)
def test_what_is_wrong_with_a_chain_is_said_with_its_text(text, problem):
    with pytest.raises(ExpressionError, match=problem):
        parse_fallback(text, SUFFIXES, SIZES)


@given(st.integers(0, 9), st.integers(0, 9))
def test_sizes_fall_in_the_first_regime_whose_condition_holds(m, n):
    fallback = parse_fallback("a if M <= 2; b if M + N > 9; c", SUFFIXES, SIZES)
    assert fallback.regime_of({"M": m, "N": n}) == (0 if m <= 2 else 1 if m + n > 9 else 2)


def test_a_condition_that_comes_back_after_another_is_refused():
    """Where both hold, the order of the chain would be lost."""
    with pytest.raises(ExpressionError, match="next to each other"):
        parse_fallback("a if M <= 2; b if M <= 8; a if M <= 2", ["a", "b"], ["M"])
    assert len(parse_fallback("a if M <= 2; b; b if M <= 2", ["a", "b"], ["M"]).items) == 3
