"""Automatic tuning: each scope's tuner runs in a child process, one at a time on a box, and winners are stamped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from tunegen.box import this_box
from tunegen.choosing import store
from tunegen.errors import StoreError, TunegenError
from tunegen.making.compile import llvm_version
from tunegen.public import attempts, launching
from tunegen.public.attempts import Attempt, Attempts
from tunegen.public.launching import Job, Tuner
from tunegen.public.scope import Scope, scopes
from tunegen.public.sources import target_manifest
from tunegen.public.status import Row, load, tune_status

TIMEOUT_S = 1800.0
"""How long the tuner of a scope may take when the program says nothing."""

Say = Callable[[str], None]


def stamp(scope: Scope, keys: Sequence[str]) -> list[str]:
    """Stamps all kernels of a scope anew. Returns those of `keys` ("gemm[f32]") that are still not tuned."""
    load(scope.name)
    return [row.key for row in tune_status(scope.name) if not row.tuned and row.key in keys]


class Wish(NamedTuple):
    """How to tune: `retune` what is tuned, too, because the user asked for it; `timeout_s` for each scope.

    `limited` when the program set the time: tuners are told to be ready by then. `stamp` makes what was found run, and
    returns the keys that are still not tuned. With a `share` of a core a tuner works beside this program while that
    serves, and `hold` gets it.
    """

    retune: bool
    timeout_s: float
    limited: bool
    say: Say
    stamp: Callable[[Scope, Sequence[str]], list[str]] = stamp
    share: float | None = None
    hold: Callable[[Tuner], None] = lambda tuner: None


class Tuned(NamedTuple):
    """What came of it: whether anything was found, and what went wrong, a sentence each.

    Neither, when this program stopped the tuner.
    """

    found: bool = False
    problems: tuple[str, ...] = ()


def tune(rows: Sequence[Row], wish: Wish) -> Tuned:
    """Tunes the kernels and element types of `rows`, scope by scope, and stamps them anew.

    Whatever a tuner does, this comes to an end within the time and raises nothing.
    """
    found, problems = False, list[str]()
    for name in dict.fromkeys(row.scope for row in rows):
        scope, keys = scopes()[name], [row.key for row in rows if row.scope == name]
        try:
            tuned = _in_turn(scope, keys, wish)
        except (TunegenError, OSError) as error:
            tuned = Tuned(problems=(str(error),))
        found = found or tuned.found
        problems += [f"{name}: {problem}" for problem in tuned.problems]
    return Tuned(found, tuple(problems))


def turn_of(scope: Scope) -> Path:
    """What the processes of this box take turns at, and where they write down what they tried."""
    return attempts.path_for(target_manifest(scope.name, this_box()))


def _in_turn(scope: Scope, keys: Sequence[str], wish: Wish) -> Tuned:
    llvm_version()  # without a compiler there is nothing to tune
    with _turn(scope, wish):
        if wish.retune:
            return tried(scope, keys, wish)
        # whoever had the turn before may have tuned it
        left = wish.stamp(scope, keys)
        tuned = tried(scope, left, wish) if left else Tuned()
        return Tuned(tuned.found or len(left) < len(keys), tuned.problems)


@contextmanager
def _turn(scope: Scope, wish: Wish) -> Iterator[None]:
    """This process's turn at tuning a scope: one after the other. Raises `StoreError`."""
    path = turn_of(scope)
    with ExitStack() as stack:
        try:
            stack.enter_context(store.turn(path, 0.0))
        except StoreError as error:
            if error.status != "locked":
                raise
            wish.say(f"another process is tuning {scope.name}: waiting for it\n")
            stack.enter_context(store.turn(path, wish.timeout_s))
        yield


def tried(scope: Scope, keys: Sequence[str], wish: Wish) -> Tuned:
    """Starts the tuner for what is worth a try, in this process's turn. Raises `TunegenError`.

    A try is written down before, so that no crash loses it.
    """
    path = turn_of(scope)
    known = attempts.read(path)
    fresh, old = worth_a_try(scope, keys, known, retune=wish.retune, background=wish.share is not None)
    if not fresh:
        return Tuned(problems=tuple(old))
    attempts.write(path, _named(scope, fresh))
    kernels = f"{len(fresh)} kernel{'s' if len(fresh) > 1 else ''}"
    wish.say(f"tuning {kernels} of {scope.name} for this box, for {wish.timeout_s:g} s at most\n")
    budget_s = 0.9 * wish.timeout_s if wish.limited else None
    job = Job(scope, list(fresh), wish.timeout_s, wish.retune, budget_s, wish.share)
    ended = launching.run(job, wish.hold)
    left = wish.stamp(scope, list(fresh))
    after = dict.fromkeys(fresh) | {key: _after(fresh[key], ended, known.get(f"{scope.name}:{key}")) for key in left}
    attempts.write(path, _named(scope, after))
    if ended.stopped:
        return Tuned(len(left) < len(fresh))
    problems = [ended.problem] if ended.problem else []
    problems += [f"no winner was found for {', '.join(left)}"] if left and not ended.problem else []
    return Tuned(len(left) < len(fresh) and not (wish.retune and ended.problem), (*problems, *old))


def worth_a_try(
    scope: Scope, keys: Sequence[str], known: Attempts, *, retune: bool = False, background: bool = False
) -> tuple[dict[str, Attempt], list[str]]:
    """An attempt for each key that is to be tried, and a sentence for each that is not."""
    fresh, old = dict[str, Attempt](), list[str]()
    for key in keys:
        digest = attempts.digest_of(scope, scope.kernels[key.partition("[")[0]].spec)
        before = known.get(f"{scope.name}:{key}")
        if before is None or before.digest != digest:
            fresh[key] = Attempt(digest)
        elif retune or not before.over(background=background):
            fresh[key] = Attempt(digest, before.tries + 1)
        else:
            old.append(f"{key} is not tried again: {before.reason or 'its tuner was cut short'}")
    if old:
        path = turn_of(scope)
        old.append(f"`-- --tune` or `tunegen tune {scope.name}` tries again; this is remembered in {path}")
    return fresh, old


def _named(scope: Scope, changes: Mapping[str, Attempt | None]) -> dict[str, Attempt | None]:
    return {f"{scope.name}:{key}": attempt for key, attempt in changes.items()}


def _after(attempt: Attempt, ended: launching.Ended, before: Attempt | None) -> Attempt | None:
    """What to remember of a key that is still not tuned. One that this program stopped was no attempt."""
    if ended.stopped:
        return before
    return msgspec.structs.replace(attempt, ended=not ended.cut, reason=ended.problem or "no winner was found")
