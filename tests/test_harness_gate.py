"""The gate of the harness catches each kind of wrong variant."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from conftest import Libraries
from tunegen.harness import gate
from tunegen.harness.memory import Layout, Memory
from tunegen.harness.problems import Problem, operands, problems
from tunegen.kernels import add, exp, gemm, softmax
from tunegen.public.kernel import KernelMethods
from tunegen.signature import ELEMENT_TYPES

F32 = ELEMENT_TYPES["f32"]


def tried(kernel: KernelMethods) -> list[Problem]:
    return [problem for problem in problems(kernel.spec, F32) if not problem.label.startswith("case")]


def reference_of(kernel: KernelMethods) -> Callable[..., None]:
    def run(*values: Any) -> None:
        with np.errstate(all="ignore"):
            kernel.reference(*values)

    return run


@pytest.mark.parametrize("kernel", [exp, add, gemm, softmax], ids=lambda kernel: kernel.name)
def test_the_reference_passes(kernel: KernelMethods) -> None:
    assert gate.check(kernel.spec, F32, reference_of(kernel), tried(kernel)) is None


def test_a_variant_that_forgets_the_last_element_is_wrong_there() -> None:
    def partial(x: np.ndarray, out: np.ndarray) -> None:
        np.exp(x[:-1], out=out[:-1])

    wrong = gate.check(exp.spec, F32, partial, tried(exp))
    assert wrong is not None
    assert wrong.operand == "out"
    assert "got nan" in wrong.reason


def test_a_variant_that_returns_zeros_is_wrong() -> None:
    def zeros(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
        c[...] = 0

    assert gate.check(gemm.spec, F32, zeros, tried(gemm)) is not None


def test_writing_out_of_bounds_is_seen_on_both_sides() -> None:
    for offset in (-1, 1):

        def careless(x: np.ndarray, out: np.ndarray, offset: int = offset) -> None:
            np.exp(x, out=out)
            stray = out.ctypes.data + (-4 if offset < 0 else 4 * out.size)
            ctypes.memset(stray, 7, 4)

        wrong = gate.check(exp.spec, F32, careless, tried(exp))
        assert wrong is not None
        assert "out of bounds" in wrong.reason


def test_changing_an_input_is_seen() -> None:
    def greedy(x: np.ndarray, out: np.ndarray) -> None:
        np.exp(x, out=out)
        x[...] = 0

    wrong = gate.check(exp.spec, F32, greedy, tried(exp))
    assert wrong is not None
    assert wrong.operand == "x"


def test_wrong_at_one_remainder_or_at_special_values_only_is_wrong() -> None:
    def bad_at_65(x: np.ndarray, out: np.ndarray) -> None:
        np.exp(x, out=out)
        if x.size == 65:
            out[64] = np.nan

    def no_nan(x: np.ndarray, out: np.ndarray) -> None:
        np.exp(np.nan_to_num(x, nan=0.0), out=out)

    with np.errstate(all="ignore"):
        assert gate.check(exp.spec, F32, bad_at_65, tried(exp)) is not None
        assert gate.check(exp.spec, F32, no_nan, tried(exp)) is not None


def test_outputs_begin_as_nan_and_each_variant_has_its_own() -> None:
    problem = next(p for p in tried(exp) if p.facts["N"] == 5)
    first, second = (operands(exp.spec, F32, problem.sizes, problem.inputs)["out"] for _ in range(2))
    assert np.isnan(first).all()
    assert not np.shares_memory(first, second)


def test_a_gate_tries_empty_and_single_sizes_tile_edges_and_optional_operands_both_ways() -> None:
    labels = {tuple(problem.facts.values()) for problem in tried(gemm)}
    assert (0, 0, 0) in labels
    assert any(1 in sizes for sizes in labels)
    assert {13, 14, 15, 29} <= gate.tile_edges([row for row in gemm.spec.grid if row.perm.get("mr") == 14])
    given = {problem.inputs["mask"] is None for problem in tried(softmax)}
    assert given == {True, False}


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("kernel", [exp, add, gemm, softmax], ids=lambda kernel: kernel.name)
def test_the_reference_passes_between_guard_pages_too(kernel: KernelMethods, guarded: bool) -> None:
    labels: list[str] = []
    found = gate.check(kernel.spec, F32, reference_of(kernel), tried(kernel), guarded=guarded, announce=labels.append)
    assert found is None
    assert labels == [problem.label for problem in tried(kernel)]


def test_every_size_has_several_seeds_with_and_without_special_values_flush_with_both_guard_pages() -> None:
    pairs = [tried(exp)[i : i + 2] for i in range(0, len(tried(exp)), 2)]
    for one, other in pairs:
        assert one.sizes == other.sizes
        assert {gate.layout_of(p.number, guarded=True).where for p in (one, other)} == {"end", "start"}
        if one.facts["N"] > 2:
            assert one.inputs["x"].tobytes() != other.inputs["x"].tobytes()
            assert [np.isfinite(p.inputs["x"]).all() for p in (one, other)].count(True) == 1
    combinations = {(gate.layout_of(p.number, guarded=True), p.inputs["mask"] is None) for p in tried(softmax)}
    assert len(combinations) == 8


def test_a_variant_that_ignores_strides_is_wrong() -> None:
    def contiguous(x: np.ndarray, out: np.ndarray, mask: Any, scale: float) -> None:
        expected = np.empty(x.shape, x.dtype)
        softmax.reference(x, expected, mask, scale)
        flat = (ctypes.c_float * out.size).from_address(out.ctypes.data) if out.size else []
        flat[:] = expected.ravel().tolist()

    with np.errstate(all="ignore"):
        wrong = gate.check(softmax.spec, F32, contiguous, tried(softmax))
    assert wrong is not None
    assert "out of bounds" in wrong.reason


def test_a_kernel_that_allows_it_is_tried_in_place_on_each_input() -> None:
    def apart(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        out[...] = a
        out += b  # reads b after out was written

    with np.errstate(all="ignore"):
        wrong = gate.check(add.spec, F32, apart, tried(add))
    assert wrong is not None
    assert "in place on b" in wrong.problem


def test_what_accumulates_starts_from_the_same_values_each_time(library: Libraries) -> None:
    made = library("""
        @scope.tune(gen="toy.ll.j2", gate=bitwise(), cases=[case("some", N=8)])
        @scope.tune_perm(row=1)
        def accumulate(x: In[f32, "N"], out: InOut[f32, "N"]) -> None:
            out += x
    """)
    problems_of_it = list(problems(made.accumulate.spec, F32))

    def twice(x: np.ndarray, out: np.ndarray) -> None:
        out += x
        out += x

    with np.errstate(all="ignore"):
        for _ in range(2):
            assert gate.check(made.accumulate.spec, F32, made.accumulate.reference, problems_of_it) is None
        assert gate.check(made.accumulate.spec, F32, twice, problems_of_it) is not None


def test_inputs_that_share_memory_are_refused(library: Libraries) -> None:
    made = library("""
        def shared(rng, sizes, element_type):
            a = rng.standard_normal(sizes["N"] + 1).astype(element_type.dtype)
            return {"x": a[1:], "y": a[:-1]}

        @scope.tune(gen="toy.ll.j2", gate=bitwise(), cases=[case("some", N=8)], inputs=shared)
        @scope.tune_perm(row=1)
        def twofold(x: In[f32, "N"], y: In[f32, "N"], out: Out[f32, "N"]) -> None:
            out[...] = x + y
    """)
    with pytest.raises(ValueError, match="inputs of twofold: x and y share memory"):
        list(problems(made.twofold.spec, F32))


@pytest.mark.parametrize("where", ["room", "end", "start"])
@pytest.mark.parametrize("shape", [(0,), (1,), (5,), (3, 4), (0, 4), (4, 0), (2, 3, 4), ()])
@pytest.mark.parametrize("pad", [0, 3])
def test_memory_of_any_shape_and_layout_holds_what_is_put_into_it(where: Any, shape: tuple[int, ...], pad: int) -> None:
    memory = Memory()
    for dtype in (np.dtype(np.float32), np.dtype(np.float64)):
        placed = memory.array("x", shape, dtype, Layout(where, pad))
        values = np.arange(placed.array.size, dtype=dtype).reshape(shape)
        placed.array[...] = values
        assert placed.intact()
        assert (placed.array == values).all()
        assert placed.array.shape == shape
        if len(shape) > 1 and values.size:
            assert placed.array.strides[-2] == (shape[-1] + pad) * dtype.itemsize
        placed.frame[0 if where == "end" else -1] ^= 1
        assert not placed.intact()


@pytest.mark.parametrize("pad", [0, 3])
@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 4)])
def test_every_byte_beside_an_array_is_looked_at_and_none_of_its_own(shape: tuple[int, ...], pad: int) -> None:
    placed = Memory().array("x", shape, np.dtype(np.float32), Layout("room", pad))
    placed.array[...] = 0
    own = placed.frame == 0
    assert own.sum() == placed.array.nbytes
    for byte in range(placed.frame.size):
        placed.frame[byte] ^= 1
        assert placed.intact() == own[byte]
        placed.frame[byte] ^= 1
