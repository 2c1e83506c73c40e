"""Cases: the named concrete sizes that a kernel is tuned for, and the inputs made for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import msgspec
import numpy as np

from tunegen.signature import ANY_RANK_SIZE, ElementType, Operand, Signature

Shape = tuple[int, ...]
Sizes = dict[str, int | Shape]
Inputs = Callable[["np.random.Generator", Sizes, ElementType], Mapping[str, Any]]
"""`inputs=fn(rng, sizes, element_type)`: a value for each parameter that is not a pure output.

`np.random` stays unnamed until somebody draws from it: its import costs a third of numpy's.
"""


class Case(msgspec.Struct, frozen=True):
    """A name and sizes: a number per size symbol, or a shape per operand of any rank.

    `cold`: its operands come from memory at every call, and are raced that way; otherwise from wherever the last call
    left them.
    """

    name: str
    sizes: Sizes
    cold: bool = False

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v}' for k, v in self.sizes.items())})"


def case(name: str, /, *, cold: bool = False, **sizes: int | Shape) -> Case:
    """A case of a kernel: `case("mlp", M=128, N=384, K=384)`; for operands of any rank `N=1024` or `a=(128, 384)`.

    `cold=True` is for operands that a program does not find in the cache, such as weights that are used once a pass.
    """
    return Case(name, {key: tuple(value) if isinstance(value, list) else value for key, value in sizes.items()}, cold)


def problem(item: Case, signature: Signature) -> str:
    """What is wrong with a case for this signature, as a sentence; "" when nothing is."""
    if type(item.cold) is not bool:
        return f"case {item}: cold={item.cold!r}: cold operands are True or False"
    if signature.any_rank and set(item.sizes) != {ANY_RANK_SIZE}:
        inputs = {p.name for p in signature.operands if p.role != "out" and not p.optional}
        if set(item.sizes) != inputs or not all(_is_shape(v) for v in item.sizes.values()):
            return f"case {item}: give {ANY_RANK_SIZE}=, or a shape for each of {', '.join(sorted(inputs))}"
        try:
            shapes(signature, item.sizes)
        except ValueError:
            return f"case {item}: the shapes do not broadcast to one"
        return ""
    if set(item.sizes) != set(signature.sizes):
        return f"case {item}: the sizes are {', '.join(signature.sizes)}"
    wrong = [f"{k}={v!r}" for k, v in item.sizes.items() if type(v) is not int or v < 0]
    return f"case {item}: {', '.join(wrong)} is no whole number from 0 up" if wrong else ""


def _is_shape(value: object) -> bool:
    return isinstance(value, tuple) and all(type(n) is int and n >= 0 for n in value)


def shapes(signature: Signature, sizes: Mapping[str, int | Shape]) -> dict[str, Shape]:
    """The shape of each array operand for these sizes."""
    if not signature.any_rank:
        return {p.name: tuple(int(sizes[d.symbol]) for d in p.dims or ()) for p in signature.operands}  # type: ignore[arg-type]
    if ANY_RANK_SIZE in sizes:
        return {p.name: (int(sizes[ANY_RANK_SIZE]),) for p in signature.operands}  # type: ignore[arg-type]
    given = {name: shape for name, shape in sizes.items() if isinstance(shape, tuple)}
    full = np.broadcast_shapes(*given.values())
    return {p.name: given.get(p.name, full) for p in signature.operands}


def facts(signature: Signature, sizes: Mapping[str, int | Shape]) -> dict[str, int]:
    """The value of each size symbol, as size conditions see them."""
    if not signature.any_rank:
        return {symbol: int(sizes[symbol]) for symbol in signature.sizes}  # type: ignore[arg-type]
    return {ANY_RANK_SIZE: prod(shapes(signature, sizes)[signature.outputs[0].name])}


def default_inputs(
    signature: Signature, rng: np.random.Generator, sizes: Mapping[str, int | Shape], element_type: ElementType,
    *, optional: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """Standard normal arrays, scalars at their defaults (else 1), and optional operands if `optional`. A bool is true
    where such a number is positive.
    """
    values: dict[str, Any] = {}
    for parameter in signature.parameters:
        if not isinstance(parameter, Operand):
            values[parameter.name] = parameter.default if parameter.default is not None else 1
        elif parameter.optional and not optional:
            values[parameter.name] = None
        elif parameter.role != "out":
            shape = shapes(signature, sizes)[parameter.name]
            dtype = signature.type_of(parameter, element_type).dtype
            drawn = rng.standard_normal(shape)
            values[parameter.name] = np.asarray(drawn > 0) if dtype == np.bool_ else drawn.astype(dtype)
    return values
