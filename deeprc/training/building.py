"""Construction of a network with random initial weights."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from deeprc.config import Config
from deeprc.device import resolve_precision
from deeprc.errors import InputError
from deeprc.nn.genes import GeneNames
from deeprc.nn.network import DeepRC
from deeprc.tasks import Task
from deeprc.training.draws import Purpose, make_generator

__all__ = ["MAX_WEIGHTS", "build_network"]

MAX_WEIGHTS = 500_000_000
"""Largest number of weights of a network; training needs about six numbers of 32 bits for each weight."""

_OTHER_SETTINGS = {"abundance", "composition", "composition_counts", "clones"}
"""Settings of the section `network` that `DeepRC` does not take: those of its input, and of its branches."""

_FILLS = (torch.Tensor.normal_, torch.Tensor.uniform_)


def build_network(
    config: Config, tasks: Sequence[Task], *, seed: int, device: torch.device, gene_names: GeneNames | None = None
) -> DeepRC:
    """Return a new network for these tasks, without branches; the seed determines its random weights.

    On the device `meta` the network has shapes but no numbers. `gene_names` are the genes that the network knows; they
    are needed if `gene_units` is not 0.

    Raises
    ------
    InputError
        If the network would have more than `MAX_WEIGHTS` weights.
    """
    arguments = {name: value for name, value in vars(config.network).items() if name not in _OTHER_SETTINGS}
    arguments["frozen_embedding"] = arguments.pop("embedding_weights") is not None
    arguments["precision"] = resolve_precision(config.network.precision, device)
    make = partial(DeepRC, n_outputs=sum(task.n_outputs for task in tasks), gene_names=gene_names, **arguments)
    with torch.device("meta"), _SkipInitialisation():
        empty = make()
    n_weights = sum(parameter.numel() for parameter in empty.parameters())
    if n_weights > MAX_WEIGHTS:
        raise InputError(f"the network would have {n_weights:,} weights; expected at most {MAX_WEIGHTS:,}")
    if device.type == "meta":
        return empty
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(make_generator(seed, Purpose.START).integers(2**62)))
        return make().to(device)


class _SkipInitialisation(TorchFunctionMode):
    """No weight is initialised: on the device `meta`, torch would import its compiler for it, which takes seconds.

    torch passes some functions of `nn.init` to this mode. Of the other functions, it passes only the in-place fills
    that they call (`normal_`, `uniform_`).
    """

    def __torch_function__(self, function: Any, _: Any, arguments: Any = (), options: Any = None) -> Any:
        options = options or {}
        if function in _FILLS or getattr(function, "__module__", None) == nn.init.__name__:
            return options["tensor"] if "tensor" in options else arguments[0]
        return function(*arguments, **options)
