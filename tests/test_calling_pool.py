"""What the tests of splitting share: pools made of Python, which run the shares in any way that is allowed."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

Block = tuple[int, int]
Order = Callable[[list[Block], Callable[[Block, int], None], int], None]
"""Runs all blocks, given how to run one as which participant, and how many participants there are."""

_REGION = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 4
)  # fmt: skip
_BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class Region(NamedTuple):
    """What an entry asked for."""

    size: int
    grain: int
    participants: int
    label: int


class FakePool:
    """A pool that runs the blocks of each region as `order` says, and notes what it was asked for."""

    def __init__(self, participants: int, order: Order) -> None:
        self.regions: list[Region] = []
        self._order = order
        self._function = _REGION(self._region)
        function = ctypes.cast(self._function, ctypes.c_void_p).value
        self._words = (ctypes.c_void_p * 2)(function, participants)

    @property
    def address(self) -> int:
        return ctypes.addressof(self._words)

    def _region(self, pool: int, body: int, context: int, size: int, grain: int, participants: int, label: int) -> int:
        assert pool == self.address
        self.regions.append(Region(size, grain, participants, label))
        run = _BODY(body)
        blocks = [(begin, min(begin + grain, size)) for begin in range(0, size, grain)]
        self._order(blocks, lambda block, who: run(context, *block, who), participants)
        return participants


def in_order(blocks: list[Block], run: Callable[[Block, int], None], participants: int) -> None:
    """All on the caller, as in a pool that is busy."""
    for block in blocks:
        run(block, 0)


def backwards(blocks: list[Block], run: Callable[[Block, int], None], participants: int) -> None:
    """The last one first, each time by another participant."""
    for index, block in enumerate(reversed(blocks)):
        run(block, index % participants)


def interleaved(blocks: list[Block], run: Callable[[Block, int], None], participants: int) -> None:
    """Every other one, then the rest."""
    for index, block in enumerate([*blocks[1::2], *blocks[::2]]):
        run(block, participants - 1 - index % participants)


def in_threads(blocks: list[Block], run: Callable[[Block, int], None], participants: int) -> None:
    """As a real pool does: each participant is a thread and takes the next block when it has done one."""
    left, lock = list(blocks), threading.Lock()

    def work(who: int) -> None:
        while True:
            with lock:
                if not left:
                    return
                block = left.pop(0)
            run(block, who)

    threads = [threading.Thread(target=work, args=(who,)) for who in range(1, participants)]
    for thread in threads:
        thread.start()
    work(0)
    for thread in threads:
        thread.join()


ORDERS: Sequence[Order] = (in_order, backwards, interleaved, in_threads)


def test_a_pool_runs_every_block_once() -> None:
    for order in ORDERS:
        seen: list[tuple[Any, ...]] = []
        order([(0, 4), (4, 8), (8, 9)], lambda block, who, seen=seen: seen.append((*block, who)), 2)  # type: ignore[misc]
        assert sorted(np.array(seen)[:, 0]) == [0, 4, 8]
        assert all(who in (0, 1) for *_, who in seen)
