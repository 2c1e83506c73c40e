"""Problems: concrete operands for gate and race, with the answers that the reference gives to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from math import prod
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tunegen import cases
from tunegen.cases import Sizes, shapes
from tunegen.making.spec import Spec
from tunegen.public.variant import oracle
from tunegen.signature import ElementType, Operand

Array = NDArray[Any]

AWKWARD = (0, 1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 33, 64, 65, 67)
"""Empty, one, primes, and both sides of the usual vector lengths."""
MIXED = 12
"""How many mixed combinations of awkward sizes a gate tries for a kernel of several sizes."""
ORACLE_LIMIT = {"f32": 1 << 31, "f64": 1 << 24}
"""Largest product of sizes that the reference is asked for in higher precision: float64 is fast, long double is not."""
GUARD_ELEMS = 64
"""Canary elements on each side of an output."""
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-40, 3e38, -3e38)


class Problem(msgspec.Struct, frozen=True):
    """Inputs for one set of sizes, and the expected outputs. `facts` are the values of the size symbols."""

    label: str
    sizes: Sizes
    facts: dict[str, int]
    inputs: dict[str, Any]
    expected: dict[str, Array]


def operands(spec: Spec, element_type: ElementType, sizes: Sizes, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs and fresh outputs by name, in signature order: a call's positional arguments.

    Outputs are poisoned with NaN and lie between canaries; what a kernel updates in place is a copy.
    """
    values: dict[str, Any] = {}
    for parameter in spec.signature.parameters:
        if not isinstance(parameter, Operand) or parameter.role == "in":
            values[parameter.name] = inputs[parameter.name]
        else:
            dtype = spec.signature.type_of(parameter, element_type).dtype
            array = guarded(shapes(spec.signature, sizes)[parameter.name], dtype)
            if parameter.role == "inout":
                array[...] = inputs[parameter.name]
            values[parameter.name] = array
    return values


def guarded(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A poisoned array of this shape in the middle of a buffer of canaries."""
    count = prod(shape)
    buffer = np.full(count + 2 * GUARD_ELEMS, 123.0, dtype)
    inner = buffer[GUARD_ELEMS : GUARD_ELEMS + count]
    inner[...] = np.nan
    return inner.reshape(shape)


def guards_hold(array: Array) -> bool:
    """Whether the canaries around a guarded array are as they were."""
    buffer = array
    while isinstance(buffer.base, np.ndarray):
        buffer = buffer.base
    return bool((buffer[:GUARD_ELEMS] == 123.0).all() and (buffer[-GUARD_ELEMS:] == 123.0).all())


def make_inputs(spec: Spec, element_type: ElementType, sizes: Sizes, seed: int, *, optional: bool) -> dict[str, Any]:
    """Inputs from the kernel's own maker, or the default ones."""
    rng = np.random.default_rng(seed)
    if spec.inputs is not None:
        return dict(spec.inputs(rng, dict(sizes), element_type))
    return cases.default_inputs(spec.signature, rng, sizes, element_type, optional=optional)


def problems(spec: Spec, element_type: ElementType, tiles: Iterable[int] = ()) -> Iterator[Problem]:
    """The problems of a gate: awkward sizes with changing seeds, special values among them, and the kernel's cases.

    `tiles` are further sizes worth trying, such as the edges of the register tiles of the grid.
    """
    for index, sizes in enumerate(_awkward(spec, tiles)):
        yield _problem(spec, element_type, f"awkward {_text(sizes)}", sizes, index)
    for index, case in enumerate(spec.cases):
        if prod(cases.facts(spec.signature, case.sizes).values()) <= ORACLE_LIMIT[element_type.name]:
            yield _problem(spec, element_type, f"case {case}", case.sizes, 1000 + 2 * index)


def _problem(spec: Spec, element_type: ElementType, label: str, sizes: Sizes, seed: int) -> Problem:
    inputs = make_inputs(spec, element_type, sizes, seed, optional=seed % 2 == 1)
    if seed % 4 == 3:
        _spice(spec, inputs, np.random.default_rng(seed))
    values = operands(spec, element_type, sizes, inputs)
    with np.errstate(all="ignore"):
        expected = oracle(spec, values)
    return Problem(label, sizes, cases.facts(spec.signature, sizes), inputs, expected)


def _spice(spec: Spec, inputs: dict[str, Any], rng: np.random.Generator) -> None:
    """Puts special values into inputs: all kinds into elementwise kernels, one NaN at the very end of others."""
    for operand in spec.signature.operands:
        array = inputs.get(operand.name)
        if isinstance(array, np.ndarray) and array.size:
            if spec.signature.any_rank:
                where = rng.integers(0, array.size, min(array.size, len(SPECIAL)))
                with np.errstate(all="ignore"):
                    array.flat[where] = np.asarray(SPECIAL[: len(where)], array.dtype)
            else:
                array.flat[array.size - 1] = np.nan
                return


def _awkward(spec: Spec, tiles: Iterable[int]) -> Iterator[Sizes]:
    values = sorted({*AWKWARD, *tiles})
    symbols = spec.signature.sizes
    if spec.signature.any_rank:
        names = [p.name for p in spec.signature.operands if p.role != "out" and not p.optional]
        for n in values:
            yield {"N": n}
        if len(names) > 1:
            yield {name: (3, 67) if i == 0 else (67,) for i, name in enumerate(names)}
        return
    if len(symbols) == 1:
        for n in values:
            yield {symbols[0]: n}
        return
    yield dict.fromkeys(symbols, 0)
    for symbol, n in product(symbols, (0, 1)):
        yield {**dict.fromkeys(symbols, 17), symbol: n}
    rng = np.random.default_rng(0)
    for _ in range(MIXED):
        yield {symbol: int(rng.choice(values)) for symbol in symbols}


def _text(sizes: Sizes) -> str:
    return ", ".join(f"{name}={value}" for name, value in sizes.items())
