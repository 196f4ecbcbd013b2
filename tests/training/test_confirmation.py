"""A motif that was found elsewhere: whether it goes with these labels, too."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.tasks import Task
from deeprc.training.confirmation import _compute_motif_share, confirm_motifs
from deeprc.training.labelled_repertoires import LabelledRepertoires
from tests.conftest import motif, random_sequences, write_cohort

BINARY = [Task("status", "status", "binary", ("no", "yes"))]
ALTERNATING = np.array([b % 2 for b in range(40)], np.float64)[:, None]


def carrying(folder: Path, pattern: str, numbers: list[int], *, size: int = 60) -> RepertoireDataset:
    """Repertoire b holds the pattern in the first numbers[b] of its random sequences."""
    rng = np.random.default_rng(0)
    repertoires = [random_sequences(rng, size) for _ in numbers]
    for sequences, n in zip(repertoires, numbers, strict=True):
        sequences[:n] = [f"{sequence}{pattern}" for sequence in sequences[:n]]
    return write_cohort(folder / "cohort.h5", repertoires, pd.DataFrame({"x": numbers}))


@pytest.mark.slow
def test_the_share_of_sequences_that_hold_a_motif(tmp_path: Path) -> None:
    sequences = [["SFEN", "ASAENSFEN", "SEN", "SFE"], ["ACDE"], ["CCSWENCC", "SAAN"]]
    cohort = write_cohort(tmp_path / "c.h5", sequences, pd.DataFrame({"x": range(3)}))
    assert _compute_motif_share(motif("S.EN"), cohort).tolist() == [0.5, 0.0, 0.5]
    assert _compute_motif_share(motif("S..N"), cohort).tolist() == [0.5, 0.0, 1.0]


@pytest.mark.slow
def test_a_motif_must_go_with_the_label_in_its_own_direction(tmp_path: Path) -> None:
    cohort = carrying(tmp_path, "WHWM", [6 if b % 2 else 0 for b in range(40)])
    more, less, absent = motif("WHWM"), motif("WHWM", -1.0), motif("CYFC")
    assert confirm_motifs([more], LabelledRepertoires(cohort, ALTERNATING), BINARY, seed=0) == [more]
    assert confirm_motifs([less], LabelledRepertoires(cohort, ALTERNATING), BINARY, seed=0) == []
    assert confirm_motifs([less], LabelledRepertoires(cohort, 1 - ALTERNATING), BINARY, seed=0) == [less]
    assert confirm_motifs([absent], LabelledRepertoires(cohort, ALTERNATING), BINARY, seed=0) == []
    assert confirm_motifs([absent, more], LabelledRepertoires(cohort, ALTERNATING), BINARY, seed=0) == [more]


@pytest.mark.slow
def test_each_motif_is_judged_by_the_labels_of_its_own_output(tmp_path: Path) -> None:
    """WHWM goes with the class c of the grade, which the number tells from the others; status knows nothing."""
    cohort = carrying(tmp_path, "WHWM", [6 if b % 4 == 2 else 0 for b in range(40)])
    grade = Task("grade", "grade", "multiclass", ("a", "b", "c", "d"))
    age = Task("age", "age", "regression", mean=0.0, scale=1.0)
    table = np.stack([np.repeat([0.0, 1.0], 20), np.arange(40) % 4, np.arange(40) % 4 == 2], axis=1)
    tasks = [*BINARY, grade, age]  # outputs 0, 1 to 4, 5
    upwards, downwards = (
        [
            out
            for out in range(6)
            if confirm_motifs([motif("WHWM", sign, out)], LabelledRepertoires(cohort, table), tasks, seed=0)
        ]
        for sign in (1, -1)
    )
    assert upwards == [3, 5]
    assert downwards == [1, 2, 4]


def test_without_labels_that_vary_or_without_motifs_nothing_is_confirmed(tmp_path: Path) -> None:
    cohort = carrying(tmp_path, "WHWM", [6 if b % 2 else 0 for b in range(40)])
    for labels in (np.full((40, 1), np.nan), np.ones((40, 1)), np.where(np.arange(40) == 1, 1.0, np.nan)[:, None]):
        assert confirm_motifs([motif("WHWM")], LabelledRepertoires(cohort, labels), BINARY, seed=0) == []
    assert confirm_motifs([], LabelledRepertoires(cohort, ALTERNATING), BINARY, seed=0) == []


def test_a_motif_is_confirmed_beside_repertoires_without_label_or_sequences(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    repertoires = [
        [f"{s}WHWM" if b % 2 and i < 6 else s for i, s in enumerate(random_sequences(rng, 60))] for b in range(40)
    ]
    repertoires += [[], random_sequences(rng, 60), []]
    cohort = write_cohort(tmp_path / "cohort.h5", repertoires, pd.DataFrame({"x": range(43)}))
    labels = np.concatenate([ALTERNATING, [[1.0], [np.nan], [0.0]]])
    assert confirm_motifs([motif("WHWM")], LabelledRepertoires(cohort, labels), BINARY, seed=0) == [motif("WHWM")]


@pytest.mark.long
def test_chance_confirms_one_in_twenty_and_less_of_two(tmp_path: Path) -> None:
    """Random labels, 60 times: 3 are expected to be confirmed alone, and half of them if another is judged, too."""
    rng = np.random.default_rng(3)
    cohort = carrying(tmp_path, "WHWM", rng.poisson(5, 40).tolist())
    labels: list[NDArray[np.float64]] = [rng.permutation(ALTERNATING) for _ in range(60)]
    alone = [
        bool(confirm_motifs([motif("WHWM")], LabelledRepertoires(cohort, each), BINARY, seed=k))
        for k, each in enumerate(labels)
    ]
    assert 0 < sum(alone) <= 9
    pair = [motif("WHWM"), motif("CYFC")]
    beside = [
        bool(confirm_motifs(pair, LabelledRepertoires(cohort, each), BINARY, seed=k))
        for k, each in enumerate(labels)
        if alone[k]
    ]
    assert sum(beside) < sum(alone)


def test_depth_that_goes_with_the_label_is_no_confirmation(tmp_path: Path) -> None:
    """Positives are ten times as deep, so that a rare motif is in them alone: what labels within sizes cannot tell."""
    rng = np.random.default_rng(0)
    sizes = np.where(ALTERNATING[:, 0] == 1, 300, 30)
    repertoires = [random_sequences(rng, int(n)) for n in sizes]
    for b in range(1, 40, 2):
        repertoires[b][0] += "WHWM"
    cohort = write_cohort(tmp_path / "cohort.h5", repertoires, pd.DataFrame({"x": sizes}))
    assert confirm_motifs([motif("WHWM")], LabelledRepertoires(cohort, ALTERNATING), BINARY, seed=0) == []
