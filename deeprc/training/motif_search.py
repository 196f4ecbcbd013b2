"""Search for gapped k-mers that are associated with a label, by permutation tests in a few passes over the data.

These modules divide the search, in this order:

1. `search_outputs` has the labels of the outputs.
2. `kmer_summaries` passes over the repertoires, and keeps the k-mers that are most correlated with a label.
3. `kmer_dispersion` finds k-mers that vary more between repertoires than counting explains, without labels.
4. `output_search` tests both kinds of k-mers (`permutation_tests`), and chooses motifs among them.
5. `motif_variants` searches variants of the motifs.

A training calls all this from `motif_start`. Then it tests doubtful motifs in the validation fold (`confirmation`), and
weighs the residues at gaps (`gap_weights`).

Letters: B repertoires, T' outputs of one task, P permutations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np

from deeprc.tasks import Task
from deeprc.training.enriched_motif import EnrichedMotif
from deeprc.training.kmer_dispersion import Dispersion
from deeprc.training.kmer_sets import Spacing
from deeprc.training.kmer_summaries import summarise_spacings
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.output_search import OutputSearch
from deeprc.training.permutation_tests import N_PERMUTATIONS
from deeprc.training.search_outputs import SearchOutputs, iterate_search_outputs

__all__ = ["MOTIF_LEVEL", "MotifLimits", "add_in_turn", "find_enriched_motifs"]

MOTIF_LEVEL = 0.01
"""Largest p-value of a motif that needs no further evidence; see docs/experiments.md."""


@dataclass(frozen=True)
class MotifLimits:
    """Largest number of motifs, and the evidence that a motif must have.

    Attributes
    ----------
    max_motifs
        Largest number of motifs of all outputs together.
    min_donors
        Smallest number of donors with a label: a task with fewer has no motifs. A class also has no motifs if fewer
        than 6 donors belong to it, or fewer than 6 do not.
    level
        Largest p-value of a motif.
    doubtful_level
        Largest p-value of a doubtful motif. If no output of any task has a motif, the strongest k-mer of each output is
        returned if its p-value is at most this level.
    """

    max_motifs: int
    min_donors: int = 8
    level: float = MOTIF_LEVEL
    doubtful_level: float = 0.0


def find_enriched_motifs(
    repertoires: LabelledRepertoires,
    tasks: Sequence[Task],
    *,
    spacings: Sequence[Spacing],
    limits: MotifLimits,
    seed: int = 0,
) -> list[EnrichedMotif]:
    """Return the motifs that are associated with a label, best first; an empty list if there is none.

    Each output is searched alone:

    1. **Correlate.** The frequency of each k-mer (occurrences per sequence) is correlated with the label: with
       membership in the positive class, in each class, or with the rank of the number. Small repertoires, whose
       frequencies vary by chance, have a smaller weight.
    2. **Compare with chance.** The same is done with labels that are permuted among repertoires of about the same size.
       The strongest correlation of all k-mers in each permutation gives the p-values of Westfall and Young. They hold
       for all k-mers together, whatever their distributions and dependences, and are multiplied by the number of
       outputs.
    3. **Test overdispersed k-mers.** A motif in few repertoires cannot have the strongest correlation of all k-mers. So
       k-mers that vary more between repertoires than counting explains are also tested alone, see `Dispersion` and
       `FalseDiscoveryTest`. If there are such k-mers, all p-values of this search are multiplied by two.
    4. **Choose.** Motifs are chosen one by one, as long as the p-value is at most the level. The next motif is the
       strongest one after the sequences with a chosen motif are left out. So a motif that is shifted or shortened
       counts once, and a variant counts if it has sequences of its own.
    5. **Find variants.** Variants of the motifs, with one position more or fewer or with another residue, are tested
       among each other, see `find_all_variants`. In the result, they follow the motifs of all outputs.

    Parameters
    ----------
    repertoires
        Repertoires to learn from, and no others, with their labels and donors. Empty repertoires are ignored.
    tasks
        Tasks of the labels.
    spacings
        Spacings of the k-mers.
    limits
        Largest number of motifs, and largest p-values.
    seed
        Seed of the permutations.
    """
    if not spacings or limits.max_motifs < 1:
        return []
    rng, variant_rng = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    all_search_outputs = list(iterate_search_outputs(repertoires, tasks, max(limits.min_donors, 2)))
    n_outputs = sum(len(search_outputs.outputs) for search_outputs in all_search_outputs)
    motifs_by_output: list[list[EnrichedMotif]] = []
    variants_by_output: list[list[EnrichedMotif]] = []
    best_by_output: list[EnrichedMotif] = []  # the best k-mer of each output, significant or not
    for search_outputs in all_search_outputs:
        for search in _start_searches(search_outputs, spacings, limits.level / n_outputs, rng):
            best_by_output.append(search.find_best_motif())
            motifs, has_motif = search.choose_motifs(limits.max_motifs)
            motifs_by_output.append(motifs)
            if 0 < len(motifs) < limits.max_motifs:
                room = limits.max_motifs - len(motifs)
                variants_by_output.append(search.find_variants(motifs, has_motif, room, variant_rng))
    if not any(motifs_by_output):
        motifs_by_output = [[motif] for motif in best_by_output if motif.p_value <= limits.doubtful_level / n_outputs]
    chosen: dict[tuple[int, ...], EnrichedMotif] = {}
    add_in_turn(chosen, motifs_by_output, limits.max_motifs)
    add_in_turn(chosen, variants_by_output, limits.max_motifs)
    return [replace(motif, p_value=motif.p_value * n_outputs) for motif in chosen.values()]


def _start_searches(
    search_outputs: SearchOutputs, spacings: Sequence[Spacing], level: float, rng: np.random.Generator
) -> Iterator[OutputSearch]:
    """Yield a search for each of these outputs, after one pass with the true and the permuted labels of all."""
    labels = search_outputs.permute_labels(N_PERMUTATIONS, rng)  # (B, T', 1 + P)
    weights = search_outputs.compute_weights()
    summaries = summarise_spacings(search_outputs.dataset, spacings, labels, weights, with_moments=True)
    dispersion = Dispersion(spacings, weights, search_outputs.dataset.n_sequences, search_outputs.donors)
    for summary in summaries:
        dispersion.add_moments(summary.spacing_index, summary.mean, summary.variance)
    overdispersed = dispersion.find_overdispersed(search_outputs.dataset)
    for i in range(len(search_outputs.outputs)):
        strongest = [(summary.spacing_index, summary.by_output[i]) for summary in summaries]
        yield OutputSearch(search_outputs.take([i]), spacings, level, strongest, overdispersed, rng)


def add_in_turn(
    chosen: dict[tuple[int, ...], EnrichedMotif], motifs_by_output: Sequence[Sequence[EnrichedMotif]], max_motifs: int
) -> None:
    """Add the best motif of each output, then the second best of each, and so on; each motif only once.

    Within a round, the motif with the smallest p-value comes first.
    """
    for motifs in zip_longest(*motifs_by_output):
        for motif in sorted(filter(None, motifs), key=lambda motif: motif.p_value):
            if len(chosen) < max_motifs:
                chosen.setdefault(motif.letters, motif)
