"""What tests share: a home of their own, and small libraries that stand for somebody else's package."""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from toys import HEADER, TOY, write_library

from tunegen import box, knobs
from tunegen.choosing import published
from tunegen.making import cache, make
from tunegen.public import host, policy, request, scope, sources

# no test depends on how busy the box is
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

Libraries = Callable[..., Any]


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test has its own manifests, object cache and environment, and starts as a fresh process would."""
    for name in [name for name in os.environ if name.startswith("TUNE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TUNE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "site"))
    log = logging.getLogger("tunegen")
    handlers, level = list(log.handlers), log.level
    _forget()
    yield
    _forget()
    log.handlers[:] = handlers
    log.setLevel(level)


@pytest.fixture(scope="session")
def cache_of_all(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for objects that belongs to this run of the tests, whatever processes it has."""
    own = tmp_path_factory.getbasetemp()
    return (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "objects"


@pytest.fixture
def shared_objects(own_home: None, cache_of_all: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that another test has made is not made again: for tests of what code does, not of how it is kept."""
    monkeypatch.setenv("TUNE_CACHE", str(cache_of_all))


def _forget() -> None:
    """What a process remembers."""
    for remembered in (knobs.begin, knobs.start_logging, sources.warn_once, policy._warn_once, box._detect):
        remembered.cache_clear()
    cache._cache_in.cache_clear()
    for kept in (knobs._reported, sources._read, sources._nearest, sources._siblings, sources._profiles,
                 sources._applications, sources._pins, make.counters, make._mapped, request._kept, host._marked,
                 policy._declared):  # fmt: skip
        kept.clear()
    published._publications.current = published.Generation()


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Libraries]:
    """Makes and imports packages: `library(body, templates={...})`. No other scope is declared meanwhile."""
    folder = tmp_path / "libraries"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    others = dict(scope._scopes)
    scope._scopes.clear()

    def make_library(body: str = TOY, templates: dict[str, str] | None = None, header: str = HEADER) -> ModuleType:
        name = write_library(folder, body, templates, header)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield make_library
    for name in [name for name in sys.modules if name.startswith("toylib")]:
        del sys.modules[name]
    scope._scopes.clear()
    scope._scopes.update(others)


Child = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def child(tmp_path: Path) -> Child:
    """Runs Python code in a process that finds the libraries of this test: `child(code, *argv, TUNE_MODE=...)`."""

    def run(code: str, *arguments: str, **environment: str) -> Any:
        paths = [str(tmp_path / "libraries"), *([os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else [])]
        return subprocess.run(
            [sys.executable, "-c", dedent(code), *arguments],
            capture_output=True, text=True, timeout=120, cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
        )  # fmt: skip

    return run
