"""`tunegen tune [SCOPE...]`: tunes what is not tuned on this box, by each scope's own tuner."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tunegen import knobs
from tunegen.box import this_box
from tunegen.choosing import store
from tunegen.cli import output
from tunegen.cli.status import print_table
from tunegen.errors import StoreError
from tunegen.harness import history, tuner
from tunegen.harness.candidates import fitting
from tunegen.harness.measure import now_s
from tunegen.harness.report import Event, Report, time_by_stage, where_time_went
from tunegen.harness.spawn import Stop
from tunegen.harness.target import for_all_users, names, targets
from tunegen.public import launching
from tunegen.public.scope import Scope
from tunegen.public.sources import system_manifest, target_manifest
from tunegen.public.status import load, summary, titles, tune_status

VERSUS = ("vs untuned", "vs reference")
USAGE, INTERRUPTED = 2, {130, 143}


class Message(msgspec.Struct, frozen=True):
    """A line from a tuner: one of the two."""

    event: Event | None = None
    report: Report | None = None


def add(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser("tune", help="tune what is not tuned", description=__doc__)
    parser.add_argument("scope", nargs="*", help="scopes; all installed ones when left out")
    tuner.add_options(parser)
    parser.add_argument("--diff", action="store_true", help="show what changed against the manifest before this run")
    parser.add_argument("--dry-run", action="store_true", help="say what would be tuned, and stop")
    output.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Tunes, then prints the status and the speed-ups.

    Exit code 1 when something could not be tuned or saved, 3 when the box was too noisy, 130 or 143 after a signal.
    """
    end = now_s() + options.budget if options.budget else None
    if options.system:
        for_all_users()
    scopes = output.named_scopes(options.scope)
    only = _known(scopes, [name for name in options.only.split(",") if name])
    if options.record and len(scopes) != 1:
        sys.stderr.write(f"tunegen: --record takes one scope, not {', '.join(scope.name for scope in scopes)}\n")
        return USAGE
    if options.dry_run:
        return _dry_run(scopes, only, options)
    named = {scope: [name for name in only if name in names(scope)] for scope in scopes}
    wanted = {scope: own for scope, own in named.items() if own or not only}
    if options.system and (problem := _no_rights(wanted)):
        sys.stderr.write(f"tunegen: nothing is tuned for all users: {problem}\n")
        return tuner.FAILED
    code, reports = _tune(wanted, options, end)
    load()
    rows = tune_status(*(scope.name for scope in scopes))
    changed = {scope.name: _changes(_manifest(scope, options), scope) for scope in scopes} if options.diff else {}
    if options.json:
        extra = {"changes": _listed(changed)} if options.diff else {}
        seconds = time_by_stage(reports)
        output.write_json({**summary(rows), "reports": reports, "seconds": seconds, **extra})
        return code
    print_table(rows, scopes, "tunegen tune --system" if options.system else "tunegen tune")
    _print_gains(reports)
    if options.diff:
        output.write(_lines(changed))
    if reports:
        output.write([where_time_went(reports)])
    return code


def _manifest(scope: Scope, options: argparse.Namespace) -> Path:
    """The file that new winners of a scope go to."""
    return (system_manifest if options.system else target_manifest)(scope.name, this_box())


def _no_rights(scopes: Iterable[Scope]) -> str:
    """Why the system's manifests of these scopes cannot be written by whoever this is, or ""."""
    try:
        for scope in scopes:
            store.check(system_manifest(scope.name, this_box()), this_box())
    except StoreError as error:
        return str(error)
    return ""


def _tune(scopes: dict[Scope, list[str]], options: argparse.Namespace, end: float | None) -> tuple[int, list[Report]]:
    """Runs the tuner of each scope for the kernels named of it, or for all. Returns the exit code and all reports.

    After a signal no further tuner starts.
    """
    reports: list[Report] = []
    codes = set()
    with Stop(passed_on=0).listening() as stop:
        for index, (scope, only) in enumerate(scopes.items()):
            budget = max(end - now_s(), 0.001) / (len(scopes) - index) if end is not None else None
            code, found = _run_tuner(scope, only, options, budget, stop)
            reports += found
            codes.add(code)
            if stop:
                return stop.exit_code, reports
    if not codes - {tuner.DONE, tuner.REFUSED}:
        return max(codes, default=tuner.DONE), reports
    ended = codes & INTERRUPTED
    return min(ended) if ended else tuner.FAILED, reports


