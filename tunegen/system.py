"""What Linux says of the machine, below a root folder, so that the recorded files of other machines can be read too.

Nothing here raises for what a file holds or lacks: other systems have none of these files.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator
from pathlib import Path

ROOT = Path("/")
CPUS = Path("sys/devices/system/cpu")
CGROUPS = Path("sys/fs/cgroup")


def allowed_cpus() -> tuple[int, ...]:
    """The numbers of the logical CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def cpu_fields(root: Path = ROOT) -> dict[str, str]:
    """What /proc/cpuinfo says of the first CPU that it lists."""
    try:
        with (root / "proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            first = file.read(16384).strip().split("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}


def physical_cores(allowed: Collection[int], root: Path = ROOT) -> int:
    """How many cores the allowed logical CPUs are on: hardware threads of one core count once, one without word of its
    siblings counts for itself.
    """
    seen, cores = set[int](), 0
    for cpu in allowed:
        if cpu not in seen:
            cores += 1
            seen.update((cpu, *listed(_text(root / CPUS / f"cpu{cpu}/topology/thread_siblings_list"))))
    return cores


def listed(text: str) -> tuple[int, ...]:
    """The numbers in a list of the kernel's, such as `0-3,8`; () when it is none."""
    found: list[int] = []
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        if not first.isdigit() or not (last or first).isdigit():
            return ()
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


def cgroup_quota(root: Path = ROOT) -> int | None:
    """Whole CPUs that the control groups of this process allow it, rounded up; None without a quota.

    Each group is within its parents, so that the smallest quota on the way up holds. In a container, the path that the
    process is told may be the host's: then the root of what is mounted is the container's own group.
    """
    shares = [share for text in _quotas(root) if (share := _share(text)) is not None]
    return math.ceil(min(shares)) if shares else None


def _quotas(root: Path) -> Iterator[str]:
    """Quota and period of each group that this process is in, as `150000 100000`."""
    for line in (_text(root / "proc/self/cgroup") or "0::/\n1:cpu:/").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if number == "0" and not controllers:
            for folder in _upwards(root / CGROUPS, group):
                yield _text(folder / "cpu.max")
        elif "cpu" in controllers.split(","):
            for name in dict.fromkeys(("cpu", controllers)):
                for folder in _upwards(root / CGROUPS / name, group):
                    yield f"{_text(folder / 'cpu.cfs_quota_us')} {_text(folder / 'cpu.cfs_period_us')}"


def _upwards(base: Path, group: str) -> Iterator[Path]:
    """The folder of a group and those of its parents, up to `base`."""
    parts = [part for part in group.split("/") if part not in ("", "..")]
    return (base.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1))


def _share(text: str) -> float | None:
    quota, period = (*text.split(), "", "")[:2]
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(quota) and int(period) else None


def caches(root: Path = ROOT) -> dict[str, int]:
    """Bytes of each level of data cache that the first CPU reaches: `{"l1": 32768, ...}`."""
    found = {}
    for index in sorted((root / CPUS / "cpu0/cache").glob("index*")):
        level, kind, size = (_text(index / name) for name in ("level", "type", "size"))
        if size.endswith("K") and size[:-1].isdigit() and kind != "Instruction":
            found[f"l{level}"] = int(size[:-1]) * 1024
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
