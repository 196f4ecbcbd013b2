"""What the log says about branches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from deeprc.branches.fit import describe_fits
from deeprc.config import NetworkConfig
from deeprc.tasks import Task

STATUS, SITE = (
    Task("status=ill", "status", "binary", ("well", "ill")),
    Task("site=a", "site", "binary", ("b", "a")),
)


def make_fit(name: str, *loss_decreases: float, features: tuple[str, ...] = ()) -> Any:
    branch = SimpleNamespace(name=name, features=features)
    return SimpleNamespace(branch=branch, loss_decreases=np.array(loss_decreases))


@pytest.mark.parametrize(
    ("fitted", "tasks", "text"),
    [
        (
            [make_fit("composition", 0.4154, features=("k-mers", "genes"))],
            [STATUS],
            "Branches used: composition (lowers the loss on left-out repertoires by 0.415 for status=ill). "
            "Composition reads k-mers, genes. Not used: clones.",
        ),
        (
            [make_fit("composition", 0.4, 0.02), make_fit("clones", 0.0, 0.1)],
            [STATUS, SITE],
            "Branches used: composition (lowers the loss on left-out repertoires by 0.400 for status=ill and 0.020 for "
            "site=a), clones (by 0.100 for site=a).",
        ),
        (
            [make_fit("composition", 0.0), make_fit("clones", 0.1)],
            [STATUS],
            "Branches used: composition, clones (lowers the loss on left-out repertoires by 0.100 for status=ill).",
        ),
        ([], [STATUS], "Branches used: only the attention. Not used: composition, clones."),
    ],
)
def test_the_branches_in_use_are_named(fitted: list[Any], tasks: list[Task], text: str) -> None:
    assert describe_fits(fitted, NetworkConfig(), tasks) == text


def test_no_branch_was_sought() -> None:
    config = NetworkConfig(composition=False, clones=False)
    assert describe_fits([], config, [STATUS]) == "The network has no branch besides its attention."
