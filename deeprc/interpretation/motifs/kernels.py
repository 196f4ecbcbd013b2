"""Search for patterns that the best windows of a kernel in the attended sequences have in common.

Letters: n attended sequences, D kernels, K kernel width, L positions of the longest sequence.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeprc.interpretation.motifs.compared_sequences import ComparedSequences
from deeprc.interpretation.motifs.matrices import Windows, align_windows, compute_information
from deeprc.interpretation.motifs.patterns import ANY, LONGEST, Masks, trim_pattern
from deeprc.interpretation.motifs.search import (
    SIGNIFICANT,
    Candidate,
    describe_windows,
    find_common_residues,
    improve_pattern,
)
from deeprc.interpretation.sequence_index import SequenceIndex
from deeprc.nn.inference import Inference

__all__ = ["find_best_windows", "propose_kernel_pattern", "search_kernels"]

_MIN_SHARE = 0.05  # smallest share of the attribution that a kernel must have
_POSITIONS = 4  # largest number of positions in the first pattern of a kernel


def search_kernels(
    inference: Inference,
    index: SequenceIndex,
    samples: ComparedSequences,
    residues: NDArray[np.float64],
    kernels: NDArray[np.float64],
) -> list[tuple[int, Candidate]]:
    """Return the significant patterns of the kernels that have much of the attribution, with kernel indices from 1.

    Parameters
    ----------
    inference
        The network, with the dataset that it reads.
    index
        Index of the n attended sequences, in the order of `samples`.
    samples
        Attended and background sequences.
    residues, kernels
        Attributions of residues and kernels of the attended sequences, (n, L) and (n, D), positive in the direction of
        the change.
    """
    span = inference.network.embedding.span
    if span is None:
        return []
    shares = _compute_kernel_shares(kernels)
    chosen = np.flatnonzero(shares >= _MIN_SHARE)
    starts = find_best_windows(inference, index, chosen) if len(chosen) else np.zeros((samples.n_attended, 0), np.int64)
    candidates = []
    for column, kernel in enumerate(chosen.tolist()):
        weights = np.clip(kernels[:, kernel], 0.0, None)
        windows = Windows(np.arange(samples.n_attended), starts[:, column], weights / weights.max())
        masks = propose_kernel_pattern(samples, windows, span)
        if len(masks):
            best = improve_pattern(samples, masks)
            if best.score <= SIGNIFICANT:
                candidates.append((kernel + 1, describe_windows(samples, residues, best)))
    return candidates


def _compute_kernel_shares(attributions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of each kernel in the attributions of all sequences together, (D,); the shares sum to 1.

    `attributions` are those of each sequence to each kernel, (n, D), see `Attributions.kernels`; NaN counts as 0. If
    the sum of a kernel is negative, its share is 0. If no sum is positive, all shares are 0.
    """
    total = np.clip(np.nan_to_num(attributions).sum(axis=0), 0.0, None)
    return np.asarray(total / total.sum() if total.any() else total)


def propose_kernel_pattern(samples: ComparedSequences, windows: Windows, width: int) -> Masks:
    """Return the first pattern to try for a kernel's windows of K residues: up to 4 residues that occur together.

    The residues are chosen one after the other. The next one has the most information in the windows that have those
    before, because a kernel may match several motifs, and the matrix of all windows would mix them. The pattern has at
    most 12 positions, for which its p-value is corrected, also if the kernel is wider.
    """
    positions = np.arange(width)
    pattern = np.full(width, ANY, np.uint32)
    for _ in range(_POSITIONS):
        matrix = align_windows(samples, windows, 0, width)
        masks, _ = find_common_residues(matrix)
        heights = np.where(masks[:, None] >> np.arange(20) & 1, compute_information(matrix), 0.0)
        heights[(pattern != ANY) | (masks == ANY)] = 0.0
        for fixed in np.flatnonzero(pattern != ANY):
            heights[np.abs(positions - fixed) >= LONGEST] = 0.0
        position, residue = np.unravel_index(int(heights.argmax()), heights.shape)
        if heights[position, residue] <= 0:
            break
        pattern[position] = 1 << int(residue)
        residue_index = samples.offsets[windows.rows] + windows.starts + position
        is_residue = residue_index < samples.offsets[windows.rows + 1]
        has = is_residue & (samples.residues[np.where(is_residue, residue_index, 0)] == residue)
        windows = Windows(windows.rows[has], windows.starts[has], windows.weights[has])
    return trim_pattern(pattern)


def find_best_windows(inference: Inference, index: SequenceIndex, kernels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the position of each kernel's highest activation in each sequence, (n, number of kernels), from 0.

    A window may reach beyond the end of the sequence, as in the network.
    """
    starts = np.zeros((len(index), len(kernels)), np.int64)
    for position, items in index.group_by_repertoire():
        batch = inference.collator.take(position, index.rows[items])
        starts[items] = inference.network.embedding.best_windows(batch.sequences, kernels)
    return starts
