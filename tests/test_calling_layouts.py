"""Layouts: every stride, offset and broadcast gives numpy's answer, and nothing around an output changes."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.test_calling_kit import add, add_body, element, kernel, native, rows, rows_body
from tunegen.calling.entry.ir import Writer
from tunegen.signature import ElementType, In, Out, f32, floats

CANARY = 77.0


def run_lengths(x: In[floats, ...], y: In[floats, ...], out: Out[floats, ...]) -> None:
    raise AssertionError("never the reference")


def run_body(w: Writer, t: ElementType) -> None:
    """out[i] = number of elements of the run"""
    length = w.let("n", f"uitofp i64 %N to {t.llvm}")
    with w.countdown("%N") as i:
        w.store(t.llvm, length, element(w, t, "out", i))


ADD, RUNS, ROWS = native(add, add_body), native(run_lengths, run_body), native(rows, rows_body)
KERNELS = {"native": ADD, "reference": kernel(add)}
OVERLAPPING = {
    "any rank": native(add, add_body),
    "in place": native(add, add_body, inplace=True),
    "fixed rank": ROWS,
    "reference": kernel(add),
    "reference in place": kernel(add, inplace=True),
}


class Arena:
    """An array somewhere in a larger buffer full of canaries."""

    def __init__(
        self, shape: tuple[int, ...], dtype: str, *, step: int, gaps: list[int], flips: list[bool], shift: int
    ):
        itemsize = np.dtype(dtype).itemsize
        strides: list[int] = []
        reach = itemsize
        for axis in reversed(range(len(shape))):
            stride = itemsize * step if axis == len(shape) - 1 else reach + itemsize * gaps[axis]
            strides.insert(0, stride)
            reach = max(shape[axis], 1) * stride
        self.memory = np.full(reach // itemsize + 16, CANARY, dtype)
        start = 8 * itemsize + shift
        for axis, flip in enumerate(flips):
            if flip and shape[axis] > 0:
                start += (shape[axis] - 1) * strides[axis]
                strides[axis] = -strides[axis]
        self.array: Any = np.ndarray(shape, dtype, self.memory, start, strides)

    def fill(self, values: Any) -> None:
        self.array[...] = values

    def holds(self, values: Any) -> bool:
        """Whether the array has these values and all around it are canaries."""
        copy = self.array.copy()
        self.array[...] = CANARY
        return np.array_equal(copy, values) and bool((self.memory == CANARY).all())


@st.composite
def shapes(draw: Any, most: int = 4) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.integers(0, 5), max_size=most)))


def arena(draw: Any, shape: tuple[int, ...], dtype: str, *, output: bool) -> Arena:
    n = len(shape)
    return Arena(
        shape,
        dtype,
        step=1 if output else draw(st.sampled_from([1, 1, 1, 2, 3])),
        gaps=draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)),
        flips=[draw(st.booleans()) and (axis < n - 1 or not output) for axis in range(n)],
        shift=0 if output else draw(st.sampled_from([0, 0, 0, 1, 2])),
    )


def narrowed(draw: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to `shape`."""
    own = [1 if draw(st.integers(0, 3)) == 0 else length for length in shape]
    return tuple(own[draw(st.integers(0, len(own))) :]) if draw(st.booleans()) else tuple(own)


@settings(max_examples=400, deadline=None)
@given(st.data(), shapes(), st.sampled_from(["f4", "f8"]), st.sampled_from(["native", "reference"]))
def test_any_rank_is_as_in_numpy(data: st.DataObject, shape: tuple[int, ...], dtype: str, which: str) -> None:
    x, y = (arena(data.draw, narrowed(data.draw, shape), dtype, output=False) for _ in range(2))
    out = arena(data.draw, shape, dtype, output=True)
    x.fill(np.arange(x.array.size).reshape(x.array.shape))
    y.fill(np.arange(y.array.size).reshape(y.array.shape) * 10)
    expected = np.broadcast_to(x.array + y.array, shape)
    assert KERNELS[which](x.array, y.array, out.array) is out.array
    assert out.holds(expected)


@settings(max_examples=300, deadline=None)
@given(st.data(), st.integers(0, 5), st.integers(0, 5))
def test_fixed_rank_is_as_in_numpy(data: st.DataObject, m: int, n: int) -> None:
    x = arena(data.draw, (m, n), "f4", output=False)
    b = arena(data.draw, data.draw(st.sampled_from([(m, n), (1, n), (n,)])), "f4", output=False)
    out = arena(data.draw, (m, n), "f4", output=True)
    x.fill(np.arange(m * n).reshape(m, n))
    b.fill(np.arange(b.array.size).reshape(b.array.shape) * 10)
    expected = x.array + b.array
    ROWS(x.array, b.array, out.array)
    assert out.holds(expected)


