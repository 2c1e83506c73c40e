"""`tunegen export SCOPE -o DIR`: a frozen build, which needs neither tunegen nor a compiler where it runs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tunegen.cli import output
from tunegen.freezing.classes import PLATFORMS
from tunegen.public.scope import find_scope

if TYPE_CHECKING:
    from tunegen.freezing.export import Frozen

_USAGE = 2


def add(subparsers: Any) -> None:
    """Adds the command."""
    names = ", ".join(c.name for p in PLATFORMS.values() for c in p.classes)
    parser = subparsers.add_parser("export", help="frozen builds", description=__doc__)
    parser.add_argument("scope", help="the scope, or the module that declares it")
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="an empty or new folder")
    parser.add_argument(
        "--stamp", required=True, choices=("fallback", "winners", "reference"),
        help="what to bake: the library's own choice for an untuned box, what runs on this one, or, with --python, the "
        "Python bodies",
    )  # fmt: skip
    parser.add_argument("--python", action="store_true", help="an importable package, too")
    parser.add_argument(
        "--classes", nargs="?", const="", metavar="A,B",
        help=f"a clone of each kernel per CPU class, for all of the target without names: {names}",
    )  # fmt: skip
    parser.add_argument("--target", choices=sorted(PLATFORMS), default="", help="the platform, if not this box's")
    parser.add_argument("--only", metavar="A,B", default="", help="these kernels alone: gemm,exp[f32]")
    output.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Writes the build. Exit code 1 when it cannot be made, 2 for options that do not go together."""
    from tunegen.freezing.export import Build, export

    classes = None if options.classes is None else tuple(filter(None, options.classes.split(",")))
    if wrong := _wrong(options, classes):
        sys.stderr.write(f"tunegen: {wrong}\n")
        return _USAGE
    only = tuple(filter(None, options.only.split(",")))
    build = Build(options.stamp, options.target, classes, only, options.python)
    frozen = export(find_scope(options.scope), Path(options.output), build)
    if options.json:
        output.write_json(msgspec.to_builtins(frozen))
    else:
        output.write(_lines(frozen))
    return 0


def _wrong(options: argparse.Namespace, classes: tuple[str, ...] | None) -> str:
    """What is wrong with the options as a sentence, or ""."""
    if options.stamp == "reference":
        if not options.python:
            return "--stamp reference: the reference is Python, so no library can hold it; add --python"
        if options.target or classes is not None:
            return "--stamp reference: Python bodies run everywhere, so --target and --classes say nothing"
    known = [c.name for p in PLATFORMS.values() for c in p.classes]
    if unknown := [name for name in classes or () if name not in known]:
        return f"--classes: no class {unknown[0]!r}; there are {', '.join(known)}"
    return ""


def _lines(frozen: Frozen) -> list[str]:
    """What was baked, a line per function and class, and what was left out."""
    lines, manifest = [], frozen.manifest
    for function in manifest["functions"]:
        for name, regimes in function.get("regimes", {}).items():
            picks = [f"{r['variant'] or 'the next'}{' if ' + r['if'] if r['if'] else ''}" for r in regimes]
            lines.append(f"{function['symbol']} for {name}: {'; '.join(picks)}")
    lines += [f"{name} is left out: {reason}" for name, reason in manifest.get("left_out", {}).items()]
    made = f" for {manifest['target']}, linked by {frozen.linker}" if frozen.linker else ""
    return [*lines, f"{frozen.folder}: {', '.join(frozen.files)}{made}"]
