"""Swapping: one kernel of a running program is stamped anew, while calls run in other threads."""

from __future__ import annotations

from collections.abc import Sequence

from tunegen import forks, log
from tunegen.public.scope import Scope, find_keys
from tunegen.public.sources import refresh
from tunegen.public.status import Row, coming_row, tune_status


def swap(scope: Scope, keys: Sequence[str]) -> list[str]:
    """Stamps the kernels of `keys` ("gemm[f32]") anew, and no others. Returns the keys that are not tuned.

    Calls see the old variant or the new one, and those in flight finish on the old one. A kernel with companions stays
    as it is: what a companion of the old variant has packed must not be read by the new one.
    """
    # a fork, a first call or a `load` that comes meanwhile finds all of it done
    with forks.LOCK:
        refresh()
        rows = [_swapped(scope, key) for key in keys]
    for row, stays in rows:
        if row.tuned and stays:
            log.info("%s:%s: %s was found; because of the companions it runs from the next start, session or "
                     "tunegen.load() on", row.scope, row.key, row.emitted)  # fmt: skip
        elif row.tuned:
            log.info("%s:%s: %s runs from now on", row.scope, row.key, row.emitted)
    return [row.key for row, _ in rows if not row.tuned]


def _swapped(scope: Scope, key: str) -> tuple[Row, bool]:
    """The row of a key by what manifests say now, and whether the kernel stays as it is."""
    kernel, (element_type,) = find_keys(key, [scope])
    if kernel.companions:
        return coming_row(kernel, element_type), True
    kernel.reload()
    (row,) = tune_status(scope.name, kernels=[key])
    return row, False
