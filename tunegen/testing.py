"""The test rail of a library: each variant of each kernel goes through the gate, as it does before it is tuned.

A variant runs in a child process, so that one that crashes, hangs or strays beyond its operands is a failed test.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import msgspec
import pytest

from tunegen.errors import ScopeNotFound
from tunegen.grid import Row
from tunegen.harness.gate import tile_edges
from tunegen.harness.problems import Problem, problems
from tunegen.harness.protocol import Outcome
from tunegen.harness.qualify import Codes, Variants, qualify
from tunegen.public.kernel import KernelMethods
from tunegen.public.scope import Scope, find_scope
from tunegen.signature import ElementType

MOST_ROWS = 1024
"""Of a larger grid, rows that take each value of each axis are tested."""
SILENT_S = 120.0
"""How long a variant may take for one step, to be compiled or to answer one problem."""
SKIPPED = ("declined", "ineligible")
PASSED = "passed"


class WrongVariant(Exception):
    """What the gate says of a variant."""


class Rail:
    """Adds the tests of some scopes to a session of pytest."""

    def __init__(self, names: list[str]) -> None:
        """Raises `pytest.UsageError` for a scope that cannot be found."""
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())
        try:
            self.scopes = [find_scope(name) for name in dict.fromkeys(names)]
        except ScopeNotFound as error:
            raise pytest.UsageError(f"--tune-gate: {error}") from None

    def pytest_report_header(self) -> list[str]:
        """Says what is gated, and of which grids not all rows are."""
        lines = [f"tune gate: {', '.join(scope.name for scope in self.scopes)}"]
        specs = [kernel.spec for scope in self.scopes for kernel in scope.kernels.values()]
        large = [f"{spec.name} ({spec.grid.count()})" for spec in specs if spec.grid.count().rows > MOST_ROWS]
        return lines + ([f"tune gate: a part of the rows of {', '.join(large)}"] if large else [])

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Adds the tests before -k and the like pick among them."""
        items += [item for scope in self.scopes for item in _items(session, scope)]


def _items(session: pytest.Session, scope: Scope) -> Iterator[GateItem]:
    for kernel in scope.kernels.values():
        spec = kernel.spec
        rows = list(spec.grid if spec.grid.count().rows <= MOST_ROWS else spec.grid.corners())
        for element_type in spec.signature.element_types:
            for row in rows:
                symbol = spec.function.symbol(element_type, row.suffix)
                item = GateItem.from_parent(session, name=symbol, nodeid=f"tune-gate/{scope.name}::{symbol}")
                item.kernel, item.element_type, item.row = kernel, element_type, row
                yield item


@lru_cache(maxsize=1)
def _problems(kernel: KernelMethods, element_type: ElementType) -> list[Problem]:
    """The problems of a kernel's gate, made once for all of its variants, which come one after the other."""
    return list(problems(kernel.spec, element_type, tile_edges(kernel.spec.grid.corners())))


class GateItem(pytest.Item):
    """The test of one variant."""

    kernel: KernelMethods
    element_type: ElementType
    row: Row

    def runtest(self) -> None:
        """Skips a variant that this box or the template does without. Raises `WrongVariant` for one that is wrong."""
        spec, tried = self.kernel.spec, _problems(self.kernel, self.element_type)

        def examine(announce: Callable[[str, str], None]) -> Outcome:
            variants, codes = Variants(spec, self.element_type), Codes(spec, self.element_type)
            return qualify(spec, self.element_type, self.row, variants, lambda: tried, codes, announce)

        outcome = in_child(examine) if hasattr(os, "fork") else examine(lambda stage, label: None)
        if outcome.state in SKIPPED:
            pytest.skip(f"{self.name} is {outcome.state}: {outcome.reason}")
        if outcome.state != PASSED:
            raise WrongVariant(f"{self.name} is {outcome.state}: {outcome.reason}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *args: Any, **kwargs: Any) -> Any:
        """The gate's words alone; a traceback for what is no variant's fault."""
        if isinstance(excinfo.value, WrongVariant):
            return str(excinfo.value)
        return super().repr_failure(excinfo, *args, **kwargs)

    def reportinfo(self) -> tuple[str, None, str]:
        """What stands in front of a failure."""
        return f"tune-gate/{self.kernel.spec.scope}", None, self.name


class Step(msgspec.Struct, frozen=True, tag=True):
    """What the child is about to do."""

    stage: str
    label: str


class End(msgspec.Struct, frozen=True, tag=True):
    """What the child found."""

    outcome: Outcome


def in_child(examine: Callable[[Callable[[str, str], None]], Outcome], silent_s: float = SILENT_S) -> Outcome:
    """What `examine` returns in a child process; a crash, and a step longer than `silent_s`, are outcomes as well."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _run_and_exit(examine, writing)
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        said, silent = _listen(pipe.fileno(), silent_s)
    if silent:
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    last = said[-1] if said else Step("start", "")
    if isinstance(last, End):
        return last.outcome
    where = f"{last.stage}: {last.label}" if last.label else last.stage
    if silent:
        return Outcome("timed out", f"{where}: nothing for {silent_s:g} s")
    return Outcome("crashed", f"{where}: {signal.Signals(-code).name if code < 0 else f'exit code {code}'}")


def _run_and_exit(examine: Callable[[Callable[[str, str], None]], Outcome], writing: int) -> None:
    def say(message: Step | End) -> None:
        os.write(writing, msgspec.json.encode(message) + b"\n")

    try:
        say(End(examine(lambda stage, label: say(Step(stage, label)))))
    finally:
        os._exit(1)


def _listen(pipe: int, silent_s: float) -> tuple[list[Step | End], bool]:
    """The last word of a child, and whether it was silent for too long."""
    decoder, rest, last = msgspec.json.Decoder(Step | End), b"", b""
    while select.select([pipe], [], [], silent_s)[0]:
        data = os.read(pipe, 1 << 16)
        if not data:
            return ([decoder.decode(last)] if last else []), False
        *whole, rest = (rest + data).split(b"\n")
        last = whole[-1] if whole else last
    return ([decoder.decode(last)] if last else []), True
