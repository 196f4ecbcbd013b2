from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from deeprc.config import Config, NetworkConfig, TrainingConfig
from deeprc.datasets import read_ahead
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.tasks import Task
from deeprc.training import trainer as trainer_module
from deeprc.training.checkpoint import load_tensors, save_tensors
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.state import TrainingState, parse_state
from deeprc.training.trainer import Trainer
from tests.toys.trainings import assert_same_weights, encode_status, interrupt

CPU = torch.device("cpu")
TASKS = [Task("status", "status", "binary", ("healthy", "case"))]


def small(**training: object) -> Config:
    settings: dict[str, object] = {
        "n_updates": 20, "evaluate_every": 5, "n_sequences": 50, "seeded_start": 0.0, **training
    }  # fmt: skip
    network = NetworkConfig(n_kernels=8, kernel_size=4, abundance="none", composition=False, clones=False)
    return Config(network, TrainingConfig(**settings))  # type: ignore[arg-type]


def parts(dataset: RepertoireDataset) -> tuple[LabelledRepertoires, LabelledRepertoires]:
    train, validation = dataset[:20], dataset[20:]
    return LabelledRepertoires(train, encode_status(train)), LabelledRepertoires(validation, encode_status(validation))


def make(dataset: RepertoireDataset, config: Config, *, seed: int = 0, checkpoint: Path | None = None) -> Trainer:
    return Trainer(config, TASKS, *parts(dataset), seed=seed, device=CPU, checkpoint=checkpoint)


def without_seconds(state: TrainingState) -> list[dict[str, float]]:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in state.history]


def test_trainer_learns_an_implanted_motif(cohort_factory: Callable[..., RepertoireDataset]) -> None:
    cohort = cohort_factory(150, 60)
    train, validation = cohort[:100], cohort[100:]
    trainer = Trainer(
        small(n_updates=150, evaluate_every=50, learning_rate=5e-3),
        TASKS,
        LabelledRepertoires(train, encode_status(train)),
        LabelledRepertoires(validation, encode_status(validation)),
        seed=0,
        device=CPU,
    )
    state = trainer.fit()
    assert state.best_loss < 0.2
    assert state.history[0]["validation_loss"] > state.best_loss


def test_the_same_seed_gives_the_same_numbers(cohort: RepertoireDataset) -> None:
    first, again, other = (make(cohort, small(), seed=seed).fit() for seed in (1, 1, 2))
    assert without_seconds(first) == without_seconds(again)
    assert without_seconds(first) != without_seconds(other)


def test_losses_equal_the_pinned_ones(cohort: RepertoireDataset) -> None:
    """Guards against a silent change of sampling, start or update."""
    history = make(cohort, small(weight_average=0.0)).fit().history
    assert [row["update"] for row in history] == [5, 10, 15, 20]
    np.testing.assert_allclose([row["validation_loss"] for row in history], PINNED, rtol=1e-3)


def test_reading_ahead_changes_no_number_and_names_what_is_drawn_next(
    cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = make(cohort, small())
    history = without_seconds(alone.fit())
    monkeypatch.setattr(read_ahead, "_MIN_BYTES", 0)
    ahead = make(cohort, small())
    prefetch, expected = ahead._train_collator.prefetch, []
    monkeypatch.setattr(ahead._train_collator, "prefetch", lambda rows: (expected.append([*rows]), prefetch(rows)))
    assert without_seconds(ahead.fit()) == history
    assert_same_weights(ahead.network, alone.network)
    assert expected == [ahead.draws.choose_repertoires(update + 2).tolist() for update in range(20)]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"logit_noise": 0.5, "residue_permutation": 0.1, "shuffle_negatives": True}])
@pytest.mark.parametrize(("save_seconds", "saved"), [(60.0, 10), (0.0, 13)])
def test_a_resumed_training_equals_an_uninterrupted_one(
    cohort: RepertoireDataset,
    tmp_path: Path,
    options: dict[str, object],
    save_seconds: float,
    saved: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trainer_module, "SAVE_SECONDS", save_seconds)

    config = small(**options)
    whole = make(cohort, config)
    whole.fit()
    checkpoint = tmp_path / "checkpoint" / "last.safetensors"
    resumed = interrupt(lambda: make(cohort, config, checkpoint=checkpoint), 13)
    assert resumed.state.update == saved
    resumed.fit()
    assert without_seconds(resumed.state) == without_seconds(whole.state)
    assert_same_weights(whole.network, resumed.network)


def test_the_time_of_earlier_processes_counts(cohort: RepertoireDataset, tmp_path: Path) -> None:
    checkpoint = tmp_path / "last.safetensors"
    resumed = interrupt(lambda: make(cohort, small(), checkpoint=checkpoint), 13)
    first = [row["seconds"] for row in resumed.state.history]
    assert 0 < first[0] <= first[-1] <= resumed.state.seconds
    resumed.state.seconds = 5000.0
    state = resumed.fit()
    last = [row["seconds"] for row in state.history][len(first) :]
    assert 5000 <= last[0] <= last[-1] <= state.seconds < 9000


