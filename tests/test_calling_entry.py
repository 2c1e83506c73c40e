"""The native entry: arguments, scalars, optional operands, outputs, scratch memory, and what it leaves behind."""

from __future__ import annotations

import array
import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.test_calling_kit import (
    add,
    add_body,
    element,
    kernel,
    native,
    rows,
    rows_body,
    scratch_function,
    soften,
    soften_body,
)
from tunegen.calling.entry.ir import Writer
from tunegen.calling.entry.module import entry_ir
from tunegen.errors import DeclarationError
from tunegen.making.compile import Target, compile_object, initialize_all_targets
from tunegen.making.elf import undefined_symbols
from tunegen.signature import ElementType, In, InOut, Out, f32, floats


def vector(n: int, dtype: str = "f4") -> Any:
    return np.arange(1, n + 1, dtype=dtype)


def scaled(x: In[floats, "N"], out: Out[floats, "N"], a: float = 1.5, k: int = -3) -> None:
    """out = a x + k"""
    np.add(a * x, k, out=out)


def scaled_body(w: Writer, t: ElementType) -> None:
    with w.countdown("%N") as i:
        x = w.load(t.llvm, element(w, t, "x", i))
        a = "%a" if t.name == "f64" else w.let("a", "fptrunc double %a to float")
        k = w.let("k", f"sitofp i64 %k to {t.llvm}")
        w.store(t.llvm, w.op("fadd", w.op("fmul", x, a, t.llvm), k, t.llvm), element(w, t, "out", i))


@pytest.fixture
def scale() -> Any:
    return native(scaled, scaled_body)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    ("rest", "keywords", "a", "k"),
    [
        ((), {}, 1.5, -3),
        ((2.5,), {}, 2.5, -3),
        ((2.5, 7), {}, 2.5, 7),
        ((), {"a": 0.25}, 0.25, -3),
        ((), {"k": 4, "a": 0.5}, 0.5, 4),
        ((0.5,), {"k": -(1 << 40)}, 0.5, -(1 << 40)),
    ],
)
def test_scalars_and_their_defaults(scale: Any, dtype: str, rest: Any, keywords: Any, a: float, k: int) -> None:
    x = vector(5, dtype)
    out = np.zeros_like(x)
    assert scale(x, out, *rest, **keywords) is out
    np.testing.assert_array_equal(out, x * x.dtype.type(a) + x.dtype.type(k))
    assert scale.slow_calls == 0


def test_a_default_that_is_jumped_over_is_filled_in(scale: Any) -> None:
    x = vector(5)
    out = scale(x, out=np.zeros_like(x), k=4)
    np.testing.assert_array_equal(out, x * np.float32(1.5) + 4)
    np.testing.assert_array_equal(scale(x, k=4), out)
    assert scale.slow_calls == 0


@pytest.mark.parametrize("a", [2, np.float32(2), np.float64(2), np.int8(2)])
@pytest.mark.parametrize("k", [7, np.int64(7), np.uint8(7)])
def test_scalars_convert_on_the_slow_path(scale: Any, a: Any, k: Any) -> None:
    x = vector(5)
    np.testing.assert_array_equal(scale(x, np.zeros_like(x), a, k), x * 2 + 7)


def test_keywords_run_natively_in_any_order() -> None:
    made = native(add, add_body)
    x, y, out = vector(4), vector(4) * 10, np.zeros(4, "f4")
    calls: tuple[Callable[[], Any], ...] = (
        lambda: made(x, y, out=out),
        lambda: made(x, out=out, y=y),
        lambda: made(out=out, y=y, x=x),
        lambda: made(x, **{"y": y, "out": out}),  # noqa: PIE804 - the names come in a dict
    )
    for call in calls:
        out[:] = 0
        assert call() is out
        np.testing.assert_array_equal(out, x + y)
    assert made.slow_calls == 0


def test_a_keyword_that_is_not_interned_still_works() -> None:
    made = native(add, add_body)
    x = vector(4)
    name = "".join(["o", "u", "t"])
    assert name is not sys.intern(name)
    np.testing.assert_array_equal(made(x, x, **{name: np.zeros(4, "f4")}), x + x)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_outputs_left_out_are_allocated_natively(dtype: str) -> None:
    made = native(add, add_body)
    x = vector(12, dtype).reshape(3, 4)
    for result, expected in (
        (made(x, x), x + x),
        (made(y=x, x=x), x + x),
        (made(x, x[0]), x + x[0]),
        (made(x, x[:1]), x + x[:1]),
        (made(x[::-1], x), x[::-1] + x),
        (made(memoryview(x), x), x + x),
        (made(x[0, 0], x[0, 1]), x[0, 0] + x[0, 1]),
        (made(x[:0], x[:0]), x[:0]),
    ):
        assert type(result) is np.ndarray
        assert result.dtype == dtype
        assert result.shape == np.shape(expected)
        np.testing.assert_array_equal(result, expected)
    assert made.slow_calls == 0


