"""What a training learns before its first update."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from deeprc.branches.composition import CompositionBranch
from deeprc.config import load_config
from deeprc.nn.network import DeepRC
from deeprc.tasks import Task
from deeprc.training import network_start
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.trainer import Trainer
from tests.conftest import motif, random_sequences, write_cohort

CONFIG = {"branches_use_validation": False, "n_updates": 1, "evaluate_every": 1, "n_kernels": 8, "kernel_size": 5}
TASK = Task("status", "status", "binary", ("no", "yes"))
LABELS = np.arange(24) % 2.0


def test_a_doubtful_branch_stays_beside_motifs_and_has_a_small_gain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The motif decides. The branch has its scores by chance, and its gain is pulled towards 0."""
    rng = np.random.default_rng(0)
    repertoires = [random_sequences(rng, 100) for _ in range(24)]
    for sequences in repertoires[1::2]:
        sequences[:20] = [text[:4] + "WHWM" + text[4:] for text in sequences[:20]]
    cohort = write_cohort(tmp_path / "cohort.h5", repertoires, pd.DataFrame({"x": range(24)}))
    by_chance = CompositionBranch(1, {}, is_doubtful=True)
    by_chance.get_buffer("kmer_weights").copy_(torch.from_numpy(rng.normal(0, 100, (1, 160000))))

    def attach(network: DeepRC, *_: object) -> None:
        network.attach_branches([by_chance])

    monkeypatch.setattr(network_start, "learn_branches", attach)
    monkeypatch.setattr(network_start, "find_confirmed_motifs", lambda *_, **__: [motif("WHWM")])
    parts = [LabelledRepertoires(cohort[rows], LABELS[rows][:, None]) for rows in (slice(0, 16), slice(16, 24))]
    trainer = Trainer(load_config("deeprc", CONFIG), [TASK], *parts, seed=0, device=torch.device("cpu"))
    gains = []

    def keep_gains(self: Trainer) -> None:
        assert self.network.branches is not None
        gains.append(self.network.branches.gains.detach().item())

    monkeypatch.setattr(Trainer, "_evaluate_start", keep_gains)
    trainer.fit()
    assert 0 <= gains[0] < 0.5
    assert trainer.network.branches is not None
    assert [branch.name for branch in trainer.network.branches] == ["composition"]
