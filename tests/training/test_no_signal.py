"""The control: where nothing tells the classes apart, held-out repertoires are predicted no better than by chance."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from deeprc.config import load_config
from deeprc.datasets.simulation import SimulatedDataset, load_recipe
from deeprc.nn.batch import Collator
from deeprc.nn.branches import BranchScores
from deeprc.nn.inference import Inference
from deeprc.tasks import Task
from deeprc.training import motif_start
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.trainer import Trainer

TASKS = [Task("status", "status", "binary", ("negative", "positive"))]
SETTINGS = ["n_repertoires=370", "sizes.mean=100", "sizes.sd=0", "sizes.minimum=1", "signals=[]"]
TRAIN, VALIDATION, TEST = slice(0, 120), slice(120, 170), slice(170, 370)


def auc_without_signal(seed: int) -> float:
    """Train the default on 120 repertoires of 100 random sequences; return the AUC of 200 others.

    Its kernels are narrower, because the search for motifs takes as long as it has patterns.
    """
    cohort, _ = load_recipe("simulated-0", SETTINGS, seed=seed)
    dataset = SimulatedDataset(cohort)
    labels = np.random.default_rng(seed).permutation(np.arange(370) % 2)[:, None].astype(np.float64)
    config = load_config("deeprc", {"n_updates": 60, "evaluate_every": 20, "kernel_size": 4})
    parts = (LabelledRepertoires(dataset[part], labels[part]) for part in (TRAIN, VALIDATION))
    trainer = Trainer(config, TASKS, *parts, seed=seed, device=torch.device("cpu"))
    trainer.fit()
    branches = trainer.network.branches
    scores = None if branches is None else BranchScores(branches, dataset[TEST])
    outputs = Inference(trainer.network, Collator(dataset[TEST], "none", branches=scores)).compute_outputs()
    return float(roc_auc_score(labels[TEST, 0], outputs[:, 0]))


@pytest.mark.long
def test_without_a_signal_the_auc_is_a_half() -> None:
    """The standard error of one AUC is 0.041, that of the mean of five 0.018."""
    assert TRAIN.stop > motif_start.MIN_DONORS  # motifs are sought
    aucs = [auc_without_signal(seed) for seed in range(5)]
    assert np.mean(aucs) == pytest.approx(0.5, abs=0.06), aucs
    assert max(aucs) < 0.65, aucs
