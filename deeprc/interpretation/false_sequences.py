"""False discovery rates of the sequences that contribute most to a class.

A sequence is false if it is in a repertoire of the class by chance. The chance is known from repertoires of the other
classes. Only held-out donors are used for it, because a network has memorised its training repertoires. For a
score s, let r be the share of sequences in held-out repertoires of the class that score at least s and would not be
there by chance (`deeprc.evaluation.excess`). If n of any N sequences of the class score at least s, about r N of them
are true, and the **false discovery rate** is 1 - r N / n. This also holds for training repertoires, where n is larger.
One of the n sequences always counts as false, so a rate of 0.1 needs at least ten sequences.

Sequences of one donor are not independent. So a permutation test is made first: are high scores more frequent in
held-out donors of the class than in others, for any limit? If not (p above 0.05), all q-values are 1. So a network that
has learned nothing gives a q-value below 1 in at most one of twenty cases.

Letters: B repertoires, n sequences that are shown, m sequences whose scores are kept, G limits, P permutations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from deeprc.arrays import Flags, Floats, Integers
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.evaluation.donors import DonorColumn
from deeprc.evaluation.excess import choose_bin_ends, compute_excess_shares, find_tie_ends
from deeprc.groups import index_groups
from deeprc.interpretation.motifs.carriers import find_new_repertoires
from deeprc.interpretation.output_labels import OutputLabels
from deeprc.permutations import permute_labels
from deeprc.training.model import Model

__all__ = ["FalseDiscoveryReference", "HighestScores"]

_LEVEL = 0.05
_N_PERMUTATIONS = 999
_ROUNDING = 1e-9


class HighestScores:
    """The highest scores of the sequences of a cohort, collected repertoire by repertoire.

    Parameters
    ----------
    max_scores
        Largest number of scores that are kept.

    Attributes
    ----------
    limit
        Score above which no score is missing.
    """

    def __init__(self, max_scores: int = 100_000) -> None:
        self.max_scores = max_scores
        self._scores, self._positions = [np.zeros(0)], [np.zeros(0, np.int64)]
        self.limit, self._n = -np.inf, 0

    def add_candidates(self, position: int, scores: Floats) -> None:
        """Add the scores of the repertoire at a position of the cohort; scores of -inf do not count."""
        kept = scores[scores > self.limit]
        self._scores.append(kept)
        self._positions.append(np.full(len(kept), position))
        self._n += len(kept)
        if self._n > 2 * self.max_scores:
            self._drop_low_scores()

    def join(self, other: HighestScores, start: int) -> None:
        """Add the scores of repertoires that follow, whose positions in the other collector count from `start` here.

        A score that the other collector has dropped is not above its limit, so it would not be kept here either.
        """
        scores, positions = other.sort_scores()
        self._scores.append(scores)
        self._positions.append(positions + start)
        self._n += len(scores)
        if self._n > 2 * self.max_scores or other.limit > -np.inf:
            self._drop_low_scores()

    def sort_scores(self) -> tuple[Floats, Integers]:
        """Return the kept scores, highest first, and the positions of their repertoires, (m,) each."""
        self._drop_low_scores()
        return self._scores[0], self._positions[0]

    def _drop_low_scores(self) -> None:
        """Sort the scores, and keep only the highest."""
        scores, positions = np.concatenate(self._scores), np.concatenate(self._positions)
        order = np.argsort(-scores, kind="stable")[: self.max_scores]
        if len(order) == self.max_scores:  # some scores equal to the last one may be missing
            self.limit = float(scores[order[-1]])
        self._scores, self._positions, self._n = [scores[order]], [positions[order]], len(order)


@dataclass(frozen=True)
class FalseDiscoveryReference:
    """Repertoires of known classes from which false discovery rates for a direction of an output are estimated.

    Attributes
    ----------
    is_of_class, is_known
        Whether each repertoire belongs to the class of the direction, and whether it has a label, (B,) each.
    is_held_out
        Whether each repertoire has a label and the network has not learned from it or its donor, (B,).
    sizes, donors
        Number of sequences, and index of the donor, of each repertoire, (B,) each.
    """

    is_of_class: Flags
    is_known: Flags
    is_held_out: Flags
    sizes: Integers
    donors: Integers

    @classmethod
    def of(
        cls,
        model: Model,
        dataset: RepertoireDataset,
        is_held_out: Flags,
        *,
        output: int,
        sign: int,
        group_by: str | None,
    ) -> FalseDiscoveryReference | None:
        """Return the repertoires for a direction of an output; None if the output is a number.

        The parameters are those of `deeprc.interpretation.motifs.carriers.compare_held_out_donors`.
        """
        target = OutputLabels.of(model, dataset, output)
        if target.is_number:
            return None
        donors = DonorColumn.choose(dataset.metadata, group_by).index()
        is_new = find_new_repertoires(donors, is_held_out, target.is_known)
        return cls(
            is_of_class=target.find_direction_members(sign),
            is_known=target.is_known,
            is_held_out=is_new & target.is_known,
            sizes=dataset.n_sequences.astype(np.int64),
            donors=donors,
        )

    def compute_p_value(self, highest: HighestScores, *, seed: int = 0) -> float:
        """Return the p-value of the test whether held-out donors of the class have more sequences with high scores.

        The rate of a repertoire is the share of its sequences that score at least a limit. At each of G limits, the
        rates are ranked. The statistic is the largest standardised difference of the mean ranks; labels are permuted
        between donors, see `permute_labels`.
        """
        rows = np.flatnonzero(self.is_held_out)
        in_class = self.is_of_class[rows]
        if len(in_class) == 0 or in_class.all() or not in_class.any():
            return 1.0
        ranks = rankdata(np.round(self._compute_shares_above_limits(highest, rows), 12), axis=0)  # (B, G)
        donors = index_groups(self.donors[rows])  # in the order in which they first occur
        weights = 1 / np.bincount(donors)[donors]
        rng = np.random.default_rng(seed)
        permuted = permute_labels(in_class[:, None].astype(np.float64), self.sizes[rows], donors, _N_PERMUTATIONS, rng)
        shares = weights[:, None] * permuted[:, 0]  # (B, 1 + P)
        differences = (shares / shares.sum(axis=0)).T @ (ranks - np.average(ranks, axis=0, weights=weights))
        spread = differences.std(axis=0)
        strongest = (differences / np.where(spread > 0, spread, np.inf)).max(axis=1)
        return float((strongest >= strongest[0] - _ROUNDING).mean())

    def _compute_shares_above_limits(self, highest: HighestScores, rows: Integers) -> Floats:
        """Return the share of sequences that score at least each limit, for some repertoires, (B, G).

        A limit never separates equal scores, because these are in the order of the cohort, which may be sorted by
        class.
        """
        scores, positions = highest.sort_scores()
        is_counted = np.isin(positions, rows) & (scores > highest.limit)
        repertoire_index = np.searchsorted(rows, positions[is_counted])
        ties = find_tie_ends(scores[is_counted])
        ends = np.unique(ties[np.searchsorted(ties, choose_bin_ends(len(repertoire_index)))])
        counts = np.zeros((len(rows), len(ends)))
        start = 0
        for g, end in enumerate(ends.tolist()):
            counts[:, g] = np.bincount(repertoire_index[start:end], minlength=len(rows))
            start = end
        return np.asarray(counts.cumsum(axis=1) / np.maximum(self.sizes[rows], 1)[:, None])

    def compute_q_values(self, highest: HighestScores, scores: Floats, positions: Integers) -> Floats:
        """Return the false discovery rate of each of n sequences, (n,), among those of the class that score as high.

        It is the lowest rate of all limits that let the sequence pass, so it does not depend on which others are given.
        It is 1 for sequences in repertoires of other classes, and NaN in repertoires without a label. Held-out
        repertoires and other repertoires are treated separately.

        Parameters
        ----------
        highest
            Highest scores of the cohort.
        scores, positions
            Scores of the sequences, and positions of their repertoires, (n,) each.
        """
        q_values = np.where(self.is_known[positions], 1.0, np.nan)
        if len(scores) == 0 or self.compute_p_value(highest) > _LEVEL:
            return q_values
        held_out, others = self.is_of_class & self.is_held_out, self.is_of_class & ~self.is_held_out
        limits, n_true = self._count_true(highest)
        for part in (held_out, others):
            part_scores = _select_scores(highest, part)
            rows = np.flatnonzero(part[positions] & (scores > highest.limit))
            if len(rows) == 0 or len(part_scores) == 0:
                continue
            # each score is a limit: how many sequences score at least as much, and how many of them are true
            n_above = _count_at_least(part_scores, part_scores)
            # the share of true sequences is that of held-out repertoires, also in the others
            ratio = self.sizes[part].sum() / self.sizes[held_out].sum()
            n_true_above = ratio * np.append(0.0, n_true)[_count_at_least(limits, part_scores)]
            rates = 1 - np.minimum(n_true_above, n_above - 1) / n_above
            lowest_rates = np.minimum.accumulate(rates[::-1])[::-1]  # of all limits that let a sequence pass
            rank = np.minimum(np.searchsorted(-part_scores, -scores[rows]), len(part_scores) - 1)
            q_values[rows] = lowest_rates[rank]
        return np.asarray(q_values)

    def _count_true(self, highest: HighestScores) -> tuple[Floats, Floats]:
        """Return the scores of held-out sequences of the class, highest first, and the true ones up to each."""
        in_class, other = self.is_held_out & self.is_of_class, self.is_held_out & ~self.is_of_class
        class_scores, null_scores = _select_scores(highest, in_class), _select_scores(highest, other)
        weight = float(self.sizes[in_class].sum() / max(self.sizes[other].sum(), 1))
        excess = compute_excess_shares(class_scores, null_scores, np.full(len(null_scores), weight))
        return class_scores, np.cumsum(excess)


def _select_scores(highest: HighestScores, is_counted: Flags) -> Floats:
    """Return the scores of some repertoires, highest first, down to the limit above which none is missing."""
    scores, positions = highest.sort_scores()
    return np.asarray(scores[is_counted[positions] & (scores > highest.limit)])


def _count_at_least(scores: Floats, limits: Floats) -> Integers:
    """Return the number of scores, which are sorted, highest first, that are at least each limit."""
    return np.asarray(np.searchsorted(-scores, -limits, side="right"), np.int64)
