"""Signals of public clones: whole receptors that some repertoires carry, each as one sequence.

Letters: P clones of a pool, K clones that a repertoire carries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.random_numbers import derive_key, draw_uniforms
from deeprc.datasets.sequences import Sequences
from deeprc.datasets.simulation.background import Background, draw_standard_normals
from deeprc.datasets.simulation.pool import shuffle_rows
from deeprc.datasets.simulation.signal_checks import check_share
from deeprc.errors import InputError

__all__ = ["MAX_CLONES", "CarriedClones", "ClonePools", "CloneSignal", "CloneSource"]

MAX_CLONES = 30_000  # the index of a motif or clone is an int16
_MAX_DRAWS = 100  # largest number of sequences that are drawn to make a pool, as a multiple of its size
_POOL, _INCIDENCE, _BURDEN, _CARRIED, _ROWS, _VARIANT = range(6)


@dataclass(frozen=True)
class CloneSignal:
    """A pool of clones from the background, of which the repertoires of one class carry more than the others.

    A repertoire carries each clone of the pool independently, as exactly one sequence. The probability is the clone's
    incidence times a factor of the repertoire. Both vary, as in real cohorts. Example: 164 clones are associated with
    CMV (Emerson et al. 2017). Each of them is in 4 to 28% of the infected donors, and an infected donor has 13 of them,
    with a standard deviation of 6.4.

    Attributes
    ----------
    n_clones
        Number of clones in the pool, P.
    burden
        Mean number of the pool's clones in a repertoire that carries the signal.
    other_burden
        Mean number of them in every other repertoire.
    test_burden
        Mean number of them in a repertoire of the cohort's test part that carries the signal. The number in the other
        repertoires of this part changes by the same factor. None: both are as in the training part.
    incidence_sd
        Standard deviation of the logarithm of the clones' incidences.
    burden_sd
        Standard deviation of the logarithm of the repertoires' factors, whose mean is 1.
    variant_rate
        Probability that a carrier has a variant: one substitution between the junction's conserved ends.
    status, prevalence
        Class whose repertoires carry the signal, and share of them that does.
    name
        Name of the signal in the truth.
    """

    n_clones: int
    burden: float
    other_burden: float = 0.0
    test_burden: float | None = None
    incidence_sd: float = 1.0
    burden_sd: float = 0.4
    variant_rate: float = 0.0
    status: Literal["positive", "negative"] = "positive"
    prevalence: float = 1.0
    name: str = "clones"

    def __post_init__(self) -> None:
        if not 1 <= self.n_clones <= MAX_CLONES:
            raise InputError(f"signal {self.name!r}: n_clones: expected 1 to {MAX_CLONES:,}, found {self.n_clones}")
        for name in ("burden", "other_burden", "test_burden"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= self.n_clones:
                raise InputError(f"signal {self.name!r}: {name}: expected 0 to n_clones, found {value}")
        if self.test_burden is not None and not self.burden:
            raise InputError(f"signal {self.name!r}: a test_burden needs a burden above 0")
        for name in ("incidence_sd", "burden_sd"):
            if not 0 <= getattr(self, name) <= 5:
                raise InputError(f"signal {self.name!r}: {name}: expected 0 to 5, found {getattr(self, name)}")
        check_share(self.name, "variant_rate", self.variant_rate)
        check_share(self.name, "prevalence", self.prevalence)

    def make_pool(self, background: Background, key: int) -> Sequences:
        """Return the P clones of the pool, all with different junctions, drawn from a background."""
        row_of: dict[str, int] = {}
        for n in (2 * self.n_clones, _MAX_DRAWS * self.n_clones):
            drawn = background.draw(derive_key(key, _POOL), np.arange(n))
            row_of = {}
            for row, junction in enumerate(drawn.decode()):
                row_of.setdefault(junction, row)
            if len(row_of) >= self.n_clones:
                return drawn.take(np.array(list(row_of.values())[: self.n_clones]))
        raise InputError(f"signal {self.name!r}: the background has only {len(row_of)} different junctions")

    def compute_mean_burden(self, carries: bool, *, is_test: bool = False) -> float:
        """Return the mean number of clones of the repertoires that carry the signal, or of the others."""
        burden = self.burden if carries else self.other_burden
        return burden * self.test_burden / self.burden if is_test and self.test_burden is not None else burden

    def compute_burden_factor(self, z: float) -> float:
        """Return the factor of a repertoire's burden for a standard normal number z; the mean factor is 1."""
        return float(np.exp(self.burden_sd * (z - self.burden_sd / 2)))

    def compute_incidences(self, key: int, burden: float) -> NDArray[np.float64]:
        """Return the probability that a repertoire with this burden carries each clone, (P,)."""
        weights = np.exp(
            self.incidence_sd * draw_standard_normals(derive_key(key, _INCIDENCE), np.arange(self.n_clones))
        )
        return _scale_incidences(weights, burden)

    def draw_clones(self, key: int, repertoire: int, carries: bool, *, is_test: bool = False) -> NDArray[np.int64]:
        """Return which of the P clones are in one repertoire, as indices (K,); see `CloneSource.draw_clones`."""
        z = float(draw_standard_normals(derive_key(key, _BURDEN), np.array([repertoire]))[0])
        burden = self.compute_mean_burden(carries, is_test=is_test) * self.compute_burden_factor(z)
        u = draw_uniforms(derive_key(key, _CARRIED, repertoire), np.arange(self.n_clones))
        return np.flatnonzero(u < self.compute_incidences(key, burden))


