"""Parallel events: what the regions of an executor cost, region by region."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Literal, Protocol

import msgspec

from tunegen.executor import layout
from tunegen.executor.cpu import CpuExecutor
from tunegen.executor.labels import label_name
from tunegen.executor.layout import COUNTERS, CollectorWords, Count, RecordWords

Status = Literal["ok", "unsupported", "permission_denied", "multiplexed"]
Alone = Literal["", "one_block", "one_participant", "nested", "busy"]

_ALONE: tuple[Alone, ...] = ("", "one_block", "one_participant", "nested", "busy")
"""By their numbers in `layout`."""


class Source(Protocol):
    """Where a counter comes from."""

    def open(self, thread_id: int) -> int:
        """A file descriptor of which each read of 24 bytes gives the counter of a thread, by the kernel's number of it.

        That is three 64-bit words: value, time enabled and time running in ns. Raises `OSError`. Who opens, closes.
        """
        ...


class Counter(msgspec.Struct, frozen=True):
    """A hardware counter of one region, summed over its participants.

    `value` is None unless there is one. A counter that was `multiplexed`, and so counted for a part of the time, is
    scaled up to all of it; it is None when it never counted. `unsupported` is also what a region says that another
    thread called than the one that entered the collector, or whose readings failed.
    """

    status: Status
    value: int | None = None


class Event(msgspec.Struct, frozen=True):
    """One region of an executor.

    `iterations` is its size in items, `grain` and `requested` what the caller asked for (0: equal shares, no limit),
    `block` the items of a block. `admitted` participants might take part, `observed` ones took a block at least.
    `alone` says why a region ran on its caller alone. `wall_ns` is the region from call to return; `cpu_ns` the
    processor time of all participants in their blocks, waiting for each other not included.
    """

    label: str
    iterations: int
    grain: int
    block: int
    requested: int
    admitted: int
    observed: int
    alone: Alone
    wall_ns: int
    cpu_ns: int
    counters: dict[str, Counter]

    @property
    def utilisation(self) -> float:
        """Processor time over the time that the admitted participants had: 1 when all of them worked all the time."""
        return self.cpu_ns / (self.wall_ns * self.admitted) if self.wall_ns else 0.0


class Collector:
    """Records the regions of an executor while it is entered: `with Collector(executor) as collector: ...`.

    There is room for `capacity` regions; what comes later is counted in `overflow` and lost. `counters` names up to
    four sources of hardware counters. Raises `ValueError` for no room or more counters, and when it is entered,
    `RuntimeError` if the executor has a collector already, or inside a region.
    """

    def __init__(
        self, executor: CpuExecutor, capacity: int = 1024, counters: Mapping[str, Source] | None = None
    ) -> None:
        if capacity < 1:
            raise ValueError(f"Collector: capacity is 1 or more, not {capacity}")
        if counters is not None and len(counters) > COUNTERS:
            raise ValueError(f"Collector: at most {COUNTERS} counters, not {len(counters)}")
        self.executor = executor
        self.capacity = capacity
        self._sources = dict(counters or {})
        self._states: dict[str, Status] = dict.fromkeys(self._sources, "unsupported")
        self._head = CollectorWords()
        self._records: ctypes.Array[RecordWords] = (RecordWords * 0)()

    def __enter__(self) -> Collector:
        native = self.executor.native
        if native is None:
            return self
        if self.executor.collecting:
            raise RuntimeError("this executor has a collector already")
        if self._sources and native.start(self.executor.address) < 0:
            raise RuntimeError("a Collector with counters cannot be entered inside a region")
        self._records = (RecordWords * self.capacity)()
        files = self._open()
        self._head = CollectorWords(
            self.capacity, 0, threading.get_native_id(), len(files) // COUNTERS, len(self._sources),
            layout.address(files), layout.address(self._records),
        )  # fmt: skip
        self.executor.collect(self._head, (files, self._records), [file for file in files if file >= 0])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.executor.collect(None)

    @property
    def overflow(self) -> int:
        """How many regions found no room."""
        return max(0, int(self._head.taken) - self.capacity)

    def events(self) -> list[Event]:
        """The regions that are over, in the order in which they ended."""
        taken = min(self._head.taken, self.capacity)
        return [self._event(record) for record in self._records[:taken] if record.done]

    def _open(self) -> ctypes.Array[ctypes.c_int32]:
        """The files of all participants: those of the calling thread first. A source that fails once is not read."""
        threads = [threading.get_native_id(), *self._workers()] if self._sources else []
        files = (ctypes.c_int32 * (len(threads) * COUNTERS))(*[-1] * (len(threads) * COUNTERS))
        for column, (name, source) in enumerate(self._sources.items()):
            places = range(column, len(files), COUNTERS)
            try:
                for place, thread in zip(places, threads, strict=True):
                    files[place] = source.open(thread)
                self._states[name] = "ok"
            except OSError as error:
                denied = error.errno in (errno.EACCES, errno.EPERM)
                self._states[name] = "permission_denied" if denied else "unsupported"
                for place in places:
                    if files[place] >= 0:
                        os.close(files[place])
                    files[place] = -1
        return files

    def _workers(self) -> list[int]:
        """The kernel's numbers of the workers. A worker that has just been started may not have told its own yet."""
        found = []
        for mailbox in self.executor.mailboxes():
            while not mailbox.thread_id:
                os.sched_yield()
            found.append(int(mailbox.thread_id))
        return found

    def _event(self, record: RecordWords) -> Event:
        counts = zip(self._sources, record.used.counts, strict=False)
        return Event(
            label_name(record.label), record.size, record.grain, record.block, record.requested, record.admitted,
            record.observed, _ALONE[record.alone], record.wall_ns, record.used.cpu_ns,
            {name: self._counter(name, count, record.observed) for name, count in counts},
        )  # fmt: skip

    def _counter(self, name: str, count: Count, observed: int) -> Counter:
        if self._states[name] != "ok":
            return Counter(self._states[name])
        if count.readings != 2 * observed:
            return Counter("unsupported")
        if count.running_ns < count.enabled_ns:
            scaled = round(count.value * count.enabled_ns / count.running_ns) if count.running_ns > 0 else None
            return Counter("multiplexed", scaled)
        return Counter("ok", count.value)
