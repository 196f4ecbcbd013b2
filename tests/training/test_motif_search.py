from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from deeprc.arrays import Floats
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.tasks import Task
from deeprc.training import kmer_occurrences, output_search
from deeprc.training.enriched_motif import EnrichedMotif
from deeprc.training.kmer_sets import enumerate_spacings
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.motif_search import MOTIF_LEVEL, MotifLimits, find_enriched_motifs
from tests.conftest import random_sequences, write_cohort

BINARY = [Task("status", "status", "binary", ("no", "yes"))]
SPACINGS = enumerate_spacings(3, 4)


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


def find_motifs(
    dataset: RepertoireDataset,
    labels: NDArray[np.float64],
    tasks: Sequence[Task],
    *,
    spacings: Sequence[Sequence[int]],
    max_motifs: int,
    seed: int = 0,
    groups: NDArray[np.int64] | None = None,
    **limits: float,
) -> list[EnrichedMotif]:
    """Call `find_enriched_motifs` with its limits one by one."""
    own = MotifLimits(max_motifs, **limits)  # type: ignore[arg-type]
    return find_enriched_motifs(
        LabelledRepertoires(dataset, labels, groups), tasks, spacings=spacings, limits=own, seed=seed
    )


def test_motifs_of_both_classes_are_found_once_each(tmp_path: Path) -> None:
    y = [b % 2 for b in range(40)]
    cohort = implanted(tmp_path, [["WHWM"] if label else ["CYFC"] for label in y])
    found = find_motifs(cohort, column(y), BINARY, spacings=[(0, 1, 2, 3)], max_motifs=8)
    assert {motif.pattern: np.sign(motif.correlation) for motif in found} == {"WHWM": 1, "CYFC": -1}
    assert all(motif.output == 0 and len(motif.spacing) == 4 and motif.p_value <= 0.01 for motif in found)


def test_a_motif_with_a_gap_is_found(tmp_path: Path) -> None:
    y = [b % 2 for b in range(40)]
    rng = np.random.default_rng(1)
    cohort = implanted(tmp_path, [[f"W{AMINO_ACIDS[rng.integers(20)]}HW"] if label else [] for label in y])
    found = find_motifs(cohort, column(y), BINARY, spacings=SPACINGS, max_motifs=1)
    assert [motif.pattern for motif in found] == ["W.HW"]


@pytest.mark.slow
def test_motifs_of_classes_numbers_and_several_tasks_are_found(tmp_path: Path) -> None:
    motifs = ["WHWM", "CYFC", "MMWW"]
    grade = [b % 3 for b in range(48)]
    cohort = implanted(tmp_path, [[motifs[g]] for g in grade])
    classes = Task("grade", "grade", "multiclass", ("a", "b", "c"))
    number = Task("age", "age", "regression", mean=1.0, scale=2.0)
    found = find_motifs(cohort, column(grade), [classes], spacings=[(0, 1, 2, 3)], max_motifs=3)
    assert {motif.pattern: motif.output for motif in found} == {"WHWM": 0, "CYFC": 1, "MMWW": 2}
    age = np.array(grade, np.float64) == 2
    age[:6] = np.nan
    table = np.stack([np.array(grade, np.float64), np.where(np.arange(48) < 6, np.nan, 30 + 5.0 * age)], axis=1)
    both = find_motifs(cohort, table, [classes, number], spacings=[(0, 1, 2, 3)], max_motifs=4)
    assert {motif.pattern for motif in both} >= set(motifs)
    alone = find_motifs(cohort, table[:, 1:], [number], spacings=[(0, 1, 2, 3)], max_motifs=4)
    assert [(motif.pattern, motif.output) for motif in alone[:1]] == [("MMWW", 0)]


def test_random_sequences_seldom_have_a_motif(tmp_path: Path) -> None:
    """At a level of 0.05, one cohort in twenty may show something; these labels are nobody's."""
    cohort = implanted(tmp_path, [[]] * 40)
    rng = np.random.default_rng(0)
    numbers = [
        len(
            find_motifs(
                cohort, column(rng.permutation(40) % 2), BINARY, spacings=SPACINGS, max_motifs=8, level=0.05, seed=seed
            )
        )
        for seed in range(20)
    ]
    assert np.count_nonzero(numbers) <= 3


