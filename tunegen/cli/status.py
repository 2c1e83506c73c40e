"""`tunegen status [SCOPE...]`: what is stamped."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from tunegen.cli import output
from tunegen.public.scope import Scope
from tunegen.public.status import Row, summary, titles, tune_status


def add(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser("status", help="what is stamped on this box", description=__doc__)
    parser.add_argument("scope", nargs="*", help="scopes; all installed ones when left out")
    output.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Prints the status. Exit code 0, tuned or not."""
    scopes = output.named_scopes(options.scope)
    rows = tune_status(*(scope.name for scope in scopes)) if scopes else []
    if options.json:
        output.write_json(summary(rows))
    else:
        print_table(rows, scopes)
    return 0


def print_table(rows: Sequence[Row], scopes: Sequence[Scope], command: str = "tunegen tune") -> None:
    """The status as a table, with a hint when something is not tuned: the command that tunes it."""
    if not rows:
        output.write(["no kernels: no scope is installed, or none declares a kernel"])
        return
    lines = []
    for title, row in zip(titles([(row.scope, row.key) for row in rows]), rows, strict=True):
        for regime in row.regimes:
            name = title if regime is row.regimes[0] else ""
            why = regime.reason if regime.state == "missing" else f"{regime.state} {regime.reason}".strip()
            why = "; ".join(filter(None, (why, regime.provenance)))
            lines.append((name, regime.condition or "all", regime.emitted or "as below", regime.source, why))
    output.write_table(("kernel", "for", "runs", "source", "why"), lines)
    tuned = sum(row.tuned for row in rows)
    output.write([f"{tuned} of {len(rows)} tuned for this box"])
    if untuned := [scope.name for scope in scopes if any(r.scope == scope.name and not r.tuned for r in rows)]:
        output.write([f"to tune the rest, run: {command} {' '.join(untuned)}"])
