"""Groups of sequences by the feature of the network that contributes most to their response.

The attention list of a network holds sequences of several motifs, and chance makes some motifs more often than others.
Most sequences with a frequent motif would be in the list without any signal. A kernel responds to one motif or to few.
So the excess of the list is measured in each group of sequences with the same strongest kernel, and all sequences are
compared by this excess.

Letters: n sequences of a list, S features (kernels, and genes if the network reads them), H heads.
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
    representations = [
        _compute_representations(estimator, X, class_examples.indices) for class_examples in (positive, negative)
    ]
    network, mean = estimator.model_.network, (representations[1] if len(negative) else representations[0]).mean(axis=0)
    pooled = torch.from_numpy(mean).expand(len(network.pooling.queries), -1)  # (H, S): each head sees the mean
    gradient = linearise_outputs(network, pooled).gradient[0].sum(dim=0).numpy()  # (T, H, S) -> (S,)
    positive_features, negative_features = (
        ((values_of_class - mean) * gradient).argmax(axis=1) for values_of_class in representations
    )
    return positive_features, negative_features


def _compute_representations(estimator: DeepRCClassifier, X: RepertoireDataset, indices: Integers) -> Floats:
    """Return the representations of sequences by their indices in the container, (n, S)."""
    network, inference = estimator.model_.network, estimator.model_.make_inference(X)
    representations = np.zeros((len(indices), network.n_values))
    for position, places in _group_by_repertoire(X, indices):
        rows = indices[places] - X.container.repertoire_offsets[X.repertoire_indices[position]]
        with torch.no_grad():
            parts = [network.attend(batch)[0].cpu() for batch in inference.iterate_batches(position, rows)]
        representations[places] = torch.cat(parts).numpy()
    return representations


def _group_by_repertoire(X: RepertoireDataset, indices: Integers) -> Iterator[tuple[int, Integers]]:
    """Yield the index of each repertoire that has some of the sequences, and the positions of these in `indices`."""
    starts, not_empty = X.container.repertoire_offsets[X.repertoire_indices], np.flatnonzero(X.n_sequences)
    order = not_empty[np.argsort(starts[not_empty])]
    position = order[np.searchsorted(starts[order], indices, side="right") - 1]
    places = np.lexsort([indices, position])
    for group in np.split(places, np.flatnonzero(np.diff(position[places])) + 1):
        if len(group):
            yield int(position[group[0]]), group


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