def test_a_checkpoint_of_an_earlier_version_has_its_time_in_the_history() -> None:
    rows = [{"update": update, "seconds": 10.0 * update} for update in (5, 10)]
    assert parse_state({"update": 10, "history": rows}, 1, "state").seconds == 100
    assert parse_state({"update": 10, "history": rows, "seconds": 120.5}, 1, "state").seconds == 120.5
    for wrong in (float("nan"), float("inf"), -1.0, "soon"):
        with pytest.raises(InputError, match="state: seconds"):
            parse_state({"history": rows, "seconds": wrong}, 1, "state")


def test_a_checkpoint_of_an_earlier_version_calls_start_motifs_seeds() -> None:
    found = {"letters": [1, -1, 2], "output": 0, "correlation": 0.5, "p_value": 0.001}
    for name in ("seeds", "start_motifs"):
        assert parse_state({"update": 5, name: [found]}, 1, "state") == TrainingState(update=5, start_motifs=[found])
        with pytest.raises(InputError, match="state: start_motifs: expected valid letters and the index of an output"):
            parse_state({name: [{**found, "output": 1}]}, 1, "state")


def test_early_stopping_stops_and_the_best_weights_stay(cohort: RepertoireDataset) -> None:
    config = small(n_updates=1000, evaluate_every=1, patience=3, learning_rate=0.3)
    trainer = make(cohort, config)
    state = trainer.fit()
    assert state.update < 1000
    assert state.update == state.best_update + 3
    best = min(state.history, key=lambda row: row["validation_loss"])
    assert best["update"] == state.best_update
    assert trainer._evaluator.compute_sample_loss(trainer.network)[0] == pytest.approx(
        best["validation_loss"], rel=1e-6
    )


def test_without_patience_it_runs_to_the_end(cohort: RepertoireDataset) -> None:
    assert make(cohort, small(n_updates=8, evaluate_every=1, patience=None, learning_rate=0.3)).fit().update == 8


def test_every_labelled_repertoire_is_seen_once_per_epoch(cohort: RepertoireDataset) -> None:
    train, validation = parts(cohort)
    train.labels[[2, 5]] = np.nan
    trainer = Trainer(small(), TASKS, train, validation, seed=0, device=CPU)
    ids = trainer.train.dataset.repertoire_ids
    assert set(ids) == {f"rep.{i}" for i in range(20)} - {"rep.2", "rep.5"}
    seen = np.concatenate([trainer.draws.choose_repertoires(i) for i in range(9)])  # 36 places: 2 epochs of 18
    assert sorted(seen[:18]) == list(range(18))
    assert sorted(seen[18:]) == list(range(18))
    assert seen[:18].tolist() != seen[18:].tolist()


def test_neither_the_order_nor_repertoires_without_a_label_change_anything(cohort: RepertoireDataset) -> None:
    train, validation = parts(cohort)
    train.labels[[2, 5]] = np.nan
    plain = Trainer(small(), TASKS, train, validation, seed=0, device=CPU)
    labelled = np.setdiff1d(np.arange(20), [2, 5])[::-1]
    order = np.random.default_rng(0).permutation(len(validation.labels))
    without, shuffled = (
        LabelledRepertoires(repertoires.dataset[rows], repertoires.labels[rows])
        for repertoires, rows in ((train, labelled), (validation, order))
    )
    other = Trainer(small(), TASKS, without, shuffled, seed=0, device=CPU)
    assert without_seconds(plain.fit()) == without_seconds(other.fit())
    assert_same_weights(plain.network, other.network)


def test_weight_decay_shrinks_the_weights(cohort: RepertoireDataset) -> None:
    def norm(trainer: Trainer) -> float:
        trainer.fit()
        return float(sum(p.detach().square().sum() for p in trainer.network.parameters()))

    plain, l2, l1 = (norm(make(cohort, small(**o))) for o in ({}, {"l2": 0.1}, {"l1": 0.1}))
    assert l2 < plain
    assert l1 < plain


def test_repertoires_without_any_label_are_refused(cohort: RepertoireDataset) -> None:
    train, validation = parts(cohort)
    with pytest.raises(InputError, match="no training repertoire has a label"):
        Trainer(
            small(), TASKS, LabelledRepertoires(train.dataset, train.labels * np.nan), validation, seed=0, device=CPU
        )
    with pytest.raises(InputError, match="no validation repertoire has a label"):
        Trainer(
            small(),
            TASKS,
            train,
            LabelledRepertoires(validation.dataset, validation.labels * np.nan),
            seed=0,
            device=CPU,
        )


def test_tensors_round_trip_and_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_tensors(path, {"a": torch.arange(3.0)}, {"best": float("inf"), "n": 1})
    tensors, state = load_tensors(path)
    assert tensors["a"].tolist() == [0.0, 1.0, 2.0]
    assert state == {"best": float("inf"), "n": 1}
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(InputError, match=r"x\.safetensors: is damaged"):
        load_tensors(path)
    with pytest.raises(InputError, match="no such file"):
        load_tensors(tmp_path / "none.safetensors")


PINNED = [0.782907, 0.760924, 0.730662, 0.799122]
