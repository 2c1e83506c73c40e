"""Earlier manifests: a few are kept in a folder beside the manifest, and compared with what came after them.

Each scope has its own, for a manifest may be that of several, and a run changes what it says of one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from tunegen import log
from tunegen.choosing import store
from tunegen.choosing.document import MAX_BYTES, Entry, Manifest, RegimeWinner
from tunegen.paths import read_plain

KEPT = 5
"""How many earlier manifests are kept."""


class Change(msgspec.Struct, frozen=True):
    """A key and regime in two manifests. `ratio` is over the default; None where there is no such figure."""

    key: str
    condition: str
    before: str
    after: str
    ratio_before: float | None
    ratio_after: float | None

    @property
    def what(self) -> str:
        """`new`, `gone`, `changed` or `same`."""
        if not self.before or not self.after:
            return "gone" if self.before else "new"
        return "same" if self.before == self.after else "changed"


def folder_of(manifest: Path) -> Path:
    """Where the earlier states of a manifest are."""
    return manifest.parent / "history"


def earlier(manifest: Path, scope: str) -> list[Path]:
    """The earlier states of a manifest that are kept for a scope, oldest first."""
    stem = _stem(manifest, scope)
    found = []
    with suppress(OSError):
        for name in os.listdir(folder_of(manifest)):
            number = name.removeprefix(f"{stem}.").removesuffix(store.SUFFIX)
            if name == f"{stem}.{number}{store.SUFFIX}" and number.isdecimal():
                found.append((int(number), folder_of(manifest) / name))
    return [path for _, path in sorted(found)]


def keep(manifest: Path, scope: str) -> None:
    """Keeps a manifest as it is now, before a run changes a scope. A failure to is said, and costs nothing else."""
    try:
        data = read_plain(manifest, MAX_BYTES)
        before = earlier(manifest, scope)
        if before and before[-1].read_bytes() == data:
            return
        stem = _stem(manifest, scope)
        number = int(before[-1].name.split(".")[-3]) + 1 if before else 1
        folder_of(manifest).mkdir(exist_ok=True)
        store.replace(folder_of(manifest) / f"{stem}.{number}{store.SUFFIX}", data)
        for path in before[: max(len(before) + 1 - KEPT, 0)]:
            path.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        log.warning("%s is not kept in its history: %s", manifest, error)


def _stem(manifest: Path, scope: str) -> str:
    return f"{manifest.name.removesuffix(store.SUFFIX)}.{scope}"


def previous(manifest: Path, scope: str) -> Manifest:
    """The manifest before the last run that changed a scope in it; an empty one when there was none."""
    kept = earlier(manifest, scope)
    return store.read(kept[-1]) if kept else Manifest(str(manifest), "not_found")


def changes(before: Manifest, after: Manifest, scope: str) -> list[Change]:
    """What each key and regime of a scope had and has, in the order of `after`."""
    old, new = _winners(before, scope), _winners(after, scope)
    return [_change(place, old.get(place), new.get(place)) for place in {**new, **old}]


def _winners(manifest: Manifest, scope: str) -> dict[tuple[str, str], RegimeWinner]:
    return {(key, regime.condition): regime for key, entry in _newest(manifest, scope) for regime in entry.regimes}


def _newest(manifest: Manifest, scope: str) -> Iterator[tuple[str, Entry]]:
    for key, entries in manifest.scopes.get(scope, {}).items():
        entry = next((entry for entry in entries if isinstance(entry, Entry) and entry.regimes), None)
        if entry is not None:
            yield key, entry


def _change(place: tuple[str, str], old: RegimeWinner | None, new: RegimeWinner | None) -> Change:
    return Change(*place, old.winner if old else "", new.winner if new else "", _ratio(old), _ratio(new))


def _ratio(regime: RegimeWinner | None) -> float | None:
    ratio = regime.evidence.get("ratio") if regime is not None else None
    return float(ratio) if isinstance(ratio, int | float) else None