def expected_run(shape: tuple[int, ...], arrays: list[Any]) -> int:
    """The longest run of trailing dimensions that is contiguous in all arrays; the innermost one always is."""
    run = 1
    spread = [np.broadcast_to(a, shape) for a in arrays]
    for axis in reversed(range(len(shape))):
        if shape[axis] == 1:
            continue
        if any(a.strides[axis] != run * a.itemsize for a in spread):
            return run
        run *= shape[axis]
    return run


@settings(max_examples=300, deadline=None)
@given(st.data(), st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_the_run_is_as_long_as_it_can_be(data: st.DataObject, lengths: list[int]) -> None:
    shape = tuple(lengths)
    arrays = []
    for output in (False, False, True):
        own = shape if output else (*narrowed(data.draw, shape[:-1]), shape[-1])
        n = len(own)
        gaps = data.draw(st.lists(st.sampled_from([0, 0, 1]), min_size=n, max_size=n))
        flips = [data.draw(st.integers(0, 4)) == 0 and axis < n - 1 for axis in range(n)]
        arrays.append(Arena(own, "f4", step=1, gaps=gaps, flips=flips, shift=0).array)
    before = RUNS.slow_calls
    RUNS(*arrays)
    assert RUNS.slow_calls == before
    assert (arrays[2] == expected_run(shape, arrays)).all()


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_rows_of_every_length_offset_and_outer_stride_run_natively(dtype: str) -> None:
    made = native(add, add_body)
    itemsize = np.dtype(dtype).itemsize
    for n in range(1, 68):
        for offset in (0, 1, 3):
            for gap in (0, 1, 7):
                x = np.arange(5 * (n + gap) + offset, dtype=dtype)[offset:].reshape(5, n + gap)[::-1, :n]
                out = np.zeros((5, n + gap + 2), dtype)[:, 1 : n + 1]
                assert x.strides[0] == -(n + gap) * itemsize
                np.testing.assert_array_equal(made(x, x[1], out), x + x[1])
    assert made.slow_calls == 0


def test_fixed_rank_rows_run_natively() -> None:
    made = native(rows, rows_body)
    for n in range(1, 68):
        x = np.arange(5 * (n + 3), dtype="f4").reshape(5, n + 3)[:, 2 : n + 2]
        out = np.zeros((10, n), "f4")[::-2]
        np.testing.assert_array_equal(made(x, x[3], out), x + x[3])
        np.testing.assert_array_equal(made(x[:1], x[3], out[:1]), x[:1] + x[3])
    assert made.slow_calls == 0


def test_a_column_runs_natively_element_by_element() -> None:
    made = native(add, add_body)
    x, out = np.arange(20, dtype="f4").reshape(5, 4)[:, :1], np.zeros((5, 3), "f4")[:, :1]
    np.testing.assert_array_equal(made(x, x, out), x + x)
    assert made.slow_calls == 0


@pytest.mark.parametrize("shape", [(0,), (0, 4), (4, 0), (2, 0, 3), (0, 0)])
def test_empty_arrays_of_any_layout(shape: tuple[int, ...]) -> None:
    made = native(add, add_body)
    big = np.zeros([2 * n + 1 for n in shape], "f4")
    odd = big[tuple(slice(None, 2 * n, 2) for n in shape)]
    for arrays in ((odd, odd, odd), (odd, odd[..., :1] if shape[-1] else odd, odd)):
        assert made(*arrays) is odd
    assert made.slow_calls == 0
    assert made(odd, odd).shape == shape
    if len(shape) == 2:
        matrix = native(rows, rows_body)
        assert matrix(odd, big[0, : shape[1]], odd).shape == shape


def test_an_empty_output_still_has_to_have_the_right_shape() -> None:
    with pytest.raises(ValueError, match="operand y: got shape"):
        ADD(np.zeros((0, 4), "f4"), np.zeros((0, 3), "f4"), np.zeros((0, 4), "f4"))


def test_in_place() -> None:
    made, apart = native(add, add_body, inplace=True), native(add, add_body)
    for x in (np.arange(12, dtype="f4").reshape(3, 4), np.arange(24, dtype="f4").reshape(3, 8)[:, :4][::-1]):
        y = np.ones_like(x)
        expected = x + x
        assert made(x, x, x) is x
        np.testing.assert_array_equal(x, expected)
        np.testing.assert_array_equal(made(x, y, x[:]), expected + 1)
        with pytest.raises(ValueError, match="shares memory with operand x; allowed: memory of its own"):
            apart(x, y, x)
    assert made.slow_calls == 0


@pytest.mark.parametrize("reference", [False, True])
def test_in_place_takes_the_very_same_array_alone(reference: bool) -> None:
    made = kernel(add, inplace=True) if reference else native(add, add_body, inplace=True)
    x = np.arange(40, dtype="f4")
    square = x[:16].reshape(4, 4)
    for a, out in (
        (x[:8], x[1:9]),
        (x[1:9], x[:8]),
        (x[:8][::-1], x[:8]),
        (square.T, square),
        (square[0], square),
        (square[:1], square),
    ):
        kept = x.copy()
        with pytest.raises(ValueError, match=r"shares memory|broadcasts"):
            made(a, np.ones_like(a), out)
        np.testing.assert_array_equal(x, kept)
    made(square[:1], np.ones(4, "f4"), square[:1])


@pytest.mark.parametrize("reference", [False, True])
def test_bounds_may_overlap_when_memory_does_not(reference: bool) -> None:
    """Column slices of one array: an input is copied."""
    made = kernel(add) if reference else native(add, add_body)
    table = np.arange(32, dtype="f4").reshape(4, 8)
    expected = table[:, :4] + table[:, :4]
    made(table[:, :4], table[:, :4], table[:, 4:])
    np.testing.assert_array_equal(table[:, 4:], expected)


def a_slice(draw: Any, memory: Any) -> Any:
    """Two rows of three elements somewhere in the memory."""
    step, row = draw(st.sampled_from([1, 1, 2, -1])), draw(st.integers(-8, 8))
    offsets = [i * row + j * step for i in range(2) for j in range(3)]
    first = draw(st.integers(-min(offsets), memory.size - 1 - max(offsets)))
    return np.ndarray((2, 3), "f4", memory, 4 * first, (4 * row, 4 * step))


def covered(memory: Any, array: Any) -> Any:
    """For each element of the memory, whether the array has it."""
    marks = np.zeros(memory.size, "f4")
    offset = array.__array_interface__["data"][0] - memory.__array_interface__["data"][0]
    np.ndarray(array.shape, "f4", marks, offset, array.strides)[...] = 1
    return marks == 1


def may_be_written(array: Any) -> bool:
    return bool(array.strides[1] == 4 and abs(array.strides[0]) >= 12)


@settings(max_examples=500, deadline=None)
@given(st.data(), st.sampled_from(sorted(OVERLAPPING)))
def test_overlaps_are_refused_or_give_the_right_answer(data: st.DataObject, which: str) -> None:
    made = OVERLAPPING[which]
    memory = np.arange(40, dtype="f4")
    x, y, out = (a_slice(data.draw, memory) for _ in range(3))
    expected, before = x + y, memory.copy()
    allowed = may_be_written(out) and all(
        not np.shares_memory(out, a) or (made.signature.inplace and same_array(out, a)) for a in (x, y)
    )
    if allowed:
        made(x, y, out)
        np.testing.assert_array_equal(out, expected)
    else:
        with pytest.raises(ValueError, match="operand out: got"):
            made(x, y, out)
        np.testing.assert_array_equal(memory, before)
    elsewhere = ~covered(memory, out)
    np.testing.assert_array_equal(memory[elsewhere], before[elsewhere])


def same_array(a: Any, b: Any) -> bool:
    return bool(a.__array_interface__["data"] == b.__array_interface__["data"] and a.strides == b.strides)


def test_a_row_that_is_read_for_every_row() -> None:
    x = np.broadcast_to(np.arange(4, dtype="f4"), (3, 4))
    before = ADD.slow_calls
    np.testing.assert_array_equal(ADD(x, x, np.zeros((3, 4), "f4")), x + x)
    assert ADD.slow_calls == before
    column = np.broadcast_to(np.arange(3, dtype="f4")[:, None], (3, 4))
    np.testing.assert_array_equal(ADD(column, x, np.zeros((3, 4), "f4")), x + column)


def test_strides_of_dimensions_of_length_1_do_not_matter() -> None:
    record = np.zeros(1, [("a", "f8", (2,)), ("b", "f4")])
    assert record["a"].strides[0] % 8
    made = native(add, add_body)
    np.testing.assert_array_equal(made(record["a"], np.ones((1, 2)), np.zeros((1, 2))), [[1, 1]])
    np.testing.assert_array_equal(made(np.ones((1, 2)), np.ones((1, 2)), record["a"]), [[2, 2]])
    assert made.slow_calls == 0


def test_strides_that_are_no_multiple_of_the_item_size_are_copied() -> None:
    records = np.zeros(3, [("a", "f8", (2,)), ("b", "f4")])
    records["a"] = np.arange(6).reshape(3, 2)
    np.testing.assert_array_equal(ADD(records["a"], records["a"], np.zeros((3, 2))), 2 * records["a"])
    with pytest.raises(
        ValueError, match="operand out: got a stride of 20 bytes in dimension 0; allowed: multiples of 8"
    ):
        ADD(np.ones((3, 2)), np.ones((3, 2)), records["a"])


def places(x: In[f32, "M", "N"], out: Out[f32, "M", "N"]) -> None:
    raise AssertionError("never the reference")


def places_body(w: Writer, t: ElementType) -> None:
    """out[m, n] = 1 where the input's address and stride are no multiples of its element's size, else 0"""
    place = w.op("or", w.let("place", "ptrtoint ptr %x to i64"), "%x_s0")
    odd = w.let("flag", f"uitofp i1 {w.compare('ne', w.op('and', place, '3'), '0')} to float")
    with w.countdown("%M") as m, w.countdown("%N") as n:
        w.store(t.llvm, odd, element(w, t, "out", m, n))


def any_places(x: In[f32, ...], out: Out[f32, ...]) -> None:
    raise AssertionError("never the reference")


def any_places_body(w: Writer, t: ElementType) -> None:
    """out[i] = 1 where the input's address is no multiple of its element's size, else 0"""
    place = w.let("place", "ptrtoint ptr %x to i64")
    odd = w.let("flag", f"uitofp i1 {w.compare('ne', w.op('and', place, '3'), '0')} to float")
    with w.countdown("%N") as i:
        w.store(t.llvm, odd, element(w, t, "out", i))


@pytest.mark.parametrize("stride", [16, 17, 18, 24, -16, -18])
@pytest.mark.parametrize("shift", [0, 1, 2])
def test_variants_see_aligned_elements_alone(stride: int, shift: int) -> None:
    """Code for aligned elements may crash on others, so these are copied."""
    memory = np.zeros(200, "u1")
    x = np.ndarray((3, 4), "f4", memory, 80 + shift, (stride, 4))
    for made in (native(places, places_body), native(any_places, any_places_body)):
        assert (made(x, np.ones((3, 4), "f4")) == 0).all()
        assert made.slow_calls == (1 if stride % 4 or shift else 0)


@pytest.mark.parametrize("shift", [0, 1, 2])
def test_buffers_that_hide_their_misalignment_are_copied_too(shift: int) -> None:
    """Numpy marks misaligned data in the format, other exporters do not."""
    x = memoryview(bytearray(64))[shift : shift + 48].cast("B").cast("f", (3, 4))
    misaligned = np.asarray(x).__array_interface__["data"][0] % 4
    assert bool(misaligned) == bool(shift)
    for made in (native(places, places_body), native(any_places, any_places_body)):
        assert (made(x, np.ones((3, 4), "f4")) == 0).all()
        assert made.slow_calls == bool(shift)
        with pytest.raises(ValueError, match="operand out: got data at address") if shift else nullcontext():
            made(np.ones((3, 4), "f4"), x)


def inner(x: In[f32, "M?", "N?"], out: Out[f32, "M", "N"], y: In[f32, "M", "N"]) -> None:
    out[...] = x + y


def inner_body(w: Writer, t: ElementType) -> None:
    with w.countdown("%M") as m, w.countdown("%N") as n:
        x, y = (w.load(t.llvm, element(w, t, name, m, n)) for name in "xy")
        w.store(t.llvm, w.op("fadd", x, y, t.llvm), element(w, t, "out", m, n))


@pytest.mark.parametrize("m", [0, 1, 3])
@pytest.mark.parametrize("n", [0, 1, 4])
def test_dimensions_that_broadcast_may_be_absent(m: int, n: int) -> None:
    made = native(inner, inner_body)
    y = np.arange(m * n, dtype="f4").reshape(m, n)
    for shape in ((m, n), (1, n), (m, 1), (1, 1), (n,), (1,), ()):
        x = np.arange(100, 100 + math.prod(shape), dtype="f4").reshape(shape)
        for target in (made, kernel(inner)):
            np.testing.assert_array_equal(target(x, np.zeros((m, n), "f4"), y), x + y)
            np.testing.assert_array_equal(target(x, y=y), x + y)
