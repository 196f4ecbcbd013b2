"""`BurdenTest`: the number of label-associated features that a repertoire carries (paper lines 9000-9020).

Letters: B repertoires, J selected features, V numbers of features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from deeprc.baselines.association_tests import compute_phi_coefficients
from deeprc.baselines.carrier_counts import CountedUnits, count_clone_carriers, run_over_clones
from deeprc.baselines.parameters import check_choice, check_whole_number
from deeprc.baselines.restored import check_clones, check_dtype
from deeprc.datasets.clones.clone_set import CloneSet
from deeprc.datasets.clones.shared import find_shared_clones
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.kmers import list_kmers
from deeprc.datasets.random_numbers import draw_words
from deeprc.datasets.representations import compute_kmer_matrix
from deeprc.datasets.sequence_hash import hash_sequences
from deeprc.datasets.sequences import Sequences
from deeprc.estimators import BinaryClassifier
from deeprc.groups import validate_groups
from deeprc.labels import encode_two_classes, find_canonical_order

__all__ = ["BurdenTest"]

_K = 4
_N_AT_ONCE = 64  # number of units (repertoires or donors) whose k-mer counts are in memory at a time
BurdenFeature = Literal["4mer", "sequence"]


class BurdenTest(BinaryClassifier):
    """A classifier by the number of label-associated 4-mers or sequences that a repertoire carries.

    The features with the highest phi coefficients of presence and label are selected on the training repertoires. The
    score of a repertoire is the number of selected features that it carries; how often it carries one does not matter.
    Ties between equally associated features are broken by a hash of their content, which is the same for every order of
    the repertoires. Sequences are compared without their genes, and only those that at least two training repertoires
    carry are considered.

    If `fit` gets `groups`, features are selected by donors: a donor's repertoires with the same label are one unit,
    which carries what any of them carries. The score of a repertoire is its own, as without groups.

    Parameters
    ----------
    feature
        `4mer` or `sequence`.
    n_features
        Number of features to select, J; all if there are fewer.
    """

    path_parameter = "n_features"
    path_uses_groups = True

    kmers_: NDArray[np.int64]
    residues_: NDArray[np.uint8]
    offsets_: NDArray[np.int64]
    phi_: NDArray[np.float64]

    def __init__(self, *, feature: BurdenFeature = "4mer", n_features: int = 100) -> None:
        self.feature = feature
        self.n_features = n_features

    def check_parameters(self) -> None:
        """Raise InputError if a parameter is wrong for any cohort."""
        super().check_parameters()
        check_choice("feature", self.feature, ("4mer", "sequence"))
        check_whole_number("n_features", self.n_features)

    def prepare(self, X: RepertoireDataset) -> None:
        """Compute and cache the 4-mer counts of the container, or the sequences that its repertoires share."""
        if self.feature == "sequence":
            find_shared_clones(X)
        else:
            compute_kmer_matrix(X[:0])

    def features(self) -> list[str]:
        """Return the selected 4-mers or sequences, in falling order of their phi coefficients, `phi_`."""
        if self.feature == "sequence":
            return self._make_clone_set().sequences.decode()
        names = list_kmers(_K)
        return [names[code] for code in self.kmers_.tolist()]

    def fit_uncalibrated(self, X: RepertoireDataset, y: ArrayLike, *, groups: ArrayLike | None = None) -> BurdenTest:
        """Learn as `fit` does, but without calibration."""
        check_whole_number("n_features", self.n_features)
        positive, donors = self._start_fit(X, y), validate_groups(X, groups, several=False)
        order = find_canonical_order(X, positive)
        self._select_features(X[order], positive[order], None if donors is None else donors[order])
        return self

    def decision_path(
        self,
        X: RepertoireDataset,
        y: ArrayLike,
        X_new: RepertoireDataset,
        values: Sequence[Any],
        *,
        groups: ArrayLike | None = None,
    ) -> NDArray[np.float64]:
        """Return the scores, (V, B), for each number of features; see `BinaryClassifier.decision_path`."""
        _, positive = encode_two_classes(X, y)
        numbers = [check_whole_number("n_features", value) for value in values]
        widest = clone(self).set_params(n_features=max(numbers, default=1))
        widest._select_features(X, positive, validate_groups(X, groups, several=False))
        burdens: NDArray[np.float64] = widest._count_carried(X_new, numbers)
        return burdens

    def _score_repertoires(self, X: RepertoireDataset) -> NDArray[np.float64]:
        return np.asarray(self._count_carried(X, [self.n_features])[0])

    def _select_features(
        self, X: RepertoireDataset, positive: NDArray[np.bool_], groups: NDArray[np.int64] | None = None
    ) -> None:
        """Select the features with the highest phi coefficients, and set the fitted attributes."""
        check_choice("feature", self.feature, ("4mer", "sequence"))
        units = CountedUnits.of(X, positive, groups)
        if self.feature == "4mer":
            self.kmers_, self.phi_ = _select_kmers(X, units, self.n_features)
        else:
            selected, self.phi_ = _select_sequences(X, units, self.n_features)
            sequences = X.take_clones(selected)
            self.residues_, self.offsets_ = sequences.residues, sequences.offsets

    def _make_clone_set(self) -> CloneSet:
        return CloneSet(Sequences.counted_once(self.residues_, self.offsets_))

    def _count_carried(self, X: RepertoireDataset, n_features: Sequence[int]) -> NDArray[np.float64]:
        """Return how many of the first n features each repertoire carries, for each n in `n_features`, (V, B)."""
        carried = np.zeros((len(X), len(self.phi_) + 1), np.int64)  # the first column stands for no feature
        if self.feature == "4mer":
            for part in _split_range(len(X)):
                carried[part, 1:] = _find_present_kmers(X[part])[:, self.kmers_]
        else:
            for row, clones in enumerate(self._make_clone_set().find_in(X)):
                carried[row, 1 + clones] = 1
        burdens = carried.cumsum(axis=1)
        return np.asarray(burdens[:, [min(n, len(self.phi_)) for n in n_features]].T, np.float64)

    def _restore(self, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Mapping[str, Any]]) -> None:
        super()._restore(arrays, values)
        check_choice("feature", self.feature, ("4mer", "sequence"))
        check_whole_number("n_features", self.n_features)
        if self.feature == "sequence":
            check_clones(self.residues_, self.offsets_)
            n_features = len(self.offsets_) - 1
        else:
            check_dtype("kmers", self.kmers_, np.int64)
            if not ((self.kmers_ >= 0) & (self.kmers_ < 20**_K)).all():
                raise ValueError(f"kmers: expected numbers from 0 to {20**_K - 1:,}")
            n_features = len(self.kmers_)
        if self.phi_.shape != (n_features,):
            raise ValueError(f"phi: expected {n_features:,} numbers, found {self.phi_.shape}")


def _select_kmers(
    X: RepertoireDataset, units: CountedUnits, n_selected: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the codes of the 4-mers with the highest phi coefficients, and these coefficients, (J,) each."""
    unit_of_row = units.unit_of[X.repertoire_indices]
    by_unit = np.argsort(unit_of_row, kind="stable")
    starts = np.searchsorted(unit_of_row[by_unit], np.arange(len(units.weight) + 1))
    n_carriers, label_sums = np.zeros((2, 20**_K), np.int64)
    for part in _split_range(len(units.weight)):
        bounds = starts[part.start : part.stop + 1]
        present = _find_present_kmers(X[by_unit[bounds[0] : bounds[-1]]])
        carried = np.logical_or.reduceat(present, bounds[:-1] - bounds[0], axis=0)
        n_carriers += units.weight[part] @ carried
        label_sums += units.label_sum[part] @ carried
    phi = compute_phi_coefficients(label_sums, n_carriers, int(units.label_sum.sum()), int(units.weight.sum()))
    codes = np.arange(len(phi))
    best = np.lexsort((draw_words(0, codes), -phi))[:n_selected]  # equal coefficients are in random order
    return best, phi[best]


