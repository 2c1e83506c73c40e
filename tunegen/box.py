"""The box: what identifies the machine that a choice was made on, and how two of them differ."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from tunegen import forks, knobs, log, system
from tunegen.digest import sha256
from tunegen.features import KNOWN, without

UNLISTED = {
    "icelake-server": "icelake-client",
    "rocketlake": "icelake-client",
    "tigerlake": "icelake-client",
    "cooperlake": "cascadelake",
    "emeraldrapids": "sapphirerapids",
    "graniterapids": "sapphirerapids",
    "graniterapids-d": "graniterapids",
    "raptorlake": "alderlake",
    "meteorlake": "alderlake",
    "cortex-a76": "armv8.2a",
    "cortex-a77": "cortex-a76",
    "cortex-a78": "cortex-a77",
    "cortex-x1": "cortex-a77",
}
"""What CPUs descend from for which LLVM has a name and archspec has none, in LLVM's names."""

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


class Difference(msgspec.Struct, frozen=True):
    """One field in which two boxes differ; features are listed as `+new` and `-missing`."""

    field: str
    theirs: str
    ours: str

    def __str__(self) -> str:
        return f"{self.field}: {self.theirs} there, {self.ours} here"


def differences(theirs: Box, ours: Box, *, ignore_threads: bool = False) -> list[Difference]:
    """Field by field, what keeps two boxes from being the same. Empty when they are.

    For a kernel that never uses threads, their number is no difference.
    """
    found = []
    for field in Box.__struct_fields__:
        a, b = getattr(theirs, field), getattr(ours, field)
        if a == b or (ignore_threads and field == "threads"):
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
    """How many threads a kernel may use: `TUNE_THREADS`, else what this process is allowed, counted in whole cores.

    The executor, the tuner and the look-up of manifests all use this number.
    """
    wanted = knobs.THREADS.get()
    return wanted if wanted is not None else threads_for(system.allowed_cpus())


@cache
def threads_for(allowed: tuple[int, ...], root: Path = system.ROOT) -> int:
    """How many threads logical CPUs are good for: one per physical core, limited by the control groups' quota.

    A second hardware thread of a core adds little to code that keeps its vector units busy. The answer is that of the
    first time, so that a quota that is changed meanwhile does not turn a running process into one of another box.
    """
    cores = _cores(allowed, root)
    return max(1, min(cores, system.cgroup_quota(root) or cores))


@cache
def _cores(allowed: tuple[int, ...], root: Path) -> int:
    return system.physical_cores(allowed, root)


class _Target(msgspec.Struct, frozen=True):
    """What is needed of an entry of archspec's table."""

    parents: list[str] = msgspec.field(default_factory=list, name="from")
    compilers: dict[str, list[dict[str, str]]] = {}


class _Table(msgspec.Struct, frozen=True):
    microarchitectures: dict[str, _Target]


@cache
def ancestry(cpu: str) -> tuple[str, ...]:
    """Microarchitecture of a CPU name and its ancestors, nearest first, in LLVM's names; () when unknown."""
    targets = _targets()
    for name, target in targets.items():
        if cpu in (name, _clang_name(name, target)):
            return (cpu, *dict.fromkeys(_clang_name(a, targets[a]) for a in _ancestors(name, targets)))
    return (cpu, *ancestry(UNLISTED[cpu])) if cpu in UNLISTED else ()


@cache
def _targets() -> dict[str, _Target]:
    """archspec's table. Its file is read directly: importing what archspec makes of it takes twenty times as long."""
    import archspec

    path = Path(archspec.__file__).parent / "json/cpu/microarchitectures.json"
    return msgspec.json.decode(path.read_bytes(), type=_Table).microarchitectures


def _ancestors(name: str, targets: Mapping[str, _Target]) -> tuple[str, ...]:
    """The parents, then theirs."""
    parents = targets[name].parents
    return tuple(dict.fromkeys((*parents, *(a for parent in parents for a in _ancestors(parent, targets)))))


def _clang_name(name: str, target: _Target) -> str:
    """What the newest clang calls an archspec target: entries are ranges of versions, each with a name or a flag."""
    newest: dict[str, str] = max(
        target.compilers.get("clang", []),
        key=lambda e: [*map(int, re.findall(r"\d+", e["versions"].split(":")[0]))],
        default={},
    )
    flag = re.search(r"-mcpu=([\w.-]+)", newest.get("flags", ""))
    return str(newest.get("name") or (flag[1] if flag else name))


def information() -> dict[str, Any]:
    """What is known about this box but does not identify it: ancestry, caches in bytes, cores, the system.

    `cores` and `logical_threads` are those that the process may use, whatever its quota.
    """
    allowed = system.allowed_cpus()
    return {
        "ancestry": list(ancestry(this_box().cpu)),
        "cache_bytes": system.caches(),
        "cores": _cores(allowed, system.ROOT),
        "logical_threads": len(allowed),
        "system": platform.system().lower(),
    }


@cache
def _host() -> tuple[str, str, frozenset[str]]:
    try:
        import llvmlite.binding as llvm

        with forks.LOCK:
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
    vendor, family, model = cpu_numbers(system.cpu_fields())
    return Box(platform.machine().lower(), vendor, family, model, cpu, tuple(sorted(features)), threads)


def _off(on: frozenset[str]) -> frozenset[str]:
    """Features of the real CPU that are masked: LLVM would switch them on again with the CPU's name."""
    return _host()[2] - on


def cpu_numbers(fields: Mapping[str, str]) -> tuple[str, str, str]:
    """Vendor, family and model from the fields of /proc/cpuinfo: of x86, else of AArch64."""
    vendor = fields.get("vendor_id") or fields.get("CPU implementer") or platform.system().lower()
    family = fields.get("cpu family") or fields.get("CPU architecture") or "unknown"
    model = fields.get("model") or fields.get("CPU part") or "unknown"
    return VENDORS.get(vendor, vendor), family, model
