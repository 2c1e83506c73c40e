"""Hardware counters of Linux, as sources for a collector."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys

import msgspec

from tunegen.executor.events import Source

_HARDWARE = 0
_EVENTS = {"cycles": 0, "instructions": 1, "cache_misses": 3, "branch_misses": 5}
"""Of `perf_hw_id` in linux/perf_event.h."""
_CALLS = {"x86_64": 298, "aarch64": 241}
_TIMES = 1 | 2
"""PERF_FORMAT_TOTAL_TIME_ENABLED and _RUNNING: each read gives value, time enabled, time running."""
_USER_ONLY = 1 << 5 | 1 << 6
"""exclude_kernel and exclude_hv: what an ordinary user may count."""
_CLOSE_ON_EXEC = 8


class _Attributes(ctypes.Structure):
    """`struct perf_event_attr`, in its first published size of 64 bytes."""

    _fields_ = [
        ("type", ctypes.c_uint32), ("size", ctypes.c_uint32), ("config", ctypes.c_uint64),
        ("sample_period", ctypes.c_uint64), ("sample_type", ctypes.c_uint64), ("read_format", ctypes.c_uint64),
        ("flags", ctypes.c_uint64), ("wakeup", ctypes.c_uint32), ("breakpoint_type", ctypes.c_uint32),
        ("config1", ctypes.c_uint64),
    ]  # fmt: skip


class PerfEvent(msgspec.Struct, frozen=True):
    """A counter of the kernel's: its type and number in linux/perf_event.h."""

    type: int
    config: int

    def open(self, thread_id: int) -> int:
        """The counter of one thread in user space. Raises `OSError`."""
        call = _CALLS.get(platform.machine().lower()) if sys.platform == "linux" else None
        if call is None:
            raise OSError(errno.ENOSYS, "no perf events on this system")
        attributes = _Attributes(self.type, ctypes.sizeof(_Attributes), self.config, 0, 0, _TIMES, _USER_ONLY)
        words = (call, ctypes.addressof(attributes), thread_id, -1, -1, _CLOSE_ON_EXEC)
        syscall = ctypes.CDLL(None, use_errno=True).syscall
        syscall.restype = ctypes.c_long
        file = int(syscall(*map(ctypes.c_long, words)))
        if file < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return file


def hardware() -> dict[str, Source]:
    """Cycles, instructions, cache misses and branch misses. Opening them tells which ones there are."""
    return {name: PerfEvent(_HARDWARE, number) for name, number in _EVENTS.items()}
