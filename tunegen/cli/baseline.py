"""`tunegen baseline [SCOPE...]`: what representative calls cost on this box, and how far they are from its roofline."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from tunegen.cli import output
from tunegen.harness import baseline, portable, reports
from tunegen.harness.baseline import Baseline

DONE, REFUSED = 0, 3


def add(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser("baseline", help="the machine report", description=__doc__)
    parser.add_argument("scope", nargs="*", help="scopes; all installed ones when left out")
    parser.add_argument("--only", default="", metavar="NAMES", help="kernels to measure: gemm,exp[f32]")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the whole report there, too")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("A", "B"),
                        help="measure nothing: which portable defaults two boxes propose")  # fmt: skip
    output.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measures and prints the report; it changes nothing. Exit code 3 when two reports are of one kind of box."""
    if options.compare:
        return _compare(options)
    only = [name for name in options.only.split(",") if name]
    found = baseline.take(output.named_scopes(options.scope), only=only, announce=_announce)
    if options.report:
        options.report.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    if options.json:
        output.write_json(found)
    else:
        _print(found)
    return DONE


def _compare(options: argparse.Namespace) -> int:
    one, other = (reports.read(path, Baseline) for path in options.compare)
    try:
        proposed = portable.compare(one, other)
    except portable.SameBox as refused:
        sys.stderr.write(f"tunegen: {refused}\n")
        return REFUSED
    if options.json:
        output.write_json(proposed)
        return DONE
    rows = [(p.key, p.parameter, p.ours, p.theirs, "none" if p.value is None else p.value, p.reason) for p in proposed]
    output.write_table(("kernel", "parameter", "here", "there", "portable default", "why"), rows)
    if not proposed:
        output.write(["no parameter was calibrated on both boxes"])
    return DONE


def _announce(text: str) -> None:
    sys.stderr.write(f"measuring {text}\n")


def _print(found: Baseline) -> None:
    box = found.about.box
    output.write([f"{box.vendor} {box.cpu}, family {box.family}, model {box.model}, {box.threads} threads; "
                  + ", ".join(f"{name}={value}" for name, value in found.policy.items())])  # fmt: skip
    output.write(f"{start.what}: {start.ms:.1f} ms, {start.ratio:.2f} times numpy's import" for start in found.start_up)
    output.write_table(
        ("peak", "threads", "10^9/s"), [(p.element_type, p.threads, f"{p.gflops:.0f}") for p in found.roofline.peaks]
    )
    output.write_table(
        ("level", "threads", "read GB/s", "copy", "streamed"),
        [(b.level, b.threads, *(f"{x:.0f}" for x in (b.read_gbs, b.copy_gbs, b.stream_gbs)))
         for b in found.roofline.bandwidths],
    )  # fmt: skip
    figures = {(f.key, f.size, f.threads): f for f in found.figures}
    rows = []
    for place, ranked in enumerate(found.ranking, start=1):
        f = figures[ranked.key, ranked.size, ranked.threads]
        distance = f"{f.distance:.2f}" if f.distance else ""
        rows.append((place, f.key, f.size, f"{f.observed} of {f.threads}", f"{f.wall_ns / 1e3:.1f}",
                     f"{f.cpu_ns / 1e3:.1f}", f"{f.utilisation:.0%}", distance))  # fmt: skip
    output.write_table(("", "kernel", "size", "threads", "wall us", "CPU us", "used", "roofline x"), rows)
    seen = Counter(f"{name}: {counter.status}" for f in found.figures for name, counter in f.counters.items())
    output.write([f"counters: {', '.join(f'{status} {times} times' for status, times in seen.items())}"])
