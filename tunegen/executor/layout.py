"""The memory that the native pool shares with Python. The IR writes the same structures out as `TYPES`."""

from __future__ import annotations

import ctypes
from typing import Any, TypeVar

COUNTERS = 4
"""The most hardware counters that a collector reads."""

LINE_BYTES = 128
"""What threads that write by themselves keep apart: a cache line, and the one that is fetched with it."""

# states of a mailbox
IDLE, ASLEEP, POSTED, RUNNING, AWAITED, END = range(6)

# why a region ran on its caller alone
SPLIT, ONE_BLOCK, ONE_PARTICIPANT, NESTED, BUSY = range(5)

TYPES = """
%count = type { i64, i64, i64, i64 }
%slot = type { i64, [4 x %count] }
%record = type { i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, %slot, [5 x i64] }
%collector = type { i64, i64, i64, i64, i64, ptr, ptr }
%mailbox = type { i32, i32, ptr, ptr, i64, i64, i64, ptr, i64, i64, ptr, i64, i64, [4 x i64], %slot, [15 x i64] }
%pool = type { ptr, i64, ptr, i64, i64, i64, [10 x i64], i32, [31 x i32], i64, [15 x i64], [0 x %mailbox] }
"""


class Count(ctypes.Structure):
    """A hardware counter, summed: what the kernel read, times in ns, and how many readings went into it."""

    _fields_ = [("value", ctypes.c_int64), ("enabled_ns", ctypes.c_int64), ("running_ns", ctypes.c_int64),
                ("readings", ctypes.c_int64)]  # fmt: skip


class Slot(ctypes.Structure):
    """What one participant, or all of them, used in a region."""

    _fields_ = [("cpu_ns", ctypes.c_int64), ("counts", Count * COUNTERS)]


class RecordWords(ctypes.Structure):
    """One region. `done` is set when all else is written."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("done", "label", "size", "grain", "block", "requested", "admitted",
                                              "observed", "alone", "wall_ns")),
        ("used", Slot),
        ("spare", ctypes.c_int64 * 5),
    ]  # fmt: skip


class CollectorWords(ctypes.Structure):
    """The head of a collector. `taken` counts all regions, those that found no room included.

    `files` are the file descriptors, -1 for none: a row of `COUNTERS` per participant. The first row belongs to the
    thread `caller`, by the kernel's number of it.
    """

    _fields_ = [("capacity", ctypes.c_int64), ("taken", ctypes.c_int64), ("caller", ctypes.c_int64),
                ("rows", ctypes.c_int64), ("counters", ctypes.c_int64), ("files", ctypes.c_void_p),
                ("records", ctypes.c_void_p)]  # fmt: skip


class Mailbox(ctypes.Structure):
    """What a worker is told: the state first, then the region and how many there were; and what the worker used."""

    _fields_ = [
        ("state", ctypes.c_int32), ("more", ctypes.c_int32), ("body", ctypes.c_void_p), ("context", ctypes.c_void_p),
        ("size", ctypes.c_int64), ("block", ctypes.c_int64), ("blocks", ctypes.c_int64),
        ("collector", ctypes.c_void_p), ("posts", ctypes.c_int64),
        ("thread", ctypes.c_int64), ("pool", ctypes.c_void_p), ("participant", ctypes.c_int64),
        ("thread_id", ctypes.c_int64), ("spare2", ctypes.c_int64 * 4),
        ("used", Slot), ("spare3", ctypes.c_int64 * 15),
    ]  # fmt: skip


class PoolWords(ctypes.Structure):
    """The head of a pool; its mailboxes follow. The first two words are what native entries read."""

    _fields_ = [
        ("parallel_for", ctypes.c_void_p), ("maximum", ctypes.c_int64), ("collector", ctypes.c_void_p),
        ("spin_ns", ctypes.c_int64), ("recording", ctypes.c_int64), ("started", ctypes.c_int64),
        ("spare", ctypes.c_int64 * 10),
        ("lock", ctypes.c_int32), ("spare2", ctypes.c_int32 * 31),
        ("cursor", ctypes.c_int64), ("spare3", ctypes.c_int64 * 15),
    ]  # fmt: skip


Words = TypeVar("Words", bound=ctypes.Structure)


def aligned(kind: type[Words], more_bytes: int = 0) -> tuple[Words, Any]:
    """A zeroed structure on a line of its own with `more_bytes` behind it, and the buffer that keeps it."""
    buffer = ctypes.create_string_buffer(ctypes.sizeof(kind) + more_bytes + LINE_BYTES)
    return kind.from_buffer(buffer, -ctypes.addressof(buffer) % LINE_BYTES), buffer


def address(words: ctypes.Structure | Any, offset: int = 0) -> int:
    """Where a structure lies, `offset` bytes on."""
    return ctypes.addressof(words) + offset
