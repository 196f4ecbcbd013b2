"""Whole validation repertoires decide which weights are kept, if evaluations read samples of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from deeprc.config import Config, NetworkConfig, TrainingConfig
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.nn.batch import Collator
from deeprc.nn.inference import Inference
from deeprc.nn.network import DeepRC
from deeprc.outputs import compute_multitask_loss
from deeprc.runs.experiment import describe_end
from deeprc.tasks import Task
from deeprc.training import motif_start
from deeprc.training.building import build_network
from deeprc.training.calibration import calibrate_model
from deeprc.training.history import find_kept_weights
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.output_fit import fit_output
from deeprc.training.trainer import Trainer
from deeprc.training.validation import Evaluator
from deeprc.training.weight_choice import copy_state
from tests.conftest import Killed, motif, write_cohort
from tests.toys.trainings import assert_same_weights, encode_status

CPU = torch.device("cpu")
TASKS = [Task("status", "status", "binary", ("healthy", "case"))]


@pytest.fixture(autouse=True)
def _few_labels_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(motif_start, "MIN_DONORS", 8)


def make(
    dataset: RepertoireDataset, checkpoint: Path | None = None, *, n_output_layers: int = 1, **settings: object
) -> Trainer:
    """Return a trainer whose evaluations read 10 sequences of each of 16 validation repertoires."""
    training: dict[str, object] = {"n_updates": 12, "evaluate_every": 4, "n_sequences": 50, "validation_sequences": 10}
    network = NetworkConfig(
        n_kernels=8, kernel_size=4, composition=False, clones=False, n_output_layers=n_output_layers
    )
    config = Config(network, TrainingConfig(**{**training, **settings}))  # type: ignore[arg-type]
    parts = (LabelledRepertoires(part, encode_status(part)) for part in (dataset[:24], dataset[24:]))
    return Trainer(config, TASKS, *parts, seed=0, device=CPU, checkpoint=checkpoint)


def compute_loss(network: DeepRC, repertoires: LabelledRepertoires) -> float:
    outputs = Inference(network, Collator(repertoires.dataset, "none")).compute_outputs()
    return float(compute_multitask_loss(outputs, torch.from_numpy(repertoires.labels), TASKS))


def find_columns(trainer: Trainer) -> set[str]:
    return {name for row in trainer.state.history for name in row if name.startswith(("whole_", "fitted_"))}


def at(trainer: Trainer, update: int) -> dict[str, float]:
    return next(row for row in trainer.state.history if row["update"] == update)


def prefer(monkeypatch: pytest.MonkeyPatch, losses: list[float], *, start: float = 0.9) -> None:
    """Let samples have the loss `start` at the start and then lower ones; let whole repertoires have these losses."""
    of_whole, of_samples = iter(losses), iter([start, *np.linspace(0.8, 0.1, 99)])
    monkeypatch.setattr(Evaluator, "compute_sample_loss", lambda *_: (float(next(of_samples)), {}))
    monkeypatch.setattr(Evaluator, "compute_whole_loss", lambda *_: (float(next(of_whole)), {}))


@pytest.mark.slow
def test_the_weights_with_the_lowest_loss_of_whole_repertoires_are_kept(
    cohort_factory: Callable[..., RepertoireDataset],
) -> None:
    trainer = make(cohort_factory(40, 200))
    state = trainer.fit()
    assert find_columns(trainer) == {"whole_validation_loss", "fitted_validation_loss"}
    best = next(row for row in state.history if "fitted_validation_loss" in row)["update"]
    candidates = [at(trainer, best)[f"{name}_validation_loss"] for name in ("whole", "fitted")]
    candidates.append(at(trainer, 0)["whole_validation_loss"])
    kept = compute_loss(trainer.network, trainer.validation)
    assert kept == pytest.approx(min(candidates), abs=trainer.config.training.least_gain)
    assert any(kept == pytest.approx(each, rel=1e-5) for each in candidates)
    assert state.history[-1]["best_update"] == state.kept_update in (0, best)
    assert find_kept_weights(pd.DataFrame(state.history)).loss == pytest.approx(kept, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("losses", "update", "fitted"),
    [  # those of the best update, of the start, and of the best update with an output that is fitted again
        ([0.3, 0.4, 0.5], 12, False),
        ([0.3, 0.2, 0.5], 0, False),
        ([0.3, 0.2, 0.1], 12, True),
        ([0.3, 0.4, 0.1], 12, True),
        ([0.3, 0.3005, 0.2995], 0, False),  # a later candidate has to be better by 0.001
        ([np.nan, 0.5, np.inf], 0, False),
        ([0.3, np.nan, 0.2], 12, True),
    ],
)
def test_a_later_candidate_has_to_be_better(
    cohort_factory: Callable[..., RepertoireDataset],
    monkeypatch: pytest.MonkeyPatch,
    losses: list[float],
    update: int,
    fitted: bool,
) -> None:
    trainer = make(cohort_factory(40, 200))
    trainer.initialise_network()
    start = {name: tensor.clone() for name, tensor in trainer.network.state_dict().items()}
    prefer(monkeypatch, losses)
    state = trainer.fit()
    assert (state.kept_update, state.history[-1]["fitted"]) == (update, fitted)
    found = [at(trainer, each).get("whole_validation_loss") for each in (12, 0)]
    assert found == [loss if np.isfinite(loss) else None for loss in losses[:2]]
    weights = trainer.network.state_dict()
    assert all(torch.equal(weights[name], start[name]) for name in weights) == (update == 0)
    output = " with an output that was fitted to whole training repertoires" if fitted else ""
    kept = f"kept: {f'update {update}' if update else 'the network before the updates'}{output}, by the loss on whole"
    assert f"best at 12; {kept} validation repertoires" in describe_end(state, trainer.config.training)


def test_a_start_that_samples_prefer_is_compared_on_whole_repertoires(
    cohort_factory: Callable[..., RepertoireDataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, [0.3, 0.4, 0.5], start=0.01)
    state = make(cohort_factory(40, 200)).fit()
    assert (state.kept_update, state.best_update) == (12, 12)
    assert [row["best_update"] for row in state.history] == [0, 4, 8, 12]


@pytest.mark.slow
def test_a_fitted_output_changes_no_kernel(
    cohort_factory: Callable[..., RepertoireDataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    networks = []
    for losses in ([0.3, 0.4, 0.5], [0.3, 0.4, 0.1]):
        prefer(monkeypatch, losses)
        trainer = make(cohort_factory(40, 200))
        trainer.fit()
        networks.append(trainer.network.state_dict())
    changed = {name for name in networks[0] if not torch.equal(networks[0][name], networks[1][name])}
    assert {"output_network.1.weight", "output_network.1.bias"} <= changed
    assert all(name.startswith("output_network.") for name in changed)


def test_without_samples_nothing_is_judged_again(cohort_factory: Callable[..., RepertoireDataset]) -> None:
    cohort = cohort_factory(40, 200)
    trainer = make(cohort, validation_sequences=int(cohort.n_sequences.max()))
    assert not trainer._evaluator.reads_samples
    assert "fitted" not in trainer.fit().history[-1]
    assert find_columns(trainer) == set()


def test_no_whole_repertoire_is_read_twice_with_the_same_weights(
    cohort_factory: Callable[..., RepertoireDataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regressions, last choice, calibration and outputs share the averages, which are those of a new branch."""
    read: list[tuple[str, int]] = []
    pool_group = Inference._pool_group

    def record(self: Inference, group: Sequence[tuple[int, object]]) -> object:
        whole = [position for position, rows in group if rows is None]
        weights = self.network.digest_pooling_weights()
        read.extend((weights, int(self.collator.dataset.repertoire_indices[position])) for position in whole)
        return pool_group(self, group)  # type: ignore[arg-type]

    monkeypatch.setattr(Inference, "_pool_group", record)
    cohort = cohort_factory(60, 200)
    trainer = make(cohort[:40])
    trainer.fit()
    model = calibrate_model(trainer.make_model(), trainer.validation)
    outputs = model.compute_outputs(cohort)
    assert len(set(read)) == len(read)
    kept = trainer.network.digest_pooling_weights()
    assert sorted(row for weights, row in read if weights == kept) == list(range(60))
    again = replace(model, pooled_value_cache=None)
    assert torch.equal(outputs, again.compute_outputs(cohort))
    assert again.tasks == calibrate_model(again, trainer.validation).tasks


