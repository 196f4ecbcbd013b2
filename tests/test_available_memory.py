"""What the system says about its memory."""

from pathlib import Path

import pytest

from deeprc.available_memory import count_available_bytes

MEMINFO = "MemTotal:       24655096 kB\nMemFree:         1000000 kB\nMemAvailable:   20000000 kB\nBuffers: 1 kB\n"


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("max\n", 20_000_000 * 1024), ("4294967296\n", 4 * 2**30), ("99999999999999\n", 20_000_000 * 1024)],
)
def test_it_is_what_the_system_can_give_within_the_limit(tmp_path: Path, limit: str, expected: int) -> None:
    (tmp_path / "meminfo").write_text(MEMINFO)
    (tmp_path / "limit").write_text(limit)
    assert count_available_bytes(tmp_path / "meminfo", [tmp_path / "no limit", tmp_path / "limit"]) == expected
    assert count_available_bytes(tmp_path / "meminfo", []) == 20_000_000 * 1024


def test_a_system_may_not_say_it(tmp_path: Path) -> None:
    assert count_available_bytes(tmp_path / "nothing") is None
    (tmp_path / "meminfo").write_text("MemTotal: 24655096 kB\n")
    assert count_available_bytes(tmp_path / "meminfo") is None
