"""Branches in training: cross-fitted scores, the start, resumed trainings, files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from sklearn.linear_model import LogisticRegression

from deeprc.branches import fit
from deeprc.branches.clones import CloneBranch
from deeprc.branches.cohort import FittedBranch, TrainingCohort
from deeprc.config import Config, NetworkConfig, TrainingConfig, load_config
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.known_repertoires import identify_repertoires
from deeprc.datasets.simulation import load_recipe
from deeprc.datasets.simulation.write import write_container
from deeprc.errors import InputError
from deeprc.nn.batch import Collator
from deeprc.nn.branches import BranchScores
from deeprc.nn.inference import Inference
from deeprc.nn.network import DeepRC
from deeprc.runs.experiment import describe_end
from deeprc.task_labels import encode_labels
from deeprc.tasks import Task, parse_tasks
from deeprc.training import branch_start
from deeprc.training.branch_start import leave_out_clones
from deeprc.training.building import build_network
from deeprc.training.checkpoint import load_tensors, save_tensors
from deeprc.training.enriched_motif import EnrichedMotif
from deeprc.training.estimator import DeepRCClassifier
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.model import TrainedModel
from deeprc.training.network_start import start_network
from deeprc.training.trainer import Trainer
from deeprc.training.validation import Evaluator
from tests.conftest import Killed, killing
from tests.nn.share_branch import ShareBranch
from tests.toys.trainings import assert_same_weights, encode_status, interrupt

CPU = torch.device("cpu")
TASKS = (Task("status", "status", "binary", ("healthy", "case")),)


def config(**training: object) -> Config:
    settings: dict[str, object] = {"n_updates": 12, "evaluate_every": 4, "n_sequences": 50, "seeded_start": 0.0}
    return Config(NetworkConfig(n_kernels=8, kernel_size=4), TrainingConfig(**{**settings, **training}))  # type: ignore[arg-type]


def make(dataset: RepertoireDataset, settings: Config, checkpoint: Path | None = None) -> Trainer:
    repertoires = LabelledRepertoires(dataset, encode_status(dataset), np.arange(len(dataset)) // 2)
    parts = repertoires.take(np.arange(24)), repertoires.take(np.arange(24, len(dataset)))
    return Trainer(settings, TASKS, *parts, seed=0, device=CPU, checkpoint=checkpoint)


def cross_fitted(cohort: TrainingCohort) -> NDArray[np.float64]:
    """Numbers that tell the repertoires apart and go with the label, (B, 1)."""
    noise = np.array([int(repertoire.digest()[:4], 16) / 2**16 for repertoire in cohort.dataset])
    return 4 * (cohort.labels - 0.5) + 3 * noise[:, None]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[TrainingCohort]:
    """Let every training have the branch of W, and return the cohorts that it was learned from."""
    cohorts: list[TrainingCohort] = []

    def fit_branches(_: NetworkConfig, cohort: TrainingCohort) -> list[FittedBranch]:
        cohorts.append(cohort)
        return [FittedBranch(ShareBranch("W", [0.5]), cross_fitted(cohort), np.array([0.2]))]

    monkeypatch.setattr(branch_start, "fit_branches", fit_branches)
    monkeypatch.setattr(fit, "_TYPES", {"composition": ShareBranch})
    return cohorts


def test_branches_learn_from_both_folds_and_give_both_cross_fitted_scores(
    cohort: RepertoireDataset, seen: list[TrainingCohort]
) -> None:
    trainer = make(cohort, config())
    trainer.initialise_network()
    (learned,) = seen
    assert sorted(learned.dataset.repertoire_ids) == sorted(cohort.repertoire_ids)
    assert learned.groups is not None
    assert learned.groups.tolist() == [int(name.split(".")[1]) // 2 for name in learned.dataset.repertoire_ids]
    expected = dict(zip(learned.dataset.repertoire_ids, cross_fitted(learned)[:, 0], strict=True))
    for repertoires, collator in (
        (trainer.train, trainer._train_collator),
        (trainer.validation, trainer._evaluator.collator),
    ):
        assert collator.branches is not None
        found = collator.branches.take(torch.arange(len(repertoires.labels)))[:, 0, 0]
        names = repertoires.dataset.repertoire_ids
        np.testing.assert_allclose(found.double(), [expected[name] for name in names], rtol=1e-6)


def test_branches_may_learn_from_the_training_fold_alone(cohort: RepertoireDataset, seen: list[TrainingCohort]) -> None:
    trainer = make(cohort, config(branches_use_validation=False))
    trainer.initialise_network()
    (learned,) = seen
    assert sorted(learned.dataset.repertoire_ids) == sorted(trainer.train.dataset.repertoire_ids)
    assert trainer._evaluator.collator.branches is not None
    branch = ShareBranch("W", [0.5])
    found = trainer._evaluator.collator.branches.take(torch.arange(6))[:, 0]
    expected = [branch.score(repertoire) for repertoire in trainer.validation.dataset[:6]]
    np.testing.assert_allclose(found.double(), expected, atol=1e-6)


def test_branches_of_an_estimator_do_not_learn_from_a_given_validation_set(
    cohort: RepertoireDataset, seen: list[TrainingCohort]
) -> None:
    settings = {"n_updates": 4, "evaluate_every": 4, "n_kernels": 8, "n_sequences": 50, "seeded_start": 0.0}
    model, label_of = DeepRCClassifier(overrides=settings, device="cpu"), encode_status(cohort)[:, 0]
    model.fit(cohort[:20], label_of[:20], X_validation=cohort[20:], y_validation=label_of[20:])
    model.fit(cohort[:20], label_of[:20], groups=np.arange(20) // 2)
    given, own = seen
    assert sorted(given.dataset.repertoire_ids) == sorted(own.dataset.repertoire_ids)
    assert sorted(given.dataset.repertoire_ids) == sorted(cohort[:20].repertoire_ids)
    assert given.groups is None
    assert own.groups is not None
    donors = dict(zip(own.dataset.repertoire_ids, own.groups.tolist(), strict=True))
    digests = dict(zip(cohort.repertoire_ids, identify_repertoires(cohort), strict=True))
    held_out = {donors[name] for name in donors if digests[name] in model.validation_digests_}
    assert not held_out & {donors[name] for name in donors if digests[name] in model.train_digests_}


def test_the_start_is_the_branch_alone_with_a_gain_that_is_pulled_to_one(
    cohort: RepertoireDataset, seen: list[TrainingCohort]
) -> None:
    """(gain - 1) costs as much as a weight on the standardised score: an offset of one spread is given beforehand."""
    trainer = make(cohort, config())
    trainer.initialise_network()
    network = trainer.network
    output = network.output_network[-1]
    assert not output.weight.any()
    score = trainer._train_collator.branches.take(torch.arange(24))[:, 0].double().numpy()  # type: ignore[union-attr]
    spread = score.std()

    def loss(gain: float, bias: float) -> float:
        signs = 2 * trainer.train.labels[:, 0] - 1
        each = np.logaddexp(0, -signs * (gain * score[:, 0] + bias))
        return float(each.sum() + ((gain - 1) * spread) ** 2)

    gain, bias = float(network.branches.gains.detach()), float(output.bias.detach())  # type: ignore[union-attr]
    assert gain != 1
    for step in ((1e-3, 0), (-1e-3, 0), (0, 1e-3), (0, -1e-3)):
        assert loss(gain + step[0], bias + step[1]) > loss(gain, bias)


def test_beside_a_motif_the_start_is_a_regression_on_motif_and_branch_alike(cohort: RepertoireDataset) -> None:
    """The penalty is the squared weights of standardised columns: C = 0.5 in scikit-learn."""
    network = build_network(config(), TASKS, seed=0, device=CPU)
    network.attach_branches([ShareBranch("W", [0.5])], identify_repertoires(cohort))
    assert network.branches is not None
    scores = 5 * (encode_status(cohort) + np.random.default_rng(0).normal(size=encode_status(cohort).shape))
    network.branches.store_known_scores(cohort, scores[:, None])
    inference = Inference(network, Collator(cohort, "none", branches=BranchScores(network.branches, cohort)))
    start_network(inference, [EnrichedMotif((0, 2), 0, 0.9, 0.001)], encode_status(cohort), TASKS)
    network.eval()
    motif = torch.stack([pooled.detach() for pooled in inference.iterate_pooled()]).flatten(1)[:, :1].numpy()
    columns = np.concatenate([motif, scores], axis=1)
    z = (columns - columns.mean(axis=0)) / columns.std(axis=0)
    expected = LogisticRegression(C=0.5, tol=1e-8).fit(z, encode_status(cohort)[:, 0]).decision_function(z)
    np.testing.assert_allclose(inference.compute_outputs()[:, 0].numpy(), expected, atol=2e-3)


def test_without_a_pull_the_start_is_logistic_regression(
    cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deeprc.training.output_fit._PENALTY", 0.0)
    network = build_network(config(), TASKS, seed=0, device=CPU)
    network.attach_branches([ShareBranch("W", [0.5])], identify_repertoires(cohort))
    assert network.branches is not None
    rng = np.random.default_rng(0)
    scores = (encode_status(cohort) + rng.normal(size=encode_status(cohort).shape))[:, None]
    network.branches.store_known_scores(cohort, scores)
    collator = Collator(cohort, "none", branches=BranchScores(network.branches, cohort))
    start_network(Inference(network, collator), [], encode_status(cohort), TASKS)
    expected = LogisticRegression(C=np.inf, tol=1e-10).fit(scores[:, 0], encode_status(cohort)[:, 0])
    assert float(network.branches.gains.detach()) == pytest.approx(expected.coef_.item(), rel=1e-4)  # type: ignore[union-attr]
    assert float(network.output_network[-1].bias.detach()) == pytest.approx(expected.intercept_.item(), rel=1e-3)


def test_the_start_is_evaluated_and_gains_are_learned(cohort: RepertoireDataset, seen: list[TrainingCohort]) -> None:
    trainer = make(cohort, config(patience=None, least_gain=0.0, learning_rate=0.01, weight_average=0.0))
    trainer.initialise_network()
    before = float(trainer.network.branches.gains.detach())  # type: ignore[union-attr]
    state = trainer.fit()
    assert state.history[0]["update"] == 0
    assert state.best_loss <= state.history[0]["validation_loss"]
    assert float(trainer.step.network.branches.gains.detach()) != before  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.parametrize("update", [2, 5])
def test_a_resumed_training_has_the_same_branches(
    cohort_factory: Callable[..., RepertoireDataset], tmp_path: Path, seen: list[TrainingCohort], update: int
) -> None:
    cohort, settings = cohort_factory(40), config()
    whole = make(cohort, settings)
    whole.fit()
    path = tmp_path / "checkpoint" / "last.safetensors"
    resumed = interrupt(lambda: make(cohort, settings, path), update)
    resumed.fit()
    assert len(seen) == 2  # not learned a third time
    assert resumed.state.history[-1]["validation_loss"] == whole.state.history[-1]["validation_loss"]
    assert_same_weights(whole.network, resumed.network)


def test_a_checkpoint_whose_weights_have_other_branches_is_refused(
    cohort_factory: Callable[..., RepertoireDataset], tmp_path: Path, seen: list[TrainingCohort]
) -> None:
    """The best weights are used when the training ends, so their branches must be those that were checked."""
    cohort, path = cohort_factory(40), tmp_path / "checkpoint" / "last.safetensors"
    with pytest.raises(Killed):
        make(cohort, config(), path).fit(killing(5))
    tensors, state = load_tensors(path)
    altered = [name for name in tensors if name.endswith(".branches.members.composition.offset")]
    assert {name.partition(".")[0] for name in altered} >= {"network", "average", "best"}
    for name in altered:
        save_tensors(path, {**tensors, name: tensors[name] + 1}, state)
        with pytest.raises(InputError, match=r"last\.safetensors: .*offset: expected the numbers of network") as error:
            make(cohort, config(), path).fit()
        assert name.startswith("network") or name in str(error.value)


def test_a_model_file_holds_its_branches(cohort: RepertoireDataset, seen: list[TrainingCohort], tmp_path: Path) -> None:
    trainer = make(cohort, config())
    trainer.fit()
    model, path = TrainedModel(TASKS, trainer.network, config()), tmp_path / "model.safetensors"
    model.save(path, update=3)
    loaded = TrainedModel.load(path, config(), TASKS, device=CPU)
    assert torch.equal(loaded.compute_outputs(cohort), model.compute_outputs(cohort))
    with safe_open(path, framework="pt") as file:
        assert "branches.members.composition.offset" in file.keys()  # noqa: SIM118  a safetensors file is no mapping
    hidden = dataclasses.replace(model, network=without_branches(trainer.network))
    assert not torch.allclose(hidden.compute_outputs(cohort), model.compute_outputs(cohort))


def without_branches(network: DeepRC) -> DeepRC:
    bare = build_network(config(), TASKS, seed=0, device=CPU)
    bare.load_state_dict({k: v for k, v in network.state_dict().items() if not k.startswith("branches")})
    return bare.eval()


def test_a_file_with_a_wrong_branch_is_refused_in_a_line(
    cohort: RepertoireDataset, seen: list[TrainingCohort], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make(cohort, config())
    trainer.initialise_network()
    path = tmp_path / "model.safetensors"
    for letter, message in (("Z", "branches: composition: expected a residue, found 'Z'"),):
        trainer.network.branches.members["composition"].letter = letter  # type: ignore[union-attr]
        TrainedModel(TASKS, trainer.network, config()).save(path, update=0)
        with pytest.raises(InputError, match=message):
            TrainedModel.load(path, config(), TASKS, device=CPU)
    monkeypatch.setattr(fit, "_TYPES", {})
    with pytest.raises(InputError, match=r"model.safetensors: branches: expected some of .*, found 'composition'"):
        TrainedModel.load(path, config(), TASKS, device=CPU)


def test_an_estimator_saves_its_branches(cohort: RepertoireDataset, seen: list[TrainingCohort], tmp_path: Path) -> None:
    settings = {"n_updates": 8, "evaluate_every": 4, "n_kernels": 8, "n_sequences": 50, "seeded_start": 0.0}
    model = DeepRCClassifier(overrides=settings, device="cpu").fit(cohort, encode_status(cohort)[:, 0])
    model.save(tmp_path / "model.npz")
    again = DeepRCClassifier.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.decision_function(cohort), model.decision_function(cohort))
    assert again.model_.network.branches.names == ("composition",)


def test_the_paper_has_no_branches(cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    network = load_config("paper").network
    assert not network.composition
    assert not network.clones
    for name in ("fit_composition", "fit_clones"):
        monkeypatch.setattr(fit, name, lambda _: pytest.fail("a branch was learned"))
    trainer = make(cohort, dataclasses.replace(config(), network=network))
    trainer.initialise_network()
    assert trainer.network.branches is None


def earlier(name: str) -> str:
    """Return the name that a version had which called branches readings."""
    return name.replace("branches", "readings")


def test_model_files_of_earlier_versions_are_read(
    cohort: RepertoireDataset, seen: list[TrainingCohort], tmp_path: Path
) -> None:
    trainer = make(cohort, config(), tmp_path / "last.safetensors")
    with pytest.raises(Killed):
        trainer.fit(killing(3))
    path = tmp_path / "model.safetensors"
    TrainedModel(TASKS, trainer.network, config()).save(path, update=3)
    expected = TrainedModel.load(path, config(), TASKS, device=CPU).compute_outputs(cohort)
    for file in (path, tmp_path / "last.safetensors"):
        tensors, state = load_tensors(file)
        old = {earlier(name): tensor for name, tensor in tensors.items()}
        assert old.keys() != tensors.keys()
        save_tensors(file, old, {earlier(name): value for name, value in state.items()})
    assert torch.equal(TrainedModel.load(path, config(), TASKS, device=CPU).compute_outputs(cohort), expected)
    resumed, whole = make(cohort, config(), tmp_path / "last.safetensors"), make(cohort, config())
    for each in (resumed, whole):
        each.fit()
    assert_same_weights(whole.network, resumed.network)


def test_estimators_of_earlier_versions_are_read(
    cohort: RepertoireDataset, seen: list[TrainingCohort], tmp_path: Path
) -> None:
    settings = {"n_updates": 4, "evaluate_every": 4, "n_kernels": 8, "n_sequences": 50, "seeded_start": 0.0}
    model = DeepRCClassifier(overrides=settings, device="cpu").fit(cohort, encode_status(cohort)[:, 0])
    model.save(tmp_path / "model.safetensors")
    written = (tmp_path / "model.safetensors").read_bytes()
    assert written.count(b"branches") > 3
    old = written.replace(b"branches", b"readings").replace(b'"digest"', b'"unused"')  # of the same length
    assert old.count(b'"unused"') == 1  # earlier versions wrote no digest
    (tmp_path / "old.safetensors").write_bytes(old)
    again = DeepRCClassifier.load(tmp_path / "old.safetensors")
    np.testing.assert_array_equal(again.decision_function(cohort), model.decision_function(cohort))


@pytest.mark.slow
def test_motifs_are_not_searched_in_clones_of_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clones = ["signals.0.n_clones=12", "signals.0.burden=6", "signals.0.other_burden=0.2", "label_noise=0"]
    overrides = ["n_repertoires=150", "sizes.mean=400", "sizes.sd=50", *clones]
    cohort, recipe = load_recipe("clones-20", overrides, seed=0)
    write_container(cohort, tmp_path / "cohort.h5", recipe=recipe)
    dataset = open_dataset(tmp_path / "cohort.h5")
    tasks = parse_tasks(["status"], dataset.metadata)
    repertoires = LabelledRepertoires(dataset, encode_labels(tasks, dataset.metadata))
    parts = repertoires.take(np.arange(110)), repertoires.take(np.arange(110, 150))
    settings = ["composition=false", "kernel_size=4"]  # narrow kernels, so that few patterns are searched
    trainers = [
        Trainer(load_config("deeprc", [*settings, f"clones={known}"]), tasks, *parts, seed=0, device=CPU)
        for known in ("true", "false")
    ]
    for trainer in trainers:
        trainer.initialise_network()
    with_memory, without = trainers
    assert len(without.start_motifs) > 4  # pieces of the twelve clones
    assert with_memory.start_motifs == []

    remaining = leave_out_clones(with_memory.network, with_memory.train).dataset
    whole = with_memory.train.dataset
    witnesses = np.array([np.count_nonzero(repertoire.witness) for repertoire in whole])
    assert witnesses.sum() > 200
    left = np.array([np.count_nonzero(repertoire.witness) for repertoire in remaining])  # of a clone that is not strong
    assert left.sum() < witnesses.sum() / 10
    n_others = whole.n_sequences - remaining.n_sequences - (witnesses - left)  # the memory also has other clones
    assert n_others.min() == 0
    assert n_others.sum() <= 5
    assert leave_out_clones(without.network, without.train) is without.train
    monkeypatch.setattr(CloneBranch, "is_doubtful", True)
    assert leave_out_clones(with_memory.network, with_memory.train) is with_memory.train


@pytest.mark.slow
@pytest.mark.parametrize("samples", [0, 10], ids=["whole repertoires", "samples"])
@pytest.mark.parametrize(
    ("decreases", "is_kept"),
    [
        ([0.03, 0.01, 0.03, 0.02], True),
        ([0.1, 0.0, -0.05, 0.0], False),
        ([0.03, 0.01, 0.05, 0.03], False),  # 3 standard errors, which two donors often have by chance
        ([0.03, 0.03, 0.0, 0.0], False),  # each donor has two repertoires, and only one of two donors gains
        ([-0.01, -0.01, -0.01, -0.01], False),
        ([0.03, 0.01, 0.03, -np.inf], False),
    ],
)
@pytest.mark.usefixtures("seen")
def test_with_few_validation_donors_an_update_must_be_clearly_better_than_the_start(
    cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch, decreases: list[float], is_kept: bool, samples: int
) -> None:
    trainer = make(cohort[:28], config(validation_sequences=samples or None, least_gain=0.0))
    assert trainer._evaluator.has_few_donors
    of_samples = iter([0.9, 0.5, 0.6, 0.7])  # of the start and the updates
    of_whole = iter([0.5, 0.9, 0.3])  # of the best update, of the start, of the best update with a fitted output
    assert trainer.validation.groups is not None
    by_donor = np.argsort(trainer.validation.groups, kind="stable")
    losses = np.full(4, 0.2)
    losses[by_donor] -= decreases
    of_repertoires = iter([np.full(4, 0.2), losses])  # of the start, of the other weights
    monkeypatch.setattr(Evaluator, "compute_sample_loss", lambda *_: (next(of_samples), {}))
    monkeypatch.setattr(Evaluator, "compute_whole_loss", lambda *_: (next(of_whole), {}))
    monkeypatch.setattr(Evaluator, "compute_repertoire_losses", lambda *_: next(of_repertoires))
    start: list[dict[str, torch.Tensor]] = []
    state = trainer.fit(lambda *_: start or start.append(dict(trainer._start_weights)))
    assert state.best_update == 4
    assert state.kept_update == (4 if is_kept else 0)
    assert state.history[-1].get("fitted") == (float(is_kept) if samples else None)
    weights = trainer.network.state_dict()
    assert all(torch.equal(weights[name], tensor) for name, tensor in start[0].items()) is not is_kept
    because = "; kept: the network before the updates, because none was clearly better on the few validation donors"
    assert (because in describe_end(state, trainer.config.training)) is not is_kept


@pytest.mark.usefixtures("seen")
def test_with_many_validation_donors_the_lowest_loss_is_enough(
    cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deeprc.training.validation.FEW_DONORS", 2)
    trainer = make(cohort[:28], config())
    losses = iter([0.9, 0.5, 0.6, 0.7])
    monkeypatch.setattr(Evaluator, "compute_sample_loss", lambda *_: (next(losses), {}))
    assert trainer.fit().kept_update == 4


@pytest.mark.usefixtures("seen")
def test_weights_of_a_start_that_was_not_evaluated_are_refused(cohort: RepertoireDataset, tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    with pytest.raises(Killed):
        make(cohort[:28], config(), path).fit(killing(6))
    tensors, state = load_tensors(path)
    state["history"] = [row for row in state["history"] if row["update"] > 0]
    save_tensors(path, tensors, state | {"best_update": state["history"][0]["update"]})
    with pytest.raises(InputError, match=r"last.safetensors: state: history: expected a row of update 0"):
        make(cohort[:28], config(), path)
