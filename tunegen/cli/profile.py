"""`tunegen profile export|import|robust`: what a tuned box can tell others, and what recorded spaces say to ship."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tunegen import tuning
from tunegen.choosing.profiles import write_profile
from tunegen.choosing.selecting import Selector
from tunegen.cli import output
from tunegen.errors import ProfileError, StoreError
from tunegen.tuning.profiling import read_selector
from tunegen.tuning.results import Imported

WRITING = ("read_only", "write_failed")
SELECTOR = "model, models, microarchitecture or features: those of this box; or such as microarchitecture=znver4"


def add(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser("profile", help="ship winners and values", description=__doc__)
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    export = commands.add_parser("export", help="write a profile from the manifest of this box")
    export.add_argument("scope", help="the scope or module")
    export.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="the profile")
    export.add_argument("--selector", required=True, type=_selector, help=SELECTOR)
    export.add_argument("--manifest", type=Path, metavar="FILE", help="this box's own when left out")
    export.add_argument("--threads", type=int, metavar="N", help="only for boxes with so many effective threads")
    export.add_argument("--priority", type=int, default=0, help="decides between profiles that are equally specific")
    export.set_defaults(run=run_export)
    take = commands.add_parser("import", help="take a profile over, under a selector, or any manifest as a prior")
    take.add_argument("file", type=Path, help="the profile; with --as-prior, a profile or a manifest of any box")
    take.add_argument("--as-prior", action="store_true", help="take over what passes the gate here, as suggestions")
    take.add_argument("--selector", type=_selector, help=f"{SELECTOR}; a prior is for this box's model when left out")
    take.add_argument(
        "--scope", metavar="SCOPE", help="the scope or module that it is for; all installed when left out"
    )
    take.set_defaults(run=run_import, usage_error=take.error)
    robust = commands.add_parser("robust", help="the chain that is the least slow where it does worst")
    robust.add_argument("space", nargs="+", type=Path, help="what `tunegen tune --record FILE` wrote, of several boxes")
    robust.set_defaults(run=run_robust)
    for command in (export, take, robust):
        output.add_json(command)


def _selector(text: str) -> Selector:
    try:
        return read_selector(text)
    except ProfileError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run_export(options: argparse.Namespace) -> int:
    """Writes the profile. Exit code 1 when there is nothing to export, or the file cannot be written."""
    scope = output.named_scopes([options.scope])[0].name
    found = tuning.export_profile(scope, options.selector, options.manifest, options.threads, options.priority)
    try:
        options.output.write_bytes(write_profile(found.profile))
    except OSError as error:
        raise StoreError(f"{options.output} cannot be written: {error.strerror or error}") from None
    if options.json:
        output.write_json({"path": str(options.output), "profile": found.profile, "left_out": found.left_out})
    else:
        output.write([f"{options.output}: {_kernels(len(found.profile.kernels))}, for {found.profile.selector}"])
        output.write(f"  left out: {key}: {why}" for key, why in found.left_out.items())
    return 0


def run_import(options: argparse.Namespace) -> int:
    """Takes the profile, or the prior, over. Exit code 1 when it is refused, or cannot be read or written."""
    if options.selector is None and not options.as_prior:
        options.usage_error("say for which boxes: --selector model is for this box's model; or --as-prior")
    named = output.named_scopes([options.scope] if options.scope else [])
    if options.as_prior:
        if sys.stderr.isatty():
            sys.stderr.write(f"{options.file}: each winner goes through the gate of this box first\n")
        scope = named[0].name if options.scope else None
        found = tuning.import_prior(options.file, options.selector, scope)
    else:
        found = tuning.import_profile(options.file, options.selector)
    if options.json:
        output.write_json(found)
    else:
        output.write(_imported(found))
    if found.status == "updated":
        return 0
    sys.stderr.write(f"tunegen: {_why_not(options.file, found)}\n")
    return 1


def _imported(found: Imported) -> Iterator[str]:
    """What was taken over, file by file, and what was left out."""
    for path in dict.fromkeys(row.path for row in found.rows):
        rows = [row for row in found.rows if row.path == path]
        word = f"; {found.reason}" if found.status == "updated" and found.reason else ""
        yield f"{path}: {_kernels(len(rows))}{word}"
        yield from (f"  {row.key}: {row.reason}" for row in rows if row.reason)
    for row in found.left_out:
        # names out of a file: a terminal might obey them
        text = f"{':'.join(filter(None, (row.scope, row.key)))}: {row.reason}"
        yield "  left out: " + "".join(c if c.isprintable() else "?" for c in text)


def _kernels(number: int) -> str:
    return "1 kernel" if number == 1 else f"{number} kernels"


def _why_not(asked: Path, found: Imported) -> str:
    if found.status in WRITING:
        return f"{asked} is not taken over: {found.path} cannot be written: {found.reason}"
    return f"{asked} is not taken over: {found.reason}"


def run_robust(options: argparse.Namespace) -> int:
    """Prints a fallback chain per key, with its slowdown where it does worst."""
    from tunegen.harness.robust import read_labelled, robust

    found = robust(read_labelled(options.space))
    if options.json:
        output.write_json([{"key": r.key, "fallback": r.fallback, "worst": r.worst, "picks": r.picks} for r in found])
    else:
        for chosen in found:
            output.write([f'{chosen.key}: fallback="{chosen.fallback}" (at worst {chosen.worst:.2f} times the best)'])
            for pick in chosen.picks:
                slowdowns = ", ".join(f"{label} {value:.2f}" for label, value in pick.slowdowns.items())
                output.write([f"  {pick.condition or 'all'}: {slowdowns}; the default {pick.default_worst:.2f}"])
    return 0
