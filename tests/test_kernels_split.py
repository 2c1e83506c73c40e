"""Every variant of the shipped kernels gives the same bits however its calls are split."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tunegen import kernels
from tunegen.box import this_box
from tunegen.calling import Callee, Dispatching, NativeDispatcher
from tunegen.errors import Declined
from tunegen.executor import CpuExecutor
from tunegen.making import make
from tunegen.parallel import Split, split
from tunegen.public.kernel import KernelMethods
from tunegen.public.variant import native_entry
from tunegen.requires import parse_requires
from tunegen.signature import ElementType

pytestmark = pytest.mark.usefixtures("shared_objects")

ROWS = ("softmax", "layernorm")
PRODUCTS = ("gemm", "linear", "linear_gelu")
MAPS = tuple(name for name in kernels.__all__ if name not in (*ROWS, *PRODUCTS, "scope"))
EXECUTORS = [CpuExecutor(threads, spin_us=5) for threads in (2, 3, 7)]

SHAPES: dict[str, list[dict[str, Any]]] = {
    "maps": [{"N": shape} for shape in ((1,), (67,), (1000,), (4099,), (37, 130), (3, 1500), (2, 30, 17))],
    "rows": [{"M": 1, "N": 5}, {"M": 2, "N": 1}, {"M": 7, "N": 67}, {"M": 33, "N": 130}, {"M": 130, "N": 16}],
    "products": [
        {"M": 1, "N": 131, "K": 40}, {"M": 4, "N": 67, "K": 3}, {"M": 5, "N": 3, "K": 1}, {"M": 33, "N": 33, "K": 0},
        {"M": 61, "N": 47, "K": 300}, {"M": 47, "N": 300, "K": 33}, {"M": 300, "N": 31, "K": 17},
        {"M": 19, "N": 40, "K": 800}, {"M": 3, "N": 2150, "K": 20},
    ],
}  # fmt: skip
OVERS = {"maps": [("N",)], "rows": [("M",)], "products": [("N", "M"), ("M",), ("N",)]}
GRAINS = {"maps": (0, 1, 100), "rows": (0, 1, 3, 16, 50), "products": (0, 1, 3, 16, 50)}


def family(name: str) -> str:
    return "rows" if name in ROWS else "products" if name in PRODUCTS else "maps"


def cases() -> Iterator[Any]:
    for name in (*MAPS, *ROWS, *PRODUCTS):
        spec = getattr(kernels, name).spec
        for element_type in spec.signature.element_types:
            for row in spec.grid:
                yield pytest.param(spec, element_type, row, id=spec.function.symbol(element_type, row.suffix))


def cut_at_will(spec: Any, element_type: ElementType, row: Any, over: tuple[str, ...]) -> Any:
    """One variant behind an entry that splits every call by the parameter `grain`."""
    own = split(*over, when=f"{over[0]} > 0", grain="grain").read(spec.signature.sizes, ("grain",))
    made = NativeDispatcher(spec.name, spec.signature, Dispatching((), ("grain",), own, (0,)), spec.function.reference)
    linked = make.make_family(spec, row, element_type, this_box())[spec.name]
    return made, {element_type.name: [Callee(linked.address, linked.scratch)]}


def operands(spec: Any, element_type: ElementType, sizes: dict[str, Any], rng: Any) -> dict[str, Any]:
    """Random inputs with room between their rows, and no outputs."""
    found = {}
    for operand in spec.signature.operands:
        if operand.written:
            continue
        shape = sizes["N"] if operand.dims is None else tuple(sizes[dim.symbol] for dim in operand.dims)
        wide = (3 * rng.standard_normal((*shape[:-1], shape[-1] + 3))).astype(element_type.dtype)
        found[operand.name] = wide[..., : shape[-1]]
    return found


@pytest.mark.parametrize(("spec", "element_type", "row"), list(cases()))
def test_a_variant_gives_the_same_bits_however_it_is_split(spec: Any, element_type: ElementType, row: Any) -> None:
    box, kind = this_box(), family(spec.name)
    if parse_requires(row.requires).missing(box.feature_set):
        pytest.skip(f"needs {row.requires}")
    rng = np.random.default_rng(7)
    for over in OVERS[kind]:
        try:
            made, callees = cut_at_will(spec, element_type, row, over)
        except Declined as declined:
            pytest.skip(str(declined))
        entry = native_entry(made, box)
        for sizes in SHAPES[kind]:
            given = operands(spec, element_type, sizes, rng)
            made.install(entry, callees)
            expected = made(**given)
            for executor, grain in itertools.product(EXECUTORS, GRAINS[kind]):
                made.install(entry, callees, values={element_type.name: {"grain": grain}}, executor=executor)
                assert made(**given).tobytes() == expected.tobytes(), (over, sizes, executor, grain)
        assert made.slow_calls == 0


@pytest.mark.parametrize("name", [*MAPS, *ROWS, *PRODUCTS])
def test_each_shipped_kernel_is_split_along_what_was_cut_here(name: str) -> None:
    kernel: KernelMethods = getattr(kernels, name)
    assert isinstance(kernel.spec.parallel, Split)
    assert kernel.dispatching.split is kernel.spec.parallel
    assert kernel.spec.parallel.over == OVERS[family(name)][0]
