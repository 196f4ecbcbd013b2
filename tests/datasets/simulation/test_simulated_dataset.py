import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import StratifiedKFold

from deeprc import DeepRCClassifier
from deeprc.baselines.controls import VGeneUsage
from deeprc.baselines.gapped import GappedKmerLogisticRegression
from deeprc.datasets.dataset import Repertoire, RepertoireDataset, open_dataset
from deeprc.datasets.simulation import (
    Batch,
    Cohort,
    Counts,
    GeneShift,
    GermlineBackground,
    IndependentBackground,
    Motif,
    MotifSignal,
    SimulatedDataset,
    Sizes,
    write_container,
)
from deeprc.errors import InputError
from deeprc.nn.batch import Collator, choose_cache_device
from deeprc.nn.features import ABUNDANCE_MODES, AbundanceMode

Classifier = VGeneUsage | GappedKmerLogisticRegression
COHORT = Cohort(
    12,
    Sizes(80, 30, 5),
    GermlineBackground(),
    (
        MotifSignal((Motif("SZ(d)ZN"),), 0.2, prevalence=0.8),
        MotifSignal((Motif("LDR"),), 0.1, status="negative", name="b"),
    ),
    Counts(2.0),
    Batch(0.3, 1.5),
    GeneShift(("TRBV28",), 0.5),
    label_noise=0.1,
    seed=3,
)


@pytest.fixture(scope="module")
def simulated() -> SimulatedDataset:
    return SimulatedDataset(COHORT)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    path = tmp_path_factory.mktemp("written") / "cohort.h5"
    write_container(COHORT, path)
    return open_dataset(path)


def assert_same(a: Repertoire, b: Repertoire) -> None:
    assert a.repertoire_id == b.repertoire_id
    assert len(a) == len(b)
    assert a.metadata == b.metadata
    for name in ("residues", "lengths", "offsets", "counts", "witness"):
        left, right = getattr(a, name), getattr(b, name)
        assert left.dtype == right.dtype
        assert left.tolist() == right.tolist()
    assert a.sequences.decode() == b.sequences.decode()
    assert a.digest() == b.digest()
    pd.testing.assert_frame_equal(a.to_frame(), b.to_frame())
    rows = np.arange(len(a))[::-3]
    pd.testing.assert_frame_equal(a.to_frame(rows), b.to_frame(rows))


def assert_same_datasets(a: RepertoireDataset, b: RepertoireDataset) -> None:
    assert len(a) == len(b)
    assert a.shape == b.shape
    assert a.repertoire_ids.tolist() == b.repertoire_ids.tolist()
    assert a.n_sequences.tolist() == b.n_sequences.tolist()
    pd.testing.assert_frame_equal(a.metadata, b.metadata, check_dtype=False)
    for left, right in zip(a, b, strict=True):
        assert_same(left, right)


def test_a_simulated_dataset_equals_the_container_written_from_it(
    simulated: SimulatedDataset, written: RepertoireDataset
) -> None:
    assert_same_datasets(simulated, written)


@pytest.mark.parametrize("method", [VGeneUsage(), GappedKmerLogisticRegression(k=2, max_gap=0)])
def test_an_empty_view_has_the_genes(simulated: SimulatedDataset, method: Classifier) -> None:
    assert simulated.gene_fields == simulated[:0].gene_fields == ["v_call", "j_call"]
    without_genes = SimulatedDataset(Cohort(2, Sizes(5)))
    assert without_genes.gene_fields == without_genes[:0].gene_fields == []
    method.prepare(simulated)  # it asks for the genes of an empty view


def test_metadata_has_the_types_of_the_container(simulated: SimulatedDataset, written: RepertoireDataset) -> None:
    assert simulated.metadata.dtypes.to_dict() == written.metadata.dtypes.to_dict()


@pytest.mark.parametrize("kind", ["slice", "list", "mask", "backwards", "none"])
def test_views_equal_those_of_the_container(simulated: SimulatedDataset, written: RepertoireDataset, kind: str) -> None:
    mask = np.arange(12) % 3 == 1
    key = {"slice": slice(2, 9, 2), "list": [5, 0, 5], "mask": mask, "backwards": slice(None, None, -1), "none": []}[
        kind
    ]
    part = simulated[key]
    assert isinstance(part, SimulatedDataset)
    assert part.cohort is COHORT
    assert_same_datasets(part, written[key])
    assert_same_datasets(part[:2], written[key][:2])


def test_single_and_selected_repertoires_are_those_of_the_container(
    simulated: SimulatedDataset, written: RepertoireDataset
) -> None:
    for place in (3, -1, np.int64(7)):
        assert_same(simulated[place], written[place])
    ids = ["repertoire_00007", "repertoire_00002"]
    assert_same_datasets(simulated.select(ids), written.select(ids))
    with pytest.raises(InputError, match="cohort: no repertoire 'x'"):
        simulated.select(["x"])
    with pytest.raises(IndexError):
        simulated[12]


def test_a_pickled_dataset_is_the_same(simulated: SimulatedDataset) -> None:
    assert_same_datasets(pickle.loads(pickle.dumps(simulated[3:6])), simulated[3:6])


@pytest.mark.long
def test_a_spawned_process_gets_the_same_dataset(simulated: SimulatedDataset) -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        made = executor.submit(simulated.__getitem__, 4).result()
    assert made.sequences.decode() == simulated[4].sequences.decode()


