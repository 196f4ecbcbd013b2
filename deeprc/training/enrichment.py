"""Search for gapped k-mers that are associated with a label, by permutation tests in a few passes over the data.

Letters: B repertoires, N sequences of all repertoires, M k-mers of one spacing (one tuple of offsets), T outputs of the
network, P permutations, n candidates, W residues that a motif spans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.alphabet import AMINO_ACIDS, compute_offsets
from deeprc.tasks import Task
from deeprc.training.discoveries import N_DISCOVERY_PERMUTATIONS, FalseDiscoveries
from deeprc.training.fold import Fold
from deeprc.training.kmer_candidates import ANY, Candidates, compute_code, list_kmer_offsets
from deeprc.training.kmer_correlations import correlate_columns
from deeprc.training.kmer_dispersion import Dispersion, OverdispersedKmers
from deeprc.training.kmer_frequencies import Codes, Flags, count_flagged
from deeprc.training.kmer_occurrences import Occurrences, find_occurrences, find_sequences_with_kmer
from deeprc.training.kmer_summaries import StrongestKmers, summarise_spacings
from deeprc.training.motif_forms import find_forms
from deeprc.training.permutations import N_PERMUTATIONS, PermutationNull
from deeprc.training.search_targets import SearchTarget, iterate_targets

__all__ = [
    "MOTIF_LEVEL",
    "EnrichedMotif",
    "MotifLimits",
    "enumerate_kmer_offsets",
    "find_enriched_motifs",
]

MOTIF_LEVEL = 0.01
"""Largest p-value of a motif that needs no further evidence; see docs/experiments.md."""

Floats = NDArray[np.float64]

_MAX_CANDIDATES = 500  # candidates of one output that are compared with each other


@dataclass(frozen=True)
class EnrichedMotif:
    """A k-mer, perhaps with gaps, whose frequency is associated with a label.

    Attributes
    ----------
    letters
        Amino-acid indices, (W,); -1 stands for any residue.
    output
        Index of the output with which the motif is associated, among the outputs of all tasks.
    correlation
        Correlation of the motif's frequency with the label of the output, which is 1 for members of the class and 0 for
        others, or the rank of a number. It is negative if the motif is rarer in members. Sequences that match a stored
        clone of the network, or have a motif that was found earlier for the same output, are left out; for a form,
        those with another form are not.
    p_value
        Probability that the strongest of all k-mers has at least this correlation if labels are independent of
        sequences, computed from the same sequences as the correlation. For an overdispersed k-mer it may be a false
        discovery rate, if that is smaller; for a form of another motif it is the false discovery rate among all forms.
    gap_weights
        For each gap (a position with any residue), in their order: how strongly the motif with each of the 20 residues
        there is associated with the output, as a share of the strongest, (20,); empty where the residues do not differ
        significantly. See `deeprc.training.gap_weights`.
    """

    letters: tuple[int, ...]
    output: int
    correlation: float
    p_value: float
    gap_weights: tuple[tuple[float, ...], ...] = ()

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> EnrichedMotif:
        """Return the motif with these fields, whose lists become tuples."""
        weights = tuple(map(tuple, body.get("gap_weights", ())))
        return cls(**{**body, "letters": tuple(body["letters"]), "gap_weights": weights})

    @property
    def gaps(self) -> tuple[int, ...]:
        """Offsets of the positions with any residue."""
        return tuple(offset for offset, letter in enumerate(self.letters) if letter == ANY)

    @property
    def n_residues(self) -> int:
        """Number of fixed residues of the motif."""
        return len(self.kmer_offsets)

    @property
    def kmer_offsets(self) -> tuple[int, ...]:
        """Offsets of the fixed residues of the motif."""
        return list_kmer_offsets(self.letters)

    @property
    def code(self) -> int:
        """Index of the motif among the k-mers with its offsets, as in `deeprc.datasets.kmers.count_kmers`."""
        return compute_code(self.letters)

    @property
    def pattern(self) -> str:
        """Text of the motif, with a point for any residue."""
        return "".join("." if letter == ANY else AMINO_ACIDS[letter] for letter in self.letters)


@dataclass(frozen=True)
class MotifLimits:
    """Largest number of motifs, and the evidence that a motif must have.

    Attributes
    ----------
    max_motifs
        Largest number of motifs of all outputs together.
    min_donors
        Smallest number of donors with a label: a task with fewer has no motifs. A class also has no motifs if fewer
        than 10 donors belong to it, or fewer than 10 do not.
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


