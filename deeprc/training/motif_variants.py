"""Variants of motifs: a motif with one position fewer or more, or with another residue at one position.

Real motifs vary in length and in their residues. A variant of a motif is often too weak to be found among all k-mers.
But the variants of the found motifs are few, so each needs less evidence.

A sequence is free if it has none of the motifs and variants that were found before.

Letters: B repertoires, N sequences of all repertoires, n variants, P permutations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from deeprc.arrays import Flags, Floats, Integers
from deeprc.datasets.alphabet import AMINO_ACIDS, compute_offsets
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.training.enriched_motif import EnrichedMotif
from deeprc.training.kmer_frequencies import count_flagged
from deeprc.training.kmer_occurrences import find_occurrences, find_sequences_with_kmer
from deeprc.training.kmer_sets import ANY, KmerSet, Spacing, compute_code, find_spacing
from deeprc.training.permutation_tests import N_DISCOVERY_PERMUTATIONS, FalseDiscoveryTest
from deeprc.training.search_outputs import SearchOutputs

__all__ = ["find_all_variants", "find_variants", "list_length_variants", "list_substitutions"]

Letters = tuple[int, ...]
"""Amino-acid indices of a motif or variant, `ANY` for any residue."""

ListVariants = Callable[[Letters], list[Letters]]
"""A function that returns the variants of a motif: `list_length_variants` or `list_substitutions`."""

_MIN_SUBSTITUTED = 3  # smallest number of fixed residues of a motif in which one may be replaced


def list_length_variants(letters: Letters) -> list[Letters]:
    """Return the motif without one inner position, and with one more between two positions, each variant once."""
    shorter = [letters[:i] + letters[i + 1 :] for i in range(1, len(letters) - 1)]
    longer = [(*letters[:i], ANY, *letters[i:]) for i in range(1, len(letters))]
    return list(dict.fromkeys(shorter + longer))


def list_substitutions(letters: Letters) -> list[Letters]:
    """Return the motif with another residue at one of its fixed positions; none if it has only two of them.

    Two residues are in so many sequences that a substitution says little.
    """
    fixed = [i for i, letter in enumerate(letters) if letter != ANY]
    if len(fixed) < _MIN_SUBSTITUTED:
        return []
    others = range(len(AMINO_ACIDS))
    return [(*letters[:i], other, *letters[i + 1 :]) for i in fixed for other in others if other != letters[i]]


def find_all_variants(
    motifs: Sequence[EnrichedMotif],
    search_output: SearchOutputs,
    spacings: Sequence[Spacing],
    has_motif: Flags,
    *,
    max_variants: int,
    level: float,
    rng: np.random.Generator,
) -> list[EnrichedMotif]:
    """Return the variants of the motifs of one output that are associated with its label, round by round.

    1. The first round tests variants of the motifs with one position fewer or more.
    2. The second round tests variants with another residue, of the motifs and of the variants of the first round.
    3. Each further round tests variants with another residue, of the variants of the round before, until a round finds
       none.

    Sequences with a motif, or with a variant of an earlier round, are left out.

    Parameters
    ----------
    motifs
        Motifs of the output.
    search_output, spacings
        The output with its repertoires, and the spacings of the search.
    has_motif
        Whether each sequence has one of the motifs, (N,).
    max_variants
        Largest number of variants.
    level
        Largest false discovery rate among the variants of one round.
    rng
        Random generator of the permutations.
    """
    is_left_out, variants = has_motif.copy(), list[EnrichedMotif]()

    def find_round(latest: Sequence[EnrichedMotif], list_variants: ListVariants) -> list[EnrichedMotif]:
        """Find variants of the latest motifs, and leave out the sequences that have one in later rounds."""
        new_variants = find_variants(
            latest,
            search_output,
            spacings,
            is_left_out,
            list_variants,
            level=level,
            rng=rng,
            known=[*motifs, *variants],
            one_pass=list_variants is list_substitutions,  # they are many
        )[: max_variants - len(variants)]
        for variant in new_variants:
            is_left_out[:] |= find_sequences_with_kmer(search_output.dataset, variant.spacing, variant.code)
        variants.extend(new_variants)
        return new_variants

    latest = [*motifs, *find_round(motifs, list_length_variants)]
    while latest and len(variants) < max_variants:
        latest = find_round(latest, list_substitutions)
    return variants


def find_variants(
    motifs: Sequence[EnrichedMotif],
    search_output: SearchOutputs,
    spacings: Sequence[Spacing],
    has_motif: Flags,
    list_variants: ListVariants,
    *,
    level: float,
    rng: np.random.Generator,
    known: Sequence[EnrichedMotif] = (),
    one_pass: bool = False,
) -> list[EnrichedMotif]:
    """Return the variants of motifs that are associated with the label in the same direction, strongest first.

    Variants are counted in the free sequences. Their frequencies are correlated with the label, and with permutations
    of it, in the direction of their motif. A variant is returned if its false discovery rate among all variants is at
    most the level. This rate is its p-value.

    There are two tests, and the larger rate counts, because each test alone would err:

    - The first test divides the counts by the number of all sequences of a repertoire. It would find each variant rarer
      in repertoires that have more motifs.
    - The second test divides by the number of free sequences. This number depends on the label, so it makes the
      correlation a little higher than those with permuted labels. The test would call a variant significant that two
      repertoires of one class have.

    Parameters
    ----------
    motifs
        Motifs of the output.
    search_output
        One output with its repertoires.
    spacings
        Spacings of the search; variants with other spacings are left out.
    has_motif
        Whether each sequence has one of the motifs, or a variant that was found before, (N,).
    list_variants
        A function that returns the variants of a motif: `list_length_variants` or `list_substitutions`.
    level
        Largest false discovery rate.
    rng
        Random generator of the permutations.
    known
        Motifs and variants that were found before, besides `motifs`; they are not tested again.
    one_pass
        Whether to test only variants that can be counted at once, because their occurrences fit into memory together;
        those of the first motifs come first.
    """
    direction_of = _find_directions(motifs, list_variants)
    for motif in (*motifs, *known):
        direction_of.pop(motif.letters, None)
    kmers, letters = _find_kmers(direction_of, spacings)
    sizes = search_output.dataset.n_sequences
    n_free = sizes - count_flagged(has_motif, compute_offsets(sizes))
    if len(kmers) == 0 or not n_free.any():
        return []
    counts = _count_free(search_output.dataset, kmers, has_motif, one_pass=one_pass)
    labels = search_output.permute_labels(N_DISCOVERY_PERMUTATIONS, rng)[:, 0]  # (B, 1 + P)
    signs = np.array([direction_of[variant] for variant in letters])

    def test_shares(n_sequences: Integers) -> FalseDiscoveryTest:
        """Test the counts as shares of numbers of sequences, (B,)."""
        shares = counts / np.maximum(n_sequences, 1)[:, None]
        return FalseDiscoveryTest(shares, labels, search_output.compute_weights(n_sequences), level, signs)

    among_all, among_free = test_shares(sizes), test_shares(n_free)
    rates = np.maximum(among_all.compute_q_values(among_all.strength), among_free.compute_q_values(among_free.strength))
    variants = [
        EnrichedMotif(letters[i], search_output.outputs[0], float(among_free.correlation[i]), float(rates[i]))
        for i in np.flatnonzero(rates <= level)
    ]
    return sorted(variants, key=lambda variant: -abs(variant.correlation))


def _find_directions(motifs: Sequence[EnrichedMotif], list_variants: ListVariants) -> dict[Letters, float]:
    """Return the variants of motifs, with the direction of their motif: 1, -1, or 0 if they are of both directions."""
    directions_of: dict[Letters, set[float]] = {}
    for motif in motifs:
        for variant in list_variants(motif.letters):
            directions_of.setdefault(variant, set()).add(float(np.sign(motif.correlation)))
    return {variant: sum(directions) for variant, directions in directions_of.items()}  # 1 and -1 sum to 0


def _find_kmers(variants: Iterable[Letters], spacings: Sequence[Spacing]) -> tuple[KmerSet, list[Letters]]:
    """Return those of the variants that have one of the spacings, as n k-mers and as letters."""
    index_of = {spacing: i for i, spacing in enumerate(spacings)}
    letters = [variant for variant in variants if find_spacing(variant) in index_of]
    spacing_index = np.array([index_of[find_spacing(variant)] for variant in letters], np.int64)
    codes = np.array([compute_code(variant) for variant in letters], np.int64)
    return KmerSet(spacings, spacing_index, codes), letters


def _count_free(dataset: RepertoireDataset, kmers: KmerSet, has_motif: Flags, *, one_pass: bool = False) -> Floats:
    """Return how often each of n k-mers occurs in the free sequences of each repertoire, (B, n).

    As many k-mers are counted in one pass as their occurrences fit into memory. One that does not fit alone has 0. With
    `one_pass`, those that do not fit into the first pass have 0, too.
    """
    counts, waiting = np.zeros((len(dataset), len(kmers))), np.arange(len(kmers))
    while len(waiting):
        occurrences = find_occurrences(dataset, kmers.take(waiting))
        counts[:, waiting] += occurrences.tabulate(len(dataset), ~has_motif[occurrences.sequence])
        if one_pass or not occurrences.was_searched.any():
            break
        waiting = waiting[~occurrences.was_searched]
    return counts
