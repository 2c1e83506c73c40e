"""Objects to a shared library, by a linker that comes from a package (ziglang) or with the system's C compiler."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tunegen import knobs
from tunegen.errors import FreezeError
from tunegen.freezing.classes import Platform

_SYSTEM = ("cc", "gcc", "clang")

_OPTIONS = (
    # no start files and no libraries: what is undefined is found in the program that loads this
    "-shared", "-nostdlib", "-Wl,-s", "-Wl,--build-id=none", "-Wl,--hash-style=gnu", "-Wl,-z,noexecstack",
    "-Wl,-z,relro", "-Wl,-z,now",
)  # fmt: skip


class Linker(NamedTuple):
    """What links: its name for people, and the command that objects and options are added to."""

    name: str
    command: tuple[str, ...]


def find_linker(platform: Platform, *, native: bool) -> Linker:
    """A linker for a platform, which is this box's when it is `native`. Raises `FreezeError`."""
    if importlib.util.find_spec("ziglang") is not None:
        return Linker("ziglang", (sys.executable, "-m", "ziglang", "cc", "-target", platform.name))
    names = [*(_SYSTEM if native else ()), f"{platform.name}-gcc"]
    for name in names:
        if path := shutil.which(name):
            return Linker(name, (path,))
    raise FreezeError(
        f"there is no linker for {platform.name}: install the package ziglang (the extra tunegen[freeze]), or a C "
        f"compiler of the system: one of {', '.join(names)}"
    )


def link_shared(linker: Linker, images: Sequence[bytes], exports: Sequence[str], soname: str) -> bytes:
    """A shared library of these objects that offers `exports` alone. Raises `FreezeError` with the linker's words."""
    with tempfile.TemporaryDirectory(prefix="tunegen-") as folder:
        names = [f"{number:05}.o" for number in range(len(images))]
        for name, image in zip(names, images, strict=True):
            (Path(folder) / name).write_bytes(image)
        listed = "".join(f"{name}; " for name in exports)
        (Path(folder) / "exports").write_text(f"{{ global: {listed}local: *; }};\n")
        options = (*_OPTIONS, "-Wl,--version-script=exports", f"-Wl,-soname,{soname}")
        command = [*linker.command, *options, *names, "-o", "linked"]
        # in a home that cannot be written to, ziglang would look for a place for its caches for ever
        caches = dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), str(Path(folder) / "zig"))
        try:
            done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False,
                                  env=knobs.child_environment(**caches))  # fmt: skip
        except OSError as error:
            raise FreezeError(f"{linker.name} does not start: {error}") from None
        if done.returncode:
            words = done.stderr.decode(errors="replace").strip()
            raise FreezeError(f"{linker.name} could not link {soname}: {words or f'exit code {done.returncode}'}")
        return (Path(folder) / "linked").read_bytes()
