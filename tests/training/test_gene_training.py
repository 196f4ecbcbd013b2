"""A signal that sits in one V gene's sequences, and what keeps the names of genes to the training fold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from deeprc import DeepRCClassifier
from deeprc.config import Config, load_config
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.nn.genes import GeneNames
from deeprc.nn.inference import Inference
from deeprc.tasks import Task
from deeprc.training.enriched_motif import EnrichedMotif
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.trainer import Trainer
from tests.conftest import random_sequences
from tests.toys.repertoires import make_sequences, write_repertoires
from tests.toys.trainings import assert_same_weights, encode_status, interrupt

CPU = torch.device("cpu")
TASKS = [Task("status", "status", "binary", ("healthy", "case"))]
GENES = ("TRBV1", "TRBV2", "TRBV3", "TRBV4")
OF_CASES = 2  # the gene whose sequences carry the motif in cases
N_TEST, N_SEQUENCES, N_CARRIERS = 100, 50, 6


def write(path: Path, n: int, *, test_genes: tuple[str, ...] = GENES, seed: int = 0) -> RepertoireDataset:
    """Write repertoires of which all have the motif as often: cases in one V gene's sequences, others in the others'.

    The last `N_TEST` repertoires have genes of other names.
    """
    rng = np.random.default_rng(seed)
    vocabulary = tuple(dict.fromkeys((*test_genes, *GENES)))
    repertoires = []
    for number in range(n):
        own = test_genes if number >= n - N_TEST else GENES
        codes = rng.permutation(np.arange(N_SEQUENCES) % len(GENES))
        sequences = random_sequences(rng, N_SEQUENCES)
        chosen = np.flatnonzero((codes == OF_CASES) == bool(number % 2))
        for at in rng.choice(chosen, N_CARRIERS, replace=False).tolist():
            sequences[at] = sequences[at][:2] + "WWHW" + sequences[at][2:]
        calls = Categorical(np.array([vocabulary.index(own[code]) for code in codes], np.uint16), vocabulary)
        repertoires.append(make_sequences(sequences).with_genes({"v_call": calls}))
    return write_repertoires(path, repertoires, {"status": np.array(["healthy", "case"])[np.arange(n) % 2]})


def config(**settings: object) -> Config:
    small = {
        "n_updates": 20,
        "evaluate_every": 5,
        "n_kernels": 8,
        "kernel_size": 4,
        "gene_units": 4,
        "seeded_start": 0,  # a search for motifs would cost more than these trainings
    }
    return load_config("deeprc", {**small, **settings})


def make(dataset: RepertoireDataset, settings: Config, *, n: int, checkpoint: Path | None = None) -> Trainer:
    """Train on the first n repertoires and validate on as many others as there are before the test's."""
    train, validation = dataset[:n], dataset[n : len(dataset) - N_TEST]
    parts = LabelledRepertoires(train, encode_status(train)), LabelledRepertoires(validation, encode_status(validation))
    return Trainer(settings, TASKS, *parts, seed=0, device=CPU, checkpoint=checkpoint)


def auc_of(trainer: Trainer, dataset: RepertoireDataset) -> float:
    test = dataset[len(dataset) - N_TEST :]
    outputs = Inference(trainer.network, trainer._make_collator(test)).compute_outputs()[:, 0]
    return float(roc_auc_score(encode_status(test)[:, 0], outputs))


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    return write(tmp_path_factory.mktemp("genes") / "cohort.h5", 400)


@pytest.mark.long
def test_a_signal_in_one_v_genes_sequences_needs_the_genes(cohort: RepertoireDataset) -> None:
    """The motif is as frequent in both classes: its sequences' V gene alone tells them apart.

    Composition reads residues within V genes, so it is turned off: the attention alone has to find them.
    """
    settings = {"n_updates": 120, "evaluate_every": 60, "learning_rate": 5e-3, "batch_size": 8, "patience": None}
    auc = {}
    for units in (0, 4):
        trainer = make(cohort, config(gene_units=units, composition=False, **settings), n=240)
        trainer.fit()
        auc[units] = auc_of(trainer, cohort)
    assert auc[4] > 0.9
    assert 0.3 < auc[0] < 0.7


