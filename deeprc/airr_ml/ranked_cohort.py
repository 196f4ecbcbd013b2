"""The cohort whose sequences are ranked: which of its repertoires a model has not seen, and which clones they share.

Letters: B repertoires, n sequences of the container.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from deeprc.airr_ml.best_sequences import BestSequences
from deeprc.datasets.clones import find_shared_clones, hash_sequences, list_gene_fields
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.known_repertoires import KnownRepertoires, identify_repertoires
from deeprc.evaluation.excess import MIN_CONFIRMING
from deeprc.training.estimator import DeepRCClassifier

__all__ = ["RankedCohort"]

Integers = NDArray[np.int64]


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
        return BestSequences(self.X, list_gene_fields(self.X), self.max_sequences)

    @cached_property
    def _identities(self) -> list[str]:
        return identify_repertoires(self.X)

    def find_held_out(self, estimator: DeepRCClassifier) -> Integers:
        """Return the indices of repertoires from which an estimator has not learned; none if it does not say so.

        The repertoires that early stopping watched are added if the others are too few, as in a training of DeepRC
        alone. The readings of such a training were fitted to these, too, so the confirmed share of their lists is too
        high.
        """
        if not len(getattr(estimator, "train_digests_", ())):
            return np.zeros(0, np.int64)
        unlearned = ~self._find_known(estimator.train_digests_)
        unseen = unlearned & ~self._find_known(estimator.validation_digests_)
        are_enough = min((unseen & self.y).sum(), (unseen & ~self.y).sum()) >= MIN_CONFIRMING
        return np.flatnonzero(unseen if are_enough else unlearned)

    def _find_known(self, digests: NDArray[np.str_]) -> NDArray[np.bool_]:
        """Return whether each repertoire is one of those with these digests, (B,); see `DeepRCClassifier`."""
        known = KnownRepertoires(np.unique(digests).tolist())
        found = [known.find(identity, with_other_genes=True) is not None for identity in self._identities]
        return np.array(found, np.bool_)

    @cached_property
    def _shared_hashes(self) -> NDArray[np.uint64]:
        """Hashes of the clones that several repertoires of the container have, in ascending order."""
        fields = list_gene_fields(self.X)
        return np.sort(hash_sequences(self.X, find_shared_clones(self.X, fields).representative, fields))

    def are_shared(self, indices: Integers) -> NDArray[np.bool_]:
        """Return whether several repertoires have a sequence, for the indices of some in the container, (n,)."""
        hashes, shared = hash_sequences(self.X, indices, list_gene_fields(self.X)), self._shared_hashes
        return np.searchsorted(shared, hashes, side="right") > np.searchsorted(shared, hashes)
