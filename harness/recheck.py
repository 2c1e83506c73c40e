"""Variants through the gate once more, here and now, each in a child process of its own.

Run as `python -m tunegen.harness.recheck` with a `Job` of `tunegen.public.regating` on standard input; a `Verdict` per
winner goes to standard output, a line of JSON each.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache

import msgspec

from tunegen.grid import Row
from tunegen.harness import limits
from tunegen.harness.child import SILENT_S, in_child
from tunegen.harness.gate import tile_edges
from tunegen.harness.problems import Problem, problems
from tunegen.harness.protocol import Outcome
from tunegen.harness.qualify import Codes, Variants, qualify
from tunegen.making.spec import Spec
from tunegen.public.kernel import KernelMethods
from tunegen.public.regating import Job, Verdict, Winner
from tunegen.public.scope import find_scope
from tunegen.signature import ElementType

STEP_S = 20.0
"""How long a winner may take for one step while a program waits for its verdict."""


def gate_problems(
    spec: Spec, element_type: ElementType, announce: Callable[[str, str], None] = lambda stage, label: None
) -> list[Problem]:
    """The problems of a kernel's gate. `announce` is called before each. Raises what the reference raises."""
    found: list[Problem] = []
    announce("answers", "")
    for problem in problems(spec, element_type, tile_edges(spec.grid.corners())):
        found.append(problem)
        announce("answers", "")
    return found


@lru_cache(maxsize=1)
def shared_problems(kernel: KernelMethods, element_type: ElementType) -> list[Problem]:
    """The problems of a kernel's gate, made once for all of its variants, which come one after the other."""
    return gate_problems(kernel.spec, element_type)


def recheck(
    spec: Spec, element_type: ElementType, row: Row, tried: Sequence[Problem] | None = None, silent_s: float = SILENT_S
) -> Outcome:
    """What the gate says of a row: `passed`, or why it may not run here.

    `tried` are the problems of its gate, None to have them made in the child. Crashes, a step that takes longer than
    `silent_s` seconds, and a reference that raises are outcomes as well.
    """

    def examine(announce: Callable[[str, str], None]) -> Outcome:
        def asked() -> Sequence[Problem]:
            return tried if tried is not None else gate_problems(spec, element_type, announce)

        return qualify(
            spec, element_type, row, Variants(spec, element_type), asked, Codes(spec, element_type), announce
        )  # fmt: skip

    return in_child(examine, silent_s)


def verdict(scope: str, number: int, winner: Winner) -> Verdict:
    """What to say of a winner."""
    try:
        importlib.import_module(winner.module)
        kernel = find_scope(scope).kernels[winner.kernel]
        element_type = next(t for t in kernel.signature.element_types if t.name == winner.element_type)
    except Exception as error:
        return Verdict(number, f"{winner.module} cannot be imported: {type(error).__name__}: {error}", lasting=False)
    row = kernel.spec.grid.find(winner.suffix)
    if row is None:
        return Verdict(number, f"{winner.suffix!r} is no row of the grid", lasting=False)
    try:
        tried = shared_problems(kernel, element_type)
    except Exception as error:
        return Verdict(number, f"the reference: {type(error).__name__}: {error}", lasting=False)
    outcome = recheck(kernel.spec, element_type, row, tried, STEP_S)
    if outcome.state == "passed":
        return Verdict(number, "")
    # a SIGKILL may have come from anybody
    lasting = outcome.state != "out of memory" and not outcome.reason.endswith("SIGKILL")
    return Verdict(number, f"{outcome.state}: {outcome.reason}", lasting)


def main() -> None:
    """Entry point of the process."""
    # a library or a variant may print what it likes
    with os.fdopen(os.dup(1), "wb", buffering=0) as pipe:
        os.dup2(2, 1)
        job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
        limits.listen_to_signals()
        limits.end_with_parent(job.parent)
        limits.limit()
        for number, winner in enumerate(job.winners):
            pipe.write(msgspec.json.encode(verdict(job.scope, number, winner)) + b"\n")


if __name__ == "__main__":
    main()
