"""Choosing: size conditions mean the same natively as in Python, and the table is walked as it says."""

from __future__ import annotations

import ctypes
import itertools
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.test_calling_kit import address, element, entry, fill_body, kernel, variant
from tunegen.calling import SERIAL, dispatch, slow
from tunegen.calling.entry.ir import Writer
from tunegen.calling.entry.regimes import condition_ir
from tunegen.calling.native import REFERENCE, Callee
from tunegen.errors import ExpressionError, TunegenError
from tunegen.expressions import SizeCondition
from tunegen.signature import ElementType, In, Out, f32, floats

NAMES = ("M", "N", "K", "pack.minimum_rows")
"""Sizes, and a parameter."""
NUMBERS = st.one_of(st.integers(0, 70), st.integers(0, (1 << 48) - 1))


def numbers() -> st.SearchStrategy[str]:
    literals = st.one_of(st.integers(0, 9), st.integers(0, 1 << 40), st.sampled_from([1, 64, (1 << 62) - 1])).map(str)
    divisors = st.one_of(st.sampled_from([1, 2, 3, 7, 16, 1000]), st.integers(1, 1 << 61)).map(str)
    return st.recursive(
        st.one_of(st.sampled_from(NAMES), st.sampled_from(NAMES), literals),
        lambda inner: st.one_of(
            st.builds("({} {} {})".format, inner, st.sampled_from("+-*"), inner),
            st.builds("({} {} {})".format, inner, st.sampled_from(["//", "%"]), divisors),
            inner.map("(-{})".format),
        ),
        max_leaves=5,
    )


def conditions() -> st.SearchStrategy[str]:
    order = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
    compares = st.one_of(
        st.builds("({} {} {})".format, numbers(), order, numbers()),
        st.builds("({} {} {} {} {})".format, numbers(), order, numbers(), order, numbers()),
    )
    return st.recursive(
        compares,
        lambda inner: st.one_of(
            st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner), inner.map("(not {})".format)
        ),
        max_leaves=3,
    )


def natively(tests: list[SizeCondition]) -> Any:
    """A C function that returns a bit for each condition."""
    w = Writer()
    sizes = {name: f"%{name}" for name in NAMES}
    bits = "0"
    for index, test in enumerate(tests):
        bit = w.let("bit", f"zext i1 {condition_ir(w, test, sizes)} to i64")
        bits = w.op("or", bits, w.op("shl", bit, str(index)))
    parameters = ", ".join(f"i64 %{name}" for name in NAMES)
    text = f"define i64 @conditions({parameters}) {{\n{w.body()}\n  ret i64 {bits}\n}}\n"
    return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(NAMES))(address(text, "conditions"))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(conditions().filter(lambda text: len(text) <= 500), min_size=1, max_size=8),
    st.lists(st.tuples(*[NUMBERS] * len(NAMES)), min_size=5, max_size=20),
)
def test_conditions_mean_natively_what_they_mean_in_python(texts: list[str], sizes: list[tuple[int, ...]]) -> None:
    tests = []
    for text in texts:
        try:
            test = SizeCondition(text, NAMES)
            condition_ir(Writer(), test, dict.fromkeys(NAMES, "0"))
            tests.append(test)
        except ExpressionError:
            continue
    if not tests:
        return
    function = natively(tests)
    for values in sizes:
        expected = [test(dict(zip(NAMES, values, strict=True))) for test in tests]
        got = function(*values)
        assert [bool(got >> index & 1) for index in range(len(tests))] == expected


def mark(x: In[f32, "M", "K"], out: Out[f32, "N"]) -> None:
    """Writes -1; its variants write their numbers."""
    out[...] = -1


TESTS = ("M <= 2", "N % 3 == 1 and K > 2", "M * N * K >= 60")


def marked(columns: list[int | None]) -> Any:
    """A kernel whose variants write the given numbers; -1 stands for the reference, None for no callee."""
    made = kernel(mark, conditions=TESTS)
    made.install(entry(made), {"f32": [callee(made, number) for number in columns]})
    return made


def callee(made: Any, number: int | None) -> Callee | None:
    if number is None or number < 0:
        return None if number is None else REFERENCE
    return Callee(variant(made.signature, made.signature.element_types[0], fill_body(number)))


@pytest.mark.parametrize(
    "columns", [[1, 2, 3, 4], [None, 2, 3, 4], [1, -1, None, 4], [1, 2, 3, -1], [None, None, None, 4], [1, 2, 3, None]]
)
def test_the_table_is_walked_in_order(columns: list[int | None]) -> None:
    made = marked(columns)
    tests = [SizeCondition(text, made.signature.sizes) for text in TESTS]
    for m, k, n in itertools.product((0, 1, 2, 3, 5), (1, 3, 4), (1, 3, 4, 7)):
        sizes = {"M": m, "K": k, "N": n}
        holding = (c for c, test in zip(columns, tests, strict=False) if c is not None and test(sizes))
        expected = next(holding, columns[-1])
        x, out = np.zeros((m, k), "f4"), np.zeros(n, "f4")
        before = made.slow_calls
        made(x, out)
        assert (out == (-1 if expected is None else expected)).all()
        assert made.slow_calls - before == (expected in (None, -1))
        assert (made.choose("f32", sizes) is None) == (expected in (None, -1))
        np.testing.assert_array_equal(made(np.zeros((m, 2 * k), "f4")[:, ::2], np.zeros(n, "f4")), out)


