"""Priors: what was chosen on another box, taken over as suggestions after it passed the gate of this one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tunegen import log, paths
from tunegen.box import Box, this_box
from tunegen.choosing import document, store
from tunegen.choosing.adopting import Adopted, Here, adopt, read_offer
from tunegen.choosing.document import Manifest
from tunegen.choosing.profiles import SUFFIX, Profile, Provenance, read_profile, write_profile
from tunegen.choosing.resolve import Outcome
from tunegen.choosing.selecting import TIED, Boxes, Selector, architecture_of, model_of, selector_of
from tunegen.errors import ProfileError
from tunegen.grid import Row as GridRow
from tunegen.making.spec import Spec
from tunegen.parameters import TUNING_ABI
from tunegen.public import sources
from tunegen.public.scope import find_scope, scopes
from tunegen.signature import ElementType
from tunegen.tuning.profiling import beside, provenance_of, selector_from, specs_of
from tunegen.tuning.results import Imported, ImportStatus, Row

FIRST = 1000
"""The least priority of a prior: somebody asked for it, so it goes before an equally specific profile of a library."""
NO_KERNEL = "there is no such kernel"


class Offer(NamedTuple):
    """What a file has, as a manifest, and where it says that it is from."""

    file: Path
    manifest: Manifest
    said: Provenance | None = None


def import_prior(
    path: str | Path, selector: Selector | Mapping[str, Any] | str | None = None, scope: str | None = None
) -> Imported:
    """Takes over what can be used here of a manifest of whatever box, or of a profile, as a profile of suggestions.

    A winner is used when its kernel and row are known, this box has what it requires, and it passes the gate in a
    child process, now; of several entries the newest such one. Values are used when the schema takes them. All else is
    `left_out`, with its reason; nothing is written for a scope of which nothing is left.

    The profile is for this box's model, or for the `selector`, and lies beside the user's manifests as
    `prior-NAME.json`; one of the same name is replaced. It goes before equally specific profiles, earlier priors
    included. It serves until something is tuned, never counts as tuned, and a tuner tries its rows first. Without
    `scope` it is for each imported scope that the file has something for, a profile each.

    Never raises for what is in the file. Raises `ProfileError` for a selector that cannot be read or is not for this
    box, `ScopeNotFound` for a scope that cannot be found.
    """
    chosen = selector_of(this_box(), "model") if selector is None else selector_from(selector)
    boxes = Boxes(architecture_of(this_box()), chosen)
    if problem := boxes.problem() or boxes.mismatch(this_box()):
        raise ProfileError((f"the selector does not fit this box, whose gate is asked: {problem}",))
    names = list(scopes()) if scope is None else [find_scope(scope).name]
    file = Path(path)
    offer = _read(file)
    if offer.manifest.status != "loaded":
        return Imported(offer.manifest.status, str(file), offer.manifest.problem)
    found = [_import(offer, name, names, boxes) for name in names]
    return _together(file, found, names, tuple(_unknown(offer)) if scope is None else ())


def _read(file: Path) -> Offer:
    manifest = store.read(file)
    if manifest.status == "malformed":
        raw = paths.read_record(file, document.MAX_BYTES, dict[str, Any]) or {}
        if "tunegen_profile" in raw:
            return Offer(file, *read_offer(raw, str(file)))
    return Offer(file, manifest)


def _import(offer: Offer, scope: str, asked: Sequence[str], boxes: Boxes) -> Imported:
    """Takes over what the offer has for one scope."""
    found = dict(_adopted(offer.manifest, scope, asked, boxes.selector))
    left_out = [Row(scope, key, why, str(offer.file)) for key, adopted in found.items() for why in adopted.left_out]
    left_out += _undeclared(offer, scope)
    kernels = {key: adopted for key, adopted in found.items() if adopted.chosen.regimes or adopted.chosen.params}
    if not kernels:
        return Imported("refused", str(offer.file), left_out=tuple(left_out))
    target = sources.imported_profiles(scope) / f"prior-{_stem(offer.file)}{SUFFIX}"
    others = beside(scope, target)
    profile = Profile(
        scope, boxes.architecture, boxes.selector, offer.said or _provenance(offer.manifest, scope),
        {key: adopted.chosen for key, adopted in kernels.items()}, TUNING_ABI, priority=_priority(boxes, others),
    )  # fmt: skip
    status, reason = _write(target, profile, others)
    rows = [Row(scope, key, str(adopted), str(target), adopted.chosen.params) for key, adopted in kernels.items()]
    return Imported(status, str(target), reason, tuple(rows) if status == "updated" else (), tuple(left_out))


def _adopted(offer: Manifest, scope: str, asked: Sequence[str], selector: Selector) -> Iterator[tuple[str, Adopted]]:
    box, known = this_box(), scopes()
    for kernel in known[scope].kernels.values():
        namesakes = tuple(sorted(name for name in asked if kernel.name in known[name].kernels))
        for element_type in kernel.signature.element_types:
            made = sources.sources(kernel.name, (), _gate(kernel.spec, element_type))
            here = Here(box, selector, msgspec.structs.replace(made, namesakes=namesakes))
            yield kernel.spec.key(element_type), adopt(offer, kernel.spec, element_type, here)


def _gate(spec: Spec, element_type: ElementType) -> Callable[[GridRow], Outcome]:
    """Puts rows of a kernel through the gate, each once."""
    from tunegen.harness.problems import Problem
    from tunegen.harness.recheck import gate_problems, recheck

    seen: dict[str, Outcome] = {}
    tried: list[Problem] = []

    def judge(row: GridRow) -> Outcome:
        if row.suffix not in seen:
            log.info("%s: %s goes through the gate", spec.key(element_type), row.suffix)
            try:
                tried.extend(() if tried else gate_problems(spec, element_type))
                found = recheck(spec, element_type, row, tried)
            except Exception as error:  # of the library's own reference, or of a box without room for a child
                seen[row.suffix] = Outcome("failed", f"{row.suffix}: {type(error).__name__}: {error}")
            else:
                passed = found.state == "passed"
                seen[row.suffix] = Outcome("ok" if passed else "failed", f"{row.suffix} {found.state}: {found.reason}")
        return seen[row.suffix]

    return judge


def _write(target: Path, profile: Profile, others: Sequence[Profile]) -> tuple[ImportStatus, str]:
    """Puts the profile in place. Returns what came of it, and why, or that an earlier one is gone."""
    data = write_profile(profile)
    try:
        read_profile(data, target.name, profile.scope, specs_of(profile.scope), others)
        replaced = target.exists()
        target.parent.mkdir(parents=True, exist_ok=True)
        store.replace(target, data)
    except ProfileError as error:
        return "refused", str(error)
    except OSError as error:
        return "read_only" if error.errno in store.READ_ONLY else "write_failed", error.strerror or str(error)
    sources.refresh()
    return "updated", "it replaces an earlier prior of this name" if replaced else ""


def _together(file: Path, found: Sequence[Imported], asked: Sequence[str], unknown: tuple[Row, ...]) -> Imported:
    """One result for all scopes: the first that could not be written, else the first that was."""
    left_out = (*(row for one in found for row in one.left_out), *unknown)
    rows = tuple(row for one in found for row in one.rows)
    tried = [one for one in found if one.rows or one.reason]
    head = next((one for one in tried if one.status != "updated"), tried[0] if tried else None)
    if head is not None:
        return Imported(head.status, head.path, head.reason, rows, left_out)
    names = ", ".join(asked) or "none is imported"
    nothing = "nothing in it can be used here" if left_out else f"it has nothing for the scopes asked for: {names}"
    return Imported("refused", str(file), nothing, (), left_out)


def _unknown(offer: Offer) -> Iterator[Row]:
    """What the offer has for scopes and kernels that are not here."""
    known = scopes()
    for name in offer.manifest.scopes:
        if name not in known:
            yield Row(name, "", "no scope of this name is imported", str(offer.file))
    names = {name for scope in known.values() for k in scope.kernels.values()
             for key in (k.name, *map(k.spec.key, k.signature.element_types))
             for name in (key, f"{scope.name}:{key}")}  # fmt: skip
    for name in offer.manifest.names:
        if name not in names:
            yield Row("", name, NO_KERNEL, str(offer.file))


def _undeclared(offer: Offer, scope: str) -> Iterator[Row]:
    keys = {k.spec.key(t) for k in scopes()[scope].kernels.values() for t in k.signature.element_types}
    given = offer.manifest.scopes.get(scope, ())
    return (Row(scope, key, NO_KERNEL, str(offer.file)) for key in given if key not in keys)


def _provenance(offer: Manifest, scope: str) -> Provenance:
    """Where the choices of a manifest come from, on the day of the import."""
    found = provenance_of(offer, scope)
    return msgspec.structs.replace(found, cpu=_name(offer.box) if offer.box is not None else "an unknown box")


def _name(box: Box) -> str:
    return f"{box.file_name.removesuffix(store.SUFFIX)} ({model_of(box)})"


def _priority(boxes: Boxes, others: Sequence[Profile]) -> int:
    """One that goes before all that are equally specific."""
    return max([FIRST - 1, *(other.priority for other in others if boxes.tie(other.boxes) == TIED)]) + 1


def _stem(file: Path) -> str:
    """The name of a file without its endings, in letters that every file system takes."""
    name = file.name.removesuffix(store.SUFFIX).removesuffix(SUFFIX).removeprefix("prior-")
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in name)
