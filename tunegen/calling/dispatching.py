"""What calls of a kernel depend on beside its signature: size conditions, int parameters, and how it is split."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tunegen.expressions import SizeCondition
from tunegen.parallel import Serial, Split
from tunegen.parameters import Schema
from tunegen.signature import Operand, Signature


class Dispatching(msgspec.Struct, frozen=True):
    """The size conditions of the regimes in order, the names of the int parameters that conditions and `split` may
    use, how calls are split over threads (None: never), and the values of parameters that nobody set.
    """

    conditions: tuple[SizeCondition, ...] = ()
    parameters: tuple[str, ...] = ()
    split: Split | None = None
    defaults: tuple[int, ...] = ()

    @property
    def columns(self) -> int:
        """How many regimes there are: one for each condition, and the unconditional one."""
        return len(self.conditions) + 1

    @property
    def text(self) -> str:
        """All that native code depends on: not the defaults, which are data."""
        tests = "; ".join(condition.text for condition in self.conditions)
        return (
            f"if {tests}; parameters {', '.join(self.parameters)}; split {self.split.text if self.split else 'never'}"
        )

    def completed(self, values: Mapping[str, int]) -> dict[str, int]:
        """A value for each parameter: the one given, else the default."""
        return {name: values.get(name, own) for name, own in zip(self.parameters, self.defaults, strict=True)}


SERIAL = Dispatching()
"""No regimes, no parameters, and never split."""


def dispatching_of(
    signature: Signature, conditions: tuple[SizeCondition, ...], schema: Schema, parallel: Split | Serial
) -> Dispatching:
    """What the calls of a kernel, or of one of its companions, depend on.

    A companion takes part in the kernel's split if it has all sizes of that, and can be cut so; else it runs serial.
    """
    split, names = parallel if isinstance(parallel, Split) else None, {*signature.sizes, *schema.native}
    if split and (not names.issuperset(split.when.names) or uncuttable(signature, split)):
        split = None
    return Dispatching(conditions, schema.native, split, tuple(schema.native_defaults.values()))


def uncuttable(signature: Signature, split: Split) -> str:
    """Why a kernel with this signature cannot be split so, as a sentence; "" when it can.

    Each part of a call has to write a part of each output that no other part writes.
    """
    for size in split.over:
        if size not in signature.sizes:
            return f"split over {size!r}: the sizes are {', '.join(signature.sizes)}"
        for operand in signature.operands:
            if sentence := _uncuttable_operand(operand, size):
                return f"split over {size!r}: {sentence}"
    return ""


def _uncuttable_operand(operand: Operand, size: str) -> str:
    if operand.dims is None:
        return ""
    times = [dim.symbol for dim in operand.dims].count(size)
    if times > 1:
        return f"operand {operand.name} has it twice"
    if operand.written and not times:
        return f"operand {operand.name} is written and does not have it, so all parts would write the same elements"
    return ""