def test_outputs_left_out_are_allocated_on_the_slow_path() -> None:
    made = native(add, add_body)
    x = vector(12).reshape(3, 4)
    for result, expected in (
        (made(x[0], x), x[0] + x),
        (made(x[:, :1], x[0]), x[:, :1] + x[0]),
        (made(x[:, ::2], x[:, ::2]), 2 * x[:, ::2]),
    ):
        np.testing.assert_array_equal(result, expected)
    assert made.slow_calls == 3


def test_outputs_left_out_of_a_fixed_rank() -> None:
    made = native(rows, rows_body)
    x = vector(12).reshape(3, 4)
    np.testing.assert_array_equal(made(x, x[0]), x + x[0])
    np.testing.assert_array_equal(made(b=x[:1], x=x), x + x[0])
    assert made(x[:0], x[0]).shape == (0, 4)
    assert made.slow_calls == 0
    with pytest.raises(ValueError, match="rows: operand x: got rank 1"):
        made(x[0], x[0])


def masked(x: In[f32, "M", "N"], out: Out[f32, "M", "N"], mask: In[f32, "M", "N"] | None = None) -> None:
    out[...] = x if mask is None else x * mask


def masked_body(w: Writer, t: ElementType) -> None:
    absent = w.compare("eq", "%mask", "null", "ptr")
    with w.countdown("%M") as m, w.countdown("%N") as n:
        x = w.load(t.llvm, element(w, t, "x", m, n))
        cell = w.cell("value", t.llvm, x)
        with w.when(w.op("xor", absent, "true", "i1")):
            factor = w.load(t.llvm, element(w, t, "mask", m, n))
            w.store(t.llvm, w.op("fmul", x, factor, t.llvm), cell)
        w.store(t.llvm, w.load(t.llvm, cell), element(w, t, "out", m, n))


def test_optional_operands() -> None:
    made = native(masked, masked_body)
    x, mask = vector(6).reshape(2, 3), vector(6).reshape(2, 3) * 2
    for rest in ((), (None,)):
        np.testing.assert_array_equal(made(x, np.zeros_like(x), *rest), x)
    np.testing.assert_array_equal(made(x, np.zeros_like(x), mask), x * mask)
    np.testing.assert_array_equal(made(x, mask=mask, out=np.zeros_like(x)), x * mask)
    assert made.slow_calls == 0
    np.testing.assert_array_equal(made(x, mask=mask[:, ::-1]), x * mask[:, ::-1])
    with pytest.raises(ValueError, match=r"masked: operand mask: got shape \(2, 2\), so N = 2; allowed: N = 3"):
        made(x, np.zeros_like(x), mask[:, :2])


def test_optional_operands_of_any_rank_may_be_absent_and_broadcast() -> None:
    made = native(soften, soften_body)
    x = vector(24).reshape(2, 3, 4)
    wide = np.zeros((2, 3, 8), "f4")
    for shift in (None, x, x[0], x[0, 0], x[:, :1]):
        for out in (np.zeros_like(x), wide[:, :, :4]):
            np.testing.assert_array_equal(made(x, out, shift), x if shift is None else x + shift)
    assert made.slow_calls == 0


def halves(x: In[f32, "N"], low: Out[f32, "N"], count: InOut[f32, "N"]) -> None:
    np.floor(x, out=low)
    count += 1


def halves_body(w: Writer, t: ElementType) -> None:
    with w.countdown("%N") as i:
        x = w.load(t.llvm, element(w, t, "x", i))
        w.store(t.llvm, w.let("floor", f"call float @llvm.floor.f32(float {x})"), element(w, t, "low", i))
        w.update("fadd", element(w, t, "count", i), "1.0", t.llvm)


def test_several_outputs_come_back_as_a_tuple() -> None:
    made = native(halves, halves_body)
    x, low, count = vector(3) + np.float32(0.5), np.zeros(3, "f4"), vector(3)
    result = made(x, low, count)
    assert type(result) is tuple
    assert result[0] is low
    assert result[1] is count
    assert made.slow_calls == 0
    np.testing.assert_array_equal(low, [1, 2, 3])
    np.testing.assert_array_equal(count, [2, 3, 4])
    allocated, again = made(x, count=count)
    assert again is count
    np.testing.assert_array_equal(allocated, low)
    np.testing.assert_array_equal(count, [3, 4, 5])


def test_outputs_that_interleave_in_memory_are_written_rightly() -> None:
    """Bounds overlap, memory does not: native code gets a copy of one, and its result comes back."""
    both = np.zeros((2, 8), "f4")
    x = vector(8).reshape(2, 4)
    for target in (native(doubled, doubled_body), kernel(doubled)):
        both[:] = -1
        target(x, both[:, :4], both[:, 4:])
        np.testing.assert_array_equal(both, np.hstack([x, x * 2]))