def test_variants_in_the_same_sequences_count_once(tmp_path: Path) -> None:
    """The carriers of WHWMF hold WHWM, HWMF, WH.M ...; a second motif is in other sequences.

    A substitution of WHWM that chance put into two cases must not become significant because cases, of whose sequences
    more have a motif, have fewer others.
    """
    y = [b % 2 for b in range(40)]
    cohort = implanted(tmp_path, [["WHWMF", "CYFC"] if label else [] for label in y])
    found = find_motifs(cohort, column(y), BINARY, spacings=[*SPACINGS, (0, 1, 2, 3)], max_motifs=16)
    of_first = [motif.pattern for motif in found if set(motif.pattern) <= set("WHMF.")]
    of_second = [motif.pattern for motif in found if set(motif.pattern) <= set("CYF.")]
    assert (len(of_first), len(of_second), len(found)) == (1, 1, 2)


def test_a_variant_with_sequences_of_its_own_is_found_beside_the_other(tmp_path: Path) -> None:
    y = [b % 2 for b in range(40)]
    cohort = implanted(tmp_path, [["WHWM", "WHM"] if label else [] for label in y])  # a residue is left out in half
    found = find_motifs(cohort, column(y), BINARY, spacings=[*enumerate_spacings(3, 3), (0, 1, 2, 3)], max_motifs=16)
    patterns = {motif.pattern for motif in found}
    assert "WHM" in patterns
    assert len(patterns) == 2


