"""Against plain text search, on cohorts with recipes of every shape."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from deeprc.baselines.known_motif import KnownMotif, score_motifs
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.simulation import (
    Cohort,
    IndependentBackground,
    Motif,
    MotifSignal,
    SequencePool,
    SimulatedDataset,
    Sizes,
    write_container,
)
from deeprc.datasets.simulation.recipe import cohort_to_mapping
from deeprc.errors import InputError
from tests.toys.repertoires import make_sequences, write_repertoires

BACKGROUND = IndependentBackground(mean_length=12, sd_length=2)
ONE = (MotifSignal((Motif("SF-EN", gap_lengths=(0, 1)),), witness_rate=0.08),)
BOTH = (
    MotifSignal((Motif("WWH"), Motif("YHY")), 0.1, name="ill"),
    MotifSignal((Motif("MKM"),), 0.1, status="negative", name="healthy"),
)


def simulated(path: Path, signals: tuple[MotifSignal, ...] = ONE, **options: Any) -> RepertoireDataset:
    cohort = Cohort(20, Sizes(120), BACKGROUND, signals, **{"seed": 4, **options})
    write_container(cohort, path, recipe=cohort_to_mapping(cohort))
    return open_dataset(path)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    return simulated(tmp_path_factory.mktemp("known") / "one.h5")


def status(dataset: RepertoireDataset) -> NDArray[Any]:
    return dataset.metadata["status"].to_numpy()


def plain_binary(texts: list[str], forms: list[str]) -> float:
    return sum(re.search("|".join(forms), text) is not None for text in texts) / len(texts)


def plain_continuous(texts: list[str], forms: list[str]) -> float:
    def overlap(text: str, form: str) -> int:
        starts = range(len(text) - len(form) + 1)
        return max((sum(a == b for a, b in zip(form, text[at:], strict=False)) for at in starts), default=0)

    return sum(max(overlap(text, form) for form in forms) for text in texts) / len(texts)


def test_a_score_is_what_a_plain_search_counts(dataset: RepertoireDataset) -> None:
    signals = dataset.container.simulation["signals"]
    for overlap, plain in (("binary", plain_binary), ("continuous", plain_continuous)):
        expected = [plain(repertoire.sequences.decode(), ["SFEN", "SF.EN"]) for repertoire in dataset]
        np.testing.assert_allclose(score_motifs(dataset, signals, overlap), expected, rtol=1e-12)
        model = KnownMotif(overlap=overlap).fit(dataset, status(dataset))
        np.testing.assert_allclose(model.decision_function(dataset), expected, rtol=1e-12)
        assert roc_auc_score(status(dataset) == "positive", model.predict_proba(dataset)[:, 1]) > 0.95


def test_signals_of_the_negative_class_are_subtracted(tmp_path: Path) -> None:
    dataset = simulated(tmp_path / "both.h5", BOTH)
    scores = score_motifs(dataset, dataset.container.simulation["signals"])
    texts = [repertoire.sequences.decode() for repertoire in dataset]
    expected = [plain_binary(each, ["WWH", "YHY"]) - plain_binary(each, ["MKM"]) for each in texts]
    np.testing.assert_allclose(scores, expected, rtol=1e-12)
    assert roc_auc_score(status(dataset) == "positive", scores) > 0.95


def test_conserved_ends_are_not_searched_where_positions_are_imgt(tmp_path: Path) -> None:
    signal = MotifSignal((Motif("LDR"),), 0.1, position="imgt", imgt_positions={"109": 1.0})
    dataset = simulated(tmp_path / "imgt.h5", (signal,))
    expected = [plain_binary([text[1:-1] for text in repertoire.sequences.decode()], ["LDR"]) for repertoire in dataset]
    np.testing.assert_allclose(score_motifs(dataset, dataset.container.simulation["signals"]), expected, rtol=1e-12)


def test_the_recipe_says_which_class_is_positive(dataset: RepertoireDataset) -> None:
    """However the labels are written; and also of a fold in which the scores say otherwise."""
    truth = status(dataset) == "positive"
    scores = KnownMotif().fit(dataset, status(dataset)).decision_function(dataset)
    rare, common = np.argsort(np.where(truth, scores, np.inf))[:2], np.argsort(np.where(truth, np.inf, -scores))[:2]
    odd = dataset[np.concatenate([rare, common])]  # the positive ones with the least, the negative ones with the most
    for labels, sign in (
        (status, 1),
        (lambda cohort: status(cohort) == "positive", 1),
        (lambda cohort: (status(cohort) == "positive").astype(int), 1),
        (lambda cohort: status(cohort) == "negative", -1),
        (lambda cohort: np.where(status(cohort) == "positive", "case", "control"), -1),
    ):
        for some in (dataset, odd):
            model = KnownMotif().fit(some, labels(some))
            assert model.sign_ == sign
            np.testing.assert_allclose(model.decision_function(dataset), sign * scores, rtol=1e-12)
            assert model.calibration_[0] >= 0


def test_other_labels_are_oriented_by_the_mean_scores(dataset: RepertoireDataset) -> None:
    scores = KnownMotif().fit(dataset, status(dataset)).decision_function(dataset)
    many = np.argsort(np.argsort(scores)) >= 7
    assert KnownMotif().fit(dataset, many).sign_ == 1
    assert KnownMotif().fit(dataset, ~many).sign_ == -1


def test_recorded_labels_may_be_wrong(tmp_path: Path) -> None:
    dataset = simulated(tmp_path / "noise.h5", label_noise=0.3)
    true = dataset.metadata["true_status"].to_numpy()
    assert (true != status(dataset)).any()
    for labels in (true == "positive", status(dataset) == "positive"):
        assert KnownMotif().fit(dataset, labels).sign_ == 1
        assert KnownMotif().fit(dataset, ~labels).sign_ == -1


def test_a_cohort_on_no_disk_gives_the_same(dataset: RepertoireDataset) -> None:
    virtual = SimulatedDataset(Cohort(20, Sizes(120), BACKGROUND, ONE, seed=4))
    on_disk = KnownMotif().fit(dataset, status(dataset))
    in_memory = KnownMotif().fit(virtual, status(virtual))
    np.testing.assert_array_equal(in_memory.predict_proba(virtual), on_disk.predict_proba(dataset))
    np.testing.assert_array_equal(in_memory.predict_proba(dataset), on_disk.predict_proba(virtual))


def test_the_fitted_motif_is_sought_anywhere(
    dataset: RepertoireDataset, cohort: RepertoireDataset, tmp_path: Path
) -> None:
    """Not the motif of the other container's recipe, if that has any."""
    other = simulated(tmp_path / "both.h5", BOTH)
    model = KnownMotif().fit(dataset, status(dataset))
    for unseen in (cohort, other):
        expected = [plain_binary(repertoire.sequences.decode(), ["SFEN", "SF.EN"]) for repertoire in unseen]
        np.testing.assert_allclose(model.decision_function(unseen), expected, rtol=1e-12)
    model.save(tmp_path / "model.safetensors")
    loaded = KnownMotif.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(other), model.predict_proba(other))


