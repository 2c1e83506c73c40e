"""Hardware counters around a call on the calling thread, with the statuses of parallel events."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable, Mapping

from tunegen.executor.events import Counter, Source

_WORDS = struct.Struct("3q")
"""What a read of a counter gives: value, time enabled and time running."""


def counted(call: Callable[[], object], sources: Mapping[str, Source], thread_id: int) -> dict[str, Counter]:
    """Runs `call` once, and counts what the thread does meanwhile. Never raises for a counter that there is none of."""
    files: dict[str, int] = {}
    found: dict[str, Counter] = {}
    for name, source in sources.items():
        try:
            files[name] = source.open(thread_id)
        except OSError as error:
            denied = error.errno in (errno.EACCES, errno.EPERM)
            found[name] = Counter("permission_denied" if denied else "unsupported")
    try:
        before = {name: _read(file) for name, file in files.items()}
        call()
        after = {name: _read(file) for name, file in files.items()}
    finally:
        for file in files.values():
            os.close(file)
    found |= {name: _between(before[name], after[name]) for name in files}
    return {name: found[name] for name in sources}


def _read(file: int) -> tuple[int, int, int] | None:
    try:
        data = os.read(file, _WORDS.size)
    except OSError:
        return None
    return _WORDS.unpack(data) if len(data) == _WORDS.size else None


def _between(before: tuple[int, int, int] | None, after: tuple[int, int, int] | None) -> Counter:
    if before is None or after is None:
        return Counter("unsupported")
    value, enabled, running = (b - a for a, b in zip(before, after, strict=True))
    if running < enabled:
        return Counter("multiplexed", round(value * enabled / running) if running > 0 else None)
    return Counter("ok", value)
