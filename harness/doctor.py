"""The doctor: whether this box is fit to measure on, read from the system and from a noise probe, and what to do.

Each check reads files below a root, so that it can be tried on any other system's files. What a system does not say is
`unknown`, which is no fault: virtual machines hide most of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from tunegen.box import effective_threads
from tunegen.harness import noise
from tunegen.harness.noise import Noise

State = Literal["ok", "bad", "unknown"]

CPUS = Path("sys/devices/system/cpu")
BUSY_SHARE = 0.25
"""Load per core above which something else is running."""
STEAL_SHARE = 0.01


class Check(msgspec.Struct, frozen=True):
    """One finding: what was looked at, its state, what was read there, and what to do when it is bad."""

    name: str
    state: State
    read: str
    advice: str = ""


class System(msgspec.Struct, frozen=True):
    """Where to read, and what this process may use."""

    root: Path
    cores: tuple[int, ...]
    threads: int

    def text(self, path: Path | str) -> str:
        """A file below the root without blanks around it; "" when it cannot be read."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""


def this_system() -> System:
    """The system that this process runs on."""
    return System(Path("/"), tuple(noise.allowed_cores()), effective_threads())


class Examination(msgspec.Struct, frozen=True):
    """What the doctor found: the verdict of the noise probe, which decides whether a tune may run, and all checks."""

    verdict: noise.Verdict
    noise: Noise
    checks: list[Check]


def examine(system: System, probe: Callable[[], Noise] = noise.probe_quietest) -> Examination:
    """All checks, in the order of their weight. Time stolen by the host is read around the noise probe."""
    before = system.text("proc/stat")
    seen = probe()
    after = system.text("proc/stat")
    checks = [
        noise_check(seen),
        load(system),
        steal(before, after),
        affinity(system),
        quota(system),
        governor(system),
        turbo(system),
        huge_pages(system),
    ]
    return Examination(seen.verdict, seen, checks)


def noise_check(seen: Noise) -> Check:
    """The noise probe."""
    if seen.verdict == "quiet":
        return Check("noise", "ok", f"quiet: gains below {seen.floor:.1%} are chance")
    rest = "a tune asks for larger gains" if seen.verdict == "noisy" else "`tune --noisy-ok` measures all the same"
    advice = f"stop what else runs on this box, or wait and look again; {rest}"
    return Check("noise", "bad", f"{seen.verdict}: {seen.reason}", advice)


def load(system: System) -> Check:
    """How many programs want to run."""
    fields = system.text("proc/loadavg").split()
    if not fields:
        return Check("load", "unknown", "/proc/loadavg cannot be read")
    one_minute, cores = float(fields[0]), max(len(system.cores), 1)
    read = f"{one_minute:g} programs wanted to run in the last minute, on {cores} cores"
    if one_minute <= BUSY_SHARE * cores:
        return Check("load", "ok", read)
    return Check("load", "bad", read, "stop other programs (`top` shows them) and wait a minute")


def steal(before: str, after: str) -> Check:
    """The share of time that a hypervisor gave to others, between two readings of /proc/stat."""
    first, second = _ticks(before), _ticks(after)
    total = sum(second) - sum(first)
    if len(first) < 8 or len(second) < 8 or total <= 0:
        return Check("steal", "unknown", "/proc/stat does not say")
    share = (second[7] - first[7]) / total
    if share > STEAL_SHARE:
        return Check("steal", "bad", f"the host took {share:.0%} of the time", "ask for dedicated cores")
    if second[7] == 0:
        return Check("steal", "ok", "none since the system started; some hosts never report any")
    return Check("steal", "ok", f"the host took {share:.0%} of the time")


def _ticks(stat: str) -> list[int]:
    """User, nice, system, idle, iowait, irq, softirq and steal of all cores; guest time is within user time."""
    fields = stat.partition("\n")[0].split()[1:9]
    return [int(field) for field in fields] if all(field.isdigit() for field in fields) else []


