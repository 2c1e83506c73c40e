"""The small language of `where` and of size conditions."""

from __future__ import annotations

import pickle
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunegen import errors
from tunegen.errors import ExpressionError
from tunegen.expressions import MAX_LENGTH, Expression, SizeCondition

NAMES = ("a", "b")


@st.composite
def numbers(draw, depth=3):
    kind = draw(st.sampled_from(["name", "constant", "+", "-", "*", "//", "%", "neg"])) if depth else "name"
    match kind:
        case "name":
            return draw(st.sampled_from(NAMES))
        case "constant":
            return str(draw(st.integers(0, 99)))
        case "neg":
            return f"-{draw(numbers(depth - 1))}" if depth else "a"
        case "//" | "%":
            return f"({draw(numbers(depth - 1))}) {kind} {draw(st.integers(1, 9))}"
    return f"({draw(numbers(depth - 1))} {kind} {draw(numbers(depth - 1))})"


@st.composite
def conditions(draw, depth=2):
    kind = draw(st.sampled_from(["compare", "chain", "and", "or", "not"])) if depth else "compare"
    match kind:
        case "and" | "or":
            return f"({draw(conditions(depth - 1))} {kind} {draw(conditions(depth - 1))})"
        case "not":
            return f"not ({draw(conditions(depth - 1))})"
        case "chain":
            return f"{draw(numbers())} < {draw(numbers())} <= {draw(numbers())}"
    operator = draw(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]))
    return f"{draw(numbers())} {operator} {draw(numbers())}"


@given(conditions(), st.integers(-50, 50), st.integers(-50, 50))
def test_expressions_mean_what_they_mean_in_python(text, a, b):
    expected = eval(text, {"a": a, "b": b})
    if len(text) <= MAX_LENGTH:
        assert Expression(text, NAMES)({"a": a, "b": b}) == expected
        assert SizeCondition(text, NAMES)({"a": a, "b": b}) is bool(expected)


@given(st.text(max_size=80))
def test_any_text_is_an_expression_or_an_expression_error(text):
    with suppress(ExpressionError):
        SizeCondition(text, NAMES)({"a": 1, "b": 2})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("c < 2", "unknown name 'c'.*known are a, b"),
        ("a // b < 1", "positive whole number"),
        ("a % 0 == 0", "positive whole number"),
        ("a ** 2 < 9", "not allowed"),
        ("a.real < 1", "unknown name .a.real."),
        ("__import__('os')", "not allowed"),
        ("a if b else a", "not allowed"),
        ("a is b", "not allowed"),
        ("a in b", "not allowed"),
        ("a < 1j", "allowed are numbers"),
        ("a <", "no expression"),
        ("", "no expression"),
        ("(" * 300 + "a" + ")" * 300, "at most"),
        ("(" * 240 + "a" + ")" * 240, "no expression"),
        ("a + 1", "no condition"),
        ("a", "no condition"),
        ("a < 'x'", "no condition"),
        ("a < 2.5", "no condition"),
        (f"a < {1 << 63}", "no condition"),
    ],
)
def test_what_is_wrong_with_a_condition_is_said(text, problem):
    with pytest.raises(ExpressionError, match=problem):
        SizeCondition(text, NAMES)


def test_values_that_do_not_go_together_are_an_expression_error():
    with pytest.raises(ExpressionError, match="a < b"):
        Expression("a < b", NAMES)({"a": 1, "b": "x"})


def test_blanks_do_not_matter_for_equality():
    assert Expression("a  <\n2", NAMES) == Expression("a < 2", NAMES)
    assert hash(Expression("a  < 2", NAMES)) == hash(Expression("a < 2", NAMES))
    assert Expression("a<2", NAMES).names == ("a",)


EXAMPLES = [
    errors.DeclarationError("gemm", "no rows"),
    errors.GateError("gemm__mr4", "c", (1, 2), 0.5, 1.0, "ulp(2.0)"),
    *[e("text") for e in (errors.KnobError, errors.Declined, errors.RenderError, errors.CompilerUnavailable)],
    *[e("text") for e in (errors.StoreError, errors.KernelNotFound, errors.ScopeNotFound, errors.WorkerError)],
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_errors_survive_pickling_with_their_fields(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_a_condition_too_wide_for_native_code_is_an_error():
    with pytest.raises(ExpressionError, match="needs numbers of 528 bits; allowed are 512: multiply fewer sizes"):
        SizeCondition(" * ".join(["M"] * 11) + " > 0", ["M"])
