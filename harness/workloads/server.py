"""Threads that serve requests, and what they see: how long each took, and how its answers compare."""

from __future__ import annotations

import threading
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tunegen.harness.latency import Requests, merged
from tunegen.harness.measure import Clock, clock
from tunegen.harness.workloads.requests import Answer, Calls


class Server:
    """Threads that serve requests one after another, and keep when each began and how long it took."""

    def __init__(self, made: Sequence[Answer], threads: int, clock: Clock = clock) -> None:
        self.clock = clock
        self.stop = threading.Event()
        self.failed = 0
        self.seen: Counter[str] = Counter()
        self.words: list[str] = []
        self._lock = threading.Lock()
        self._logs = [(array("q"), array("q")) for _ in range(threads)]
        self._threads = [
            threading.Thread(target=self._work, args=(Calls(made), log), daemon=True) for log in self._logs
        ]  # fmt: skip

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serves inside the block."""
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self.stop.set()
            for thread in self._threads:
                thread.join()

    @property
    def requests(self) -> Requests:
        """What was served."""
        return merged([starts for starts, _ in self._logs], [took for _, took in self._logs])

    def _work(self, calls: Calls, log: tuple[array[int], array[int]]) -> None:
        while not self.stop.is_set():
            self.serve(calls, log)

    def serve(self, calls: Calls, log: tuple[array[int], array[int]]) -> None:
        """Serves one request, and looks at its answers when its time is taken."""
        calls.clear()
        start = self.clock()
        try:
            calls.serve()
        except Exception as error:
            with self._lock:
                self.failed += 1
                self._say(f"a request failed: {type(error).__name__}: {error}")
            return
        took = self.clock() - start
        log[0].append(start)
        log[1].append(took)
        found = list(calls.look())
        with self._lock:
            self.seen.update(seen for _, seen in found)
            for name in (name for name, seen in found if seen == "outside"):
                self._say(f"an answer of {name} is outside its gate")

    def _say(self, word: str) -> None:
        if word not in self.words:
            self.words.append(word)