def affinity(system: System) -> Check:
    """The cores that this process may run on."""
    if not system.cores:
        return Check("affinity", "unknown", "this system does not say")
    online = len(_listed(system.text(CPUS / "online"))) or len(system.cores)
    read = (
        f"{len(system.cores)} of {online} cores allowed ({_ranges(system.cores)}), {system.threads} threads effective"
    )
    if system.threads > len(system.cores):
        return Check("affinity", "bad", read, "set TUNE_THREADS to at most the number of allowed cores, or allow more")
    siblings = {core: _listed(system.text(CPUS / f"cpu{core}/topology/thread_siblings_list")) for core in system.cores}
    if shared := [core for core, others in siblings.items() if len(others) > 1]:
        advice = "leave the other threads of a core idle: `taskset`, or switch SMT off"
        return Check("affinity", "bad", f"{read}; {_ranges(shared)} share physical cores with others", advice)
    return Check("affinity", "ok", read)


def quota(system: System) -> Check:
    """The quota of the control group, and whether it has stopped this group before."""
    for line in [*system.text("proc/self/cgroup").splitlines(), "0::/"]:
        hierarchy, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if hierarchy == "0":
            root, names = Path("sys/fs/cgroup"), ["cpu.max"]
        elif "cpu" in controllers.split(","):
            root, names = Path("sys/fs/cgroup/cpu"), ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        else:
            continue
        for folder in (root / group.strip("/"), root):
            text = " ".join(system.text(folder / name) for name in names).split()
            if len(text) == 2:
                return _quota(text[0], text[1], system.text(folder / "cpu.stat"))
    return Check("cgroup quota", "unknown", "no quota file can be read")


def _quota(limit: str, period: str, stat: str) -> Check:
    name = "cgroup quota"
    if not limit.isdigit() or not period.isdigit() or not int(period):
        return Check(name, "ok", "none")
    counts = dict(line.split()[:2] for line in stat.splitlines() if len(line.split()) > 1)
    read = f"{int(limit) / int(period):g} cores, stopped {counts.get('nr_throttled', '?')} times so far"
    return Check(
        name, "bad", read, "a group that has used up its quota stops for the rest of the period: lift it to tune"
    )


def governor(system: System) -> Check:
    """What sets the frequency."""
    found = {system.text(CPUS / f"cpu{core}/cpufreq/scaling_governor") for core in system.cores or (0,)} - {""}
    if not found:
        return Check("governor", "unknown", "this system does not say, as most virtual machines")
    read = ", ".join(sorted(found))
    if found == {"performance"}:
        return Check("governor", "ok", read)
    return Check("governor", "bad", read, "run `cpupower frequency-set -g performance` as root while tuning")


def turbo(system: System) -> Check:
    """Whether the frequency rises while there is room for it, and falls later."""
    boost, no_turbo = system.text(CPUS / "cpufreq/boost"), system.text(CPUS / "intel_pstate/no_turbo")
    if not boost and not no_turbo:
        return Check("turbo", "unknown", "this system does not say, as most virtual machines")
    file = CPUS / ("intel_pstate/no_turbo" if no_turbo else "cpufreq/boost")
    off = "1" if no_turbo else "0"
    if (no_turbo or boost) == off:
        return Check("turbo", "ok", "off")
    advice = f"speed depends on temperature and on other cores; write {off} to /{file} as root while tuning"
    return Check("turbo", "bad", "on", advice)


def huge_pages(system: System) -> Check:
    """Whether large operands get large pages."""
    text = system.text("sys/kernel/mm/transparent_hugepage/enabled")
    chosen = text.partition("[")[2].partition("]")[0]
    if not chosen:
        return Check("huge pages", "unknown", "this system does not say")
    if chosen == "never":
        advice = "write madvise to /sys/kernel/mm/transparent_hugepage/enabled as root, if programs here will have it"
        return Check("huge pages", "bad", chosen, advice)
    return Check("huge pages", "ok", chosen)


def _listed(text: str) -> list[int]:
    """The numbers of a list such as `0-3,8`."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            found += range(int(first), int(last if last.isdigit() else first) + 1)
    return found


def _ranges(numbers: Sequence[int]) -> str:
    """`0-3,8` for a list of numbers."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