def doubled(x: In[f32, "M", "N"], one: Out[f32, "M", "N"], two: Out[f32, "M", "N"]) -> None:
    one[...] = x
    two[...] = x + x


def doubled_body(w: Writer, t: ElementType) -> None:
    with w.countdown("%M") as m, w.countdown("%N") as n:
        x = w.load(t.llvm, element(w, t, "x", m, n))
        w.store(t.llvm, x, element(w, t, "one", m, n))
        w.store(t.llvm, w.op("fadd", x, x, t.llvm), element(w, t, "two", m, n))


def through(x: In[f32, ...], out: Out[f32, ...]) -> None:
    out[...] = 1


def through_body(w: Writer, t: ElementType) -> None:
    """Writes all of the scratch memory, then 1 where it is given and aligned to 64 bytes, else 0."""
    place = w.let("place", "ptrtoint ptr %scratch to i64")
    aligned = w.compare("eq", w.op("and", place, "63"), "0")
    good = w.both([aligned, w.compare("ne", place, "0")])
    with w.when(w.compare("ne", place, "0")), w.countdown("%N") as i:
        w.store("i64", "-1", w.at("i64", "%scratch", i))
    with w.countdown("%N") as i:
        w.store("float", w.let("flag", f"uitofp i1 {good} to float"), element(w, t, "out", i))


def test_scratch_memory_is_aligned_and_as_large_as_asked_for() -> None:
    shape = kernel(through).signature
    made = native(through, through_body, scratch=scratch_function(shape, "1000"))
    for n in (1, 3, 125):
        out = np.zeros(n, "f4")
        made(vector(n), out)
        assert (out == 1).all()
    assert made.slow_calls == 0


@pytest.mark.parametrize("size", ["0", "-8"])
def test_no_scratch_memory_when_none_is_wanted(size: str) -> None:
    made = native(through, through_body, scratch=scratch_function(kernel(through).signature, size))
    assert (made(vector(3), np.ones(3, "f4")) == 0).all()
    assert (native(through, through_body)(vector(3), np.ones(3, "f4")) == 0).all()


def test_too_much_scratch_memory_is_a_memory_error_and_releases_the_operands() -> None:
    made = native(through, through_body, scratch=scratch_function(kernel(through).signature, str(1 << 60)))
    out = bytearray(12)
    with pytest.raises(MemoryError):
        made(vector(3), memoryview(out).cast("f"))
    out += b"1234"


def test_anything_with_a_native_buffer_is_taken() -> None:
    made = native(add, add_body)
    letters: tuple[tuple[str, Any], ...] = (("f4", "f"), ("f8", "d"))
    for dtype, letter in letters:
        x, expected = vector(4, dtype), vector(4, dtype) * 2
        out = array.array(letter, [0] * 4)
        assert made(array.array(letter, x), memoryview(x), out) is out
        np.testing.assert_array_equal(out, expected)
        view = memoryview(bytearray(4 * x.itemsize)).cast(letter)
        assert made(x, x.view(type("Sub", (np.ndarray,), {})), view) is view
        np.testing.assert_array_equal(view, expected)
    assert made.slow_calls == 0


def test_other_buffers_are_taken_on_the_slow_path_and_come_back_as_they_were_passed() -> None:
    import ctypes

    made = native(add, add_body)
    out = (ctypes.c_float * 4)()
    assert made(vector(4), (ctypes.c_float * 4)(1, 1, 1, 1), out) is out
    np.testing.assert_array_equal(out, vector(4) + 1)
    spelled_out = vector(4).view(np.dtype("f4").newbyteorder(sys.byteorder))
    np.testing.assert_array_equal(made(spelled_out, spelled_out, np.zeros(4, "f4")), vector(4) * 2)
    assert made.slow_calls == 2


def calls_of_all_kinds() -> list[tuple[Any, tuple[Any, ...], bool]]:
    made, scale = native(add, add_body), native(scaled, scaled_body)
    x, y, out = vector(16), vector(16), np.zeros(16, "f4")
    return [
        (made, (x, y, out), True),
        (made, (x, y), True),
        (made, (vector(32)[::2], y, out), True),
        (made, (vector(16, "i4"), y, out), False),
        (made, (x, y, y), False),
        (made, (x, y, memoryview(b"1234")), False),
        (made, (x, y, object()), False),
        (made, (x,), False),
        (scale, (x, out, 2.25, 1234567), True),
        (scale, (x, out, 2, 1), True),
        (scale, (x, out, 1.0, 1 << 80), False),
        (scale, (x, out, "1"), False),
        (kernel(add), (x, y, out), True),
    ]


