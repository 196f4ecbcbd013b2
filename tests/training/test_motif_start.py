from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, Ridge

from deeprc.config import Config, NetworkConfig, TrainingConfig
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.nn.batch import Collator
from deeprc.nn.inference import Inference
from deeprc.nn.network import DeepRC
from deeprc.outputs import compute_multitask_loss
from deeprc.tasks import Task, TaskKind
from deeprc.training import confirmation, motif_start
from deeprc.training import trainer as trainer_module
from deeprc.training.building import build_network
from deeprc.training.enriched_motif import EnrichedMotif
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.motif_search import MOTIF_LEVEL
from deeprc.training.motif_start import describe_start_motifs, find_start_motifs
from deeprc.training.network_start import start_network
from deeprc.training.trainer import Trainer
from tests.conftest import motif, random_sequences, write_cohort
from tests.toys.trainings import assert_same_weights, encode_status, interrupt

CPU = torch.device("cpu")
TASKS = [Task("status", "status", "binary", ("healthy", "case"))]


@pytest.fixture(autouse=True)
def _few_labels_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(motif_start, "MIN_DONORS", 8)


def config(**training: object) -> Config:
    settings: dict[str, object] = {"n_updates": 12, "evaluate_every": 4, "n_sequences": 50, "seeded_start": 0.5}
    network = NetworkConfig(n_kernels=8, kernel_size=4, abundance="none", composition=False, clones=False)
    return Config(network, TrainingConfig(**{**settings, **training}))  # type: ignore[arg-type]


def make(dataset: RepertoireDataset, settings: Config, checkpoint: Path | None = None) -> Trainer:
    train, validation = dataset[:24], dataset[24:]
    parts = LabelledRepertoires(train, encode_status(train)), LabelledRepertoires(validation, encode_status(validation))
    return Trainer(settings, TASKS, *parts, seed=0, device=CPU, checkpoint=checkpoint)


def four(folder: Path, sequences: list[str]) -> RepertoireDataset:
    return write_cohort(folder / "few.h5", [sequences], pd.DataFrame({"status": ["case"]}))


def test_a_kernel_fires_at_its_motif_alone_and_attention_follows(tmp_path: Path) -> None:
    rest = random_sequences(np.random.default_rng(0), 200, low=8)
    rest = [s for s in rest if "SFE" not in s]
    cohort = four(tmp_path, ["SFENAAAA", "ACDSFENC", "DDDDSFEN", "ACDSFWNC", *rest])
    network = build_network(config(), TASKS, seed=0, device=CPU)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    collator = Collator(cohort, "none")
    start_network(Inference(network, collator), [motif("SFEN"), motif("W.Y", -1.0)], np.ones((1, 1)), TASKS)
    values, logits = (each.detach() for each in network.attend(collator.take(0, slice(None))))
    fires = values[:, 0] > 1
    assert fires.tolist() == [True] * 3 + [False] * (1 + len(rest))
    assert bool((values[3:, 0] < -1).all())
    lacking = (values[:, 1] < -1) & ~fires
    assert float(logits[fires, 0].mean() - logits[lacking, 0].mean()) == pytest.approx(4.0, abs=1.5)
    after = network.state_dict()
    assert int(after["pooling.queries"][0, 0].count_nonzero()) == 1
    assert torch.equal(after["embedding.weight"][2:], before["embedding.weight"][2:])
    assert torch.equal(after["key_network.0.weight"][1:], before["key_network.0.weight"][1:])


@pytest.mark.parametrize("n_key_layers", [1, 2, 3])
def test_two_matches_hardly_count_more_than_one(tmp_path: Path, n_key_layers: int) -> None:
    cohort = four(tmp_path, ["SFENAAAA", "ACWAYACD", "SFENWAYC", "ACDGHIKL"])
    shape = NetworkConfig(n_kernels=8, kernel_size=4, n_key_layers=n_key_layers)
    network = build_network(Config(shape), TASKS, seed=0, device=CPU)
    collator = Collator(cohort, "none")
    start_network(Inference(network, collator), [motif("SFEN"), motif("W.Y")], np.ones((1, 1)), TASKS)
    first, second, both, none = network.attend(collator.take(0, slice(None)))[1][:, 0].tolist()
    assert first - none == pytest.approx(4.0, abs=0.5)
    assert second - none == pytest.approx(4.0, abs=0.5)
    assert both - max(first, second) == pytest.approx(0.0, abs=0.6)