@pytest.mark.parametrize("limit", ["candidates", "occurrences"])
def test_a_weak_motif_is_found_behind_many_kmers_that_are_no_motifs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Half of each case's sequences have a piece of one clone; every repertoire has the same ten other sequences.

    Without the sequences with the piece, these ten are more frequent in cases, although they are equally many. Their
    k-mers are stronger than the weak motif, and all that are compared with each other at first.
    """
    rng = np.random.default_rng(0)
    y = [b % 2 for b in range(40)]
    constant, repertoires = random_sequences(rng, 10), []
    for label in y:
        sequences = random_sequences(rng, 190)
        for i in range(100 * label):
            sequences[i] = f"{sequences[i][:2]}WHWMFCYHWMKDPNEHWCQRMH{sequences[i][-2:]}"
        for i in range(100, 100 + int(rng.integers(1, 12)) * label):
            sequences[i] = f"{sequences[i][:1]}CYFC{sequences[i][1:]}"
        repertoires.append([*sequences, *constant])
    cohort = write_cohort(tmp_path / "cohort.h5", repertoires, pd.DataFrame({"x": y}), 0)
    if limit == "candidates":
        monkeypatch.setattr(output_search, "_MAX_COMPARED", 36)
    else:
        monkeypatch.setattr(kmer_occurrences, "_MAX_OCCURRENCES", 2_050)
    found = find_motifs(cohort, column(y), BINARY, spacings=[(0, 1, 2, 3)], max_motifs=8)
    assert [motif.pattern for motif in found if not set(motif.pattern) <= set("WHMFCYKDPNEQR")] == []
    assert found[1].pattern == "CYFC"
    assert len(found) == 2


@pytest.mark.parametrize("labels", [[np.nan] * 30, [1.0] * 30, [1.0, 0.0, *[np.nan] * 28]])
def test_too_few_labels_find_nothing(cohort: RepertoireDataset, labels: list[float]) -> None:
    assert find_motifs(cohort, column(labels), BINARY, spacings=SPACINGS, max_motifs=8) == []


def test_the_same_seed_finds_the_same(cohort_factory: Callable[..., RepertoireDataset]) -> None:
    cohort = cohort_factory(24)
    y = column([b % 2 for b in range(24)])
    first, again = (find_motifs(cohort, y, BINARY, spacings=SPACINGS, max_motifs=8, seed=3) for _ in range(2))
    assert first == again
    assert first[0].pattern in ("WWH", "WHW", "WW.W", "W.HW")


@pytest.mark.slow
def test_the_level_holds_over_all_outputs_together(tmp_path: Path) -> None:
    """Four classes and another target make five outputs; of 10 null cohorts 0.5 are expected to show something."""
    cohort = implanted(tmp_path, [[]] * 40)
    task = Task("grade", "grade", "multiclass", tuple("abcd"))
    other = Task("age", "age", "regression", mean=0.0, scale=1.0)
    rng = np.random.default_rng(0)
    shown = 0
    for seed in range(10):
        table = np.stack([rng.permutation(40) % 4, rng.normal(size=40)], axis=1)
        shown += bool(find_motifs(cohort, table, [task, other], spacings=SPACINGS, max_motifs=8, level=0.05, seed=seed))
    assert shown <= 2


def with_a_weak_motif(folder: Path) -> tuple[RepertoireDataset, NDArray[np.float64]]:
    """WHWM, in a third of the positive repertoires, is strongest, but not by enough."""
    rng = np.random.default_rng(0)
    y = [b % 2 for b in range(40)]
    repertoires = [random_sequences(rng, 200) for _ in y]
    for b, sequences in enumerate(repertoires):
        for at in range(4 if b % 6 == 1 else 0):
            sequences[at] = f"{sequences[at]}WHWM"
    return write_cohort(folder / "cohort.h5", repertoires, pd.DataFrame({"x": y})), column(y)


@pytest.mark.long
def test_p_values_are_of_all_outputs_together(tmp_path: Path) -> None:
    """Each p-value is what it is alone, times the number of outputs that vary, and so for the level."""
    cohort, y = with_a_weak_motif(tmp_path)
    rng = np.random.default_rng(1)
    others = [Task("age", "age", "regression", mean=0.0, scale=1.0), Task("b", "b", "multiclass", ("a", "b"))]
    table = np.column_stack([y, rng.normal(size=40), rng.permutation(40) % 2])

    def found(tasks: list[Task], **limits: float) -> list[EnrichedMotif]:
        return find_motifs(cohort, table[:, : len(tasks)], tasks, spacings=[(0, 1, 2, 3)], max_motifs=8, **limits)

    (alone,) = found(BINARY, doubtful_level=1.0)
    for n_outputs, tasks in ((2, [*BINARY, others[0]]), (4, [*BINARY, *others])):
        together = [motif for motif in found(tasks, doubtful_level=4.0) if motif.output == 0]
        assert together == [replace(alone, p_value=pytest.approx(n_outputs * alone.p_value))]
        assert found(tasks, level=0.99 * n_outputs * alone.p_value) == []
        assert [m.pattern for m in found(tasks, level=1.01 * n_outputs * alone.p_value)] == [alone.pattern]


@pytest.mark.slow
def test_without_a_significant_motif_the_strongest_is_doubtful(tmp_path: Path) -> None:
    cohort, y = with_a_weak_motif(tmp_path)

    def found(**limits: float) -> list[EnrichedMotif]:
        return find_motifs(cohort, y, BINARY, spacings=[(0, 1, 2, 3)], max_motifs=8, **limits)

    (doubtful,) = found(doubtful_level=0.5)
    assert doubtful.pattern == "WHWM"
    assert MOTIF_LEVEL < doubtful.p_value < 0.5
    assert found() == []
    assert found(doubtful_level=0.99 * doubtful.p_value) == []
    assert [motif.pattern for motif in found(level=1.01 * doubtful.p_value, doubtful_level=1.0)] == ["WHWM"]


@pytest.mark.slow
def test_each_output_may_have_a_doubtful_motif_unless_one_has_a_better(tmp_path: Path) -> None:
    grade = [b % 4 for b in range(80)]
    cohort = implanted(tmp_path, [["WHWM"] if g == 0 else [] for g in grade])
    task = Task("grade", "grade", "multiclass", tuple("abcd"))
    every = find_motifs(cohort, column(grade), [task], spacings=[(0, 1, 2, 3)], max_motifs=8, doubtful_level=4.0)
    assert {motif.output for motif in every if motif.p_value <= MOTIF_LEVEL} == {motif.output for motif in every}
    nobody = np.random.default_rng(2).permutation(grade)
    doubtful = find_motifs(cohort, column(nobody), [task], spacings=[(0, 1, 2, 3)], max_motifs=8, doubtful_level=4.0)
    assert sorted(motif.output for motif in doubtful) == [0, 1, 2, 3]
    assert all(motif.p_value > MOTIF_LEVEL for motif in doubtful)


def test_a_class_without_repertoires_does_not_change_the_motifs(tmp_path: Path) -> None:
    y = [b % 2 for b in range(40)]
    cohort = implanted(tmp_path, [["WHWM"] if label else [] for label in y])
    found = [
        find_motifs(cohort, column(y), [Task("x", "x", "multiclass", classes)], spacings=[(0, 1, 2, 3)], max_motifs=1)
        for classes in (("a", "b"), ("a", "b", "nobody"))
    ]
    assert [motif.pattern for motif in found[0]] == ["WHWM"]
    assert found[0] == found[1]


def test_without_spacings_no_motif_is_found(cohort: RepertoireDataset) -> None:
    assert find_motifs(cohort, column([b % 2 for b in range(len(cohort))]), BINARY, spacings=[], max_motifs=8) == []


@pytest.mark.parametrize("rate", [0.05, 0.2])
def test_kmers_that_a_motif_was_written_over_are_no_motifs(tmp_path: Path, rate: float) -> None:
    """Carriers lack the germline ends that WHWM was written over, and all that their other residues would have been."""
    rng = np.random.default_rng(1)
    repertoires = []
    for b in range(60):
        sequences = [f"CASS{text}EQYF" for text in random_sequences(rng, 200)]
        for i in range(int(rate * 200) * (b % 2)):
            at = rng.integers(2, len(sequences[i]) - 6)
            sequences[i] = sequences[i][:at] + "WHWM" + sequences[i][at + 4 :]
        repertoires.append(sequences)
    cohort = write_cohort(tmp_path / "cohort.h5", repertoires, pd.DataFrame({"x": range(60)}), 0)
    y = [b % 2 for b in range(60)]
    found = find_motifs(cohort, column(y), BINARY, spacings=[(0, 1, 2, 3)], max_motifs=16)
    assert [motif.pattern for motif in found] == ["WHWM"]


@pytest.mark.parametrize("max_occurrences", [400, 1000])
def test_a_kmer_that_shares_no_sequence_with_a_frequent_motif_is_no_motif(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_occurrences: int
) -> None:
    """Each repertoire has about as many CYFC in short sequences; half of the others have WHWM in positive ones.

    As a share of the sequences without WHWM, there would be more of CYFC in positive repertoires. WHWM is too common to
    be compared with others, so the repertoires are searched again without it. With the smaller limit, CYFC is, too.
    """
    monkeypatch.setattr(kmer_occurrences, "_MAX_OCCURRENCES", max_occurrences)
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    repertoires = []
    for label in y:
        others = random_sequences(rng, 160)
        with_motif = [text[:1] + "WHWM" + text[1:5] for text in others[:80]] if label else others[:80]
        n = int(rng.integers(11, 14))
        repertoires.append([*with_motif, *others[80:], *["ACYFC"] * n, *["AAAAA"] * (14 - n)])
    cohort = write_cohort(tmp_path / "cohort.h5", repertoires, pd.DataFrame({"x": range(40)}), 0)
    found = find_motifs(cohort, column(y), BINARY, spacings=[(0, 1, 2, 3)], max_motifs=8)
    assert [motif.pattern for motif in found] == ["WHWM"]


def weak(folder: Path, *, strong: float = 0.0, common: float = 0.0) -> RepertoireDataset:
    """CYFC in about 3 of 300 sequences, 0.8 by chance, of every second repertoire; WHWM and K.A in shares of them."""
    rng = np.random.default_rng(3)
    repertoires = []
    for b in range(160):
        sequences = random_sequences(rng, 300)
        for i in range(int(strong * 300) * (b % 2)):
            sequences[i] = sequences[i][:2] + "WHWM" + sequences[i][2:]
        for i in range(200, 200 + rng.poisson(3.0 if b % 2 else 0.8)):
            sequences[i] = sequences[i][:2] + "CYFC" + sequences[i][2:]
        for i in range(int(common * 300)):
            sequences[i] = ("KWA" if b % 2 else "KWG") + sequences[i]
        repertoires.append(sequences)
    return write_cohort(folder / "cohort.h5", repertoires, pd.DataFrame({"x": range(160)}), 0)


@pytest.fixture(scope="module")
def weak_cohort(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """A cohort of CYFC alone."""
    return weak(tmp_path_factory.mktemp("weak"))


@pytest.mark.slow
def test_a_weak_motif_is_found_behind_the_variants_of_a_strong_one(tmp_path: Path) -> None:
    cohort, y = weak(tmp_path, strong=0.2), column([b % 2 for b in range(160)])
    spacings = [spacing for k in (2, 3, 4) for spacing in enumerate_spacings(k, 6)]
    found = [motif.pattern for motif in find_motifs(cohort, y, BINARY, spacings=spacings, max_motifs=16)]
    assert found[0] == "WHWM"
    assert found[1] in ("CYFC", "CYF", "YFC", "CY.C", "C.FC")
    assert len(found) == 2


@pytest.mark.slow
def test_motifs_with_too_many_occurrences_for_the_memory_are_tested_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K.A and K.G are in 12,000 sequences each."""
    cohort, y = weak(tmp_path, common=0.5), column([b % 2 for b in range(160)])
    found = []
    for room in (10_000, 10_000_000):
        monkeypatch.setattr(kmer_occurrences, "_MAX_OCCURRENCES", room)
        found.append(find_motifs(cohort, y, BINARY, spacings=[(0, 2), (0, 1, 2, 3)], max_motifs=8))
    for motifs in found:
        assert {motif.pattern for motif in motifs} >= {"CYFC"}
        assert {motif.pattern for motif in motifs[:2]} <= {"K.A", "K.G", "CYFC"}
    assert found[0][0].letters == found[1][0].letters
    assert found[0][0].correlation == pytest.approx(found[1][0].correlation, abs=1e-5)


