"""Warnings about packed models, about attention that adds nothing, and about doubtful branches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from deeprc.config import load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.nn.batch import Collator
from deeprc.nn.branches import BranchScores
from deeprc.nn.inference import Inference
from deeprc.runs.model_cautions import (
    find_doubtful_branch_cautions,
    find_packed_cautions,
    find_unused_attention_cautions,
)
from deeprc.tasks import Task
from deeprc.training.building import build_network
from deeprc.training.network_start import start_network
from tests.toys.toy_branches import Composition


def make_run(
    *, packed: bool = False, best_update: int = 0, motifs: int = 0, branches: tuple[str, ...] = ("composition",)
) -> Any:
    network = SimpleNamespace(branches=SimpleNamespace(names=branches) if branches else None, linear_output=object())
    history = pd.DataFrame({"update": [0, 10], "best_update": [0, best_update]})
    return SimpleNamespace(
        bundle=object() if packed else None,
        model=SimpleNamespace(network=network),
        history=lambda: pd.DataFrame() if packed else history,
        start_motifs=lambda: pd.DataFrame({"motif": ["WWHW"] * motifs}),
    )


def test_a_packed_model_warns_that_new_repertoires_may_be_known() -> None:
    (caution,) = find_packed_cautions([make_run(packed=True)], ["new", "new"])
    assert caution.level == "warning"
    assert caution.text == (
        "A packed model cannot recognise its training repertoires. If this is its training cohort, its predictions and "
        "metrics are too good."
    )
    (caution,) = find_packed_cautions([make_run(packed=True), make_run()], ["train", "new"])
    assert caution.text.startswith("1 of 2 models are packed and cannot recognise their training repertoires.")


@pytest.mark.parametrize(
    ("runs", "splits"), [([], ["new"]), ([make_run()], ["new"]), ([make_run(packed=True)] * 2, ["test"])]
)
def test_other_models_do_not_warn(runs: list[Any], splits: list[str]) -> None:
    assert not list(find_packed_cautions(runs, splits))


def test_a_start_without_motifs_that_no_update_improved() -> None:
    (caution,) = find_unused_attention_cautions([make_run(branches=("composition", "clones"))])
    assert caution.level == "warning"
    assert caution.text == (
        "No update lowered the validation loss clearly, so the attention adds nothing: the model predicts from "
        "composition and clones only."
    )
    (caution,) = find_unused_attention_cautions([make_run(), make_run(best_update=10)])
    assert caution.text == (
        "In 1 of 2 runs, no update lowered the validation loss clearly. The attention of this run adds nothing: it "
        "predicts from composition only."
    )
    (caution,) = find_unused_attention_cautions([make_run(), make_run(branches=("clones",)), make_run(best_update=10)])
    assert caution.text == (
        "In 2 of 3 runs, no update lowered the validation loss clearly. The attention of these runs adds nothing: they "
        "predict from composition and clones only."
    )
    assert caution.details == {"n": 2, "n_runs": 3, "branches": ["composition", "clones"]}


@pytest.mark.parametrize(
    "run", [make_run(best_update=10), make_run(motifs=1), make_run(branches=()), make_run(packed=True)]
)
def test_other_networks_use_their_attention_or_it_is_not_known(run: Any) -> None:
    assert not list(find_unused_attention_cautions([run]))


def make_doubtful_model(*is_doubtful: bool | None) -> Any:
    """Return a model with one network for each value; None: it has no branch."""
    branches = [
        None if each is None else [SimpleNamespace(name="composition", is_doubtful=each)] for each in is_doubtful
    ]
    return SimpleNamespace(members=[SimpleNamespace(network=SimpleNamespace(branches=each)) for each in branches])


def test_a_branch_with_weak_evidence() -> None:
    (caution,) = find_doubtful_branch_cautions(make_doubtful_model(True))
    assert caution.text == (
        "The evidence for the branch composition is weak: it may be chance that it predicts left-out repertoires. Of "
        "cohorts without any signal, about one in three with fewer than 50 donors gets such a branch, and about one in "
        "ten with more."
    )
    assert (caution.level, caution.section, caution.name) == ("warning", "branches", "doubtful-branch")
    (caution,) = find_doubtful_branch_cautions(make_doubtful_model(True, None, False))
    assert caution.text.startswith("In 1 of 3 models, the evidence for the branch composition is weak:")
    assert caution.details == {"n": 1, "n_models": 3, "branches": ["composition"]}
    assert not list(find_doubtful_branch_cautions(make_doubtful_model(None, False)))


@pytest.mark.slow
def test_a_real_start_without_motifs_gives_attention_no_weight(cohort: RepertoireDataset) -> None:
    tasks = [Task("status=case", "status", "binary", ("healthy", "case"))]
    network = build_network(load_config("deeprc", ["n_kernels=8"]), tasks, seed=0, device=torch.device("cpu"))
    network.attach_branches([Composition("W", [3.0])])
    labels = (cohort.metadata["status"] == "case").to_numpy(np.float64)[:, None]
    assert network.branches is not None
    collator = Collator(cohort, "none", branches=BranchScores(network.branches, cohort))
    start_network(Inference(network, collator), [], labels, tasks)
    assert network.linear_output is not None
    assert not network.linear_output.weight.any()
    run = make_run()
    run.model.network = network
    (caution,) = find_unused_attention_cautions([run])
    assert caution.details["branches"] == ["composition"]
