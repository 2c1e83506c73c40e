"""Inventory: how well each kernel path is covered by parameters, from what its declaration says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from tunegen.making.spec import Spec
from tunegen.parallel import Serial
from tunegen.public.scope import Scope
from tunegen.signature import ElementType

State = Literal["serial", "parallel_fixed_policy", "tunable", "calibratable"]
"""`serial`: never split over threads. `parallel_fixed_policy`: split, by nothing that can be set. `tunable`: by
parameters, of which some have to be set by hand. `calibratable`: by parameters that are all found on the box."""


class Coverage(msgspec.Struct, frozen=True):
    """One kernel and element type. `governing` are the parameters that its split depends on, `calibrated` and `manual`
    all parameters with and without a calibration, `regimes` the size conditions that pick its variant.
    """

    scope: str
    kernel: str
    element_type: str
    state: State
    reason: str
    governing: tuple[str, ...]
    calibrated: tuple[str, ...]
    manual: tuple[str, ...]
    regimes: tuple[str, ...]

    @property
    def key(self) -> str:
        """`gemm[f32]`."""
        return f"{self.kernel}[{self.element_type}]"


def coverage(spec: Spec, element_type: ElementType) -> Coverage:
    """The one coverage state of a kernel and element type."""
    governing = governing_parameters(spec)
    calibrated = tuple(name for name in spec.schema.names if name in spec.calibrations)
    manual = tuple(name for name in spec.schema.names if name not in spec.calibrations)
    by_hand = [name for name in governing if name in manual]
    state: State
    if isinstance(spec.parallel, Serial):
        state, reason = "serial", spec.parallel.reason
    elif not governing:
        state, reason = "parallel_fixed_policy", f"its split names no parameter: {spec.parallel.text}"
    elif by_hand:
        state, reason = "tunable", f"set by hand: {', '.join(by_hand)}"
    else:
        state, reason = "calibratable", f"found on the box: {', '.join(governing)}"
    return Coverage(
        spec.scope, spec.name, element_type.name, state, reason, governing, calibrated, manual, spec.fallback.regimes
    )


def governing_parameters(spec: Spec) -> tuple[str, ...]:
    """The parameters that the split of a kernel depends on: whether it happens, into which shares, on how many
    threads. In order of declaration.
    """
    if isinstance(spec.parallel, Serial):
        return ()
    named = {*spec.parallel.when.names, spec.parallel.grain, spec.parallel.participants}
    return tuple(name for name in spec.schema.names if name in named)


def inventory(scopes: Iterable[Scope]) -> list[Coverage]:
    """The coverage of every kernel and element type of the scopes, in order of declaration."""
    return [
        coverage(kernel.spec, element_type)
        for scope in scopes
        for kernel in scope.kernels.values()
        for element_type in kernel.signature.element_types
    ]
