"""Rooms of the package use those below them only; docs/architecture.md draws the picture."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = {"datasets": ROOT / "datasets", "baselines": ROOT / "baselines"}
ORDER = (
    *("datasets", "hopfield", "nn", "baselines", "branches", "training", "evaluation", "associations", "specificity"),
    *("checks", "shift", "runs", "benchmarking", "power", "stacking", "interpretation", "airr_ml", "cli"),
)
BESIDE = {("runs", "benchmarking"), ("benchmarking", "runs"), ("benchmarking", "shift")}
"""Neighbours that know nothing of each other."""


def rooms_used_by(room: str) -> set[str]:
    found = set()
    for file in FOLDERS.get(room, ROOT / "deeprc" / room).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            found |= {name.split(".")[1] for name in names if name.startswith("deeprc.")}
    return (found & set(ORDER)) - {room}


@pytest.mark.parametrize("room", ORDER)
def test_a_room_uses_those_below_it(room: str) -> None:
    used = rooms_used_by(room)
    assert used <= set(ORDER[: ORDER.index(room)])
    assert not {(room, each) for each in used} & BESIDE


def test_every_folder_is_a_room() -> None:
    assert {path.parent.name for path in (ROOT / "deeprc").glob("*/__init__.py")} == set(ORDER) - set(FOLDERS)
