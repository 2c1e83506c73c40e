"""What the commands share: naming scopes and kernels, and writing results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tunegen.public.kernel import KernelMethods
from tunegen.public.scope import Scope, find_kernel, find_scope, installed_scopes


def add_json(parser: argparse.ArgumentParser) -> None:
    """`--json`: the result on stdout as one JSON document with stable keys."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def named_scopes(names: Sequence[str]) -> list[Scope]:
    """The scopes called `names`; all installed ones without names. Raises `ScopeNotFound`."""
    return [find_scope(name) for name in names or installed_scopes()]


def named_kernel(text: str, scope: str | None) -> tuple[KernelMethods, str | None]:
    """The kernel and element type that `gemm`, `gemm[f32]` or `mylib:gemm` names. Raises `KernelNotFound`."""
    name, bracket, rest = text.partition("[")
    chosen = named_scopes([scope] if scope else [text.partition(":")[0]] if ":" in text else [])
    return find_kernel(name.rpartition(":")[2], chosen), rest.removesuffix("]") if bracket else None


def write(lines: Iterable[str]) -> None:
    """Lines of text to stdout."""
    for line in lines:
        sys.stdout.write(line + "\n")


def write_json(value: Any) -> None:
    """One JSON document to stdout."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")
