"""The cohort whose sequences are ranked: its clones, and the repertoires that a model has not seen.

Letters: B repertoires, n sequences of the container.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.airr_ml.best_sequences import BestSequences
from deeprc.airr_ml.sequence_scores import ASSOCIATION
from deeprc.arrays import Floats, Integers
from deeprc.baselines.association_tests import compute_fisher_p_values
from deeprc.baselines.carrier_counts import CountedUnits, count_clone_carriers, run_over_clones
from deeprc.datasets.clones.shared import find_shared_clones
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.known_repertoires import KnownRepertoires, identify_repertoires
from deeprc.datasets.sequence_hash import hash_sequences
from deeprc.evaluation.excess import MIN_CONFIRMING, compute_excess_shares, compute_expected_clones
from deeprc.training.estimator import DeepRCClassifier

__all__ = ["RankedCohort", "RankedSequences", "make_ranking"]


@dataclass(frozen=True)
class RankedSequences:
    """A list of sequences, the best first.

    Attributes
    ----------
    best
        The n sequences.
    excess
        Share of the sequences with about the score of each that chance does not explain, (n,), see
        `deeprc.evaluation.excess`.
    evidence
        Name of the list from which each of them comes, (n,).
    """

    best: BestSequences
    excess: Floats
    evidence: NDArray[np.str_]


def make_ranking(name: str, best: BestSequences, excess: Floats) -> RankedSequences:
    """Return the ranking of one list, with its name as the evidence."""
    return RankedSequences(best, excess, np.full(len(best), name))


class _CarriedClones(NamedTuple):
    """n clones that several donors carry.

    Attributes
    ----------
    sequences
        Index in the container of a sequence of each clone, (n,).
    n_positive, n_carriers
        Number of positive carriers of each clone, and of all its carriers, (n,) each.
    """

    sequences: Integers
    n_positive: Integers
    n_carriers: Integers


@dataclass(frozen=True)
class RankedCohort:
    """The repertoires X whose sequences are ranked, (B,), whether each is positive, (B,), and the longest list.

    `groups` are the donors of the repertoires, (B,), if they are known.
    """

    X: RepertoireDataset
    y: NDArray[np.bool_]
    max_sequences: int
    groups: Integers | None = None

    def make_empty_list(self) -> BestSequences:
        """Return an empty list for sequences of the cohort."""
        return BestSequences(self.X, self.X.gene_fields, self.max_sequences)

    @cached_property
    def _identities(self) -> list[str]:
        return identify_repertoires(self.X)

    def find_held_out(self, estimator: DeepRCClassifier) -> Integers:
        """Return the indices of repertoires from which an estimator has not learned; none if it does not say so.

        The repertoires that early stopping watched are added if the others are too few, as in a training of DeepRC
        alone. The branches of such a training were fitted to these, too, so the confirmed share of their lists is too
        high.
        """
        if not len(getattr(estimator, "train_digests_", ())):
            return np.zeros(0, np.int64)
        unlearned = ~self._find_known(estimator.train_digests_)
        unseen = unlearned & ~self._find_known(estimator.validation_digests_)
        are_enough = min((unseen & self.y).sum(), (unseen & ~self.y).sum()) >= MIN_CONFIRMING
        return np.flatnonzero(unseen if are_enough else unlearned)

    def _find_known(self, digests: NDArray[np.str_]) -> NDArray[np.bool_]:
        """Return whether each repertoire is among those with these digests of a `DeepRCClassifier`, (B,)."""
        known = KnownRepertoires(np.unique(digests).tolist())
        is_known = [known.find(identity, with_other_genes=True) is not None for identity in self._identities]
        return np.array(is_known, np.bool_)

    def are_public(self, indices: Integers) -> NDArray[np.bool_]:
        """Return whether several donors have each of some sequences with its genes, at their indices, (n,)."""
        hashes = hash_sequences(self.X, indices, self.X.gene_fields)
        first, stop = (np.searchsorted(self._public_hashes, hashes, side=side) for side in ("left", "right"))
        return np.asarray(first < stop)  # `np.isin` would sort all clones in each call

    @cached_property
    def _public_hashes(self) -> NDArray[np.uint64]:
        """Hashes of the clones that several donors of X have, in ascending order."""
        fields = self.X.gene_fields
        sequences = [np.zeros(0, np.int64), *(clones.sequences for clones in self._count_carriers(fields))]
        return np.sort(hash_sequences(self.X, np.concatenate(sequences), fields))

    @cached_property
    def _units(self) -> CountedUnits:
        return CountedUnits.of(self.X, self.y, self.groups)

    def _count_carriers(self, fields: list[str]) -> Iterator[_CarriedClones]:
        """Yield the clones of several donors, some at a time, with the genes in `fields`."""
        clones = find_shared_clones(self.X, fields)
        for counted in run_over_clones(partial(count_clone_carriers, clones, units=self._units), len(clones)):
            sequences = clones.representative[counted.indices]
            yield _CarriedClones(sequences, counted.label_sums, counted.n_carriers)

    @cached_property
    def clones(self) -> RankedSequences:
        """The ranking of the clones of the cohort; see `_rank_clones`."""
        return self._rank_clones(self.X.gene_fields)

    @cached_property
    def clones_without_genes(self) -> RankedSequences:
        """The ranking of the clones of the cohort, if clones are compared without their genes."""
        return self._rank_clones([])

    def _rank_clones(self, fields: list[str]) -> RankedSequences:
        """Return the clones that are more associated with the label than one with a single, positive carrier.

        The lowest p-value is first.

        A clone is a sequence with the genes in `fields`, and its carriers are donors. The score is the number of powers
        of 10 by which its p-value is below that of a clone with a single, positive carrier.
        """
        n_positive, n_all = int(self._units.label_sum.sum()), int(self._units.weight.sum())
        single = n_positive / n_all

        def score(positive: Integers, carriers: Integers) -> Floats:
            p_values = compute_fisher_p_values(positive, carriers, n_positive, n_all)
            return np.asarray(np.log10(single) - np.log10(np.maximum(p_values, np.finfo(np.float64).tiny)))

        best, n_clones = self.make_empty_list(), Counter[int]()
        for clones in self._count_carriers(fields):
            n_clones.update(clones.n_carriers.tolist())
            scores = score(clones.n_positive, clones.n_carriers)
            scored = np.flatnonzero(scores > 0)
            best.add_candidates(clones.sequences[scored], scores[scored])
        expected = compute_expected_clones(n_clones, n_positive, n_all)
        null_scores = score(expected.n_positive, expected.n_carriers)
        return make_ranking(ASSOCIATION, best, compute_excess_shares(best.scores, null_scores, expected.n_clones))
