"""Where choices come from in this process: the environment, the application and the files of the box.

Manifests are read when the first kernel asks, and stay as they were until `refresh`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tunegen import forks, knobs, log, paths
from tunegen.box import Box, Difference, this_box
from tunegen.choosing import store
from tunegen.choosing.document import Manifest
from tunegen.choosing.resolve import NO_ENTRY, Outcome, Sources, Tier, not_gated
from tunegen.errors import CompilerUnavailable
from tunegen.grid import REFERENCE, Row
from tunegen.making.compile import llvm_version
from tunegen.public.scope import scopes

if TYPE_CHECKING:
    from tunegen.choosing.profiles import Profiles

_lock = forks.LOCK
_read: dict[Path, Manifest] = {}
_nearest: dict[tuple[Path, Box], tuple[Path, list[Difference]] | None] = {}
_siblings: dict[tuple[Path, Box, str], list[Manifest]] = {}
_profiles: dict[tuple[str, Box | None], tuple[int, Profiles, list[Tier]]] = {}
_applications: list[tuple[str, Path]] = []
_pins: dict[tuple[str, str], str] = {}


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


def set_pins(pins: Mapping[tuple[str, str], str | None]) -> None:
    """Keeps what the program pins, by scope and key; None takes a pin away."""
    with _lock:
        for place, suffix in pins.items():
            if suffix is None:
                _pins.pop(place, None)
            else:
                _pins[place] = suffix


def program_pins(scope: str) -> dict[str, str]:
    """The suffixes that the program pins in a scope, by key."""
    with _lock:
        return {key: suffix for (name, key), suffix in _pins.items() if name == scope}


def refresh() -> None:
    """Reads manifests and templates again when they are asked for next."""
    with _lock:
        _read.clear()
        _nearest.clear()
        _siblings.clear()
        _profiles.clear()
    for scope in scopes().values():
        scope.templates.forget()


def read_manifest(path: Path) -> Manifest:
    """The manifest at `path`, read once until `refresh`."""
    with _lock:
        if path not in _read:
            _read[path] = store.read(path)
        return _read[path]


def application_manifest() -> Path | None:
    """The file that the application named last, if it named one."""
    return _applications[-1][1] if _applications else None


def system_manifest(scope: str, box: Box) -> Path:
    """The file for new winners of a scope that all users share."""
    return paths.system_manifests() / scope / box.file_name


def target_manifest(scope: str, box: Box) -> Path:
    """The file that the rail names for new winners: `TUNE_MANIFEST`, the application's, else the user's."""
    named = knobs.MANIFEST.get()
    if named is not None:
        return named
    if _applications:
        return _applications[-1][1]
    return paths.user_manifests() / scope / box.file_name


def files_at_hand() -> list[Path]:
    """Every manifest that this process may look at, in the order of the tiers, and those of other boxes beside them."""
    named = knobs.MANIFEST.get()
    folders = [path.parent for _, path in reversed(_applications)]
    for base in (paths.user_manifests(), *paths.all_system_manifests()):
        folders += sorted(folder for folder in base.glob("*") if folder.is_dir())
    found = [named] if named is not None else []
    for folder in folders:
        found += sorted(path for path in folder.glob(f"*{store.SUFFIX}") if not path.name.startswith("."))
    return list(dict.fromkeys(found))


def sources(
    kernel: str, places: Sequence[Tier], make: Callable[[Row], Outcome],
    gate_again: Callable[[str, str], Outcome] = not_gated,
) -> Sources:  # fmt: skip
    """The sources of a kernel's choice, with these tiers."""
    try:
        llvm = llvm_version()
    except CompilerUnavailable as error:
        warn_once(f"no usable compiler, so kernels run their Python reference: {error}")
        llvm = "none"
    namesakes = tuple(sorted(s.name for s in scopes().values() if kernel in s.kernels))
    return Sources(places, make, llvm, namesakes, gate_again)


@cache
def warn_once(text: str) -> None:
    """Logs a warning that would otherwise come for every kernel."""
    log.warning("%s", text)


