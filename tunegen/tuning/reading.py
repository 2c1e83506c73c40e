"""Reading: the parameters there are, what manifests hold, and values that new sessions are to see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tunegen.box import Box, this_box
from tunegen.choosing import published, store
from tunegen.choosing.document import Entry, Manifest, Status
from tunegen.choosing.resolve import Outcome
from tunegen.choosing.values import ValueChoice
from tunegen.parameters import Parameter, Value
from tunegen.public import sources
from tunegen.public.kernel import KernelMethods
from tunegen.public.scope import find_scope
from tunegen.public.setting import process_setting
from tunegen.public.target import Target
from tunegen.tuning.keys import all_targets, judged, targets, usable
from tunegen.tuning.results import KeyRow, ParameterRow, Parameters, Proposal, Read, Row


def default_path(scope: str) -> Path:
    """The manifest that new values of a scope are written to: `TUNE_MANIFEST`, the application's, else the user's.

    Raises `ScopeNotFound`.
    """
    return sources.target_manifest(find_scope(scope).name, this_box())


def parameters(kernel: KernelMethods | str | None = None) -> Parameters:
    """The parameters of a kernel ("exp", "exp[f32]", "mylib:exp"), or of all kernels of the scopes declared by now.

    A row per exact key. Nothing is stamped or changed. Raises `KernelNotFound`.
    """
    chosen = all_targets() if kernel is None else targets(kernel)
    manifests = _manifests(chosen)
    rows = tuple(_key_row(target, manifests[target.spec.scope]) for target in chosen)
    return Parameters(_status(manifests), rows)


def _manifests(chosen: Iterable[Target]) -> dict[str, Manifest]:
    """The manifest of this box for each scope, as it is now."""
    names = dict.fromkeys(target.spec.scope for target in chosen)
    return {name: store.read(sources.target_manifest(name, this_box())) for name in names}


def _status(manifests: Mapping[str, Manifest]) -> Status:
    statuses = [manifest.status for manifest in manifests.values()]
    return "loaded" if "loaded" in statuses else (statuses or ["not_found"])[0]


def _key_row(target: Target, manifest: Manifest) -> KeyRow:
    spec = target.spec
    outcome, cached = _newest(manifest, target, this_box())
    active = active_values(target)
    rows = tuple(_parameter_row(p, cached, active, target) for p in spec.schema.parameters)
    rules = tuple(rule.condition.text for rule in spec.schema.rules)
    return KeyRow(target.tuning_key, active.source, outcome.state, outcome.reason, manifest.path, rows, rules)


def _parameter_row(p: Parameter, cached: Mapping[str, Any], active: ValueChoice, target: Target) -> ParameterRow:
    return ParameterRow(p, p.default, cached.get(p.name), active.values[p.name], p.name in target.spec.calibrations)


def active_values(target: Target) -> ValueChoice:
    """The values that calls without a session use: those copied when the kernel was stamped, else as things are now."""
    copied = target.kernel.value_choices.get(target.element_type.name)
    return copied if copied is not None else process_setting().values(target.spec, target.element_type)


def _newest(manifest: Manifest, target: Target, box: Box) -> tuple[Outcome, dict[str, Any]]:
    """What a manifest says of a key: the newest values that hold, else why the newest do not."""
    if manifest.status != "loaded":
        state: Any = "missing" if manifest.status == "not_found" else "invalid"
        return Outcome(state, f"the manifest is {manifest.status}: {manifest.problem}"), {}
    found = judged(manifest, target, box)
    if not found:
        return Outcome("missing", "no entry"), {}
    outcome, entry = next((item for item in found if usable(item[0])), found[0])
    return outcome, entry.params if isinstance(entry, Entry) else {}


def load(path: str | Path | None = None) -> Read:
    """Reads the values of a manifest and publishes them in this process: all that hold here, for sessions made later.

    Without a path, those of the scopes declared by now are read. Kernels called without a session take them at the
    next `tunegen.load()`. Never raises for what is in a file.
    """
    chosen = all_targets()
    default = {t: sources.target_manifest(t.spec.scope, this_box()) for t in chosen}
    files = list(dict.fromkeys([Path(path)] if path is not None else default.values()))
    return _publish_files(files, {t: Path(path) if path is not None else default[t] for t in chosen})


def _publish_files(files: list[Path], wanted: Mapping[Target, Path]) -> Read:
    """Reads the files and publishes what they say of the keys that are wanted from each."""
    box = this_box()
    manifests = {file: store.read(file) for file in files}
    lists: dict[str, list[Row]] = {name: [] for name in ("loaded", "foreign", "stale", "invalid", "missing")}
    batch, schemas = {}, {}
    for target, file in wanted.items():
        spec, manifest = target.spec, manifests[file]
        if not (found := judged(manifest, target, box)):
            lists["missing"].append(Row(spec.scope, target.key, manifest.problem or "no entry", str(file)))
        for outcome, entry in found:
            values = entry.params if isinstance(entry, Entry) else {}
            state = "loaded" if usable(outcome) else outcome.state
            lists[state].append(Row(spec.scope, target.key, outcome.reason, str(file), values))
            if usable(outcome):
                batch[target.tuning_key, box] = spec.schema.check(values)
                schemas[target.tuning_key] = spec.schema
                break
    if batch:
        sources.refresh()
        published.publish(batch, schemas)
    first = next((m for m in manifests.values() if m.status == "loaded"), next(iter(manifests.values()), None))
    rows = {name: tuple(found) for name, found in lists.items()}
    if first is None:
        return Read("not_found", "", "no kernel that was declared by now has parameters")
    return Read(first.status, first.path, first.problem, **rows)


def propose(scope: str | Iterable[str] | None = None) -> Proposal:
    """What the parameters of one scope or some lack on this box; of all declared by now without any. Changes nothing.

    Raises `ScopeNotFound`.
    """
    scopes = [scope] if isinstance(scope, str) else list(scope or ())
    found: dict[str, list[Row]] = {"covered": [], "calibratable": [], "manual": []}
    chosen = all_targets(scopes)
    manifests = _manifests(chosen)
    for target in chosen:
        kind, row = _proposed(target, manifests[target.spec.scope])
        found[kind].append(row)
    rows = {kind: tuple(rows) for kind, rows in found.items()}
    return Proposal(tuple(scopes) or tuple(manifests), status=_status(manifests), **rows)


def _proposed(target: Target, manifest: Manifest) -> tuple[str, Row]:
    spec = target.spec
    outcome, cached = _newest(manifest, target, this_box())
    choice = process_setting().values(spec, target.element_type)
    if usable(outcome):
        return "covered", _row(target, outcome.reason or "in the manifest of this box", cached)
    if choice.tuned:
        return "covered", _row(target, choice.source, choice.values)
    why = f"{outcome.state}: {outcome.reason}" if outcome.state != "missing" else f"{choice.source} values"
    by_hand = [p.name for p in spec.schema.parameters if p.name not in spec.calibrations]
    why += f"; set by hand: {', '.join(by_hand)}" if by_hand else ""
    return "calibratable" if spec.calibrations else "manual", _row(target, why, choice.values)


def _row(target: Target, reason: str, values: Mapping[str, Value]) -> Row:
    return Row(target.spec.scope, target.key, reason, values=dict(values))


def names_of(rows: Iterable[Row]) -> list[str]:
    """Rows as they are named: "mylib:exp[f32]"."""
    return [f"{row.scope}:{row.key}" for row in rows]
