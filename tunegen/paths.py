"""Where files live: the user's and the system's manifests, and the object cache."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tunegen import knobs

T = TypeVar("T")

NOWHERE = Path(os.devnull, "no-home-directory", "tunegen")
"""A folder that nothing is in and that cannot be made."""


def user_manifests() -> Path:
    """Folder of this user's manifests: `TUNE_HOME`, else the platform's data folder."""
    return knobs.HOME.get() or _platform("user_data_dir")


def system_manifests() -> Path:
    """Folder of the manifests that an administrator puts there for all users."""
    return _platform("site_data_dir")


def all_system_manifests() -> list[Path]:
    """Every folder where an administrator may have put manifests; `system_manifests` is the first.

    A desktop's session often has more of them than the administrator's shell, and in another order.
    """
    import platformdirs

    found = platformdirs.site_data_dir("tunegen", appauthor=False, multipath=True)
    return [Path(folder).absolute() for folder in found.split(os.pathsep)]


def object_cache() -> Path:
    """Folder of the object cache: `TUNE_CACHE`, else the platform's cache folder."""
    return knobs.CACHE.get() or _platform("user_cache_dir")


def _platform(kind: str) -> Path:
    """A folder that the platform names: `NOWHERE` for a user without a home, as a container's may be."""
    import platformdirs

    try:
        folder = Path(getattr(platformdirs, kind)("tunegen", appauthor=False))
    except RuntimeError:
        return NOWHERE
    return folder if folder.is_absolute() else NOWHERE


def private_folder(folder: Path) -> str:
    """Makes `folder` for this user alone (mode 0700). Returns why it cannot be trusted, or ""."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        return f"{folder} cannot be used: {error.strerror}"
    if os.name != "posix":
        return ""
    if status.st_uid != os.getuid():
        return f"{folder} belongs to another user (uid {status.st_uid})"
    if status.st_mode & 0o022:
        return f"others can write to {folder} (mode {status.st_mode & 0o777:04o}); make it 0700"
    return _replaceable(folder)


def _replaceable(folder: Path) -> str:
    """Why others could put a folder of theirs in the place of `folder`, or ""."""
    for above in folder.parents:
        try:
            mode = above.stat().st_mode
        except OSError:
            continue
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return f"others can replace {folder}: they can write to {above} (mode {mode & 0o7777:04o})"
    return ""


def as_json(value: Any) -> bytes:
    """JSON for others to read. A byte of a path that is no UTF-8 becomes a question mark, for JSON cannot hold it."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        import json

        return json.dumps(msgspec.to_builtins(value), ensure_ascii=False).encode(errors="replace")


def read_plain(path: Path, most_bytes: int) -> bytes:
    """The bytes of a file that may be anything: not of a pipe or a device, and not of a file without end.

    Raises `OSError`, also for what is no plain file (EINVAL) or has more than `most_bytes` (EFBIG).
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        raise OSError(errno.EINVAL, "it is no plain file", str(path))
    if status.st_size > most_bytes:
        raise OSError(errno.EFBIG, f"larger than {most_bytes} bytes", str(path))
    return path.read_bytes()


def read_record(path: Path, most_bytes: int, type_: type[T]) -> T | None:
    """A JSON file of ours that whoever deletes or damages it loses nothing by; None when it cannot be read."""
    with suppress(OSError, msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return msgspec.json.decode(read_plain(path, most_bytes), type=type_)
    return None
