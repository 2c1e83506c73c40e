"""Looking after the object cache: what lies in it, what is wrong with it, and taking that away."""

from __future__ import annotations

import os
import stat
import string
import tempfile
from contextlib import suppress
from typing import Literal, NamedTuple

from tunegen.digest import sha256
from tunegen.making.cache import ABANDONED_NS, KINDS, File, ObjectCache

DIGEST_CHARS = 64

FlawKind = Literal["tampered", "damaged record", "left over", "foreign"]


class Object(NamedTuple):
    """One object: the variants that came to it, and how long ago it was used, by the file system's clock."""

    digest: str
    symbols: tuple[str, ...]
    size_bytes: int
    age_s: float


class Contents(NamedTuple):
    """What a cache holds, the most recently used first. `records` counts declines, too."""

    objects: list[Object]
    records: int
    declines: int
    size_bytes: int


class Flaw(NamedTuple):
    """A file that does not belong into the cache, or is not what its name says."""

    path: str
    kind: FlawKind
    reason: str


def contents(cache: ObjectCache) -> Contents:
    """What a cache holds. Reads the records, and no object."""
    records, declines = cache.files("index"), 0
    symbols: dict[str, set[str]] = {}
    for file in records:
        record = cache.record(os.path.basename(file.path), use=False)
        if record is not None and record.object:
            symbols.setdefault(record.object, set()).add(record.symbol)
        declines += record is not None and not record.object
    objects, now = cache.files("objects"), _now_ns(cache)
    listed = [
        Object(
            name := os.path.basename(file.path),
            tuple(sorted(symbols.get(name, ()))),
            file.size_bytes,
            max(0, now - file.used_ns) / 1e9,
        )
        for file in sorted(objects, key=lambda file: -file.used_ns)
        if not file.temporary
    ]
    return Contents(listed, len(records), declines, sum(file.size_bytes for file in (*objects, *records)))


def flaws(cache: ObjectCache) -> list[Flaw]:
    """All that is wrong with a cache: each object is hashed. A record whose object is gone is no flaw, but a miss."""
    now, found = _now_ns(cache), []
    for kind in KINDS:
        for file in cache.files(kind):
            # files may go while this looks
            with suppress(FileNotFoundError):
                flaw = _flaw(cache, kind, file, now)
                found += [Flaw(file.path, *flaw)] if flaw is not None else []
    return found


def remove(flawed: list[Flaw]) -> list[Flaw]:
    """Takes files away. Returns those that could not be."""
    left = []
    for flaw in flawed:
        try:
            os.unlink(flaw.path)
        except FileNotFoundError:
            continue
        except OSError as error:
            left.append(flaw._replace(reason=f"{flaw.reason}; it cannot be removed: {error.strerror}"))
    return left


def _flaw(cache: ObjectCache, kind: str, file: File, now_ns: int) -> tuple[FlawKind, str] | None:
    name = os.path.basename(file.path)
    if not stat.S_ISREG(os.lstat(file.path).st_mode):
        return "foreign", "it is no plain file"
    if file.temporary:
        return ("left over", "its writer was killed") if now_ns - file.used_ns > ABANDONED_NS else None
    if len(name) != DIGEST_CHARS or not set(name) <= set(string.hexdigits):
        return "foreign", "its name is no digest"
    if kind == "index":
        damaged = cache.record(name, use=False) is None and os.path.exists(file.path)
        return ("damaged record", "it cannot be read") if damaged else None
    try:
        with open(file.path, "rb") as content:
            digest = sha256(content.read()).hexdigest()
    except PermissionError as error:
        return "tampered", f"it cannot be read: {error.strerror}"
    return ("tampered", f"its bytes have the digest {digest[:12]}") if digest != name else None


def _now_ns(cache: ObjectCache) -> int:
    """The time by the clock of the cache's file system, which is what the times of its files are by."""
    with suppress(OSError), tempfile.NamedTemporaryFile(dir=cache.folder, prefix=".") as file:
        return os.stat(file.name).st_mtime_ns
    return max((file.used_ns for file in cache.files("objects")), default=0)
