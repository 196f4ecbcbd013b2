"""Networks on the device `meta`, which have shapes but no numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from deeprc.config import load_config
from deeprc.errors import InputError
from deeprc.tasks import Task
from deeprc.training.building import MAX_WEIGHTS, build_network

TASKS = [Task("status", "status", "binary", ("healthy", "case"))]


class Draws(TorchDispatchMode):
    """Records which operations draw random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, function: Any, _: Any, arguments: Any = (), options: Any = None) -> Any:
        name = str(function)
        if any(word in name for word in ("normal", "uniform", "rand", "bernoulli")):
            self.found.append(name)
        return function(*arguments, **(options or {}))


@pytest.mark.parametrize("embedding", ["convolution", "lstm", "transformer"])
def test_without_numbers_nothing_is_drawn_and_shapes_are_the_same(embedding: str) -> None:
    """Torch's kernels for random numbers on `meta` import its compiler, so `deeprc predict` took seconds longer."""
    config = load_config("deeprc", [f"embedding={embedding}", "n_output_layers=2"])
    with Draws() as of_empty:
        empty = build_network(config, TASKS, seed=0, device=torch.device("meta"))
    with Draws() as of_full:
        full = build_network(config, TASKS, seed=0, device=torch.device("cpu"))
    assert of_empty.found == []
    assert len(of_full.found) > 3
    shapes = {name: (tensor.shape, tensor.dtype) for name, tensor in full.state_dict().items()}
    assert {name: (tensor.shape, tensor.dtype) for name, tensor in empty.state_dict().items()} == shapes
    assert {tensor.device.type for tensor in empty.parameters()} == {"meta"}


def test_too_many_weights_are_refused_before_they_are_made() -> None:
    config = load_config("deeprc", ["n_kernels=100000", "key_units=100000"])
    with pytest.raises(InputError, match=f"expected at most {MAX_WEIGHTS:,}"):
        build_network(config, TASKS, seed=0, device=torch.device("cpu"))
