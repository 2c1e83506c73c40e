"""The gate: a variant answers every problem as the reference does, or it is out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import numpy as np

from tunegen.grid import Row
from tunegen.harness.problems import Problem, guards_hold, operands
from tunegen.making.spec import Spec
from tunegen.signature import ElementType


class Wrong(msgspec.Struct, frozen=True):
    """Why a variant failed: on which problem, in which operand, and how."""

    problem: str
    operand: str
    reason: str

    def __str__(self) -> str:
        return f"{self.problem}: {self.operand}{self.reason}"


def tile_edges(rows: Iterable[Row]) -> set[int]:
    """Sizes around the integers of a grid: t - 1, t, t + 1 and 2t + 1 of each value up to 128."""
    tiles = {v for row in rows for v in row.perm.values() if type(v) is int and 1 < v <= 128}
    return {n for t in tiles for n in (t - 1, t, t + 1, 2 * t + 1)}


def check(
    spec: Spec, element_type: ElementType, variant: Callable[..., Any], problems: Iterable[Problem]
) -> Wrong | None:
    """The first problem that `variant` gets wrong; None when it passes the gate.

    Outputs are poisoned and guarded, and inputs must be left as they were.
    """
    for problem in problems:
        values = operands(spec, element_type, problem.sizes, problem.inputs)
        before = {k: v.tobytes() for k, v in problem.inputs.items() if isinstance(v, np.ndarray)}
        variant(*values.values())
        for operand in spec.signature.outputs:
            got = values[operand.name]
            if not guards_hold(got):
                return Wrong(problem.label, operand.name, ": written out of bounds")
            with np.errstate(all="ignore"):
                wrong = spec.gate.check(got, problem.expected[operand.name], problem.facts)
            if wrong is not None:
                text = f"{list(wrong.index)}: got {wrong.got!r}, expected {wrong.expected!r}, allowed {wrong.bound}"
                return Wrong(problem.label, operand.name, text)
        for name, data in before.items():
            if problem.inputs[name].tobytes() != data:
                return Wrong(problem.label, name, ": an input was changed")
    return None
