"""A background of TRB-like sequences with genes, for examples, and for cohorts in which genes matter."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from deeprc.compilation import njit, run_in_blocks
from deeprc.datasets.alphabet import compute_offsets, encode
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.random_numbers import draw_uniforms, draw_word, draw_words
from deeprc.datasets.sequences import Sequences
from deeprc.datasets.simulation.background import Background
from deeprc.documents import abbreviate
from deeprc.errors import InputError

__all__ = ["GermlineBackground"]

# Frequent ends of human TRB junctions.
_V_ENDS = {"TRBV5-1": "CASSL", "TRBV7-9": "CASSL", "TRBV19": "CASSI", "TRBV20-1": "CSAR", "TRBV28": "CASS"}
_J_ENDS = {"TRBJ1-1": "NTEAFF", "TRBJ1-2": "YGYTF", "TRBJ2-1": "NEQFF", "TRBJ2-3": "DTQYF", "TRBJ2-7": "YEQYF"}
_LONGEST = 40
_BLOCK = 16_384  # sequences that one thread fills in at a time


@dataclass(frozen=True)
class GermlineBackground(Background):
    """A background of sequences of the start of a V gene, a loop of uniformly drawn residues, and the end of a J gene.

    Attributes
    ----------
    shortest_loop, longest_loop
        Smallest and largest number of residues of the loop; these and all between are equally likely.
    v_genes, j_genes
        Frequency of each gene, relative to the others.
    """

    shortest_loop: int = 4
    longest_loop: int = 9
    v_genes: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(_V_ENDS, 1.0))
    j_genes: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(_J_ENDS, 1.0))

    def __post_init__(self) -> None:
        if not 0 <= self.shortest_loop <= self.longest_loop <= _LONGEST:
            raise InputError(f"background: expected 0 <= shortest_loop <= longest_loop <= {_LONGEST}")
        for usage, ends in ((self.v_genes, _V_ENDS), (self.j_genes, _J_ENDS)):
            valid = set(usage) <= set(ends) and all(frequency >= 0 for frequency in usage.values())
            if not valid or not 0 < sum(usage.values()) < math.inf:
                raise InputError(
                    f"background: expected the usage of some of {', '.join(ends)}, found {abbreviate(dict(usage))}"
                )

    def draw(self, key: int, rows: NDArray[np.int64]) -> Sequences:
        """Return the sequences at these rows, see `Background.draw`."""
        sequence_keys = draw_words(key, rows)
        v_genes, j_genes = sorted(self.v_genes), sorted(self.j_genes)  # the order of a mapping means nothing
        v = _draw_genes([self.v_genes[gene] for gene in v_genes], sequence_keys, 0)
        j = _draw_genes([self.j_genes[gene] for gene in j_genes], sequence_keys, 1)
        n_loops = self.longest_loop - self.shortest_loop + 1
        loops = self.shortest_loop + (draw_uniforms(sequence_keys, np.full(len(rows), 2)) * n_loops).astype(np.int64)
        starts, ends = [_V_ENDS[gene] for gene in v_genes], [_J_ENDS[gene] for gene in j_genes]
        start_lengths, end_lengths = (np.array(list(map(len, texts)), np.int64) for texts in (starts, ends))
        lengths = start_lengths[v] + loops + end_lengths[j]
        offsets = compute_offsets(lengths)
        residues = np.empty(offsets[-1], np.uint8)
        ends_of_v, ends_of_j = (
            _GermlineEnds(v, _pad_texts(starts), start_lengths),
            _GermlineEnds(j, _pad_texts(ends), end_lengths),
        )
        run_in_blocks(
            _fill_junctions, len(sequence_keys), _BLOCK, sequence_keys, offsets, ends_of_v, ends_of_j, residues
        )
        v_call, j_call = (
            Categorical(codes.astype(np.uint16), tuple(genes)) for codes, genes in ((v, v_genes), (j, j_genes))
        )
        return Sequences.counted_once(residues, offsets).with_genes({"v_call": v_call, "j_call": j_call})


def _draw_genes(usage: Sequence[float], sequence_keys: NDArray[np.uint64], counter: int) -> NDArray[np.int64]:
    bounds = np.cumsum(usage) / sum(usage)
    return np.searchsorted(
        bounds[:-1], draw_uniforms(sequence_keys, np.full(len(sequence_keys), counter)), side="right"
    )


def _pad_texts(texts: list[str]) -> NDArray[np.uint8]:
    """Return the residues of the texts, one row per text, filled up with 0."""
    table = np.zeros((len(texts), max(map(len, texts))), np.uint8)
    for row, text in enumerate(texts):
        table[row, : len(text)] = encode(text)
    return table


class _GermlineEnds(NamedTuple):
    """One end of n sequences: the index of each one's gene, (n,), and residues, (G, L), and lengths, (G,), of genes."""

    gene: NDArray[np.int64]
    residues: NDArray[np.uint8]
    lengths: NDArray[np.int64]


@njit(nogil=True)
def _fill_junctions(
    first_row: int,
    stop: int,
    sequence_keys: NDArray[np.uint64],
    offsets: NDArray[np.int64],
    starts: _GermlineEnds,
    ends: _GermlineEnds,
    residues: NDArray[np.uint8],
) -> None:
    """Write the germline ends of junctions, and between them random residues, from the fourth random number on."""
    for n in range(first_row, stop):
        v, j = starts.gene[n], ends.gene[n]
        first, drawn_stop = offsets[n] + starts.lengths[v], offsets[n + 1] - ends.lengths[j]
        for i in range(starts.lengths[v]):
            residues[offsets[n] + i] = starts.residues[v, i]
        for at in range(first, drawn_stop):
            bits = draw_word(sequence_keys[n], 3 + at - first) >> uint64(32)
            residues[at] = (bits * uint64(20)) >> uint64(32)
        for i in range(ends.lengths[j]):
            residues[drawn_stop + i] = ends.residues[j, i]
