"""Who sends a SIGKILL: the system's memory killer, or somebody else. Linux counts the former's victims.

The count of the control group is exact: it has those processes in it that any memory killer of the system ended. The
count of the whole system, where there is no other, has everybody's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

Killer = Literal["memory", "somebody", "unknown"]


class Victims(NamedTuple):
    """How many processes the memory killer ended so far: in this control group, and on this system. None: not known."""

    group: int | None
    system: int | None


def victims(root: Path = Path("/")) -> Victims:
    """The counts as they are now. `root` is where `proc` and `sys` are."""
    return Victims(_in_group(root), _count(root / "proc" / "vmstat", "oom_kill"))


def killer(before: Victims, after: Victims) -> Killer:
    """Who killed a process of this group in between."""
    if before.group is not None and after.group is not None:
        return "memory" if after.group > before.group else "somebody"
    if before.system is not None and before.system == after.system:
        return "somebody"
    return "unknown"


def _in_group(root: Path) -> int | None:
    try:
        lines = (root / "proc" / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            # in a container the path may be that of the host, and its own group the root
            for folder in (path.lstrip("/"), ""):
                if (found := _count(root / "sys/fs/cgroup" / folder / "memory.events", "oom_kill")) is not None:
                    return found
        elif "memory" in controllers.split(","):
            for folder in (path.lstrip("/"), ""):
                place = root / "sys/fs/cgroup/memory" / folder / "memory.oom_control"
                if (found := _count(place, "oom_kill")) is not None:
                    return found
    return None


def _count(path: Path, name: str) -> int | None:
    """The number behind a name in a file of lines `name number`."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        word, _, number = line.partition(" ")
        if word == name and number.strip().isdecimal():
            return int(number)
    return None
