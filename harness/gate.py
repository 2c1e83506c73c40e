"""The gate: a variant answers every problem as the reference does, or it is out.

First with room around the operands, where a stray write is seen and a variant that crashes does so for a reason of its
own; then `guarded`, where what strays beyond an operand ends the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import numpy as np

from tunegen.cases import shapes
from tunegen.grid import Row
from tunegen.harness.memory import Framed, Layout, Memory, Where
from tunegen.harness.problems import Array, Problem, poison
from tunegen.making.spec import Spec
from tunegen.signature import ElementType, Operand

LARGE_ELEMS = 1 << 14
"""Outputs larger than this are compared with room around the operands alone: their numbers are the same elsewhere."""
PAD_ELEMS = 3
"""How far apart the rows of some operands are, beyond their own length."""


class Wrong(msgspec.Struct, frozen=True):
    """Why a variant failed: on which problem, in which operand, and how."""

    problem: str
    operand: str
    reason: str

    def __str__(self) -> str:
        return f"{self.problem}: {self.operand}{self.reason}"


OUT_OF_BOUNDS = ": written out of bounds"


def tile_edges(rows: Iterable[Row]) -> set[int]:
    """Sizes around the integers of a grid: t - 1, t, t + 1 and 2t + 1 of each value up to 128."""
    tiles = {v for row in rows for v in row.perm.values() if type(v) is int and 1 < v <= 128}
    return {n for t in tiles for n in (t - 1, t, t + 1, 2 * t + 1)}


def check(
    spec: Spec,
    element_type: ElementType,
    variant: Callable[..., Any],
    problems: Iterable[Problem],
    *,
    guarded: bool = False,
    announce: Callable[[str], None] = lambda label: None,
    memory: Memory | None = None,
) -> Wrong | None:
    """The first problem that `variant` gets wrong; None when it passes the gate.

    Outputs are poisoned, inputs must be left as they were, and nothing around an operand may be written. `announce` is
    called with each problem's label before the variant runs. `memory` is that of an earlier check.
    """
    memory = memory or Memory()
    for problem in problems:
        announce(problem.label)
        placed = _placed(spec, element_type, problem, memory, layout_of(problem.number, guarded=guarded))
        wrong = _run(spec, variant, problem, placed, guarded=guarded)
        if wrong is None and not guarded and (alias := _alias(spec, problem)):
            placed = _placed(spec, element_type, problem, memory, Layout())
            output = spec.signature.outputs[0].name
            wrong = _run(spec, variant, problem, {**placed, output: placed[alias]}, alias=alias)
        if wrong is not None:
            return wrong
    return None


def layout_of(number: int, *, guarded: bool) -> Layout:
    """How the operands of a problem lie: the two seeds of a size flush with either side of a guarded region.

    Rows are apart for every other four sizes.
    """
    where: Where = "room" if not guarded else "end" if number % 2 == 0 else "start"
    return Layout(where, PAD_ELEMS if number // 8 % 2 == 1 else 0)


def _placed(spec: Spec, element_type: ElementType, problem: Problem, memory: Memory, layout: Layout) -> dict[str, Any]:
    """A call's arguments by name: copies of the inputs, and poisoned outputs, all in `memory`."""
    values: dict[str, Any] = {}
    for parameter in spec.signature.parameters:
        name = parameter.name
        if isinstance(parameter, Operand) and parameter.role == "out":
            shape = shapes(spec.signature, problem.sizes)[name]
            values[name] = memory.array(name, shape, spec.signature.type_of(parameter, element_type).dtype, layout)
            poison(values[name].array)
        elif isinstance(given := problem.inputs[name], np.ndarray):
            values[name] = memory.array(name, given.shape, given.dtype, layout)
            values[name].array[...] = given
        else:
            values[name] = given
    return values


def _run(
    spec: Spec,
    variant: Callable[..., Any],
    problem: Problem,
    placed: dict[str, Any],
    *,
    alias: str = "",
    guarded: bool = False,
) -> Wrong | None:
    """Runs the variant on operands that lie ready. `alias` is the input that is the output as well."""
    label = f"{problem.label}, in place on {alias}" if alias else problem.label
    variant(*(value.array if isinstance(value, Framed) else value for value in placed.values()))
    for name, value in placed.items():
        if isinstance(value, Framed) and not value.intact():
            return Wrong(label, name, OUT_OF_BOUNDS)
    written = {alias, *(operand.name for operand in spec.signature.outputs)}
    for name, value in placed.items():
        if isinstance(value, Framed) and name not in written and not _same(value.array, problem.inputs[name]):
            return Wrong(label, name, ": an input was changed")
    for operand in spec.signature.outputs:
        if guarded and problem.expected[operand.name].size > LARGE_ELEMS:
            continue
        with np.errstate(all="ignore"):
            wrong = spec.gate.check(placed[operand.name].array, problem.expected[operand.name], problem.facts)
        if wrong is not None:
            text = f"{list(wrong.index)}: got {wrong.got!r}, expected {wrong.expected!r}, allowed {wrong.bound}"
            return Wrong(label, operand.name, text)
    return None


def _same(one: Array, other: Array) -> bool:
    """Whether two arrays hold the same bits."""
    bits = f"u{one.itemsize}"
    return bool((one.view(bits) == other.view(bits)).all())


def _alias(spec: Spec, problem: Problem) -> str:
    """The input that is the output as well in this problem's run in place; "" where there is none.

    For kernels that are declared so, with one seed of each size, on one input after the other.
    """
    if not spec.signature.inplace or problem.number % 2 == 0:
        return ""
    expected = problem.expected[spec.signature.outputs[0].name]
    fitting = [
        name
        for name, value in problem.inputs.items()
        if isinstance(value, np.ndarray) and value.shape == expected.shape
    ]
    return fitting[problem.number // 2 % len(fitting)] if fitting else ""
