"""`tunegen propose [SCOPE...]`: which parameters have values on this box, and what to do about the others."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from tunegen import tuning
from tunegen.cli import output
from tunegen.tuning.results import INTERRUPTION, Calibration, Proposal

INTERRUPTED = 130


def add(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser("propose", help="what parameters lack on this box", description=__doc__)
    parser.add_argument("scope", nargs="*", help="scopes; all installed ones when left out")
    parser.add_argument("--apply", action="store_true", help="calibrate what can be found on this box, and save it")
    output.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Prints the proposal, and acts on it if asked to.

    Exit code 1 when something could not be found or saved, 130 when it was interrupted.
    """
    scopes = [scope.name for scope in output.named_scopes(options.scope)]
    found = tuning.propose(scopes)
    applied = tuning.apply(found) if options.apply else None
    if options.json:
        output.write_json({"proposal": found, **({"applied": applied} if applied is not None else {})})
    else:
        _print(found)
        output.write(_lines(applied) if applied is not None else [])
    if applied is None or applied.status == "updated":
        return 0
    sys.stderr.write(f"tunegen: {applied.reason}\n")
    return INTERRUPTED if applied.reason == INTERRUPTION else 1


def _print(found: Proposal) -> None:
    states = ("covered", "calibratable", "manual")
    rows = [(f"{row.scope}:{row.key}", state, row.reason) for state in states for row in getattr(found, state)]
    output.write_table(("parameters of", "state", "why"), rows)
    if found.calibratable:
        command = f"tunegen propose {' '.join(found.scopes)} --apply"
        output.write([f"to find what can be found on this box, run: {command}"])


def _lines(applied: Calibration) -> list[str]:
    return [
        f"{result.name}: {', '.join(decision.names)}: {decision.outcome}: {decision.reason}"
        for result in applied.results
        for decision in result.decisions
    ]
