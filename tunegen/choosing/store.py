"""Manifests as files: read without a lock, written under one; merged, atomic, durable."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from tunegen import log
from tunegen.box import Box, Difference, differences
from tunegen.choosing import document
from tunegen.choosing.document import Entry, Manifest
from tunegen.errors import StoreError

SUFFIX = ".tune.json"
LOCK_TIMEOUT_S = 20.0


def read(path: Path) -> Manifest:
    """Reads a manifest. Takes no lock and never raises: `status` and `problem` say what there was."""
    try:
        if path.stat().st_size > document.MAX_BYTES:
            return Manifest(str(path), "malformed", f"larger than {document.MAX_BYTES} bytes")
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return Manifest(str(path), "not_found", "no such file")
    except (OSError, ValueError) as error:
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


def write(path: Path, box: Box, information: dict[str, Any], scope: str, key: str, entry: Entry) -> None:
    """Adds `entry` to the manifest at `path`, on top of what other writers put there.

    A file that cannot be read is set aside, never destroyed. Raises `StoreError` when the lock is held for too long,
    the file has a newer format or belongs to another box, or the disk refuses.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            raw = _readable(path, box)
            described = {**msgspec.to_builtins(box), "information": information}
            _replace(path, document.encode(document.merged(raw, described, scope, key, entry)))
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from None


def _readable(path: Path, box: Box) -> dict[str, Any]:
    """The JSON object at `path`, which is ours to extend; {} when there is none."""
    manifest = read(path)
    if manifest.status == "not_found":
        return {}
    if manifest.status == "newer":
        raise StoreError(f"{path} is left alone: {manifest.problem}")
    if manifest.status != "loaded":
        aside = _free_name(path)
        os.replace(path, aside)
        log.warning("%s could not be read (%s); it is kept as %s", path, manifest.problem, aside.name)
        return {}
    if manifest.box is not None and (unlike := differences(manifest.box, box)):
        raise StoreError(f"{path} belongs to another box ({'; '.join(map(str, unlike))}); name another file")
    raw: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    return raw


def _free_name(path: Path) -> Path:
    names = (path.with_name(f"{path.name}.unreadable{n or ''}") for n in range(1_000_000))
    return next(name for name in names if not name.exists())


def _replace(path: Path, data: bytes) -> None:
    checked = document.decode(data, str(path))
    if checked.status != "loaded":
        raise StoreError(f"{path} is not written, because the result could not be read back: {checked.problem}")
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
def _locked(path: Path) -> Iterator[None]:
    import filelock

    holder = path.with_name(f".{path.name}.holder")
    lock = filelock.FileLock(path.with_name(f".{path.name}.lock"))
    try:
        lock.acquire(timeout=LOCK_TIMEOUT_S)
    except filelock.Timeout:
        try:
            who = holder.read_text(encoding="utf-8")
        except OSError:
            who = "an unknown process"
        raise StoreError(f"{path} has been locked for {LOCK_TIMEOUT_S:g} s by {who}; try again") from None
    try:
        with suppress(OSError):
            holder.write_text(f"process {os.getpid()} on {os.uname().nodename}", encoding="utf-8")
        yield
    finally:
        with suppress(OSError):
            holder.unlink()
        lock.release()
