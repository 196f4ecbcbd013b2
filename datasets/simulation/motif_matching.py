"""Find the sequences that hold a motif, as someone does who knows what was implanted (paper lines 8912-8931).

Letters: N sequences, R residues, V variants, L positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.compilation import njit, run_in_blocks
from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.simulation.motif import GAP, WILDCARD, Motif

__all__ = ["Matches", "match_motifs"]

_BLOCK = 4096  # largest number of sequences that a thread searches at a time


class Matches(NamedTuple):
    """The matches of motifs in each of N sequences.

    Attributes
    ----------
    whole
        Whether the sequence holds one of the motifs, (N,) bool. Wildcards and gaps fit any residue, and gaps have any
        of their lengths; deletions and alterations are not considered.
    overlap
        The largest number of amino acids of a motif that the sequence holds with the motif at one position, (N,) uint8;
        wildcards and gaps do not count.
    """

    whole: NDArray[np.bool_]
    overlap: NDArray[np.uint8]


def match_motifs(
    motifs: Sequence[Motif], residues: NDArray[np.uint8], lengths: NDArray[np.int64], *, inside: bool = False
) -> Matches:
    """Search sequences, (R,) uint8 end to end and (N,) int64, for motifs; `inside`: without first and last residue."""
    variants = [codes for motif in motifs for codes in _list_complete_forms(motif)]
    codes = np.full((len(variants), max(map(len, variants), default=1)), GAP, np.uint8)
    for row, variant in enumerate(variants):
        codes[row, : len(variant)] = variant
    codes[codes == WILDCARD] = GAP
    matches = Matches(np.zeros(len(lengths), np.bool_), np.zeros(len(lengths), np.uint8))
    sizes = np.array([len(variant) for variant in variants], np.int64)
    offsets, n_letters = compute_offsets(lengths), (codes != GAP).sum(axis=1)
    run_in_blocks(_find, len(lengths), _BLOCK, residues, offsets, codes, sizes, n_letters, int(inside), *matches)
    return matches


def _list_complete_forms(motif: Motif) -> list[tuple[int, ...]]:
    """Return the codes of the forms of a motif that lack no position but residues of gaps."""
    kept = [
        {position for position, code in zip(v.positions, v.codes, strict=True) if code != GAP} for v in motif.variants
    ]
    complete = max(map(len, kept))
    return [variant.codes for variant, each in zip(motif.variants, kept, strict=True) if len(each) == complete]


@njit(nogil=True)
def _find(
    first: int,
    stop: int,
    residues: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    codes: NDArray[np.uint8],
    sizes: NDArray[np.int64],
    n_letters: NDArray[np.int64],
    margin: int,
    whole: NDArray[np.bool_],
    overlap: NDArray[np.uint8],
) -> None:
    for n in range(first, stop):
        for variant in range(len(sizes)):
            size = sizes[variant]
            for start in range(offsets[n] + margin, offsets[n + 1] - margin - size + 1):
                same = 0
                for i in range(size):
                    same += residues[start + i] == codes[variant, i]
                overlap[n] = max(overlap[n], same)
                whole[n] |= same == n_letters[variant]
