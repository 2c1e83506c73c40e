"""Where files live: the user's and the system's manifests, and the object cache."""

from __future__ import annotations

import os
from pathlib import Path

from tunegen import knobs


def user_manifests() -> Path:
    """Folder of this user's manifests: `TUNE_HOME`, else the platform's data folder."""
    return knobs.HOME.get() or _platform("user_data_dir")


def system_manifests() -> Path:
    """Folder of the manifests that an administrator put there for all users."""
    return _platform("site_data_dir")


def object_cache() -> Path:
    """Folder of the object cache: `TUNE_CACHE`, else the platform's cache folder."""
    return knobs.CACHE.get() or _platform("user_cache_dir")


def _platform(kind: str) -> Path:
    import platformdirs

    return Path(getattr(platformdirs, kind)("tunegen", appauthor=False)).absolute()


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
    return ""
