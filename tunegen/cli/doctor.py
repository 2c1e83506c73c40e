"""`tunegen doctor`: whether this box is fit to measure on, and what to do where it is not."""

from __future__ import annotations

import argparse
from typing import Any

from tunegen.cli import output
from tunegen.harness import doctor

REFUSED = 3


def add(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser("doctor", help="is this box fit to measure on", description=__doc__)
    output.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Prints the checks. Exit code 3 when a tune would be refused, else 0: a bad check alone forbids nothing."""
    found = doctor.examine(doctor.this_system())
    if options.json:
        output.write_json(found)
    else:
        rows = [(check.name, check.state, check.read, check.advice) for check in found.checks]
        output.write_table(("check", "state", "read", "what to do"), rows)
    return REFUSED if found.verdict == "refused" else 0
