"""The manifest as a document: typed entries, decoded one by one, so that one bad entry never costs a good one.

Formats: 1, the first. A flat map of names to suffixes is read too, so that a person can write one by hand. The list of
a kernel holds entries of two kinds, winners and values of parameters; each kind is found, replaced and kept on its own.

Of a name that comes twice in an object the last one counts. NaN, infinities and numbers that no double holds are no
JSON: the file is malformed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from tunegen.box import Box

FORMAT = 1
MAX_BYTES = 16 << 20
"""A larger file is no manifest of ours."""
KEPT_ENTRIES = 8
"""How many entries of a kind a kernel keeps: one per environment (library version, LLVM) that shares the box."""
PROVENANCE = "provenance"
"""The evidence of what comes from a profile: which one, and where that is from."""


class RegimeWinner(msgspec.Struct, frozen=True):
    """The winner for the sizes for which `condition` holds ("" for all others)."""

    winner: str
    condition: str = msgspec.field(default="", name="if")
    perm: dict[str, Any] = {}
    evidence: dict[str, Any] = {}


class Entry(msgspec.Struct, frozen=True):
    """What was chosen for one kernel and element type in one environment: winners by regime, or values of parameters.

    Without a digest it was written by hand. `parts` and `templates` are what the digest was made of. `evidence` is that
    of the values; a winner has its own.
    """

    regimes: list[RegimeWinner] = []
    digest: str = ""
    params: dict[str, Any] = {}
    parts: dict[str, str] = {}
    templates: dict[str, str] = {}
    evidence: dict[str, Any] = {}

    @property
    def kind(self) -> Kind:
        """What a later entry of the same list may replace."""
        return "values" if self.params and not self.regimes else "winners"

    def winner(self, condition: str) -> RegimeWinner | None:
        """The winner of the regime with this condition. A hand-written winner holds for all regimes."""
        if not self.digest and len(self.regimes) == 1 and not self.regimes[0].condition:
            return self.regimes[0]
        return next((regime for regime in self.regimes if regime.condition == condition), None)


class Invalid(msgspec.Struct, frozen=True):
    """An entry that could not be read, and why."""

    reason: str


Status = Literal["loaded", "not_found", "unreadable", "malformed", "newer"]
Kind = Literal["winners", "values"]


class Place(msgspec.Struct, frozen=True):
    """Where an entry of a manifest stands: whose it is, and what it holds.

    `scope` is "" for a winner that a person wrote into the flat part. `digest` is "" without one.
    """

    scope: str
    key: str
    kind: Kind
    digest: str


Predicate = Callable[[Place, Entry | Invalid], bool]
"""Picks entries."""


class Manifest(msgspec.Struct):
    """A manifest that was read. `names` is its flat part; `problem` says why there is nothing, if there is nothing."""

    path: str
    status: Status
    problem: str = ""
    box: Box | None = None
    scopes: dict[str, dict[str, list[Entry | Invalid]]] = {}
    names: dict[str, str] = {}

    def entries(self, scope: str, kernel: str, key: str, namesakes: tuple[str, ...]) -> list[Entry | Invalid]:
        """The entries with winners for one kernel, best first, and those that cannot be read.

        `namesakes` are the scopes that declare a kernel of this name.
        """
        listed = self.scopes.get(scope, {}).get(key, ())
        found = [entry for entry in listed if isinstance(entry, Invalid) or entry.regimes]
        for name in (f"{scope}:{key}", f"{scope}:{kernel}", key, kernel):
            if name not in self.names:
                continue
            if ":" not in name and len(namesakes) > 1:
                options = ", ".join(f"{other}:{name}" for other in namesakes)
                found.append(Invalid(f"the name {name!r} is ambiguous: write one of {options}"))
            else:
                found.append(Entry([RegimeWinner(self.names[name])]))
            break
        return found

    def values(self, scope: str, key: str) -> list[Entry]:
        """The entries with values of one kernel's parameters, newest first."""
        listed = self.scopes.get(scope, {}).get(key, ())
        return [entry for entry in listed if isinstance(entry, Entry) and entry.params]


def decode(data: bytes, path: str) -> Manifest:
    """Reads the bytes of a manifest. Never raises for what is in them."""
    if len(data) > MAX_BYTES:
        return Manifest(path, "malformed", f"{len(data)} bytes are too many for a manifest (limit {MAX_BYTES})")
    try:
        raw = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return Manifest(path, "malformed", f"not JSON: {error}")
    return from_raw(raw, path)


def from_raw(raw: Any, path: str) -> Manifest:
    """Reads decoded JSON. Never raises for what is in it."""
    if not isinstance(raw, dict):
        return Manifest(path, "malformed", f"a manifest is a JSON object, not {type(raw).__name__}")
    if "tunegen" not in raw:
        if raw and all(isinstance(suffix, str) for suffix in raw.values()):
            return Manifest(path, "loaded", names=raw)
        return Manifest(path, "malformed", 'neither a manifest ("tunegen": 1) nor a flat map of names to suffixes')
    version = raw["tunegen"]
    if type(version) is not int or version < 1:
        return Manifest(path, "malformed", f'"tunegen": {version!r} is no format number')
    if version > FORMAT:
        return Manifest(path, "newer", f"format {version} is newer than {FORMAT}, which this tunegen reads")
    try:
        box = msgspec.convert(raw.get("box"), Box)
    except msgspec.ValidationError as error:
        return Manifest(path, "malformed", f"the box cannot be read: {error}")
    names = raw.get("names")
    flat = {k: v for k, v in names.items() if isinstance(v, str)} if isinstance(names, dict) else {}
    return Manifest(path, "loaded", box=box, scopes=_scopes(raw.get("scopes")), names=flat)


