"""Results of the searches of the branch `clones`, and which of them are used.

Letters: n repertoires with a label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from scipy.stats import rankdata

from deeprc.arrays import Floats
from deeprc.branches.clone_permutations import can_be_permuted, exceeds_permutations
from deeprc.branches.clones_alternatives import THRESHOLDS_BY_KIND
from deeprc.branches.clones_evidence import compute_loss
from deeprc.branches.clones_memory import Memory
from deeprc.branches.clones_searches import CloneSearch
from deeprc.branches.donors import compute_association_z
from deeprc.datasets.clones.grouping import CloneCarriers

__all__ = ["SearchResult", "compute_loss_decrease", "select_results", "sum_scores"]

_MIN_Z = 3.0
"""Smallest z-score of the association of scores with labels.

Without a signal, one cohort in ten exceeds it, not one in a thousand as for a normal distribution, because held-out
folds share clones."""

_MIN_DOUBTFUL_Z = 1.75
"""Smallest z-score for a doubtful branch (`Branch.is_doubtful`), if no result is useful."""

_SCALES = (0.1, 0.25, 0.5, 0.75, 1.0)
"""Scales of scores that are tried to compute the decrease of a loss.

Scores of small cohorts are overconfident, and the network learns their scale."""


@dataclass(frozen=True)
class SearchResult:
    """The result of a search: what is stored, and scores of held-out repertoires.

    Attributes
    ----------
    search
        The search.
    memories
        The stored clones of each kind, from all folds; none if there is no evidence.
    best
        Kind of the clones of the best alternative, a key of `THRESHOLDS_BY_KIND`.
    tested
        All clones of this kind, for a permutation test.
    scores
        Evidence for each repertoire, (n,), with weights of the alternatives that depend on the other folds.
    baseline_outputs
        Prediction for each repertoire without evidence, (n,), see `HeldOutEvidence`.
    """

    search: CloneSearch
    memories: Sequence[Memory]
    best: str
    tested: CloneCarriers
    scores: Floats
    baseline_outputs: Floats

    def is_useful(self) -> bool:
        """Return whether the associated clones are evidence for the label of repertoires that they were not chosen on.

        Either cross-fitted scores are associated with the labels, by the z-score of Spearman's correlation, or there
        are more associated clones than with permuted labels. Clusters and similar clones need the latter, if labels can
        be permuted: they have many carriers, so scores of different folds depend on each other, and their z-scores vary
        too much.
        Repertoires of one donor are not independent, see `compute_association_z`.
        """
        if not self.lowers_loss():
            return False
        thresholds = THRESHOLDS_BY_KIND[self.best]
        needs_permutations = self.best in ("cluster", "similar", "less similar") and can_be_permuted(self.search)
        is_associated = self.compute_z() > _MIN_Z and not needs_permutations
        return is_associated or exceeds_permutations(self.tested, self.search, thresholds)

    def may_be_useful(self) -> bool:
        """Return whether the cross-fitted scores lower the loss, and are weakly associated with the labels."""
        return self.lowers_loss() and self.compute_z() > _MIN_DOUBTFUL_Z

    def lowers_loss(self) -> bool:
        """Return whether the cross-fitted scores lower the mean loss."""
        return bool(self.memories) and compute_loss_decrease([self]) > 0

    def compute_z(self) -> float:
        """Return the z-score of the rank correlation of cross-fitted scores and labels."""
        return compute_association_z(rankdata(self.scores), rankdata(self.search.values), self.search.groups)


def select_results(results: Sequence[SearchResult]) -> tuple[list[SearchResult], bool]:
    """Return the useful results, and False; or, if there are none, those that may be useful, and True."""
    useful = _choose_directions([result for result in results if result.is_useful()])
    if useful:
        return useful, False
    return _choose_directions([result for result in results if result.may_be_useful()]), True


def _choose_directions(useful: Sequence[SearchResult]) -> list[SearchResult]:
    """Return useful results; both directions of an output only if they are better together than either alone."""
    kept: list[SearchResult] = []
    for _, group in groupby(useful, key=lambda result: result.search.output):
        directions = list(group)
        if len(directions) > 1:
            directions = max(([directions[0]], [directions[1]], directions), key=compute_loss_decrease)
        kept += directions
    return kept


def compute_loss_decrease(results: Sequence[SearchResult]) -> float:
    """Return the decrease of the mean loss by the summed scores of one output's directions, at their best scale."""
    search, baseline_outputs = results[0].search, results[0].baseline_outputs
    total = sum_scores(results) * search.sign
    outputs = baseline_outputs + np.array([0.0, *_SCALES])[:, None] * total
    losses = compute_loss(search.kind, outputs, search.values).mean(axis=1)
    return float(losses[0] - losses.min())


def sum_scores(results: Sequence[SearchResult]) -> Floats:
    """Return the scores of one output, summed over its directions, (n,)."""
    return np.asarray(sum(result.search.sign * result.scores for result in results))
