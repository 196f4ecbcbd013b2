"""Saved estimators whose description was changed, as by somebody else's program."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.numpy import save_file


def change_description(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Change the description of a saved estimator in place, and write both to a file beside it, whose path is returned.

    The description is the JSON text in the header of the file; the arrays stay as they are.
    """
    with safe_open(path, framework="np") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        description = json.loads(file.metadata()["deeprc"])
    change(description)
    changed = path.with_name("changed.safetensors")
    save_file(arrays, changed, {"deeprc": json.dumps(description)})
    return changed
