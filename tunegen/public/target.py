"""One kernel and one of its element types: what is tuned, calibrated, shown and set."""

from __future__ import annotations

from typing import NamedTuple

from tunegen.making.spec import Spec
from tunegen.parameters import Key
from tunegen.public.kernel import KernelMethods
from tunegen.signature import ElementType


class Target(NamedTuple):
    """A kernel and one of its element types."""

    kernel: KernelMethods
    element_type: ElementType

    @property
    def spec(self) -> Spec:
        """The kernel's declaration."""
        return self.kernel.spec

    @property
    def key(self) -> str:
        """Its name in a manifest: `gemm[f32]`."""
        return self.spec.key(self.element_type)

    @property
    def tuning_key(self) -> Key:
        """What values of its parameters belong to."""
        return self.spec.tuning_key(self.element_type)
