"""Portable defaults: what the reports of two unlike boxes together propose. One box alone proposes none.

A threshold is proposed so that neither box crosses it where it was measured to lose: the larger of the two. Any other
value is proposed where both boxes found the same. Nothing is changed: a default is a line of a declaration.
"""

from __future__ import annotations

import msgspec

from tunegen.box import Box
from tunegen.errors import TunegenError
from tunegen.harness.baseline import Baseline, Held
from tunegen.parameters import Value

MEASURED = ("published", "manifest")
"""Sources of values that were found on the box; a profile was found elsewhere, a default nowhere."""


class SameBox(TunegenError):
    """Two reports of one kind of box: what holds on it says nothing about others."""


class Proposed(msgspec.Struct, frozen=True):
    """A portable default for one parameter, or why there is none (`value` is None)."""

    key: str
    parameter: str
    ours: Value
    theirs: Value
    value: Value | None
    reason: str


def compare(one: Baseline, other: Baseline) -> list[Proposed]:
    """What two reports propose, for every parameter whose value was found on both boxes.

    Raises `SameBox` for boxes of the same architecture and model.
    """
    if _kind(one.about.box) == _kind(other.about.box):
        raise SameBox(
            f"both reports are about {one.about.box.vendor} {one.about.box.cpu} ({one.about.box.architecture}): "
            "a portable default takes two boxes of different architecture or model"
        )
    theirs = {held.key: held for held in other.values}
    return [
        _proposed(ours.key, name, value, theirs[ours.key].values[name])
        for ours in one.values
        if ours.key in theirs and _found(ours) and _found(theirs[ours.key])
        for name, value in ours.values.items()
        if name in theirs[ours.key].values
    ]


def _kind(box: Box) -> tuple[str, ...]:
    return (box.architecture, box.vendor, box.family, box.model)


def _found(held: Held) -> bool:
    return held.source in MEASURED


def _proposed(key: str, name: str, ours: Value, theirs: Value) -> Proposed:
    if ours == theirs:
        return Proposed(key, name, ours, theirs, ours, "both boxes found it")
    if name.rpartition(".")[2].startswith("minimum_") and isinstance(ours, int) and isinstance(theirs, int):
        return Proposed(key, name, ours, theirs, max(ours, theirs), "from here on it pays on both boxes")
    return Proposed(key, name, ours, theirs, None, "the boxes differ: keep the default, and ship profiles")
