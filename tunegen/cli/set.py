"""`tunegen set KERNEL NAME=VALUE...`: values of a kernel's parameters for this box."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from tunegen import tuning
from tunegen.cli import output
from tunegen.tuning.text import read_values, written


def add(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser("set", help="set parameters of a kernel on this box", description=__doc__)
    parser.add_argument("kernel", help="gemm, gemm[f32] or mylib:gemm; without a type, all element types")
    parser.add_argument("values", nargs="+", metavar="NAME=VALUE", help="parallel.grain=4096; true; 0.5")
    parser.add_argument("--path", type=Path, metavar="FILE", help="the manifest; this box's own when left out")
    parser.add_argument("--scope", help="the scope or module that declares it")
    output.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Writes the values. Exit code 1 when they could not be saved, 2 when the schema refuses them."""
    kernel, element_type = output.named_kernel(options.kernel, options.scope)
    values = read_values(kernel.spec.schema, options.values)
    found = tuning.set(kernel, values, element_type, path=options.path, load=False)
    if options.json:
        output.write_json(found)
    else:
        output.write(f"{row.scope}:{row.key}: {written(row.values)}" for row in found.updated)
        output.write([f"in {found.path}"] if found else [])
    if not found:
        sys.stderr.write(f"tunegen: nothing was saved: {found.reason}\n")
    return 0 if found else 1
