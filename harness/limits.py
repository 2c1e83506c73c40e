"""What a worker may use, so that a greedy candidate costs itself and not the box."""

from __future__ import annotations

import os
import resource
import signal
import sys

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


def listen_to_signals() -> None:
    """Takes back what a program handed down: signals to end that it blocked, and word of children that it ignored."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def is_gone(process: int) -> bool:
    """Whether there is no process of this number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def end_with_parent(parent: int, signum: int = signal.SIGKILL) -> None:
    """On Linux this process gets `signum` when its parent, the process with this number, ends, however that ends.

    What asks for it in Python while it is at work may be late: SIGKILL ends even code that never returns.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signum)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os.kill(os.getpid(), signum)