def test_without_motifs_the_start_is_the_plain_one(cohort: RepertoireDataset) -> None:
    network = build_network(config(), TASKS, seed=0, device=CPU)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    start_network(Inference(network, Collator(cohort, "none")), [], encode_status(cohort), TASKS)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize("shape", [{"n_key_layers": 0, "key_units": 8}, {"n_heads": 2}, {"n_output_layers": 2}])
def test_networks_of_other_shapes_attend_to_matches(cohort: RepertoireDataset, shape: dict[str, int]) -> None:
    network_config = NetworkConfig(n_kernels=8, kernel_size=4, **shape)  # type: ignore[arg-type]
    network = build_network(Config(network_config), TASKS, seed=0, device=CPU)
    collator = Collator(cohort, "none")
    start_network(Inference(network, collator), [motif("WWHW")], encode_status(cohort), TASKS)
    values, logits = (each.detach() for each in network.attend(collator.take(1, slice(None))))
    fires = values[:, 0] > 1
    assert 0 < int(fires.sum()) < len(fires)
    assert float(logits[fires, 0].mean() - logits[~fires, 0].mean()) > 2


@pytest.mark.slow
def test_a_trainer_finds_the_motif_in_the_training_fold(cohort_factory: Callable[..., RepertoireDataset]) -> None:
    trainer = make(cohort_factory(40), config(n_updates=60, evaluate_every=20))
    state = trainer.fit()
    assert set(trainer.start_motifs[0].pattern) <= set("WH.")
    assert state.history[-1]["validation_loss"] < 0.6


@pytest.mark.slow
def test_validation_and_test_repertoires_cannot_propose_or_change_motifs(tmp_path: Path) -> None:
    """Two containers share the training repertoires; one has a motif of its own in the validation and test ones."""
    rng = np.random.default_rng(0)
    train = [random_sequences(rng, 60) for _ in range(24)]
    train = [
        [s[:1] + "WWHW" + s[1:] if b % 2 and i % 8 == 0 else s for i, s in enumerate(r)] for b, r in enumerate(train)
    ]
    others = [[random_sequences(rng, 60) for _ in range(12)] for _ in range(2)]
    others[1] = [[s + "CYFC" if b % 2 else s for s in r] for b, r in enumerate(others[1])]
    status = ["case" if b % 2 else "healthy" for b in range(36)]
    weights = []
    for number, rest in enumerate(others):
        folder = tmp_path / str(number)
        folder.mkdir()
        trainer = make(write_cohort(folder / "cohort.h5", train + rest, pd.DataFrame({"status": status})), config())
        if number:  # nor can their labels
            trainer.validation.labels[:] = 1 - trainer.validation.labels
        trainer.initialise_network()
        assert trainer.start_motifs
        weights.append((trainer.start_motifs, {k: v.clone() for k, v in trainer.network.state_dict().items()}))
    (seeds, first), (others_seeds, second) = weights
    assert seeds == others_seeds
    assert all(torch.equal(second[name], value) for name, value in first.items())


@pytest.mark.slow
def test_a_doubtful_motif_must_be_confirmed_by_the_validation_fold(
    cohort_factory: Callable[..., RepertoireDataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    cohort = cohort_factory(40)
    histories = {}
    for pattern, p_value in (("WWHW", 0.3), ("CYFC", 0.3), ("CYFC", 0.01), ("", 0.0)):
        found = [motif(pattern, p_value=p_value)] if pattern else []  # CYFC is in neither class
        monkeypatch.setattr(confirmation, "find_start_motifs", lambda *args, found=found, **options: found)
        trainer = make(cohort, config())
        history = trainer.fit().history
        assert trainer.start_motifs == (found if (pattern, p_value) != ("CYFC", 0.3) else [])
        histories[pattern, p_value] = [{k: v for k, v in row.items() if k != "seconds"} for row in history]
    assert histories["CYFC", 0.3] == histories["", 0.0]  # the plain start, to the number
    assert histories["WWHW", 0.3][0]["validation_loss"] < np.log(2)
    assert histories["CYFC", 0.01][0]["update"] == 0  # what stands out needs nobody else's word


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "signs"), [(1, [1, 0]), (0, [0, 0])], ids=["true", "false"])
def test_a_weak_motif_starts_a_network_if_the_validation_fold_knows_it(
    tmp_path: Path, rate: int, signs: list[int]
) -> None:
    """WHWM is in a third of the positive training repertoires; with the validation labels exchanged it is refused."""
    rng = np.random.default_rng(0)
    repertoires = [random_sequences(rng, 200) for _ in range(60)]
    for b, sequences in enumerate(repertoires):
        carrier = b % 6 == 1 if b < 40 else b % 2 == 1 and rate == 1
        sequences[: 4 * carrier] = [f"{sequence}WHWM" for sequence in sequences[: 4 * carrier]]
    status = ["case" if b % 2 else "healthy" for b in range(60)]
    cohort = write_cohort(tmp_path / "cohort.h5", repertoires, pd.DataFrame({"status": status}))
    train, validation = cohort[:40], cohort[40:]
    for sign, expected in zip((1, -1), signs, strict=True):
        known = encode_status(validation) if sign == 1 else 1 - encode_status(validation)
        parts = LabelledRepertoires(train, encode_status(train)), LabelledRepertoires(validation, known)
        trainer = Trainer(config(), TASKS, *parts, seed=0, device=CPU)
        trainer.initialise_network()
        assert len(trainer.start_motifs) == expected
        if expected:
            assert set(trainer.start_motifs[0].pattern) <= set("WHM.")
            assert MOTIF_LEVEL < trainer.start_motifs[0].p_value < 0.5


