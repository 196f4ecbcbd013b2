from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.stats import gumbel_r

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.tasks import Task
from deeprc.training.enrichment import _Seen, enriched_motifs, places_within
from tests.conftest import random_sequences, write_cohort

BINARY = [Task("status", "status", "binary", ("no", "yes"))]
PATTERNS = places_within(3, 4)


def implanted(
    folder: Path, motifs: Sequence[Sequence[str]], *, n_sequences: int = 200, seed: int = 0
) -> RepertoireDataset:
    """Repertoire b holds each of motifs[b] in ten of its random sequences."""
    rng = np.random.default_rng(seed)
    repertoires = []
    for carried in motifs:
        sequences = random_sequences(rng, n_sequences)
        for number, motif in enumerate(carried):
            for at in range(10 * number, 10 * number + 10):
                sequences[at] = sequences[at][:1] + motif + sequences[at][1:]
        repertoires.append(sequences)
    return write_cohort(folder / "cohort.h5", repertoires, pd.DataFrame({"x": range(len(motifs))}), seed)


def column(values: Sequence[float]) -> NDArray[np.float64]:
    return np.array(values, np.float64)[:, None]


def test_places_within() -> None:
    assert places_within(3, 4) == [(0, 1, 2), (0, 1, 3), (0, 2, 3)]
    assert len(places_within(4, 6)) == 10


def test_motifs_of_both_classes_each_once(tmp_path: Path) -> None:
    y = [b % 2 for b in range(40)]
    cohort = implanted(tmp_path, [["WHWM"] if label else ["CYFC"] for label in y])
    found = enriched_motifs(cohort, column(y), BINARY, patterns=[(0, 1, 2, 3)], most=8)
    assert {motif.pattern: np.sign(motif.correlation) for motif in found} == {"WHWM": 1, "CYFC": -1}
    assert all(motif.output == 0 and motif.n_residues == 4 and motif.p_value <= 0.05 for motif in found)


def test_a_motif_with_a_gap(tmp_path: Path) -> None:
    y = [b % 2 for b in range(40)]
    rng = np.random.default_rng(1)
    cohort = implanted(tmp_path, [[f"W{AMINO_ACIDS[rng.integers(20)]}HW"] if label else [] for label in y])
    found = enriched_motifs(cohort, column(y), BINARY, patterns=PATTERNS, most=1)
    assert [motif.pattern for motif in found] == ["W.HW"]


def test_classes_and_numbers_and_several_tasks(tmp_path: Path) -> None:
    motifs = ["WHWM", "CYFC", "MMWW"]
    grade = [b % 3 for b in range(48)]
    cohort = implanted(tmp_path, [[motifs[g]] for g in grade])
    classes = Task("grade", "grade", "multiclass", ("a", "b", "c"))
    number = Task("age", "age", "regression", mean=1.0, scale=2.0)
    found = enriched_motifs(cohort, column(grade), [classes], patterns=[(0, 1, 2, 3)], most=3)
    assert {motif.pattern: motif.output for motif in found} == {"WHWM": 0, "CYFC": 1, "MMWW": 2}
    age = np.array(grade, np.float64) == 2
    age[:6] = np.nan
    table = np.stack([np.array(grade, np.float64), np.where(np.arange(48) < 6, np.nan, 30 + 5.0 * age)], axis=1)
    both = enriched_motifs(cohort, table, [classes, number], patterns=[(0, 1, 2, 3)], most=4)
    assert {motif.pattern for motif in both} >= set(motifs)
    alone = enriched_motifs(cohort, table[:, 1:], [number], patterns=[(0, 1, 2, 3)], most=4)
    assert [(motif.pattern, motif.output) for motif in alone[:1]] == [("MMWW", 0)]


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    """At a level of 0.05, one cohort in twenty may show something; these labels are nobody's."""
    cohort = implanted(tmp_path, [[]] * 40)
    rng = np.random.default_rng(0)
    numbers = [
        len(enriched_motifs(cohort, column(rng.permutation(40) % 2), BINARY, patterns=PATTERNS, most=8, seed=seed))
        for seed in range(20)
    ]
    assert np.count_nonzero(numbers) <= 3


