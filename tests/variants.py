"""Every variant of every shipped kernel, for tests that walk the registry."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

import tunegen.kernels as shipped
from tunegen.grid import Row
from tunegen.making.spec import Spec
from tunegen.public.kernel import KernelMethods
from tunegen.signature import ElementType

MOST = 256
"""Rows of a kernel that tests walk; larger grids are sampled."""
KERNELS: list[KernelMethods] = list(shipped.scope.kernels.values())


class Item(NamedTuple):
    """One variant: a row of a kernel for one element type."""

    kernel: KernelMethods
    row: Row
    element_type: ElementType

    @property
    def spec(self) -> Spec:
        return self.kernel.spec

    def __str__(self) -> str:
        return self.spec.function.symbol(self.element_type, self.row.suffix)


def rows(kernel: KernelMethods) -> list[Row]:
    """All rows of a kernel; of a grid too large to walk, some that take each value of each axis."""
    first = list(islice(kernel.spec.grid, MOST + 1))
    return first if len(first) <= MOST else list(kernel.spec.grid.corners())


VARIANTS = [Item(k, row, t) for k in KERNELS for t in k.signature.element_types for row in rows(k)]
