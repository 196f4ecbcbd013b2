"""Find the sequences that hold a motif, as someone does who knows what was implanted (paper lines 8912-8931).

Letters: N sequences, R residues, V forms of motifs, L positions.
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


class _Forms(NamedTuple):
    """The forms of motifs that are searched, see `_list_complete_forms`.

    Attributes
    ----------
    codes
        Residues of each form, (V, L) uint8; `GAP` where any residue fits, and after its end.
    sizes
        Number of positions of each form, (V,).
    n_letters
        Number of positions of each form at which only one residue fits, (V,).
    """

    codes: NDArray[np.uint8]
    sizes: NDArray[np.int64]
    n_letters: NDArray[np.int64]


def match_motifs(
    motifs: Sequence[Motif], residues: NDArray[np.uint8], lengths: NDArray[np.int64], *, inside: bool = False
) -> Matches:
    """Search sequences, (R,) uint8 end to end and (N,) int64, for motifs; `inside`: without first and last residue."""
    matches = Matches(np.zeros(len(lengths), np.bool_), np.zeros(len(lengths), np.uint8))
    forms, offsets = _arrange_forms(motifs), compute_offsets(lengths)
    run_in_blocks(_match_forms, len(lengths), _BLOCK, residues, offsets, forms, int(inside), matches)
    return matches


def _arrange_forms(motifs: Sequence[Motif]) -> _Forms:
    forms = [codes for motif in motifs for codes in _list_complete_forms(motif)]
    codes = np.full((len(forms), max(map(len, forms), default=1)), GAP, np.uint8)
    for row, form in enumerate(forms):
        codes[row, : len(form)] = form
    codes[codes == WILDCARD] = GAP
    sizes = np.array([len(form) for form in forms], np.int64)
    return _Forms(codes, sizes, (codes != GAP).sum(axis=1))


def _list_complete_forms(motif: Motif) -> list[tuple[int, ...]]:
    """Return the codes of the forms of a motif that lack no position but residues of gaps."""
    kept = [
        {position for position, code in zip(v.positions, v.codes, strict=True) if code != GAP} for v in motif.variants
    ]
    complete = max(map(len, kept))
    return [
        variant.codes for variant, positions in zip(motif.variants, kept, strict=True) if len(positions) == complete
    ]


@njit(nogil=True)
def _match_forms(
    first: int,
    stop: int,
    residues: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    forms: _Forms,
    margin: int,
    matches: Matches,
) -> None:
    """Write the matches of the sequences from `first` to `stop`; the first and last `margin` residues do not count."""
    for n in range(first, stop):
        for v in range(len(forms.sizes)):
            size = forms.sizes[v]
            for start in range(offsets[n] + margin, offsets[n + 1] - margin - size + 1):
                same = 0
                for i in range(size):
                    same += residues[start + i] == forms.codes[v, i]
                matches.overlap[n] = max(matches.overlap[n], same)
                matches.whole[n] |= same == forms.n_letters[v]
