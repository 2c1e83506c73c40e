"""What the commands share: naming scopes and kernels, and writing results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterable, Sequence
from traceback import extract_tb
from typing import Any

import msgspec

from tunegen.errors import ScopeBroken, ScopeNotFound
from tunegen.paths import as_json
from tunegen.public.kernel import KernelMethods
from tunegen.public.scope import Scope, find_kernel, find_scope, installed_scopes


def add_json(parser: argparse.ArgumentParser) -> None:
    """`--json`: the result on stdout as one JSON document with stable keys."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


broken: list[str] = []
"""Scopes that the command went on without: it has not done all, whatever else it did."""


def named_scopes(names: Sequence[str]) -> list[Scope]:
    """The scopes called `names`; all installed ones without names.

    One whose module raises when it is imported is said, and costs the others nothing. Raises `ScopeNotFound`, and
    `ScopeBroken` when no other is left.
    """
    found: list[Scope] = []
    problems = []
    for name in names or installed_scopes():
        try:
            found.append(find_scope(name))
        except ScopeNotFound:
            raise
        except Exception as error:  # a library's module does what it likes
            last = extract_tb(error.__traceback__)[-1]
            place = "" if isinstance(error, SyntaxError) else f" ({last.filename}, line {last.lineno})"
            problems.append(f"{name} cannot be imported: {type(error).__name__}: {error}{place}")
    if problems and not found:
        raise ScopeBroken("; ".join(problems))
    broken.extend(problems)
    for problem in problems:
        sys.stderr.write(f"tunegen: {problem}\n")
    return found


def named_kernel(text: str, scope: str | None) -> tuple[KernelMethods, str | None]:
    """The kernel and element type that `gemm`, `gemm[f32]` or `mylib:gemm` names. Raises `KernelNotFound`."""
    name, bracket, rest = text.partition("[")
    chosen = named_scopes([scope] if scope else [text.partition(":")[0]] if ":" in text else [])
    return find_kernel(name.rpartition(":")[2], chosen), rest.removesuffix("]") if bracket else None


def write(lines: Iterable[str]) -> None:
    """Lines of text to stdout."""
    for line in lines:
        sys.stdout.write(line + "\n")


def write_table(headings: Sequence[str], rows: Iterable[Sequence[object]], right: Collection[str] = ()) -> None:
    """A table to stdout, with the columns in `right` on the right. No line is folded: names can be copied whole."""
    lines = [tuple(headings), *(tuple(map(str, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    justify = [str.rjust if heading in right else str.ljust for heading in headings]
    for line in lines:
        cells = (just(cell, width) for just, cell, width in zip(justify, line, widths, strict=True))
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def write_json(value: Any) -> None:
    """One JSON document to stdout."""
    sys.stdout.write(msgspec.json.format(as_json(value), indent=2).decode() + "\n")
