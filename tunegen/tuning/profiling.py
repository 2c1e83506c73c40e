"""Profiles: from a tuned box to a file that others can use, and back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tunegen import paths
from tunegen.box import this_box
from tunegen.choosing import store
from tunegen.choosing.document import Entry, Manifest
from tunegen.choosing.exporting import Exported, from_manifest
from tunegen.choosing.profiles import MAX_BYTES, SUFFIX, Profile, Provenance, read_profile
from tunegen.choosing.selecting import Model, Selector, selector_of
from tunegen.errors import ProfileError
from tunegen.making.compile import llvm_version
from tunegen.making.spec import Spec
from tunegen.public import sources
from tunegen.public.scope import find_scope, scopes
from tunegen.tuning.results import Imported, Row

KINDS = ("model", "models", "microarchitecture", "features")


def read_selector(text: str) -> Selector:
    """The selector that a text stands for: "microarchitecture" is that of this box, "microarchitecture=znver4" any.

    Likewise "features=avx2,fma", "model=amd/25/97" and "models=amd/25/97,amd/25/17". Raises `ProfileError`.
    """
    kind, equals, value = text.partition("=")
    parts = [part.strip() for part in value.split(",") if part.strip()]
    if kind not in KINDS or (equals and not parts):
        raise ProfileError((f"the selector {text!r} is none of {', '.join(KINDS)}, with or without =VALUE",))
    if not equals:
        return selector_of(this_box(), kind)  # type: ignore[arg-type]
    if kind == "microarchitecture":
        return Selector(microarchitecture=value.strip())
    if kind == "features":
        return Selector(features=tuple(parts))
    models = [part.split("/") for part in parts]
    if any(len(words) != 3 for words in models) or (kind == "model" and len(models) > 1):
        raise ProfileError((f"the selector {text!r}: write a model as vendor/family/model, such as amd/25/97",))
    meant = tuple(Model(*words) for words in models)
    return Selector(model=meant[0]) if kind == "model" else Selector(models=meant)


def export_profile(
    scope: str, selector: Selector | str, path: str | Path | None = None, threads: int | None = None, priority: int = 0
) -> Exported:
    """A profile of all that the manifest of this box, or that at `path`, has for a scope and that holds today.

    `threads` restricts it to that number of effective threads; `priority` decides between profiles that are equally
    specific. Raises `ScopeNotFound`, and `ProfileError` when nothing is left or the selector does not fit the box.
    """
    declared = find_scope(scope)
    file = Path(path) if path is not None else sources.target_manifest(declared.name, this_box())
    manifest = store.read(file)
    chosen = read_selector(selector) if isinstance(selector, str) else selector
    return from_manifest(
        manifest, declared.name, specs_of(declared.name), llvm_version(), chosen,
        provenance_of(manifest, declared.name), threads=threads, priority=priority,
    )  # fmt: skip


def provenance_of(manifest: Manifest, scope: str) -> Provenance:
    """Where the choices of a manifest for a scope come from, as of today."""
    from tunegen.harness.reports import about

    head = about("calibration", manifest.box)
    return Provenance(head.box.cpu, head.date, head.versions, _samples(manifest, scope))


def _samples(manifest: Manifest, scope: str) -> int:
    """The smallest number of paired samples behind a winner; 0 where none says."""
    entries = [e for listed in manifest.scopes.get(scope, {}).values() for e in listed if isinstance(e, Entry)]
    pairs = [regime.evidence.get("pairs") for entry in entries for regime in entry.regimes]
    return min((number for number in pairs if type(number) is int), default=0)


def import_profile(path: str | Path, selector: Selector | Mapping[str, Any] | str) -> Imported:
    """Takes a profile over for this user, under a selector: all of it, or nothing.

    Its kernels and values are checked against those that its scope declares, and that it is not ambiguous beside the
    profiles that are there. It lies beside the user's manifests then, and serves every box that the selector is for,
    below what is tuned there; one of the same name is replaced. Never raises for what is in the file. Raises
    `ProfileError` for a selector that cannot be read, `ScopeNotFound` for a scope that cannot be found.
    """
    chosen = selector_from(selector)
    file = Path(path)
    try:
        raw = msgspec.json.decode(paths.read_plain(file, MAX_BYTES), type=dict[str, Any])
    except FileNotFoundError:
        return Imported("not_found", str(file), "no such file")
    except OSError as error:
        return Imported("unreadable", str(file), error.strerror or str(error))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return Imported("malformed", str(file), f"not JSON: {error}")
    scope = raw.get("scope")
    if "tunegen_profile" not in raw:
        return Imported("refused", str(file), "it is no profile; what a manifest has can be taken over as a prior")
    if not isinstance(scope, str) or scope not in scopes():
        return Imported("refused", str(file), f"its scope {scope!r} is none that was imported")
    target = sources.imported_profiles(scope) / (file.name.removesuffix(SUFFIX).lstrip(".") + SUFFIX)
    data = msgspec.json.format(msgspec.json.encode({**raw, "selector": chosen}), indent=1) + b"\n"
    try:
        profile = read_profile(data, target.name, scope, specs_of(scope), beside(scope, target))
        target.parent.mkdir(parents=True, exist_ok=True)
        store.replace(target, data)
    except ProfileError as error:
        return Imported("refused", str(file), str(error))
    except OSError as error:
        status = "read_only" if error.errno in store.READ_ONLY else "write_failed"
        return Imported(status, str(target), error.strerror or str(error))  # type: ignore[arg-type]
    sources.refresh()
    rows = tuple(Row(scope, key, "", str(target), c.params) for key, c in profile.kernels.items())
    return Imported("updated", str(target), "", rows)


def selector_from(given: Selector | Mapping[str, Any] | str) -> Selector:
    """The selector that is given as itself, as text or as in a profile. Raises `ProfileError`."""
    if isinstance(given, Selector):
        return given
    if isinstance(given, str):
        return read_selector(given)
    try:
        return msgspec.convert(dict(given), Selector)
    except msgspec.ValidationError as error:
        raise ProfileError((f"the selector {given!r}: {error}",)) from None


def specs_of(scope: str) -> dict[str, Spec]:
    """The kernels of an imported scope."""
    return {name: kernel.spec for name, kernel in scopes()[scope].kernels.items()}


def beside(scope: str, target: Path) -> list[Profile]:
    """The profiles that are there, but the one that is replaced, each named by its file."""
    found = sources.shipped_profiles(scope)
    others = found.found.items() if found is not None else ()
    return [msgspec.structs.replace(profile, name=path) for path, profile in others if path != str(target)]
