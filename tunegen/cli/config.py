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
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("setting", "value", "origin", "variable"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        value = "-" if row.value in (None, "") else str(row.value)
        table.add_row(row.name, f"{value}: {row.problem}" if row.problem else value, row.origin, row.variable)
    Console(highlight=False).print(table, markup=False)
