"""Short trainings on the cohorts of `tests.conftest`: their labels, their interruption, and their comparison."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.nn.network import DeepRC
from deeprc.training.trainer import Trainer
from tests.conftest import Killed, killing


def encode_status(dataset: RepertoireDataset) -> NDArray[np.float64]:
    """Return the labels of the target status, (B, 1): 1 for cases."""
    return (dataset.metadata["status"] == "case").to_numpy(np.float64)[:, None]


def interrupt(make: Callable[[], Trainer], update: int) -> Trainer:
    """Let a trainer train until it is killed after an update; return a new one, which continues from its checkpoint."""
    with pytest.raises(Killed):
        make().fit(killing(update))
    return make()


def assert_same_weights(first: DeepRC, second: DeepRC) -> None:
    """Check that two networks have the same tensors, to the last bit."""
    expected = second.state_dict()
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
