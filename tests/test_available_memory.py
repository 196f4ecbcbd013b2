"""What the system says about its memory."""

from pathlib import Path

import pytest

from deeprc.available_memory import count_available_bytes

MEMINFO = "MemTotal:       24655096 kB\nMemFree:         1000000 kB\nMemAvailable:   20000000 kB\nBuffers: 1 kB\n"
AVAILABLE = 20_000_000 * 1024
VERSION_1 = "9:name=systemd:/\n4:cpu,memory:/slurm/job:7\n0::/\n"


def _count(folder: Path, groups: str | None, limits: dict[str, str]) -> int | None:
    """Return the available bytes of a system with these control groups and limits."""
    (folder / "meminfo").write_text(MEMINFO)
    if groups is not None:
        (folder / "groups").write_text(groups)
    for name, limit in limits.items():
        path = folder / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(limit)
    return count_available_bytes(folder / "meminfo", folder / "groups", folder / "root")


@pytest.mark.parametrize(
    ("limit", "expected"), [("max\n", AVAILABLE), ("4294967296\n", 4 * 2**30), ("99999999999999\n", AVAILABLE)]
)
@pytest.mark.parametrize(("groups", "name"), [(None, "memory.max"), ("0::/\n", "memory/memory.limit_in_bytes")])
def test_a_container_limits_what_the_system_can_give(
    tmp_path: Path, groups: str | None, name: str, limit: str, expected: int
) -> None:
    assert _count(tmp_path, groups, {name: limit}) == expected


@pytest.mark.parametrize(
    ("groups", "limits"),
    [
        ("0::/slurm/job_7/step_0\n", {"slurm/job_7/memory.max": "5000\n", "slurm/job_7/step_0/memory.max": "max\n"}),
        ("0::/slurm/job_7\n", {"slurm/job_7/memory.max": "5000\n", "slurm/memory.max": "6000\n"}),
        (VERSION_1, {"memory/slurm/job:7/memory.limit_in_bytes": "5000\n"}),
        (VERSION_1, {"memory/memory.limit_in_bytes": "5000\n"}),  # the container does not see the folder of the host
    ],
)
def test_a_job_of_a_batch_system_has_the_least_of_its_limits(
    tmp_path: Path, groups: str, limits: dict[str, str]
) -> None:
    assert _count(tmp_path, groups, limits) == 5000


def test_the_limit_of_another_job_is_not_ours(tmp_path: Path) -> None:
    assert _count(tmp_path, "0::/slurm/job_7\n", {"slurm/job_8/memory.max": "5000\n"}) == AVAILABLE


def test_a_system_may_not_say_it(tmp_path: Path) -> None:
    assert count_available_bytes(tmp_path / "nothing") is None
    (tmp_path / "meminfo").write_text("MemTotal: 24655096 kB\n")
    assert count_available_bytes(tmp_path / "meminfo") is None
