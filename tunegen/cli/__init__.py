"""The command line: one file per command, each with `add(subparsers)` and `run(options) -> exit code`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from tunegen import knobs
from tunegen.cli import (
    baseline,
    cache,
    calibrate,
    config,
    doctor,
    explain,
    export,
    forget,
    inspect,
    inventory,
    output,
    profile,
    propose,
    show,
    status,
    tune,
)
from tunegen.cli import set as set_values
from tunegen.errors import KernelNotFound, KnobError, ParameterError, ScopeNotFound, TunegenError

COMMANDS = (
    tune, status, explain, show, propose, inspect, set_values, forget, profile,
    inventory, baseline, calibrate, export, cache, config, doctor,
)  # fmt: skip
DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = argparse.ArgumentParser(prog="tunegen", description="Tunes numeric kernels for this box, and says what runs.")
    subparsers = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(subparsers)
    return top


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command and exits: 0 done, 1 failed, 2 usage, 130 interrupted."""
    raise SystemExit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code. Diagnostics go to stderr, results to stdout."""
    top = parser()
    options, rest = top.parse_known_args(arguments)
    if rest:
        # argparse gives up on `explain gemm --json M=1`, where an option parts the positional arguments
        options = top.parse_args(_options_last(arguments if arguments is not None else sys.argv[1:], rest))
    # a library in the current folder can be named, as with `python -m`; installed ones go first
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    output.broken.clear()
    try:
        knobs.start_logging()
        knobs.report_unknown()
        code: int = options.run(options)
        sys.stdout.flush()
        return code or (FAILED if output.broken else DONE)
    except (KernelNotFound, ScopeNotFound, KnobError, ParameterError) as error:
        sys.stderr.write(f"tunegen: {error}\n")
        return USAGE
    except TunegenError as error:
        sys.stderr.write(f"tunegen: {error}\n")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _options_last(arguments: Sequence[str], rest: Sequence[str]) -> list[str]:
    """`arguments` with those in `rest` that are no options moved in front of the first option."""
    plain = [a for a in rest if not a.startswith("-")]
    others = [a for a in arguments if a not in plain]
    first = next((i for i, a in enumerate(others) if a.startswith("-")), len(others))
    return [*others[:first], *plain, *others[first:]]
