"""Groups of sequences by the feature of the network that contributes most to their response.

The attention list of a network holds sequences of several motifs, and chance makes some motifs more often than others.
Most sequences with a frequent motif would be in the list without any signal. A kernel responds to one motif or to few.
So the excess of the list is measured in each group of sequences with the same strongest kernel, and all sequences are
compared by this excess.

Letters: n sequences of a list, B repertoires, S features (kernels, and genes if the network reads them), H heads, T
outputs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from deeprc.airr_ml.best_sequences import BestSequences
from deeprc.arrays import Floats, Integers
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.evaluation.excess import compute_excess_shares
from deeprc.nn.linearisation import linearise_outputs
from deeprc.training.estimator import DeepRCClassifier

__all__ = ["compute_excess_in_groups", "find_strongest_features"]


def find_strongest_features(
    estimator: DeepRCClassifier, X: RepertoireDataset, positive: BestSequences, negative: BestSequences
) -> tuple[Integers, Integers]:
    """Return the index of the feature that contributes most to the response of each sequence of two lists, (n,) each.

    A feature contributes its gradient times its difference from the mean of the negative list (of the positive list, if
    the negative one is empty). The gradient is that of the output of the positive class at this mean; it is the same
    everywhere if the output network is linear.
    """
    network = estimator.model_.network
    of_positive = _compute_representations(estimator, X, positive.indices)
    of_negative = _compute_representations(estimator, X, negative.indices)
    mean = (of_negative if len(negative) else of_positive).mean(axis=0)  # (S,)
    pooled = torch.from_numpy(mean).expand(len(network.pooling.queries), -1)  # (H, S): each head sees the mean
    gradient = linearise_outputs(network, pooled).gradient[0].sum(dim=0).numpy()  # (T, H, S) -> (S,)
    positive_features = ((of_positive - mean) * gradient).argmax(axis=1)
    negative_features = ((of_negative - mean) * gradient).argmax(axis=1)
    return positive_features, negative_features


def _compute_representations(estimator: DeepRCClassifier, X: RepertoireDataset, indices: Integers) -> Floats:
    """Return the representations of sequences by their indices in the container, (n, S)."""
    network, inference = estimator.model_.network, estimator.model_.make_inference(X)
    representations = np.zeros((len(indices), network.n_values))
    for position, items in _group_by_repertoire(X, indices):
        rows = indices[items] - X.container.repertoire_offsets[X.repertoire_indices[position]]
        with torch.no_grad():
            parts = [network.attend(batch)[0].cpu() for batch in inference.iterate_batches(position, rows)]
        representations[items] = torch.cat(parts).numpy()
    return representations


def _group_by_repertoire(X: RepertoireDataset, indices: Integers) -> Iterator[tuple[int, Integers]]:
    """Yield the position of each repertoire that has some of the n sequences, with the items of these sequences.

    An item is the index of a sequence among the n; `indices` are those in the container, (n,). The items of a
    repertoire are in the order of their rows.
    """
    starts = X.container.repertoire_offsets[X.repertoire_indices]  # first sequence of each repertoire, (B,)
    not_empty = np.flatnonzero(X.n_sequences)
    by_start = not_empty[np.argsort(starts[not_empty])]  # positions in the order of the container
    positions = by_start[np.searchsorted(starts[by_start], indices, side="right") - 1]  # of each sequence, (n,)
    items = np.lexsort([indices, positions])
    first_of_next = np.flatnonzero(np.diff(positions[items])) + 1
    for group in np.split(items, first_of_next):
        if len(group):
            yield int(positions[group[0]]), group


def compute_excess_in_groups(
    best: BestSequences, null: BestSequences, weight: float, groups: Integers, null_groups: Integers
) -> Floats:
    """Return the excess of each sequence of a list, compared with the null sequences of the same group, (n,).

    Parameters
    ----------
    best, null
        Sequences of positive and of negative repertoires.
    weight
        Number of sequences of positive repertoires for which one null sequence stands.
    groups, null_groups
        Group of each sequence of the two lists.
    """
    excess = np.zeros(len(best))
    for group in np.unique(groups):
        in_group, chance = groups == group, null.scores[null_groups == group]
        excess[in_group] = compute_excess_shares(
            best.scores[in_group], chance, np.full(len(chance), weight), lowest_null=null.lowest
        )
    return excess