@pytest.mark.slow
def test_another_outputs_rare_class_or_outlier_costs_no_power(weak_cohort: RepertoireDataset) -> None:
    cohort, y = weak_cohort, np.array([b % 2 for b in range(160)], np.float64)
    alone = find_motifs(cohort, y[:, None], BINARY, spacings=[(0, 1, 2, 3)], max_motifs=4)
    assert [motif.pattern for motif in alone] == ["CYFC"]
    outlier = np.random.default_rng(0).normal(size=160)
    outlier[5] = 1000
    age = Task("age", "age", "regression", mean=0.0, scale=1.0)
    single = np.arange(160) == 1
    three = np.where(single, 2, y)
    classes = Task("three", "three", "multiclass", ("a", "b", "c"))
    for table, tasks in (
        (np.stack([y, outlier], axis=1), [*BINARY, age]),
        (np.stack([y, single.astype(float)], axis=1), [*BINARY, *BINARY]),
        (three[:, None], [classes]),
    ):
        found = find_motifs(cohort, table, tasks, spacings=[(0, 1, 2, 3)], max_motifs=4)
        assert [motif.pattern for motif in found] == ["CYFC"], tasks
        assert found[0].correlation == pytest.approx(alone[0].correlation, abs=0.02) or tasks == [classes]


