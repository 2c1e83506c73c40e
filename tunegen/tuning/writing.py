"""Writing: values that a person sets, and entries that are taken out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tunegen.box import Box, information, this_box
from tunegen.choosing import published, store
from tunegen.choosing.document import Entry, Invalid, Place
from tunegen.choosing.store import Change
from tunegen.choosing.values import base_of
from tunegen.errors import ParameterError, StoreError
from tunegen.parallel import Serial
from tunegen.parameters import Value
from tunegen.public import sources
from tunegen.public.kernel import KernelMethods
from tunegen.public.scope import scopes
from tunegen.public.setting import process_setting
from tunegen.public.target import Target
from tunegen.tuning.inspecting import entry_state, serves
from tunegen.tuning.keys import all_targets, targets
from tunegen.tuning.results import Row, Write

MANUAL = {"kind": "manual"}
"""The evidence of values that a person set."""
UNUSABLE = ("foreign", "stale", "invalid", "unknown")
"""States of entries that will not be used again."""

Compute = Callable[[list[Entry]], dict[str, Value]]
"""A complete set of values, from the entries that a manifest has for a key."""
Base = Mapping[str, Value] | None
"""What completes a partial set where the manifest has nothing; None stands for the defaults."""


def set_values(
    kernel: KernelMethods | str, values: Mapping[str, Value], element_type: str | None = None,
    path: str | Path | None = None, load: bool = True,
) -> Write:  # fmt: skip
    """Writes values of a kernel's parameters into the manifest of this box, or that at `path`.

    The values are completed from the entry that is there, else from the defaults, for each element type of the kernel
    ("exp", "exp[f32]", "mylib:exp") or one of them. The complete set is validated before any file is touched, and
    again while the file is locked. With `load` it is published, too, for sessions made later; kernels called without a
    session take it at the next `tunegen.load()`. What cannot be written is not published.

    Raises `ParameterError` for values that the schema refuses, `KernelNotFound` for an unknown kernel.
    """
    chosen = targets(kernel, element_type)
    file = Path(path) if path is not None else sources.target_manifest(chosen[0].spec.scope, this_box())
    # what this process sees of the file stays as it is, unless it is to be loaded
    sources.read_manifest(file)
    before = store.read(file)
    bases = {target: _other_base(target) if path is None else None for target in chosen}
    for target in chosen:
        _completed(target, values, before.values(target.spec.scope, target.key), bases[target])
    wanted = {target: _completing(target, values, bases[target]) for target in chosen}
    return write_values(wanted, file, MANUAL, publish=load)


def write_values(
    wanted: Mapping[Target, Compute], file: Path, evidence: Mapping[str, object], *, publish: bool
) -> Write:
    """Writes a complete set of values per key, each made of the entries that are there, and publishes all of them."""
    box, problem = this_box(), None
    written: dict[Target, dict[str, Value]] = {}
    changes: list[Change] = []
    for target, compute in wanted.items():
        try:
            change, values = _write_one(target, compute, file, evidence)
        except StoreError as error:
            problem = error
            break
        changes.append(change)
        written[target] = values
    number = _publish(written, box) if publish and written else 0
    updated = tuple(Row(t.spec.scope, t.key, "", str(file), dict(values)) for t, values in written.items())
    names = {(row.scope, row.key) for row in updated}
    last = changes[-1].preserved if changes else ()
    preserved = tuple(_place_row(p, str(file)) for p in last if p.kind != "values" or (p.scope, p.key) not in names)
    pruned = tuple(_place_row(p, str(file)) for change in changes for p in change.pruned)
    status = "updated" if problem is None else problem.status
    return Write(status, str(file), str(problem or ""), updated, preserved, pruned, number)  # type: ignore[arg-type]


def _write_one(
    target: Target, compute: Compute, file: Path, evidence: Mapping[str, object]
) -> tuple[Change, dict[str, Value]]:
    values: dict[str, Value] = {}

    def computed(entries: list[Entry]) -> dict[str, Value]:
        values.update(compute(entries))
        return values

    return store.set_values(file, this_box(), information(), target.tuning_key, computed, evidence), values


def _publish(written: Mapping[Target, dict[str, Value]], box: Box) -> int:
    sources.refresh()
    batch = {(target.tuning_key, box): values for target, values in written.items()}
    return published.publish(batch, {target.tuning_key: target.spec.schema for target in written}).number


def _other_base(target: Target) -> Base:
    """What a kernel that never uses threads has on this box with another number of them. None without any."""
    if not isinstance(target.spec.parallel, Serial):
        return None
    choice = process_setting().values(target.spec, target.element_type)
    return choice.values if choice.source == "manifest" else None


def _completing(target: Target, values: Mapping[str, Value], base: Base) -> Compute:
    return lambda entries: _completed(target, values, entries, base)


def _completed(target: Target, values: Mapping[str, Value], entries: Sequence[Entry], base: Base) -> dict[str, Value]:
    schema = target.spec.schema
    try:
        return schema.completed(values, base_of(entries, target.tuning_key, schema) or base)
    except ParameterError as error:
        raise ParameterError(tuple(f"{target.key}: {problem}" for problem in error.problems)) from None


def forget(
    kernel: KernelMethods | str | None = None, stale: bool = False, path: str | Path | None = None,
    element_type: str | None = None, values_only: bool = False,
) -> Write:  # fmt: skip
    """Takes entries out of the manifest of this box, or that at `path`: winners and values, or values alone.

    Of one kernel, or of all; with `stale` only those that will not be used again: foreign, stale, invalid, or of a
    kernel, row or parameter that is not there. What is published of a kernel that is forgotten is withdrawn, unless
    `stale` alone was asked for. Raises `KernelNotFound` for an unknown kernel.
    """
    chosen = targets(kernel, element_type) if kernel is not None else []
    files = [Path(path)] if path is not None else _default_files(chosen)
    wanted = {(target.spec.scope, target.key) for target in chosen}
    found = [_forget(file, wanted, stale=stale, values_only=values_only) for file in files]
    if not stale:
        _withdraw(wanted or {(row.scope, row.key) for write in found for row in write.pruned})
    return _together(found)


def _default_files(chosen: Sequence[Target]) -> list[Path]:
    box = this_box()
    names = [t.spec.scope for t in chosen] or list(scopes())
    return list(dict.fromkeys(sources.target_manifest(name, box) for name in names))


def _forget(file: Path, wanted: set[tuple[str, str]], *, stale: bool, values_only: bool) -> Write:
    manifest = store.read(file)
    if manifest.status == "not_found":
        return Write("not_found", str(file), manifest.problem)
    reasons: dict[Place, str] = {}

    def gone(place: Place, entry: Entry | Invalid) -> bool:
        state, reason = entry_state(manifest, place.scope, place.key, entry)
        if (wanted and (place.scope, place.key) not in wanted) or (stale and state not in UNUSABLE):
            return False
        if values_only and place.kind != "values":
            return False
        if stale and state == "stale" and serves(manifest, place.scope, place.key, entry):
            return False
        reasons[place] = f"{state}: {reason}" if reason else state
        return True

    try:
        change = store.remove(file, gone)
    except StoreError as error:
        return Write(error.status, str(file), str(error))  # type: ignore[arg-type]
    pruned = tuple(_place_row(place, str(file), reasons.get(place, "")) for place in change.pruned)
    if pruned:
        sources.refresh()
    return Write("updated", str(file), "", (), tuple(_place_row(p, str(file)) for p in change.preserved), pruned)


def _withdraw(names: set[tuple[str, str]]) -> None:
    """Takes back what is published of these keys."""
    box = this_box()
    published.withdraw((t.tuning_key, box) for t in all_targets() if (t.spec.scope, t.key) in names)


def _together(found: Sequence[Write]) -> Write:
    """One result of several files: the first that went wrong, else the first that was updated."""
    if not found:
        return Write("not_found", "", "no scope was declared by now")
    wrong = [write for write in found if write.status not in ("updated", "not_found")]
    head = (wrong or [write for write in found if write] or list(found))[0]
    preserved = tuple(row for write in found for row in write.preserved)
    pruned = tuple(row for write in found for row in write.pruned)
    return Write(head.status, head.path, head.reason, (), preserved, pruned)


def _place_row(place: Place, path: str, reason: str = "") -> Row:
    return Row(place.scope, place.key, reason or place.kind, path)
