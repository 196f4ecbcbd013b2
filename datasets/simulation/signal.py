"""Signals: motifs that the sequences of some repertoires carry, and the compiled code that implants them.

Letters: n sequences, R residues, S signals, M motifs of all signals, V variants of all motifs, L positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.compilation import njit, run_in_blocks
from deeprc.datasets.alphabet import AMINO_ACIDS, compute_offsets
from deeprc.datasets.counters import draw_uniform, draw_word
from deeprc.datasets.simulation.imgt import list_imgt_positions
from deeprc.datasets.simulation.motif import GAP, WILDCARD, Motif
from deeprc.errors import InputError

__all__ = ["Implanter", "Implants", "MotifSignal", "check_share"]

_LONGEST = 256
_BLOCK = 16_384  # number of sequences that one thread treats at a time
_ANYWHERE, _CENTRE, _IMGT = range(3)

_FLIPPED_BITS = np.uint64(0xA5A5A5A5A5A5A5A5)  # of the key of a repertoire; the result gives the keys of its witnesses

# What each random number of a witness is for, by its index.
_MOTIF, _VARIANT, _START, _OTHER_START, _IS_ALTERED, _ALTERED_POSITION, _NEW_RESIDUE = range(1, 8)
# For wildcards and for noise, each position in the variant has a random number: these indices plus the position.
_FIRST_WILDCARD = 16
_FIRST_NOISE = 48

_ROUNDING = 1e-9
_N_LETTERS = len(AMINO_ACIDS)


def check_share(signal: str, name: str, value: float) -> None:
    """Raise InputError unless a value of the signal with this name lies between 0 and 1."""
    if not 0 <= value <= 1:
        raise InputError(f"signal {signal!r}: {name}: expected 0 to 1, found {value}")


@dataclass(frozen=True)
class MotifSignal:
    """A signal of short motifs, which some sequences of the repertoires of one class carry.

    A sequence carries at most one signal.

    Attributes
    ----------
    motifs
        Motifs of the signal. Each witness gets one of them, drawn by their weights.
    witness_rate
        Probability that a sequence of a repertoire with this signal is a witness.
    position
        Place of the motif in the sequence. `anywhere`: all positions at which it fits are equally likely. `centre`: the
        centre. `imgt`: an IMGT position of the junction, drawn by `imgt_positions`; the conserved residues at the ends
        are never changed.
    imgt_positions
        Probability of each IMGT position of the motif's first residue. With the probability that is missing to 1, and
        if the motif does not fit at the position that was drawn, one of the other positions is taken; all are equally
        likely.
    status, prevalence
        Class whose repertoires carry the signal, and share of its repertoires that do.
    name
        Name of the signal in the truth.
    """

    motifs: tuple[Motif, ...]
    witness_rate: float
    position: Literal["anywhere", "centre", "imgt"] = "anywhere"
    imgt_positions: Mapping[str, float] = field(default_factory=dict)
    status: Literal["positive", "negative"] = "positive"
    prevalence: float = 1.0
    name: str = "signal"

    def __post_init__(self) -> None:
        if not self.motifs:
            raise InputError(f"signal {self.name!r}: expected at least one motif")
        for name in ("witness_rate", "prevalence"):
            check_share(self.name, name, getattr(self, name))
        if bool(self.imgt_positions) != (self.position == "imgt"):
            raise InputError(f"signal {self.name!r}: imgt_positions are needed with `position: imgt`, and only there")
        allowed = set(list_imgt_positions(_LONGEST)[1:-1])
        for name, probability in self.imgt_positions.items():
            if name not in allowed or not 0 <= probability <= 1:
                raise InputError(
                    f"signal {self.name!r}: imgt_positions: expected positions of the CDR3, 105 to 117, and "
                    f"probabilities; found {name!r}: {probability}"
                )
        if sum(self.imgt_positions.values()) > 1 + _ROUNDING:
            raise InputError(f"signal {self.name!r}: imgt_positions: expected at most 1 in total")


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
    """The signals as arrays for compiled code; `first_*` are the offsets of each parent's children."""

    modes: NDArray[np.int64]  # (S,)
    first_motifs: NDArray[np.int64]  # (S + 1,)
    motif_bounds: NDArray[np.float64]  # (M,) cumulated within the signal
    first_variants: NDArray[np.int64]  # (M + 1,)
    variant_bounds: NDArray[np.float64]  # (V,) cumulated within the motif
    codes: NDArray[np.int8]  # (V, L)
    positions: NDArray[np.int8]  # (V, L) in the pattern
    code_lengths: NDArray[np.int64]  # (V,)
    substitution_bounds: NDArray[np.float64]  # (M, L) cumulated
    alteration_rates: NDArray[np.float64]  # (M,)
    noises: NDArray[np.float64]  # (M,)
    starts: NDArray[np.int64]  # (S, _LONGEST + 1, K): index of each IMGT position by the junction's length, or -1
    start_bounds: NDArray[np.float64]  # (S, K) cumulated


