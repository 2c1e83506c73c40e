"""Inspecting: every entry of every manifest at hand, and whether it holds on this box."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tunegen.box import Box, differences, this_box
from tunegen.choosing import store
from tunegen.choosing.document import Entry, Invalid, Manifest, RegimeWinner
from tunegen.choosing.resolve import USABLE, Outcome, Sources, foreign, gated_again, judge_winner
from tunegen.choosing.values import judge
from tunegen.errors import CompilerUnavailable
from tunegen.making.compile import llvm_version
from tunegen.making.spec import Spec
from tunegen.public import regating, sources
from tunegen.public.scope import scopes
from tunegen.signature import ElementType
from tunegen.tuning.results import EntryRow, FileRow, Inspection


def inspect(path: str | Path | None = None) -> Inspection:
    """Every entry of the manifest at `path`, or of all that are at hand: named, of the application, of the user and of
    the system, those of other boxes included; and the profiles that are refused. Never raises for what is in a file.
    """
    files = [_file(Path(path))] if path is not None else [_file(file) for file in sources.files_at_hand()]
    statuses = [file.status for file in files]
    return Inspection("loaded" if "loaded" in statuses else (statuses or ["not_found"])[0],
                      (*files, *(_refused_profiles() if path is None else ())))  # fmt: skip


def _refused_profiles() -> list[FileRow]:
    """The profiles of the scopes of this process that are wrong in any place, also those for other boxes."""
    found = [profiles for scope in scopes() if (profiles := sources.shipped_profiles(scope)) is not None]
    return [FileRow("malformed", path, f"a refused profile: {'; '.join(reasons)}")
            for profiles in found for path, reasons in profiles.refused.items()]  # fmt: skip


def _file(path: Path) -> FileRow:
    manifest = store.read(path)
    box, here = manifest.box, this_box()
    if manifest.status != "loaded":
        return FileRow(manifest.status, str(path), manifest.problem)
    unlike = differences(box, here) if box is not None else []
    architecture, cpu, threads = (box.architecture, box.cpu, box.threads) if box is not None else ("", "", 0)
    return FileRow(
        manifest.status, str(path), "", architecture, cpu, threads, not unlike, tuple(map(str, unlike)),
        tuple(_entries(manifest)),
    )  # fmt: skip


def _entries(manifest: Manifest) -> Iterator[EntryRow]:
    for scope, kernels in manifest.scopes.items():
        for key, entries in kernels.items():
            for entry in entries:
                state, reason = entry_state(manifest, scope, key, entry)
                if isinstance(entry, Invalid):
                    yield EntryRow(scope, key, "winners", state, reason)
                else:
                    winners = {regime.condition: regime.winner for regime in entry.regimes}
                    yield EntryRow(scope, key, entry.kind, state, reason, winners, entry.params, entry.evidence)
    for name, suffix in manifest.names.items():
        entry = Entry([RegimeWinner(suffix)])
        yield EntryRow("", name, "winners", *entry_state(manifest, "", name, entry), {"": suffix})


def entry_state(manifest: Manifest, scope: str, key: str, entry: Entry | Invalid) -> tuple[str, str]:
    """The state of an entry on this box, and why. Nothing is compiled: whether a winner can be made is not asked."""
    if isinstance(entry, Invalid):
        return "invalid", entry.reason
    found = _declared(scope, key)
    if isinstance(found, str):
        return "unknown", found
    spec, element_type = found
    outcome = _judged(manifest, spec, element_type, entry, this_box())
    return outcome.state, outcome.reason


def _declared(scope: str, key: str) -> tuple[Spec, ElementType] | str:
    """The kernel and element type that a key names, or why there is none. Without a scope, of whichever has it."""
    name, _, rest = key.rpartition(":")[2].partition("[")
    scope = scope or key.rpartition(":")[0]
    known = scopes()
    if scope and scope not in known:
        return f"no scope {scope!r} is imported"
    for candidate in [known[scope]] if scope else known.values():
        kernel = candidate.kernels.get(name)
        for element_type in kernel.signature.element_types if kernel is not None else ():
            if kernel is not None and element_type.name == (rest.removesuffix("]") or element_type.name):
                return kernel.spec, element_type
    return f"there is no {key}"


def _judged(manifest: Manifest, spec: Spec, element_type: ElementType, entry: Entry, box: Box) -> Outcome:
    if entry.kind == "values":
        unlike = foreign(manifest, spec, box)
        return Outcome("foreign", unlike) if unlike else judge(entry, spec.tuning_key(element_type), spec.schema)
    outcomes = list(_winners(manifest, spec, element_type, entry, box))
    return next((outcome for outcome in outcomes if outcome.state != "ok"), outcomes[0])


def serves(manifest: Manifest, scope: str, key: str, entry: Entry | Invalid) -> bool:
    """Whether a stale entry will be used all the same: LLVM alone changed since, the gate has not refused all of its
    winners, and no entry beside it holds.
    """
    found = _declared(scope, key)
    if isinstance(found, str) or isinstance(entry, Invalid) or entry.kind == "values":
        return False
    beside = manifest.entries(scope, found[0].name, key, ())
    if any(entry_state(manifest, scope, key, other)[0] in USABLE for other in beside):
        return False
    return any(outcome.fresh for outcome in _winners(manifest, *found, entry, this_box()))


def _winners(manifest: Manifest, spec: Spec, element_type: ElementType, entry: Entry, box: Box) -> Iterator[Outcome]:
    """What becomes of each winner of an entry."""
    unmade = _unmade(spec, element_type, box)
    for winner in (regime.winner for regime in entry.regimes):
        outcome = judge_winner(entry, winner, manifest, spec, box, unmade)
        yield gated_again(outcome, winner, spec, box, unmade) if outcome.fresh else outcome


def _unmade(spec: Spec, element_type: ElementType, box: Box) -> Sources:
    """Sources that take every variant for one that can be made, and have the gate's word from before alone."""
    try:
        llvm = llvm_version()
    except CompilerUnavailable:
        llvm = "none"
    return Sources((), lambda row: Outcome("ok"), llvm, (), partial(regating.remembered, spec, element_type, box))
