"""Tensors of a checkpoint by name: weights, averages, best weights, start, losses and moments of the optimiser."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from deeprc.errors import InputError
from deeprc.nn.network import DeepRC
from deeprc.training.averaging import CONSTANT
from deeprc.training.checkpoint import LOSSES
from deeprc.training.model import load_weights
from deeprc.training.step import TrainingStep

__all__ = ["collect_tensors", "make_expected_tensors", "restore_tensors"]


def collect_tensors(
    network: DeepRC,
    step: TrainingStep,
    best: Mapping[str, Tensor],
    start: Mapping[str, Tensor],
    losses: Sequence[Tensor],
) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint, by name.

    Parameters
    ----------
    network, step
        The network, and its updates with the averaged weights and the optimiser.
    best, start
        Best weights so far, and those of the start if it is compared with them at the end, by name.
    losses
        Losses of the updates since the last evaluation.
    """
    optimizer_tensors = _collect_optimizer_tensors(step.optimizer)
    return {
        **_collect_network_tensors(network, step, best),
        **{f"start.{name}": tensor for name, tensor in start.items()},
        LOSSES: torch.stack([*losses]) if losses else torch.zeros(0),
        **{f"optimizer.{name}": tensor for name, tensor in optimizer_tensors.items()},
    }


def make_expected_tensors(network: DeepRC, step: TrainingStep, names: Collection[str]) -> dict[str, Tensor]:
    """Return tensors with the shapes and types that a checkpoint with these names must have.

    An optimiser has no state before its first update.
    """
    expected = _collect_network_tensors(network, step, network.state_dict())
    expected[LOSSES] = torch.zeros(0)
    if any(name.startswith("start.") for name in names):
        expected |= {f"start.{name}": tensor for name, tensor in network.state_dict().items()}
    for index, parameter in enumerate(network.parameters()):
        if f"optimizer.{index}.step" in names:
            like = {"step": torch.zeros(()), "exp_avg": parameter, "exp_avg_sq": parameter}
            expected |= {f"optimizer.{index}.{name}": tensor for name, tensor in like.items()}
    return expected


def restore_tensors(
    tensors: Mapping[str, Tensor], network: DeepRC, step: TrainingStep, device: torch.device, where: str
) -> tuple[dict[str, Tensor], dict[str, Tensor], list[Tensor]]:
    """Give network, averages and optimiser the tensors of a checkpoint; return best weights, start and losses.

    Raises
    ------
    InputError
        If the buffers of branches, which compiled code reads, have numbers with which it would crash. Each set of
        weights must have the same ones. The message begins with `where`.
    """
    names = ("network", "average", "best", "start", "losses", "optimizer")
    parts: dict[str, dict[str, Any]] = {name: {} for name in names}
    for key, tensor in tensors.items():
        part, name = key.split(".", 1)
        # the optimiser moves its state to the device itself
        parts[part][name] = tensor if part == "optimizer" else tensor.to(device)
    load_weights(network, parts["network"], where)
    for part, name in itertools.product(("average", "best", "start"), parts["network"]):
        stored = parts[part].get(name)
        if stored is not None and name.startswith(CONSTANT) and not torch.equal(stored, parts["network"][name]):
            raise InputError(f"{where}: {part}.{name}: expected the numbers of network.{name}, found others")
    step.average.restore(parts["average"])
    _restore_optimizer(step.optimizer, parts["optimizer"])
    return parts["best"], parts["start"], [*tensors[LOSSES].to(device)]


def _collect_network_tensors(network: DeepRC, step: TrainingStep, best: Mapping[str, Tensor]) -> dict[str, Tensor]:
    parts = {"network": network.state_dict(), "average": step.average.collect_tensors(), "best": best}
    return {f"{part}.{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}


def _collect_optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the state of the optimiser as tensors with the names `<index of the parameter>.<name>`."""
    states = optimizer.state_dict()["state"]
    return {
        f"{index}.{name}": torch.as_tensor(value) for index, state in states.items() for name, value in state.items()
    }


def _restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Set the state of the optimiser to tensors that `_collect_optimizer_tensors` returned."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
