"""Whether motifs that were found in some repertoires go with the label in others, too.

Letters: B repertoires, n of them with a label, P permutations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.alphabet import offsets_of
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.outputs import output_slices
from deeprc.tasks import Task
from deeprc.training.enrichment import Motif, output_columns
from deeprc.training.kmer_correlations import carriers, flagged, size_weights, standardised
from deeprc.training.permutations import label_permutations

__all__ = ["confirm_motifs"]

Floats = NDArray[np.float64]

_N_PERMUTATIONS = 999
_LEVEL = 0.05


def confirm_motifs(
    motifs: Sequence[Motif], dataset: RepertoireDataset, labels: Floats, tasks: Sequence[Task], *, seed: int
) -> list[Motif]:
    """Return the motifs that go with the label, and in the same direction, in repertoires they were not found in.

    The share of sequences that hold a motif is correlated with the label as in `enriched_motifs`, and with 999
    permutations of the labels among repertoires of about the same size. A motif is confirmed if at most 5% of them,
    divided by the number of motifs, reach as far.

    Parameters
    ----------
    motifs
        Each is judged by itself.
    dataset, labels, tasks
        The other repertoires; labels (B, number of tasks), NaN where missing.
    seed
        Of the permutations.
    """
    rng = np.random.default_rng(seed)
    p_values = [_p_value(motif, dataset, labels, tasks, rng) for motif in motifs]
    return [motif for motif, p in zip(motifs, p_values, strict=True) if p * len(motifs) <= _LEVEL]


def _p_value(
    motif: Motif, dataset: RepertoireDataset, labels: Floats, tasks: Sequence[Task], rng: np.random.Generator
) -> float:
    """Return the share of permutations that reach as far in the motif's direction, the labels as they are included."""
    slices = output_slices(tasks)
    number = next(i for i, part in enumerate(slices) if motif.output < part.stop)
    known = np.flatnonzero(~np.isnan(labels[:, number]) & (dataset.n_sequences > 0))
    if len(known) < 2:
        return 1.0
    values = output_columns(tasks[number], labels[known, number])[:, motif.output - slices[number].start]
    sizes = dataset.n_sequences[known]
    weights = size_weights(sizes, sizes)
    permutations = label_permutations(sizes, _N_PERMUTATIONS, rng)
    targets = np.stack([values[permutation] for permutation in permutations], axis=1)  # (n, 1 + P)
    share = _share(motif, dataset[known])
    r = (weights * standardised(share[:, None], weights)[:, 0]) @ standardised(targets, weights)
    reach = np.sign(motif.correlation) * r
    return float(np.mean(reach >= reach[0] - 1e-12)) if reach[0] > 0 else 1.0


def _share(motif: Motif, dataset: RepertoireDataset) -> Floats:
    """Return the share of each repertoire's sequences that hold a motif, (n,); none may be empty."""
    carrying = carriers(dataset, motif.places, motif.code)
    return np.asarray(flagged(carrying, offsets_of(dataset.n_sequences)) / dataset.n_sequences)
