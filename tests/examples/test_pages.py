"""Each program of examples/ is short, and has a page with one picture."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_is_short_and_has_a_page_with_one_picture(program: Path) -> None:
    assert len(program.read_text(encoding="utf-8").splitlines()) <= 200
    page = ROOT / "docs" / f"examples-{program.stem}.md"
    text = page.read_text(encoding="utf-8")
    (picture,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert (page.parent / picture).is_file()
    assert f"](../examples/{program.name})" in text
    assert f"](../docs/{page.name})" in (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
