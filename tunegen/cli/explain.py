"""`tunegen explain KERNEL [SIZE=VALUE...]`: why a kernel runs what it runs."""

from __future__ import annotations

import argparse
from typing import Any

from tunegen.cli import output
from tunegen.public.explain import explain


def add(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser("explain", help="why a kernel runs what it runs", description=__doc__)
    parser.add_argument("kernel", help="gemm, gemm[f32] or mylib:gemm")
    parser.add_argument("sizes", nargs="*", type=_size, metavar="SIZE=VALUE", help="sizes of a call: M=1 N=4096 K=4096")
    parser.add_argument("--scope", help="the scope or module that declares it")
    output.add_json(parser)
    parser.set_defaults(run=run)


def _size(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    if not name.isidentifier() or not value.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r}: write a size as M=128")
    return name, int(value)


def run(options: argparse.Namespace) -> int:
    """Prints the explanation."""
    kernel, element_type = output.named_kernel(options.kernel, options.scope)
    found = explain(kernel, element_type, **dict(options.sizes))
    if options.json:
        output.write_json(found)
    else:
        output.write(found.lines())
    return 0