def test_the_background_need_not_be_there_any_more(tmp_path: Path) -> None:
    pool = tmp_path / "pool.txt"
    pool.write_text("\n".join(text for r in SimulatedDataset(Cohort(2)) for text in r.sequences.decode()[:500]))
    cohort = Cohort(6, Sizes(50), SequencePool(pool), ONE)
    write_container(cohort, tmp_path / "c.h5", recipe=cohort_to_mapping(cohort))
    pool.unlink()
    dataset = open_dataset(tmp_path / "c.h5")
    assert KnownMotif().fit(dataset, status(dataset)).predict_proba(dataset).shape == (6, 2)


def test_a_repertoire_without_sequences_has_the_mean_score(dataset: RepertoireDataset, tmp_path: Path) -> None:
    empty = write_repertoires(tmp_path / "empty.h5", [make_sequences([])], dataset.metadata.iloc[:1])
    for overlap in ("binary", "continuous"):
        model = KnownMotif(overlap=overlap).fit(dataset, status(dataset) == "negative")
        mean = model.decision_function(dataset).mean()
        np.testing.assert_allclose(model.decision_function(empty), [mean], rtol=1e-12)


def test_a_cohort_without_a_motif_is_refused(cohort: RepertoireDataset, tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        KnownMotif.check_cohort(cohort)
    path = cohort.container.path
    assert str(raised.value) == f"{path}: has no recipe; only cohorts of `deeprc simulate` have one"
    with pytest.raises(InputError, match="only cohorts of `deeprc simulate`"):
        KnownMotif().fit(cohort, cohort.metadata["status"])
    nothing = simulated(tmp_path / "nothing.h5", ())
    with pytest.raises(InputError, match=r"nothing\.h5: its recipe implants no motif, so there is no motif to know"):
        KnownMotif().fit(nothing, status(nothing))
    with pytest.raises(InputError, match="implants no motif"):
        KnownMotif.check_cohort(SimulatedDataset(replace(Cohort(4), name="none")))


def test_overlap_is_checked(dataset: RepertoireDataset) -> None:
    with pytest.raises(InputError, match="overlap: expected one of binary, continuous, found 'whole'"):
        KnownMotif(overlap="whole").fit(dataset, status(dataset))