def test_one_outlying_number_does_not_rule_the_ranks(weak_cohort: RepertoireDataset) -> None:
    age = 50 + 10.0 * (np.arange(160) % 2) + np.random.default_rng(0).normal(size=160)
    age[0] = 1e9
    found = find_motifs(
        weak_cohort,
        age[:, None],
        [Task("age", "age", "regression", mean=0.0, scale=1.0)],
        spacings=[(0, 1, 2, 3)],
        max_motifs=4,
    )
    assert [motif.pattern for motif in found] == ["CYFC"]


def test_empty_repertoires_tell_nothing(tmp_path: Path) -> None:
    """All of one class: every motif would go with it."""
    rng = np.random.default_rng(0)
    repertoires = [[] if b < 15 else random_sequences(rng, 100) for b in range(60)]
    cohort = write_cohort(tmp_path / "cohort.h5", repertoires, pd.DataFrame({"x": range(60)}), 0)
    y = [0.0 if b < 15 else b % 2 for b in range(60)]
    assert find_motifs(cohort, column(y), BINARY, spacings=SPACINGS, max_motifs=8) == []


def test_small_repertoires_count_less(tmp_path: Path) -> None:
    """Every third of 60 repertoires has 20 sequences; in half of these, of both classes, one holds the motif."""
    rng = np.random.default_rng(0)
    repertoires = []
    for b in range(60):
        sequences = random_sequences(rng, 20 if b % 3 == 0 else 400)
        carriers = (b % 12 < 6) if b % 3 == 0 else 8 * (b % 2)
        sequences = [f"{text[:2]}WHWM{text[2:]}" if i < carriers else text for i, text in enumerate(sequences)]
        repertoires.append(sequences)
    cohort = write_cohort(tmp_path / "cohort.h5", repertoires, pd.DataFrame({"x": range(60)}), 0)
    y = column([b % 2 for b in range(60)])
    found = find_motifs(cohort, y, BINARY, spacings=[(0, 1, 2, 3)], max_motifs=4)
    values = y[:, 0]
    frequency = np.array([sum("WHWM" in text for text in each) / len(each) for each in repertoires])
    sizes = np.array([len(each) for each in repertoires])
    weights = 1 / (1 / sizes + 1 / np.median(sizes))
    covariance = np.cov(frequency, values, aweights=weights)
    expected = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])
    assert [motif.pattern for motif in found] == ["WHWM"]
    assert found[0].correlation == pytest.approx(expected, abs=1e-6)
    assert expected > np.corrcoef(frequency, values)[0, 1] + 0.1


