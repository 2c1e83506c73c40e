"""`tunegen inspect [PATH]`: every entry of this box's manifests, or of one file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from tunegen import tuning
from tunegen.cli import output
from tunegen.tuning.results import FileRow
from tunegen.tuning.text import written


def add(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser("inspect", help="what manifests hold", description=__doc__)
    parser.add_argument("path", nargs="?", type=Path, help="a manifest; all that are at hand when left out")
    output.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Prints the entries. Exit code 1 when the file that was named cannot be read."""
    output.named_scopes([])
    found = tuning.inspect(options.path)
    if options.json:
        output.write_json(found)
    else:
        for file in found.files:
            _print(file)
        if not found.files:
            output.write(["there are no manifests for this box"])
    if options.path is None or found.status == "loaded":
        return 0
    sys.stderr.write(f"tunegen: {options.path}: {found.files[0].reason}\n")
    return 1


def _print(file: FileRow) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    whose = "this box" if file.local else "; ".join(file.differences)
    console.print(file.path if file.status == "loaded" else f"{file.path}: {file.status}: {file.reason}", markup=False)
    if file.status != "loaded":
        return
    threads = f"{file.threads} thread{'s' if file.threads != 1 else ''}"
    console.print(f"  {file.architecture} {file.cpu}, {threads} ({whose})", markup=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("  entry", "state", "holds", "why"):
        table.add_column(heading, overflow="fold")
    for entry in file.entries:
        winners = ", ".join(f"{suffix} if {c}" if c else suffix for c, suffix in entry.winners.items())
        name = f"{entry.scope}:{entry.key}" if entry.scope else entry.key
        table.add_row(f"  {name}", entry.state, winners or written(entry.values), entry.reason)
    console.print(table, markup=False)
