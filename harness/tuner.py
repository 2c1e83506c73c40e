"""The standard tuner of a scope: what a tuner script calls, and what `tunegen tune` starts in a child process.

A library's whole tuner script is

    from tunegen.harness.tuner import main
    main("mylib")
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence

import msgspec

from tunegen import knobs
from tunegen.errors import TunegenError
from tunegen.harness.engine import EFFORTS, Event, Observer, Report, targets, tune
from tunegen.public.scope import find_scope

log = logging.getLogger("tunegen.tuner")

DONE, FAILED, INTERRUPTED = 0, 1, 130


def seconds(text: str) -> float:
    """A duration: "90s", "2m", "1.5h" or plain seconds. Raises `argparse.ArgumentTypeError`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|h)?", text.strip())
    if match is None or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration: write 90s, 2m or 1.5h")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2] or "s"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that every tuner takes, for tuner scripts and for `tunegen tune`."""
    parser.add_argument("--only", default="", metavar="NAMES", help="kernels to tune: gemm,exp[f32]")
    parser.add_argument("--retune", action="store_true", help="tune what is tuned already, too")
    parser.add_argument("--budget", type=seconds, metavar="TIME", help="wall time for all: 90s, 2m")
    parser.add_argument("--effort", choices=tuple(EFFORTS), default="normal", help="how thorough the races are")


def main(scope_name: str, arguments: Sequence[str] | None = None) -> None:
    """Tunes a scope as the command line says, logs progress to stderr, and exits."""
    parser = argparse.ArgumentParser(description=f"Tunes the kernels of {scope_name} on this box.")
    add_options(parser)
    parser.add_argument("--events", type=int, metavar="FD", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        raise SystemExit(_run(scope_name, options))
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except TunegenError as error:
        log.error("%s", error)
        raise SystemExit(FAILED) from None


def _run(scope_name: str, options: argparse.Namespace) -> int:
    # the parent looks at what is stamped, so it is an ordinary program
    knobs.change({knobs.MODE.name: "normal"})
    scope = find_scope(scope_name)
    only = [name for name in options.only.split(",") if name]
    known = {
        name for k in scope.kernels.values() for name in (k.name, *(k.spec.key(t) for t in k.signature.element_types))
    }
    if unknown := [name for name in only if name not in known]:
        log.error("scope %s has no kernel %s; it has %s", scope_name, ", ".join(unknown), ", ".join(sorted(known)))
        return FAILED
    chosen = targets(scope, only, retune=options.retune)
    observer, report = _speaker(options.events)
    failed = False
    for item in tune(chosen, observer, effort=options.effort, budget_s=options.budget):
        report(item)
        failed |= bool(item.problem)
    return FAILED if failed else DONE


def _speaker(events: int | None) -> tuple[Observer, Callable[[Report], None]]:
    """How progress and reports go out: as JSON lines to a parent that draws them, else as log lines."""
    if events is not None:
        pipe = os.fdopen(events, "wb", buffering=0)

        def send(message: Event | Report) -> None:
            pipe.write(msgspec.json.encode({type(message).__name__.lower(): message}) + b"\n")

        return send, send
    return _log_event, _log_report


def _log_event(event: Event) -> None:
    log.debug("%s: %s %s", event.key, event.stage, event.detail)


def _log_report(report: Report) -> None:
    log.info("%s", describe(report))


def describe(report: Report) -> str:
    """A report as one line."""
    if report.result is None:
        return f"{report.key}: {report.problem}"
    parts = [
        f"{regime.winner}{f' if {regime.condition}' if regime.condition else ''} "
        f"({regime.gain:.2f} x default, {regime.reference_gain:.2f} x reference)"
        for regime in report.result.regimes
    ]
    return f"{report.key}: {'; '.join(parts)}" + (f" - {report.problem}" if report.problem else "")
