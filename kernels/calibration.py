"""How the parameters of the shipped kernels are found on a box: a function per family, asked by `tune_param`.

Bounds end where a setting no longer matters or a look takes too long; the limits of a run cut them further. Those for
threads begin where a call takes some microseconds: what it costs to have a second core take part trebles from one
second to the next on a virtual machine, so a threshold below that, found in a good moment, loses in others. With 2^14
f32 elements, add on two threads ran at 1.4 times the serial speed in one process on Zen 4, and at 0.8 in the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tunegen import Trial

TASK = 1 << 16
"""Multiply-adds of one task of a product, and elements of one row of a row kernel."""
ROW = 1 << 10
LAYER = 1024
"""Columns and depth of a product with few rows."""


def elements(trial: Trial) -> None:
    """Maps: shares and threads together, well above the threshold in force; then from how many elements on they pay."""
    least = int(trial.values["parallel.minimum_elements"])
    trial.best(
        [
            {"parallel.grain": grain, "parallel.maximum_participants": most}
            for grain in (0, 1 << 13, 1 << 15)
            for most in participants(trial)
        ],
        [{"N": n * least} for n in (1, 8)],
    )
    trial.threshold(
        "parallel.minimum_elements", lambda n: {"N": n}, grid=(1 << 15, 1 << 17, 1 << 19), bounds=(1 << 15, 1 << 24)
    )


def participants(trial: Trial) -> list[int]:
    """How many threads a call may take at most: all, half of them or a quarter."""
    return [0, *(n for n in (trial.threads // 2, trial.threads // 4) if n > 1)]


def streaming(trial: Trial) -> None:
    """Maps: from how many elements on stores that bypass the caches pay."""
    trial.threshold(
        "stream.minimum_elements", lambda n: {"N": n}, grid=(1 << 20, 1 << 22, 1 << 24), bounds=(1 << 16, 1 << 25)
    )


def rows(trial: Trial) -> None:
    """Row kernels: from how many rows on threads pay."""
    trial.threshold(
        "parallel.minimum_rows", lambda n: {"M": n, "N": ROW}, grid=(16, 64, 256), bounds=(16, 1 << 14)
    )  # fmt: skip


def square(tasks: int) -> dict[str, int | tuple[int, ...]]:
    """The square product of about so many tasks."""
    side = max(round((tasks * TASK) ** (1 / 3)), 1)
    return {"M": side, "N": side, "K": side}


def shares(trial: Trial) -> None:
    """Products: from how much work on threads pay; then shares, threads and that threshold together."""
    trial.threshold("parallel.minimum_tasks", square, grid=(8, 32, 128), bounds=(8, 1 << 13))
    least = int(trial.values["parallel.minimum_tasks"])
    trial.best(
        [
            {"parallel.minimum_tasks": tasks, "parallel.grain": grain, "parallel.maximum_participants": most}
            for tasks in (least, 2 * least)
            for grain in (0, 64, 128, 256)
            for most in participants(trial)
        ],
        [square(n * least) for n in (1, 4, 16)],
    )


def packing(trial: Trial) -> None:
    """Products: from how many rows on packing pays, where the other sizes are those of a layer."""
    trial.threshold("pack.minimum_rows", lambda m: {"M": m, "N": LAYER, "K": LAYER}, grid=(4, 8, 16), bounds=(2, 128))
