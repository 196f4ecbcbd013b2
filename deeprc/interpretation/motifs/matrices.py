"""Position weight matrices: the residues of aligned windows, and those expected at the same positions.

The expected residues depend on the position, because junctions begin and end with germline residues. So a matrix is
compared with background sequences of the same lengths at the same positions, and not with the residues of all positions
together.

Letters: n attended sequences, L positions of the longest, W positions of a matrix, w windows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.interpretation.motifs.compared_sequences import ComparedSequences
from deeprc.interpretation.motifs.patterns import Masks

__all__ = [
    "PositionFrequencyMatrix",
    "Windows",
    "align_windows",
    "compute_information",
    "find_windows",
]

_N = 20
_PSEUDOCOUNT = 1.0


class Windows(NamedTuple):
    """Matching windows of attended sequences: rows of the sequences, start positions, and weights from 0 to 1, (w,)."""

    rows: NDArray[np.int64]
    starts: NDArray[np.int64]
    weights: NDArray[np.float64]


class PositionFrequencyMatrix(NamedTuple):
    """Weighted residue counts of aligned windows, (W, 20), and expected frequencies at their positions, (W, 20)."""

    counts: NDArray[np.float64]
    expected: NDArray[np.float64]

    @property
    def frequencies(self) -> NDArray[np.float64]:
        """Frequencies of the residues, (W, 20), after adding one expected residue to the counts of each position."""
        total = self.counts.sum(axis=1, keepdims=True) + _PSEUDOCOUNT
        return np.asarray((self.counts + _PSEUDOCOUNT * self.expected) / total)


def find_windows(samples: ComparedSequences, masks: Masks, attributions: NDArray[np.float64]) -> Windows:
    """Return the window of each attended sequence that matches a pattern; of several, that with most attribution.

    Parameters
    ----------
    samples
        Attended and background sequences.
    masks
        The pattern.
    attributions
        Attributions of the residues of the attended sequences, (n, L); negative ones count as 0. The weight of a window
        is its share of the sequence's attributions.
    """
    rows, starts, weights = [], [], []
    clipped = np.clip(np.nan_to_num(attributions, nan=0.0), 0.0, None)
    width = np.arange(len(masks))
    for row in range(samples.n_attended):
        residues = samples.residues[samples.offsets[row] : samples.offsets[row + 1]].astype(np.uint32)
        residue_index = np.arange(len(residues) - len(masks) + 1)[:, None] + width  # (windows, W)
        if len(residue_index) == 0:
            continue
        window_residues = residues[residue_index]
        matching = np.flatnonzero(((masks >> np.minimum(window_residues, 31)) & 1).all(axis=1))
        if len(matching) == 0:
            continue
        values = clipped[row][residue_index[matching]].sum(axis=1)
        best = int(values.argmax())
        total = clipped[row].sum()
        rows.append(row)
        starts.append(int(matching[best]))
        weights.append(values[best] / total if total > 0 else 0.0)
    weight = np.array(weights, np.float64)
    return Windows(np.array(rows, np.int64), np.array(starts, np.int64), weight if weight.any() else weight + 1.0)


def align_windows(samples: ComparedSequences, windows: Windows, before: int, stop: int) -> PositionFrequencyMatrix:
    """Align windows by their starts, and return the residues that they have at each position, as a matrix.

    Parameters
    ----------
    samples
        Attended sequences, in which the windows are, and frequencies of residues in the background.
    windows
        Windows to align; each counts with its weight.
    before, stop
        Positions of the matrix, relative to the start of a window: from -`before` to `stop` - 1. Positions outside a
        sequence, and erased residues, do not count.
    """
    lengths = np.diff(samples.offsets)[windows.rows]
    places = windows.starts[:, None] + np.arange(-before, stop)  # (w, W)
    is_residue = (places >= 0) & (places < lengths[:, None])
    window, position = np.nonzero(is_residue)
    place = places[is_residue]
    residue = samples.residues[samples.offsets[windows.rows[window]] + place]
    known = residue < _N
    window, position, place, residue = window[known], position[known], place[known], residue[known]
    weight = windows.weights[window]
    counts, expected = np.zeros((2, places.shape[1], _N))
    np.add.at(counts, (position, residue), weight)
    np.add.at(expected, position, weight[:, None] * samples.frequencies.by_position[lengths[window], place])
    empty = expected.sum(axis=1) == 0
    expected[empty] = samples.frequencies.overall
    return PositionFrequencyMatrix(counts, expected / expected.sum(axis=1, keepdims=True))


def compute_information(matrix: PositionFrequencyMatrix) -> NDArray[np.float64]:
    """Return the heights of the letters in bits, (W, 20): frequency times the relative entropy of the position."""
    frequencies = matrix.frequencies
    entropy = (frequencies * np.log2(frequencies / matrix.expected)).sum(axis=1, keepdims=True)
    return np.asarray(frequencies * entropy)