def test_a_second_fit_changes_nothing(cohort_factory: Callable[..., RepertoireDataset]) -> None:
    trainer = make(cohort_factory(40, 200))
    rows = [dict(row) for row in trainer.fit().history]
    seconds, weights = trainer.state.seconds, copy_state(trainer.network)
    assert str(trainer.fit().history) == str(rows)  # as text, because NaN is not NaN
    assert trainer.state.seconds == seconds
    for name, tensor in trainer.network.state_dict().items():
        assert torch.equal(tensor, weights[name]), name


def test_an_output_of_several_layers_is_not_fitted_again(cohort_factory: Callable[..., RepertoireDataset]) -> None:
    trainer = make(cohort_factory(40, 200), n_output_layers=2)
    trainer.fit()
    assert find_columns(trainer) == {"whole_validation_loss"}


def test_a_run_without_start_compares_the_best_update_with_its_fit(
    cohort_factory: Callable[..., RepertoireDataset],
) -> None:
    trainer = make(cohort_factory(40, 200), seeded_start=0.0)
    state = trainer.fit()
    (row,) = (row for row in state.history if "whole_validation_loss" in row)
    assert row["update"] == state.kept_update > 0
    lowest = min(row["whole_validation_loss"], row["fitted_validation_loss"])
    assert compute_loss(trainer.network, trainer.validation) == pytest.approx(lowest, abs=0.001)


