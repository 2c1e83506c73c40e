"""Every variant of every shipped kernel answers as its reference does, on any size, view and alignment."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import numpy as np
import pytest
from variants import KERNELS, VARIANTS, Item

from tunegen import Declined
from tunegen.box import this_box
from tunegen.cases import shapes
from tunegen.harness import gate
from tunegen.harness.problems import SEEDS, Problem, make_inputs, problems
from tunegen.public.kernel import KernelMethods
from tunegen.public.variant import Variant
from tunegen.requires import parse_requires
from tunegen.signature import ElementType, Operand

pytestmark = pytest.mark.usefixtures("shared_objects")

CANARY = 77
"""A byte. As a number of any element type, too, it is none that a kernel gives."""
_made: dict[str, Any] = {}


@cache
def gate_problems(kernel: KernelMethods, element_type: ElementType) -> list[Problem]:
    """The problems of a kernel's gate; very large cases, and further seeds of large ones, are for the tuner.

    So is any long array for an elementwise kernel, which takes the same paths at every length beyond its vectors.
    """
    edges = gate.tile_edges(kernel.spec.grid.corners())
    found = list(problems(kernel.spec, element_type, edges))
    sizes = {problem.number: prod(problem.facts.values()) for problem in found}
    large = 1 << 16 if kernel.signature.any_rank else 1 << 26
    most = {number: large if number % SEEDS == 0 else 1 << 16 for number in sizes}
    return [problem for problem in found if sizes[problem.number] <= most[problem.number]]


def made(item: Item, mask: str = "") -> Any:
    """The variant, ready to call, on this box without the features of `mask`; skips where it cannot be had."""
    key = f"{item} {mask}"
    if key in _made:
        return _made[key]
    missing = parse_requires(item.row.requires).missing(this_box().feature_set)
    if missing:
        pytest.skip(f"this box has no {missing}")
    variant = Variant(item.spec, item.row, (item.element_type,))
    try:
        call(variant, item, dict.fromkeys(item.spec.signature.sizes, 3))
    except Declined as declined:
        pytest.skip(f"declined: {declined}")
    _made[key] = variant
    return variant


def call(variant: Any, item: Item, sizes: dict[str, Any], layout: str = "plain") -> dict[str, np.ndarray]:
    """Runs a variant on inputs in the given memory layout, and returns its outputs."""
    spec = item.spec
    inputs = make_inputs(spec, item.element_type, sizes, seed=1, optional=True)
    values: dict[str, Any] = {}
    for parameter in spec.signature.parameters:
        if isinstance(parameter, Operand):
            shape = shapes(spec.signature, sizes)[parameter.name]
            array = arrange(shape, item.element_type.dtype, layout)
            if parameter.name in inputs:
                array[...] = inputs[parameter.name]
            values[parameter.name] = array
        else:
            values[parameter.name] = inputs[parameter.name]
    variant(*values.values())
    outputs = {operand.name: values[operand.name] for operand in spec.signature.outputs}
    for array in outputs.values():
        assert surroundings_hold(array), f"{item} wrote beside its output in layout {layout}"
    return outputs


def arrange(shape: tuple[int, ...], dtype: np.dtype[Any], layout: str) -> np.ndarray:
    """An array of canaries inside more canaries: plain, one element off alignment, or with gaps between rows."""
    pad = {"plain": 0, "offset": 0, "gaps": 5, "reversed": 3}[layout]
    start = {"plain": 64, "offset": 61, "gaps": 63, "reversed": 64}[layout]
    rows, columns = prod(shape[:-1]), shape[-1] if shape else 1
    buffer = canaries(start + rows * (columns + pad) + 64, dtype)
    body = buffer[start : start + rows * (columns + pad)].reshape((*shape[:-1], columns + pad))
    view = body[..., :columns]
    return view[::-1] if layout == "reversed" and len(shape) > 1 else view


def canaries(count: int, dtype: np.dtype[Any]) -> np.ndarray:
    """`count` elements whose bytes are all canaries."""
    return np.full(count * dtype.itemsize, CANARY, np.uint8).view(dtype)


def surroundings_hold(array: np.ndarray) -> bool:
    """Whether everything around `array` in its buffer is still a canary."""
    buffer = array
    while isinstance(buffer.base, np.ndarray):
        buffer = buffer.base
    inside = array.copy()
    array[...] = canaries(1, array.dtype)
    untouched = bool((buffer.view(np.uint8) == CANARY).all())
    array[...] = inside
    return untouched


@pytest.mark.parametrize("mask", ["", "-avx512f", "-avx"])
@pytest.mark.parametrize("item", VARIANTS, ids=str)
def test_a_variant_passes_the_gate(item: Item, mask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Awkward sizes, tile edges, NaN, infinities, signed zeros, denormals, poisoned and guarded outputs.

    Also in the code that lesser boxes run: without masked memory operations, without fma.
    """
    if mask and mask[1:] not in this_box().feature_set:
        pytest.skip(f"this box has no {mask[1:]} to mask")
    monkeypatch.setenv("TUNE_FEATURES", mask)
    variant = made(item, mask)
    assert gate.check(item.spec, item.element_type, variant, gate_problems(item.kernel, item.element_type)) is None


