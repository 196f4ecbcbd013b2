"""Find the sequences that contain an implanted motif; the motif is known (paper lines 8912-8931).

Letters: N sequences, R residues, V complete variants of motifs, L positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.compilation import njit, run_in_blocks
from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.simulation.motif import GAP, WILDCARD, Motif, Variant

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


class _CompleteVariants(NamedTuple):
    """The variants of motifs that are searched: those that lack no position but residues of gaps.

    Attributes
    ----------
    codes
        Residues of each variant, (V, L) uint8; `GAP` where any residue fits, and after its end.
    sizes
        Number of positions of each variant, (V,).
    n_letters
        Number of positions of each variant at which only one residue fits, (V,).
    """

    codes: NDArray[np.uint8]
    sizes: NDArray[np.int64]
    n_letters: NDArray[np.int64]


def match_motifs(
    motifs: Sequence[Motif], residues: NDArray[np.uint8], lengths: NDArray[np.int64], *, inside: bool = False
) -> Matches:
    """Search sequences, (R,) uint8 end to end and (N,) int64, for motifs; `inside`: without first and last residue."""
    matches = Matches(np.zeros(len(lengths), np.bool_), np.zeros(len(lengths), np.uint8))
    variants, offsets = _arrange_complete_variants(motifs), compute_offsets(lengths)
    run_in_blocks(_match_variants, len(lengths), _BLOCK, residues, offsets, variants, int(inside), matches)
    return matches


def _arrange_complete_variants(motifs: Sequence[Motif]) -> _CompleteVariants:
    variants = [variant for motif in motifs for variant in _select_complete_variants(motif)]
    codes = np.full((len(variants), max((len(variant.codes) for variant in variants), default=1)), GAP, np.uint8)
    for row, variant in enumerate(variants):
        codes[row, : len(variant.codes)] = variant.codes
    codes[codes == WILDCARD] = GAP
    sizes = np.array([len(variant.codes) for variant in variants], np.int64)
    return _CompleteVariants(codes, sizes, (codes != GAP).sum(axis=1))


def _select_complete_variants(motif: Motif) -> list[Variant]:
    n_positions = [sum(code != GAP for code in variant.codes) for variant in motif.variants]
    return [variant for variant, n in zip(motif.variants, n_positions, strict=True) if n == max(n_positions)]


@njit(nogil=True)
def _match_variants(
    first: int,
    stop: int,
    residues: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    variants: _CompleteVariants,
    margin: int,
    matches: Matches,
) -> None:
    """Write the matches of the sequences from `first` to `stop`; the first and last `margin` residues do not count."""
    for n in range(first, stop):
        for v in range(len(variants.sizes)):
            size = variants.sizes[v]
            for start in range(offsets[n] + margin, offsets[n + 1] - margin - size + 1):
                same = 0
                for i in range(size):
                    same += residues[start + i] == variants.codes[v, i]
                matches.overlap[n] = max(matches.overlap[n], same)
                matches.whole[n] |= same == variants.n_letters[v]
