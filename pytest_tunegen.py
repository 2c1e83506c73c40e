"""A pytest plugin: `pytest --tune-gate SCOPE` has a test for each kernel, element type and variant of a scope.

Without the option it imports nothing, not even the package `tunegen`, which is why it is a module beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option."""
    text = "gate every variant of a scope (its name, or a module that declares it); may be given several times"
    parser.getgroup("tunegen").addoption("--tune-gate", action="append", default=[], metavar="SCOPE", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Makes the tests, when they are asked for."""
    if names := config.getoption("tune_gate"):
        from tunegen.testing import Rail

        config.pluginmanager.register(Rail(names), "tunegen-rail")
