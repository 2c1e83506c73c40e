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
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tunegen import knobs
from tunegen.box import this_box
from tunegen.choosing import store
from tunegen.errors import TunegenError
from tunegen.harness.engine import Settings, tune
from tunegen.harness.limits import end_with_parent, is_gone, listen_to_signals
from tunegen.harness.measure import now_s
from tunegen.harness.noise import probe_quietest
from tunegen.harness.plan import EFFORTS
from tunegen.harness.protocol import STATES
from tunegen.harness.report import Event, Observer, Report, describe, unwanted, where_time_went
from tunegen.harness.simulate import Space, write_spaces
from tunegen.harness.spawn import Stop
from tunegen.harness.target import for_all_users, names, targets
from tunegen.paths import as_json
from tunegen.public.scope import Scope, find_scope
from tunegen.public.sources import system_manifest, target_manifest
from tunegen.public.target import Target

log = logging.getLogger("tunegen.tuner")

DONE, FAILED, REFUSED, INTERRUPTED = 0, 1, 3, 130


def seconds(text: str) -> float:
    """A duration: "90s", "2m", "1.5h" or plain seconds. Raises `argparse.ArgumentTypeError`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|h)?", text.strip())
    if match is None or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration: write 90s, 2m or 1.5h")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2] or "s"]


def states(text: str) -> frozenset[str]:
    """Outcome states: "wrong,crashed". Raises `argparse.ArgumentTypeError`."""
    found = frozenset(name.strip() for name in text.split(",") if name.strip())
    if unknown := sorted(found - set(STATES)):
        raise argparse.ArgumentTypeError(f"no outcome {', '.join(unknown)}; outcomes are {', '.join(STATES)}")
    return found


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that every tuner takes, for tuner scripts and for `tunegen tune`."""
    parser.add_argument("--only", default="", metavar="NAMES", help="kernels to tune: gemm,exp[f32]")
    parser.add_argument("--retune", action="store_true", help="tune what is tuned, and try what timed out, again")
    parser.add_argument("--budget", type=seconds, metavar="TIME", help="wall time for all: 90s, 2m")
    parser.add_argument("--effort", choices=tuple(EFFORTS), default="normal", help="how thorough the races are")
    parser.add_argument("--strict", type=states, default=frozenset(), metavar="STATES",
                        help="fail when a candidate comes out like this: wrong,crashed")  # fmt: skip
    parser.add_argument("--system", action="store_true", help="for all users: tune what the system's manifest lacks")
    parser.add_argument("--noisy-ok", action="store_true", help="measure on a box that is too noisy to be believed")
    parser.add_argument("--record", type=Path, metavar="FILE",
                        help="then sample all that passed, for simulations; that goes on after the budget")  # fmt: skip


def main(scope_name: str, arguments: Sequence[str] | None = None) -> None:
    """Tunes a scope as the command line says, logs progress to stderr, and exits.

    It ends, as after SIGTERM, with the program that started it to tune itself.
    """
    started = now_s()
    listen_to_signals()
    if parent := _program():
        end_with_parent(parent, signal.SIGTERM)
    parser = argparse.ArgumentParser(description=f"Tunes the kernels of {scope_name} on this box.")
    add_options(parser)
    parser.add_argument("--events", type=int, metavar="FD", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    stop = Stop()
    try:
        _start_logging()
        with stop.listening():
            raise SystemExit(_run(scope_name, options, stop, started))
    except KeyboardInterrupt:
        raise SystemExit(stop.exit_code if stop else INTERRUPTED) from None
    except TunegenError as error:
        log.error("%s", error)
        raise SystemExit(FAILED) from None


def _program() -> int:
    """The program that started this process to tune itself, even if that is gone by now; 0 for none."""
    parent = knobs.PARENT.get()
    if parent == str(os.getppid()) or (parent.isdecimal() and knobs.MODE.get() == "tune" and is_gone(int(parent))):
        return int(parent)
    return 0


def _start_logging() -> None:
    """Sends what is logged to stderr: by one handler, so that no line comes twice. Raises `KnobError`."""
    if knobs.LOG.is_set():
        knobs.start_logging()
    else:
        logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)


def _run(scope_name: str, options: argparse.Namespace, stop: Stop, started: float) -> int:
    # the parent looks at what is stamped, so it is an ordinary program
    knobs.change({knobs.MODE.name: "normal"})
    if options.system:
        for_all_users()
    scope = find_scope(scope_name)
    manifest = _system_manifest(scope) if options.system else None
    only = [name for name in options.only.split(",") if name]
    known = names(scope)
    if unknown := [name for name in only if name not in known]:
        log.error("scope %s has no kernel %s; it has %s", scope_name, ", ".join(unknown), ", ".join(sorted(known)))
        return FAILED
    chosen = targets(scope, only, retune=options.retune, manifest=manifest)
    if chosen:
        store.check(target_manifest(scope.name, this_box()), this_box())
    return _tune(chosen, options, stop, started)


def _system_manifest(scope: Scope) -> Path:
    """The manifest of all users, which goes before an application's from here on."""
    path = system_manifest(scope.name, this_box())
    knobs.change({knobs.MANIFEST.name: str(path)})
    return path


def _tune(chosen: Sequence[Target], options: argparse.Namespace, stop: Stop, started: float) -> int:
    seen = probe_quietest()
    if chosen and seen.verdict != "quiet":
        log.warning("this box is %s: %s", "too noisy" if seen.verdict == "refused" else "noisy", seen.reason)
    if chosen and seen.verdict == "refused" and not options.noisy_ok:
        log.error("nothing is measured here: `tunegen doctor` says what to do; --noisy-ok measures all the same")
        return REFUSED
    observer, report = _speaker(options.events)
    spaces: list[Space] | None = [] if options.record else None
    reports: list[Report] = []
    left = max(options.budget - (now_s() - started), 0.0) if options.budget else None
    settings = Settings(options.effort, left, noisy_ok=options.noisy_ok, again=options.retune)
    for item in tune(chosen, observer, settings, stop=stop, spaces=spaces):
        report(item)
        reports.append(item)
    if spaces:
        write_spaces(options.record, spaces)
    if options.events is None and reports:
        log.info("%s", where_time_went(reports))
    if stop:
        return stop.exit_code
    for text in unwanted(reports, options.strict):
        log.error("%s", text)
    if any(item.problem and not item.refused for item in reports) or unwanted(reports, options.strict):
        return FAILED
    return REFUSED if any(item.refused for item in reports) else DONE


def _speaker(events: int | None) -> tuple[Observer, Callable[[Report], None]]:
    """How progress and reports go out: as JSON lines to a parent that draws them, else as log lines."""
    if events is not None:
        pipe = os.fdopen(events, "wb", buffering=0)

        def send(message: Event | Report) -> None:
            pipe.write(as_json({type(message).__name__.lower(): message}) + b"\n")

        return send, send
    return _log_event, _log_report


def _log_event(event: Event) -> None:
    log.debug("%s: %s %s", event.key, event.stage, event.detail)


def _log_report(report: Report) -> None:
    log.info("%s", describe(report))
