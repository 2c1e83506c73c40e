"""`tunegen config [SCOPE...]`: every setting that is in force, and where it comes from."""

from __future__ import annotations

import argparse
from typing import Any

from tunegen.cli import output
from tunegen.public.settings import Effective, effective


def add(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser("config", help="the settings in force, and their origin", description=__doc__)
    parser.add_argument("scope", nargs="*", help="scopes; all installed ones when left out")
    output.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Prints the settings. Exit code 2 when a variable has a value that is not allowed."""
    output.named_scopes(options.scope)
    rows = effective()
    if options.json:
        output.write_json({"settings": rows})
    else:
        _print(rows)
    return 2 if any(row.problem and row.value is None for row in rows) else 0


def _print(rows: list[Effective]) -> None:
    """A line each. The value comes last: most are paths."""
    lines = []
    for row in rows:
        value = "" if row.problem and row.value is None else "-" if row.value in (None, "") else str(row.value)
        lines.append((row.name, row.origin, row.variable, ": ".join(filter(None, (value, row.problem)))))
    output.write_table(("setting", "origin", "variable", "value"), lines)
