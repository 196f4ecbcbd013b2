"""k-mers with gaps: which there are, and that a motif with a gap is found by them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from deeprc.baselines.gapped import GappedKmerLogisticRegression, list_gapped_offsets
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from tests.conftest import random_sequences, write_cohort


def test_every_way_of_leaving_out_a_place() -> None:
    assert list_gapped_offsets(3, 0) == [(0, 1, 2)]
    assert list_gapped_offsets(3, 1) == [(0, 1, 2), (0, 1, 3), (0, 2, 3)]
    assert list_gapped_offsets(4, 1) == [(0, 1, 2, 3), (0, 1, 2, 4), (0, 1, 3, 4), (0, 2, 3, 4)]
    assert list_gapped_offsets(2, 2) == [(0, 1), (0, 2), (0, 3)]
    assert list_gapped_offsets(1, 3) == [(0,)]


@pytest.mark.parametrize(("k", "max_gap", "message"), [(0, 0, "k: "), (7, 0, "k: "), (3, 5, "max_gap"), (3, -1, "max")])
def test_other_patterns_are_refused(k: int, max_gap: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        list_gapped_offsets(k, max_gap)


@pytest.fixture(scope="module")
def gapped(tmp_path_factory: pytest.TempPathFactory) -> tuple[RepertoireDataset, np.ndarray]:
    """W, any residue, H, W in a tenth of the positives' sequences; genes at random."""
    rng = np.random.default_rng(0)
    repertoires = []
    for number in range(40):
        sequences = random_sequences(rng, 80, 8, 15)
        if number % 2:
            for at in range(0, 80, 10):
                sequences[at] = sequences[at][:2] + f"W{sequences[at][5]}HW" + sequences[at][2:]
        repertoires.append(sequences)
    status = np.where(np.arange(40) % 2, "case", "healthy")
    path: Path = tmp_path_factory.mktemp("gapped") / "cohort.h5"
    return write_cohort(path, repertoires, pd.DataFrame({"status": status})), status == "case"


def test_a_motif_with_a_gap_is_found(gapped: tuple[RepertoireDataset, np.ndarray]) -> None:
    cohort, y = gapped
    aucs = []
    for max_gap in (0, 1):
        model = GappedKmerLogisticRegression(k=3, max_gap=max_gap, C=0.3).fit(cohort[:26], y[:26])
        aucs.append(roc_auc_score(y[26:], model.decision_function(cohort[26:])))
    assert aucs[1] == 1
    assert aucs[0] < 0.9


def test_the_features_are_kmers_and_shares_of_genes(gapped: tuple[RepertoireDataset, np.ndarray]) -> None:
    cohort, y = gapped
    model = GappedKmerLogisticRegression(k=2, max_gap=1).fit(cohort, y)
    assert model.v_names_.tolist() == ["TRBV1", "TRBV2"]
    assert model.j_names_.tolist() == []
    rows = np.asarray(model._compute_features(cohort[:3]))
    assert rows.shape == (3, 2 * 400 + 2)
    table = cohort[0].to_frame()
    assert rows[0, -2:] == pytest.approx(
        [(table["v_call"] == name).sum() / (table["v_call"] != "").sum() for name in ("TRBV1", "TRBV2")]
    )
    overlapping = sum(s[i : i + 2] == "AA" for s in table["junction_aa"] for i in range(len(s) - 1))
    with_gap = sum(s[i] == "A" and s[i + 2] == "A" for s in table["junction_aa"] for i in range(len(s) - 2))
    assert rows[0, [0, 400]] == pytest.approx([overlapping / len(table), with_gap / len(table)])


def test_without_genes_the_features_are_the_kmers_alone(gapped: tuple[RepertoireDataset, np.ndarray]) -> None:
    cohort, y = gapped
    model = GappedKmerLogisticRegression(k=2, max_gap=0, genes="none").fit(cohort, y)
    assert np.asarray(model._compute_features(cohort)).shape == (40, 400)


@pytest.mark.slow
def test_long_kmers_are_sparse_and_learn(gapped: tuple[RepertoireDataset, np.ndarray]) -> None:
    cohort, y = gapped
    model = GappedKmerLogisticRegression(k=5, max_gap=0, C=1.0).fit(cohort, y)
    rows = model._compute_features(cohort)
    assert rows.shape == (40, 20**5 + 2)
    assert not isinstance(rows, np.ndarray)
    assert np.isfinite(model.decision_function(cohort)).all()
