"""What there is to tune: kernels and element types, and what was chosen for them before."""

from __future__ import annotations

from collections.abc import Sequence

from tunegen.public.scope import Scope
from tunegen.public.status import tune_status
from tunegen.public.target import Target


def names(scope: Scope) -> set[str]:
    """What `--only` may name in a scope: `gemm`, and `gemm[f32]`."""
    kernels = scope.kernels.values()
    return {name for k in kernels for name in (k.name, *map(k.spec.key, k.signature.element_types))}


def targets(scope: Scope, only: Sequence[str] = (), *, retune: bool = False) -> list[Target]:
    """What there is to tune in a scope: all that is not tuned, or all with `retune`, out of `only` when given."""
    tuned = {(row.kernel, row.element_type) for row in tune_status(scope.name) if row.tuned and not retune}
    found = [
        Target(kernel, t)
        for kernel in scope.kernels.values()
        for t in kernel.signature.element_types
        if kernel.spec.cases and (not only or kernel.name in only or kernel.spec.key(t) in only)
    ]
    return [target for target in found if (target.kernel.name, target.element_type.name) not in tuned]


def incumbents(target: Target) -> dict[str, str]:
    """What was tuned for a target before and still runs, by regime: tried first, and preferred in a tie."""
    stamp = target.kernel.stamp.get(target.element_type.name)
    return {c.condition: c.emitted for c in stamp.choices if c.tuned and c.emitted} if stamp is not None else {}
