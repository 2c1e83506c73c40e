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
    whose = "this box" if file.local else "; ".join(file.differences)
    output.write([file.path if file.status == "loaded" else f"{file.path}: {file.status}: {file.reason}"])
    if file.status != "loaded":
        return
    threads = f"{file.threads} thread{'s' if file.threads != 1 else ''}"
    output.write([f"  {file.architecture} {file.cpu}, {threads} ({whose})"])
    rows = []
    for entry in file.entries:
        winners = ", ".join(f"{suffix} if {c}" if c else suffix for c, suffix in entry.winners.items())
        name = f"{entry.scope}:{entry.key}" if entry.scope else entry.key
        rows.append((f"  {name}", entry.state, entry.reason, winners or written(entry.values)))
    output.write_table(("  entry", "state", "why", "holds"), rows)
