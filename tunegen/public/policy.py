"""Policy: what a program does when the kernels it asks for are not tuned on this box."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

from tunegen import knobs
from tunegen.public.scope import scopes as declared_scopes
from tunegen.public.status import Row, tune_status

P = ParamSpec("P")
R = TypeVar("R")

REFUSED = 3
"""Exit code of a program that refuses to start untuned."""
DECLARABLE = ("fallback", "warn", "error")
"""The policies that a program can declare; `reference` is for the environment alone."""


def tune_policy(
    *, missing: str = "fallback", scopes: Iterable[str] | None = None, kernels: Iterable[str] | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates an application's `main`: applies the policy each time before it runs.

    The demand is every kernel and element type of the scopes imported by then, unless `scopes` or `kernels` narrow it.
    `TUNE_POLICY` overrides `missing`. Raises `ValueError` for an unknown policy.
    """
    _check(missing)

    def decorate(main: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(main)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            apply_policy(missing=missing, scopes=scopes, kernels=kernels)
            return main(*args, **kwargs)

        return run

    return decorate


def apply_policy(
    *, missing: str = "fallback", scopes: Iterable[str] | None = None, kernels: Iterable[str] | None = None
) -> None:
    """Applies the policy in a host without a `main`; see `tune_policy`.

    fallback: nothing. warn: one banner on stderr. error: the same banner, and `SystemExit` with code 3. In the modes
    tune and test no policy applies. Raises `ValueError` for an unknown policy, `KnobError` for a bad `TUNE_*` value,
    `ScopeNotFound` and `KernelNotFound` for names that do not exist.
    """
    _check(missing)
    knobs.begin()
    policy = knobs.POLICY.get() or missing
    if knobs.MODE.get() != "normal" or policy in ("fallback", "reference"):
        return
    names = tuple(scopes) if scopes is not None else tuple(declared_scopes())
    untuned = [row for row in tune_status(*names, kernels=kernels) if not row.tuned] if names else []
    if not untuned:
        return
    text = _banner(untuned)
    if policy == "error":
        sys.stderr.write(text)
        raise SystemExit(REFUSED)
    _warn_once(text)


def _check(missing: str) -> None:
    if missing not in DECLARABLE:
        raise ValueError(f"policy {missing!r}: a program declares one of {', '.join(DECLARABLE)}")


def _banner(untuned: list[Row]) -> str:
    rule = "=" * 78
    body = "\n".join(f"  {row}" for row in untuned)
    command = f"tunegen tune {' '.join(dict.fromkeys(row.scope for row in untuned))}"
    count = f"{len(untuned)} kernel{'s' if len(untuned) > 1 else ''}"
    return f"{rule}\nNOT TUNED FOR THIS BOX: {count}\n{body}\nto tune them, run: {command}\n{rule}\n"


@functools.cache
def _warn_once(text: str) -> None:
    sys.stderr.write(text)
