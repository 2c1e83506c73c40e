"""A silent worker hangs, or has no processor: told from what Linux says, and from processes that are made up."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tunegen.harness.spawn import LOOKS, _lines
from tunegen.harness.starving import Seen, hangs, look

SILENCE_S = 0.08
"""Short, and no test depends on it."""


@pytest.mark.parametrize(
    ("state", "ready"), [("R", True), ("T", True), ("S", False), ("D", False), ("Z", False), ("t", False)]
)
def test_a_process_is_read_whatever_its_name_is(tmp_path: Path, state: str, ready: bool) -> None:
    (tmp_path / "7").mkdir()
    ticks = os.sysconf("SC_CLK_TCK")
    rest = f"{state} 1 7 7 0 -1 4194304 100 0 0 0 {3 * ticks} {ticks} 0 0 20 0 1 0 5 0 0"
    (tmp_path / "7" / "stat").write_text(f"7 (a ) R 1 b) {rest}")
    assert look(7, tmp_path) == Seen(ready, 4.0)


@pytest.mark.parametrize("text", ["", "7 (a) R", "7 (a) R 1 7 7 0 -1 4194304 100 0 0 0 x y"])
def test_of_a_process_that_says_nothing_silence_is_a_hang(tmp_path: Path, text: str) -> None:
    assert look(7, tmp_path) == Seen()
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text(text)
    assert look(7, tmp_path) == Seen()
    assert hangs(Seen(), look(7, tmp_path), 120.0)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone says it in this way")
def test_this_process_is_at_work() -> None:
    seen = look(os.getpid())
    assert seen.ready
    assert seen.used_s > 0


@pytest.mark.parametrize(
    ("now", "hang"),
    [
        (Seen(True, 110.0), True),  # it computes and computes
        (Seen(True, 60.5), True),
        (Seen(True, 59.0), False),  # somebody else has the processor
        (Seen(True, 1.0), False),
        (Seen(False, 1.0), True),  # it waits for something
    ],
)
def test_who_could_go_on_and_had_no_processor_does_not_hang(now: Seen, hang: bool) -> None:
    assert hangs(Seen(True, 0.5), now, 120.0) is hang


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)
    os.close(writing)


def test_a_worker_that_hangs_is_given_up_after_its_silence(pipe: tuple[int, int]) -> None:
    looks: list[int] = []
    with pytest.raises(TimeoutError):
        list(_lines(pipe[0], SILENCE_S, lambda: looks.append(1) or Seen(False, 0.0)))  # type: ignore[func-returns-value]
    assert len(looks) == LOOKS


def test_a_worker_without_a_processor_is_waited_for(pipe: tuple[int, int]) -> None:
    numbers = itertools.count()

    def starving() -> Seen:
        if next(numbers) == 3 * LOOKS:
            os.write(pipe[1], b"there\n")
        return Seen(True, 0.0)

    assert next(_lines(pipe[0], SILENCE_S, starving)) == b"there"
    assert next(numbers) > 3 * LOOKS


def test_a_worker_that_gets_some_of_the_processor_and_says_nothing_is_given_up_later(pipe: tuple[int, int]) -> None:
    used = itertools.count()
    with pytest.raises(TimeoutError):
        list(_lines(pipe[0], SILENCE_S, lambda: Seen(True, next(used) * SILENCE_S / (4 * LOOKS))))
    assert next(used) == pytest.approx(2 * LOOKS + 2, abs=1)
