"""The pool's code in this process: compiled once into the object cache, linked once, never taken away."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from tunegen import log
from tunegen.box import this_box
from tunegen.digest import sha256
from tunegen.errors import CompileError
from tunegen.executor.body_ir import BODY_IR, SYMBOL
from tunegen.executor.pool_ir import ARCHITECTURES, SYMBOLS, pool_ir
from tunegen.making.compile import link
from tunegen.making.make import entry_object, host_target

_Call = Callable[..., int]


class Library(NamedTuple):
    """The functions of the pool's module. `parallel_for` is an address, for the first word of a pool."""

    parallel_for: int
    call: _Call
    """`parallel_for` for Python: (pool, body, context, size, grain, participants, label) -> admitted participants."""
    start: _Call
    """Starts all workers of a pool; returns how many there are, -1 inside a region."""
    close: _Call
    """Ends the workers of a pool and waits for their end; -1, with nothing done, inside a region of this pool."""
    collect: _Call
    """(pool, collector or 0): sets the collector; returns how many regions may still use the one before."""


@cache
def library() -> Library | None:
    """The pool's code; None, with a line in the log, where there is no Linux, no compiler or no known architecture."""
    architecture = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    if sys.platform != "linux" or architecture not in ARCHITECTURES:
        log.info("no threads: the executor knows Linux on %s", " and ".join(ARCHITECTURES))
        return None
    try:
        found = _linked(lambda: pool_ir(architecture), SYMBOLS, pool_ir(architecture))
    except CompileError as error:
        log.warning("no threads: %s", error)
        return None
    parallel_for, setup, start, close, collect = (found[symbol] for symbol in SYMBOLS)
    set_up = _function(setup, 1)
    if set_up(processors()):
        log.warning("no threads: the process has no thread-specific key left")
        return None
    os.register_at_fork(after_in_child=lambda: set_up(processors()))
    return Library(parallel_for, _function(parallel_for, 7), _function(start, 1), _function(close, 1),
                   _function(collect, 2))  # fmt: skip


def processors() -> int:
    """How many processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def python_body() -> int:
    """Address of the body that calls Python. Raises `CompileError`."""
    return _linked(lambda: BODY_IR, (SYMBOL,), BODY_IR)[SYMBOL]


def _linked(write_ir: Callable[[], str], symbols: tuple[str, ...], text: str) -> dict[str, int]:
    target = host_target(this_box())
    image = entry_object(f"executor {sha256(text.encode()).hexdigest()}", write_ir, target)
    return link(image, symbols, target, process_symbols=True)


def _function(address: int, words: int) -> _Call:
    """A native function of so many 64-bit words. A call gives the GIL away."""
    return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * words)(address)
