"""Whether a silent process hangs, or has no processor: beside a busy program, one of low priority may wait long.

Linux says in which state a process is and how much processor time it has had. Where nothing is said, silence is a hang.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

READY = "RT"
"""States of a process that is at work or waits for a processor, and of one that somebody holds (`man 5 proc`)."""
HANGS_AT = 0.5
"""Who had less than this part of its silence as processor time, and is ready, was kept from work."""


class Seen(NamedTuple):
    """A process at one moment: whether it could go on, and its processor time so far."""

    ready: bool = False
    used_s: float = 0.0


def look(process: int, root: Path = Path("/proc")) -> Seen:
    """The process of this number. `root` is where its folder is."""
    with suppress(OSError, ValueError, IndexError):
        # the name before it, in brackets, may hold anything
        words = (root / str(process) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        ticks = int(words[11]) + int(words[12])
        return Seen(words[0] in READY, ticks / os.sysconf("SC_CLK_TCK"))
    return Seen()


def hangs(before: Seen, now: Seen, silence_s: float) -> bool:
    """Whether a process that is silent for so long, and was seen twice in that time, has had its chance to go on."""
    return not now.ready or now.used_s - before.used_s >= HANGS_AT * silence_s