@pytest.mark.slow
@pytest.mark.parametrize("killed_at", ["an update", "the last choice"])
def test_a_resumed_run_makes_the_same_choice(
    cohort_factory: Callable[..., RepertoireDataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    """The start weighs residues at a gap, so it is not the network with which updates begin."""
    cohort = cohort_factory(40, 200)
    weighed = replace(motif("W.HW"), gap_weights=((1.0, *[0.1] * 19),))
    monkeypatch.setattr("deeprc.training.network_start.find_confirmed_motifs", lambda *_, **__: [weighed])
    whole = make(cohort)
    whole.fit()
    checkpoint = tmp_path / "checkpoint" / "last.safetensors"

    def kill(*_: object) -> None:
        raise Killed

    def kill_at_six(state: object, _: Tensor) -> None:
        if state.update == 6:  # type: ignore[attr-defined]
            raise Killed

    cut = make(cohort, checkpoint)
    with monkeypatch.context() as patch:
        if killed_at == "the last choice":
            patch.setattr("deeprc.training.weight_choice.WeightChoice._measure_candidate", kill)
        with pytest.raises(Killed):
            cut.fit(kill_at_six if killed_at == "an update" else None)
    resumed = make(cohort, checkpoint)
    assert resumed.state.update == (4 if killed_at == "an update" else 12)
    assert not torch.equal(resumed._start_weights["embedding.weight"], make(cohort).network.embedding.weight)
    resumed.fit()
    assert_same_weights(whole.network, resumed.network)
    rows = [[{k: v for k, v in row.items() if k != "seconds"} for row in t.state.history] for t in (whole, resumed)]
    assert str(rows[0]) == str(rows[1])  # as text, because NaN is not NaN


def test_without_sequences_no_output_is_fitted(tmp_path: Path) -> None:
    cohort = write_cohort(tmp_path / "c.h5", [[], []], pd.DataFrame({"status": ["case", "healthy"]}))
    network = build_network(Config(NetworkConfig(n_kernels=8, kernel_size=4)), TASKS, seed=0, device=CPU)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    fit_output(Inference(network, Collator(cohort, "none")), encode_status(cohort), TASKS)
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


@pytest.mark.parametrize("standardise", [True, False])
def test_the_fitted_output_is_a_logistic_regression(
    cohort_factory: Callable[..., RepertoireDataset], standardise: bool
) -> None:
    """Its penalty is the squared weights over the number of repertoires: C = 0.5 in scikit-learn."""
    cohort = cohort_factory(40, 200)
    shape = NetworkConfig(n_kernels=8, kernel_size=4, standardise=standardise)
    network, collator = build_network(Config(shape), TASKS, seed=0, device=CPU), Collator(cohort, "none")
    pooled = Inference(network.eval(), collator).iterate_pooled()
    x = torch.stack([each.detach() for each in pooled]).flatten(1).numpy()
    z = (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 1e-8)
    labels = encode_status(cohort)
    fit_output(Inference(network, collator), labels, TASKS)
    expected = LogisticRegression(C=0.5, tol=1e-8, max_iter=10_000).fit(z, labels[:, 0]).decision_function(z)
    found = Inference(network, collator).compute_outputs()[:, 0]
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-3)
    assert network.linear_output is not None