@pytest.mark.parametrize("index", range(13))
def test_calls_leak_no_reference(index: int) -> None:
    made, arguments, good = calls_of_all_kinds()[index]

    def call(times: int) -> None:
        for _ in range(times):
            if good:
                made(*arguments)
            else:
                with pytest.raises((TypeError, ValueError)):
                    made(*arguments)

    call(20)
    gc.collect()
    watched = [*arguments, None, made, made.reference]
    before = [sys.getrefcount(item) for item in watched]
    call(10_000 if made.slow_calls == 0 else 1000)
    gc.collect()
    after = [sys.getrefcount(item) for item in watched]
    assert all(abs(a - b) < 20 for a, b in zip(before, after, strict=True)), (before, after)


def test_outputs_that_the_call_makes_belong_to_the_caller_alone() -> None:
    made, made_rows = native(add, add_body), native(rows, rows_body)
    x = vector(12).reshape(3, 4)
    assert sys.getrefcount(made(x, x)) == sys.getrefcount(np.empty(3))

    def blocks(call: Callable[[], Any]) -> int:
        for _ in range(50):
            call()
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(2000):
            call()
        gc.collect()
        return sys.getallocatedblocks() - before

    calls: tuple[Callable[[], Any], ...] = (
        lambda: made(x, x),
        lambda: made(x[0], x),
        lambda: made(x, x[:, ::-1]),
        lambda: made_rows(x, x[0]),
        lambda: made_rows(x[:, ::-1], x[0]),
    )
    assert [blocks(call) < 500 for call in calls] == [True] * len(calls)


@pytest.mark.parametrize("bad", ["nothing", "format", "size", "overlap"])
def test_buffers_are_released_on_every_path(bad: str) -> None:
    made = native(add, add_body)
    data, out = bytearray(32), bytearray(32)
    x, y = memoryview(data).cast("i" if bad == "format" else "f"), np.zeros(7 if bad == "size" else 8, "f4")
    target = x if bad == "overlap" else memoryview(out).cast("f")
    if bad == "nothing":
        made(x, y, target)
    else:
        try:
            made(x, y, target)
        except (TypeError, ValueError):
            pass
        else:
            pytest.fail("the call was not refused")
    x.release()
    target.release()
    data += b"1234"
    out += b"1234"


def test_an_error_that_is_set_by_an_operand_does_not_stay() -> None:
    made = native(add, add_body)
    with pytest.raises(TypeError, match="operand x: got object"):
        made(object(), vector(3), vector(3))
    made(vector(3), vector(3), np.zeros(3, "f4"))


def test_the_entry_has_no_address_of_this_process_in_it() -> None:
    """The same text in every process: its object can be kept on disk."""
    made = native(add, add_body)
    first = entry_ir(made.signature, made.dispatching, 64)
    assert first == entry_ir(made.signature, made.dispatching, 64)
    assert "inttoptr" not in first
    assert max(len(word) for word in first.replace("(", " ").split() if word.isdigit()) < 20


@pytest.mark.parametrize("triple", ["aarch64-unknown-linux-gnu", "x86_64-unknown-linux-gnu"])
@pytest.mark.parametrize("reference", [add, rows, scaled, masked, halves])
def test_the_entry_compiles_for_other_machines(triple: str, reference: Any) -> None:
    initialize_all_targets()
    cpu = "generic" if triple.startswith("aarch64") else "x86-64-v2"
    sizes = kernel(reference).signature.sizes
    made = kernel(reference, conditions=[f"{sizes[0]} <= 2", f"{sizes[-1]} * {sizes[0]} % 7 == 1"])
    image = compile_object(entry_ir(made.signature, made.dispatching, 64), Target(triple, cpu, ""))
    foreign = {name for name in undefined_symbols(image) if not name.startswith(("Py", "_Py"))}
    assert foreign <= {"aligned_alloc", "free", "memcpy", "memset", "_GLOBAL_OFFSET_TABLE_"}


def test_a_generic_type_that_only_an_optional_operand_has_is_an_error_at_declaration() -> None:
    def loose(x: In[f32, "N"], out: Out[f32, "N"], y: In[floats, "N"] | None = None) -> None: ...

    with pytest.raises(DeclarationError, match="the generic element type is bound by no required operand"):
        kernel(loose)


def test_operands_of_rank_0_and_rank_64() -> None:
    made = native(add, add_body)
    x = np.array(2.5, "f4")
    out = np.array(0, "f4")
    made(x, np.float32(1), out)
    assert out == 3.5
    x = np.arange(4, dtype="f4").reshape((1,) * 31 + (2,) + (1,) * 31 + (2,))
    np.testing.assert_array_equal(made(x, x, np.zeros_like(x)), x + x)
    assert made.slow_calls == 0
