"""`tunegen forget [KERNEL]`: takes entries out of this box's manifests."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from tunegen import tuning
from tunegen.cli import output

USAGE = 2


def add(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser("forget", help="take entries out of manifests", description=__doc__)
    parser.add_argument("kernel", nargs="?", help="gemm, gemm[f32] or mylib:gemm")
    parser.add_argument("--stale", action="store_true", help="only what cannot be used any more")
    parser.add_argument("--values", action="store_true", help="only values of parameters: winners stay")
    parser.add_argument("--all", action="store_true", help="of every kernel")
    parser.add_argument("--path", type=Path, metavar="FILE", help="the manifest; this box's own when left out")
    parser.add_argument("--scope", help="the scope or module that declares the kernel")
    output.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Takes the entries out. Exit code 1 when the file could not be written, 2 when nothing is named."""
    if not (options.kernel or options.stale or options.all):
        sys.stderr.write("tunegen: name a kernel, or say --stale or --all\n")
        return USAGE
    kernel, element_type = output.named_kernel(options.kernel, options.scope) if options.kernel else (None, None)
    if kernel is None:
        output.named_scopes([options.scope] if options.scope else [])
    found = tuning.forget(kernel, options.stale, options.path, element_type, values_only=options.values)
    if options.json:
        output.write_json(found)
    else:
        lines = [f"{row.scope}:{row.key}: {row.reason}" for row in found.pruned]
        output.write(lines or ["there was nothing to forget"])
    if not found and found.status != "not_found":
        sys.stderr.write(f"tunegen: {found.path}: {found.reason}\n")
    return 0 if found or found.status == "not_found" else 1
