"""What the functions of `tunegen.tuning` return: records with a status in a word, and a reason for each row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from tunegen.choosing.document import Kind
from tunegen.choosing.document import Status as ReadStatus
from tunegen.parameters import Key, Parameter, Value

WriteStatus = Literal[
    "updated", "not_found", "newer", "foreign", "unreadable", "malformed", "read_only", "write_failed", "locked"
]
"""What became of a file: changed as asked; or there is none; or it was left as it was, and why."""


class Row(msgspec.Struct, frozen=True):
    """One key in a list of a result: `key` is "exp[f32]" of `scope`, `reason` says why it is in this list, `path` is
    the file that it comes from, and `values` are those of its parameters.
    """

    scope: str
    key: str
    reason: str = ""
    path: str = ""
    values: dict[str, Any] = {}


class Read(msgspec.Struct, frozen=True):
    """What reading values came to. `reason` says why, where `status` is not "loaded".

    `loaded` are in force for new sessions; `foreign` belong to another box or number of threads; `stale` to another
    implementation, device or tuning ABI; `invalid` are refused by the schema, or cannot be read, and are repaired by
    `set`; `missing` are keys with parameters for which there is nothing.
    """

    status: ReadStatus
    path: str
    reason: str = ""
    loaded: tuple[Row, ...] = ()
    foreign: tuple[Row, ...] = ()
    stale: tuple[Row, ...] = ()
    invalid: tuple[Row, ...] = ()
    missing: tuple[Row, ...] = ()


class Write(msgspec.Struct, frozen=True):
    """What writing came to. True in a condition when the file is as asked for.

    `updated` are the keys that were written, `pruned` those that were taken out, `preserved` all others in the file.
    `published` is the number of the generation in which new sessions see the values; 0 when they were not published.
    """

    status: WriteStatus
    path: str
    reason: str = ""
    updated: tuple[Row, ...] = ()
    preserved: tuple[Row, ...] = ()
    pruned: tuple[Row, ...] = ()
    published: int = 0

    def __bool__(self) -> bool:
        return self.status == "updated"


class ParameterRow(msgspec.Struct, frozen=True):
    """One parameter of one key.

    `cached` is its value in the manifest of this box, None when there is none; `active` the one that calls without a
    session use; `calibratable` says whether it can be found on the box.
    """

    parameter: Parameter
    default: Value
    cached: Value | None
    active: Value
    calibratable: bool


class KeyRow(msgspec.Struct, frozen=True):
    """The parameters of one exact key.

    `source` is where the active values come from: published, manifest, profile or default. `state` and `reason` are
    those of what is cached: ok, missing, or why it is not used.
    """

    key: Key
    source: str
    state: str
    reason: str
    path: str
    parameters: tuple[ParameterRow, ...]
    rules: tuple[str, ...] = ()


class Parameters(msgspec.Struct, frozen=True):
    """The parameters of some keys: a sequence of `rows`. `status` is that of the manifest with their cached values:
    "loaded" when one could be read, else that of the first.
    """

    status: ReadStatus
    rows: tuple[KeyRow, ...]

    def __iter__(self) -> Iterator[KeyRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> KeyRow:
        return self.rows[index]


class EntryRow(msgspec.Struct, frozen=True):
    """One entry of a manifest, of either kind: winners (suffix by size condition) or values of parameters.

    `state` is ok, foreign, stale, invalid, unknown (no such kernel, row or parameter here) or unverified.
    """

    scope: str
    key: str
    kind: Kind
    state: str
    reason: str
    winners: dict[str, str] = {}
    values: dict[str, Any] = {}
    evidence: dict[str, Any] = {}


class FileRow(msgspec.Struct, frozen=True):
    """One manifest: for which box it is, whether that is this one (`local`), and all its entries."""

    status: ReadStatus
    path: str
    reason: str = ""
    architecture: str = ""
    cpu: str = ""
    threads: int = 0
    local: bool = False
    differences: tuple[str, ...] = ()
    entries: tuple[EntryRow, ...] = ()


class Inspection(msgspec.Struct, frozen=True):
    """All manifests that were looked at. `status` is "loaded" when one could be read, else that of the first."""

    status: ReadStatus
    files: tuple[FileRow, ...]


class Proposal(msgspec.Struct, frozen=True):
    """What the parameters of a scope lack on this box.

    `covered` have values here; `calibratable` have none, and some of their parameters can be found by `calibrate`;
    `manual` have none, and have to be set by hand. The reasons name the parameters that are set by hand. `status` is
    that of the manifest: "loaded" when one could be read, else that of the first.
    """

    scopes: tuple[str, ...]
    covered: tuple[Row, ...] = ()
    calibratable: tuple[Row, ...] = ()
    manual: tuple[Row, ...] = ()
    status: ReadStatus = "loaded"


INTERRUPTION = "interrupted"
"""The reason of a calibration that Ctrl-C ended."""


class Calibration(msgspec.Struct, frozen=True):
    """What calibrating came to. `results` say per key what was measured and decided, in the words of the harness.

    `status` is "updated" when every key was finished and, with `save`, written. After Ctrl-C the reason is
    "interrupted"; what was finished by then is kept.
    """

    status: WriteStatus | Literal["incomplete"]
    reason: str = ""
    saved: bool = False
    results: tuple[Any, ...] = ()


ImportStatus = ReadStatus | WriteStatus | Literal["refused"]
"""What became of an import: written; or it was refused; or the file could not be read, or the other not written."""


class Imported(msgspec.Struct, frozen=True):
    """What importing came to. `rows` are the keys for which values or winners were taken over, `left_out` those of a
    prior that cannot be used here. A profile is taken over as a whole or not at all.

    `path` is the file that was written, or the one that could not be read or used. `reason` says why, where `status` is
    not "updated", and else whether an earlier prior was replaced.
    """

    status: ImportStatus
    path: str
    reason: str = ""
    rows: tuple[Row, ...] = ()
    left_out: tuple[Row, ...] = ()
