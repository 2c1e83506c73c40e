"""Qualification: whether a candidate may race at all. Compiles it and puts it through the gate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tunegen.box import this_box
from tunegen.errors import CompileError, Declined, RenderError
from tunegen.grid import Row
from tunegen.harness import gate
from tunegen.harness.problems import Problem
from tunegen.harness.protocol import Outcome
from tunegen.making.spec import Spec
from tunegen.requires import parse_requires
from tunegen.signature import ElementType


def qualify(
    spec: Spec, element_type: ElementType, row: Row, variants: Mapping[str, Callable[..., Any]], tried: list[Problem]
) -> Outcome:
    """What becomes of a row: passed, or ineligible, declined, failed or wrong, with the reason."""
    if missing := parse_requires(row.requires).missing(this_box().feature_set):
        return Outcome("ineligible", f"requires {missing}")
    try:
        wrong = gate.check(spec, element_type, variants[row.suffix], tried)
    except Declined as declined:
        return Outcome("declined", str(declined))
    except (RenderError, CompileError) as error:
        return Outcome("failed", str(error))
    return Outcome("passed") if wrong is None else Outcome("wrong", str(wrong))