def any_mark(x: In[floats, ...], out: Out[floats, ...]) -> None:
    out[...] = -1


def any_mark_body(number: float) -> Any:
    def body(w: Writer, t: ElementType) -> None:
        with w.countdown("%N") as i:
            w.store(t.llvm, f"{number:.1f}", element(w, t, "out", i))

    return body


def test_rows_go_by_element_type_and_conditions_by_the_count_of_all_elements() -> None:
    made = kernel(any_mark, conditions=("N <= 6",))
    f32_type, f64_type = made.signature.element_types
    made.install(
        entry(made),
        {
            t.name: [Callee(variant(made.signature, t, any_mark_body(base + column))) for column in range(2)]
            for t, base in ((f32_type, 10), (f64_type, 20))
        },
    )
    for dtype, base in (("f4", 10), ("f8", 20)):
        for shape in ((6,), (2, 3), (7,), (2, 4), ()):
            wide = np.zeros((*shape[:-1], 9), dtype)[..., : shape[-1]] if shape else np.zeros((), dtype)
            assert (made(wide.copy(), wide) == base + (wide.size > 6)).all()
    assert made.slow_calls == 0


def test_an_element_type_without_a_row_runs_the_reference() -> None:
    made = kernel(any_mark)
    f32_type = made.signature.element_types[0]
    made.install(entry(made), {"f32": [Callee(variant(made.signature, f32_type, any_mark_body(5)))]})
    assert (made(np.zeros(3, "f4")) == 5).all()
    assert (made(np.zeros(3)) == -1).all()


def test_rows_that_do_not_fit_are_refused() -> None:
    made = kernel(mark, conditions=TESTS)
    for rows in ({"f32": [None] * 3}, {"f64": [None] * 4}):
        with pytest.raises(ValueError, match="mark: rows are f32 with 4 callees each"):
            made.install(entry(made), rows)


def test_a_plain_dispatcher_takes_no_entry() -> None:
    made = kernel(mark)
    plain = dispatch.Dispatcher("mark", made.signature, SERIAL, mark)
    assert (plain(np.zeros((1, 1), "f4"), np.zeros(2, "f4")) == -1).all()
    with pytest.raises(TypeError, match="mark: Dispatcher takes no native entry: make it with native_type"):
        plain.install(entry(made), {})


def test_stamping_anew_and_taking_the_stamp_away() -> None:
    made = kernel(mark)
    x, out = np.zeros((1, 1), "f4"), np.zeros(2, "f4")
    for number in (1, 2, -1, 3, 1):
        made.install(entry(made), {"f32": [callee(made, number)]})
        assert made.installed
        assert (made(x, out) == number).all()
    made.uninstall()
    made.uninstall()
    assert not made.installed
    assert (made(x, out) == -1).all()


def test_a_call_that_native_code_should_take_and_does_not_is_an_internal_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Copies that do not fit would otherwise go round for ever."""
    made = marked([1, 2, 3, 4])
    monkeypatch.setattr(slow, "_fitting", lambda operand, checked: checked.arrays[operand.name])
    with pytest.raises(TunegenError, match=r"mark: internal error: native code refuses float32\[3, 2\] with strides"):
        made(np.zeros((3, 4), "f4")[:, ::2], np.zeros(3, "f4"))
    assert (made(np.zeros((3, 2), "f4"), np.zeros(3, "f4")) == 4).all()


def test_stamping_anew_between_choice_and_call_runs_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    made = marked([1, 2, 3, 4])
    real = slow._fitting

    def stamping(operand: Any, checked: Any) -> Any:
        made.install(entry(made), {"f32": [REFERENCE] * 4})
        return real(operand, checked)

    monkeypatch.setattr(slow, "_fitting", stamping)
    assert (made(np.zeros((3, 4), "f4")[:, ::2], np.zeros(3, "f4")) == -1).all()


def test_the_guard_is_of_one_thread_alone() -> None:
    made = marked([1, 2, 3, -1])
    x, out = np.zeros((3, 1), "f4"), np.zeros(1, "f4")
    slow._thread.attempt = (made, (x, out))
    try:
        found = []
        thread = threading.Thread(target=lambda: found.append(made(x, out)))
        thread.start()
        thread.join()
        assert found[0] is out
    finally:
        slow._thread.attempt = None
