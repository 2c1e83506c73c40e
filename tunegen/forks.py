"""The lock that a fork waits for, so that the child never finds work half done by a thread that it does not have."""

from __future__ import annotations

import os
import sys
import threading

LOCK = threading.RLock()
"""Whoever chooses, renders, compiles, links or installs code holds this, and so does a fork.

There is one for all of that: a fork that had to take several could take them in another order than a thread at work.
LLVM does one thing at a time anyway. A call that is stamped takes no lock. Nobody who holds it waits for a thread.
"""
_ordered: list[str] = []


def _safe() -> None:
    """Makes forks of this process wait for the lock, before they take those of modules that were imported earlier.

    A thread that forks while it holds the lock goes on, as does its child.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release)


def go_before_logging() -> None:
    """Makes forks take this lock before that of `logging`, as a thread does that logs at work.

    What is registered last is done first, so this is called when `logging` may have been imported meanwhile.
    """
    if not _ordered and "logging" in sys.modules:
        _ordered.append("logging")
        _safe()


_safe()