def enumerate_kmer_offsets(k: int, span: int) -> list[tuple[int, ...]]:
    """Return all offsets that k residues can have within `span` positions; the first offset is 0."""
    return [(0, *others) for others in combinations(range(1, span), k - 1)]


def find_enriched_motifs(
    fold: Fold,
    tasks: Sequence[Task],
    *,
    spacings: Sequence[Sequence[int]],
    limits: MotifLimits,
    seed: int = 0,
) -> list[EnrichedMotif]:
    """Return the motifs that are associated with a label, best first; an empty list if there is none.

    The frequency of each k-mer (occurrences per sequence) is correlated with the label: with membership in the positive
    class, in each class, or with the rank of the number. Small repertoires, whose frequencies vary by chance, have a
    smaller weight. The same is done with labels that are permuted among repertoires of about the same size. The
    strongest correlation of all k-mers in each permutation gives the p-values of Westfall and Young. They hold for all
    k-mers together, whatever their distributions and dependences, and are multiplied by the number of outputs.

    A motif in few repertoires cannot have the strongest correlation of all k-mers. So k-mers that vary more between
    repertoires than counting explains, which is known without labels, are also tested alone, see `FalseDiscoveries`. If
    there are such k-mers, all p-values of this search are multiplied by two.

    Motifs of an output are chosen one by one, as long as the p-value is at most the level. The next motif is the
    strongest one after the sequences with a chosen motif are left out. So shifted and shortened forms of one motif
    count once, and a variant counts if it has sequences of its own. Each output is searched alone. Forms of the motifs
    with one position more or fewer are tested among each other, see `deeprc.training.motif_forms`; they follow the
    motifs of all outputs.

    Parameters
    ----------
    fold
        Repertoires to learn from, and no others, with their labels and donors. Empty repertoires are ignored.
    tasks
        Tasks of the labels.
    spacings
        Offsets of the residues of k-mers, each as in `deeprc.datasets.kmers.count_kmers`.
    limits
        Largest number of motifs, and largest p-values.
    seed
        Seed of the permutations.
    """
    if not spacings or limits.max_motifs < 1:
        return []
    rng, rng_of_forms = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    targets = list(iterate_targets(fold, tasks, max(limits.min_donors, 2)))
    n_outputs = sum(len(target.outputs) for target in targets)
    found, forms, strongest = [], [], []
    for target in targets:
        for search in _start_searches(target, spacings, limits.level / n_outputs, rng):
            strongest.append(search.strongest())
            motifs, own_forms = search.find_motifs(limits.max_motifs, rng_of_forms)
            found.append(motifs)
            forms.append(own_forms)
    if not any(found):
        found = [[motif] if motif.p_value <= limits.doubtful_level / n_outputs else [] for motif in strongest]
    chosen: dict[tuple[int, ...], EnrichedMotif] = {}
    for of_outputs in (found, forms):
        _add_in_turn(chosen, of_outputs, limits.max_motifs)
    return [replace(motif, p_value=motif.p_value * n_outputs) for motif in chosen.values()]


def _start_searches(
    target: SearchTarget, spacings: Sequence[Sequence[int]], level: float, rng: np.random.Generator
) -> list[_Search]:
    """Return a search for each output of a target, after the first pass, with the true and the permuted labels."""
    columns = target.permute_labels(N_PERMUTATIONS, rng)  # (n, T', 1 + P)
    searches = [_Search(target.take([i]), spacings, level) for i in range(len(target.outputs))]
    weights = target.compute_weights()
    dispersion = Dispersion(spacings, weights, target.dataset.n_sequences, target.donors)
    for summary in summarise_spacings(target.dataset, spacings, columns, weights, with_moments=True):
        dispersion.note(summary.spacing, summary.mean, summary.variance)
        for search, strongest in zip(searches, summary.by_output, strict=True):
            search.null.add(len(spacings[summary.spacing]), strongest.largest)
            search.note_strongest(summary.spacing, strongest)
    overdispersed = dispersion.find_overdispersed(target.dataset)
    if len(overdispersed):
        for search in searches:
            search.test_overdispersed(overdispersed, rng)
    return searches


