"""The object cache: two levels of small files that many processes share.

`index/<key>` says what rendering and compiling one variant came to (an object's digest, or a decline), and of which
template files, with their hashes. `objects/<digest>` is the object. Files are written whole under another name and
moved into place, so a reader sees all of one or nothing; whoever comes second overwrites with the same bytes. A file
may go at any time: what refers to it is then made again.

The time of a file says when it was used last. Whoever writes more than the limit allows takes the oldest away.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec

from tunegen import knobs, log, paths
from tunegen.digest import sha256

KINDS = ("index", "objects")
LOOK_AGAIN = 16
"""A process counts the bytes in the cache anew after it wrote this part of the limit: others write, too."""
ABANDONED_NS = 3600 * 10**9
"""A file under a temporary name that is older than others by this was left by a writer that was killed."""
INSTEAD = "each start compiles anew unless TUNE_CACHE names another folder"
LEFT_OVER = 0.75
"""What is left of the limit when a writer has to make room, so that not every write has to."""


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one variant: the object's digest, or why it declined. `symbol` says of which one."""

    templates: dict[str, str]
    object: str = ""
    declined: str = ""
    symbol: str = ""


class File(msgspec.Struct, frozen=True):
    """A file of the cache; `used_ns` is the file system's time of its last use."""

    path: str
    size_bytes: int
    used_ns: int

    @property
    def temporary(self) -> bool:
        """Whether it is being written, or was when its writer was killed."""
        return os.path.basename(self.path).startswith(".")


class Removed(msgspec.Struct, frozen=True):
    """How many files were taken away, and what is left."""

    files: int
    freed_bytes: int
    left_bytes: int


class ObjectCache:
    """A cache in one folder; without a trustworthy folder it keeps nothing, and says so once.

    `limit_bytes` is how large it may become; None for no limit.
    """

    def __init__(self, folder: Path, limit_bytes: int | None = None) -> None:
        # every link is followed once, now: nobody can lead it elsewhere after the check
        self.folder: Path | None = Path(os.path.realpath(folder))
        self.limit_bytes = limit_bytes
        self.problem = ""
        self._known_bytes: int | None = None
        self._written_bytes = 0
        for part in (self.folder, *(self.folder / kind for kind in KINDS)):
            if reason := paths.private_folder(part):
                log.warning("objects are not cached: %s; %s", reason, INSTEAD)
                self.folder, self.problem = None, reason
                break

    def record(self, key: str, *, use: bool = True) -> Record | None:
        """The record under a key; None when it is missing or damaged. Just to look at it is no use of it."""
        data = self._read("index", key, use=use)
        try:
            return msgspec.json.decode(data, type=Record) if data is not None else None
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
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

    def files(self, kind: str) -> list[File]:
        """The files of a kind, and what writers that were killed left among them."""
        found: list[File] = []
        if self.folder is None:
            return found
        with suppress(OSError), os.scandir(self.folder / kind) as entries:
            for entry in entries:
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    found.append(File(entry.path, status.st_size, status.st_mtime_ns))
        return found

    def prune(self, limit_bytes: int) -> Removed:
        """Takes away what was used least recently until `limit_bytes` are left at most.

        Others may read and write meanwhile: a file that goes is a miss for them, and one that is being written stays.
        """
        files = sorted((file for kind in KINDS for file in self.files(kind)), key=lambda file: file.used_ns)
        left, removed, freed = sum(file.size_bytes for file in files), 0, 0
        for file in files:
            if left <= limit_bytes:
                break
            if file.temporary and files[-1].used_ns - file.used_ns < ABANDONED_NS:
                continue
            try:
                os.unlink(file.path)
                removed, freed = removed + 1, freed + file.size_bytes
            except FileNotFoundError:
                pass  # somebody else makes room, too
            except OSError:
                continue
            left -= file.size_bytes
        return Removed(removed, freed, left)

    def _read(self, kind: str, name: str, *, use: bool = True) -> bytes | None:
        if self.folder is None or not name.isalnum():
            return None
        path = self.folder / kind / name
        try:
            data = path.read_bytes()
        except OSError:
            return None
        if use:
            with suppress(OSError):
                os.utime(path)
        return data

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
                with suppress(OSError):
                    os.unlink(temporary)
                raise
        except OSError as error:
            self._refuse(f"an object could not be cached in {self.folder}: {error.strerror}")
            return
        self._keep_to_limit(len(data))

    def _refuse(self, problem: str) -> None:
        """Says what keeps objects from being cached, once: the next one most likely meets the same."""
        if problem != self.problem:
            log.warning("%s", problem)
        self.problem = problem

    def _keep_to_limit(self, written_bytes: int) -> None:
        """Makes room when the cache has become too large, as far as this process knows."""
        if self.limit_bytes is None:
            return
        self._written_bytes += written_bytes
        if self._known_bytes is not None:
            self._known_bytes += written_bytes
        if self._known_bytes is None or self._written_bytes * LOOK_AGAIN > self.limit_bytes:
            self._known_bytes = sum(file.size_bytes for kind in KINDS for file in self.files(kind))
            self._written_bytes = 0
        if self._known_bytes > self.limit_bytes:
            self._known_bytes = self.prune(int(self.limit_bytes * LEFT_OVER)).left_bytes


def object_cache() -> ObjectCache:
    """The cache that the environment names."""
    return _cache_in(paths.object_cache(), knobs.CACHE_LIMIT.get())


@cache
def _cache_in(folder: Path, limit_bytes: int) -> ObjectCache:
    return ObjectCache(folder, limit_bytes)