@pytest.mark.slow
def test_genes_of_held_out_repertoires_do_not_influence_training(cohort: RepertoireDataset, tmp_path: Path) -> None:
    other = write(tmp_path / "other.h5", 400, test_genes=("TRBV30", "TRBV2", "", "TRBV6,TRBV7"))
    both = (cohort.container.sequences.v_call, other.container.sequences.v_call)
    assert both[0].vocabulary != both[1].vocabulary  # whose first names are those of what is held out
    weights = []
    for dataset in (cohort, other):
        train, held_out = dataset[:40], dataset[300:]  # what is held out has other genes
        parts = LabelledRepertoires(train, encode_status(train)), LabelledRepertoires(held_out, encode_status(held_out))
        trainer = Trainer(config(), TASKS, *parts, seed=0, device=CPU)
        assert trainer.network.gene_names == GeneNames(GENES, ())
        update = trainer.make_update_function()
        for number in range(3):
            update(number)
        weights.append(trainer.network.state_dict())
    for name, tensor in weights[0].items():
        assert torch.equal(tensor, weights[1][name]), name


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"shuffle_negatives": True},
        pytest.param({"embedding": "lstm"}, marks=pytest.mark.long),
        pytest.param({"top_fraction": 0.3}, marks=pytest.mark.long),
    ],
)
def test_a_resumed_training_equals_an_uninterrupted_one(
    cohort: RepertoireDataset, tmp_path: Path, settings: dict[str, object]
) -> None:
    few = cohort[240:]  # 40 for training, 20 for validation
    whole = make(few, config(**settings), n=40)
    whole.fit()
    checkpoint = tmp_path / "checkpoint" / "last.safetensors"
    resumed = interrupt(lambda: make(few, config(**settings), n=40, checkpoint=checkpoint), 13)
    assert resumed.state.update == 10
    resumed.fit()
    assert [row["validation_loss"] for row in resumed.state.history] == [
        row["validation_loss"] for row in whole.state.history
    ]
    assert_same_weights(whole.network, resumed.network)


@pytest.mark.slow
def test_training_changes_the_embedding_of_every_gene_that_occurs(cohort: RepertoireDataset) -> None:
    trainer = make(cohort, config(composition=False), n=240)
    before = trainer.network.gene_embedding.v_weight.detach().clone()
    trainer.fit()
    after = trainer.network.gene_embedding.v_weight.detach()
    assert torch.equal(before[0], after[0])  # training has no sequence without a gene
    assert bool((before[1:] != after[1:]).all())


@pytest.mark.slow
def test_a_start_from_motifs_reads_the_kernels_alone(
    cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "deeprc.training.confirmation.find_start_motifs", lambda *_, **__: [EnrichedMotif((0, 1, 2), 0, 0.5, 0.01)]
    )
    trainer = make(cohort, config(seeded_start=0.5), n=240)
    trainer.initialise_network()
    first, linear = trainer.network.key_network[0].weight[0], trainer.network.output_network[-1].weight[0]
    assert first.nonzero().flatten().tolist() == linear.nonzero().flatten().tolist() == [0]
    assert len(first) == len(linear) == 8 + 2 * 4


def test_a_cohort_without_genes_is_refused(tmp_path: Path) -> None:
    status, repertoires = ["case", "healthy"] * 60, [make_sequences(["CASSF", "CASF"])] * 120
    without_genes = write_repertoires(tmp_path / "none.h5", repertoires, {"status": status})
    with pytest.raises(InputError, match=r"gene_units: .*none.h5 has no v_call and no j_call"):
        make(without_genes, config(), n=10)


@pytest.mark.slow
def test_a_saved_estimator_knows_its_genes(cohort: RepertoireDataset, tmp_path: Path) -> None:
    train, y = cohort[:40], cohort.metadata["status"][:40]
    overrides = {"n_updates": 5, "evaluate_every": 5, "n_kernels": 8, "gene_units": 4}
    model = DeepRCClassifier(overrides=overrides).fit(train, y)
    model.save(tmp_path / "model.safetensors")
    loaded = DeepRCClassifier.load(tmp_path / "model.safetensors")
    other = write(tmp_path / "other.h5", 110, test_genes=GENES[::-1])
    assert loaded.model_.network.gene_names == model.model_.network.gene_names == GeneNames(GENES, ())
    assert np.array_equal(loaded.predict_proba(other), model.predict_proba(other))
    assert not hasattr(loaded, "genes_")
    plain = DeepRCClassifier(overrides={**overrides, "gene_units": 0}).fit(train, y)
    plain.save(tmp_path / "plain.safetensors")
    assert DeepRCClassifier.load(tmp_path / "plain.safetensors").model_.network.gene_names is None
