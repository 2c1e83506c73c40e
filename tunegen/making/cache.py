"""The object cache: two levels of small files that many processes share.

`index/<key>` says what rendering and compiling one variant came to (an object's digest, or a decline), and of which
template files, with their hashes. `objects/<digest>` is the object. Files are written whole under another name and
moved into place, so a reader sees all of one or nothing; whoever comes second overwrites with the same bytes.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import msgspec

from tunegen import log, paths
from tunegen.digest import sha256


class Record(msgspec.Struct, frozen=True):
    """What became of one variant: the object's digest, or why it declined."""

    templates: dict[str, str]
    object: str = ""
    declined: str = ""


class ObjectCache:
    """A cache in one folder; without a trustworthy folder it keeps nothing, and says so once."""

    def __init__(self, folder: Path) -> None:
        self.folder: Path | None = folder
        for part in (folder, folder / "index", folder / "objects"):
            if reason := paths.private_folder(part):
                log.warning("objects are not cached: %s", reason)
                self.folder = None
                break

    def record(self, key: str) -> Record | None:
        """The record under a key; None when it is missing or damaged."""
        data = self._read("index", key)
        try:
            return msgspec.json.decode(data, type=Record) if data is not None else None
        except msgspec.DecodeError:
            return None

    def image(self, digest: str) -> bytes | None:
        """The object of this digest; None when it is missing or its bytes are not what the digest says."""
        data = self._read("objects", digest)
        if data is not None and sha256(data).hexdigest() != digest:
            log.warning("a damaged object in the cache is made again: %s", digest)
            return None
        return data

    def put_image(self, image: bytes) -> str:
        """Keeps an object and returns its digest."""
        digest = sha256(image).hexdigest()
        self._write("objects", digest, image)
        return digest

    def put_record(self, key: str, record: Record) -> None:
        """Keeps a record."""
        self._write("index", key, msgspec.json.encode(record))

    def _read(self, kind: str, name: str) -> bytes | None:
        if self.folder is None or not name.isalnum():
            return None
        try:
            return (self.folder / kind / name).read_bytes()
        except OSError:
            return None

    def _write(self, kind: str, name: str, data: bytes) -> None:
        if self.folder is None:
            return
        import tempfile

        try:
            handle, temporary = tempfile.mkstemp(dir=self.folder / kind, prefix=".")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                os.replace(temporary, self.folder / kind / name)
            except BaseException:
                os.unlink(temporary)
                raise
        except OSError as error:
            log.warning("an object could not be cached in %s: %s", self.folder, error.strerror)


def object_cache() -> ObjectCache:
    """The cache that the environment names."""
    return _cache_in(paths.object_cache())


@cache
def _cache_in(folder: Path) -> ObjectCache:
    return ObjectCache(folder)
