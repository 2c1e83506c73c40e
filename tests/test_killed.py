"""Who sent a SIGKILL, from what Linux counts; read from files that are made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunegen.harness.killed import Victims, killer, victims


def system(root: Path, **files: str) -> Path:
    """Files below a root, by name with `__` for a slash and `_DOT_` for a dot."""
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_group_counts_its_own_victims(tmp_path: Path) -> None:
    root = system(
        tmp_path,
        proc__self__cgroup="0::/user/app\n",
        proc__vmstat="nr_free_pages 5\noom_kill 7\n",
        sys__fs__cgroup__user__app__memory_DOT_events="low 0\noom 3\noom_kill 2\noom_group_kill 0\n",
    )
    assert victims(root) == Victims(2, 7)


def test_in_a_container_the_own_group_may_be_the_root(tmp_path: Path) -> None:
    root = system(
        tmp_path,
        proc__self__cgroup="0::/docker/abc\n",
        sys__fs__cgroup__memory_DOT_events="oom_kill 1\n",
    )
    assert victims(root) == Victims(1, None)


def test_the_first_version_of_groups_counts_elsewhere(tmp_path: Path) -> None:
    root = system(
        tmp_path,
        proc__self__cgroup="5:cpu,cpuacct:/a\n4:memory:/a\n0::/\n",
        sys__fs__cgroup__memory__a__memory_DOT_oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 4\n",
    )
    assert victims(root) == Victims(4, None)


def test_where_nothing_is_counted_nothing_is_known(tmp_path: Path) -> None:
    assert victims(tmp_path) == Victims(None, None)
    assert victims(system(tmp_path, proc__vmstat="oom_kill many\n")) == Victims(None, None)


@pytest.mark.parametrize(
    ("before", "after", "who"),
    [
        (Victims(1, 5), Victims(2, 6), "memory"),
        (Victims(1, 5), Victims(1, 6), "somebody"),  # the victim was in another group
        (Victims(None, 5), Victims(None, 5), "somebody"),
        (Victims(None, 5), Victims(None, 6), "unknown"),
        (Victims(None, None), Victims(None, None), "unknown"),
        (Victims(1, 5), Victims(None, 5), "somebody"),
    ],
)
def test_who_it_was_is_said_when_it_can_be_known(before: Victims, after: Victims, who: str) -> None:
    assert killer(before, after) == who
