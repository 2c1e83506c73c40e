"""`CpuExecutor`: a pool of threads for regions of native code, and of Python callables."""

from __future__ import annotations

import ctypes
import math
import os
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from tunegen.executor import layout
from tunegen.executor.labels import label_id
from tunegen.executor.layout import CollectorWords, Mailbox, PoolWords
from tunegen.executor.native import Library, library, processors, python_body

SPIN_US = 200.0
"""How long an idle worker looks for the next region before it sleeps: longer than the serial work between two kernels
of a program, shorter than what a scheduler would notice. A worker that sleeps costs its caller a system call."""

Body = Callable[[int, int, int], object]
"""(begin, end, participant): the items of one share, and who runs it. Participant 0 is the calling thread."""

_live: weakref.WeakSet[CpuExecutor] = weakref.WeakSet()


class CpuExecutor:
    """Runs a region's items on up to `threads` threads, the calling one included.

    A region is cut into blocks of `grain` items, which its participants take one after the other. It runs on its
    caller alone, block by block, when it has one block or may have one participant, inside another region of whatever
    executor, and while another thread's region has the pool. Workers start with the first region that needs them. They
    look for the next one for `spin_us` microseconds and then sleep; when left out, that is `SPIN_US`, and nothing in a
    pool of more threads than processors. Where there is no Linux or no compiler, an executor has one participant and
    `address` 0.

    Native code finds at `address` the pool: the address of `i64 parallel_for(ptr pool, ptr body, ptr context, i64 size,
    i64 grain, i64 participants, i64 label)` in the first word, the most participants in the second. Body is
    `void (ptr context, i64 begin, i64 end, i64 participant)`. The pool lives as long as the executor.

    Raises `TypeError` or `ValueError` for a thread count that is no whole number from 1 up, or a negative spin.
    """

    def __init__(self, threads: int, spin_us: float | None = None) -> None:
        if isinstance(threads, bool) or not isinstance(threads, int):
            raise TypeError(f"CpuExecutor: threads is a whole number, not {threads!r}")
        if threads < 1:
            raise ValueError(f"CpuExecutor: threads is 1 or more, not {threads}")
        if spin_us is None:
            spin_us = SPIN_US if threads <= processors() else 0.0
        if not 0 <= spin_us < math.inf:
            raise ValueError(f"CpuExecutor: spin_us is 0 or more microseconds, not {spin_us}")
        self._library = library()
        self._most = threads if self._library is not None else 1
        self._words, memory = layout.aligned(PoolWords, (self._most - 1) * ctypes.sizeof(Mailbox))
        self._words.maximum = self._most
        self._words.spin_ns = round(spin_us * 1000)
        self._collected: list[tuple[object, Sequence[int]]] = []
        if self._library is not None:
            self._words.parallel_for = self._library.parallel_for
            weakref.finalize(self, _close, self._library, self.address, memory)
            _live.add(self)

    def __repr__(self) -> str:
        return f"CpuExecutor({self.threads})"

    @property
    def address(self) -> int:
        """Address of the pool; 0 where there is none."""
        return layout.address(self._words) if self._library is not None else 0

    @property
    def threads(self) -> int:
        """The most participants of a region: 1 when closed, and fewer than asked for if the system has no more."""
        return int(self._words.maximum)

    @property
    def native(self) -> Library | None:
        """The code behind the pool; None where there is none."""
        return self._library

    @property
    def collecting(self) -> bool:
        """Whether a collector is set."""
        return bool(self._words.collector)

    def collect(self, head: CollectorWords | None, kept: object = None, files: Sequence[int] = ()) -> None:
        """Sets the collector that regions write to, or with None takes it away.

        `kept` is the memory and `files` are the file descriptors that it needs. They stay until no region can be using
        them: one that began under a collector goes on after it was taken away.
        """
        if self._library is None:
            return
        users = self._library.collect(self.address, layout.address(head) if head is not None else 0)
        if users <= 0:
            for _, unused in self._collected:
                for file in unused:
                    os.close(file)
            self._collected.clear()
        if head is not None:
            self._collected.append(((head, kept), files))

    def mailboxes(self) -> list[Mailbox]:
        """The mailboxes of the workers that were started."""
        start, size = ctypes.addressof(self._words) + ctypes.sizeof(PoolWords), ctypes.sizeof(Mailbox)
        return [Mailbox.from_address(start + i * size) for i in range(self._words.started)]

    def parallel_for(self, body: Body, size: int, grain: int = 0, participants: int = 0, label: str = "") -> int:
        """Calls `body(begin, end, participant)` for blocks of `grain` items until all of 0 to `size` are done.

        Grain 0 means equal shares; participants 0 means no limit but the pool's. Returns how many participants were
        admitted, 0 for no items. An exception of a block keeps no other block from being done; the first one is raised
        in the end. Raises `TypeError` or `ValueError` for numbers that are none or are negative.
        """
        for name, value in (("size", size), ("grain", grain), ("participants", participants)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"parallel_for: {name} is a whole number, not {value!r}")
            if not 0 <= value < 1 << 63:
                raise ValueError(f"parallel_for: {name} is 0 or more and below 2**63, not {value}")
        if self._library is None:
            return _serial(body, size, grain)
        errors: list[BaseException] = []
        context = (ctypes.py_object * 2)(ctypes.py_object(body), ctypes.py_object(errors))
        admitted = self._library.call(
            self.address, python_body(), layout.address(context), size, grain, participants, label_id(label)
        )
        try:
            if errors:
                raise errors[0]
        finally:
            errors.clear()
        return admitted

    def close(self) -> None:
        """Ends the workers and waits until they have ended. From then on every region runs on its caller alone.

        Raises `RuntimeError` inside a region of this executor.
        """
        if self._library is None:
            return
        if self._library.close(self.address):
            raise RuntimeError("CpuExecutor.close() inside a region of the same executor")

    def __enter__(self) -> CpuExecutor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _forked(self) -> None:
        """In the child of a fork: no worker is there, nobody else is in a region, and no collector is read.

        A worker that forked inside its body ends when it comes back, and a caller waits for nobody.
        """
        for mailbox in self.mailboxes():
            mailbox.state = layout.END
        closed = self._words.maximum == 1
        self._words.started = self._words.recording = self._words.lock = 0
        self._words.collector = None
        self._words.maximum = 1 if closed else self._most


def _serial(body: Body, size: int, grain: int) -> int:
    """The region where there is no native code."""
    errors = []
    for begin in range(0, size, grain or size or 1):
        try:
            body(begin, min(begin + (grain or size), size), 0)
        except BaseException as error:
            errors.append(error)
    try:
        if errors:
            raise errors[0]
    finally:
        errors.clear()
    return min(size, 1)


def _close(library: Library, address: int, memory: Any) -> None:
    """Ends a pool whose executor is gone, or whose process ends; its memory is kept until then."""
    library.close(address)


def _forked_child() -> None:
    for executor in list(_live):
        executor._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked_child)
