"""Pins: the rows that a session or the program asks for by name, before what most files say."""

from __future__ import annotations

from collections.abc import Mapping

from tunegen.errors import KernelNotFound
from tunegen.grid import REFERENCE
from tunegen.public import sources
from tunegen.public.kernel import KernelMethods
from tunegen.public.scope import find_keys
from tunegen.public.setting import Place

Pins = Mapping[Place, str]


def pin(kernel: KernelMethods | str, suffix: str | None, element_type: str | None = None) -> None:
    """Asks for a row of a kernel in all of this program, until `suffix` is None, which takes the pin away.

    `kernel` is the kernel or its name: "gemm", "mylib:gemm", "gemm[f32]". Without an element type the pin is for each
    that the kernel has; the last call counts. It goes before all sources but what a session was given,
    `TUNE_POLICY=reference` and `TUNE_MANIFEST`; where the row cannot run, the next source decides, and `explain` says
    why. It holds from a kernel's first call on, or from the next `tunegen.load()`, and for sessions that are made
    later. Raises `KernelNotFound` for an unknown kernel, element type or suffix.
    """
    name = kernel if isinstance(kernel, str) else f"{kernel.spec.scope}:{kernel.name}"
    found = find_pins(
        f"{name}[{element_type}]" if element_type is not None else name, REFERENCE if suffix is None else suffix
    )
    sources.set_pins(dict.fromkeys(found) if suffix is None else found)


def session_pins(given: Mapping[str, str]) -> Pins:
    """The pins of a session by their names. One for an element type goes before one for the kernel.

    Raises `KernelNotFound`.
    """
    found: dict[Place, str] = {}
    for name in sorted(given, key=lambda name: "[" in name):
        found.update(find_pins(name, given[name]))
    return found


def find_pins(name: str, suffix: str) -> Pins:
    """What one pin says. Raises `KernelNotFound` for an unknown kernel, element type or suffix."""
    kernel, types = find_keys(name)
    spec = kernel.spec
    if suffix != REFERENCE and (not isinstance(suffix, str) or spec.grid.find(suffix) is None):
        raise KernelNotFound(f"{name}: {suffix!r} is no row; rows are {REFERENCE}, {spec.grid.names()}")
    return {(spec.scope, spec.key(t)): suffix for t in types}
