"""The test rail of a library: each variant of each kernel goes through the gate, as it does before it is tuned.

A variant runs in a child process, so that one that crashes, hangs or strays beyond its operands is a failed test.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tunegen.errors import ScopeNotFound
from tunegen.grid import Row
from tunegen.harness.recheck import recheck, shared_problems
from tunegen.public.kernel import KernelMethods
from tunegen.public.scope import Scope, find_scope
from tunegen.signature import ElementType

MOST_ROWS = 1024
"""Of a larger grid, rows that take each value of each axis are tested."""
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
        """Adds the tests before -k and the like pick among them, and has them counted as collected."""
        made = [item for scope in self.scopes for item in _items(session, scope)]
        session.ihook.pytest_collectreport(report=pytest.CollectReport("tune-gate", "passed", None, list(made)))
        items += made


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


class GateItem(pytest.Item):
    """The test of one variant."""

    kernel: KernelMethods
    element_type: ElementType
    row: Row

    def runtest(self) -> None:
        """Skips a variant that this box or the template does without. Raises `WrongVariant` for one that is wrong."""
        tried = shared_problems(self.kernel, self.element_type)
        outcome = recheck(self.kernel.spec, self.element_type, self.row, tried)
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
