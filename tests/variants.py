"""Every variant of every shipped kernel, for tests that walk the registry."""

from __future__ import annotations

from typing import NamedTuple

import tunegen.kernels as shipped
from tunegen.grid import Row
from tunegen.making.spec import Spec
from tunegen.public.kernel import KernelMethods
from tunegen.signature import ElementType

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


VARIANTS = [Item(k, row, t) for k in KERNELS for t in k.signature.element_types for row in k.spec.grid]
