"""What a worker may use, so that a greedy candidate costs itself and not the box."""

from __future__ import annotations

import os
import resource

LEAST_BYTES = 1 << 30
FILE_BYTES = 1 << 30
"""Largest file that a worker may write: a candidate that prints without end fills no disk."""


def default_memory_bytes() -> int:
    """Half of the memory of the box."""
    return max(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2, LEAST_BYTES)


def limit(memory_bytes: int = 0) -> None:
    """Limits this process for good: its data (0: half of the box's memory), the files it writes, and no core dump."""
    memory_bytes = memory_bytes or default_memory_bytes()
    # guard pages and reserved address space cost nothing, so address space itself has more room than data
    for kind, bytes_ in (
        (resource.RLIMIT_DATA, memory_bytes),
        (resource.RLIMIT_AS, memory_bytes + default_memory_bytes() + (8 << 30)),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        if hard != resource.RLIM_INFINITY:
            bytes_ = min(bytes_, hard)
        resource.setrlimit(kind, (bytes_, hard))
