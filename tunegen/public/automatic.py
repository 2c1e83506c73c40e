"""Automatic tuning: each scope's tuner runs in a child process, one at a time on a box, and winners are stamped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from tunegen.box import this_box
from tunegen.choosing import store
from tunegen.errors import StoreError, TunegenError
from tunegen.making.compile import llvm_version
from tunegen.public import attempts, launching
from tunegen.public.attempts import Attempt
from tunegen.public.scope import Scope, scopes
from tunegen.public.sources import target_manifest
from tunegen.public.status import Row, load, tune_status

TIMEOUT_S = 1800.0
"""How long the tuner of a scope may take when the program says nothing."""

Say = Callable[[str], None]


class Wish(NamedTuple):
    """How to tune: `retune` what is tuned, too, because the user asked for it; `timeout_s` for each scope.

    `limited` when the program set the time: tuners are told to be ready by then.
    """

    retune: bool
    timeout_s: float
    limited: bool
    say: Say


class Tuned(NamedTuple):
    """What came of it: whether anything was found, and what went wrong, a sentence each."""

    found: bool = False
    problems: tuple[str, ...] = ()


def tune(rows: Sequence[Row], wish: Wish) -> Tuned:
    """Tunes the kernels and element types of `rows`, scope by scope, and stamps them anew.

    Whatever a tuner does, this comes to an end within the time and raises nothing.
    """
    found, problems = False, list[str]()
    for name in dict.fromkeys(row.scope for row in rows):
        scope, keys = scopes()[name], [_key(row) for row in rows if row.scope == name]
        try:
            tuned = _in_turn(scope, keys, wish)
        except (TunegenError, OSError) as error:
            tuned = Tuned(problems=(str(error),))
        found = found or tuned.found
        problems += [f"{name}: {problem}" for problem in tuned.problems]
    return Tuned(found, tuple(problems))


def _in_turn(scope: Scope, keys: Sequence[str], wish: Wish) -> Tuned:
    llvm_version()  # without a compiler there is nothing to tune
    path = attempts.path_for(target_manifest(scope.name, this_box()))
    with _turn(path, scope, wish):
        if wish.retune:
            return _tried(scope, path, keys, wish)
        load(scope.name)  # whoever had the turn before may have tuned it
        left = _untuned(scope, keys)
        tuned = _tried(scope, path, left, wish) if left else Tuned()
        return Tuned(tuned.found or len(left) < len(keys), tuned.problems)


@contextmanager
def _turn(path: Path, scope: Scope, wish: Wish) -> Iterator[None]:
    """This process's turn at tuning a scope: one after the other. Raises `StoreError`."""
    with ExitStack() as stack:
        try:
            stack.enter_context(store.turn(path, 0.0))
        except StoreError as error:
            if error.status != "locked":
                raise
            wish.say(f"another process is tuning {scope.name}: waiting for it\n")
            stack.enter_context(store.turn(path, wish.timeout_s))
        yield


def _tried(scope: Scope, path: Path, keys: Sequence[str], wish: Wish) -> Tuned:
    """Starts the tuner for what is worth a try. A try is written down before, so that no crash loses it."""
    fresh, old = _worth_a_try(scope, path, keys, wish)
    if not fresh:
        return Tuned(problems=tuple(old))
    attempts.write(path, {f"{scope.name}:{key}": attempt for key, attempt in fresh.items()})
    kernels = f"{len(fresh)} kernel{'s' if len(fresh) > 1 else ''}"
    wish.say(f"tuning {kernels} of {scope.name} for this box, for {wish.timeout_s:g} s at most\n")
    budget = 0.9 * wish.timeout_s if wish.limited else None
    ended = launching.run(scope, list(fresh), retune=wish.retune, budget_s=budget, timeout_s=wish.timeout_s)
    load(scope.name)
    left = _untuned(scope, list(fresh))
    attempts.write(path, {f"{scope.name}:{key}": _after(fresh[key], ended, key in left) for key in fresh})
    problems = [ended.problem] if ended.problem else []
    problems += [f"no winner was found for {', '.join(left)}"] if left and not ended.problem else []
    return Tuned(len(left) < len(fresh) and not (wish.retune and ended.problem), (*problems, *old))


def _worth_a_try(scope: Scope, path: Path, keys: Sequence[str], wish: Wish) -> tuple[dict[str, Attempt], list[str]]:
    """An attempt for each key that is to be tried, and a sentence for each that is not."""
    known, fresh, old = attempts.read(path), dict[str, Attempt](), list[str]()
    for key in keys:
        digest = attempts.digest_of(scope, scope.kernels[key.partition("[")[0]].spec)
        before = known.get(f"{scope.name}:{key}")
        if before is None or before.digest != digest:
            fresh[key] = Attempt(digest)
        elif wish.retune or not before.over:
            fresh[key] = Attempt(digest, before.tries + 1)
        else:
            old.append(f"{key} is not tried again: {before.reason or 'its tuner was cut short'}")
    if old:
        old.append(f"`-- --tune` or `tunegen tune {scope.name}` tries again; this is remembered in {path}")
    return fresh, old


def _after(attempt: Attempt, ended: launching.Ended, left: bool) -> Attempt | None:
    if not left:
        return None
    return msgspec.structs.replace(attempt, ended=not ended.cut, reason=ended.problem or "no winner was found")


def _untuned(scope: Scope, keys: Sequence[str]) -> list[str]:
    return [_key(row) for row in tune_status(scope.name) if not row.tuned and _key(row) in keys]


def _key(row: Row) -> str:
    return f"{row.kernel}[{row.element_type}]"