class _Sequences(NamedTuple):
    """n sequences that lie end to end: residues (R,), offsets (n + 1,)."""

    residues: NDArray[np.uint8]
    offsets: NDArray[np.int64]


class Implanter:
    """An object that implants the signals of a cohort; it is made once, because it compiles them to tables."""

    def __init__(self, signals: Sequence[MotifSignal]) -> None:
        self.signals = tuple(signals)
        self._tables = _compile_signals(self.signals)

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


def _compile_signals(signals: Sequence[MotifSignal]) -> _Tables:
    """Return the signals as arrays for compiled code."""
    motifs = [motif for signal in signals for motif in signal.motifs]
    variants = [variant for motif in motifs for variant in motif.variants]
    longest = max((len(variant.codes) for variant in variants), default=1)
    codes, positions = (np.full((len(variants), longest), -1, np.int8) for _ in range(2))
    for v, variant in enumerate(variants):
        codes[v, : len(variant.codes)] = variant.codes
        positions[v, : len(variant.positions)] = variant.positions
    pattern_length = max((len(motif.substitutions) for motif in motifs), default=0)
    substitutions = np.zeros((len(motifs), pattern_length))
    for m, motif in enumerate(motifs):
        substitutions[m, : len(motif.substitutions)] = motif.substitutions
    n_positions = max((len(signal.imgt_positions) for signal in signals), default=0)
    starts = np.full((len(signals), _LONGEST + 1, n_positions), -1)
    start_bounds = np.zeros((len(signals), n_positions))
    for i, signal in enumerate(signals):
        for k, (name, probability) in enumerate(sorted(signal.imgt_positions.items())):  # the order means nothing
            start_bounds[i, k] = probability
            for length in range(2, _LONGEST + 1):
                names_of_length = list_imgt_positions(length)
                starts[i, length, k] = names_of_length.index(name) if name in names_of_length else -1
    modes = {"anywhere": _ANYWHERE, "centre": _CENTRE, "imgt": _IMGT}
    return _Tables(
        modes=np.array([modes[signal.position] for signal in signals], np.int64),
        first_motifs=compute_offsets(np.array([len(signal.motifs) for signal in signals], np.int64)),
        motif_bounds=_cumulate_groups([[motif.weight for motif in signal.motifs] for signal in signals]),
        first_variants=compute_offsets(np.array([len(motif.variants) for motif in motifs], np.int64)),
        variant_bounds=_cumulate_groups([[variant.probability for variant in motif.variants] for motif in motifs]),
        codes=codes,
        positions=positions,
        code_lengths=np.array([len(variant.codes) for variant in variants], np.int64),
        substitution_bounds=np.cumsum(substitutions, axis=1),
        alteration_rates=np.array([motif.alteration_rate for motif in motifs], np.float64),
        noises=np.array([motif.noise for motif in motifs], np.float64),
        starts=starts,
        start_bounds=np.cumsum(start_bounds, axis=1),
    )


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
    for at in range(first, stop):
        if u < bounds[at]:
            return at
    return stop


