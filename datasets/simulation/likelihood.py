"""Compute the likelihood ratio of the two classes of a cohort from its whole recipe.

No other score of a repertoire has a higher expected AUC (the lemma of Neyman and Pearson), so no method can be better.
The sequences of a repertoire are independent. If it carries signals of motifs, its log-likelihood relative to the
background is the sum over the sequences x of

    log(1 + sum over signals of witness_rate * (r(x) - f(x))).

- r(x) is the probability of x as a witness, divided by that of x in the background. It is a mean over motifs, variants
  and positions. Each residue that the motif has written contributes a factor 1 / P(residue in the background).
- f(x) is the probability that the motif fits into a sequence of this length.

For a pool of clones, the likelihood depends on which of their junctions are in the repertoire. If it is not known which
signals a repertoire carries, the likelihood is a mean over the sets that it may carry. For motifs it is exact with the
background `independent`. With other backgrounds, residues are treated as independent, with their frequencies by length
and position in sequences of the background. `docs/simulation.md` has a table of all kinds of signals.

Letters: n sequences, R residues, S signals of motifs, V variants of all motifs, L residues or positions, P clones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp

from deeprc.arrays import Floats
from deeprc.compilation import njit, run_in_blocks
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.random_numbers import derive_key
from deeprc.datasets.sequences import Sequences
from deeprc.datasets.simulation.background import Background, IndependentBackground
from deeprc.datasets.simulation.carrier_table import CarrierTable
from deeprc.datasets.simulation.clone_signal import CloneSignal
from deeprc.datasets.simulation.cohort import Cohort
from deeprc.datasets.simulation.diffuse_signal import DiffuseSignal
from deeprc.datasets.simulation.imgt import list_imgt_positions
from deeprc.datasets.simulation.motif import GAP, WILDCARD
from deeprc.datasets.simulation.motif_signal import MotifSignal
from deeprc.errors import InputError

__all__ = ["RecipeLikelihood"]

_N_LETTERS = len(AMINO_ACIDS)
_N_DRAWN = 1 << 20  # sequences from which the background's frequencies are counted
_KEY = derive_key(0, 0x11CE)  # key of these sequences, which no cohort has
_N_BORROWED = 20.0  # sequences that a length and position borrows from all others
_N_LENGTHS = 65  # lengths of a sequence, from 0 to 64 residues, and so also more than its positions
_MAX_UNCERTAIN = 10  # signals that some repertoires of a class lack; all 2 ** n sets of carried signals are summed
_NODES = 40  # points of the numerical integral over the burden of a repertoire
_MIN_PROBABILITY = 1e-12  # smallest probability that counts
_N_GRID = 2048  # scores for which the factor of a preference is computed; others are interpolated
_BLOCK = 4096  # sequences that a thread handles at a time


class _CarriedSet(NamedTuple):
    """A set of signals that a repertoire of a class may carry: its probability, and the indices of the signals."""

    probability: float
    signals: tuple[int, ...]


class RecipeLikelihood:
    """The log-likelihood ratio of a simulated cohort's classes for a repertoire.

    Parameters
    ----------
    cohort
        Simulated cohort.

    Raises
    ------
    InputError
        If the ratio cannot be computed, see `check`.
    """

    def __init__(self, cohort: Cohort) -> None:
        self.check(cohort)
        self.cohort = cohort
        self._carried_sets = {status: _list_carried_sets(cohort, status) for status in ("positive", "negative")}
        self._motif_column = {i: column for column, i in enumerate(cohort.motif_signal_indices)}
        self._motifs = _compile_motifs(cohort.motif_signals, self._residue_frequencies) if self._motif_column else None

    @staticmethod
    def check(cohort: Cohort) -> None:
        """Raise InputError if the likelihood ratio of a cohort's classes cannot be computed."""
        signals = cohort.signals
        if not signals:
            raise InputError(f"{cohort.name}: its recipe has no signal, so its classes do not differ")
        if cohort.gene_shift is not None or (cohort.batch is not None and cohort.batch.association):
            raise InputError(f"{cohort.name}: its classes differ by more than signals: a gene shift or a batch")
        for signal in signals:
            reason = ""
            if isinstance(signal, CarrierTable):
                reason = "a table, not a model, says who carries its clones"
            elif isinstance(signal, CloneSignal) and signal.variant_rate:
                reason = "its clones have variants"
            elif isinstance(signal, DiffuseSignal) and signal.repertoire_strength:
                reason = "each repertoire has preferences of its own"
            elif isinstance(signal, DiffuseSignal) and cohort.motif_signals and not cohort.exclusive:
                reason = "motifs are implanted into sequences that were chosen by preference"
            elif type(signal) not in (MotifSignal, CloneSignal, DiffuseSignal):  # a new kind of signal
                reason = f"no likelihood is known for a {type(signal).__name__}"
            if reason:
                raise InputError(f"{cohort.name}: signal {signal.name!r}: {reason}")
        for status in ("positive", "negative"):
            class_signals = [signal for signal in signals if signal.status == status and signal.prevalence < 1]
            if not cohort.exclusive and len(class_signals) > _MAX_UNCERTAIN:
                raise InputError(
                    f"{cohort.name}: expected at most {_MAX_UNCERTAIN} signals that only a part of a class carries"
                )

    def compute_log_ratio(self, sequences: Sequences, *, is_test: bool = False) -> float:
        """Return log P(sequences | positive) - log P(sequences | negative).

        Parameters
        ----------
        sequences
            The sequences of a repertoire, (n,).
        is_test
            Whether the repertoire is of the cohort's test part.
        """
        excess = np.zeros((len(sequences), 0)) if self._motifs is None else self._motifs.compute_excess(sequences)
        rates = np.array([signal.witness_rate for signal in self.cohort.motif_signals])
        ratio_of_signal = self._compute_other_ratios(sequences, is_test)
        log_likelihoods = {}
        for status, carried_sets in self._carried_sets.items():
            terms = []
            for carried in carried_sets:
                columns = [self._motif_column[i] for i in carried.signals if i in self._motif_column]
                of_motifs = float(np.log1p(excess[:, columns] @ rates[columns]).sum())
                of_others = sum(ratio_of_signal[i] for i in carried.signals if i in ratio_of_signal)
                terms.append(np.log(carried.probability) + of_motifs + of_others)
            log_likelihoods[status] = float(logsumexp(terms))
        return log_likelihoods["positive"] - log_likelihoods["negative"]

    def _compute_other_ratios(self, sequences: Sequences, is_test: bool) -> dict[int, float]:
        """Return the log-likelihood ratio of carried to not carried for each signal without motifs, by its index."""
        ratios = {}
        for i, signal in enumerate(self.cohort.signals):
            if isinstance(signal, CloneSignal):
                ratios[i] = self._compute_clone_ratio(signal, sequences, is_test)
            elif isinstance(signal, DiffuseSignal):
                ratios[i] = self._compute_preference_ratio(i, sequences)
        return ratios

    @cached_property
    def _background_sequences(self) -> Sequences:
        """Sequences of the background."""
        return self.cohort.background.draw(_KEY, np.arange(_N_DRAWN))

    @cached_property
    def _residue_frequencies(self) -> Floats:
        """The frequency of each amino acid by length of a sequence and position in it, (_N_LENGTHS, _N_LENGTHS, 20)."""
        background: Background = self.cohort.background
        if isinstance(background, IndependentBackground):
            weights = np.array([background.weights.get(letter, 0) for letter in AMINO_ACIDS], np.float64)
            # a motif may have residues that the background lacks
            shares = (weights / weights.sum()).clip(_MIN_PROBABILITY)
            return np.broadcast_to(shares, (_N_LENGTHS, _N_LENGTHS, _N_LETTERS)).copy()
        drawn = self._background_sequences
        length = np.repeat(drawn.lengths, drawn.lengths)  # (R,), as the position
        position = np.arange(len(drawn.residues)) - np.repeat(drawn.offsets[:-1], drawn.lengths)
        fits = length < _N_LENGTHS
        cell = ((length * _N_LENGTHS + position)[fits]) * _N_LETTERS + drawn.residues[fits]
        counts = np.bincount(cell, minlength=_N_LENGTHS**2 * _N_LETTERS).reshape(_N_LENGTHS, _N_LENGTHS, _N_LETTERS)
        overall = counts.sum(axis=(0, 1)) + 1.0  # of each amino acid, (20,)
        smoothed = counts + _N_BORROWED * overall / overall.sum()
        return np.asarray(smoothed / smoothed.sum(axis=2, keepdims=True))

    def _compute_clone_ratio(self, signal: CloneSignal, sequences: Sequences, is_test: bool) -> float:
        """Return the log-likelihood of the clones if a signal is carried, minus that if it is not."""
        pools = self.cohort.clone_pools
        assert pools is not None
        pool = pools.sources.index(signal)
        clones = slice(pools.offsets[pool], pools.offsets[pool + 1])
        present = set(sequences.decode())
        is_present = np.array([junction in present for junction in pools.junctions[clones]])
        absent_by_chance = np.exp(-len(sequences) * self._clone_probabilities[clones])
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)  # over z, on which the burden depends
        log_likelihoods = []
        for carries in (True, False):
            mean = signal.compute_mean_burden(carries, is_test=is_test)
            terms = []
            for z in nodes.tolist():
                incidences = signal.compute_incidences(pools.keys[pool], mean * signal.compute_burden_factor(z))
                p_absent = ((1 - incidences) * absent_by_chance).clip(_MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
                terms.append(np.where(is_present, np.log1p(-p_absent), np.log(p_absent)).sum())
            log_likelihoods.append(float(logsumexp(terms, b=weights)))
        return log_likelihoods[0] - log_likelihoods[1]

    @cached_property
    def _clone_probabilities(self) -> Floats:
        """The probability that a sequence of the background is each clone of the pools, (P of all)."""
        assert self.cohort.clone_pools is not None
        names = self.cohort.clone_pools.junctions
        known_junctions = set(names)
        counts = Counter(text for text in self._background_sequences.decode() if text in known_junctions)
        return np.array([counts[name] for name in names]) / _N_DRAWN

    def _compute_preference_ratio(self, i: int, sequences: Sequences) -> float:
        """Return the log-likelihood of sequences that were chosen by the common preference of signal i."""
        scores = self.cohort.make_common_preference(i).score_sequences(sequences)
        grid, factors = self._preference_factors[i]
        return float(np.log(np.interp(scores, grid, factors)).sum())

    @cached_property
    def _preference_factors(self) -> dict[int, tuple[Floats, Floats]]:
        """For each diffuse signal, a grid of scores and the factors by which they become more frequent, (_N_GRID,).

        Of two sequences that are drawn, the one with score s is taken with probability expit(s - other score), and it
        may be either of the two. So the factor is 2 expit(s - other score), averaged over the background.
        """
        factors = {}
        for i, signal in enumerate(self.cohort.signals):
            if isinstance(signal, DiffuseSignal):
                scores = self.cohort.make_common_preference(i).score_sequences(self._background_sequences)
                spread = scores.std()
                grid = np.linspace(scores.min() - 2 * spread, scores.max() + 2 * spread, _N_GRID)
                # shares of the scores between two points of the grid, which count as the middle
                shares = np.histogram(scores, np.append(grid, np.inf))[0] / len(scores)
                middles = grid + (grid[1] - grid[0]) / 2
                factors[i] = grid, 2 * expit(grid[:, None] - middles) @ shares
        return factors


def _list_carried_sets(cohort: Cohort, status: str) -> list[_CarriedSet]:
    """Return the sets of signals that a repertoire of a class may carry, if they are not too improbable to count."""
    prevalences = {i: signal.prevalence for i, signal in enumerate(cohort.signals) if signal.status == status}
    if cohort.exclusive:
        carried_sets = [_CarriedSet(prevalence, (i,)) for i, prevalence in prevalences.items()]
        carried_sets.append(_CarriedSet(1 - sum(prevalences.values()), ()))
    else:
        carried_sets = []
        choices = [(True,) if prevalence == 1 else (True, False) for prevalence in prevalences.values()]
        for is_carried in product(*choices):
            factors = [p if here else 1 - p for p, here in zip(prevalences.values(), is_carried, strict=True)]
            signals = tuple(i for i, here in zip(prevalences, is_carried, strict=True) if here)
            carried_sets.append(_CarriedSet(float(np.prod(factors)), signals))
    return [carried for carried in carried_sets if carried.probability > _MIN_PROBABILITY]


class _Variants(NamedTuple):
    """The V variants of all motifs as arrays for compiled code.

    Attributes
    ----------
    signals, sizes
        Index of the signal, and number of positions, of each variant, (V,) each.
    weights, noises
        Probability of each variant among those of its signal, and that a residue of the background stays, (V,) each.
    codes, alterations
        Amino acid of each position (or `WILDCARD`, `GAP`), and probability that it is the altered one, (V, L) each.
    """

    signals: NDArray[np.int64]
    sizes: NDArray[np.int64]
    weights: Floats
    codes: NDArray[np.int64]
    alterations: Floats
    noises: Floats


class _Motifs(NamedTuple):
    """Signals of motifs, as arrays for compiled code.

    Attributes
    ----------
    n_signals, variants
        Number of signals, S, and variants of all their motifs.
    starts
        Probability of each start of a variant in a sequence of each length, (V, length, start).
    frequencies
        Frequency of each amino acid in the background, (length, position, 20).
    """

    n_signals: int
    variants: _Variants
    starts: Floats
    frequencies: Floats

    def compute_excess(self, sequences: Sequences) -> Floats:
        """Return r(x) - f(x) of each sequence and signal, (n, S)."""
        excess = np.zeros((len(sequences), self.n_signals))
        arguments = (sequences.residues, sequences.offsets, self.variants, self.starts, self.frequencies, excess)
        run_in_blocks(_add_excess, len(sequences), _BLOCK, *arguments)
        return excess


def _compile_motifs(signals: Sequence[MotifSignal], frequencies: Floats) -> _Motifs:
    """Return the variants of all motifs as arrays for compiled code."""
    members = [  # each variant, with its motif and the index of its signal
        (s, motif, variant) for s, signal in enumerate(signals) for motif in signal.motifs for variant in motif.variants
    ]
    total_weights = [sum(motif.weight for motif in signal.motifs) for signal in signals]
    longest = max(len(variant.codes) for *_, variant in members)
    codes, alterations = np.full((len(members), longest), GAP, np.int64), np.zeros((len(members), longest))
    for v, (_, motif, variant) in enumerate(members):
        size = len(variant.codes)
        rates = motif.alteration_rate * np.array([*motif.substitutions, *[0.0] * len(motif.pattern)])
        codes[v, :size] = variant.codes
        alterations[v, :size] = np.where(np.array(variant.codes) < _N_LETTERS, rates[list(variant.positions)], 0.0)
    variants = _Variants(
        signals=np.array([s for s, *_ in members]),
        sizes=np.array([len(variant.codes) for *_, variant in members]),
        weights=np.array([motif.weight / total_weights[s] * variant.probability for s, motif, variant in members]),
        codes=codes,
        alterations=alterations,
        noises=np.array([motif.noise for _, motif, _ in members]),
    )
    starts = np.stack([_compute_start_probabilities(signals[s], len(variant.codes)) for s, _, variant in members])
    return _Motifs(len(signals), variants, starts, frequencies)


def _compute_start_probabilities(signal: MotifSignal, size: int) -> Floats:
    """Return the probability that a motif of this size begins at each position, (length, start)."""
    probabilities = np.zeros((_N_LENGTHS, _N_LENGTHS))
    for length in range(size, _N_LENGTHS):
        if signal.position == "anywhere":
            probabilities[length, : length - size + 1] = 1 / (length - size + 1)
        elif signal.position == "centre":
            probabilities[length, (length - size) // 2] = 1
        elif length - 2 - size + 1 >= 1:
            possible_starts = range(1, length - 2 - size + 2)  # the conserved residues at both ends stay
            names = list_imgt_positions(length)
            fixed_starts = {names.index(name): p for name, p in signal.imgt_positions.items() if name in names}
            for start in possible_starts:
                probabilities[length, start] = fixed_starts.get(start, 0.0)
            others = [start for start in possible_starts if start not in fixed_starts] or list(possible_starts)
            probabilities[length, others] += (1 - probabilities[length].sum()) / len(others)
    return probabilities


@njit(nogil=True)
def _add_excess(
    first: int,
    stop: int,
    residues: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    variants: _Variants,
    starts: Floats,
    frequencies: Floats,
    excess: Floats,
) -> None:
    """Add r(x) - f(x) of the sequences from `first` to `stop` to `excess`, (n, S)."""
    for n in range(first, stop):
        begin = offsets[n]
        length = offsets[n + 1] - begin
        if length >= len(frequencies):
            continue
        for v in range(len(variants.sizes)):
            for start in range(length - variants.sizes[v] + 1):
                probability = variants.weights[v] * starts[v, length, start]
                if probability > 0:
                    ratio = _compute_variant_ratio(residues, begin + start, v, variants, frequencies[length, start:])
                    excess[n, variants.signals[v]] += probability * (ratio - 1)


@njit(nogil=True)
def _compute_variant_ratio(
    residues: NDArray[np.uint8], begin: int, v: int, variants: _Variants, frequencies: Floats
) -> float:
    """Return the probability of the residues under a variant that begins at `begin`, over that in the background."""
    size, unaltered = variants.sizes[v], 1.0
    for i in range(size):
        unaltered -= variants.alterations[v, i]
    total = unaltered * _multiply_ratios(residues, begin, v, variants, frequencies, -1)
    for altered in range(size):
        if variants.alterations[v, altered] > 0:
            factor = _multiply_ratios(residues, begin, v, variants, frequencies, altered)
            total += variants.alterations[v, altered] * factor
    return total  # type: ignore[no-any-return]


@njit(nogil=True)
def _multiply_ratios(
    residues: NDArray[np.uint8], begin: int, v: int, variants: _Variants, frequencies: Floats, altered: int
) -> float:
    """Return the ratio of `_compute_variant_ratio` if the position `altered` is altered; -1: none is."""
    ratio = 1.0
    for i in range(variants.sizes[v]):
        code, residue = variants.codes[v, i], residues[begin + i]
        if code == GAP:
            continue
        expected = frequencies[i, residue]
        if code == WILDCARD:
            ratio *= 1 / (_N_LETTERS * expected)
        elif i == altered:
            ratio *= (residue != code) / ((_N_LETTERS - 1) * expected)
        else:
            ratio *= variants.noises[v] + (1 - variants.noises[v]) * (residue == code) / expected
        if ratio == 0:
            break
    return ratio
