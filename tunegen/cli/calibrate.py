"""`tunegen calibrate [SCOPE...]`: finds the parameters of kernels on this box, by their calibrations."""

from __future__ import annotations

import argparse
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from tunegen.cli import output
from tunegen.errors import KernelNotFound
from tunegen.harness import calibrate, noise
from tunegen.harness.calibrate import CalibrationReport, Limits
from tunegen.harness.target import names
from tunegen.harness.tuner import seconds

DONE, FAILED, REFUSED, INTERRUPTED = 0, 1, 3, 130


def add(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser("calibrate", help="find parameters on this box", description=__doc__)
    parser.add_argument("scope", nargs="*", help="scopes; all installed ones when left out")
    parser.add_argument("--only", default="", metavar="NAMES", help="kernels to calibrate: gemm,exp[f32]")
    parser.add_argument("--budget", type=seconds, metavar="TIME", help="wall time for all: 0.5s, 2m")
    parser.add_argument("--memory", type=size, metavar="BYTES", help="most that the operands of a call take: 16M, 1G")
    parser.add_argument("--threads", type=count, metavar="N", help="threads to calibrate for; all when left out")
    parser.add_argument("--save", action=argparse.BooleanOptionalAction, default=True,
                        help="write what is found to the manifest; without, it is only said")  # fmt: skip
    parser.add_argument("--noisy-ok", action="store_true", help="measure on a box that is too noisy to be believed")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the whole report there, too")
    output.add_json(parser)
    parser.set_defaults(run=run)


def count(text: str) -> int:
    """A whole number from 1 up. Raises `argparse.ArgumentTypeError`."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 up")
    return int(text)


def size(text: str) -> int:
    """A number of bytes: "16M", "1G" or plain bytes. Raises `argparse.ArgumentTypeError`."""
    match = re.fullmatch(r"(\d+)\s*([kKmMgG]?)(?:i?[bB])?", text.strip())
    if match is None or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: write 64K, 16M or 1G")
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2].lower()]


def run(options: argparse.Namespace) -> int:
    """Calibrates and prints what was found.

    Exit code 1 when something was not finished or not saved, 3 when the box is too noisy, 130 or 143 after a signal;
    what was finished by then is kept in any case.
    """
    scopes = output.named_scopes(options.scope)
    only = [name for name in options.only.split(",") if name]
    if unknown := set(only) - set().union(*map(names, scopes)):
        raise KernelNotFound(f"no kernel {', '.join(sorted(unknown))}")
    limits = Limits(duration_s=options.budget, threads=options.threads)
    if options.memory:
        limits = msgspec.structs.replace(limits, memory_bytes=options.memory)
    seen = noise.probe_quietest()
    if seen.verdict == "refused" and not options.noisy_ok:
        sys.stderr.write(f"tunegen: nothing is measured here: {seen.reason}; see `tunegen doctor`, or use --noisy-ok\n")
        return REFUSED
    with _ending() as signals:
        targets = calibrate.calibratable(scopes, only)
        report = calibrate.run(targets, limits, save=options.save, publish=False, announce=_announce)
    report = msgspec.structs.replace(report, noise=seen.evidence())
    if options.report:
        _write(options.report, report)
    if options.json:
        output.write_json(report)
    else:
        _print_table(report)
    if report.ended == "interrupted":
        return 128 + signals[0] if signals else INTERRUPTED
    return DONE if report.finished else FAILED


@contextmanager
def _ending() -> Iterator[list[int]]:
    """SIGTERM ends a calibration as Ctrl-C does, and is in the list then."""
    came: list[int] = []

    def end(number: int, _: FrameType | None) -> None:
        came.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, before)


def _write(path: Path, report: CalibrationReport) -> None:
    """The report as a file that may be passed on: manifests are named without their folders."""
    results = [msgspec.structs.replace(r, path=Path(r.path).name) for r in report.results]
    passed_on = msgspec.structs.replace(report, results=results)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(passed_on), indent=2) + b"\n")


def _announce(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _print_table(report: CalibrationReport) -> None:
    rows: list[tuple[str, ...]] = []
    for result in report.results:
        for decision in result.decisions:
            said: tuple[str, str] = (decision.outcome, decision.reason)
            for name in decision.names:
                rows.append((result.name, name, str(decision.values[name]), *said))
                said = ("", "")
        if result.problem:
            rows.append((result.name, "", "", "not saved", result.problem))
    if report.results:
        output.write_table(("kernel", "parameter", "value", "outcome", "why"), rows)
    else:
        output.write(["no kernel here has a calibration"])
    paths = dict.fromkeys(result.path for result in report.results if result.path)
    output.write(f"saved in {path}" for path in paths)
    output.write([f"not all is finished: {report.ended}"] if report.ended else [])
