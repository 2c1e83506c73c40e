"""The gate of the harness catches each kind of wrong variant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tunegen.harness import gate
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
            inner, whole = out, out
            while isinstance(whole.base, np.ndarray):
                whole = whole.base
            start = (inner.ctypes.data - whole.ctypes.data) // inner.itemsize
            whole[start - 1 if offset < 0 else start + inner.size] = 7

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