@njit()
def _draw_start(
    mode: int, length: int, size: int, starts: NDArray[np.int64], bounds: NDArray[np.float64], witness_key: int
) -> int:
    """Return the index at which a motif of this size begins in a sequence; -1 if it does not fit."""
    if mode == _CENTRE:
        return (length - size) // 2 if size <= length else -1
    if mode == _ANYWHERE:
        return int(draw_uniform(witness_key, _START) * (length - size + 1)) if size <= length else -1
    n_starts = length - 2 - size + 1  # the conserved residues at both ends stay
    if n_starts < 1 or length >= len(starts):
        return -1
    drawn = _choose_index(bounds, 0, len(bounds), draw_uniform(witness_key, _START))
    if drawn < len(bounds) and 1 <= starts[length, drawn] <= n_starts:
        return starts[length, drawn]  # type: ignore[no-any-return]
    n_others = 0  # starts that have no probability of their own
    for start in range(1, n_starts + 1):
        n_others += not _is_one_of(start, starts[length])
    if n_others == 0:
        return 1 + int(draw_uniform(witness_key, _OTHER_START) * n_starts)
    rank = int(draw_uniform(witness_key, _OTHER_START) * n_others)
    for start in range(1, n_starts + 1):
        if not _is_one_of(start, starts[length]):
            if rank == 0:
                return start
            rank -= 1
    return -1


@njit()
def _is_one_of(value: int, values: NDArray[np.int64]) -> bool:
    is_one = False
    for other in values:
        is_one |= other == value
    return is_one


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

    Each witness has random numbers of its own, one for each purpose: see `_MOTIF` and the constants after it.

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
        u = draw_uniform(key, rows[n])
        if u >= bounds[-1]:
            continue
        signal = _choose_index(bounds, 0, len(bounds), u)
        witness_key = draw_word(key ^ _FLIPPED_BITS, rows[n])
        u = draw_uniform(witness_key, _MOTIF)
        motif = _choose_index(tables.motif_bounds, tables.first_motifs[signal], tables.first_motifs[signal + 1], u)
        u = draw_uniform(witness_key, _VARIANT)
        variant = _choose_index(
            tables.variant_bounds, tables.first_variants[motif], tables.first_variants[motif + 1], u
        )
        size = tables.code_lengths[variant]
        length = offsets[n + 1] - offsets[n]
        start = _draw_start(
            tables.modes[signal], length, size, tables.starts[signal], tables.start_bounds[signal], witness_key
        )
        if start < 0:
            continue
        altered = -1  # position in the pattern
        substitutions = tables.substitution_bounds[motif]
        if len(substitutions) and draw_uniform(witness_key, _IS_ALTERED) < tables.alteration_rates[motif]:
            position = _choose_index(substitutions, 0, len(substitutions), draw_uniform(witness_key, _ALTERED_POSITION))
            altered = position if position < len(substitutions) else -1
        for i in range(size):
            code = tables.codes[variant, i]
            if code == GAP:
                continue
            if code == WILDCARD:
                code = int(draw_uniform(witness_key, _FIRST_WILDCARD + i) * _N_LETTERS)
            elif tables.positions[variant, i] == altered:
                code = (code + 1 + int(draw_uniform(witness_key, _NEW_RESIDUE) * (_N_LETTERS - 1))) % _N_LETTERS
            elif tables.noises[motif] > 0 and draw_uniform(witness_key, _FIRST_NOISE + i) < tables.noises[motif]:
                continue
            residues[offsets[n] + start + i] = code
        truth.signal[n] = signal + 1
        truth.motif[n] = motif
        truth.start[n] = start
