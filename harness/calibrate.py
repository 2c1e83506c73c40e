"""Calibration: runs the callbacks of exact keys within limits, and keeps what they find.

Each key is decided by itself and published or saved as a whole; a callback that raises, or that runs out of time, costs
its own key. Time that is left is shared out evenly among the keys that are left. After an interruption, what was
finished is kept all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

import msgspec

from tunegen import log
from tunegen.box import Box, effective_threads, information, this_box
from tunegen.choosing import published, store
from tunegen.choosing.values import base_of
from tunegen.errors import ParameterError, StoreError, TunegenError
from tunegen.harness.decisions import Bench, Decision, Outcome, TimeOver, Values
from tunegen.harness.forced import ForcedBench
from tunegen.harness.limits import default_memory_bytes
from tunegen.harness.measure import now_s
from tunegen.harness.reports import About, about
from tunegen.harness.trial import KernelTrial
from tunegen.making.spec import Calibration
from tunegen.parameters import Key, Value
from tunegen.public import sources
from tunegen.public.inventory import governing_parameters
from tunegen.public.scope import Scope
from tunegen.public.setting import Setting
from tunegen.public.sources import target_manifest
from tunegen.public.target import Target
from tunegen.public.trial import Trial

Ended = Literal["", "time over", "interrupted"]


class Limits(msgspec.Struct, frozen=True):
    """What a calibration may use: seconds in all (None: as long as it takes), bytes for the operands of a call, and
    threads (None: all that the process may use).
    """

    duration_s: float | None = None
    memory_bytes: int = default_memory_bytes() // 4
    threads: int | None = None


class Result(msgspec.Struct, frozen=True):
    """What came of one key. `values` are complete and in force afterwards; `published` is the generation that has them,
    0 for none, `path` the manifest that has them, and `problem` why they could not be kept.
    """

    key: Key
    name: str
    decisions: list[Decision]
    values: dict[str, Value]
    published: int = 0
    path: str = ""
    problem: str = ""

    @property
    def finished(self) -> bool:
        """Whether every question was answered: found, kept, or skipped for a reason."""
        return not any(d.outcome in ("failed", "unfinished") for d in self.decisions)


class CalibrationReport(msgspec.Struct, frozen=True):
    """What came of a calibration. `ended` says why it stopped early, if it did, `noise` what a probe saw before."""

    about: About
    limits: Limits
    results: list[Result]
    ended: Ended = ""
    noise: dict[str, Any] = {}

    @property
    def finished(self) -> bool:
        """Whether every key was decided, and kept where it should be."""
        return not self.ended and all(r.finished and not r.problem for r in self.results)


BenchOf = Callable[[Target, Values, Limits, float | None], AbstractContextManager[Bench]]
"""(target, values in force, limits, when to stop) -> where its settings are tried."""


def calibratable(scopes: Iterable[Scope], only: Sequence[str] = ()) -> list[Target]:
    """The kernels and element types that have a calibration, out of `only` ("exp", "exp[f32]") when given."""
    return [
        Target(kernel, t)
        for scope in scopes
        for kernel in scope.kernels.values()
        for t in kernel.signature.element_types
        if kernel.spec.calibrations and (not only or {kernel.name, kernel.spec.key(t)} & set(only))
    ]


def run(
    targets: Sequence[Target], limits: Limits | None = None, *, save: bool = False, publish: bool = True,
    announce: Callable[[str], None] = log.info, bench_of: BenchOf | None = None, now: Callable[[], float] = now_s,
) -> CalibrationReport:  # fmt: skip
    """Calibrates `targets` on this box.

    `publish` puts the values of each finished key in force for new sessions of this process, `save` merges them into
    the manifest that the rail names for its scope. Never raises for a kernel, a callback or a file: see
    `Result.decisions` and `Result.problem`.
    """
    limits = limits or Limits()
    box = msgspec.structs.replace(this_box(), threads=min(limits.threads or effective_threads(), effective_threads()))
    end = None if limits.duration_s is None else now() + limits.duration_s
    results: list[Result] = []
    ended: Ended = ""
    for index, target in enumerate(targets):
        share = None if end is None else now() + max(end - now(), 0.0) / (len(targets) - index)
        base = base_values(target, box)
        announce(f"calibrating {target.key}")
        tried = _tried(target, base, bench_of or _forced_bench, limits, share)
        results.append(_kept(target, tried, base, box, save=save, publish=publish))
        ended = "interrupted" if tried.interrupted else ""
        if ended == "interrupted":
            break
    late = any(d.outcome == "unfinished" for result in results for d in result.decisions)
    return CalibrationReport(about("calibration", box), limits, results, ended or ("time over" if late else ""))


def base_values(target: Target, box: Box) -> dict[str, Value]:
    """The values that a kernel would use on a box without this calibration."""
    setting = Setting(box, box, sources.tiers, published.current(), lambda: None)
    return dict(setting.values(target.spec, target.element_type).values)


def _forced_bench(target: Target, base: Values, limits: Limits, end_s: float | None) -> ForcedBench:
    threads = min(limits.threads or effective_threads(), effective_threads())
    return ForcedBench(target.kernel, target.element_type, base, threads=threads, memory_bytes=limits.memory_bytes,
                       end_s=end_s)  # fmt: skip


class _Tried(msgspec.Struct, frozen=True):
    """The decisions about a key, and whether somebody stopped the run meanwhile."""

    decisions: list[Decision]
    interrupted: bool = False


def _tried(target: Target, base: Values, bench_of: BenchOf, limits: Limits, end_s: float | None) -> _Tried:
    """Runs the callbacks of a key, each once, as long as there is time."""
    spec, failed = target.spec, ""
    trial: KernelTrial | None = None
    stopped = ""
    try:
        with bench_of(target, base, limits, end_s) as bench:
            trial = KernelTrial(spec.schema, governing_parameters(spec), target.element_type.name, base, bench)
            for callback in dict.fromkeys(spec.calibrations.values()):
                failed = _called(callback, trial) or failed
    except TimeOver:
        stopped = "time over"
    except KeyboardInterrupt:
        stopped = "interrupted"
    except (TunegenError, OSError, MemoryError) as error:
        failed = f"{type(error).__name__}: {error}"
    decisions = trial.decisions if trial is not None else []
    decided = {name for decision in decisions for name in decision.names}
    outcome: Outcome = "unfinished" if stopped else "failed"
    reason = stopped or failed or "its callback asked nothing about it"
    left = [Decision((name,), outcome, reason, {name: base[name]}) for name in spec.calibrations if name not in decided]
    return _Tried([*decisions, *left], stopped == "interrupted")


def _called(callback: Calibration, trial: Trial) -> str:
    """Runs one callback. Why it failed, or ""; what it found before stays."""
    try:
        callback(trial)
    except TimeOver:
        raise
    except Exception as error:  # a callback is code from anyone: it costs its own key
        return f"the callback raised {type(error).__name__}: {error}"
    return ""


def _kept(target: Target, tried: _Tried, base: Values, box: Box, *, save: bool, publish: bool) -> Result:
    """Publishes and saves what was found about a key, where anything was decided."""
    key, schema = target.spec.tuning_key(target.element_type), target.spec.schema
    decided = [d for d in tried.decisions if d.outcome in ("found", "moved", "kept")]
    changed = {name: value for d in decided for name, value in d.values.items() if value != base[name]}
    values, generation, path, problem = dict(base), 0, "", ""
    if decided:
        try:
            values = schema.completed(changed, base)
            if save:
                path = str(target_manifest(target.spec.scope, box))
                _save(target, key, changed, tried.decisions, box)
            if publish:
                generation = published.publish({(key, box): values}, {key: schema}).number
        except (StoreError, ParameterError) as error:
            path, problem = "", str(error)
    return Result(key, target.key, tried.decisions, values, generation, path, problem)


def _save(target: Target, key: Key, changed: Values, decisions: Sequence[Decision], box: Box) -> None:
    """Merges what changed into the values that the manifest has, with the evidence. Raises `StoreError`."""
    schema = target.spec.schema
    evidence = {"kind": "calibration", "decisions": [msgspec.to_builtins(decision) for decision in decisions]}
    path = target_manifest(target.spec.scope, box)
    store.set_values(
        path,
        box,
        information(),
        key,
        lambda entries: schema.completed(changed, base_of(entries, key, schema)),
        evidence,
    )
