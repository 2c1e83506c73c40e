"""Splitting over a real pool of threads: results are those of serial calls, from several threads at once, too."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.test_calling_kit import add_body, kernel, rows_body
from tests.test_calling_layouts import arena, narrowed, shapes
from tests.test_calling_shares import address_of_bytes, scribble, scribble_body
from tests.test_calling_splits import ADD, PARAMETERS, ROWS, anew, any_rank
from tunegen.executor import CpuExecutor
from tunegen.parallel import split

EXECUTORS = {threads: CpuExecutor(threads, spin_us=5) for threads in (1, 2, 3, 7)}


@settings(max_examples=200, deadline=None)
@given(st.data(), shapes(), st.sampled_from([0, 0, 1, 3]), st.sampled_from(sorted(EXECUTORS)))
def test_any_rank_is_as_in_numpy(data: st.DataObject, shape: tuple[int, ...], grain: int, threads: int) -> None:
    anew(ADD, add_body, EXECUTORS[threads], grain)
    x, y = (arena(data.draw, narrowed(data.draw, shape), "f4", output=False) for _ in range(2))
    out = arena(data.draw, shape, "f4", output=True)
    x.fill(np.arange(x.array.size).reshape(x.array.shape))
    y.fill(np.arange(y.array.size).reshape(y.array.shape) * 10)
    expected = np.broadcast_to(x.array + y.array, shape)
    ADD(x.array, y.array, out.array)
    assert out.holds(expected)


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_calls_from_many_threads_on_one_pool(threads: int) -> None:
    """One has the pool at a time; the others run their shares by themselves."""
    made = anew(any_rank(), add_body, EXECUTORS[threads], grain=64)
    matrix = anew(ROWS["M", "N"], rows_body, EXECUTORS[threads])
    wrong: list[int] = []

    def work(n: int) -> None:
        x, square = np.arange(n * 100, dtype="f4"), np.arange(n * n, dtype="f4").reshape(n, n)
        for _ in range(200):
            if not (
                np.array_equal(made(x, x), x + x) and np.array_equal(matrix(square, square[0]), square + square[0])
            ):
                wrong.append(n)

    workers = [threading.Thread(target=work, args=(n,)) for n in (10, 33, 64, 100)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive()
    assert wrong == []
    assert made.slow_calls == 0


def test_scratch_memory_of_real_participants() -> None:
    made: Any = kernel(
        scribble, parameters=PARAMETERS, split=split("M", when="M >= least", grain="grain", participants="most")
    )
    x = np.arange(64 * 300, dtype="f4").reshape(64, 300)
    for grain in (0, 1, 5):
        for threads in EXECUTORS:
            anew(made, scribble_body, EXECUTORS[threads], grain, scratch=address_of_bytes(made))
            for _ in range(50):
                np.testing.assert_array_equal(made(x), x)


def test_an_executor_that_was_closed_or_dropped_still_serves_calls() -> None:
    made = any_rank()
    x = np.arange(1000, dtype="f4")
    with CpuExecutor(3) as own:
        anew(made, add_body, own)
        np.testing.assert_array_equal(made(x, x), x + x)
    np.testing.assert_array_equal(made(x, x), x + x)
    del own
    np.testing.assert_array_equal(made(x, x), x + x)


def test_an_executor_is_made_when_a_call_first_needs_it() -> None:
    made, asked = any_rank(), []

    def make() -> CpuExecutor | None:
        asked.append(len(asked))
        return EXECUTORS[3]

    anew(made, add_body, make, least=100)
    small, large = np.arange(99, dtype="f4"), np.arange(1000, dtype="f4")
    np.testing.assert_array_equal(made(small, small), small + small)
    assert (asked, made.slow_calls) == ([], 0)
    for _ in range(3):
        np.testing.assert_array_equal(made(large, large), large + large)
    assert (asked, made.slow_calls) == ([0], 1)
    anew(made, add_body, lambda: None, least=100)
    for _ in range(2):
        np.testing.assert_array_equal(made(large, large), large + large)
    assert made.slow_calls == 2
