"""The packages of deeprc ("rooms") import those below them only, as docs/architecture.md says; names of classes."""

from __future__ import annotations

import ast
from collections import defaultdict
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


SAME_ON_TWO_DEVICES = {"SegmentAttention"}  # on the CPU and on CUDA


def list_public_classes(file: Path) -> list[str]:
    """Return the names of the public classes, and of the types that have such a name, that a module defines."""
    names = []
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names += [target.id for target in targets if isinstance(target, ast.Name)]
    return [name for name in names if name[0].isupper() and not name.isupper()]


def test_a_public_class_has_a_name_of_its_own() -> None:
    modules = defaultdict(list)
    for folder in (ROOT / "deeprc", *FOLDERS.values()):
        for file in folder.rglob("*.py"):
            for name in list_public_classes(file):
                modules[name].append(file.relative_to(ROOT).as_posix())
    shared = {name: files for name, files in modules.items() if len(files) > 1 and name not in SAME_ON_TWO_DEVICES}
    assert shared == {}
