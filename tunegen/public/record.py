"""Writing winners: entries with their digests, and the one call that a hand-written tuner needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from tunegen.box import Box, information, this_box
from tunegen.choosing import store
from tunegen.choosing.document import Entry, RegimeWinner
from tunegen.errors import KernelNotFound, StoreError, TunegenError
from tunegen.grid import REFERENCE
from tunegen.making.compile import llvm_version
from tunegen.making.make import template_digests
from tunegen.making.spec import Spec, digest_of
from tunegen.public.kernel import KernelMethods
from tunegen.public.scope import find_kernel
from tunegen.public.sources import refresh, target_manifest
from tunegen.signature import ElementType


class Written(msgspec.Struct, frozen=True):
    """Whether a winner could be recorded, where, and why not. True in a condition when it was."""

    path: str
    saved: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.saved


def entry_for(spec: Spec, element_type: ElementType, box: Box, winners: dict[str, str],
              evidence: dict[str, dict[str, Any]]) -> Entry:  # fmt: skip
    """The entry that says `winners` (suffix by condition text) were chosen here, with its digest.

    Raises `KernelNotFound` for a suffix that is no row, and what making the variant raises.
    """
    perms, templates = [], {}
    for suffix in winners.values():
        row = spec.grid.find(suffix)
        if row is None and suffix != REFERENCE:
            raise KernelNotFound(f"{spec.name}: {suffix!r} is no row of the grid")
        perms.append(dict(row.perm) if row is not None else {})
        if row is not None:
            templates.update(template_digests(spec, row, element_type, box))
    parts = spec.parts(perms, templates, llvm_version())
    regimes = [
        RegimeWinner(suffix, condition, perm, evidence.get(condition, {}))
        for (condition, suffix), perm in zip(winners.items(), perms, strict=True)
    ]
    return Entry(regimes, digest_of(parts), {}, parts, templates)


def write_entry(spec: Spec, element_type: ElementType, box: Box, entry: Entry) -> Path:
    """Adds an entry to the manifest that the rail names and returns its path. Raises `StoreError`."""
    path = target_manifest(spec.scope, box)
    store.write(path, box, information(), spec.scope, spec.key(element_type), entry)
    return path


def kept_winners(
    path: Path, spec: Spec, element_type: ElementType, winners: dict[str, str]
) -> dict[str, tuple[str, dict[str, Any]]]:
    """`winners` (suffix by condition text) with the evidence that the newest entry in a manifest has for them."""
    entries = store.read(path).scopes.get(spec.scope, {}).get(spec.key(element_type), [])
    newest = next((entry for entry in entries if isinstance(entry, Entry) and entry.regimes), None)
    found = {c: newest.winner(c) if newest is not None else None for c in winners}
    same = {c: regime for c, regime in found.items() if regime is not None and regime.winner == winners[c]}
    return {c: (suffix, same[c].evidence if c in same else {}) for c, suffix in winners.items()}


def tune_manifest_set(kernel: KernelMethods | str, suffix: str, element_type: str | None = None) -> Written:
    """Records `suffix` as the winner of a kernel for all sizes, in the manifest that the rail named.

    Without `element_type`, for each element type that has the variant. Says whether it could: a failure to write is a
    result, not an exception. Raises `KernelNotFound` for a suffix that is no row, or an unknown element type.
    """
    found = find_kernel(kernel) if isinstance(kernel, str) else kernel
    spec, box = found.spec, this_box()
    if suffix != REFERENCE and spec.grid.find(suffix) is None:
        raise KernelNotFound(f"{spec.name}: {suffix!r} is no row; rows are {REFERENCE}, {spec.grid.names()}")
    types = [t for t in spec.signature.element_types if element_type in (None, t.name)]
    if not types:
        names = ", ".join(t.name for t in spec.signature.element_types)
        raise KernelNotFound(f"{spec.name}: element type {element_type!r}; there are {names}")
    path = target_manifest(spec.scope, box)
    winners = dict.fromkeys(spec.fallback.regimes, suffix)
    evidence: dict[str, dict[str, Any]] = {condition: {"kind": "manual"} for condition in winners}
    reasons, saved = [], 0
    for t in types:
        try:
            write_entry(spec, t, box, entry_for(spec, t, box, winners, evidence))
            saved += 1
        except StoreError as error:
            return Written(str(path), saved=False, reason=str(error))
        except TunegenError as error:
            reasons.append(f"{spec.key(t)}: {error}")
    refresh()
    return Written(str(path), saved=saved > 0, reason="; ".join(reasons))