@pytest.mark.slow
def test_with_random_labels_the_training_is_that_without_a_search(cohort: RepertoireDataset) -> None:
    rng = np.random.default_rng(0)
    histories = []
    train, validation = cohort[:20], cohort[20:]
    parts = (
        LabelledRepertoires(train, rng.permutation(encode_status(train))),
        LabelledRepertoires(validation, encode_status(validation)),
    )
    for share in (0.0, 0.5):
        trainer = Trainer(config(seeded_start=share), TASKS, *parts, seed=0, device=CPU)
        history = trainer.fit().history
        assert trainer.start_motifs == []
        histories.append([{k: v for k, v in row.items() if k != "seconds"} for row in history])
    assert histories[0] == histories[1]


@pytest.mark.slow
def test_a_resumed_training_equals_an_uninterrupted_one(
    cohort_factory: Callable[..., RepertoireDataset], tmp_path: Path
) -> None:
    cohort, settings = cohort_factory(40), config()

    whole = make(cohort, settings)
    whole.fit()
    path = tmp_path / "checkpoint" / "last.safetensors"
    resumed = interrupt(lambda: make(cohort, settings, path), 5)
    assert resumed.state.update == 4
    resumed.fit()
    assert resumed.start_motifs == whole.start_motifs
    assert_same_weights(whole.network, resumed.network)


def fit_from(
    cohort: RepertoireDataset, found: EnrichedMotif, monkeypatch: pytest.MonkeyPatch, **training: object
) -> Trainer:
    monkeypatch.setattr(confirmation, "find_start_motifs", lambda *_, **__: [found])
    monkeypatch.setattr(confirmation, "weigh_gaps", lambda motifs, *_: motifs)
    trainer = make(cohort, config(**training))
    trainer.fit()
    return trainer


def weigh_one(letter: str) -> EnrichedMotif:
    """Return W.HW, with which only this residue at the gap counts."""
    weights = tuple(float(each == letter) for each in AMINO_ACIDS)
    return replace(motif("W.HW"), gap_weights=(weights,))


