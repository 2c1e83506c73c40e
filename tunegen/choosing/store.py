"""Manifests as files: read without a lock, written under one; merged, atomic, durable."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from tunegen import forks, log, paths
from tunegen.box import Box, Difference, differences
from tunegen.choosing import document
from tunegen.choosing.document import Entry, Manifest, Place, Predicate
from tunegen.choosing.values import place_of, values_entry
from tunegen.errors import StoreError
from tunegen.parameters import Key, Value

SUFFIX = ".tune.json"
LOCK_TIMEOUT_S = 20.0
READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
TEMPORARY_LETTERS = 8
"""How many letters `tempfile` puts behind a prefix."""
HEX = frozenset("0123456789abcdef")


class Change(msgspec.Struct, frozen=True):
    """What a write did to a manifest: `updated` entries are new or newly written, `preserved` ones are as they were,
    `pruned` ones are gone. True in a condition when anything was done.
    """

    path: str
    updated: tuple[Place, ...] = ()
    preserved: tuple[Place, ...] = ()
    pruned: tuple[Place, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.updated or self.pruned)


def read(path: Path) -> Manifest:
    """Reads a manifest. Takes no lock and never raises: `status` and `problem` say what there was."""
    try:
        data = paths.read_plain(path, document.MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return Manifest(str(path), "not_found", "no such file")
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) == errno.EFBIG:
            return Manifest(str(path), "malformed", str(error.args[1]))
        return Manifest(str(path), "unreadable", getattr(error, "strerror", None) or str(error))
    return document.decode(data, str(path))


def nearest(folder: Path, box: Box) -> tuple[Path, list[Difference]] | None:
    """The manifest of another box in `folder` that differs from `box` in the fewest fields."""
    found = []
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(SUFFIX))
    except OSError:
        return None
    for path in (folder / name for name in names):
        manifest = read(path)
        if manifest.box is not None and (unlike := differences(manifest.box, box)):
            found.append((path, unlike))
    return min(found, key=lambda item: len(item[1]), default=None)


def siblings(folder: Path, box: Box, prefix: str = "") -> list[Manifest]:
    """The manifests in `folder` of this box as another LLVM names its features, and then those of the same box with
    other numbers of threads, the nearest number first.

    Their names, after `prefix`, are those of a box with this CPU, so no other file is opened.
    """
    head = f"{prefix}{box.cpu}-t"
    try:
        names = [name for name in os.listdir(folder) if name.startswith(head) and _is_rest(name.removeprefix(head))]
    except OSError:
        return []
    found = []
    for name in sorted(names):
        manifest = read(folder / name) if name != prefix + box.file_name else None
        theirs = manifest.box if manifest is not None else None
        if manifest is not None and theirs is not None:
            unlike = [difference.field for difference in differences(theirs, box)]
            found += [(abs(theirs.threads - box.threads), manifest)] if unlike in (["features"], ["threads"]) else []
    return [manifest for _, manifest in sorted(found, key=lambda item: item[0])]


def _is_rest(text: str) -> bool:
    """Whether this is what follows "-t" in the name of a box's manifest: `2-1a2b3c4d.tune.json`.

    An application may be called `mine-znver4-t2`, and its files are not those of an application `mine`.
    """
    threads, _, identity = text.removesuffix(SUFFIX).partition("-")
    number = threads.isascii() and threads.isdecimal()
    return number and text.endswith(SUFFIX) and len(identity) == 8 and set(identity) <= HEX


def write(
    path: Path,
    box: Box,
    information: dict[str, Any],
    scope: str,
    key: str,
    entry: Entry,
    *,
    timeout_s: float | None = None,
) -> Change:
    """Adds `entry` to the manifest at `path`, on top of what other writers put there.

    A file that cannot be read is set aside, never destroyed. Raises `StoreError` when the lock is held for longer than
    `timeout_s` (None: 20 s), the file has a newer format or belongs to another box, or the disk refuses.
    """
    return update(path, box, information, scope, key, lambda entries: entry, timeout_s=timeout_s)


def update(
    path: Path, box: Box, information: dict[str, Any], scope: str, key: str,
    compute: Callable[[list[Entry]], Entry], *, timeout_s: float | None = None,
) -> Change:  # fmt: skip
    """Adds the entry that `compute` makes of those that the list of `key` has, as they are while the lock is held.

    What `compute` raises is raised before anything is written. Raises `StoreError` as `write` does.
    """
    with _refusals(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # a child that was forked meanwhile would hold the lock of the file, too
        with _locked(path, timeout_s), forks.LOCK:
            listed = read(path).scopes.get(scope, {}).get(key, ())
            entry = compute([found for found in listed if isinstance(found, Entry)])
            before = _readable(path, box)
            described = {**msgspec.to_builtins(box), "information": information}
            after = document.merged(before, described, scope, key, entry)
            _replace(path, document.encode(after))
    return _change(path, before, after, Place(scope, key, entry.kind, entry.digest))


def check(path: Path, box: Box) -> None:
    """Finds out whether `write` could write now, for who has hours of work before that. Raises `StoreError` as it does.

    The folder is made, and the manifest is not touched.
    """
    import tempfile

    with _refusals(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path), forks.LOCK:
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            os.close(handle)
            os.unlink(temporary)
    _refuse(path, read(path), box)


def set_values(
    path: Path, box: Box, information: dict[str, Any], key: Key,
    compute: Callable[[list[Entry]], Mapping[str, Value]], evidence: Mapping[str, Any] | None = None, *,
    timeout_s: float | None = None,
) -> Change:  # fmt: skip
    """Writes the values of `key`'s parameters: a complete set, which `compute` makes of the entries that are there.

    They are read while the lock is held, so that of two processes that set different parameters none is lost;
    `values.base_of` finds the current set among them. Raises what `compute` raises, before anything is written, and
    `StoreError` as `write` does.
    """
    scope, name = place_of(key)
    return update(path, box, information, scope, name,
                  lambda entries: values_entry(key, compute(entries), evidence), timeout_s=timeout_s)  # fmt: skip


def remove(path: Path, gone: Predicate, *, timeout_s: float | None = None) -> Change:
    """Takes the entries that `gone` picks out of the manifest at `path`, of whatever box. No file is no change.

    Raises `StoreError` as `write` does, and for a file that cannot be read (status `unreadable` or `malformed`).
    """
    if read(path).status == "not_found":
        return Change(str(path))
    with _refusals(path), _locked(path, timeout_s), forks.LOCK:
        manifest = read(path)
        if manifest.status not in ("loaded", "not_found"):
            raise StoreError(f"{path} is left alone: {manifest.problem}", manifest.status)
        before: dict[str, Any] = msgspec.json.decode(path.read_bytes()) if manifest.status == "loaded" else {}
        after = document.without(before, gone)
        if before and not after:
            path.unlink()
        elif after != before:
            _replace(path, document.encode(after))
    return _change(path, before, after)


def _change(path: Path, before: dict[str, Any], after: dict[str, Any], written: Place | None = None) -> Change:
    old, new = document.places(before), document.places(after)
    updated = () if written is None else (written,)
    preserved = tuple(place for place in new if place not in updated)
    return Change(str(path), updated, preserved, tuple(place for place in old if place not in new))


@contextmanager
def _refusals(path: Path) -> Iterator[None]:
    """What a disk says no with, as a `StoreError`."""
    try:
        yield
    except (OSError, NotImplementedError, RecursionError) as error:
        number, reason = getattr(error, "errno", None), getattr(error, "strerror", None) or str(error)
        status = "read_only" if number in READ_ONLY else "write_failed"
        raise StoreError(f"{path} cannot be written: {reason}", status) from None


def _readable(path: Path, box: Box) -> dict[str, Any]:
    """The JSON object at `path`, which is ours to extend; {} when there is none."""
    manifest = read(path)
    if manifest.status == "not_found":
        return {}
    _refuse(path, manifest, box)
    if manifest.status != "loaded":
        aside = _free_name(path)
        os.replace(path, aside)
        log.warning("%s could not be read (%s); it is kept as %s", path, manifest.problem, aside.name)
        return {}
    raw: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    return raw


def _refuse(path: Path, manifest: Manifest, box: Box) -> None:
    """Raises `StoreError` for a manifest that is not ours to write: of a newer format, or of another box."""
    if manifest.status == "newer":
        raise StoreError(f"{path} is left alone: {manifest.problem}", "newer")
    if manifest.box is not None and (unlike := differences(manifest.box, box)):
        raise StoreError(f"{path} belongs to another box ({'; '.join(map(str, unlike))}); name another file", "foreign")


def _free_name(path: Path) -> Path:
    names = (path.with_name(f"{path.name}.unreadable{n or ''}") for n in range(1_000_000))
    return next(name for name in names if not name.exists())


def _replace(path: Path, data: bytes) -> None:
    """`replace` for who holds the lock: what is there under the name of a temporary file is of a writer that died."""
    checked = document.decode(data, str(path))
    if checked.status != "loaded":
        raise StoreError(f"{path} is not written, because the result could not be read back: {checked.problem}")
    prefix = f".{path.name}."
    for name in os.listdir(path.parent):
        if name.startswith(prefix) and len(name) == len(prefix) + TEMPORARY_LETTERS:
            with suppress(OSError):
                os.unlink(path.with_name(name))
    replace(path, data)


def replace(path: Path, data: bytes) -> None:
    """Puts `data` at `path` in one step, durably: nobody ever sees a half of it. Raises `OSError`."""
    import tempfile

    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    # the file is in place: a file system that cannot sync a folder does not undo that
    with suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def turn(path: Path, timeout_s: float) -> Iterator[None]:
    """Lets one process at a time do what `path` stands for. The file itself is not touched.

    Raises `StoreError`: `locked` when another process is at it for longer than `timeout_s`, `read_only` where no lock
    can be made.
    """
    with ExitStack() as stack:
        with _refusals(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(_locked(path, timeout_s))
        yield


def _write_note(path: Path, text: str) -> None:
    """Puts a text into a file that is a file: in a folder that others can write to, it may be a link to another one."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0), 0o644)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)


@contextmanager
def _locked(path: Path, timeout_s: float | None = None) -> Iterator[None]:
    import filelock

    forks.go_before("filelock")
    holder, limit_s = path.with_name(f".{path.name}.holder"), LOCK_TIMEOUT_S if timeout_s is None else timeout_s
    lock = filelock.FileLock(path.with_name(f".{path.name}.lock"))
    try:
        lock.acquire(timeout=limit_s)
    except filelock.Timeout:
        try:
            who = holder.read_text(encoding="utf-8")
        except OSError:
            who = "an unknown process"
        raise StoreError(f"{path} has been locked for {limit_s:g} s by {who}; try again", "locked") from None
    try:
        with suppress(OSError):
            _write_note(holder, f"process {os.getpid()} on {os.uname().nodename}")
        yield
    finally:
        with suppress(OSError):
            holder.unlink()
        lock.release()
