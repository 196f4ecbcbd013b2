"""The compiled code that implants the motifs of signals into sequences.

Letters: n sequences, R residues, S signals, M motifs of all signals, V variants of all motifs, L positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.compilation import njit, run_in_blocks
from deeprc.datasets.alphabet import AMINO_ACIDS, compute_offsets
from deeprc.datasets.random_numbers import draw_uniform, draw_word
from deeprc.datasets.simulation.imgt import list_imgt_positions
from deeprc.datasets.simulation.motif import GAP, WILDCARD
from deeprc.datasets.simulation.motif_signal import LONGEST, MotifSignal

__all__ = ["Implanter", "Implants"]

_BLOCK = 16_384  # number of sequences that one thread treats at a time
_ANYWHERE, _CENTRE, _IMGT = range(3)
_PLACEMENTS = {"anywhere": _ANYWHERE, "centre": _CENTRE, "imgt": _IMGT}

_FLIPPED_BITS = np.uint64(0xA5A5A5A5A5A5A5A5)  # of the key of a repertoire; the result gives the keys of its witnesses

# What each random number of a witness is for, by its index.
_MOTIF, _VARIANT, _START, _OTHER_START, _IS_ALTERED, _ALTERED_POSITION, _NEW_RESIDUE = range(1, 8)
# For wildcards and for noise, each position in the variant has a random number: these indices plus the position.
_FIRST_WILDCARD = 16
_FIRST_NOISE = 48

_N_LETTERS = len(AMINO_ACIDS)


class Implants(NamedTuple):
    """The truth about the signals in n sequences.

    Attributes
    ----------
    signal
        0 for a sequence without a signal, otherwise 1 + the index of its signal, (n,) uint8.
    motif
        Index of a witness's motif among the motifs of all signals, followed by the clones, (n,) int16.
    start
        Index of the residue of a witness at which the motif begins, (n,) int16.
    """

    signal: NDArray[np.uint8]
    motif: NDArray[np.int16]
    start: NDArray[np.int16]


class _Tables(NamedTuple):
    """The signals as arrays for compiled code.

    The motifs of all signals lie one after another, and so do the variants of all motifs. Probabilities are cumulated,
    so that a uniform random number chooses an entry: the first one above it.

    Attributes
    ----------
    placements
        How the start of a motif is chosen, (S,): `_ANYWHERE`, `_CENTRE` or `_IMGT`.
    first_motifs, first_variants
        Offsets of the motifs of each signal, (S + 1,), and of the variants of each motif, (M + 1,).
    motif_bounds, variant_bounds
        Cumulated probabilities of the motifs within their signal, (M,), and of the variants within their motif, (V,).
    codes, positions
        Codes of each variant, and the position in the motif's pattern of each code, (V, L); -1 beyond the end.
    code_lengths
        Number of codes of each variant, (V,).
    substitution_bounds
        Cumulated probabilities with which each position of a motif's pattern is altered, (M, L).
    alteration_rates, noises
        `Motif.alteration_rate` and `Motif.noise` of each motif, (M,).
    imgt_indices
        Index in a junction of each of the K IMGT positions of a signal, by the length of the junction; -1 if a junction
        of this length lacks the position, (S, LONGEST + 1, K).
    imgt_bounds
        Cumulated probabilities of the IMGT positions, (S, K).
    """

    placements: NDArray[np.int64]
    first_motifs: NDArray[np.int64]
    motif_bounds: NDArray[np.float64]
    first_variants: NDArray[np.int64]
    variant_bounds: NDArray[np.float64]
    codes: NDArray[np.int8]
    positions: NDArray[np.int8]
    code_lengths: NDArray[np.int64]
    substitution_bounds: NDArray[np.float64]
    alteration_rates: NDArray[np.float64]
    noises: NDArray[np.float64]
    imgt_indices: NDArray[np.int64]
    imgt_bounds: NDArray[np.float64]


class _Sequences(NamedTuple):
    """n sequences that lie end to end: residues (R,), offsets (n + 1,)."""

    residues: NDArray[np.uint8]
    offsets: NDArray[np.int64]


class Implanter:
    """An object that implants the signals of a cohort; it is made once, because it writes them into tables."""

    def __init__(self, signals: Sequence[MotifSignal]) -> None:
        self.signals = tuple(signals)
        self._tables = _make_tables(self.signals)

    def implant(
        self,
        key: int,
        rows: NDArray[np.int64],
        residues: NDArray[np.uint8],
        lengths: NDArray[np.int64],
        carried: Sequence[bool],
    ) -> Implants:
        """Implant the signals into sequences, in place, and return the truth about them.

        Parameters
        ----------
        key
            Key of the repertoire's signals.
        rows
            Index of each sequence in the repertoire, (n,).
        residues, lengths
            Residues of the sequences end to end, (R,), and lengths of the sequences, (n,).
        carried
            Whether the repertoire carries each of the signals, (S,).
        """
        rates = [signal.witness_rate * carries for signal, carries in zip(self.signals, carried, strict=True)]
        n = len(rows)
        truth = Implants(np.zeros(n, np.uint8), np.zeros(n, np.int16), np.zeros(n, np.int16))
        if n and any(rates):
            offsets = compute_offsets(lengths)
            bounds = np.cumsum(rates)
            sequences = _Sequences(residues, offsets)
            run_in_blocks(_implant_motifs, n, _BLOCK, np.uint64(key), rows, sequences, bounds, self._tables, truth)
        return truth


def _make_tables(signals: Sequence[MotifSignal]) -> _Tables:
    """Write the signals into arrays for compiled code."""
    motifs = [motif for signal in signals for motif in signal.motifs]
    variants = [variant for motif in motifs for variant in motif.variants]
    substitutions = _pad_rows([motif.substitutions for motif in motifs], 0.0)
    imgt_indices, imgt_probabilities = _tabulate_imgt_positions(signals)
    return _Tables(
        placements=np.array([_PLACEMENTS[signal.position] for signal in signals], np.int64),
        first_motifs=_compute_first_indices([len(signal.motifs) for signal in signals]),
        motif_bounds=_cumulate_groups([[motif.weight for motif in signal.motifs] for signal in signals]),
        first_variants=_compute_first_indices([len(motif.variants) for motif in motifs]),
        variant_bounds=_cumulate_groups([[variant.probability for variant in motif.variants] for motif in motifs]),
        codes=_pad_rows([variant.codes for variant in variants], -1).astype(np.int8),
        positions=_pad_rows([variant.positions for variant in variants], -1).astype(np.int8),
        code_lengths=np.array([len(variant.codes) for variant in variants], np.int64),
        substitution_bounds=np.cumsum(substitutions, axis=1),
        alteration_rates=np.array([motif.alteration_rate for motif in motifs], np.float64),
        noises=np.array([motif.noise for motif in motifs], np.float64),
        imgt_indices=imgt_indices,
        imgt_bounds=np.cumsum(imgt_probabilities, axis=1),
    )


def _tabulate_imgt_positions(signals: Sequence[MotifSignal]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the index of each IMGT position, (S, LONGEST + 1, K), and its probability, (S, K); see `_Tables`."""
    n_positions = max((len(signal.imgt_positions) for signal in signals), default=0)
    indices = np.full((len(signals), LONGEST + 1, n_positions), -1)
    probabilities = np.zeros((len(signals), n_positions))
    for i, signal in enumerate(signals):
        # sorted, because the order in which a recipe lists the positions means nothing
        for k, (name, probability) in enumerate(sorted(signal.imgt_positions.items())):
            probabilities[i, k] = probability
            for length in range(2, LONGEST + 1):
                names_of_length = list_imgt_positions(length)
                indices[i, length, k] = names_of_length.index(name) if name in names_of_length else -1
    return indices, probabilities


