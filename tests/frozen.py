"""What the tests of frozen builds share: C programs, emulators, and a Python that has numpy alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tunegen.box import this_box
from tunegen.freezing.classes import PLATFORMS, Platform, host_platform

HOST = host_platform(this_box())
NATIVE = HOST.name if HOST else ""
HERE = [c.name for c in (HOST.classes if HOST else ()) if c.features <= this_box().feature_set]
"""The classes that this CPU belongs to, from the lowest to the highest."""

ARM = PLATFORMS["aarch64-linux-gnu"]


def program(folder: Path, title: str, source: str, platform: Platform | None = HOST) -> Path:
    """Compiles a C program against the library in `folder`. Skips without a C compiler for the platform."""
    names = ["cc", "gcc", "clang"] if platform is HOST else []
    names += [f"{platform.name}-gcc"] if platform else []
    compiler = next(filter(None, map(shutil.which, names)), None)
    if compiler is None:
        pytest.skip(f"no C compiler: {', '.join(names)}")
    (folder / "program.c").write_text(source)
    made = folder / "program"
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fno-builtin"]
    command = [compiler, *flags, "program.c", "-L.", f"-l{title}", f"-Wl,-rpath,{folder}", "-o", str(made)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return made


def output(made: Path, *emulator: str) -> str:
    """What a program prints."""
    done = subprocess.run([*emulator, str(made)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def emulator(platform: Platform, cpu: str) -> list[str]:
    """The command that runs programs of a platform on such a CPU. Skips without the emulator."""
    name = f"qemu-{platform.architecture}-static"
    if (path := shutil.which(name)) is None:
        pytest.skip(f"no {name}")
    return [path, "-cpu", cpu, *(() if platform is HOST else ("-L", f"/usr/{platform.name}"))]


def isolated(folder: Path, frozen: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python code where there is the standard library, numpy and a frozen package, and nothing else."""
    packages = folder / "packages"
    packages.mkdir(exist_ok=True)
    installed = Path(np.__file__).parents[1]
    for name in ("numpy", "numpy.libs"):
        if (installed / name).exists() and not (packages / name).exists():
            (packages / name).symlink_to(installed / name)
    head = f"import sys; sys.path += [{str(packages)!r}, {str(frozen)!r}]\n"
    tail = "\nassert not {'tunegen', 'llvmlite', 'jinja2', 'msgspec'} & set(sys.modules)\n"
    command = [sys.executable, "-I", "-S", "-c", head + code + tail]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, cwd=folder)
