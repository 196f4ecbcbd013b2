"""Weights and checkpoints as safetensors files: no pickle, and never half-written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from deeprc.errors import InputError
from deeprc.files import write_safetensors

__all__ = ["load_tensors", "optimizer_tensors", "restore_optimizer", "save_tensors"]


def save_tensors(path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Write tensors and a JSON-able state into one file, aside first, then renamed."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_safetensors(path, lambda aside: save_file(contiguous, aside, metadata={"state": json.dumps(dict(state))}))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save_tensors` wrote, on the CPU.

    Raises
    ------
    InputError
        If the file is missing or damaged.
    """
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
            state = json.loads((file.metadata() or {}).get("state", "{}"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except SafetensorError as error:
        raise InputError(f"{path}: is damaged or no safetensors file: {error}") from error
    return tensors, state


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimiser's state as named tensors: `<parameter number>.<name>`."""
    states = optimizer.state_dict()["state"]
    return {
        f"{number}.{name}": torch.as_tensor(value) for number, state in states.items() for name, value in state.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give the optimiser the state that `optimizer_tensors` returned."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        number, name = key.split(".", 1)
        state.setdefault(int(number), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
