"""Calibrating: parameters that are found on this box."""

from __future__ import annotations

from collections.abc import Iterable

from tunegen.public import sources
from tunegen.public.kernel import KernelMethods
from tunegen.public.target import Target
from tunegen.tuning.keys import all_targets, targets
from tunegen.tuning.reading import names_of
from tunegen.tuning.results import Calibration, Proposal


def calibrate(
    keys: Iterable[KernelMethods | str] | KernelMethods | str | None = None, save: bool = False,
    seconds: float | None = None, memory_bytes: int | None = None, threads: int | None = None,
) -> Calibration:  # fmt: skip
    """Finds the parameters of these kernels ("exp", "exp[f32]", "mylib:exp"), or of all that can be, on this box.

    Whatever is found is published for sessions made later; with `save` it is merged into the manifest, too. It takes
    at most `seconds` in all, `memory_bytes` for the operands of a call, and `threads` (without them: as long as it
    takes, a part of the box's memory, and all threads that the process may use). What was finished is kept when time
    is over. Raises `KernelNotFound` for an unknown kernel, `ValueError` for a limit that is not above 0.
    """
    for limit, name in ((seconds, "seconds"), (memory_bytes, "memory_bytes"), (threads, "threads")):
        if limit is not None and not limit > 0:
            raise ValueError(f"calibrate: {name}={limit!r}: allowed is a number above 0")
    chosen = _chosen(keys)
    if without := [target.key for target in chosen if not target.spec.calibrations]:
        return Calibration("incomplete", f"no parameter can be found on the box of {', '.join(without)}")
    from tunegen.harness import calibrate as harness

    limits = harness.Limits(duration_s=seconds, threads=threads)
    if memory_bytes is not None:
        limits = harness.Limits(duration_s=seconds, memory_bytes=memory_bytes, threads=threads)
    report = harness.run(chosen, limits, save=save)
    if save:
        sources.refresh()
    problems = "; ".join(f"{result.name}: {result.problem}" for result in report.results if result.problem)
    if report.finished:
        return Calibration("updated", "", save, tuple(report.results))
    reason = problems or report.ended or "not every question could be answered"
    return Calibration("write_failed" if save and problems else "incomplete", reason, save, tuple(report.results))


def _chosen(keys: Iterable[KernelMethods | str] | KernelMethods | str | None) -> list[Target]:
    if keys is None:
        return [target for target in all_targets() if target.spec.calibrations]
    if isinstance(keys, str | KernelMethods):
        keys = [keys]
    return list(dict.fromkeys(target for key in keys for target in targets(key)))


def apply(proposal: Proposal, seconds: float | None = None) -> Calibration:
    """Acts on a proposal: calibrates what can be, within `seconds` in all, and saves it."""
    if not proposal.calibratable:
        return Calibration("updated", "there is nothing to calibrate")
    return calibrate(names_of(proposal.calibratable), save=True, seconds=seconds)
