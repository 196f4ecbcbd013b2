"""The choice between a start from motifs and a start from branches alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pandas as pd
import pytest
import torch

from deeprc.arrays import Floats, Integers
from deeprc.branches.composition import CompositionBranch
from deeprc.config import load_config
from deeprc.datasets.kmers import list_kmers
from deeprc.nn.branches import Branch
from deeprc.nn.inference import Inference
from deeprc.nn.network import DeepRC
from deeprc.tasks import Task
from deeprc.training import network_start, start_choice
from deeprc.training.enriched_motif import EnrichedMotif
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.start_choice import choose_start_motifs
from deeprc.training.trainer import Trainer
from deeprc.training.validation import Evaluator
from tests.conftest import motif, random_sequences, write_cohort
from tests.toys.toy_branches import Clones

TASK = Task("status", "status", "binary", ("no", "yes"))
MOTIFS = [motif(f"WHW{letter}") for letter in "ACDEFG"]


def choose(
    monkeypatch: pytest.MonkeyPatch,
    branches: list[Branch],
    with_motifs: list[float],
    groups: Integers | None = None,
    *,
    motifs: Sequence[EnrichedMotif] = MOTIFS,
    alone: float = 1.0,
) -> list[EnrichedMotif]:
    """Choose, if the start from motifs has these losses of validation repertoires, and the other start one loss."""
    network = DeepRC(n_outputs=1)
    if branches:
        network.attach_branches(branches)
    initial = {name: tensor.clone() for name, tensor in network.state_dict().items()}

    def start(inference: Inference, motifs: list[EnrichedMotif], *_: object) -> None:
        for weights in inference.network.parameters():
            weights.data.fill_(len(motifs) + 1.0)

    def compute_repertoire_losses(network: DeepRC) -> Floats:
        network.eval()
        n_motifs = round(next(network.parameters()).flatten()[0].item()) - 1
        return np.array(with_motifs) if n_motifs else np.full(len(with_motifs), alone)

    monkeypatch.setattr(start_choice, "start_network", start)
    repertoires = SimpleNamespace(groups=groups)
    evaluator = cast(
        "Evaluator",
        SimpleNamespace(tasks=[TASK], repertoires=repertoires, compute_repertoire_losses=compute_repertoire_losses),
    )
    inference = cast("Inference", SimpleNamespace(network=network))
    chosen = choose_start_motifs(inference, motifs, np.zeros((4, 1)), evaluator)
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, initial[name]), name
    assert network.training
    return chosen


def test_motifs_are_used_unless_they_are_clearly_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean differences are 0.5 (3.9 standard errors), 0.3 (0.7, or 0.4 of two donors), -0.5, 0.1 (0.2), and NaN."""
    branches = [CompositionBranch(1)]
    assert choose(monkeypatch, branches, [1.2, 1.8, 1.4, 1.6]) == []
    assert choose(monkeypatch, branches, [2.0, 2.0, 0.6, 0.6]) == []
    assert choose(monkeypatch, branches, [2.0, 2.0, 0.6, 0.6], groups=np.array([0, 0, 1, 1])) == MOTIFS
    assert choose(monkeypatch, branches, [0.2, 0.8, 0.4, 0.6]) == MOTIFS
    assert choose(monkeypatch, branches, [0.1, 2.1, 0.1, 2.1]) == MOTIFS
    assert choose(monkeypatch, branches, [0.1, 0.1, 0.1, float("nan")]) == []
    assert choose(monkeypatch, branches, [0.1, 0.1, 0.1, float("inf")]) == []


def test_motifs_stay_if_the_other_start_has_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    for alone in (float("nan"), float("inf")):
        assert choose(monkeypatch, [CompositionBranch(1)], [1.2, 1.8, 1.4, 1.6], alone=alone) == MOTIFS


def test_a_few_motifs_are_always_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose(monkeypatch, [CompositionBranch(1)], [1.2, 1.8, 1.4, 1.6], motifs=MOTIFS[:5]) == MOTIFS[:5]
    assert choose(monkeypatch, [CompositionBranch(1)], [1.2, 1.8, 1.4, 1.6], motifs=[]) == []


def test_motifs_stay_without_a_clear_composition(monkeypatch: pytest.MonkeyPatch) -> None:
    for branches in ([], [CompositionBranch(1, is_doubtful=True)], [Clones("WWHW", [1.0])]):
        assert choose(monkeypatch, branches, [1.2, 1.8, 1.4, 1.6]) == MOTIFS


@pytest.mark.parametrize("in_validation", ["the same", "the other"])
def test_a_motif_that_misleads_in_the_validation_fold_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_validation: str
) -> None:
    """Positive repertoires have more W. Those for training also have the motif; for validation, these or the others."""
    rng = np.random.default_rng(0)
    labels = np.arange(36) % 2.0
    repertoires = [random_sequences(rng, 100) for _ in labels]
    for number, sequences in enumerate(repertoires):
        is_positive, is_validation = labels[number] == 1, number >= 24
        n_more = int(rng.integers(0, 30)) + 10 * is_positive
        sequences[50 : 50 + n_more] = [text[:4] + "WWWW" + text[4:] for text in sequences[50 : 50 + n_more]]
        if is_positive != (is_validation and in_validation == "the other"):
            sequences[:20] = [text[:4] + "HDHM" + text[4:] for text in sequences[:20]]
    cohort = write_cohort(tmp_path / "cohort.h5", repertoires, pd.DataFrame({"x": range(36)}))
    branch = CompositionBranch(1)
    branch.kmer_weights[0, list_kmers(4).index("WWWW")] = 100.0

    def attach(network: DeepRC, *_: object) -> None:
        network.attach_branches([branch])

    monkeypatch.setattr(network_start, "learn_branches", attach)
    monkeypatch.setattr(network_start, "find_confirmed_motifs", lambda *_, **__: [motif("HDHM")])
    monkeypatch.setattr(start_choice, "_MIN_MOTIFS", 1)
    config = load_config("deeprc", ["branches_use_validation=false", "n_kernels=8", "kernel_size=5"])
    parts = [LabelledRepertoires(cohort[rows], labels[rows][:, None]) for rows in (slice(0, 24), slice(24, 36))]
    trainer = Trainer(config, [TASK], *parts, seed=0, device=torch.device("cpu"))
    trainer.initialise_network()
    assert [each.pattern for each in trainer.start_motifs] == (["HDHM"] if in_validation == "the same" else [])
