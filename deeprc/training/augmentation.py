"""Regularisers of the paper that change the sequences of a batch (paper lines 8655-8675).

Letters: N sequences, B repertoires, R residues.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from deeprc.nn.batch import RepertoireBatch

__all__ = ["permute_residues", "shuffle_negatives"]


def permute_residues(batch: RepertoireBatch, share: float, rng: np.random.Generator) -> RepertoireBatch:
    """Permute a random share of the residues within each sequence.

    Every residue is chosen with probability `share`; the chosen residues of a sequence exchange their positions.
    """
    sequences = batch.sequences.compact()
    residues = sequences.residues.numpy().copy()
    segments = np.repeat(np.arange(sequences.n_sequences), sequences.lengths.numpy())  # (R,)
    chosen = np.flatnonzero(rng.random(len(residues)) < share)
    order = np.lexsort((rng.random(len(chosen)), segments[chosen]))
    residues[chosen] = residues[chosen[order]]
    return replace(batch, sequences=sequences._replace(residues=torch.from_numpy(residues)))


def shuffle_negatives(batch: RepertoireBatch, negative: NDArray[np.bool_], rng: np.random.Generator) -> RepertoireBatch:
    """Exchange sequences at random between negative repertoires; each repertoire keeps its size.

    Parameters
    ----------
    batch
        Batch of B repertoires.
    negative
        Whether each repertoire belongs to the negative class, (B,).
    rng
        Random generator of the permutation.
    """
    sizes = batch.offsets.diff().numpy()
    rows = np.flatnonzero(np.repeat(negative, sizes))
    order = np.arange(batch.sequences.n_sequences)
    order[rows] = rng.permutation(rows)
    return batch.take(torch.from_numpy(order), batch.offsets)
