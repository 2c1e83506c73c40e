"""`tunegen inventory [SCOPE...]`: how well each kernel path is covered by parameters."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any, get_args

import msgspec

from tunegen.cli import output
from tunegen.public.inventory import Coverage, State, inventory


def add(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser("inventory", help="coverage of each kernel path", description=__doc__)
    parser.add_argument("scope", nargs="*", help="scopes; all installed ones when left out")
    output.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Prints the inventory. Exit code 0, whatever it says."""
    found = inventory(output.named_scopes(options.scope))
    counts = Counter(coverage.state for coverage in found)
    totals = {state: counts[state] for state in get_args(State)}
    if options.json:
        output.write_json({"kernels": [{"key": c.key, **msgspec.to_builtins(c)} for c in found], "states": totals})
    else:
        _print_table(found)
        output.write([", ".join(f"{count} {state}" for state, count in totals.items())])
    return 0


def _print_table(found: list[Coverage]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("kernel", "state", "why", "by hand"):
        table.add_column(heading, overflow="fold")
    for coverage in found:
        table.add_row(f"{coverage.scope}:{coverage.key}", coverage.state, coverage.reason, ", ".join(coverage.manual))
    Console(highlight=False).print(table, markup=False)