def test_a_simulated_dataset_has_the_name_of_its_cohort() -> None:
    assert repr(SimulatedDataset(replace(COHORT, name="mine"))) == "SimulatedDataset('mine', 12 repertoires)"


def test_a_cohort_of_a_billion_sequences_is_opened_without_them() -> None:
    cohort = Cohort(1000, Sizes(1_000_000), signals=(MotifSignal((Motif("SFEN"),), 0.01),))
    container = SimulatedDataset(cohort).container
    at = np.array([999_999_999, 0, 500_000_000])
    made = container.take(at)
    texts = made.decode()
    for text, number, row in zip(texts, (999, 0, 500), (999_999, 0, 0), strict=True):
        table = cohort.draw(number, np.array([row]))[0]
        assert [text] == table.decode()


def test_sequences_are_looked_up_in_any_order(simulated: SimulatedDataset, written: RepertoireDataset) -> None:
    rng = np.random.default_rng(0)
    container = written.container
    n = len(container.sequences)
    for at in (np.arange(n), rng.permutation(n), rng.integers(0, n, 50), np.array([], np.int64), np.array([n - 1, 0])):
        made = simulated.container.take(at)
        expected = container.take(at)
        assert made.decode() == expected.decode()
        assert made.counts.tolist() == expected.counts.tolist()
        for field, calls in made.genes.items():
            assert calls.names().tolist() == expected.genes[field].names().tolist()
        assert len(made.genes) == (2 if len(at) else 0)


@pytest.mark.parametrize("abundance", ABUNDANCE_MODES)
def test_batches_equal_those_of_the_container(
    simulated: SimulatedDataset, written: RepertoireDataset, abundance: AbundanceMode
) -> None:
    part = [7, 2, 9, 3]
    collators = [Collator(dataset[part], abundance) for dataset in (simulated, written)]
    pairs = [
        [collator.sample(np.array([2, 0, 3]), 30, np.random.default_rng(1)) for collator in collators],
        [collator.sample(np.array([1]), 10_000, np.random.default_rng(1)) for collator in collators],
        [collator.take(1, slice(2, 9)) for collator in collators],
        [collator.take(3, np.array([4, 0, 4])) for collator in collators],
        [collator.take(0, slice(3, 3)) for collator in collators],
    ]
    for (made, made_offsets), (read, read_offsets) in ([(b.sequences, b.offsets) for b in pair] for pair in pairs):
        assert torch.equal(made_offsets, read_offsets)
        assert made.compact().residues.tolist() == read.compact().residues.tolist()
        assert made.compact().starts.tolist() == read.compact().starts.tolist()
        for name in ("lengths", "position_scale"):
            assert torch.equal(getattr(made, name), getattr(read, name)), name
        # a logarithm of numba's and one of torch's: the same but for the last of 24 bits
        torch.testing.assert_close(made.residue_scale, read.residue_scale, rtol=2**-22, atol=0)
        assert made.residue_scale.dtype == read.residue_scale.dtype == torch.float32
        assert made.max_length == read.max_length
    assert [collators[0].get_inverse_std(i) for i in range(4)] == [collators[1].get_inverse_std(i) for i in range(4)]


def test_simulated_sequences_are_not_copied_to_a_device(simulated: SimulatedDataset) -> None:
    assert choose_cache_device(simulated, "always", torch.device("cuda")) == torch.device("cpu")


@pytest.mark.slow
def test_a_classifier_trained_on_it_is_the_one_trained_on_the_container(tmp_path: Path) -> None:
    signal = MotifSignal((Motif("WWHW"),), 0.3)
    cohort = Cohort(20, Sizes(50, 10, 20), IndependentBackground(), (signal,), Counts(2.0))
    write_container(cohort, tmp_path / "cohort.h5")
    overrides = {"n_updates": 40, "evaluate_every": 10, "n_kernels": 8, "kernel_size": 4, "learning_rate": 0.01}
    predictions = []
    for dataset in (SimulatedDataset(cohort), open_dataset(tmp_path / "cohort.h5")):
        y = dataset.metadata["status"].to_numpy()
        train, test = next(StratifiedKFold(2).split(np.zeros(20), y))
        model = DeepRCClassifier(overrides=overrides).fit(dataset[train], y[train])
        predictions.append(model.predict_proba(dataset[test])[:, 1])
    np.testing.assert_allclose(*predictions, rtol=1e-5)
    assert predictions[0].std() > 0.01


def test_without_counts_a_classifiers_predictions_are_the_same_bits(tmp_path: Path) -> None:
    cohort = Cohort(10, Sizes(30), IndependentBackground(), (MotifSignal((Motif("WWHW"),), 0.3),))
    write_container(cohort, tmp_path / "cohort.h5")
    overrides = {"n_updates": 10, "evaluate_every": 5, "n_kernels": 8, "kernel_size": 4, "abundance": "none"}
    predictions = [
        DeepRCClassifier(overrides=overrides).fit(dataset, dataset.metadata["status"]).predict_proba(dataset).tolist()
        for dataset in (SimulatedDataset(cohort), open_dataset(tmp_path / "cohort.h5"))
    ]
    assert predictions[0] == predictions[1]
