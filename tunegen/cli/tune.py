"""`tunegen tune [SCOPE...]`: tunes what is not tuned on this box, by each scope's own tuner."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from tunegen import knobs
from tunegen.cli import output
from tunegen.cli.status import print_table
from tunegen.harness import tuner
from tunegen.harness.engine import Event, Report, targets
from tunegen.harness.measure import now_s
from tunegen.public.scope import Scope
from tunegen.public.status import load, summary, tune_status


class Message(msgspec.Struct, frozen=True):
    """A line from a tuner: one of the two."""

    event: Event | None = None
    report: Report | None = None


def add(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser("tune", help="tune what is not tuned", description=__doc__)
    parser.add_argument("scope", nargs="*", help="scopes; all installed ones when left out")
    tuner.add_options(parser)
    parser.add_argument("--dry-run", action="store_true", help="say what would be tuned, and stop")
    output.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Tunes, then prints the status and the speed-ups. Exit code 1 when something could not be tuned or saved."""
    scopes = output.named_scopes(options.scope)
    only = _known(scopes, [name for name in options.only.split(",") if name])
    if options.dry_run:
        return _dry_run(scopes, only, options)
    end = now_s() + options.budget if options.budget else None
    reports: list[Report] = []
    failed = False
    for index, scope in enumerate(scopes):
        budget = (end - now_s()) / (len(scopes) - index) if end is not None else None
        code, found = _run_tuner(scope, options, budget)
        reports += found
        failed |= code != 0
    load()
    rows = tune_status(*(scope.name for scope in scopes))
    if options.json:
        output.write_json({**summary(rows), "reports": reports})
    else:
        print_table(rows, scopes)
        _print_gains(reports)
    return 1 if failed else 0


def _known(scopes: list[Scope], only: list[str]) -> list[str]:
    from tunegen.errors import KernelNotFound

    names = {
        n for s in scopes for k in s.kernels.values() for n in (k.name, *map(k.spec.key, k.signature.element_types))
    }
    if unknown := [name for name in only if name not in names]:
        raise KernelNotFound(f"no kernel {', '.join(unknown)}; there are {', '.join(sorted(names))}")
    return only


def _dry_run(scopes: list[Scope], only: list[str], options: argparse.Namespace) -> int:
    found = {s.name: {t.key: len(t.spec.grid) for t in targets(s, only, retune=options.retune)} for s in scopes}
    if options.json:
        output.write_json(found)
    else:
        lines = [f"{name}: {key}, {rows} variants" for name, keys in found.items() for key, rows in keys.items()]
        output.write(lines or ["everything is tuned"])
    return 0


def _run_tuner(scope: Scope, options: argparse.Namespace, budget: float | None) -> tuple[int, list[Report]]:
    """Runs the scope's tuner in a child process and draws its progress. Returns its exit code and reports."""
    reading, writing = os.pipe()
    script = [str(scope.tuner)] if scope.tuner else ["-m", "tunegen.harness", scope.module]
    command = [sys.executable, "-P", *script, "--events", str(writing), "--effort", options.effort]
    command += ["--only", options.only] if options.only else []
    command += ["--retune"] if options.retune else []
    command += ["--budget", f"{budget:.3f}s"] if budget is not None else []
    environment = knobs.child_environment(TUNE_MODE="tune", PYTHONPATH=os.pathsep.join(sys.path))
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=sys.stderr, pass_fds=[writing], env=environment
    )
    os.close(writing)
    reports = []
    with os.fdopen(reading, "rb") as lines, _progress(scope.name) as draw:
        for line in lines:
            message = msgspec.json.decode(line, type=Message)
            if message.report is not None:
                reports.append(message.report)
            if message.event is not None:
                draw(message.event)
    return process.wait(), reports


@contextmanager
def _progress(scope: str) -> Iterator[Callable[[Event], None]]:
    """A progress bar on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.percentage:>3.0f}%"),
               TimeElapsedColumn(), TextColumn("{task.fields[detail]}", markup=False))  # fmt: skip
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(f"tuning {scope}", total=1.0, detail="")

        def draw(event: Event) -> None:
            done = (event.index + event.part) / max(event.total, 1)
            bar.update(task, completed=done, detail=f"{event.key} {event.stage} {event.detail}")

        yield draw
        bar.update(task, completed=1.0, detail="")


def _print_gains(reports: list[Report]) -> None:
    """Per kernel and regime, the speed-up over the untuned default and over the reference."""
    from rich.console import Console
    from rich.table import Table

    if not reports:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("tuned", "for", "winner", "vs untuned", "vs reference"):
        table.add_column(heading, overflow="fold", justify="right" if heading.startswith("vs") else "left")
    for report in reports:
        if report.problem:
            table.add_row(report.key, "", report.problem, "", "")
        for regime in report.result.regimes if report.result is not None else ():
            table.add_row(
                report.key, regime.condition or "all", regime.winner, f"{regime.gain:.2f} x",
                f"{regime.reference_gain:.2f} x",
            )  # fmt: skip
    console = Console(highlight=False)
    console.print()
    console.print(table, markup=False)
