"""What stamps are picked under: a session's setting is captured once, the process's is how things are now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from tunegen.box import Box, this_box
from tunegen.choosing.published import Generation, current
from tunegen.choosing.resolve import Outcome, Sources, Tier
from tunegen.choosing.values import ValueChoice, resolve_values
from tunegen.grid import Row
from tunegen.making.spec import Spec
from tunegen.parameters import Value
from tunegen.public import sources
from tunegen.signature import ElementType

if TYPE_CHECKING:
    from tunegen.executor import CpuExecutor

Values = Mapping[str, Mapping[str, Value]]
"""Values of a kernel's parameters by name of element type."""
Place = tuple[str, str]
"""A scope, and the name of a kernel and element type in a manifest: ("mylib", "gemm[f32]")."""


Threads: TypeAlias = "CpuExecutor | Callable[[], CpuExecutor | None] | None"
"""What a kernel that is split is installed with: an executor, a function that makes one when a call first needs it, or
the caller's thread alone.
"""


class Setting(msgspec.Struct, frozen=True):
    """All that a stamp depends on besides the kernel.

    Variants are those of `box`, values those of `descriptor`: the box with the threads that kernels may use here.
    `tiers` has where to look for the kernels of a scope on a box, `generation` the published values, `executor` gives
    the threads of kernels that are split. `pins` and `parameters` are the suffixes
    and the values that a session asks for.
    """

    box: Box
    descriptor: Box
    tiers: Callable[[str, Box], Sequence[Tier]]
    generation: Generation
    executor: Callable[[], Threads]
    pins: Mapping[Place, str] = {}
    parameters: Mapping[Place, Mapping[str, Value]] = {}

    def sources(self, spec: Spec, element_type: ElementType, make: Callable[[Row], Outcome]) -> Sources:
        """The sources of the choice of variants for one kernel and element type."""
        places = self._places(spec, element_type, self.box)

        def gate_again(suffix: str, digest: str) -> Outcome:
            from tunegen.public import regating

            return regating.gate_again(spec, element_type, self.box, places, suffix, digest)

        return sources.sources(spec.name, places, make, gate_again)

    def values(self, spec: Spec, element_type: ElementType) -> ValueChoice:
        """The values of a kernel's parameters for one element type."""
        places = self._places(spec, element_type, self.descriptor)
        return resolve_values(spec, element_type, self.descriptor, places, self.generation)

    def _places(self, spec: Spec, element_type: ElementType, box: Box) -> list[Tier]:
        key = spec.key(element_type)
        place = (spec.scope, key)
        forced = {key: self.parameters[place]} if place in self.parameters else {}
        return [
            Tier("session pin", "pin", suffix=self.pins.get(place, ""), values=forced),
            *self.tiers(spec.scope, box),
        ]


def process_setting() -> Setting:
    """The setting of kernels that are called without a session: the process's default session."""
    box = this_box()
    # asked several times for a kernel, so the places are looked up once in a setting
    return Setting(box, box, cache(sources.tiers), current(), lambda: _process_threads(box.threads))


def _process_threads(threads: int) -> Threads:
    """Once a call needed threads they are there, so kernels that are stamped anew do not wait for them."""
    there = _process_executor.cache_info().currsize > 0
    return _process_executor(threads) if there else partial(_process_executor, threads)


@cache
def _process_executor(threads: int) -> CpuExecutor | None:
    return new_executor(threads) if threads > 1 else None


def new_executor(threads: int, *, background: bool = False) -> CpuExecutor:
    """Threads for kernels that are split; in the background, idle ones sleep at once."""
    from tunegen.executor import CpuExecutor

    return CpuExecutor(threads, spin_us=0) if background else CpuExecutor(threads)