@pytest.mark.parametrize("share", [0.95, 1.0])
def test_beside_a_motif_of_nearly_all_sequences_no_other_motif_is_found(tmp_path: Path, share: float) -> None:
    """Without its carriers, a repertoire has few sequences or none; what they hold is chance."""
    rng = np.random.default_rng(0)
    repertoires = []
    for b in range(60):
        sequences = random_sequences(rng, 200)
        repertoires.append(
            [f"KWKMHWC{text}" if i < share * 200 * (b % 2) else text for i, text in enumerate(sequences)]
        )
    cohort = write_cohort(tmp_path / "cohort.h5", repertoires, pd.DataFrame({"x": range(60)}), 0)
    spacings = [spacing for k in (2, 3) for spacing in enumerate_spacings(k, 6)]
    found = find_motifs(cohort, column([b % 2 for b in range(60)]), BINARY, spacings=spacings, max_motifs=16)
    assert len(found) == 1
    assert found[0].correlation > 0.9


@pytest.mark.slow
def test_larger_repertoires_of_one_class_are_no_signal(tmp_path: Path) -> None:
    """Rare k-mers are in large repertoires only, and so in the class that has more of them."""
    shown = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        y = np.arange(120) < 30
        sizes = np.exp(rng.normal(4.5 + 1.4 * y, 0.7)).astype(int)
        repertoires = [random_sequences(rng, int(size)) for size in np.clip(sizes, 10, 2000)]
        folder = tmp_path / str(seed)
        folder.mkdir()
        cohort = write_cohort(folder / "cohort.h5", repertoires, pd.DataFrame({"x": range(120)}), 0)
        spacings = [spacing for k in (2, 3) for spacing in enumerate_spacings(k, 5)]
        found = find_motifs(cohort, column(y.astype(float)), BINARY, spacings=spacings, max_motifs=16, seed=seed)
        shown += len(found) > 0
    assert shown <= 1


def in_subgroups(folder: Path, n: int = 100) -> tuple[RepertoireDataset, Floats]:
    """Every second repertoire holds one of five motifs in 8 of its 300 sequences."""
    rng = np.random.default_rng(0)
    motifs = ["WHWM", "CY.FC", "MMWW", "HCHC", "WYMH"]
    repertoires = [random_sequences(rng, 300) for _ in range(n)]
    for b in range(1, n, 2):
        for at in range(8):
            motif = motifs[b // 2 % 5].replace(".", AMINO_ACIDS[rng.integers(20)])
            repertoires[b][at] = repertoires[b][at][:2] + motif + repertoires[b][at][2:]
    cohort = write_cohort(folder / "cohort.h5", repertoires, pd.DataFrame({"x": range(n)}))
    return cohort, column([b % 2 for b in range(n)])


SUBGROUP_SPACINGS = [*enumerate_spacings(3, 5), (0, 1, 2, 3), (0, 1, 3, 4)]


@pytest.mark.slow
def test_motifs_that_a_fifth_of_the_positive_repertoires_carry_are_found(tmp_path: Path) -> None:
    """Among all k-mers, the correlation of a motif in 10 of 50 positive repertoires, 0.33, occurs by chance."""
    cohort, y = in_subgroups(tmp_path)
    found = find_motifs(cohort, y, BINARY, spacings=SUBGROUP_SPACINGS, max_motifs=16)
    assert sorted(motif.pattern for motif in found) == ["CY.FC", "HCHC", "MMWW", "WHWM", "WYMH"]
    assert all(motif.p_value <= MOTIF_LEVEL for motif in found)
    assert [motif.correlation for motif in found] == pytest.approx([1 / 3] * 5, abs=0.02)
    three = find_motifs(cohort, y, BINARY, spacings=SUBGROUP_SPACINGS, max_motifs=3)
    assert three == found[:3]


@pytest.mark.slow
@pytest.mark.parametrize(("n_labels", "most"), [(8, 3), pytest.param(20, 6, marks=pytest.mark.long)])
def test_overdispersed_motifs_are_not_associated_with_random_labels(tmp_path: Path, n_labels: int, most: int) -> None:
    """At a level of 0.1, one in ten of these labels may show something; the five motifs are there all the time.

    More than `most` have a probability of 0.005 or less by chance.
    """
    cohort, y = in_subgroups(tmp_path)
    rng = np.random.default_rng(0)
    spacings = [(0, 1, 2, 3), (0, 1, 3, 4)]
    shown = [
        bool(find_motifs(cohort, rng.permutation(y), BINARY, spacings=spacings, max_motifs=8, level=0.1, seed=seed))
        for seed in range(n_labels)
    ]
    assert np.count_nonzero(shown) <= most
