"""The search for motifs where several repertoires are of one donor: false motifs, and those that are there."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.tasks import Task
from deeprc.training.confirmation import confirm_motifs
from deeprc.training.enriched_motif import EnrichedMotif
from deeprc.training.kmer_sets import enumerate_spacings
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.motif_search import MOTIF_LEVEL, MotifLimits, find_enriched_motifs
from tests.conftest import motif, random_sequences, write_cohort

BINARY = [Task("status", "status", "binary", ("no", "yes"))]
SPACINGS = [spacing for k in (2, 3) for spacing in enumerate_spacings(k, 4)]
N_DONORS, N_SAMPLES = 40, 5
DONORS = np.repeat(np.arange(N_DONORS), N_SAMPLES)


def find_motifs(labelled: LabelledRepertoires, *, seed: int = 0) -> list[EnrichedMotif]:
    return find_enriched_motifs(labelled, BINARY, spacings=SPACINGS, limits=MotifLimits(8), seed=seed)


def samples_of_donors(folder: Path, seed: int, *, n_carriers: int = 0) -> RepertoireDataset:
    """Write five samples of each donor: each has half of the 400 sequences of the donor.

    The first donors carry the motif WHW in ten of their sequences.
    """
    rng = np.random.default_rng(seed)
    repertoires = []
    for donor in range(N_DONORS):
        own = random_sequences(rng, 400)
        for at in range(0, 400, 40) if donor < n_carriers else ():
            own[at] += "WHW"
        repertoires += [[own[i] for i in rng.choice(400, 200, replace=False)] for _ in range(N_SAMPLES)]
    folder.mkdir(exist_ok=True)
    return write_cohort(folder / f"{seed}.h5", repertoires, pd.DataFrame({"x": range(len(repertoires))}))


def count_false_motifs(folder: Path, n_cohorts: int, *, by_donor: bool, given: bool = True) -> int:
    """Return with how many random labels some motif is found; two labels are drawn for each cohort."""
    n_found = 0
    for seed in range(n_cohorts):
        dataset, rng = samples_of_donors(folder, seed), np.random.default_rng(seed)
        for _ in range(2):
            labels = (rng.permutation(N_DONORS) % 2)[DONORS] if by_donor else rng.permutation(len(dataset)) % 2
            labelled = LabelledRepertoires(dataset, labels[:, None].astype(np.float64), DONORS if given else None)
            n_found += bool(find_motifs(labelled, seed=seed))
    return n_found


@pytest.mark.slow
@pytest.mark.parametrize(("n_known", "n_unknown"), [(3, 1), pytest.param(5, 2, marks=pytest.mark.long)])
def test_random_labels_of_donors_find_no_motif(tmp_path: Path, n_known: int, n_unknown: int) -> None:
    """Repertoires of one donor share sequences; unless that is known, each label finds a motif."""
    assert count_false_motifs(tmp_path / "known", n_known, by_donor=True) == 0
    assert count_false_motifs(tmp_path / "unknown", n_unknown, by_donor=True, given=False) == 2 * n_unknown


@pytest.mark.long
@pytest.mark.parametrize("by_donor", [True, False])
def test_false_motifs_are_as_rare_as_the_level_says(tmp_path: Path, by_donor: bool) -> None:
    """Of 200 labels 2 are expected to find a motif; more than 6 in one case of 200."""
    assert MOTIF_LEVEL == 0.01
    assert count_false_motifs(tmp_path, 100, by_donor=by_donor) <= 6


@pytest.mark.slow
def test_a_motif_of_the_positive_donors_is_found(tmp_path: Path) -> None:
    dataset = samples_of_donors(tmp_path, 0, n_carriers=20)
    labels = (DONORS < 20)[:, None].astype(np.float64)
    first = find_motifs(LabelledRepertoires(dataset, labels, DONORS))[0]
    assert (first.pattern, first.p_value <= MOTIF_LEVEL) == ("WHW", True)


def test_a_motif_of_one_sample_of_each_donor_is_found(tmp_path: Path) -> None:
    """WHW comes after a vaccination, in one of two samples; the other sequences of both are those of the donor."""
    rng = np.random.default_rng(0)
    repertoires: list[list[str]] = []
    for _ in range(30):
        own = random_sequences(rng, 200)
        repertoires += [own, [f"{sequence}WHW" if i % 20 == 0 else sequence for i, sequence in enumerate(own)]]
    dataset = write_cohort(tmp_path / "pairs.h5", repertoires, pd.DataFrame({"x": range(60)}))
    labels = (np.arange(60) % 2.0)[:, None]
    found = find_motifs(LabelledRepertoires(dataset, labels, np.arange(60) // 2))
    assert (found[0].pattern, found[0].p_value <= MOTIF_LEVEL) == ("WHW", True)


@pytest.mark.slow
def test_a_donor_for_each_repertoire_changes_no_digit(tmp_path: Path) -> None:
    dataset = samples_of_donors(tmp_path, 0, n_carriers=8)
    labels = (DONORS < 20)[:, None].astype(np.float64)
    names = np.random.default_rng(0).permutation(1000)[: len(dataset)]
    alone = find_motifs(LabelledRepertoires(dataset, labels))
    assert alone
    assert find_motifs(LabelledRepertoires(dataset, labels, names)) == alone


@pytest.mark.slow
def test_a_class_needs_donors_not_repertoires(tmp_path: Path) -> None:
    """Six donors of a class are enough, five are not, however many repertoires they have; so it is for all donors."""
    dataset = samples_of_donors(tmp_path, 0, n_carriers=10)

    def find_in(n_positive: int, min_donors: int = 8) -> list[EnrichedMotif]:
        labelled = LabelledRepertoires(dataset, (n_positive > DONORS)[:, None].astype(np.float64), DONORS)
        return find_enriched_motifs(labelled, BINARY, spacings=SPACINGS, limits=MotifLimits(8, min_donors))

    assert find_in(6)[0].pattern == "WHW"
    assert find_in(5) == []
    assert find_in(10, 40)[0].pattern == "WHW"
    assert find_in(10, 41) == []


def confirm(dataset: RepertoireDataset, labels: NDArray[np.bool_], groups: NDArray[np.int64] | None) -> bool:
    labelled = LabelledRepertoires(dataset, labels[:, None].astype(np.float64), groups)
    return bool(confirm_motifs([motif("WHW")], labelled, BINARY, seed=0))


@pytest.mark.slow
def test_repertoires_of_one_donor_do_not_confirm_each_other(tmp_path: Path) -> None:
    """Three of 20 positive donors carry the motif, by chance in one case of 9; they have 15 samples."""
    dataset = samples_of_donors(tmp_path, 0, n_carriers=3)
    assert confirm(dataset, DONORS < 20, None)
    assert not confirm(dataset, DONORS < 20, DONORS)
    assert confirm(samples_of_donors(tmp_path, 1, n_carriers=12), DONORS < 20, DONORS)