def _scale_incidences(weights: NDArray[np.float64], burden: float) -> NDArray[np.float64]:
    """Return probabilities, (P,), that are proportional to the weights, but at most 1, and sum to the burden."""
    burden = min(burden, len(weights))
    incidences = burden * weights / weights.sum()
    while incidences.max() > 1:
        full = incidences >= 1
        rest = np.where(full, 0.0, weights)
        incidences = np.where(full, 1.0, (burden - full.sum()) * rest / max(rest.sum(), 1e-300))
    return np.asarray(incidences)


class CloneSource(Protocol):
    """A signal of public clones."""

    @property
    def variant_rate(self) -> float:
        """Probability that a carrier has a variant of the clone."""

    def make_pool(self, background: Background, key: int) -> Sequences:
        """Return the P clones of a cohort, whose random numbers depend on `key`."""

    def draw_clones(self, key: int, repertoire: int, carries: bool, *, is_test: bool = False) -> NDArray[np.int64]:
        """Return which of the P clones are in one repertoire, as indices (K,).

        Parameters
        ----------
        key
            Key of the cohort, on which the random numbers depend.
        repertoire
            Index of the repertoire.
        carries
            Whether the repertoire carries the signal.
        is_test
            Whether it is of the test part.
        """


class CarriedClones(NamedTuple):
    """The K clones of one repertoire.

    Attributes
    ----------
    rows
        Indices of the sequences of the repertoire that they replace, all different, (K,).
    sequences
        Clones, or variants of them, (K,).
    signal
        Index of the signal of each clone among the sources, (K,).
    clone
        Index of each clone among those of all sources, (K,).
    """

    rows: NDArray[np.int64]
    sequences: Sequences
    signal: NDArray[np.int64]
    clone: NDArray[np.int64]


class ClonePools:
    """The clones of all signals of a cohort, drawn or read once.

    Parameters
    ----------
    sources
        Signals of public clones.
    background
        Background from which the cohort's sequences are drawn.
    keys
        Key of 64 bits for each signal.
    """

    def __init__(self, sources: Sequence[CloneSource], background: Background, keys: Sequence[int]) -> None:
        self.sources, self.keys = tuple(sources), tuple(keys)
        pools = [source.make_pool(background, key) for source, key in zip(sources, keys, strict=True)]
        self.clones = Sequences.concatenate(pools)
        self.offsets = compute_offsets(np.array([len(pool) for pool in pools], np.int64))  # of the pools in `clones`
        if self.offsets[-1] > MAX_CLONES:
            raise InputError(f"signals: expected at most {MAX_CLONES:,} clones in total, found {self.offsets[-1]:,}")

    @cached_property
    def junctions(self) -> list[str]:
        """The junctions of all clones."""
        return self.clones.decode()

    def draw_clones(
        self, repertoire: int, size: int, carries: Sequence[bool], *, is_test: bool = False
    ) -> CarriedClones:
        """Return the clones of one repertoire; if it has fewer sequences than clones, the first of them.

        Parameters
        ----------
        repertoire
            Index of the repertoire.
        size
            Number of its sequences.
        carries
            Whether it carries each of the signals.
        is_test
            Whether it is of the cohort's test part.
        """
        clones_of_signals = [
            source.draw_clones(key, repertoire, here, is_test=is_test)
            for source, key, here in zip(self.sources, self.keys, carries, strict=True)
        ]
        signal = np.repeat(np.arange(len(clones_of_signals)), [len(clones) for clones in clones_of_signals])[:size]
        clone = np.concatenate(
            [offset + clones for offset, clones in zip(self.offsets[:-1], clones_of_signals, strict=True)]
        )[:size]
        key = derive_key(self.keys[0], _ROWS, repertoire)
        rates = np.array([source.variant_rate for source in self.sources])[signal]
        sequences = _replace_by_variants(self.clones.take(clone), rates, key)
        return CarriedClones(shuffle_rows(key, np.arange(len(clone)), size), sequences, signal, clone)


def _replace_by_variants(clones: Sequences, rates: NDArray[np.float64], key: int) -> Sequences:
    """Return K clones, each of which is replaced by a variant with a given probability, (K,).

    A variant has one other amino acid at a position that is not the first or the last. Junctions shorter than three
    residues stay as they are.
    """
    u, position, change = (
        draw_uniforms(derive_key(key, _VARIANT, purpose), np.arange(len(clones))) for purpose in range(3)
    )
    rows = np.flatnonzero((u < rates) & (clones.lengths > 2))
    residue_index = clones.offsets[rows] + 1 + (position[rows] * (clones.lengths[rows] - 2)).astype(np.int64)
    residues = clones.residues.copy()
    residues[residue_index] = (residues[residue_index] + 1 + (change[rows] * 19).astype(np.uint8)) % 20
    return replace(clones, residues=residues)
