"""`tunegen show KERNEL`: the LLVM IR and assembly of a variant for this box."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from tunegen.cli import output
from tunegen.errors import Declined
from tunegen.grid import REFERENCE
from tunegen.public.kernel import KernelMethods


def add(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser("show", help="the code of a variant", description=__doc__)
    parser.add_argument("kernel", help="gemm, gemm[f32] or mylib:gemm")
    parser.add_argument("--variant", metavar="SUFFIX", help="a row of the grid; the stamped one when left out")
    parser.add_argument("--ir", action="store_true", help="LLVM IR alone")
    parser.add_argument("--asm", action="store_true", help="assembly alone")
    parser.add_argument("--scope", help="the scope or module that declares it")
    output.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Prints the code. Exit code 1 when the variant declines, or the reference is stamped and none is named."""
    kernel, element_type = output.named_kernel(options.kernel, options.scope)
    suffix = options.variant or _stamped(kernel, element_type)
    if suffix == REFERENCE:
        sys.stderr.write(f"tunegen: {kernel.name} runs its Python reference; name a row with --variant\n")
        return 1
    both = options.ir == options.asm
    try:
        code = {
            "ir": kernel.ir(suffix, element_type) if options.ir or both else None,
            "asm": kernel.asm(suffix, element_type) if options.asm or both else None,
        }
    except Declined as declined:
        sys.stderr.write(f"tunegen: {kernel.name}__{suffix} declined: {declined}\n")
        return 1
    found = {"kernel": kernel.name, "variant": suffix, **{k: v for k, v in code.items() if v is not None}}
    if options.json:
        output.write_json(found)
    else:
        output.write(text for text in code.values() if text is not None)
    return 0


def _stamped(kernel: KernelMethods, element_type: str | None) -> str:
    names = [t.name for t in kernel.signature.element_types]
    stamp = kernel.stamp.get(element_type or names[0])
    return (stamp.default.emitted if stamp is not None else None) or REFERENCE
