"""What is in force in this process, and where it comes from: a call, the environment, the application, a library, or
nobody, so that the default holds. The first of these that says something decides; only the manifest of a session
stands below that of the environment.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

from tunegen import knobs, log, paths
from tunegen.box import effective_threads, this_box
from tunegen.errors import KnobError
from tunegen.knobs import Knob
from tunegen.making.cache import ObjectCache
from tunegen.public import policy, sources
from tunegen.public.background import SHARE
from tunegen.public.scope import Scope, scopes
from tunegen.public.session import Session

Origin = Literal["call", "environment", "application", "library", "default"]


class Effective(msgspec.Struct, frozen=True):
    """One setting: its value now (None for none), and who said so.

    `variable` is the environment variable that can say it, "" for none. `problem` is what is wrong with what was said.
    """

    name: str
    value: str | int | float | None
    origin: Origin
    variable: str = ""
    problem: str = ""
    doc: str = ""


def effective(session: Session | None = None) -> list[Effective]:
    """Every setting of this process, or of a session in it. Never raises: a bad variable is a row with a problem."""
    rows = [_knob(knob, session) for knob in knobs.TABLE]
    system, doc = str(paths.system_manifests()), "folder of all users' manifests, where `tune --system` puts them"
    rows.append(Effective("system", system, "default", doc=doc))
    for scope in scopes().values():
        rows += [_written(scope), _tuner(scope), _profiles(scope), *_pins(scope, session)]
    return rows


def _knob(knob: Knob[Any], session: Session | None) -> Effective:
    value, origin, problem = _read(knob)
    name = knob.name.removeprefix("TUNE_").lower()
    if problem:
        return Effective(name, None, origin, knob.name, problem, knob.doc)
    unset: dict[Knob[Any], Callable[[], tuple[Any, Origin]]] = {
        knobs.POLICY: _policy,
        knobs.MANIFEST: lambda: _named_manifest(session),
        knobs.HOME: lambda: (paths.user_manifests(), "default"),
        knobs.CACHE: lambda: (paths.object_cache(), "default"),
        knobs.THREADS: lambda: (effective_threads(), "default"),
        knobs.LOG: _log_level,
        knobs.SHARE: _share,
    }
    if origin == "default" and knob in unset:
        value, origin = unset[knob]()
    if knob is knobs.CACHE:
        problem = ObjectCache(value).problem
    if knob is knobs.THREADS and session is not None and session.threads != value:
        value, origin = session.threads, "call"
    return Effective(name, str(value) if isinstance(value, Path) else value, origin, knob.name, problem, knob.doc)


def _read(knob: Knob[Any]) -> tuple[Any, Origin, str]:
    """The value of a variable, whether it is set, and what is wrong with it."""
    try:
        return knob.get(), "environment" if knob.is_set() else "default", ""
    except KnobError as error:
        return None, "environment", str(error)


def _policy() -> tuple[str, Origin]:
    declared = policy.declared()
    return (declared.missing, "application") if declared is not None else ("fallback", "default")


def _share() -> tuple[float | None, Origin]:
    """What the policy live gives its tuners; those of other policies have all of a core."""
    declared = policy.declared()
    if declared is not None and declared.share is not None:
        return declared.share, "application"
    in_force = _read(knobs.POLICY)[0] or _policy()[0]
    return SHARE if in_force == policy.LIVE else None, "default"


def _named_manifest(session: Session | None) -> tuple[Any, Origin]:
    """The file that goes before the user's, where `TUNE_MANIFEST` names none."""
    if session is not None and session.manifest:
        return session.manifest, "call"
    application = sources.application_manifest()
    return (application, "application") if application is not None else (None, "default")


def _log_level() -> tuple[str, Origin]:
    level = log.level() if not knobs.start_logging.cache_info().currsize else ""
    return (level, "application") if level else ("warning", "default")


def _written(scope: Scope) -> Effective:
    """Where new winners of a scope go."""
    name, doc = f"{scope.name}: manifest to write", "where new winners go"
    try:
        path = sources.target_manifest(scope.name, this_box())
    except KnobError as error:
        return Effective(name, None, "default", "", str(error), doc)
    named, home = knobs.MANIFEST.is_set(), knobs.HOME.is_set()
    application = not named and sources.application_manifest() is not None
    origin: Origin = "application" if application else "environment" if named or home else "default"
    variable = knobs.HOME if home and not named and not application else knobs.MANIFEST
    return Effective(name, str(path), origin, variable.name, "", doc)


def _tuner(scope: Scope) -> Effective:
    script = str(scope.tuner) if scope.tuner else f"-m tunegen.harness {scope.module}"
    return Effective(
        f"{scope.name}: tuner", script, "library" if scope.tuner else "default", doc="what tunes the scope"
    )


def _profiles(scope: Scope) -> Effective:
    folder = str(scope.profiles) if scope.profiles else None
    origin: Origin = "library" if scope.profiles else "default"
    return Effective(f"{scope.name}: profiles", folder, origin, doc="winners that the library ships")


def _pins(scope: Scope, session: Session | None) -> list[Effective]:
    own = session.pins if session is not None else {}
    asked: dict[str, tuple[str, Origin]] = {}
    asked |= {key: (suffix, "application") for key, suffix in sources.program_pins(scope.name).items()}
    asked |= {key: (suffix, "call") for (name, key), suffix in own.items() if name == scope.name}
    doc = "the row that is asked for"
    return [Effective(f"{scope.name}: pin of {key}", *pinned, doc=doc) for key, pinned in asked.items()]
