"""The keys that a call of `tunegen.tuning` is about, and what an entry of a manifest means for one."""

from __future__ import annotations

from collections.abc import Iterable

from tunegen.box import Box
from tunegen.choosing.document import Entry, Invalid, Manifest
from tunegen.choosing.resolve import USABLE, Outcome, foreign
from tunegen.choosing.values import judge
from tunegen.errors import KernelNotFound
from tunegen.public.kernel import KernelMethods
from tunegen.public.scope import chosen_scopes, find_keys
from tunegen.public.target import Target


def targets(kernel: KernelMethods | str, element_type: str | None = None) -> list[Target]:
    """The element types of a kernel ("exp", "exp[f32]", "mylib:exp"), or one of them. Raises `KernelNotFound`."""
    if isinstance(kernel, str):
        found, types = find_keys(kernel)
    else:
        found, types = kernel, kernel.signature.element_types
    chosen = [t for t in types if element_type in (None, t.name)]
    if not chosen:
        names = ", ".join(t.name for t in types)
        raise KernelNotFound(f"{found.name} has no element type {element_type!r}; there are {names}")
    return [Target(found, t) for t in chosen]


def all_targets(scopes: Iterable[str] = ()) -> list[Target]:
    """All keys with parameters in these scopes; in all that are declared by now without any. Raises `ScopeNotFound`."""
    kernels = (kernel for scope in chosen_scopes(scopes) for kernel in scope.kernels.values())
    return [Target(kernel, t) for kernel in kernels if kernel.spec.schema for t in kernel.signature.element_types]


def judged(manifest: Manifest, target: Target, box: Box) -> list[tuple[Outcome, Entry | Invalid]]:
    """Every entry that a manifest has with values for a key, newest first, and whether it holds on this box.

    Those that cannot be read come last: what they were meant for, nobody knows.
    """
    spec, listed = target.spec, manifest.scopes.get(target.spec.scope, {}).get(target.key, [])
    unlike = foreign(manifest, spec, box)
    found: list[tuple[Outcome, Entry | Invalid]] = []
    for entry in manifest.values(spec.scope, target.key):
        found.append((Outcome("foreign", unlike) if unlike else judge(entry, target.tuning_key, spec.schema), entry))
    return found + [(Outcome("invalid", entry.reason), entry) for entry in listed if isinstance(entry, Invalid)]


def usable(outcome: Outcome) -> bool:
    """Whether an entry holds."""
    return outcome.state in USABLE
