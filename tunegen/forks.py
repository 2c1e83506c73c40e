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
_taken: list[int] = []
"""The thread that forks, as often as it has taken the lock for that. Changed by the one that holds the lock."""


def _safe() -> None:
    """Makes forks of this process wait for the lock, before they take those of modules that were imported earlier.

    A thread that forks while it holds the lock goes on, as does its child.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_take, after_in_parent=_give, after_in_child=_give)


def _take() -> None:
    LOCK.acquire()
    _taken.append(threading.get_ident())


def _give() -> None:
    """Releases what this fork took: none for a hook that another thread registered while this fork was waiting."""
    if threading.get_ident() in _taken:
        _taken.remove(threading.get_ident())
        LOCK.release()


def go_before(module: str) -> None:
    """Makes forks take this lock before those of `module`, as a thread does that uses it at work: logs, or locks files.

    What is registered last is done first, so this is called when the module may have been imported meanwhile.
    """
    if module not in _ordered and module in sys.modules:
        _ordered.append(module)
        _safe()


_safe()
