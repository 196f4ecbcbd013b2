"""Forms of motifs: a motif without one of its positions, or with one more, where any residue may be.

Real and simulated motifs vary in length. A form of a motif is often too weak to be found among all k-mers, but the
forms of the motifs that were found are few, so each needs less evidence.

Letters: B repertoires, N sequences of all repertoires, n forms, P permutations.
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

__all__ = ["Form", "find_forms", "list_forms"]

Letters = tuple[int, ...]


class Form(NamedTuple):
    """A form of a motif that is associated with the label.

    `letters` are amino-acid indices, `ANY` for any residue; `correlation` is that of its frequency with the label, and
    `q_value` the false discovery rate among all forms.
    """

    letters: Letters
    correlation: float
    q_value: float


def list_forms(letters: Letters) -> list[Letters]:
    """Return the forms of a motif, each once: without one inner position, and with one more between two positions."""
    shorter = [letters[:i] + letters[i + 1 :] for i in range(1, len(letters) - 1)]
    longer = [(*letters[:i], ANY, *letters[i:]) for i in range(1, len(letters))]
    return list(dict.fromkeys(shorter + longer))


def find_forms(
    motifs: Mapping[Letters, float],
    search_output: SearchOutputs,
    spacings: Sequence[Spacing],
    has_motif: Flags,
    *,
    level: float,
    rng: np.random.Generator,
) -> list[Form]:
    """Return the forms of motifs that are associated with the label in the same direction, strongest first.

    Only sequences without any of the motifs count. The frequency of each form is correlated with the label. Those that
    have the direction of their motif are compared with permutations of the label, and a form is returned if its false
    discovery rate among them is at most the level. The rate of a single form is at least 1 / 2001.

    Parameters
    ----------
    motifs
        Correlation of each motif with the label, by its letters.
    search_output
        One output with its repertoires.
    spacings
        Spacings of the search; forms with other spacings are left out.
    has_motif
        Whether each sequence has one of the motifs, (N,).
    level
        Largest false discovery rate.
    rng
        Random generator of the permutations.
    """
    signs: dict[Letters, set[float]] = {}  # directions of the motifs of which each form is one
    for letters, correlation in motifs.items():
        for form in list_forms(letters):
            signs.setdefault(form, set()).add(float(np.sign(correlation)))
    index_of = {spacing: i for i, spacing in enumerate(spacings)}
    searched = [form for form in signs if form not in motifs and find_spacing(form) in index_of]
    sizes = search_output.dataset.n_sequences
    n_free = sizes - count_flagged(has_motif, compute_offsets(sizes))
    if not searched or not n_free.any():
        return []
    spacing_index = np.array([index_of[find_spacing(form)] for form in searched], np.int64)
    kmers = KmerSet(spacings, spacing_index, np.array([compute_code(form) for form in searched], np.int64))
    counts = _count_free(search_output.dataset, kmers, has_motif)
    weights = search_output.compute_weights(n_free)
    labels = search_output.permute_labels(N_DISCOVERY_PERMUTATIONS, rng)[:, 0]  # (B, 1 + P)
    frequencies = counts / np.maximum(n_free, 1)[:, None]
    (r,) = correlate_columns(labels[:, :1], frequencies, weights)
    tested = {form: i for i, form in enumerate(searched) if float(np.sign(r[i])) in signs[form]}
    tests = FalseDiscoveryTest(frequencies[:, list(tested.values())], labels, weights, level)
    numbers = zip(tested, tests.correlation, tests.compute_q_values(tests.correlation), strict=True)
    forms = [Form(form, float(correlation), float(rate)) for form, correlation, rate in numbers if rate <= level]
    return sorted(forms, key=lambda form: -abs(form.correlation))


def _count_free(dataset: RepertoireDataset, kmers: KmerSet, has_motif: Flags) -> Floats:
    """Return how often each of n k-mers occurs in the sequences without any of the motifs, (B, n).

    As many k-mers are counted in one pass as their occurrences fit into memory. One that does not fit alone has 0.
    """
    counts, waiting = np.zeros((len(dataset), len(kmers))), np.arange(len(kmers))
    while len(waiting):
        found = find_occurrences(dataset, kmers.take(waiting))
        counts[:, waiting] += found.tabulate(len(dataset), ~has_motif[found.sequence])
        if not found.was_searched.any():
            break
        waiting = waiting[~found.was_searched]
    return counts
