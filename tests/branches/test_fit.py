"""Which branches are used, and what the log says about them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from deeprc.branches import fit
from deeprc.branches.cohort import FittedBranch, TrainingCohort
from deeprc.branches.fit import attach_described_branches, describe_fits, fit_branches
from deeprc.config import NetworkConfig
from deeprc.errors import InputError
from deeprc.nn.branches import Branch
from deeprc.nn.network import DeepRC
from deeprc.tasks import Task

STATUS, SITE = (
    Task("status=ill", "status", "binary", ("well", "ill")),
    Task("site=a", "site", "binary", ("b", "a")),
)


BELOW = "its loss on left-out repertoires is below that of a constant prediction by"


def make_fit(
    name: str, *loss_decreases: float, features: tuple[str, ...] = (), is_doubtful: bool = False
) -> FittedBranch:
    branch = cast("Branch", SimpleNamespace(name=name, features=features, is_doubtful=is_doubtful))
    return FittedBranch(branch, np.zeros((0, len(loss_decreases))), np.array(loss_decreases))


@pytest.mark.parametrize(
    ("fitted", "tasks", "text"),
    [
        (
            [make_fit("composition", 0.4154, features=("k-mers", "genes"))],
            [STATUS],
            f"Branches used: composition ({BELOW} 0.415 for status=ill). Composition reads k-mers, genes. Not used: "
            "clones.",
        ),
        (
            [make_fit("composition", 0.4, 0.02), make_fit("clones", 0.0, 0.1)],
            [STATUS, SITE],
            f"Branches used: composition ({BELOW} 0.400 for status=ill and 0.020 for site=a), clones (by 0.100 for "
            "site=a).",
        ),
        (
            [make_fit("composition", 0.0), make_fit("clones", 0.1)],
            [STATUS],
            f"Branches used: composition, clones ({BELOW} 0.100 for status=ill).",
        ),
        (
            [make_fit("composition", 0.02, features=("genes",), is_doubtful=True)],
            [STATUS],
            f"Branches used: composition ({BELOW} 0.020 for status=ill; this may be chance). Composition reads genes. "
            "Not used: clones.",
        ),
        ([], [STATUS], "Branches used: only the attention. Not used: composition, clones."),
    ],
)
def test_the_branches_in_use_are_named(fitted: list[FittedBranch], tasks: list[Task], text: str) -> None:
    assert describe_fits(fitted, NetworkConfig(), tasks) == text


@pytest.mark.parametrize("of_clones", [None, make_fit("clones", 0.1)], ids=["alone", "beside clones"])
def test_a_doubtful_branch_is_used_if_no_other_is(
    monkeypatch: pytest.MonkeyPatch, of_clones: FittedBranch | None
) -> None:
    clear, doubtful = make_fit("composition", 0.1), make_fit("composition", 0.02, is_doubtful=True)
    monkeypatch.setattr(fit, "fit_clones", lambda _: of_clones)
    monkeypatch.setattr(fit, "adds_to", lambda *_: True)
    cohort = cast("TrainingCohort", None)
    monkeypatch.setattr(fit, "fit_composition", lambda _, with_counts: doubtful)
    assert fit_branches(NetworkConfig(), cohort) == [doubtful if of_clones is None else of_clones]
    monkeypatch.setattr(fit, "fit_composition", lambda _, with_counts: clear)
    assert fit_branches(NetworkConfig(), cohort) == [clear, *([of_clones] if of_clones else [])]


@pytest.mark.parametrize(
    ("composition_is_doubtful", "of_clones", "expected"),
    [(False, 0.09, ["composition"]), (False, 0.11, ["composition", "clones"]), (True, 0.09, ["clones"])],
    ids=["worse", "better", "beside doubt"],
)
def test_clones_that_add_nothing_to_a_clear_and_better_composition_are_left_out(
    monkeypatch: pytest.MonkeyPatch, composition_is_doubtful: bool, of_clones: float, expected: list[str]
) -> None:
    composition = make_fit("composition", 0.1, is_doubtful=composition_is_doubtful)
    clones = make_fit("clones", of_clones)
    monkeypatch.setattr(fit, "fit_composition", lambda _, with_counts: composition)
    monkeypatch.setattr(fit, "fit_clones", lambda _: clones)
    monkeypatch.setattr(fit, "adds_to", lambda used, further, _: (used, further) != (composition, clones))
    fitted = fit_branches(NetworkConfig(), cast("TrainingCohort", None))
    assert [each.branch.name for each in fitted] == expected


def test_no_branch_was_sought() -> None:
    config = NetworkConfig(composition=False, clones=False)
    assert describe_fits([], config, [STATUS]) == "The network has no branch besides its attention."


def test_stored_clones_of_another_target_are_refused() -> None:
    memory = {"output": 0, "direction": "up", "kind": "odds", "n_clones": 1}
    described = {"members": {"clones": {"memories": [memory], "n_residues": 9, "genes": {}}}}
    age = Task("age", "age", "regression")
    attach_described_branches(DeepRC(), [STATUS], described, "m")
    message = r"^m: branches: clones: memories: kind: expected rate, because output 0 is a number, found odds$"
    with pytest.raises(InputError, match=message):
        attach_described_branches(DeepRC(), [age], described, "m")