def test_updates_begin_without_weights_of_residues_and_the_first_start_is_kept_if_it_is_best(
    cohort_factory: Callable[..., RepertoireDataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    cohort = cohort_factory(40)  # cases have WWHW
    plain, weighed = (fit_from(cohort, found, monkeypatch) for found in (motif("W.HW"), weigh_one("W")))
    (first, *later), (plain_first, *plain_later) = (
        [{k: v for k, v in row.items() if k not in ("seconds", "best_update")} for row in each.state.history]
        for each in (weighed, plain)
    )
    assert later == plain_later
    assert first["validation_loss"] != plain_first["validation_loss"]
    assert weighed.start_motifs == [weigh_one("W")]
    frozen = fit_from(cohort, weigh_one("W"), monkeypatch, n_updates=1, evaluate_every=1, learning_rate=1e-9)
    assert frozen.state.history[0]["validation_loss"] < frozen.state.history[1]["validation_loss"]
    assert frozen.state.best_update == 0
    kernel = frozen.network.embedding.weight[1].detach()  # the second kernel of the first start
    assert float(kernel[AMINO_ACIDS.index("W"), 1]) == pytest.approx(0.0, abs=1e-6)
    assert kernel[AMINO_ACIDS.index("A"), 1] < -1  # 6, divided by the scale of the features


def test_a_motif_whose_residues_do_not_differ_starts_once(
    cohort_factory: Callable[..., RepertoireDataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    start = trainer_module.start_network
    monkeypatch.setattr(
        trainer_module, "start_network", lambda *args, **options: started.append(start(*args, **options))
    )
    fit_from(cohort_factory(40), replace(motif("W.HW"), gap_weights=((),)), monkeypatch)
    assert len(started) == 1
    fit_from(cohort_factory(40), weigh_one("W"), monkeypatch)
    assert len(started) == 3


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["started", "evaluated"])
def test_a_start_with_weights_of_residues_that_was_interrupted_is_made_again(
    cohort_factory: Callable[..., RepertoireDataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    cohort, path = cohort_factory(40), tmp_path / "last.safetensors"
    whole = fit_from(cohort, weigh_one("W"), monkeypatch)
    with monkeypatch.context() as patch:
        if moment == "started":
            make(cohort, config(), path).initialise_network()
        else:
            patch.setattr(Trainer, "_restart_without_gap_weights", lambda self: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                make(cohort, config(), path).fit()
    resumed = make(cohort, config(), path)
    assert resumed.state.started
    assert resumed.state.history == []
    resumed.fit()
    assert_same_weights(whole.network, resumed.network)


@pytest.mark.slow
def test_a_training_with_weights_of_residues_can_be_resumed(
    cohort_factory: Callable[..., RepertoireDataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cohort = cohort_factory(40)
    whole = fit_from(cohort, weigh_one("A"), monkeypatch)
    path = tmp_path / "checkpoint" / "last.safetensors"
    resumed = interrupt(lambda: make(cohort, config(), path), 3)  # before the first evaluation of an update
    assert resumed.state.update == 0
    resumed.fit()
    assert resumed.start_motifs == whole.start_motifs == [weigh_one("A")]
    assert [row["validation_loss"] for row in resumed.state.history] == [
        row["validation_loss"] for row in whole.state.history
    ]
    assert_same_weights(whole.network, resumed.network)


def representations(network: DeepRC, cohort: RepertoireDataset) -> NDArray[np.float64]:
    collator = Collator(cohort, "none")
    pooled = [mean.flatten() for mean, _ in Inference(network, collator).iterate_pooled_with_logits()]
    return np.asarray(torch.stack(pooled))


@pytest.mark.parametrize("standardise", [True, False])
@pytest.mark.parametrize("kind", ["binary", "multiclass", "regression"])
def test_outputs_start_as_a_regression_on_the_seeded_kernels(
    cohort: RepertoireDataset, kind: TaskKind, standardise: bool
) -> None:
    """scikit-learn minimises the same: C times the sum of losses and half the squares, or alpha times these."""
    rng = np.random.default_rng(0)
    labels = encode_status(cohort)
    if kind == "multiclass":
        labels += rng.integers(2, size=labels.shape)
    elif kind == "regression":
        labels += rng.normal(size=labels.shape)
    classes = ("a", "b", "c") if kind == "multiclass" else ("a", "b") if kind == "binary" else ()
    tasks = [Task("x", "x", kind, classes)]
    shape = NetworkConfig(n_kernels=8, kernel_size=4, standardise=standardise)
    network = build_network(Config(shape), tasks, seed=0, device=CPU)
    start_network(Inference(network, Collator(cohort, "none")), [motif("WWHW"), motif("A.C")], labels, tasks)
    x = representations(network, cohort)
    z = ((x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 1e-8))[:, :2]
    if kind == "regression":
        expected = Ridge(alpha=2.0, tol=1e-10).fit(z, labels[:, 0]).predict(z)[:, None]
    else:
        model = LogisticRegression(C=0.5, tol=1e-10, max_iter=10_000).fit(z, labels[:, 0])
        expected = model.decision_function(z).reshape(len(z), -1)
    network.eval()
    outputs = Inference(network, Collator(cohort, "none")).compute_outputs().double().numpy()
    if kind == "multiclass":
        outputs = outputs - outputs.mean(axis=1, keepdims=True)
        expected = expected - expected.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(outputs, expected, atol=2e-3)


@pytest.mark.slow
def test_the_start_is_evaluated_and_kept_if_updates_make_it_worse(
    cohort_factory: Callable[..., RepertoireDataset],
) -> None:
    trainer = make(cohort_factory(40), config(learning_rate=30.0, weight_average=0.0))
    trainer.initialise_network()
    start = {name: value.clone() for name, value in trainer.network.state_dict().items()}
    state = trainer.fit()
    assert [row["update"] for row in state.history] == [0, 4, 8, 12]
    assert np.isnan(state.history[0]["train_loss"])
    assert state.best_update == 0
    assert state.best_loss == state.history[0]["validation_loss"]
    assert all(torch.equal(value, start[name]) for name, value in trainer.network.state_dict().items())


def test_few_labels_leave_the_plain_start(
    cohort_factory: Callable[..., RepertoireDataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(motif_start, "MIN_DONORS", 25)
    trainer = make(cohort_factory(40), config())
    trainer.initialise_network()
    assert trainer.start_motifs == []


@pytest.mark.slow
def test_an_lstm_has_no_kernels_to_start(cohort_factory: Callable[..., RepertoireDataset]) -> None:
    settings = Config(NetworkConfig(embedding="lstm", n_kernels=8), TrainingConfig(seeded_start=0.5))
    trainer = make(cohort_factory(40), settings)
    trainer.initialise_network()
    assert trainer.start_motifs == []


@pytest.mark.slow
@pytest.mark.parametrize("network", [{"abundance": "log1p"}, {"kernel_size": 1}])
def test_networks_that_cannot_start_from_motifs_search_none(
    cohort_factory: Callable[..., RepertoireDataset], network: dict[str, object]
) -> None:
    shape = NetworkConfig(**{"n_kernels": 8, "kernel_size": 4, **network})  # type: ignore[arg-type]
    trainer = make(cohort_factory(40), Config(shape, TrainingConfig(seeded_start=0.5, n_updates=2)))
    trainer.fit()
    assert trainer.start_motifs == []


def test_repertoires_without_a_label_or_a_sequence_do_not_change_the_start(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sequences = [random_sequences(rng, 60) for _ in range(30)]
    sequences = [
        [s[:1] + "WWHW" + s[1:] if b % 2 and i < 6 else s for i, s in enumerate(r)] for b, r in enumerate(sequences)
    ]
    weights = []
    for number, more in enumerate(([], [[], random_sequences(rng, 60), random_sequences(rng, 60)])):
        folder = tmp_path / str(number)
        folder.mkdir()
        cohort = write_cohort(folder / "c.h5", sequences + more, pd.DataFrame({"x": range(30 + len(more))}))
        labels = np.array([b % 2 for b in range(30)] + [0.0, np.nan, np.nan][: len(more)])[:, None]
        network = build_network(config(), TASKS, seed=0, device=CPU)
        start_network(Inference(network, Collator(cohort, "none")), [motif("WWHW"), motif("A.C")], labels, TASKS)
        z = representations(network, cohort)[:30, :2]
        output = next(layer for layer in network.output_network if isinstance(layer, torch.nn.Linear))
        weights.append(output.weight[0, :2].detach().numpy() / z.std(axis=0))
    assert np.abs(weights[0]).min() > 0
    spread = np.abs(weights[1] / weights[0] - 1).max()
    assert spread < 0.1, weights


@pytest.mark.slow
def test_a_training_that_was_killed_after_the_search_continues_with_its_motifs(
    cohort_factory: Callable[..., RepertoireDataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cohort, path = cohort_factory(40), tmp_path / "checkpoint" / "last.safetensors"
    whole = make(cohort, config())
    whole.fit()
    make(cohort, config(), path).initialise_network()

    def refuse(*arguments: object, **options: object) -> list[EnrichedMotif]:
        raise AssertionError("sought again")

    monkeypatch.setattr(confirmation, "find_start_motifs", refuse)
    resumed = make(cohort, config(), path)
    resumed.fit()
    assert resumed.start_motifs == whole.start_motifs
    assert_same_weights(whole.network, resumed.network)


@pytest.mark.slow
def test_updates_of_whole_repertoires_resume_to_the_same_numbers(
    cohort_factory: Callable[..., RepertoireDataset], tmp_path: Path
) -> None:
    cohort, path = cohort_factory(40), tmp_path / "checkpoint" / "last.safetensors"
    settings = config(n_sequences=None, top_number=20, unattended="constant", patience=None)
    whole = make(cohort, settings)
    sizes = whole._train_collator.dataset.n_sequences[whole.draws.choose_repertoires(0)]
    assert whole.batches.draw(0).offsets.diff().tolist() == sizes.tolist()
    whole.fit()

    resumed = interrupt(lambda: make(cohort, settings, path), 9)
    resumed.fit()
    assert_same_weights(whole.network, resumed.network)
    assert settings.training.averaged_fraction == 1.0
    outputs = Inference(whole.network, Collator(cohort[24:], "none")).compute_outputs()
    labels = torch.from_numpy(encode_status(cohort[24:]))
    best = whole.state.history[-1]["best_update"]
    row = next(row for row in whole.state.history if row["update"] == best)
    assert float(compute_multitask_loss(outputs, labels, TASKS)) == pytest.approx(row["validation_loss"], rel=1e-5)


def test_sentences_about_the_start_name_motifs_or_say_why_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = np.array([[0.0, np.nan], [1.0, 3.0], [1.0, np.nan]])
    dataset = four(tmp_path, ["SFEN"])[np.zeros(3, np.int64)]
    labelled, of_two = LabelledRepertoires(dataset, labels), LabelledRepertoires(dataset, labels, np.array([4, 2, 4]))
    tasks, found = [*TASKS, Task("age", "age", "regression")], motif("WWHW", p_value=0.001)
    assert describe_start_motifs([found], labelled, tasks, config()) == (
        "1 of 8 kernels starts from a short motif associated with the label in the training repertoires, the others at "
        f"random. In brackets, the correlation with the label and the corrected p-value: "
        f"WWHW ({found.correlation:+.2f}, p = 0.001)"
    )
    assert describe_start_motifs([found, motif("CYC")], labelled, tasks, config()).startswith(
        "2 of 8 kernels start from short motifs associated"
    )
    assert describe_start_motifs([motif("CYC")] * 7, labelled, tasks, config()).endswith(
        ", ".join([f"CYC ({motif('CYC').correlation:+.2f}, p = {motif('CYC').p_value:.2g})"] * 5) + ", and 2 more"
    )
    monkeypatch.setattr(motif_start, "MIN_DONORS", 4)
    assert describe_start_motifs([], labelled, tasks, config()) == (
        "deeprc did not search for short motifs, so the kernels start at random: target 'status' has labels of 3 "
        "training repertoires, and the search needs at least 4; target 'age' has labels of 1 training repertoires, and "
        "the search needs at least 4."
    )
    assert "target 'status' has labels of 2 donors of training repertoires, and the search needs at least 4;" in (
        describe_start_motifs([], of_two, tasks, config())
    )


@pytest.mark.parametrize(
    ("n_positive", "reason"),
    [
        (15, None),
        (5, "the search needs 6 training repertoires in a class of target 'status', and 6 in the others"),
    ],
)
def test_the_description_says_if_too_few_donors_were_the_reason_for_no_search(
    tmp_path: Path, n_positive: int, reason: str | None
) -> None:
    dataset = four(tmp_path, ["SFEN"])[np.zeros(45, np.int64)]
    labelled = LabelledRepertoires(dataset, (np.arange(45) < n_positive)[:, None].astype(np.float64))
    text = describe_start_motifs([], labelled, TASKS, config())
    if reason is None:
        assert text == (
            "No short motif is associated with the label in the training repertoires beyond chance, so the kernels "
            "start at random."
        )
    else:
        assert text == f"deeprc did not search for short motifs, so the kernels start at random: {reason}."


def test_settings_without_a_search_are_named(tmp_path: Path) -> None:
    dataset = four(tmp_path, ["SFEN"])[np.zeros(45, np.int64)]
    labelled = LabelledRepertoires(dataset, (np.arange(45) % 2)[:, None].astype(np.float64))
    number = LabelledRepertoires(dataset, np.ones((45, 1)))
    narrow = Config(NetworkConfig(n_kernels=8, kernel_size=1), TrainingConfig(seeded_start=0.5))
    for settings, cohort, tasks, reason in (
        (config(seeded_start=0.1), labelled, TASKS, "seeded_start=0.1 of 8 kernels is less than one kernel"),
        (narrow, labelled, TASKS, "a motif has at least two residues, but kernel_size=1"),
        (config(), number, [Task("age", "age", "regression")], "all labels of target 'age' are equal"),
    ):
        assert find_start_motifs(settings, tasks, cohort, seed=0) == []
        text = describe_start_motifs([], cohort, tasks, settings)
        assert text == f"deeprc did not search for short motifs, so the kernels start at random: {reason}."
