"""Splitting: the shares of a call together write what the whole call writes, whoever runs them in whatever order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.test_calling_kit import (
    Body,
    add,
    add_body,
    element,
    entry,
    kernel,
    rows,
    rows_body,
    soften,
    soften_body,
    variant,
)
from tests.test_calling_layouts import Arena, arena, narrowed, shapes
from tests.test_calling_pool import ORDERS, FakePool, Order, Region, backwards, in_order, in_threads
from tunegen.calling.entry.ir import Writer
from tunegen.calling.native import Callee
from tunegen.parallel import split
from tunegen.signature import ElementType, In, Out, f32

PARAMETERS = {"least": 0, "grain": 0, "most": 0}
ALWAYS = {"grain": "grain", "participants": "most"}


def stamped(made: Any, body: Body, scratch: int = 0, **kwargs: Any) -> Any:
    """Installs a variant for each element type."""
    rows_ = {t.name: [Callee(variant(made.signature, t, body), scratch)] for t in made.signature.element_types}
    made.install(entry(made), rows_, **kwargs)
    return made


def anew(made: Any, body: Body, pool: Any, grain: int = 0, most: int = 0, least: int = 0, scratch: int = 0) -> Any:
    own = {"grain": grain, "most": most, "least": least}
    values = {t.name: own for t in made.signature.element_types}
    return stamped(made, body, scratch, values=values, executor=pool)


def any_rank(inplace: bool = False) -> Any:
    return kernel(add, inplace=inplace, parameters=PARAMETERS, split=split("N", when="N >= least", **ALWAYS))


ADD, INPLACE = any_rank(), any_rank(inplace=True)
ROWS = {
    over: kernel(rows, parameters=PARAMETERS, split=split(*over, when="M * N >= least", **ALWAYS))
    for over in (("M",), ("N",), ("M", "N"), ("N", "M"))
}
orders = st.sampled_from(ORDERS)
grains = st.sampled_from([0, 0, 1, 2, 3, 7, 1000])


@settings(max_examples=400, deadline=None)
@given(st.data(), shapes(), st.sampled_from(["f4", "f8"]), grains, st.integers(1, 5), st.integers(0, 3), orders)
def test_any_rank_is_as_in_numpy(
    data: st.DataObject, shape: tuple[int, ...], dtype: str, grain: int, participants: int, most: int, order: Order
) -> None:
    pool = FakePool(participants, order)
    anew(ADD, add_body, pool, grain, most)
    x, y = (arena(data.draw, narrowed(data.draw, shape), dtype, output=False) for _ in range(2))
    out = arena(data.draw, shape, dtype, output=True)
    x.fill(np.arange(x.array.size).reshape(x.array.shape))
    y.fill(np.arange(y.array.size).reshape(y.array.shape) * 10)
    expected = np.broadcast_to(x.array + y.array, shape)
    assert ADD(x.array, y.array, out.array) is out.array
    assert out.holds(expected)
    for region in pool.regions:
        assert 2 <= region.participants <= min(participants, most or participants)
        assert region.grain < region.size


@settings(max_examples=200, deadline=None)
@given(
    st.data(), st.integers(0, 40), st.integers(0, 40), grains, st.integers(1, 5), orders, st.sampled_from(sorted(ROWS))
)
def test_fixed_rank_is_as_in_numpy(
    data: st.DataObject, m: int, n: int, grain: int, participants: int, order: Order, over: tuple[str, ...]
) -> None:
    pool = FakePool(participants, order)
    made = anew(ROWS[over], rows_body, pool, grain)
    x = arena(data.draw, (m, n), "f4", output=False)
    b = arena(data.draw, data.draw(st.sampled_from([(m, n), (1, n), (n,)])), "f4", output=False)
    out = arena(data.draw, (m, n), "f4", output=True)
    x.fill(np.arange(m * n).reshape(m, n))
    b.fill(np.arange(b.array.size).reshape(b.array.shape) * 10)
    expected = x.array + b.array
    made(x.array, b.array, out.array)
    assert out.holds(expected)
    lengths = {"M": m, "N": n}
    longest = max(over, key=lambda size: lengths[size])
    assert [region.size for region in pool.regions] in ([], [lengths[longest]])


@settings(max_examples=100, deadline=None)
@given(st.data(), st.lists(st.integers(1, 6), min_size=1, max_size=4), grains, orders)
def test_in_place(data: st.DataObject, lengths: list[int], grain: int, order: Order) -> None:
    anew(INPLACE, add_body, FakePool(3, order), grain)
    own = arena(data.draw, tuple(lengths), "f4", output=True)
    own.fill(np.arange(own.array.size).reshape(own.array.shape))
    other = np.arange(lengths[-1], dtype="f4")
    expected = own.array + other
    INPLACE(own.array, other, own.array)
    assert own.holds(expected)


def count(calls: In[f32, ...], out: Out[f32, ...]) -> None:
    raise AssertionError("never the reference")


def count_body(w: Writer, t: ElementType) -> None:
    """out[i] += 1"""
    with w.countdown("%N") as i:
        w.update("fadd", element(w, t, "out", i), "1.0", t.llvm)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 1), st.booleans()), min_size=1, max_size=5),
    st.integers(0, 60), st.integers(2, 70), orders,
)  # fmt: skip
def test_every_element_is_computed_once(
    dims: list[tuple[int, int, bool]], grain: int, participants: int, order: Order
) -> None:
    """Also where outer dimensions are apart, and run backwards."""
    shape = tuple(length for length, _, _ in dims)
    gaps, flips = [gap for _, gap, _ in dims], [flip for *_, flip in dims[:-1]] + [False]
    out = Arena(shape, "f4", step=1, gaps=gaps, flips=flips, shift=0)
    out.fill(0)
    made = anew(COUNT, count_body, FakePool(participants if order is not in_threads else 3, order), grain)
    made(np.zeros(shape[-1:], "f4"), out.array)
    assert out.holds(np.ones(shape))
    assert made.slow_calls == 0


COUNT = kernel(count, parameters=PARAMETERS, split=split("N", when="N >= least", **ALWAYS))


def square(n: int, dtype: str = "f4") -> Any:
    return np.arange(n * n, dtype=dtype).reshape(n, n)


@pytest.mark.parametrize(
    ("shape", "wide", "participants", "grain", "region"),
    [
        ((1000,), 0, 2, 0, Region(1000, 512, 2, 7)),
        ((100,), 0, 2, 0, Region(100, 50, 2, 7)),
        ((100,), 0, 3, 0, Region(100, 34, 3, 7)),
        ((100,), 0, 8, 30, Region(100, 30, 4, 7)),
        ((10, 100), 0, 4, 0, Region(1000, 256, 4, 7)),
        ((100, 10), 1, 2, 0, Region(100, 50, 2, 7)),
        ((100, 10), 1, 2, 25, Region(100, 3, 2, 7)),
        ((20, 1000), 1, 2, 0, Region(20, 10, 2, 7)),
        ((3, 1000), 1, 2, 0, Region(1000, 512, 2, 7)),
        ((3, 1000), 1, 2, 600, Region(1000, 600, 2, 7)),
        ((5, 4, 10), 1, 2, 0, Region(20, 10, 2, 7)),
        ((1,), 0, 2, 0, None),
        ((0,), 0, 2, 0, None),
        ((1000,), 0, 1, 0, None),
        ((1000,), 0, 2, 1000, None),
    ],
)
def test_what_is_cut_of_any_rank(
    shape: tuple[int, ...], wide: int, participants: int, grain: int, region: Region | None
) -> None:
    pool = FakePool(participants, in_order)
    stamped(ADD, add_body, values={"f32": {"grain": grain}}, executor=pool, label=7)
    out = np.zeros((*shape[:-1], shape[-1] + wide), "f4")[..., : shape[-1]]
    x = np.ones(shape, "f4")
    ADD(x, x, out)
    assert (out == 2).all()
    assert pool.regions == ([region] if region else [])


@pytest.mark.parametrize(
    ("over", "m", "n", "size"),
    [("MN", 30, 20, 30), ("MN", 20, 30, 30), ("MN", 20, 20, 20), ("M", 20, 30, 20), ("N", 30, 20, 20)],
)
def test_the_longest_size_is_cut(over: str, m: int, n: int, size: int) -> None:
    pool = FakePool(2, backwards)
    made = anew(ROWS[tuple(over)], rows_body, pool)
    x = np.arange(m * n, dtype="f4").reshape(m, n)
    np.testing.assert_array_equal(made(x, x[0]), x + x[0])
    assert pool.regions == [Region(size, size // 2, 2, 0)]


def shares(x: In[f32, "M", "N"], out: Out[f32, "M", "N"], a: float = 1.0, k: int = 2) -> None:
    raise AssertionError("never the reference")


def shares_body(w: Writer, t: ElementType) -> None:
    """out[m, n] = M + 1000 N: the sizes that the variant saw, plus the scalars."""
    m, n, k = (w.let("f", f"sitofp i64 {name} to float") for name in ("%M", "%N", "%k"))
    seen = w.op("fadd", m, w.op("fmul", n, "1000.0", "float"), "float")
    seen = w.op("fadd", w.op("fadd", seen, w.let("a", "fptrunc double %a to float"), "float"), k, "float")
    with w.countdown("%M") as i, w.countdown("%N") as j:
        w.store("float", seen, element(w, t, "out", i, j))


def test_the_first_size_is_cut_on_a_tie_and_all_else_comes_as_it_is() -> None:
    x = np.zeros((20, 20), "f4")
    for over, sizes in ((("M", "N"), (10, 20)), (("N", "M"), (20, 10))):
        made = kernel(shares, split=split(*over, when="M >= 0"))
        stamped(made, shares_body, executor=FakePool(2, in_threads))
        assert (made(x, a=0.5, k=-3) == sizes[0] + 1000 * sizes[1] - 2.5).all()
        assert (made(x) == sizes[0] + 1000 * sizes[1] + 3).all()
        assert made.slow_calls == 0


def test_a_call_is_split_where_the_condition_holds_for_its_type_and_values() -> None:
    pool = FakePool(2, in_order)
    x = {"f32": np.ones(64, "f4"), "f64": np.ones(64, "f8")}
    for f32_least, f64_least in ((64, 65), (65, 64), (0, 0), (65, 65), ((1 << 48) - 1, 1)):
        pool.regions.clear()
        values = {"f32": {"least": f32_least}, "f64": {"least": f64_least}}
        stamped(ADD, add_body, values=values, executor=pool)
        for name, least in (("f32", f32_least), ("f64", f64_least)):
            before = len(pool.regions)
            assert (ADD(x[name], x[name]) == 2).all()
            assert len(pool.regions) - before == (least <= 64)


def test_without_an_executor_no_call_is_split() -> None:
    pool = FakePool(2, in_order)
    anew(ADD, add_body, pool)
    stamped(ADD, add_body)
    assert (ADD(np.ones(99, "f4"), np.ones(99, "f4")) == 2).all()
    assert pool.regions == []
    serial = stamped(kernel(add), add_body, executor=pool)
    assert (serial(np.ones(99, "f4"), np.ones(99, "f4")) == 2).all()
    assert pool.regions == []


def test_copies_of_the_slow_path_are_split_too() -> None:
    pool = FakePool(2, in_threads)
    anew(ADD, add_body, pool)
    x = square(40)
    before = ADD.slow_calls
    np.testing.assert_array_equal(
        ADD(x[:, ::2], x[::2, ::-1][:, :20].repeat(2, 0)), x[:, ::2] + x[::2, ::-1][:, :20].repeat(2, 0)
    )
    assert ADD.slow_calls == before + 1
    assert pool.regions


def masked(
    x: In[f32, "M", "N"], out: Out[f32, "M", "N"], mask: In[f32, "M?", "N"] | None = None, scale: float = 1.0
) -> None:
    out[...] = x if mask is None else x * mask


def masked_body(w: Writer, t: ElementType) -> None:
    absent = w.compare("eq", "%mask", "null", "ptr")
    with w.countdown("%M") as m, w.countdown("%N") as n:
        cell = w.cell("value", t.llvm, w.load(t.llvm, element(w, t, "x", m, n)))
        with w.when(w.op("xor", absent, "true", "i1")):
            w.update("fmul", cell, w.load(t.llvm, element(w, t, "mask", m, n)), t.llvm)
        w.store(t.llvm, w.load(t.llvm, cell), element(w, t, "out", m, n))


@pytest.mark.parametrize("over", [("M",), ("N",), ("M", "N")])
@pytest.mark.parametrize("grain", [0, 1, 7])
def test_operands_that_are_absent_or_broadcast_stay_where_they_are(over: tuple[str, ...], grain: int) -> None:
    made = kernel(masked, parameters=PARAMETERS, split=split(*over, when="M >= least", **ALWAYS))
    pool = FakePool(3, backwards)
    anew(made, masked_body, pool, grain)
    x = square(33)
    for mask in (None, x, x[:1], x[3], x[::-1]):
        np.testing.assert_array_equal(made(x, mask=mask), x if mask is None else x * mask)
    assert made.slow_calls == 0
    assert len(pool.regions) == 5


def test_an_absent_operand_of_any_rank() -> None:
    made = kernel(soften, parameters=PARAMETERS, split=split("N", when="N >= least", **ALWAYS))
    pool = FakePool(3, backwards)
    anew(made, soften_body, pool)
    x = square(30)
    for shift in (None, x, x[0]):
        for given_ in (x, np.hstack([x, x])[:, :30]):
            np.testing.assert_array_equal(made(given_, shift=shift), x if shift is None else x + shift)
    assert made.slow_calls == 0
    assert len(pool.regions) == 6
