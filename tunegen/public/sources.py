"""Where choices come from in this process: the environment, the application and the files of the box.

Manifests are read when the first kernel asks, and stay as they were until `refresh`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tunegen import knobs, log, paths
from tunegen.box import Box, Difference, this_box
from tunegen.choosing import store
from tunegen.choosing.document import Manifest
from tunegen.choosing.resolve import NO_ENTRY, Outcome, Sources, Tier
from tunegen.errors import CompilerUnavailable
from tunegen.grid import REFERENCE, Row
from tunegen.making.compile import llvm_version
from tunegen.public.scope import scopes

_lock = threading.Lock()
_read: dict[Path, Manifest] = {}
_nearest: dict[Path, tuple[Path, list[Difference]] | None] = {}
_applications: list[tuple[str, Path]] = []


def tune_manifest(name: str, dir: str | Path = ".") -> Path:  # noqa: A002 - the contract's word
    """Names the application's own manifest, which goes before the user's. Returns its path on this box.

    `dir` is relative to the file of the caller. Call it before the first kernel is called, or call `tunegen.load()`.
    Raises `ValueError` for a name that is no plain file name.
    """
    if not name or not all(c.isalnum() or c in "-_." for c in name) or name.startswith("."):
        raise ValueError(f"tune_manifest: {name!r} is no plain name of letters, digits, '-', '_' and '.'")
    file = sys._getframe(1).f_globals.get("__file__")
    base = Path(file).absolute().parent if file else Path.cwd()
    path = base / dir / f"{name}-{this_box().file_name}"
    with _lock:
        _applications[:] = [(n, p) for n, p in _applications if n != name] + [(name, path)]
    return path


def refresh() -> None:
    """Reads manifests and templates again when they are asked for next."""
    with _lock:
        _read.clear()
        _nearest.clear()
    for scope in scopes().values():
        scope.templates.forget()


def read_manifest(path: Path) -> Manifest:
    """The manifest at `path`, read once until `refresh`."""
    with _lock:
        if path not in _read:
            _read[path] = store.read(path)
        return _read[path]


def target_manifest(scope: str, box: Box) -> Path:
    """The file that the rail names for new winners: `TUNE_MANIFEST`, the application's, else the user's."""
    named = knobs.MANIFEST.get()
    if named is not None:
        return named
    if _applications:
        return _applications[-1][1]
    return paths.user_manifests() / scope / box.file_name


def sources(scope: str, kernel: str, box: Box, make: Callable[[Row], Outcome]) -> Sources:
    """All sources of a kernel's choice, as they are now."""
    knobs.begin()
    try:
        llvm = llvm_version()
    except CompilerUnavailable as error:
        warn_once(f"no usable compiler, so kernels run their Python reference: {error}")
        llvm = "none"
    namesakes = tuple(sorted(s.name for s in scopes().values() if kernel in s.kernels))
    return Sources(_tiers(scope, box), make, llvm, namesakes)


@cache
def warn_once(text: str) -> None:
    """Logs a warning that would otherwise come for every kernel."""
    log.warning("%s", text)


def _tiers(scope: str, box: Box) -> list[Tier]:
    named = knobs.MANIFEST.get()
    tiers = [Tier("session pin", "pin")]
    if knobs.POLICY.get() == "reference":
        tiers.append(Tier("TUNE_POLICY", REFERENCE, suffix=REFERENCE, note="TUNE_POLICY=reference"))
    if named is not None:
        tiers.append(_file("TUNE_MANIFEST", named))
    tiers += [Tier("program pin", "pin"), Tier("published value", "published")]
    tiers += [_file(f"application manifest {name}", path) for name, path in reversed(_applications)]
    tiers.append(_box_file("user manifest", paths.user_manifests() / scope, box))
    tiers.append(_file("system manifest", paths.system_manifests() / scope / box.file_name, quiet=True))
    tiers.append(Tier("shipped profile", "profile"))
    return tiers


def _file(name: str, path: Path, *, quiet: bool = False) -> Tier:
    manifest = read_manifest(path)
    note = "" if quiet else f"no manifest {path}" if manifest.status == "not_found" else NO_ENTRY
    return Tier(name, "manifest", manifest, path=str(path), note=note)


def _box_file(name: str, folder: Path, box: Box) -> Tier:
    """The manifest of this box in a folder, or word of the box there that is most like this one."""
    path = folder / box.file_name
    manifest = read_manifest(path)
    if manifest.status != "not_found":
        return Tier(name, "manifest", manifest, path=str(path), note=NO_ENTRY)
    with _lock:
        if folder not in _nearest:
            _nearest[folder] = store.nearest(folder, box)
        near = _nearest[folder]
    if near is None:
        return Tier(name, "manifest", path=str(path), note=NO_ENTRY)
    other, unlike = near
    return Tier(name, "manifest", path=str(other), note="; ".join(map(str, unlike)), state="foreign")
