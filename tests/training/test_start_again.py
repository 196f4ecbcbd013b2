"""A start that is learned again from training and validation repertoires together."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from deeprc import DeepRCClassifier
from deeprc.config import load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.tasks import Task
from deeprc.training import confirmation
from deeprc.training.confirmation import find_motifs_again
from deeprc.training.enriched_motif import EnrichedMotif
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.start_again import learn_start_again
from deeprc.training.trainer import Trainer
from tests.conftest import motif, random_sequences, write_cohort

TASK = Task("status", "status", "binary", ("no", "yes"))
LABELS = np.arange(32) % 2.0
SETTINGS = {
    "n_updates": 2,
    "evaluate_every": 1,
    "n_kernels": 8,
    "kernel_size": 5,
    "composition": False,
    "clones": False,
    "validation_sequences": None,
}


@pytest.fixture
def carriers(tmp_path: Path) -> RepertoireDataset:
    """32 repertoires; every second one has WHWM in a fifth of its sequences."""
    rng = np.random.default_rng(0)
    repertoires = [random_sequences(rng, 100) for _ in LABELS]
    for sequences in repertoires[1::2]:
        sequences[:20] = [text[:4] + "WHWM" + text[4:] for text in sequences[:20]]
    return write_cohort(tmp_path / "cohort.h5", repertoires, pd.DataFrame({"status": LABELS}))


def take(cohort: RepertoireDataset, rows: slice) -> LabelledRepertoires:
    return LabelledRepertoires(cohort[rows], LABELS[rows][:, None])


@pytest.fixture
def make_trainer(carriers: RepertoireDataset, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Trainer]:
    """A training of 20 repertoires with 12 for validation; its updates are worse than its start, or better."""

    def make(*, is_start_best: bool = True, rows: slice = slice(0, 20), **settings: object) -> Trainer:
        losses = iter([0.1, 0.5, 0.5] if is_start_best else [0.9, 0.1, 0.2])
        monkeypatch.setattr("deeprc.training.validation.Evaluator.compute_loss", lambda *_, **__: (next(losses), {}))
        parts = take(carriers, rows), take(carriers, slice(20, 32))
        config = load_config("deeprc", SETTINGS | settings)
        return Trainer(config, [TASK], *parts, seed=0, device=torch.device("cpu"))

    return make


@pytest.mark.slow
def test_the_start_is_that_of_all_repertoires(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer()
    trainer.fit()
    of_training = {name: tensor.clone() for name, tensor in trainer.network.state_dict().items()}
    assert learn_start_again(trainer)
    of_all = trainer.network.state_dict()
    assert not torch.equal(of_all["output_network.1.bias"], of_training["output_network.1.bias"])

    joint = make_trainer(rows=slice(0, 32))  # learns from all 32, of which 12 also validate
    joint.fit()
    expected = joint.network.state_dict()
    assert joint.start_motifs[0].pattern == "WHWM"
    for name, tensor in of_all.items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=0, msg=name)


@pytest.mark.slow
def test_it_is_not_learned_again_where_validation_repertoires_still_matter(
    make_trainer: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_learned_again(**settings: object) -> bool:
        trainer = make_trainer(**settings)
        trainer.fit()
        before = {name: tensor.clone() for name, tensor in trainer.network.state_dict().items()}
        again = learn_start_again(trainer)
        changed = any(not torch.equal(before[name], tensor) for name, tensor in trainer.network.state_dict().items())
        assert changed is again
        return again

    assert is_learned_again()
    monkeypatch.setattr("deeprc.training.weight_choice.WeightChoice._are_clearly_better", lambda *_: True)
    assert not is_learned_again(is_start_best=False)  # an update is kept
    assert not is_learned_again(branches_use_validation=False)
    assert not is_learned_again(seeded_start=0.0)  # nothing was learned before the first update
    monkeypatch.setattr("deeprc.training.validation.FEW_DONORS", 12)
    assert not is_learned_again()


def test_without_significant_motifs_the_known_ones_are_used(
    carriers: RepertoireDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(p_value: float) -> list[str]:
        def find_start_motifs(*_: object, **__: object) -> list[EnrichedMotif]:
            return [EnrichedMotif(motif("WHWM").letters, 0, 0.9, p_value)]

        monkeypatch.setattr(confirmation, "find_start_motifs", find_start_motifs)
        found = find_motifs_again(
            load_config("deeprc", SETTINGS), [TASK], take(carriers, slice(0, 32)), [motif("CYFC")], seed=0
        )
        return [start_motif.pattern for start_motif in found]

    assert find(0.01) == ["WHWM"]
    assert find(0.2) == ["CYFC"]  # a doubtful motif, which no other repertoires could confirm


@pytest.mark.slow
def test_validation_repertoires_become_training_repertoires(carriers: RepertoireDataset) -> None:
    models = {
        relearn: DeepRCClassifier(overrides=SETTINGS | {"n_updates": 1}, relearn_start=relearn).fit(carriers, LABELS)
        for relearn in (True, False)
    }
    assert [len(models[False].train_digests_), len(models[False].validation_digests_)] == [26, 6]
    assert [len(models[True].train_digests_), len(models[True].validation_digests_)] == [32, 0]
    assert set(models[True].train_digests_) == {*models[False].train_digests_, *models[False].validation_digests_}
    assert models[True].history_[-1]["best_update"] == 0
    assert models[True].model_.tasks[0].calibration == models[False].model_.tasks[0].calibration
    assert not np.array_equal(*(model.decision_function(carriers) for model in models.values()))


def test_with_given_validation_repertoires_nothing_is_learned_from_them(carriers: RepertoireDataset) -> None:
    fitted = DeepRCClassifier(overrides=SETTINGS | {"n_updates": 1}).fit(
        carriers[:20], LABELS[:20], X_validation=carriers[20:], y_validation=LABELS[20:]
    )
    assert [len(fitted.train_digests_), len(fitted.validation_digests_)] == [20, 12]
