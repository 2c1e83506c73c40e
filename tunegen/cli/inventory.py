"""`tunegen inventory [SCOPE...]`: how well each kernel path is covered by parameters."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any, get_args

import msgspec

from tunegen.cli import output
from tunegen.public.inventory import State, inventory


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
        rows = [(f"{c.scope}:{c.key}", c.state, c.reason, ", ".join(c.manual)) for c in found]
        output.write_table(("kernel", "state", "why", "by hand"), rows)
        output.write([", ".join(f"{count} {state}" for state, count in totals.items())])
    return 0
