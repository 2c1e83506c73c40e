"""Problems: concrete operands for gate and race, with the answers that the reference gives to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations, product
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
ORACLE_LIMIT = {"f32": 1 << 31, "f64": 1 << 24, "bool": 1 << 31}
"""Largest product of sizes that the reference is asked for in higher precision: float64 is fast, long double is not."""
SEEDS = 2
"""How many problems a gate has for each set of sizes, with other numbers each."""
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-40, 3e38, -3e38)
TRUE_BYTES = (1, 2, 0x7F, 0x80, 0xFF)
"""True as a bool array may hold it: numpy takes any byte but 0 so, and a view of other data has them."""
POISON = 0xA5
"""A byte that no bool output holds."""


class Problem(msgspec.Struct, frozen=True):
    """Inputs for one set of sizes, and the expected outputs. `facts` are the values of the size symbols.

    `number` counts the problems of a gate: it decides how their operands lie in memory.
    """

    number: int
    label: str
    sizes: Sizes
    facts: dict[str, int]
    inputs: dict[str, Any]
    expected: dict[str, Array]


def operands(spec: Spec, element_type: ElementType, sizes: Sizes, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs and fresh outputs by name, in signature order: a call's positional arguments.

    Outputs are poisoned; what a kernel updates in place is a copy.
    """
    values: dict[str, Any] = {}
    for parameter in spec.signature.parameters:
        if not isinstance(parameter, Operand) or parameter.role == "in":
            values[parameter.name] = inputs[parameter.name]
        else:
            dtype = spec.signature.type_of(parameter, element_type).dtype
            array: Array = np.empty(shapes(spec.signature, sizes)[parameter.name], dtype)
            poison(array)
            if parameter.role == "inout":
                array[...] = inputs[parameter.name]
            values[parameter.name] = array
    return values


def poison(output: Array) -> None:
    """Fills an output with what no answer looks like: NaN, and for bool a byte that is neither 0 nor 1."""
    if output.dtype == np.bool_:
        output.view(np.uint8)[...] = POISON
    else:
        output[...] = np.nan


def make_inputs(spec: Spec, element_type: ElementType, sizes: Sizes, seed: int, *, optional: bool) -> dict[str, Any]:
    """Inputs from the kernel's own maker, or the default ones.

    Raises `ValueError` for a maker whose arrays share memory: what one call wrote would reach another operand.
    """
    rng = np.random.default_rng(seed)
    if spec.inputs is None:
        return cases.default_inputs(spec.signature, rng, sizes, element_type, optional=optional)
    made = dict(spec.inputs(rng, dict(sizes), element_type))
    arrays = [(name, value) for name, value in made.items() if isinstance(value, np.ndarray)]
    for (one, a), (other, b) in combinations(arrays, 2):
        if np.may_share_memory(a, b):
            raise ValueError(f"inputs of {spec.name}: {one} and {other} share memory")
    return made


def problems(spec: Spec, element_type: ElementType, tiles: Iterable[int] = ()) -> Iterator[Problem]:
    """The problems of a gate: awkward sizes and the kernel's cases, each with several seeds.

    `tiles` are further sizes worth trying, such as the edges of the register tiles of the grid. Every awkward size is
    tried with special values and without.
    """
    awkward = [(f"awkward {_text(sizes)}", sizes, True) for sizes in _awkward(spec, tiles)]
    declared = [
        (f"case {case}", case.sizes, False)
        for case in spec.cases
        if prod(cases.facts(spec.signature, case.sizes).values()) <= ORACLE_LIMIT[element_type.name]
    ]
    for index, (label, sizes, special) in enumerate([*awkward, *declared]):
        for seed in range(SEEDS):
            number = SEEDS * index + seed
            # over four sizes, every seed meets optional operands and special values in all combinations
            spice = special and (index // 2 + seed) % 2 == 1
            yield _problem(spec, element_type, label, sizes, number, (index + seed) % 2 == 1, spice)


def _problem(
    spec: Spec, element_type: ElementType, label: str, sizes: Sizes, number: int, optional: bool, spice: bool
) -> Problem:
    inputs = make_inputs(spec, element_type, sizes, number, optional=optional)
    if spice:
        _spice(spec, inputs, np.random.default_rng(number))
    values = operands(spec, element_type, sizes, inputs)
    with np.errstate(all="ignore"):
        expected = oracle(spec, values)
    return Problem(number, label, sizes, cases.facts(spec.signature, sizes), inputs, expected)


def _spice(spec: Spec, inputs: dict[str, Any], rng: np.random.Generator) -> None:
    """Puts special values into inputs: all kinds into elementwise kernels, one NaN at the very end of others.

    What is true in a bool becomes one of several bytes.
    """
    for operand in spec.signature.operands:
        array = inputs.get(operand.name)
        if isinstance(array, np.ndarray) and array.size:
            if array.dtype == np.bool_:
                array.view(np.uint8)[...] *= rng.choice(TRUE_BYTES, array.shape).astype(np.uint8)
            elif spec.signature.any_rank:
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
