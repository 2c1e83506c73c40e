"""The journal: what a run finds out, written line by line as it happens, so that a run that ends early loses nothing.

It lies beside the manifest. The next run skips the gate of candidates that are still the very same, and screens first
what was fast. It never crowns on what is written here: a winner has a fresh final and a fresh confirmation.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec

import tunegen.templates
from tunegen import log
from tunegen.box import Box
from tunegen.choosing import store
from tunegen.digest import sha256
from tunegen.grid import Row
from tunegen.harness.protocol import Known, Outcome
from tunegen.making import make
from tunegen.making.compile import llvm_version
from tunegen.making.render import SHIPPED, Templates
from tunegen.making.spec import Spec, digest_of
from tunegen.paths import read_plain
from tunegen.signature import ElementType

PASSING = ("not tried", "out of memory", "slower", "duplicate")
"""Outcomes that depend on the load, the budget or the order of a run: the next one finds out for itself. A candidate
that was silent for minutes is none of these: to find out again would cost each run as much."""


INTENT = "intent "
EARLIER = ", in an earlier run; it is tried again when something changes, or with --retune"
MAX_BYTES = 256 << 20
"""A larger file is no journal of ours."""
MOST_WASTE = 2000
"""Lines that later ones replaced, before the file is written anew."""


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line: the outcome of a candidate's gate, or its ratio in the screening of a regime."""

    key: str
    suffix: str
    identity: str = ""
    outcome: Outcome | None = None
    condition: str = ""
    ratio: float | None = None


def identity_of(spec: Spec, element_type: ElementType, row: Row, box: Box) -> str:
    """Digest of all that a gate's verdict depends on: code, declaration, gate, and box.

    Makes the objects of the row (out of the cache when they are there); raises what making them raises.
    """
    target = make.host_target(box)
    objects = {
        f.name: make.make_object(f, row, element_type, spec.templates, box.feature_set, target).digest
        for f in spec.functions
    }
    return _identity(spec, element_type, row, box, objects)


def intent_of(spec: Spec, element_type: ElementType, row: Row, box: Box) -> str:
    """What a candidate is known by that never came to an object: the same, with every template it may use for its code.

    Renders nothing. A change of any template of the library, or of ours, makes it another candidate.
    """
    return f"{INTENT}{_identity(spec, element_type, row, box, _files(spec.templates))}"


def is_intent(identity: str) -> bool:
    """Whether it is that of a candidate that never came to an object."""
    return identity.startswith(INTENT)


def earlier(outcome: Outcome) -> Outcome:
    """The outcome of an earlier run, as this one tells it: where trying again may help, it says how."""
    if outcome.state != "timed out" or outcome.reason.endswith(EARLIER):
        return outcome
    return msgspec.structs.replace(outcome, reason=f"{outcome.reason}{EARLIER}")


def _identity(spec: Spec, element_type: ElementType, row: Row, box: Box, code: dict[str, str]) -> str:
    parts = spec.parts([dict(row.perm)], code, llvm_version())
    more = {"suffix": row.suffix, "type": element_type.name, "box": box.id, "cases": ";".join(map(str, spec.cases))}
    return digest_of({**parts, **more, "source": _source_of(spec.module)})


def _files(templates: Templates) -> dict[str, str]:
    """Digests of all template files that a library's templates may name."""
    shipped = Path(tunegen.templates.__file__).parent
    found = {f"{SHIPPED}{name}": templates.digest(f"{SHIPPED}{name}") for name in _below(shipped)}
    return found | {name: templates.digest(name) for name in _below(templates.folder)}