def _add_in_turn(
    chosen: dict[tuple[int, ...], EnrichedMotif], found: Sequence[Sequence[EnrichedMotif]], max_motifs: int
) -> None:
    """Add the best motif of each output, then the second best of each, and so on; each motif only once.

    Within a round, the motif with the smallest p-value comes first.
    """
    for motifs in zip_longest(*found):
        for motif in sorted(filter(None, motifs), key=lambda each: each.p_value):
            if len(chosen) < max_motifs:
                chosen.setdefault(motif.letters, motif)


class _Search:
    """The search for motifs of one output.

    Parameters
    ----------
    target
        The output, with its repertoires and the values that frequencies are correlated with, (B, 1).
    spacings
        Offsets of the residues of k-mers.
    level
        Largest p-value of a motif.
    """

    def __init__(self, target: SearchTarget, spacings: Sequence[Sequence[int]], level: float) -> None:
        self._target, self._spacings, self._level = target, spacings, level
        self._dataset, self._values = target.dataset, target.values
        self._noted: list[Candidates] = []
        self._overdispersed, self._occurrences = Candidates.none(), Occurrences.none()
        self._discoveries: FalseDiscoveries | None = None
        self.null = PermutationNull({len(kmer_offsets) for kmer_offsets in spacings}, target.n_donors)

    def note_strongest(self, spacing: int, kmers: StrongestKmers) -> None:
        """Keep the k-mers of a spacing, given by its index, with the strongest correlations."""
        n = len(kmers.code)
        self._noted.append(Candidates(np.full(n, spacing), kmers.code, kmers.correlation, np.zeros(n, np.bool_)))

    def test_overdispersed(self, kmers: OverdispersedKmers, rng: np.random.Generator) -> None:
        """Test overdispersed k-mers alone; this test and the test of all k-mers get half of the level each.

        Call it in the first pass, before any motif is chosen.
        """
        labels = self._target.permute_labels(N_DISCOVERY_PERMUTATIONS, rng)[:, 0]
        self._discoveries = FalseDiscoveries(kmers.frequencies, labels, self._target.compute_weights(), self._level / 2)
        found = Candidates(kmers.spacing, kmers.code, self._discoveries.correlation, np.ones(len(kmers), np.bool_))
        order = np.argsort(-np.abs(found.correlation), kind="stable")
        self._overdispersed, self._occurrences = found.take(order), kmers.occurrences.take(order)

    def strongest(self) -> EnrichedMotif:
        """Return the motif with the lowest p-value after the first pass; call it before `find_motifs`."""
        every = Candidates.concatenate([*self._noted, self._overdispersed]).sort()
        best = int(self._p_values(every, every.correlation).argmin())
        return self._make_motif(every, best, every.correlation)

    def find_motifs(self, max_motifs: int, rng: np.random.Generator) -> tuple[list[EnrichedMotif], list[EnrichedMotif]]:
        """Return the motifs, best first, and those of their forms that are associated with the label."""
        starts = compute_offsets(self._dataset.n_sequences)
        has_motif = np.zeros(int(starts[-1]), bool)  # whether a sequence has a chosen motif, (N,)
        chosen = self._find_independent(max_motifs, has_motif, starts)
        if not chosen or len(chosen) == max_motifs:
            return chosen, []
        known = {motif.letters: motif.correlation for motif in chosen}
        forms = find_forms(known, self._target, self._spacings, has_motif, level=self._level, rng=rng)
        output = self._target.outputs[0]
        return chosen, [EnrichedMotif(form.letters, output, form.correlation, form.rate) for form in forms]

    def _find_independent(self, max_motifs: int, has_motif: Flags, starts: Codes) -> list[EnrichedMotif]:
        """Return the motifs of `_choose` from all passes; each further pass leaves out the sequences with a motif."""
        sizes = self._dataset.n_sequences
        chosen: list[EnrichedMotif] = []
        while True:
            candidates = self._take_candidates()
            compared = candidates.take_first_of_each_sign(_MAX_CANDIDATES // 2)
            found, complete = self._choose(compared, has_motif, starts, max_motifs - len(chosen))
            chosen += found
            if not found or len(chosen) == max_motifs or (complete and len(compared) == len(candidates)):
                return chosen
            weights = self._target.compute_weights(sizes - count_flagged(has_motif, starts))
            if not weights.any():
                return chosen
            labels = self._values[:, :, None]  # (B, 1, 1), without permutations
            for summary in summarise_spacings(self._dataset, self._spacings, labels, weights, excluded=has_motif):
                self.note_strongest(summary.spacing, summary.by_output[0])

    def _take_candidates(self) -> Candidates:
        """Return the kept k-mers with a p-value of at most the level, strongest first, and forget all kept ones."""
        noted = Candidates.concatenate(self._noted).sort()
        self._noted = []
        return noted.take(self._p_values(noted, noted.correlation) <= self._level)

    def _p_values(self, candidates: Candidates, correlation: Floats) -> Floats:
        """Return the p-values that candidates have with these correlations, (n,)."""
        size = np.array([len(kmer_offsets) for kmer_offsets in self._spacings])[candidates.spacing]
        p = np.ones(len(size))
        for k in np.unique(size):
            p[size == k] = self.null.compute_p_values(int(k), correlation[size == k])
        if self._discoveries is None:
            return p
        some = candidates.overdispersed
        p[some] = np.minimum(p[some], self._discoveries.compute_adjusted_rates(correlation[some]))
        return np.asarray(np.minimum(2 * p, 1))

    def _join_overdispersed(self, candidates: Candidates) -> tuple[Candidates, Occurrences]:
        """Return the candidates, followed by the significant overdispersed k-mers, and the occurrences of them all."""
        p = self._p_values(self._overdispersed, self._overdispersed.correlation)
        significant = np.flatnonzero(p <= self._level)
        others, found = self._overdispersed.take(significant), self._occurrences.take(significant)
        own = candidates.without(others)
        if len(own):
            found = find_occurrences(self._dataset, self._spacings, own.spacing, own.code).append(found)
        return Candidates.concatenate([own, others]), found

    def _choose(
        self, candidates: Candidates, has_motif: Flags, starts: Codes, max_motifs: int
    ) -> tuple[list[EnrichedMotif], bool]:
        """Choose motifs among n candidates; return them, and whether all candidates could be compared.

        Parameters
        ----------
        candidates
            Candidate k-mers, strongest first; significant overdispersed ones are added to them.
        has_motif
            Whether each sequence has a chosen motif, (N,); changed in place.
        starts
            Offsets of the repertoires in the sequences, (B + 1,).
        max_motifs
            Largest number of motifs.
        """
        candidates, found = self._join_overdispersed(candidates)
        if len(candidates) == 0:
            return [], True
        if not found.was_searched[0]:  # the first one is too common to be compared with the others
            kmer_offsets = self._spacings[candidates.spacing[0]]
            has_motif |= find_sequences_with_kmer(self._dataset, kmer_offsets, int(candidates.code[0]))
            return [self._make_motif(candidates, 0, candidates.correlation)], False
        n_free = np.diff(starts) - count_flagged(has_motif, starts)
        chosen: list[EnrichedMotif] = []
        while len(chosen) < max_motifs and n_free.any():
            weights = self._target.compute_weights(n_free)
            counts = found.tabulate(len(self._values), ~has_motif[found.sequence])
            (r,) = correlate_columns(self._values, counts / np.maximum(n_free, 1)[:, None], weights)
            r[np.sign(r) != np.sign(candidates.correlation)] = 0
            p = self._p_values(candidates, r)
            best = int(np.where(p <= self._level, np.abs(r), 0).argmax())
            if p[best] > self._level or r[best] == 0:
                break
            chosen.append(self._make_motif(candidates, best, r))
            new = np.unique(found.sequence[found.kmer == best])
            new = new[~has_motif[new]]
            has_motif[new] = True
            n_free -= np.bincount(np.searchsorted(starts, new, side="right") - 1, minlength=len(n_free))
        return chosen, bool(found.was_searched.all())

    def _make_motif(self, candidates: Candidates, i: int, correlation: Floats) -> EnrichedMotif:
        p_value = self._p_values(candidates.take(np.array([i])), correlation[[i]])
        letters = candidates.letters(i, self._spacings)
        return EnrichedMotif(letters, self._target.outputs[0], float(correlation[i]), float(p_value[0]))