def _scopes(raw: Any) -> dict[str, dict[str, list[Entry | Invalid]]]:
    found: dict[str, dict[str, list[Entry | Invalid]]] = {}
    for scope, section in raw.items() if isinstance(raw, dict) else ():
        kernels = section.get("kernels") if isinstance(section, dict) else None
        found[scope] = {
            key: [_entry(item) for item in items] if isinstance(items, list) else [Invalid("entries are a list")]
            for key, items in (kernels.items() if isinstance(kernels, dict) else ())
        }
    return found


def _entry(raw: Any) -> Entry | Invalid:
    try:
        entry = msgspec.convert(raw, Entry)
    except (msgspec.ValidationError, RecursionError) as error:
        return Invalid(str(error))
    return entry if entry.regimes or entry.params else Invalid("an entry has a winner for a regime, or values")


def merged(raw: dict[str, Any], box: dict[str, Any], scope: str, key: str, entry: Entry) -> dict[str, Any]:
    """`raw` with `entry` as the newest of its kernel. All that is not known here survives as it was."""
    if raw and "tunegen" not in raw:
        raw = {"names": raw}
    result: dict[str, Any] = {**raw, "tunegen": FORMAT, "box": box}
    scopes = _section(result, "scopes")
    kernels = _section(_section(scopes, scope), "kernels")
    old = kernels.get(key)
    kept, room = [], KEPT_ENTRIES - 1
    for other in old if isinstance(old, list) else []:
        same_kind = _kind(other) == entry.kind
        if same_kind and (room == 0 or _replaces(entry, other)):
            continue
        room -= same_kind
        kept.append(other)
    kernels[key] = [msgspec.to_builtins(entry), *kept]
    return result


def _kind(raw: Any) -> Kind:
    entry = _entry(raw)
    return entry.kind if isinstance(entry, Entry) else "winners"


def _replaces(entry: Entry, raw: Any) -> bool:
    """Whether `entry` is a later choice in the same environment as an entry of its kind that is there.

    Then all is equal but the winner, so a kernel that is tuned again and again does not push out the entries of other
    environments. The digest of values does not depend on them; those that were written by hand have none.
    """
    old = _entry(raw)
    if isinstance(old, Invalid):
        return False
    if old.digest == entry.digest:
        return True
    if entry.kind == "values":
        return not old.digest
    shared = old.templates.keys() & entry.templates.keys()
    same_code = all(old.templates[name] == entry.templates[name] for name in shared)
    return same_code and bool(old.parts) and _environment(old) == _environment(entry)


def _environment(entry: Entry) -> dict[str, str]:
    return {name: part for name, part in entry.parts.items() if name not in ("perm", "templates")}


def places(raw: dict[str, Any]) -> list[Place]:
    """Where each entry of a document stands, in order."""
    found: list[Place] = []

    def noted(place: Place, entry: Entry | Invalid) -> bool:
        found.append(place)
        return False

    without(raw, noted)
    return found


def without(raw: dict[str, Any], gone: Predicate) -> dict[str, Any]:
    """`raw` without the entries that `gone` picks. All that is no entry survives as it was."""
    if "tunegen" not in raw:
        return _without_names(raw, gone)
    result = dict(raw)
    if isinstance(result.get("names"), dict):
        result["names"] = _without_names(result["names"], gone)
    if not isinstance(result.get("scopes"), dict):
        return result
    for scope, section in _section(result, "scopes").items():
        if not isinstance(section, dict) or not isinstance(section.get("kernels"), dict):
            continue
        result["scopes"][scope] = section = dict(section)
        kernels = _section(section, "kernels")
        for key, items in list(kernels.items()):
            if isinstance(items, list):
                kernels[key] = [item for item in items if not gone(*_placed(scope, key, item))]
                if not kernels[key]:
                    del kernels[key]
    return result


def _without_names(names: dict[str, Any], gone: Predicate) -> dict[str, Any]:
    def picked(name: str, suffix: Any) -> bool:
        return isinstance(suffix, str) and gone(Place("", name, "winners", ""), Entry([RegimeWinner(suffix)]))

    return {name: suffix for name, suffix in names.items() if not picked(name, suffix)}


def _placed(scope: str, key: str, raw: Any) -> tuple[Place, Entry | Invalid]:
    entry = _entry(raw)
    digest = entry.digest if isinstance(entry, Entry) else ""
    return Place(scope, key, _kind(raw), digest), entry


def _section(parent: dict[str, Any], name: str) -> dict[str, Any]:
    old = parent.get(name)
    parent[name] = dict(old) if isinstance(old, dict) else {}
    section: dict[str, Any] = parent[name]
    return section


def encode(raw: dict[str, Any]) -> bytes:
    """The bytes of a manifest, indented for people and for `diff`."""
    return msgspec.json.format(msgspec.json.encode(raw), indent=1) + b"\n"