def tiers(scope: str, box: Box, manifest: Tier | None = None) -> list[Tier]:
    """The places to look for the kernels of a scope, as they are now: below the pin of a session, whose own `manifest`
    stands below that of the environment.
    """
    knobs.begin()
    named = knobs.MANIFEST.get()
    found = []
    if knobs.POLICY.get() == "reference":
        found.append(Tier("TUNE_POLICY", REFERENCE, suffix=REFERENCE, note="TUNE_POLICY=reference"))
    if named is not None:
        found.append(file_tier("TUNE_MANIFEST", named))
    found += [manifest] if manifest is not None else []
    found += [Tier("program pin", "pin", pins=program_pins(scope)), Tier("published value", "published")]
    for name, path in reversed(_applications):
        found.append(file_tier(f"application manifest {name}", path.with_name(f"{name}-{box.file_name}")))
        found += _siblings_of(f"application manifest {name}", path.parent, box, f"{name}-")
    user = paths.user_manifests() / scope
    own = [_box_file("user manifest", user, box), *_siblings_of("user manifest", user, box)]
    for system in (base / scope for base in paths.all_system_manifests()):
        own.append(file_tier("system manifest", system / box.file_name, quiet=True))
        own += _siblings_of("system manifest", system, box)
    return [*found, *(msgspec.structs.replace(tier, own=True) for tier in own), *_profile_tiers(scope, box)]


def file_tier(name: str, path: Path, *, quiet: bool = False) -> Tier:
    """A tier that is one manifest, read once until `refresh`. A quiet one says nothing when there is none."""
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
        if (folder, box) not in _nearest:
            _nearest[folder, box] = store.nearest(folder, box)
        near = _nearest[folder, box]
    if near is None:
        return Tier(name, "manifest", path=str(path), note=NO_ENTRY)
    other, unlike = near
    if [difference.field for difference in unlike] == ["features"]:
        # its own tier speaks for it
        return Tier(name, "manifest", path=str(path), note=NO_ENTRY)
    return Tier(name, "manifest", path=str(other), note="; ".join(map(str, unlike)), state="foreign")


def _siblings_of(name: str, folder: Path, box: Box, prefix: str = "") -> list[Tier]:
    """What a folder has of this box as another LLVM names its features, and, for kernels that never use threads, of
    this box with other numbers of them.
    """
    key = (folder, box, prefix)
    with _lock:
        if key not in _siblings:
            _siblings[key] = store.siblings(folder, box, prefix)
        found = _siblings[key]
    tiers = []
    for other in found:
        if other.box is not None and other.box.threads != box.threads:
            named = f"{name} for {other.box.threads} threads"
            tiers.append(Tier(named, "manifest", other, path=other.path, serial=True))
        else:
            tiers.append(Tier(f"{name} with other features", "manifest", other, path=other.path))
    return tiers


def imported_profiles(scope: str) -> Path:
    """The folder of the profiles that this user imported for a scope."""
    return paths.user_manifests() / scope / "profiles"


def shipped_profiles(scope: str) -> Profiles | None:
    """The profiles that a scope ships, and those that the user imported; None without any. All are checked."""
    found = _profiles_for(scope, None)
    return found[1] if found is not None else None


def _profiles_for(scope: str, box: Box | None) -> tuple[int, Profiles, list[Tier]] | None:
    """The profiles of a scope, read once until `refresh`, or until it declares more kernels (which are counted), and
    their tiers on a box. A profile that is refused is logged once, with all reasons.
    """
    declared, own = scopes().get(scope), imported_profiles(scope)
    if declared is None:
        return None
    folders = [folder for folder in (declared.profiles, own if own.is_dir() else None) if folder is not None]
    if not folders:
        return None
    from tunegen.choosing.profiles import load_profiles

    number = len(declared.kernels)
    with _lock:
        if (scope, box) not in _profiles or _profiles[scope, box][0] != number:
            specs = {name: kernel.spec for name, kernel in declared.kernels.items()}
            found = load_profiles(folders, scope, specs, box)
            _profiles[scope, box] = number, found, found.tiers(box, specs) if box is not None else []
        kept = _profiles[scope, box]
    for path, reasons in kept[1].refused.items():
        warn_once(f"the profile {path} is refused: {'; '.join(reasons)}")
    return kept


def _profile_tiers(scope: str, box: Box) -> list[Tier]:
    found = _profiles_for(scope, box)
    return found[2] if found is not None else [Tier("shipped profile", "profile")]
