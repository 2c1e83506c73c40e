"""The doctor reads other systems' files: every check in each of its states."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_noise import QUIET, bursts

from tunegen.harness import doctor
from tunegen.harness.doctor import Check, System
from tunegen.harness.noise import judge

CPUS = "sys/devices/system/cpu"


def system(root: Path, files: dict[str, str], cores: tuple[int, ...] = (0, 1), threads: int = 2) -> System:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return System(root, cores, threads)


@pytest.mark.parametrize(
    ("check", "files", "state", "read", "advice"),
    [
        (doctor.governor, {f"{CPUS}/cpu0/cpufreq/scaling_governor": "performance"}, "ok", "performance", ""),
        (doctor.governor, {f"{CPUS}/cpu1/cpufreq/scaling_governor": "powersave"}, "bad", "powersave", "cpupower"),
        (doctor.governor, {}, "unknown", "does not say", ""),
        (doctor.turbo, {f"{CPUS}/cpufreq/boost": "0"}, "ok", "off", ""),
        (doctor.turbo, {f"{CPUS}/cpufreq/boost": "1"}, "bad", "on", f"write 0 to /{CPUS}/cpufreq/boost"),
        (doctor.turbo, {f"{CPUS}/intel_pstate/no_turbo": "1"}, "ok", "off", ""),
        (doctor.turbo, {f"{CPUS}/intel_pstate/no_turbo": "0"}, "bad", "on", f"write 1 to /{CPUS}/intel_pstate"),
        (doctor.turbo, {}, "unknown", "does not say", ""),
        (doctor.load, {"proc/loadavg": "0.20 1.00 2.00 1/90 4711"}, "ok", "0.2 programs", ""),
        (doctor.load, {"proc/loadavg": "1.90 1.00 2.00 3/90 4711"}, "bad", "1.9 programs", "top"),
        (doctor.load, {}, "unknown", "cannot be read", ""),
        (doctor.huge_pages, {"sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never"}, "ok", "madvise",
         ""),
        (doctor.huge_pages, {"sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]"}, "bad", "never",
         "madvise"),
        (doctor.huge_pages, {}, "unknown", "does not say", ""),
        (doctor.affinity, {f"{CPUS}/online": "0-3"}, "ok", "2 of 4 cores allowed (0-1), 2 threads", ""),
        (doctor.affinity, {f"{CPUS}/online": "0-3", f"{CPUS}/cpu1/topology/thread_siblings_list": "1,3"}, "bad",
         "1 share physical cores", "SMT"),
    ],
)  # fmt: skip
def test_each_check_says_what_it_read_and_what_to_do(tmp_path, check, files, state, read, advice) -> None:
    found: Check = check(system(tmp_path, files))
    assert found.state == state
    assert read in found.read
    assert advice in found.advice
    assert bool(found.advice) == (state == "bad")


def test_more_threads_than_allowed_cores_is_bad_and_no_mask_is_unknown(tmp_path: Path) -> None:
    assert "TUNE_THREADS" in doctor.affinity(system(tmp_path, {}, cores=(5,), threads=2)).advice
    assert doctor.affinity(system(tmp_path, {}, cores=())).state == "unknown"


@pytest.mark.parametrize(
    ("files", "state", "read"),
    [
        ({"sys/fs/cgroup/cpu.max": "max 100000"}, "ok", "none"),
        ({"sys/fs/cgroup/cpu.max": "150000 100000", "sys/fs/cgroup/cpu.stat": "usage_usec 1\nnr_throttled 7"}, "bad",
         "1.5 cores, stopped 7 times"),
        ({"proc/self/cgroup": "0::/job/x", "sys/fs/cgroup/job/x/cpu.max": "50000 100000"}, "bad", "0.5 cores"),
        ({"proc/self/cgroup": "4:cpu,cpuacct:/job", "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "-1",
          "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000"}, "ok", "none"),
        ({"proc/self/cgroup": "4:cpu:/elsewhere", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000",
          "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, "bad", "2 cores, stopped ? times"),
        ({}, "unknown", "no quota file"),
    ],
)  # fmt: skip
def test_the_quota_is_found_in_both_kinds_of_control_group(tmp_path, files, state, read) -> None:
    found = doctor.quota(system(tmp_path, files))
    assert found.state == state
    assert read in found.read


def test_stolen_time_is_that_between_two_readings() -> None:
    before = "cpu  100 0 100 800 0 0 0 50 0 0\ncpu0 1"
    assert doctor.steal(before, "cpu  180 0 100 820 0 0 0 50 0 0\ncpu0 1").state == "ok"
    bad = doctor.steal(before, "cpu  180 0 100 800 0 0 0 70 0 0\ncpu0 1")
    assert (bad.state, bad.read) == ("bad", "the host took 20% of the time")
    assert "some hosts never report" in doctor.steal("cpu 1 0 0 0 0 0 0 0", "cpu 2 0 0 0 0 0 0 0").read
    assert doctor.steal(before, before).state == "unknown"
    assert doctor.steal("", "").state == "unknown"


def test_the_noise_check_says_what_a_tune_would_do() -> None:
    assert doctor.noise_check(QUIET).state == "ok"
    noisy = doctor.noise_check(judge(bursts(), bursts(spread=0.1), 1.0))
    assert "larger gains" in noisy.advice
    refused = doctor.noise_check(judge(bursts(), bursts(), 0.4))
    assert "--noisy-ok" in refused.advice
    assert "60%" in refused.read


def test_an_examination_has_each_check_once_and_knows_nothing_of_an_empty_system(tmp_path: Path) -> None:
    found = doctor.examine(System(tmp_path, (), 1), lambda: QUIET)
    assert found.verdict == "quiet"
    states = {check.name: check.state for check in found.checks}
    assert states.pop("noise") == "ok"
    assert set(states) == {"load", "steal", "affinity", "cgroup quota", "governor", "turbo", "huge pages"}
    assert set(states.values()) == {"unknown"}
