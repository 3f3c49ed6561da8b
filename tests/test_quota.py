"""CPU quotas and memory limits of control groups, on trees of files like those that the kernel shows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from autotune.quota import cpu_quota, memory_limit

V1_MOUNT = "33 31 0:30 {root} /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct"
V2_MOUNT = "29 23 0:26 {root} /sys/fs/cgroup rw,nosuid,nodev shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V2_BESIDE = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw"
OTHERS = [
    "25 30 0:23 / /proc rw,nosuid - proc proc rw",
    "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset",
]


def tree(root: Path, mounts: list[str], groups: list[str], files: Mapping[str, str]) -> Path:
    """A root folder with what a process reads of its control groups."""
    shown = {"proc/self/mountinfo": "\n".join([*OTHERS, *mounts]), "proc/self/cgroup": "\n".join(groups)}
    for name, text in {**shown, **{f"sys/fs/cgroup/{name}": text for name, text in files.items()}}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return root


def v1(folder: str, quota: int, period: int = 100_000) -> dict[str, str]:
    return {
        f"cpu,cpuacct/{folder}/cpu.cfs_quota_us": str(quota),
        f"cpu,cpuacct/{folder}/cpu.cfs_period_us": str(period),
    }


V1_GROUPS = ["9:name=systemd:/", "4:cpu,cpuacct:/jobs/mine", "3:cpuset:/other", "0::/"]
WHOLE = V2_MOUNT.format(root="/")


@pytest.mark.parametrize(
    ("mounts", "groups", "files", "quota"),
    [
        pytest.param([WHOLE], ["0::/"], {"cpu.max": "150000 100000"}, 1.5, id="v2"),
        pytest.param([WHOLE], ["0::/"], {"cpu.max": "max 100000"}, None, id="v2, no limit"),
        pytest.param([WHOLE], ["0::/"], {}, None, id="v2, root group"),
        pytest.param([WHOLE], ["0::/a/b"], {"a/b/cpu.max": "50000 20000"}, 2.5, id="v2, nested"),
        pytest.param(
            [WHOLE],
            ["0::/a/b/c"],
            {"a/cpu.max": "300000 100000", "a/b/cpu.max": "200000 100000", "a/b/c/cpu.max": "max 100000"},
            2.0,
            id="v2, a group that holds it",
        ),
        pytest.param(
            [V2_MOUNT.format(root="/docker/1f")],
            ["0::/docker/1f"],
            {"cpu.max": "250000 100000"},
            2.5,
            id="v2, a container that sees the host's names",
        ),
        pytest.param(
            [WHOLE], ["0::/../pod"], {"cpu.max": "100000 100000"}, 1.0, id="v2, outside of the view"
        ),
        pytest.param([V1_MOUNT.format(root="/")], V1_GROUPS, v1("jobs/mine", 350_000), 3.5, id="v1"),
        pytest.param([V1_MOUNT.format(root="/")], V1_GROUPS, v1("jobs/mine", -1), None, id="v1, no limit"),
        pytest.param(
            [V1_MOUNT.format(root="/")],
            V1_GROUPS,
            {**v1("jobs/mine", -1), **v1("jobs", 60_000, 50_000)},
            1.2,
            id="v1, a group that holds it",
        ),
        pytest.param(
            [V1_MOUNT.format(root="/"), V2_BESIDE],
            V1_GROUPS,
            v1("jobs/mine", 50_000),
            0.5,
            id="both versions",
        ),
        pytest.param(
            [V1_MOUNT.format(root="/jobs/mine")], V1_GROUPS, v1("", 400_000), 4.0, id="v1, in a container"
        ),
    ],
)
def test_the_least_quota_counts(
    tmp_path: Path, mounts: list[str], groups: list[str], files: dict[str, str], quota: float | None
) -> None:
    assert cpu_quota(tree(tmp_path, mounts, groups, files)) == quota


V1_MEMORY = "36 31 0:33 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory"
GIB = 1 << 30


@pytest.mark.parametrize(
    ("mounts", "groups", "files", "limit"),
    [
        pytest.param([WHOLE], ["0::/a"], {"a/memory.max": str(GIB)}, GIB, id="v2"),
        pytest.param([WHOLE], ["0::/a"], {"a/memory.max": "max"}, None, id="v2, no limit"),
        pytest.param([WHOLE], ["0::/a"], {"a/memory.max": "0"}, 0, id="v2, nothing"),
        pytest.param(
            [WHOLE],
            ["0::/a/b"],
            {"a/memory.max": str(GIB), "a/b/memory.max": str(2 * GIB)},
            GIB,
            id="v2, a group that holds it",
        ),
        pytest.param(
            [V1_MOUNT.format(root="/"), V1_MEMORY],
            ["5:memory:/jobs", *V1_GROUPS],
            {"memory/jobs/memory.limit_in_bytes": str(3 * GIB), **v1("jobs/mine", 50_000)},
            3 * GIB,
            id="v1",
        ),
        pytest.param(
            [V1_MEMORY],
            ["5:memory:/jobs"],
            {"memory/jobs/memory.limit_in_bytes": "9223372036854771712"},
            None,
            id="v1, no limit",
        ),
    ],
)
def test_the_least_memory_counts(
    tmp_path: Path, mounts: list[str], groups: list[str], files: dict[str, str], limit: int | None
) -> None:
    assert memory_limit(tree(tmp_path, mounts, groups, files)) == limit


def test_without_control_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None
    assert memory_limit(tmp_path) is None


def test_a_quota_that_changes_is_read_again(tmp_path: Path) -> None:
    root = tree(tmp_path, [WHOLE], ["0::/a"], {"a/cpu.max": "150000 100000"})
    assert cpu_quota(root) == 1.5
    tree(tmp_path, [WHOLE], ["0::/a"], {"a/cpu.max": "250000 100000"})
    assert cpu_quota(root) == 2.5
    tree(tmp_path, [WHOLE], ["0::/b"], {"b/cpu.max": "50000 100000"})
    assert cpu_quota(root) == 0.5
