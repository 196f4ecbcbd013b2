"""Variants of motifs: a motif without one of its positions, or with one more, where any residue may be.

Real and simulated motifs vary in length. A variant of a motif is often too weak to be found among all k-mers, but the
variants of the motifs that were found are few, so each needs less evidence.

Letters: B repertoires, N sequences of all repertoires, n variants, P permutations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from deeprc.arrays import Flags, Floats
from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.training.discoveries import N_DISCOVERY_PERMUTATIONS, FalseDiscoveryTest
from deeprc.training.kmer_correlations import correlate_columns
from deeprc.training.kmer_frequencies import count_flagged
from deeprc.training.kmer_occurrences import find_occurrences
from deeprc.training.kmer_sets import ANY, KmerSet, Spacing, compute_code, find_spacing
from deeprc.training.search_outputs import SearchOutputs

__all__ = ["MotifVariant", "find_variants", "list_variants"]

Letters = tuple[int, ...]


class MotifVariant(NamedTuple):
    """A variant of a motif that is associated with the label.

    `letters` are amino-acid indices, `ANY` for any residue; `correlation` is that of its frequency with the label, and
    `q_value` the false discovery rate among all variants.
    """

    letters: Letters
    correlation: float
    q_value: float


def list_variants(letters: Letters) -> list[Letters]:
    """Return the variants of a motif, each once: without one inner position, or with one more between two positions."""
    shorter = [letters[:i] + letters[i + 1 :] for i in range(1, len(letters) - 1)]
    longer = [(*letters[:i], ANY, *letters[i:]) for i in range(1, len(letters))]
    return list(dict.fromkeys(shorter + longer))


def find_variants(
    motifs: Mapping[Letters, float],
    search_output: SearchOutputs,
    spacings: Sequence[Spacing],
    has_motif: Flags,
    *,
    level: float,
    rng: np.random.Generator,
) -> list[MotifVariant]:
    """Return the variants of motifs that are associated with the label in the same direction, strongest first.

    Only sequences without any of the motifs count. The frequency of each variant is correlated with the label. Variants
    that have the direction of their motif are compared with permutations of the label. A variant is returned if its
    false discovery rate among them is at most the level. The rate of a single variant is at least 1 / 2001.

    Parameters
    ----------
    motifs
        Correlation of each motif with the label, by its letters.
    search_output
        One output with its repertoires.
    spacings
        Spacings of the search; variants with other spacings are left out.
    has_motif
        Whether each sequence has one of the motifs, (N,).
    level
        Largest false discovery rate.
    rng
        Random generator of the permutations.
    """
    signs: dict[Letters, set[float]] = {}  # directions of the motifs of which each variant is one
    for letters, correlation in motifs.items():
        for variant in list_variants(letters):
            signs.setdefault(variant, set()).add(float(np.sign(correlation)))
    index_of = {spacing: i for i, spacing in enumerate(spacings)}
    searched = [variant for variant in signs if variant not in motifs and find_spacing(variant) in index_of]
    sizes = search_output.dataset.n_sequences
    n_free = sizes - count_flagged(has_motif, compute_offsets(sizes))
    if not searched or not n_free.any():
        return []
    spacing_index = np.array([index_of[find_spacing(variant)] for variant in searched], np.int64)
    kmers = KmerSet(spacings, spacing_index, np.array([compute_code(variant) for variant in searched], np.int64))
    counts = _count_free(search_output.dataset, kmers, has_motif)
    weights = search_output.compute_weights(n_free)
    labels = search_output.permute_labels(N_DISCOVERY_PERMUTATIONS, rng)[:, 0]  # (B, 1 + P)
    frequencies = counts / np.maximum(n_free, 1)[:, None]
    (r,) = correlate_columns(labels[:, :1], frequencies, weights)
    tested = {variant: i for i, variant in enumerate(searched) if float(np.sign(r[i])) in signs[variant]}
    tests = FalseDiscoveryTest(frequencies[:, list(tested.values())], labels, weights, level)
    numbers = zip(tested, tests.correlation, tests.compute_q_values(tests.correlation), strict=True)
    variants = [
        MotifVariant(letters, float(correlation), float(rate))
        for letters, correlation, rate in numbers
        if rate <= level
    ]
    return sorted(variants, key=lambda variant: -abs(variant.correlation))


def _count_free(dataset: RepertoireDataset, kmers: KmerSet, has_motif: Flags) -> Floats:
    """Return how often each of n k-mers occurs in the sequences without any of the motifs, (B, n).

    As many k-mers are counted in one pass as their occurrences fit into memory. One that does not fit alone has 0.
    """
    counts, waiting = np.zeros((len(dataset), len(kmers))), np.arange(len(kmers))
    while len(waiting):
        occurrences = find_occurrences(dataset, kmers.take(waiting))
        counts[:, waiting] += occurrences.tabulate(len(dataset), ~has_motif[occurrences.sequence])
        if not occurrences.was_searched.any():
            break
        waiting = waiting[~occurrences.was_searched]
    return counts
