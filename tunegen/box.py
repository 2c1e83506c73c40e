"""The box: what identifies the machine that a choice was made on, and how two of them differ."""

from __future__ import annotations

import math
import os
import platform
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tunegen import knobs, log
from tunegen.digest import sha256
from tunegen.features import KNOWN, without

VENDORS = {"AuthenticAMD": "amd", "GenuineIntel": "intel", "0x41": "arm", "0x61": "apple", "0x51": "qualcomm"}
"""Short names for what /proc/cpuinfo calls a vendor (x86) or an implementer (AArch64)."""


class Box(msgspec.Struct, frozen=True):
    """Identity of a box. Two boxes are the same when all these fields are equal."""

    architecture: str
    vendor: str
    family: str
    model: str
    cpu: str
    features: tuple[str, ...]
    threads: int

    @property
    def feature_set(self) -> frozenset[str]:
        """The features, for look-ups."""
        return frozenset(self.features)

    @property
    def limits(self) -> dict[str, int]:
        """What the constraint of a grid may ask of a box: its vector registers, and bytes of the widest.

        Empty where they are not known. The length of SVE registers is not, so there the width is that of NEON.
        """
        if self.architecture in ("x86_64", "amd64"):
            has = self.feature_set
            registers, width = (32, 64) if "avx512f" in has else (16, 32) if "avx" in has else (16, 16)
            return {"registers": registers, "vector_bytes": width}
        return {"registers": 32, "vector_bytes": 16} if self.architecture in ("aarch64", "arm64") else {}

    @property
    def id(self) -> str:
        """Eight hexadecimal digits of the identity."""
        return sha256(msgspec.json.encode(self)).hexdigest()[:8]

    @property
    def file_name(self) -> str:
        """Name of this box's manifest: `znver4-t2-1a2b3c4d.tune.json`."""
        return f"{self.cpu}-t{self.threads}-{self.id}.tune.json"

    @property
    def target_features(self) -> str:
        """LLVM's feature text: every known name switched on or off."""
        on = self.feature_set
        return ",".join(f"+{name}" for name in self.features) + "".join(f",-{name}" for name in sorted(_off(on)))


class Difference(NamedTuple):
    """One field in which two boxes differ; features are listed as `+new` and `-missing`."""

    field: str
    theirs: str
    ours: str

    def __str__(self) -> str:
        return f"{self.field}: {self.theirs} there, {self.ours} here"


def differences(theirs: Box, ours: Box) -> list[Difference]:
    """Field by field, what keeps two boxes from being the same. Empty when they are."""
    found = []
    for field in Box.__struct_fields__:
        a, b = getattr(theirs, field), getattr(ours, field)
        if a == b:
            continue
        if field == "features":
            a, b = (
                " ".join(f"+{name}" for name in sorted(set(x) - set(y))) or "none more" for x, y in ((a, b), (b, a))
            )
        found.append(Difference(field, str(a), str(b)))
    return found


def this_box() -> Box:
    """The box that this process runs on, as `TUNE_FEATURES` and `TUNE_THREADS` present it. Never raises for a CPU."""
    return _detect(knobs.FEATURES.get(), effective_threads())


def process_triple() -> str:
    """LLVM's triple of this process; "" without llvmlite."""
    return _host()[0]


def effective_threads() -> int:
    """How many threads a kernel may use: `TUNE_THREADS`, else the affinity mask, limited by the cgroup's quota."""
    wanted = knobs.THREADS.get()
    if wanted is not None:
        return wanted
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(allowed, _cgroup_quota() or allowed))


def ancestry(cpu: str) -> tuple[str, ...]:
    """Microarchitecture of a CPU name and its ancestors, nearest first, in LLVM's names; () when unknown."""
    import archspec.cpu

    for target in archspec.cpu.TARGETS.values():
        if cpu in (target.name, _clang_name(target)):
            return (cpu, *dict.fromkeys(_clang_name(a) for a in target.ancestors))
    return ()


def _clang_name(target: Any) -> str:
    """What the newest clang calls an archspec target: entries are ranges of versions, each with a name or a flag."""
    entries = target.compilers.get("clang", [])
    newest: dict[str, str] = max(
        entries, key=lambda e: [*map(int, re.findall(r"\d+", e["versions"].split(":")[0]))], default={}
    )
    flag = re.search(r"-mcpu=([\w.-]+)", newest.get("flags", ""))
    return str(newest.get("name") or (flag[1] if flag else target.name))


def information() -> dict[str, Any]:
    """What is known about this box but does not identify it: ancestry, caches in bytes, cores, the system."""
    caches = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (_text(index / name) for name in ("level", "type", "size"))
        if size.endswith("K") and kind != "Instruction":
            caches[f"l{level}"] = int(size[:-1]) * 1024
    return {
        "ancestry": list(ancestry(this_box().cpu)),
        "cache_bytes": caches,
        "cores": os.cpu_count() or 1,
        "system": platform.system().lower(),
    }


@cache
def _host() -> tuple[str, str, frozenset[str]]:
    try:
        import llvmlite.binding as llvm

        features = frozenset(name for name, on in llvm.get_host_cpu_features().items() if on)
        return llvm.get_process_triple(), llvm.get_host_cpu_name(), features
    except (ImportError, OSError, RuntimeError) as error:
        log.info("the CPU is unknown, because llvmlite does not work here: %s", error)
        return "", "unknown", frozenset()


@cache
def _detect(changes: str, threads: int) -> Box:
    _, cpu, features = _host()
    for change in changes.replace(" ", "").split(","):
        sign, name = change[:1], change[1:]
        if not change:
            continue
        if sign not in "+-" or name not in KNOWN:
            log.warning("TUNE_FEATURES: %r is ignored; write -name or +name with a feature name of LLVM", change)
        elif sign == "-":
            features = without(features, name)
        else:
            log.warning("TUNE_FEATURES forces %s: code for it ends the process where the CPU lacks it", name)
            features |= {name}
    vendor, family, model = _cpu_numbers()
    return Box(platform.machine().lower(), vendor, family, model, cpu, tuple(sorted(features)), threads)


def _off(on: frozenset[str]) -> frozenset[str]:
    """Features of the real CPU that are masked: LLVM would switch them on again with the CPU's name."""
    return _host()[2] - on


def _cpu_numbers() -> tuple[str, str, str]:
    fields = dict(_cpuinfo_fields())
    vendor = fields.get("vendor_id") or fields.get("CPU implementer") or platform.system().lower()
    family = fields.get("cpu family") or fields.get("CPU architecture") or "unknown"
    model = fields.get("model") or fields.get("CPU part") or "unknown"
    return VENDORS.get(vendor, vendor), family, model


def _cpuinfo_fields() -> Iterator[tuple[str, str]]:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            first = file.read(8192).split("\n\n")[0]
    except OSError:
        return
    for line in first.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            yield key.strip(), value.strip()


def _cgroup_quota() -> int | None:
    """Whole CPUs that the cgroup's quota allows, rounded up; None without a quota."""
    quota, period = (*_text(Path("/sys/fs/cgroup/cpu.max")).split(), "", "")[:2]
    if not quota:
        quota = _text(Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"))
        period = _text(Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us"))
    if quota.isdigit() and period.isdigit() and int(period) and int(quota):
        return math.ceil(int(quota) / int(period))
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
