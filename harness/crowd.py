"""Oversubscription, measured: sessions that run at once with all threads each, and torch's threads beside ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

import tunegen
from tunegen.box import effective_threads
from tunegen.harness import race
from tunegen.harness.measure import clock
from tunegen.harness.speed import CASE, Goal, Line, Missing, line
from tunegen.kernels import gemm

SESSIONS = 4
SHARING_GOAL = Goal(0.8)
"""Sessions at once lose at most so much to each other."""
TORCH_GOAL = Goal(0.9)
CALLS_BETWEEN = 3
"""Calls after which another pool's threads have given up looking for work."""
SIDE = 512


def oversubscription(rounds: int) -> Iterator[Line | Missing]:
    """Sessions that run at once, and torch's threads beside ours."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((SIDE, SIDE), np.float32) for _ in "ab")
    outs = [np.empty_like(a) for _ in range(SESSIONS)]
    with ExitStack() as stack:
        bound = [stack.enter_context(tunegen.session()).bind(gemm) for _ in range(SESSIONS)]
        callers = stack.enter_context(ThreadPoolExecutor(SESSIONS))

        def work(i: int) -> None:
            for _ in range(8):
                bound[i](a, b, outs[i])

        def together() -> None:
            list(callers.map(work, range(SESSIONS)))

        def in_turn() -> None:
            for i in range(SESSIONS):
                work(i)

        expected = bound[0](a, b, np.empty_like(a)).tobytes()
        verdict = _race({"together": together, "in turn": in_turn}, rounds)
        same = all(out.tobytes() == expected for out in outs)
        detail = f"gemm {SIDE}^3, {effective_threads()} threads each, {'equal bits' if same else 'BITS DIFFER'}"
        yield line(f"{SESSIONS} sessions at once", "times the speed of one after the other", verdict.ratio,
                   verdict.interval, SHARING_GOAL, detail)  # fmt: skip
    yield from _beside_torch(a, b, rounds)


def _beside_torch(a: Any, b: Any, rounds: int) -> Iterator[Line | Missing]:
    """Our product while torch's pool is alive and was used a few calls ago, against before it was ever used."""
    if not find_spec("torch"):
        yield Missing("beside torch", 'torch is not installed; pip install "tunegen[peers]"')
        return
    torch = import_module("torch")
    torch.set_num_threads(effective_threads())
    x, y, out = torch.from_numpy(a), torch.from_numpy(b), np.empty_like(a)
    with tunegen.session() as session:
        bound = session.bind(gemm)

        def ours() -> None:
            bound(a, b, out)

        def theirs() -> None:
            torch.mm(x, y)
            for _ in range(CALLS_BETWEEN):
                ours()

        alone, beside = _samples(ours, ours, rounds), _samples(theirs, ours, rounds)
    ratios = sorted(before / after for before, after in zip(alone, beside, strict=True))
    middle = ratios[len(ratios) // 2]
    detail = f"gemm {SIDE}^3 soon after one of torch on {torch.get_num_threads()} threads"
    yield line("beside torch", "times the speed without torch's threads", middle, race.interval_of_median(ratios),
               TORCH_GOAL, detail)  # fmt: skip


def _samples(before: Callable[[], object], call: Callable[[], object], rounds: int) -> list[int]:
    """Nanoseconds of a call right after something else."""
    found = []
    for _ in range(rounds):
        before()
        start = clock()
        call()
        found.append(max(clock() - start, 1))
    return found


def _race(calls: dict[str, Callable[[], None]], rounds: int) -> race.Verdict:
    """The first against the second of two calls, sampled in turn."""
    one, default = calls
    times = race.rounds(
        lambda name, _: float(_samples(lambda: None, calls[name], 1)[0]),
        list(calls),
        [CASE],
        lambda done: done >= rounds,
    )
    return race.compare(times, one, default, [CASE])
