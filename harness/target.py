"""What there is to tune: kernels and element types, and what was chosen for them before."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tunegen import knobs, paths
from tunegen.box import this_box
from tunegen.choosing.document import Entry
from tunegen.public.scope import Scope
from tunegen.public.sources import tiers
from tunegen.public.status import tune_status
from tunegen.public.target import Target


def names(scope: Scope) -> set[str]:
    """What `--only` may name in a scope: `gemm`, and `gemm[f32]`."""
    kernels = scope.kernels.values()
    return {name for k in kernels for name in (k.name, *map(k.spec.key, k.signature.element_types))}


def for_all_users() -> None:
    """Has this process and its children work on the system's manifests and on no user's, in files that all can read.

    To be called before a scope is imported.
    """
    os.umask(0o022)
    knobs.change({knobs.HOME.name: str(paths.system_manifests()), knobs.MANIFEST.name: None})


def targets(
    scope: Scope, only: Sequence[str] = (), *, retune: bool = False, manifest: Path | None = None
) -> list[Target]:
    """What there is to tune in a scope: all that is not tuned, or all with `retune`, out of `only` when given.

    With `manifest`, only what that file has is tuned.
    """
    rows = [] if retune else tune_status(scope.name)
    own = [row for row in rows if row.tuned and (manifest is None or row.path == str(manifest))]
    tuned = {(row.kernel, row.element_type) for row in own}
    found = [
        Target(kernel, t)
        for kernel in scope.kernels.values()
        for t in kernel.signature.element_types
        if kernel.spec.cases and (not only or kernel.name in only or kernel.spec.key(t) in only)
    ]
    return [target for target in found if (target.kernel.name, target.element_type.name) not in tuned]


def incumbents(target: Target) -> dict[str, str]:
    """What was tuned for a target before, by regime: tried first, and preferred in a tie.

    That is what still counts as tuned, or what was found with another LLVM.
    """
    stamp = target.kernel.stamp.get(target.element_type.name)
    choices = stamp.choices if stamp is not None else ()
    before = {c.condition: next((found.suffix for found in c.consulted if found.fresh), "") for c in choices}
    return {condition: suffix for condition, suffix in (before | standing(target)).items() if suffix}


def standing(target: Target) -> dict[str, str]:
    """What counts as tuned for a target now, by regime."""
    stamp = target.kernel.stamp.get(target.element_type.name)
    return {c.condition: c.emitted for c in stamp.choices if c.tuned and c.emitted} if stamp is not None else {}


def suggested(target: Target) -> list[str]:
    """The winners that profiles for this box have for a target, the first profile's first: worth to be tried early."""
    spec, found = target.spec, dict[str, None]()
    for tier in tiers(spec.scope, this_box()):
        if tier.source == "profile" and tier.manifest is not None:
            entries = tier.manifest.entries(spec.scope, spec.name, target.key, ())
            found |= dict.fromkeys(r.winner for entry in entries if isinstance(entry, Entry) for r in entry.regimes)
    return list(found)