def _select_sequences(
    X: RepertoireDataset, units: CountedUnits, n_selected: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the sequences of the container with the highest phi coefficients, and these coefficients, (J,) each.

    A sequence's coefficient depends on its numbers of positive and of all carriers. Millions of sequences share a few
    thousand such pairs. So the pairs are ranked first, and only sequences with the best pairs are then ranked one by
    one.
    """
    clones = find_shared_clones(X)
    n_positive, n_all = int(units.label_sum.sum()), int(units.weight.sum())

    def encode_pairs(start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the indices of the clones in a block, and the pair of each as one whole number."""
        counts = count_clone_carriers(clones, start, stop, units)
        return counts.indices, counts.n_carriers * (n_positive + 1) + counts.label_sums

    n_clones_of_pair = np.zeros((n_all + 1) * (n_positive + 1), np.int64)
    for _, pairs in run_over_clones(encode_pairs, len(clones)):
        values, sizes = np.unique(pairs, return_counts=True)
        n_clones_of_pair[values] += sizes
    phi, is_good_enough = _rank_pairs(n_clones_of_pair, n_positive, n_all, n_selected)
    good_indices, good_pairs = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for indices, pairs in run_over_clones(encode_pairs, len(clones)):
        is_good = is_good_enough[pairs]
        good_indices.append(indices[is_good])
        good_pairs.append(pairs[is_good])
    candidates, candidate_phi = np.concatenate(good_indices), phi[np.concatenate(good_pairs)]
    best = np.lexsort((hash_sequences(X, clones.representative[candidates]), -candidate_phi))[:n_selected]
    return np.asarray(clones.representative[candidates[best]]), np.asarray(candidate_phi[best])


def _rank_pairs(
    n_clones_of_pair: NDArray[np.int64], n_positive: int, n_all: int, n_selected: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the phi coefficient of each pair of counts, and whether its clones may be among the `n_selected` best.

    Pairs are whole numbers, n_carriers * (n_positive + 1) + positive carriers. Those that no clone has are -inf.
    """
    occurring = np.flatnonzero(n_clones_of_pair)
    n_carriers, label_sums = np.divmod(occurring, n_positive + 1)
    phi = np.full(len(n_clones_of_pair), -np.inf)
    phi[occurring] = compute_phi_coefficients(label_sums, n_carriers, n_positive, n_all)
    best_first = occurring[np.argsort(-phi[occurring], kind="stable")]
    n_pairs = int(np.searchsorted(np.cumsum(n_clones_of_pair[best_first]), n_selected)) + 1
    return phi, phi >= phi[best_first[:n_pairs]].min(initial=np.inf)


def _find_present_kmers(X: RepertoireDataset) -> NDArray[np.bool_]:
    """Return whether each 4-mer occurs in each repertoire, (B, 20 ** 4)."""
    return np.asarray(compute_kmer_matrix(X)) > 0


def _split_range(n: int) -> list[slice]:
    return [slice(start, min(start + _N_AT_ONCE, n)) for start in range(0, n, _N_AT_ONCE)]
