"""What Linux says of a machine, on trees of files that stand for other machines."""

from __future__ import annotations

import pytest

from tunegen import system


@pytest.fixture
def tree(tmp_path):
    def write(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        return tmp_path

    return write


def v1(folder, quota, period="100000"):
    return {
        f"sys/fs/cgroup/{folder}/cpu.cfs_quota_us": quota,
        f"sys/fs/cgroup/{folder}/cpu.cfs_period_us": period,
    }


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"sys/fs/cgroup/cpu.max": "150000 100000"}, 2),
        ({"sys/fs/cgroup/cpu.max": "max 100000"}, None),
        ({"sys/fs/cgroup/cpu.max": "50000 100000"}, 1),
        ({"sys/fs/cgroup/cpu.max": "nonsense"}, None),
        ({"sys/fs/cgroup/cpu.max": "100000 0"}, None),
        (v1("cpu", "300000"), 3),
        (v1("cpu", "-1"), None),
        # nested: the smallest quota on the way up holds
        ({"proc/self/cgroup": "0::/job/inner", "sys/fs/cgroup/job/inner/cpu.max": "max 100000",
          "sys/fs/cgroup/job/cpu.max": "150000 100000"}, 2),
        ({"proc/self/cgroup": "0::/job/inner", "sys/fs/cgroup/job/inner/cpu.max": "400000 100000",
          "sys/fs/cgroup/job/cpu.max": "300000 100000"}, 3),
        ({"proc/self/cgroup": "0::/job/inner", "sys/fs/cgroup/job/inner/cpu.max": "100000 100000",
          "sys/fs/cgroup/job/cpu.max": "300000 100000"}, 1),
        ({"proc/self/cgroup": "0::/job", "sys/fs/cgroup/other/cpu.max": "100000 100000"}, None),
        ({"proc/self/cgroup": "4:cpu,cpuacct:/job\n3:memory:/", **v1("cpu/job", "-1"), **v1("cpu", "250000")}, 3),
        ({"proc/self/cgroup": "4:cpu,cpuacct:/job", **v1("cpu,cpuacct/job", "120000")}, 2),
        ({"proc/self/cgroup": "4:cpuacct:/job\n0::/", **v1("cpuacct/job", "120000")}, None),
        # in a container the path is the host's, and what is mounted is the own group
        ({"proc/self/cgroup": "2:cpu:/docker/0123", **v1("cpu", "200000")}, 2),
        ({"proc/self/cgroup": "0::/../../job", "sys/fs/cgroup/cpu.max": "200000 100000"}, 2),
    ],
)  # fmt: skip
def test_the_quota_of_the_control_groups_is_rounded_up(tree, files, quota):
    assert system.cgroup_quota(tree(files)) == quota


def siblings(lists):
    return {f"sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list": text for n, text in enumerate(lists)}


@pytest.mark.parametrize(
    ("lists", "allowed", "cores"),
    [
        (["0", "1", "2", "3"], (0, 1, 2, 3), 4),
        (["0-1", "0-1", "2-3", "2-3"], (0, 1, 2, 3), 2),
        (["0,2", "1,3", "0,2", "1,3"], (0, 1, 2, 3), 2),
        (["0,2", "1,3", "0,2", "1,3"], (0, 2), 1),
        (["0,2", "1,3", "0,2", "1,3"], (2, 3), 2),
        # two large cores of two threads each, and four small ones
        (["0-1", "0-1", "2-3", "2-3", "4", "5", "6", "7"], tuple(range(8)), 6),
        (["", "nonsense", "2-"], (0, 1, 2), 3),
        ([], (0, 1, 7), 3),
    ],
)
def test_hardware_threads_of_one_core_count_once(tree, lists, allowed, cores):
    assert system.physical_cores(allowed, tree(siblings(lists))) == cores


def test_caches_are_in_bytes_without_those_of_instructions(tree):
    cache = "sys/devices/system/cpu/cpu0/cache"
    found = tree({
        f"{cache}/index0/level": "1", f"{cache}/index0/type": "Data", f"{cache}/index0/size": "48K",
        f"{cache}/index1/level": "1", f"{cache}/index1/type": "Instruction", f"{cache}/index1/size": "32K",
        f"{cache}/index2/level": "2", f"{cache}/index2/type": "Unified", f"{cache}/index2/size": "2048K",
        f"{cache}/index3/level": "3", f"{cache}/index3/size": "odd",
    })  # fmt: skip
    assert system.caches(found) == {"l1": 48 << 10, "l2": 2 << 20}


def test_a_system_without_such_files_says_nothing(tmp_path):
    assert system.cpu_fields(tmp_path) == {}
    assert system.caches(tmp_path) == {}
    assert system.cgroup_quota(tmp_path) is None
    assert system.physical_cores((0, 1), tmp_path) == 2


def test_this_process_is_allowed_some_cpu():
    assert 1 <= system.physical_cores(system.allowed_cpus()) <= len(system.allowed_cpus())
