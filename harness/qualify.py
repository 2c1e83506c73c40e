"""Qualification: whether a candidate may race at all. Compiles it and puts it through the gate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tunegen.box import this_box
from tunegen.errors import CompileError, Declined, RenderError, TunegenError
from tunegen.grid import Row
from tunegen.harness import gate
from tunegen.harness.memory import Memory
from tunegen.harness.problems import Problem
from tunegen.harness.protocol import Outcome
from tunegen.making.make import family_code
from tunegen.making.spec import Spec
from tunegen.public.variant import Variant
from tunegen.requires import parse_requires
from tunegen.signature import ElementType

Announce = Callable[[str, str], None]
"""Called with a stage (compile, gate, guard) and a problem's label before a step that may end the process."""

RUN = ("passed", "slower", "wrong", "crashed", "timed out", "out of memory", "out of bounds")
"""States that a candidate's code was run to find out."""


class Variants(dict[str, Callable[..., Any]]):
    """The variants of a kernel for one element type by suffix, each made when it is first asked for."""

    def __init__(self, spec: Spec, element_type: ElementType) -> None:
        super().__init__()
        self.spec = spec
        self.element_type = element_type

    def __missing__(self, suffix: str) -> Callable[..., Any]:
        row = self.spec.grid.find(suffix)
        if row is None:
            raise KeyError(suffix)
        self[suffix] = variant = Variant(self.spec, row, (self.element_type,))
        return variant


class Codes:
    """The code of the candidates so far: equal code is run once."""

    def __init__(self, spec: Spec, element_type: ElementType) -> None:
        self.spec = spec
        self.element_type = element_type
        self._first: dict[str, str] = {}

    def first(self, row: Row) -> str:
        """The suffix of the first row with this row's code, which may be itself. Raises what making it raises."""
        code = family_code(self.spec, row, self.element_type, this_box())
        return self._first.setdefault(code, row.suffix)

    def remember(self, outcomes: Mapping[str, Outcome]) -> None:
        """Takes note of candidates that an earlier worker ran."""
        for suffix, outcome in outcomes.items():
            row = self.spec.grid.find(suffix) if outcome.state in RUN else None
            if row is not None and not outcome.reason.startswith("compile"):
                with suppress(TunegenError, MemoryError):
                    self.first(row)


def qualify(
    spec: Spec,
    element_type: ElementType,
    row: Row,
    variants: Mapping[str, Callable[..., Any]],
    tried: Callable[[], Sequence[Problem]],
    codes: Codes,
    announce: Announce,
) -> Outcome:
    """What becomes of a row: passed, or why it may not race."""
    if missing := parse_requires(row.requires).missing(this_box().feature_set):
        return Outcome("ineligible", f"requires {missing}")
    step = "compile"
    try:
        announce(step, "")
        if (first := codes.first(row)) != row.suffix:
            return Outcome("duplicate", f"of {first}: their object code is equal", of=first)
        step = "run"
        return _gated(spec, element_type, variants[row.suffix], tried(), announce)
    except Exception as error:
        return outcome_of(error, step)


def outcome_of(error: Exception, step: str = "compile") -> Outcome:
    """What an error says of the candidate that was being made, or run, then."""
    match error:
        case Declined():
            return Outcome("declined", str(error))
        case RenderError():
            return Outcome("failed", f"render: {error}")
        case CompileError():
            return Outcome("failed", f"{error.step}: {error}")
        case MemoryError():
            return Outcome("out of memory", f"{step}: {type(error).__name__}: {error}")
    return Outcome("failed", f"{step}: {type(error).__name__}: {error}")


def _gated(
    spec: Spec, element_type: ElementType, variant: Callable[..., Any], tried: Sequence[Problem], announce: Announce
) -> Outcome:
    memory = Memory()
    for stage in ("gate", "guard"):
        wrong = gate.check(
            spec, element_type, variant, tried, guarded=stage == "guard",
            announce=lambda label, stage=stage: announce(stage, label),  # type: ignore[misc]
            memory=memory,
        )  # fmt: skip
        if wrong is not None:
            strayed = wrong.reason == gate.OUT_OF_BOUNDS
            return Outcome("out of bounds" if strayed else "wrong", str(wrong))
    return Outcome("passed")