@cache
def _below(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.j2")))


@cache
def _source_of(module: str) -> str:
    """Digest of the file with the reference and its inputs, which are the gate's measure."""
    path = getattr(sys.modules.get(module), "__file__", None)
    return sha256(Path(path).read_bytes()).hexdigest() if path else ""


def path_for(manifest: Path, scope: str) -> Path:
    """The journal of a scope that belongs to a manifest, which may be that of several scopes."""
    return manifest.with_name(f"{manifest.name.removesuffix(store.SUFFIX)}.{scope}.journal.jsonl")


class Journal:
    """What was written so far by key, and a file to write on. Without a file that can be written it only remembers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        found = _read(path)
        self.lines = {_place(line): line for line in found}
        self._waste = len(found) - len(self.lines)
        self._handle: int | None = None

    def known(self, key: str, *, again: bool = False) -> dict[str, Known]:
        """Outcomes of candidates by suffix. Each holds only for an equal identity. `again` leaves out who timed out."""
        passing = (*PASSING, "timed out") if again else PASSING
        return {
            line.suffix: Known(line.identity, line.outcome)
            for line in self.lines.values()
            if line.key == key and line.outcome is not None and line.outcome.state not in passing
        }

    def order(self, key: str) -> list[str]:
        """Suffixes by their best ratio in any regime, best first."""
        best: dict[str, float] = {}
        for line in self.lines.values():
            if line.key == key and line.ratio is not None:
                best[line.suffix] = max(line.ratio, best.get(line.suffix, 0.0))
        return sorted(best, key=lambda suffix: -best[suffix])

    def outcome(self, key: str, suffix: str, identity: str, outcome: Outcome) -> None:
        """Writes down what became of a candidate. Without an identity there is nothing to know it by."""
        if identity:
            self._append(Line(key, suffix, identity, outcome))

    def screened(self, key: str, condition: str, suffix: str, ratio: float) -> None:
        """Writes down a ratio of the screening."""
        self._append(Line(key, suffix, condition=condition, ratio=ratio))

    def _append(self, line: Line) -> None:
        place = _place(line)
        if self.lines.get(place) == line:
            return
        self.lines[place] = line
        if self._handle is None:
            self._handle = self._open()
        if self._handle >= 0:
            try:
                os.write(self._handle, msgspec.json.encode(line) + b"\n")
            except OSError as error:
                log.warning("%s cannot be written: %s", self.path, error.strerror)
                self.close()
                self._handle = -1

    def _open(self) -> int:
        """Opens the file for appending, without old lines when they are many.

        Each line is one write, which outlives this process. What a crash cut is closed off by a line end.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self._waste > MOST_WASTE:
                store.replace(self.path, b"".join(msgspec.json.encode(line) + b"\n" for line in self.lines.values()))
            # an administrator's run never writes to what a link of somebody else leads to
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
            handle = os.open(self.path, flags, 0o644)
            if os.fstat(handle).st_size:
                os.write(handle, b"\n")
            return handle
        except OSError as error:
            log.warning("no journal is kept, so an interrupted run starts anew: %s: %s", self.path, error)
            return -1

    def close(self) -> None:
        """Lets go of the file."""
        if self._handle is not None and self._handle >= 0:
            os.close(self._handle)
        self._handle = None


def _place(line: Line) -> tuple[str, str, str]:
    return line.key, line.suffix, f"ratio {line.condition}" if line.ratio is not None else "outcome"


def _read(path: Path) -> list[Line]:
    """The lines that can be read; the last one may be cut."""
    found = []
    try:
        data = read_plain(path, MAX_BYTES)
    except OSError:
        return []
    for text in data.split(b"\n"):
        with suppress(msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            found.append(msgspec.json.decode(text, type=Line))
    return found


def write_samples(manifest: Path, scope: str, key: str, digest: str, samples: Mapping[str, object]) -> None:
    """Keeps the samples behind an entry beside its manifest, in a file of their own that loading never reads."""
    folder = manifest.with_name(f"{manifest.name.removesuffix(store.SUFFIX)}.{scope}.samples")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        name = key.replace("[", "_").replace("]", "") + ".json"
        store.replace(folder / name, msgspec.json.encode({"key": key, "digest": digest, "regimes": samples}))
    except OSError as error:
        log.warning("the samples of %s are not kept: %s", key, error)
