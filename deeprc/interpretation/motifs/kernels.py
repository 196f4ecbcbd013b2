"""Patterns of the kernels: what a kernel's best windows in the attended sequences have in common.

Letters: n attended sequences, D kernels, K kernel width, L positions of the longest sequence.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeprc.interpretation.motifs.matrices import Composition, Windows, aligned, information_of
from deeprc.interpretation.motifs.patterns import ANY, Masks, trimmed
from deeprc.interpretation.motifs.search import SIGNIFICANT, Candidate, climb, common_residues, described
from deeprc.interpretation.motifs.seeds import ComparedSequences
from deeprc.interpretation.sequence_index import SequenceIndex
from deeprc.nn.inference import Inference

__all__ = ["best_windows", "kernel_pattern", "kernel_shares", "search_kernels"]

_MIN_SHARE = 0.05  # of the attribution must a kernel have
_POSITIONS = 4  # of a kernel make its first pattern


def search_kernels(
    inference: Inference,
    index: SequenceIndex,
    samples: ComparedSequences,
    composition: Composition,
    residues: NDArray[np.float64],
    kernels: NDArray[np.float64],
) -> list[tuple[int, Candidate]]:
    """Return the significant patterns of the kernels that have much of the attribution, with their numbers from 1.

    Parameters
    ----------
    inference
        The network and the dataset that it reads.
    index
        The n attended sequences, in the order of `samples`.
    samples, composition
        The sequences, and the background's residues.
    residues, kernels
        Attributions of the attended sequences, (n, L) and (n, D), positive where the network looks.
    """
    span = inference.network.embedding.span
    if span is None:
        return []
    shares = kernel_shares(kernels)
    chosen = np.flatnonzero(shares >= _MIN_SHARE)
    starts = best_windows(inference, index, chosen) if len(chosen) else np.zeros((samples.n, 0), np.int64)
    found = []
    for place, kernel in enumerate(chosen.tolist()):
        weights = np.clip(kernels[:, kernel], 0.0, None)
        windows = Windows(np.arange(samples.n), starts[:, place], weights / weights.max())
        masks = kernel_pattern(samples, composition, windows, span)
        if len(masks):
            best = climb(samples, masks)
            if best.score <= SIGNIFICANT:
                found.append((kernel + 1, described(samples, composition, residues, best)))
    return found


def kernel_shares(kernels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each kernel's share of the attribution, (D,): of its sum over the sequences, (n, D), if above 0."""
    total = np.clip(np.nan_to_num(kernels).sum(axis=0), 0.0, None)
    return np.asarray(total / total.sum() if total.any() else total)


def kernel_pattern(samples: ComparedSequences, composition: Composition, windows: Windows, width: int) -> Masks:
    """Return the first pattern to try of a kernel's windows of K residues: up to 4 residues that go together.

    One after the other the residue that adds most information is chosen, each in the windows that have those chosen
    before: a kernel may look for several motifs, and the matrix of them all would mix them.
    """
    pattern = np.full(width, ANY, np.uint32)
    for _ in range(_POSITIONS):
        matrix = aligned(samples, composition, windows, 0, width)
        masks, _ = common_residues(matrix)
        heights = np.where(masks[:, None] >> np.arange(20) & 1, information_of(matrix), 0.0)
        heights[(pattern != ANY) | (masks == ANY)] = 0.0
        position, residue = np.unravel_index(int(heights.argmax()), heights.shape)
        if heights[position, residue] <= 0:
            break
        pattern[position] = 1 << int(residue)
        at = samples.offsets[windows.rows] + windows.starts + position
        inside = at < samples.offsets[windows.rows + 1]
        has = inside & (samples.residues[np.where(inside, at, 0)] == residue)
        windows = Windows(windows.rows[has], windows.starts[has], windows.weights[has])
    return trimmed(pattern)


def best_windows(inference: Inference, index: SequenceIndex, kernels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each kernel's highest activation lies in each sequence, (n, number of kernels), from 0.

    A window may run over the sequence's end, as in the network.
    """
    starts = np.zeros((len(index), len(kernels)), np.int64)
    for position, at in index.by_repertoire():
        batch = inference.collator.take(position, index.rows[at])
        starts[at] = inference.network.embedding.best_windows(batch.sequences, kernels)
    return starts