def test_forms_in_the_same_sequences_count_once(tmp_path: Path) -> None:
    """The carriers of WHWMF hold WHWM, HWMF, WH.M ...; a second motif is in other sequences."""
    y = [b % 2 for b in range(40)]
    cohort = implanted(tmp_path, [["WHWMF", "CYFC"] if label else [] for label in y])
    found = enriched_motifs(cohort, column(y), BINARY, patterns=[*PATTERNS, (0, 1, 2, 3)], most=16)
    of_first = [motif.pattern for motif in found if set(motif.pattern) <= set("WHMF.")]
    of_second = [motif.pattern for motif in found if set(motif.pattern) <= set("CYF.")]
    assert (len(of_first), len(of_second), len(found)) == (1, 1, 2)


def test_a_form_with_sequences_of_its_own_is_found_beside_the_other(tmp_path: Path) -> None:
    y = [b % 2 for b in range(40)]
    cohort = implanted(tmp_path, [["WHWM", "WHM"] if label else [] for label in y])  # a residue is left out in half
    found = enriched_motifs(cohort, column(y), BINARY, patterns=[*places_within(3, 3), (0, 1, 2, 3)], most=16)
    patterns = {motif.pattern for motif in found}
    assert "WHM" in patterns
    assert len(patterns) == 2


@pytest.mark.parametrize("labels", [[np.nan] * 30, [1.0] * 30, [1.0, 0.0, *[np.nan] * 28]])
def test_too_few_labels_find_nothing(cohort: RepertoireDataset, labels: list[float]) -> None:
    assert enriched_motifs(cohort, column(labels), BINARY, patterns=PATTERNS, most=8) == []


def test_the_same_seed_finds_the_same(cohort_factory: Callable[..., RepertoireDataset]) -> None:
    cohort = cohort_factory(24)
    y = column([b % 2 for b in range(24)])
    first, again = (enriched_motifs(cohort, y, BINARY, patterns=PATTERNS, most=8, seed=3) for _ in range(2))
    assert first == again
    assert first[0].pattern in ("WWH", "WHW", "WW.W", "W.HW")


def test_the_level_holds_over_all_outputs_together(tmp_path: Path) -> None:
    """Ten classes and another target make eleven outputs; of 10 null cohorts 0.5 are expected to show something."""
    cohort = implanted(tmp_path, [[]] * 40)
    task = Task("grade", "grade", "multiclass", tuple("abcdefghij"))
    other = Task("age", "age", "regression", mean=0.0, scale=1.0)
    rng = np.random.default_rng(0)
    shown = 0
    for seed in range(10):
        table = np.stack([rng.permutation(40) % 10, rng.normal(size=40)], axis=1)
        shown += bool(enriched_motifs(cohort, table, [task, other], patterns=PATTERNS, most=8, seed=seed))
    assert shown <= 2


def test_a_class_that_nobody_has_changes_nothing(tmp_path: Path) -> None:
    y = [b % 2 for b in range(40)]
    cohort = implanted(tmp_path, [["WHWM"] if label else [] for label in y])
    found = [
        enriched_motifs(cohort, column(y), [Task("x", "x", "multiclass", classes)], patterns=[(0, 1, 2, 3)], most=1)
        for classes in (("a", "b"), ("a", "b", "nobody"))
    ]
    assert [motif.pattern for motif in found[0]] == ["WHWM"]
    assert found[0] == found[1]


def test_without_patterns_nothing_is_found(cohort: RepertoireDataset) -> None:
    assert enriched_motifs(cohort, column([b % 2 for b in range(len(cohort))]), BINARY, patterns=[], most=8) == []


def test_p_values_are_those_of_the_strongest_by_chance() -> None:
    highest = np.random.default_rng(0).gumbel(4.0, 0.3, 100)
    strength = np.array([0.0, 4.5, 5.0, highest.max(), 6.0, 40.0])
    seen = _Seen(highest=highest)
    scale = highest.std(ddof=1) * np.sqrt(6) / np.pi
    by_moments = gumbel_r(highest.mean() - np.euler_gamma * scale, scale).sf(strength)
    found = seen.p_value(strength, n_kinds=1)
    assert found[[0, 3]].tolist() == [1.0, max(by_moments[3], 0.01)]
    assert found[[1, 2]] == pytest.approx(by_moments[[1, 2]], abs=0.03)
    assert found[[4, 5]] == pytest.approx(by_moments[[4, 5]], rel=1e-9)
    assert seen.p_value(strength, n_kinds=3) == pytest.approx(np.minimum(3 * found, 1))


def test_orders_of_labels_that_give_the_same_strength() -> None:
    seen = _Seen(highest=np.full(100, 4.0))
    assert seen.p_value(np.array([3.0, 4.0, 5.0]), n_kinds=1) == pytest.approx([1.0, 1.0, 0.0])