def _changes(path: Path, scope: Scope) -> list[history.Change]:
    return history.changes(history.previous(path, scope.name), store.read(path), scope.name)


def _listed(changed: dict[str, list[history.Change]]) -> dict[str, list[dict[str, Any]]]:
    return {scope: [{"what": c.what, **msgspec.to_builtins(c)} for c in found] for scope, found in changed.items()}


def _lines(changed: dict[str, list[history.Change]]) -> list[str]:
    """A line for each winner that is not what it was, and the number of the others."""
    lines = ["", "against the manifest before:"]
    found = [(scope, change) for scope, changes in changed.items() for change in changes]
    for title, (_, change) in zip(titles([(scope, c.key) for scope, c in found]), found, strict=True):
        if change.what != "same":
            place = f"{title} if {change.condition}" if change.condition else title
            before, after = (
                f"{winner or 'nothing'}{f' ({ratio:.2f} x default)' if ratio is not None else ''}"
                for winner, ratio in ((change.before, change.ratio_before), (change.after, change.ratio_after))
            )
            lines.append(f"  {change.what}: {place}: {before} -> {after}")
    same = sum(change.what == "same" for _, change in found)
    return [*lines, f"  the same: {same}"]


def _known(scopes: list[Scope], only: list[str]) -> list[str]:
    from tunegen.errors import KernelNotFound

    there = set().union(*map(names, scopes))
    if unknown := [name for name in only if name not in there]:
        raise KernelNotFound(f"no kernel {', '.join(unknown)}; there are {', '.join(sorted(there))}")
    return only


def _dry_run(scopes: list[Scope], only: list[str], options: argparse.Namespace) -> int:
    box = this_box()
    found = {}
    for scope in scopes:
        manifest = _manifest(scope, options) if options.system else None
        chosen = targets(scope, only, retune=options.retune, manifest=manifest)
        found[scope.name] = {target.key: fitting(target.spec.grid, box).count() for target in chosen}
    if options.json:
        output.write_json({name: {key: count.rows for key, count in keys.items()} for name, keys in found.items()})
    else:
        lines = [f"{name}: {key}, {rows} variants" for name, keys in found.items() for key, rows in keys.items()]
        output.write(lines or ["everything is tuned"])
    return 0


def _run_tuner(
    scope: Scope, only: list[str], options: argparse.Namespace, budget: float | None, stop: Stop
) -> tuple[int, list[Report]]:
    """Runs the scope's tuner in a child process and draws its progress. Returns its exit code and reports."""
    reading, writing = os.pipe()
    command = launching.command(scope, ["--events", str(writing), "--effort", options.effort])
    command += ["--only", ",".join(only)] if only else []
    command += ["--retune"] if options.retune else []
    command += ["--noisy-ok"] if options.noisy_ok else []
    command += ["--system"] if options.system else []
    command += ["--strict", ",".join(sorted(options.strict))] if options.strict else []
    command += ["--record", str(options.record.absolute())] if options.record else []
    command += ["--budget", f"{budget:.3f}s"] if budget is not None else []
    place = {knobs.MANIFEST.name: str(_manifest(scope, options))} if options.system else {}
    # a group of its own: a signal reaches it once, from here, and not from the terminal too
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        pass_fds=[writing],
        env={**launching.environment(), **place},
        process_group=0,
    )
    os.close(writing)
    stop.child = process
    stop.pass_on()
    reports = []
    with os.fdopen(reading, "rb") as lines, _progress(scope.name) as draw:
        for line in lines:
            message = msgspec.json.decode(line, type=Message)
            if message.report is not None:
                reports.append(message.report)
            if message.event is not None:
                draw(message.event)
    code = process.wait()
    stop.child = None
    return code if code >= 0 else 128 - code, reports


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
    if not reports:
        return
    rows = []
    for title, report in zip(titles([(report.scope, report.key) for report in reports]), reports, strict=True):
        if report.problem:
            rows.append((title, "", report.problem, "", ""))
        for regime in report.result.regimes if report.result is not None else ():
            gains = (f"{regime.gain:.2f} x", f"{regime.reference_gain:.2f} x")
            rows.append((title, regime.condition or "all", regime.winner, *gains))
    output.write([""])
    output.write_table(("tuned", "for", "winner", *VERSUS), rows, right=VERSUS)
