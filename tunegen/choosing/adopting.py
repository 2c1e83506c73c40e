"""From what was chosen elsewhere to suggestions for this box: what of a manifest, or of a profile, can be used here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from tunegen.box import Box
from tunegen.choosing.document import KEPT_ENTRIES, Entry, Invalid, Manifest, RegimeWinner
from tunegen.choosing.profiles import FORMAT, Chosen, Provenance, wrong_row
from tunegen.choosing.resolve import USABLE, Outcome, Sources, judge_winner
from tunegen.choosing.selecting import Selector
from tunegen.choosing.values import judge
from tunegen.making.spec import Spec
from tunegen.parameters import TUNING_ABI, Value
from tunegen.signature import ElementType

MOST_ENTRIES = 2 * KEPT_ENTRIES
"""So many entries of a kernel are put through the gate: more than any writer keeps."""


class Adopted(msgspec.Struct, frozen=True):
    """What can be used of one kernel and element type.

    `notes` say what is special about it, `left_out` why something cannot be used.
    """

    chosen: Chosen
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The winners as a fallback chain has them, "values" for those of parameters, and the notes."""
        rows = [f"{r.winner} if {r.condition}" if r.condition else r.winner for r in self.chosen.regimes]
        return "; ".join([*rows, *(["values"] if self.chosen.params else []), *self.notes])


class Here(msgspec.Struct, frozen=True):
    """Where something is to be used: on a box, under a selector of it. `sources.make` is the gate."""

    box: Box
    selector: Selector
    sources: Sources


def adopt(manifest: Manifest, spec: Spec, element_type: ElementType, here: Here) -> Adopted:
    """What a manifest of whatever box has for a kernel that can be used here.

    Per regime it is the newest winner that is a row, is eligible and passes the gate; what it was made from may have
    changed since, which is noted. Of values it is the newest set that the schema takes.
    """
    entries = manifest.entries(spec.scope, spec.name, spec.key(element_type), here.sources.namesakes)
    left_out = [f"{len(entries) - MOST_ENTRIES} older entries are not looked at"] if entries[MOST_ENTRIES:] else []
    notes: list[str] = []
    winners: dict[str, RegimeWinner] = {}
    for entry in entries[:MOST_ENTRIES]:
        missing = [condition for condition in spec.fallback.regimes if condition not in winners]
        if isinstance(entry, Invalid):
            left_out += [entry.reason] if missing else []
        else:
            winners |= _winners(entry, missing, spec, here, left_out, notes)
    regimes = tuple(winners[condition] for condition in spec.fallback.regimes if condition in winners)
    chosen = Chosen(regimes, _values(manifest, spec, element_type, left_out))
    return Adopted(chosen, tuple(dict.fromkeys(notes)), tuple(dict.fromkeys(left_out)))


def _winners(
    entry: Entry, missing: Sequence[str], spec: Spec, here: Here, left_out: list[str], notes: list[str]
) -> dict[str, RegimeWinner]:
    """What an entry has for the regimes for which there is nothing yet."""
    if not missing:
        return {}
    left_out += [f"there is no regime {r.condition!r}, for which it has {r.winner!r}" for r in entry.regimes
                 if r.condition not in spec.fallback.regimes]  # fmt: skip
    found: dict[str, RegimeWinner] = {}
    for condition in missing:
        if (winner := entry.winner(condition)) is None:
            continue
        if why := _unfit(entry, winner, spec, here):
            left_out.append(why)
            continue
        row = spec.grid.find(winner.winner)
        found[condition] = RegimeWinner(winner.winner, condition, dict(row.perm) if row is not None else {})
        notes += _changes(entry, winner, spec, here)
    return found


def _unfit(entry: Entry, winner: RegimeWinner, spec: Spec, here: Here) -> str:
    """Why a winner cannot be used, on whatever box and of whatever templates it was chosen; "" when it can."""
    if wrong := "; ".join(wrong_row(winner, spec, here.selector)):
        return wrong
    undated = msgspec.structs.replace(entry, digest="")
    outcome = judge_winner(undated, winner.winner, Manifest("", "loaded"), spec, here.box, here.sources)
    return "" if outcome.state in USABLE else outcome.reason or outcome.state


def _changes(entry: Entry, winner: RegimeWinner, spec: Spec, here: Here) -> list[str]:
    """What the entry was made from and is not any more."""
    if not entry.parts:
        return []
    passing = Sources((), lambda row: Outcome("ok"), here.sources.llvm)
    outcome = judge_winner(entry, winner.winner, Manifest("", "loaded"), spec, here.box, passing)
    return [f"since it was chosen, {outcome.reason}"] if outcome.state == "stale" else []


def _values(manifest: Manifest, spec: Spec, element_type: ElementType, left_out: list[str]) -> dict[str, Value]:
    for entry in manifest.values(spec.scope, spec.key(element_type)):
        outcome = judge(entry, spec.tuning_key(element_type), spec.schema)
        if outcome.state in USABLE:
            return spec.schema.check(entry.params)
        left_out.append(f"values: {outcome.state}: {outcome.reason}")
    return {}


def read_offer(raw: Mapping[str, Any], path: str) -> tuple[Manifest, Provenance | None]:
    """A profile's decoded JSON as a manifest of no box, kernel by kernel, and where it comes from if it says so.

    Never raises for what is in it.
    """
    version, scope, kernels = raw.get("tunegen_profile"), raw.get("scope"), raw.get("kernels")
    if type(version) is not int or version < 1:
        return Manifest(path, "malformed", f'"tunegen_profile": {version!r} is no format number'), None
    if version > FORMAT:
        return Manifest(path, "newer", f"format {version} is newer than {FORMAT}, which this tunegen reads"), None
    if not isinstance(scope, str) or not isinstance(kernels, dict):
        return Manifest(path, "malformed", "a profile has a scope and kernels"), None
    provenance = None
    with suppress(msgspec.ValidationError, RecursionError):
        said = msgspec.convert(raw.get("provenance"), Provenance)
        provenance = said if not said.problem() else None
    entries = {key: _entries(part, raw.get("tuning_abi")) for key, part in kernels.items()}
    return Manifest(path, "loaded", scopes={scope: entries}), provenance


def _entries(part: Any, abi: Any) -> list[Entry | Invalid]:
    try:
        chosen = msgspec.convert(part, Chosen)
    except (msgspec.ValidationError, RecursionError) as error:
        return [Invalid(str(error))]
    found: list[Entry | Invalid] = [Entry(list(chosen.regimes), "profile")] if chosen.regimes else []
    if chosen.params and abi == TUNING_ABI:
        found.append(Entry(params=chosen.params))
    elif chosen.params:
        found.append(Invalid(f"values: tuning_abi changed from {abi} to {TUNING_ABI}"))
    return found or [Invalid("it says nothing of this kernel")]