def _pad_rows(rows: Sequence[Sequence[float]], fill: float) -> NDArray[np.float64]:
    """Return rows of different lengths as one array, filled up at their ends."""
    padded = np.full((len(rows), max(map(len, rows), default=0)), fill)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return padded


def _compute_first_indices(n_children: list[int]) -> NDArray[np.int64]:
    """Return where the children of each parent begin, and where the last ones end, from their numbers."""
    return compute_offsets(np.array(n_children, np.int64))


def _cumulate_groups(groups: list[list[float]]) -> NDArray[np.float64]:
    """Return weights as cumulated probabilities within their groups; the last one of each group is above 1."""
    cumulated = []
    for group in groups:
        bounds = np.cumsum(group) / np.sum(group)
        bounds[-1] = 2.0
        cumulated.append(bounds)
    return np.concatenate([np.zeros(0), *cumulated])


@njit()
def _choose_index(bounds: NDArray[np.float64], first: int, stop: int, u: float) -> int:
    """Return the index of the first of the cumulated bounds that is above u; `stop` if none is."""
    for index in range(first, stop):
        if u < bounds[index]:
            return index
    return stop


@njit()
def _draw_start(
    placement: int,
    length: int,
    size: int,
    imgt_indices: NDArray[np.int64],
    imgt_bounds: NDArray[np.float64],
    witness_key: int,
) -> int:
    """Return the index at which a motif of this size begins in a sequence; -1 if it does not fit.

    `imgt_indices`, (LONGEST + 1, K), and `imgt_bounds`, (K,), are those of the signal in `_Tables`.
    """
    if placement == _CENTRE:
        return (length - size) // 2 if size <= length else -1
    if placement == _ANYWHERE:
        return int(draw_uniform(witness_key, _START) * (length - size + 1)) if size <= length else -1
    n_starts = length - 2 - size + 1  # the conserved residues at both ends stay
    if n_starts < 1 or length >= len(imgt_indices):
        return -1
    listed = imgt_indices[length]
    drawn = _choose_index(imgt_bounds, 0, len(imgt_bounds), draw_uniform(witness_key, _START))
    if drawn < len(listed) and 1 <= listed[drawn] <= n_starts:
        return listed[drawn]  # type: ignore[no-any-return]
    n_unlisted = 0  # starts that have no probability of their own
    for start in range(1, n_starts + 1):
        n_unlisted += not _contains(listed, start)
    if n_unlisted == 0:
        return 1 + int(draw_uniform(witness_key, _OTHER_START) * n_starts)
    n_before = int(draw_uniform(witness_key, _OTHER_START) * n_unlisted)
    for start in range(1, n_starts + 1):
        if not _contains(listed, start):
            if n_before == 0:
                return start
            n_before -= 1
    return -1


