"""Diffuse signals: many k-mers and genes of a repertoire are each slightly more or less frequent.

Letters: n sequences, R residues.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.categorical import Categorical
from deeprc.datasets.random_numbers import derive_key, draw_uniforms
from deeprc.datasets.sequences import Sequences
from deeprc.datasets.simulation.background import draw_standard_normals
from deeprc.datasets.simulation.signal_checks import check_share
from deeprc.errors import InputError

__all__ = ["DiffuseSignal", "SequencePreference", "choose_second_draws"]

_RESIDUES = 20
_MAX_K = 4
_MAX_STRENGTH = 10.0
_KMERS, _GENES, _CHOICE = range(3)


@dataclass(frozen=True)
class DiffuseSignal:
    """A signal: repertoires of one class slightly prefer sequences with certain k-mers and genes.

    Every k-mer and every gene has a random weight from a standard normal distribution, the same in all repertoires. The
    score of a sequence has two terms: the sum of the weights of its k-mers, divided by the root of their number, and
    the weights of its genes. `gene_share` is the share of the genes in the variance of the score.

    For each sequence of a repertoire, two are drawn. The second is taken with the probability
    1 / (1 + exp(-strength * (its score - the score of the first))). Each repertoire also has a score of its own, of
    strength `repertoire_strength`, because donors also differ for reasons other than their class.

    Attributes
    ----------
    strength
        Strength of the common score in repertoires that carry the signal.
    repertoire_strength
        Strength of every repertoire's own score, whatever its class.
    k
        Number of residues of a k-mer.
    gene_share
        Share of the score's variance that comes from V and J genes, if the background has genes.
    status, prevalence
        Class whose repertoires carry the signal, and share of its repertoires that do.
    name
        Name of the signal in the truth.
    """

    strength: float
    repertoire_strength: float = 0.0
    k: int = 3
    gene_share: float = 0.5
    status: Literal["positive", "negative"] = "positive"
    prevalence: float = 1.0
    name: str = "diffuse"

    def __post_init__(self) -> None:
        for name in ("strength", "repertoire_strength"):
            if not 0 <= getattr(self, name) <= _MAX_STRENGTH:
                raise InputError(
                    f"signal {self.name!r}: {name}: expected 0 to {_MAX_STRENGTH:g}, found {getattr(self, name)}"
                )
        if not 1 <= self.k <= _MAX_K:
            raise InputError(f"signal {self.name!r}: k: expected 1 to {_MAX_K}, found {self.k}")
        check_share(self.name, "gene_share", self.gene_share)
        check_share(self.name, "prevalence", self.prevalence)


@dataclass(frozen=True)
class SequencePreference:
    """A score of sequences: a sum of random weights of k-mers and genes, which are drawn from a key.

    Attributes
    ----------
    key
        Key of the random weights.
    strength
        Factor of the score.
    k, gene_share
        Number of residues of a k-mer, and share of the genes in the variance of the score, as in `DiffuseSignal`.
    """

    key: int
    strength: float
    k: int
    gene_share: float

    def score_sequences(self, drawn: Sequences) -> NDArray[np.float64]:
        """Return the score of each sequence, (n,)."""
        n_kmers = np.maximum(drawn.lengths - self.k + 1, 0)
        sums = np.concatenate([[0.0], np.cumsum(self._weights[_encode_kmers(drawn.residues, self.k)])])
        first = np.minimum(drawn.offsets[:-1], len(sums) - 1)  # a sequence at the end may be shorter than k
        kmer_scores = (sums[first + n_kmers] - sums[first]) / np.sqrt(np.maximum(n_kmers, 1))
        genes = list(drawn.genes.values())
        if not genes:
            return np.asarray(self.strength * kmer_scores)
        gene_scores = np.sum([self._draw_gene_weights(calls) for calls in genes], axis=0) / np.sqrt(len(genes))
        share = self.gene_share
        return np.asarray(self.strength * (np.sqrt(1 - share) * kmer_scores + np.sqrt(share) * gene_scores))

    @cached_property
    def _weights(self) -> NDArray[np.float64]:
        return draw_standard_normals(derive_key(self.key, _KMERS), np.arange(_RESIDUES**self.k))

    def _draw_gene_weights(self, calls: Categorical) -> NDArray[np.float64]:
        codes = np.array([zlib.crc32(name.encode()) for name in calls.vocabulary], np.int64)
        weights = draw_standard_normals(derive_key(self.key, _GENES), codes)
        return np.asarray(weights[calls.codes])


def choose_second_draws(
    first: Sequences, second: Sequences, preferences: Sequence[SequencePreference], key: int, rows: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the indices of the sequences whose second draw replaces the first, because it is preferred.

    `first` and `second` are two draws of the same n sequences, at these rows, (n,), of the repertoire of a key.
    """
    advantage = np.sum(
        [preference.score_sequences(second) - preference.score_sequences(first) for preference in preferences], axis=0
    )
    return np.flatnonzero(draw_uniforms(derive_key(key, _CHOICE), rows) * (1 + np.exp(-advantage)) < 1)


def _encode_kmers(residues: NDArray[np.uint8], k: int) -> NDArray[np.int64]:
    """Return the index of the k-mer that begins at each residue, (R - k + 1,); some reach into the next sequence."""
    codes = np.zeros(max(len(residues) - k + 1, 0), np.int64)
    for i in range(k):
        codes = codes * _RESIDUES + residues[i : i + len(codes)]
    return codes
