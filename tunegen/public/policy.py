"""Policy: what a program does when the kernels it asks for are not tuned on this box."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, ParamSpec, TypeVar

from tunegen import knobs
from tunegen.errors import KernelNotFound
from tunegen.public import host, request
from tunegen.public.request import Request
from tunegen.public.scope import scopes as declared_scopes
from tunegen.public.status import Row, row_lines, tune_status

P = ParamSpec("P")
R = TypeVar("R")

USAGE, REFUSED = 2, 3
"""Exit codes: of a program whose `-- --tune=` names what does not exist, and of one that refuses to start."""
AUTOMATIC = ("auto", "relaunch", "restart")
LIVE = "live"
DECLARABLE = ("fallback", "warn", "error", *AUTOMATIC, LIVE)
"""The policies that a program can declare; `reference` is for the environment alone."""


class Demand(NamedTuple):
    """What a program wants tuned, the longest time that a scope's tuner may take, in seconds, and the share of one core
    that it may have in the background.
    """

    missing: str
    scopes: tuple[str, ...] | None
    kernels: tuple[str, ...] | None
    timeout_s: float | None
    share: float | None

    def rows(self) -> list[Row]:
        """The status of all that is demanded."""
        names = self.scopes if self.scopes is not None else tuple(declared_scopes())
        return tune_status(*names, kernels=self.kernels) if names else []


_declared: list[Demand] = []


def tune_policy(
    *, missing: str = "fallback", scopes: Iterable[str] | None = None, kernels: Iterable[str] | None = None,
    timeout_s: float | None = None, share: float | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:  # fmt: skip
    """Decorates an application's `main`: applies the policy each time before it runs.

    The demand is every kernel and element type of the scopes imported by then, unless `scopes` or `kernels` narrow it.
    `TUNE_POLICY` overrides `missing`. `-- --tune` is taken out of `sys.argv` here, before anything parses it. Raises
    `ValueError` for an unknown policy, a time that is not positive or a share that is not above 0 and up to 1.
    """
    demand = _demand(missing, scopes, kernels, timeout_s, share)
    request.keep(getattr(sys, "argv", []))

    def decorate(main: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(main)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            _apply(demand)
            return main(*args, **kwargs)

        return run

    return decorate


def declared() -> Demand | None:
    """What the program declared last; None when it declared nothing."""
    return _declared[-1] if _declared else None


def apply_policy(
    *, missing: str = "fallback", scopes: Iterable[str] | None = None, kernels: Iterable[str] | None = None,
    timeout_s: float | None = None, share: float | None = None,
) -> None:  # fmt: skip
    """Applies the policy in a host without a `main`; see `tune_policy`.

    fallback: nothing. warn: one banner on stderr. error: the same banner, and `SystemExit` with code 3. auto: each
    scope's tuner runs in a child process for `timeout_s` seconds at most (half an hour without), and winners are
    stamped in place. relaunch: the same, and then this process is started again, once; where it cannot be, it goes on.
    restart: the same, and then `SystemExit` with code 3. live: goes on at once, and a thread has kernel by kernel tuned
    by a child process of low priority, which uses `share` of one core at most (0.25 without; `TUNE_SHARE`
    overrides it); winners are swapped in, and `tunegen.live` says how far it is. A tuner that fails or hangs never
    stops the program. Children, workers, tests and tuning programs do not tune, and in the modes tune and test no
    policy applies. Raises `ValueError` for an unknown policy, time or share, `KnobError` for a bad `TUNE_*` value,
    `ScopeNotFound` and `KernelNotFound` for names that do not exist, and `SystemExit` with code 2 for such a name in
    `-- --tune=NAMES`.
    """
    _apply(_demand(missing, scopes, kernels, timeout_s, share))


def _demand(
    missing: str, scopes: Iterable[str] | None, kernels: Iterable[str] | None, timeout_s: float | None,
    share: float | None,
) -> Demand:  # fmt: skip
    if missing not in DECLARABLE:
        raise ValueError(f"policy {missing!r}: a program declares one of {', '.join(DECLARABLE)}")
    if timeout_s is not None and not 0 < timeout_s < math.inf:
        raise ValueError(f"timeout_s={timeout_s!r}: allowed is a number of seconds above 0, or None")
    if share is not None and not 0 < share <= 1:
        raise ValueError(f"share={share!r}: allowed is a number above 0 up to 1, or None")
    names, only = (tuple(given) if given is not None else None for given in (scopes, kernels))
    _declared[:] = [Demand(missing, names, only, timeout_s, share)]
    return _declared[0]


def _apply(demand: Demand) -> None:
    knobs.begin()
    request.keep(getattr(sys, "argv", []))
    asked = request.kept()
    forced = knobs.POLICY.get()
    policy = forced or demand.missing
    if knobs.MODE.get() != "normal" or policy == "reference" or forced == "fallback":
        if asked is not None:
            _say(f"`{asked}` does nothing: TUNE_MODE or TUNE_POLICY turns tuning off\n")
        return
    if policy == "fallback" and asked is None:
        return
    notes = _tuned(demand, policy, asked) if policy in AUTOMATIC or asked is not None else ()
    untuned = [row for row in demand.rows() if not row.tuned]
    if untuned and policy == LIVE:
        under_way, more = _tuned_later(demand, untuned)
        untuned, notes = [] if under_way else untuned, tuple(dict.fromkeys((*notes, *more)))
    if not untuned or policy == "fallback":
        _say("".join(f"{note}\n" for note in notes))
        return
    text = _banner(untuned, notes)
    if policy == "error":
        _say(text)
        raise SystemExit(REFUSED)
    _warn_once(text)


def _tuned(demand: Demand, policy: str, asked: Request | None) -> tuple[str, ...]:
    """Tunes what is demanded or asked for. Returns what there is to say about it; does not return where the policy
    has this process end or start again.
    """
    if (why_not := _why_not(asked)) is None:
        host.mark()
    rows = _wanted(demand, asked)
    if why_not is not None or not rows:
        return why_not or () if rows else ()
    from tunegen.public import automatic
    from tunegen.public.live import live

    timeout_s = demand.timeout_s or automatic.TIMEOUT_S
    wish = automatic.Wish(asked is not None, timeout_s, demand.timeout_s is not None, _say)
    with live.aside():
        no_return = host.why_not_again() if policy == "relaunch" else ""
        tuned = automatic.tune(rows, wish)
        if tuned.found and policy == "relaunch":
            no_return = no_return or _start_again(tuned.problems)
            return (*tuned.problems, f"not started again, but stamped in place: {no_return}")
    if tuned.found and policy == "restart":
        _say("".join(f"{problem}\n" for problem in tuned.problems) + "this box is tuned now: start the program again"
             + (f", without `{asked}`\n" if asked is not None else "\n"))  # fmt: skip
        raise SystemExit(REFUSED)
    return tuned.problems


def _why_not(asked: Request | None) -> tuple[str, ...] | None:
    """What to say where this process does not tune itself; None where it does."""
    why_not = host.why_not_tuned(asked=asked is not None)
    if not why_not and asked is None and knobs.MANIFEST.get() is not None:
        why_not = "TUNE_MANIFEST says what to use"
    if not why_not:
        return None
    return () if host.relaunched() else (f"not tuned automatically: {why_not}",)


def _tuned_later(demand: Demand, untuned: Sequence[Row]) -> tuple[bool, tuple[str, ...]]:
    """Has kernels tuned in the background. Returns whether any of them is under way, and what there is to say."""
    from tunegen.public.background import SHARE
    from tunegen.public.live import live

    if not live.follows:
        if (why_not := _why_not(None)) is not None:
            return False, why_not
        host.mark()
    share = knobs.SHARE.get() or demand.share or SHARE
    try:
        begun = live.begin(untuned, share, demand.timeout_s)
    except RuntimeError as error:
        return False, (f"not tuned in the background: {error}",)
    if begun.new:
        kernels = f"{begun.left} kernel{'s' if begun.left > 1 else ''}"
        _say(f"tuning {kernels} for this box in the background, with {100 * share:g} % of a core at most\n")
    return begun.left > 0, begun.problems


def _wanted(demand: Demand, asked: Request | None) -> list[Row]:
    """What to tune: what is demanded and not tuned, or all that the user asks for."""
    if asked is None:
        return [row for row in demand.rows() if not row.tuned]
    if asked.everything:
        return demand.rows()
    try:
        if asked.names:
            return tune_status(kernels=asked.names)
        problem = "it names no kernel; write -- --tune, or -- --tune=gemm,exp"
    except KernelNotFound as error:
        problem = str(error)
    _say(f"{asked}: {problem}\n")
    raise SystemExit(USAGE)


def _start_again(problems: Sequence[str]) -> str:
    """Replaces this process, or says why it could not. The fresh one does not know of the `problems`."""
    _say("".join(f"{problem}\n" for problem in problems) + "this box is tuned now: starting again\n")
    try:
        host.start_again()
    except OSError as error:
        return f"the system refused: {error.strerror}"
    return ""


def _banner(untuned: Sequence[Row], notes: Sequence[str]) -> str:
    rule = "=" * 78
    body = "\n".join([*(f"  {line}" for line in row_lines(untuned)), *notes])
    # what a script or a notebook declares has no name that a command could import
    named = dict.fromkeys(row.scope for row in untuned if declared_scopes()[row.scope].module != "__main__")
    command = f"to tune them, run: tunegen tune {' '.join(named)}\n" if named else ""
    count = f"{len(untuned)} kernel{'s' if len(untuned) > 1 else ''}"
    return f"{rule}\nNOT TUNED FOR THIS BOX: {count}\n{body}\n{command}{rule}\n"


@functools.cache
def _warn_once(text: str) -> None:
    _say(text)


def _say(text: str) -> None:
    """To stderr, if there is one: a program that was detached may have none, or one that is closed."""
    if text and sys.stderr is not None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):
            pass