@njit()
def _contains(values: NDArray[np.int64], value: int) -> bool:
    is_found = False
    for other in values:
        is_found |= other == value
    return is_found


@njit(nogil=True)
def _implant_motifs(
    first_row: int,
    stop_row: int,
    key: int,
    rows: NDArray[np.int64],
    sequences: _Sequences,
    bounds: NDArray[np.float64],
    tables: _Tables,
    truth: Implants,
) -> None:
    """Draw for each sequence whether it is a witness, and write a motif into each witness.

    Each witness has random numbers of its own, one for each purpose: see `_MOTIF` and the constants after it. If a
    motif does not fit into its sequence, the sequence stays as it is, and is no witness.

    Parameters
    ----------
    first_row, stop_row
        Range of the sequences that are treated.
    key
        Key of the repertoire's signals.
    rows
        Index of each sequence in the repertoire, (n,).
    sequences
        Sequences, which are changed in place.
    bounds
        Cumulated witness rates of the signals, (S,).
    tables
        Tables of the signals.
    truth
        Truth about what was implanted; it is written.
    """
    residues, offsets = sequences.residues, sequences.offsets
    for n in range(first_row, stop_row):
        signal = _choose_index(bounds, 0, len(bounds), draw_uniform(key, rows[n]))
        if signal == len(bounds):
            continue
        witness_key = draw_word(key ^ _FLIPPED_BITS, rows[n])
        motif = _choose_child(tables.motif_bounds, tables.first_motifs, signal, draw_uniform(witness_key, _MOTIF))
        variant = _choose_child(
            tables.variant_bounds, tables.first_variants, motif, draw_uniform(witness_key, _VARIANT)
        )
        start = _draw_start(
            tables.placements[signal],
            offsets[n + 1] - offsets[n],
            tables.code_lengths[variant],
            tables.imgt_indices[signal],
            tables.imgt_bounds[signal],
            witness_key,
        )
        if start >= 0:
            _write_variant(variant, motif, tables, witness_key, residues[offsets[n] + start : offsets[n + 1]])
            truth.signal[n] = signal + 1
            truth.motif[n] = motif
            truth.start[n] = start


@njit()
def _choose_child(bounds: NDArray[np.float64], first_children: NDArray[np.int64], parent: int, u: float) -> int:
    """Return the index of the child of a parent that a uniform random number chooses."""
    return _choose_index(bounds, first_children[parent], first_children[parent + 1], u)  # type: ignore[no-any-return]


@njit()
def _write_variant(variant: int, motif: int, tables: _Tables, witness_key: int, residues: NDArray[np.uint8]) -> None:
    """Write a variant of a motif over the first residues of some, with wildcards, alteration and noise drawn."""
    altered = _draw_altered_position(motif, tables, witness_key)
    for i in range(tables.code_lengths[variant]):
        code = tables.codes[variant, i]
        if code == GAP:
            continue
        if code == WILDCARD:
            code = int(draw_uniform(witness_key, _FIRST_WILDCARD + i) * _N_LETTERS)
        elif tables.positions[variant, i] == altered:
            code = (code + 1 + int(draw_uniform(witness_key, _NEW_RESIDUE) * (_N_LETTERS - 1))) % _N_LETTERS
        elif tables.noises[motif] > 0 and draw_uniform(witness_key, _FIRST_NOISE + i) < tables.noises[motif]:
            continue
        residues[i] = code


@njit()
def _draw_altered_position(motif: int, tables: _Tables, witness_key: int) -> int:
    """Return the position in the motif's pattern that is altered; -1 if none is."""
    bounds = tables.substitution_bounds[motif]
    if len(bounds) == 0 or draw_uniform(witness_key, _IS_ALTERED) >= tables.alteration_rates[motif]:
        return -1
    position = _choose_index(bounds, 0, len(bounds), draw_uniform(witness_key, _ALTERED_POSITION))
    return position if position < len(bounds) else -1