@pytest.mark.parametrize("item", VARIANTS, ids=str)
def test_views_give_the_bits_of_plain_arrays_and_nothing_beside_them_is_written(item: Item) -> None:
    """Off alignment, with gaps between rows, rows in reverse: the same code, the same bits, no slow path."""
    variant = made(item)
    before = variant.slow_calls
    for n in (1, 7, 16, 33, 67):
        sizes = dict.fromkeys(item.spec.signature.sizes, n)
        if item.spec.signature.any_rank:
            sizes = {p.name: (5, n) for p in item.spec.signature.operands if not p.written}
        plain = call(variant, item, sizes)
        for layout in ("offset", "gaps", "reversed"):
            for name, array in call(variant, item, sizes, layout).items():
                np.testing.assert_array_equal(array, plain[name], err_msg=f"{layout}, n = {n}")
    assert variant.slow_calls == before


@pytest.mark.parametrize("item", [v for v in VARIANTS if v.spec.signature.inplace], ids=str)
def test_an_elementwise_variant_may_overwrite_its_input(item: Item) -> None:
    variant = made(item)
    for n in (1, 15, 16, 17, 67, 1000):
        inputs = make_inputs(item.spec, item.element_type, {"N": n}, seed=2, optional=True)
        out = np.empty(n, item.element_type.dtype)
        variant(*inputs.values(), out)
        first, *rest = inputs.values()
        shared = first.copy()
        variant(shared, *rest, shared)
        np.testing.assert_array_equal(shared, out)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_sizes_1_to_67_offsets_and_outer_strides_never_take_the_slow_path(kernel: KernelMethods) -> None:
    item = Item(kernel, next(iter(kernel.spec.grid)), kernel.signature.element_types[0])
    if kernel.stamp[item.element_type.name].default.emitted == "reference":
        pytest.skip("this box runs the reference")
    call(kernel, item, dict.fromkeys(kernel.signature.sizes, 2))
    before = kernel.slow_calls
    for n in range(1, 68):
        sizes: dict[str, Any] = dict.fromkeys(kernel.signature.sizes, n)
        if kernel.signature.any_rank:
            sizes = {p.name: (3, n) for p in kernel.signature.operands if not p.written}
        for layout in ("plain", "offset", "gaps"):
            call(kernel, item, sizes, layout)
    assert kernel.slow_calls == before


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_overlapping_operands_are_refused_and_nothing_is_written(kernel: KernelMethods) -> None:
    element_type = kernel.signature.element_types[0]
    sizes = dict.fromkeys(kernel.signature.sizes, 8)
    inputs = make_inputs(kernel.spec, element_type, sizes, seed=3, optional=False)
    operand = kernel.signature.outputs[0]
    first = next(p for p in kernel.signature.operands if p.role == "in")
    shape = shapes(kernel.signature, sizes)
    buffer = canaries(200, element_type.dtype)
    given = buffer[: prod(shape[first.name])].reshape(shape[first.name])
    out = buffer[1 : 1 + prod(shape[operand.name])].reshape(shape[operand.name])
    with pytest.raises(ValueError, match=rf"{kernel.name}: .*{operand.name}"):
        kernel(**{**inputs, first.name: given, operand.name: out})
    assert (buffer.view(np.uint8) == CANARY).all()


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_kernel_documents_itself_in_full(kernel: KernelMethods) -> None:
    """Operands, flops, bytes and the error bound stand in the docstring."""
    text = kernel.__doc__ or ""
    for word in ("flops", "bytes", "error"):
        assert word in text.lower(), f"{kernel.name}: the docstring does not mention {word}"
    for parameter in kernel.signature.parameters:
        assert parameter.name in text
