"""One thread for everybody: a program that races against numpy or torch runs with their thread pools at one, and with
what is stamped here for all threads on one of them.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterable, Sequence

from tunegen import knobs
from tunegen.harness.spawn import SINGLE_THREAD
from tunegen.public.kernel import KernelMethods

log = logging.getLogger("tunegen")


def run_again(module: str, arguments: Sequence[str]) -> int | None:
    """The exit code of `python -m module`, run in a child with one thread; None when this process has one already.

    The pools read their variables when they are loaded, and numpy is, by the time a program of ours looks at its own.
    """
    environment = knobs.child_environment()
    if SINGLE_THREAD.items() <= environment.items():
        if environment.get("OPENBLAS_CORETYPE"):
            log.warning("OPENBLAS_CORETYPE=%s: numpy's products may run slower code than this CPU could; unset it",
                        environment["OPENBLAS_CORETYPE"])  # fmt: skip
        return None
    try:
        return subprocess.run(
            [sys.executable, "-m", module, *arguments], env={**environment, **SINGLE_THREAD}, check=False
        ).returncode
    except KeyboardInterrupt:
        return 130


def keep_to_one(kernels: Iterable[KernelMethods]) -> None:
    """Stamps kernels that are not stamped, and keeps all their calls on the caller's thread until they are stamped
    anew. A thread count of one in the environment would be another box, with choices of its own.
    """
    for kernel in kernels:
        kernel.ensure_loaded()
        for function in (kernel, *kernel.companions.values()):
            function.run_serially()
