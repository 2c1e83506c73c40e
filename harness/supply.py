"""Operands for calls of many sizes: the same numbers each time, in memory that larger and smaller calls share."""

from __future__ import annotations

from typing import Any

import numpy as np

from tunegen import cases
from tunegen.cases import Sizes
from tunegen.harness.problems import Array, make_inputs, operands
from tunegen.making.spec import Spec
from tunegen.signature import ElementType, Operand

SEED = 0
PATTERN = 4099
"""How many normal numbers are repeated: a prime, so that no share begins like another one."""


class Supply:
    """Operands of one kernel and element type.

    Inputs repeat a few thousand normal numbers, so large ones take no longer than their pages. A call of other sizes
    gets the beginning of the same memory; what a kernel updates in place is fresh each time. A kernel with a maker of
    its own gets all from that.
    """

    def __init__(self, spec: Spec, element_type: ElementType) -> None:
        self.spec = spec
        self.element_type = element_type
        self._numbers = np.random.default_rng(SEED).standard_normal(PATTERN)
        self._memory: dict[str, Array] = {}

    def operands(self, sizes: Sizes) -> dict[str, Any]:
        """The arguments of a call by name, in order."""
        if self.spec.inputs is not None:
            made = make_inputs(self.spec, self.element_type, sizes, SEED, optional=True)
            return operands(self.spec, self.element_type, sizes, made)
        shapes = cases.shapes(self.spec.signature, sizes)
        return {
            p.name: self._array(p, shapes[p.name]) if isinstance(p, Operand) else 1 if p.default is None else p.default
            for p in self.spec.signature.parameters
        }

    def _array(self, operand: Operand, shape: tuple[int, ...]) -> Array:
        count = int(np.prod(shape, dtype=np.int64))
        if operand.role == "inout":
            return self._filled(operand, count).reshape(shape)
        kept = self._memory.get(operand.name)
        if kept is None or kept.size < count:
            kept = self._memory[operand.name] = self._filled(operand, count)
        return kept[:count].reshape(shape)

    def _filled(self, operand: Operand, count: int) -> Array:
        dtype = self.spec.signature.type_of(operand, self.element_type).dtype
        numbers = self._numbers > 0 if dtype == np.bool_ else self._numbers
        return np.resize(numbers.astype(dtype), count)
