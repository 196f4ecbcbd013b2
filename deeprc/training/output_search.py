"""The search for motifs of one output: tests of its k-mers, and the choice of motifs among them.

The choice has three loops, one within the other. A sequence is free while it has no chosen motif.

1. Rounds (`choose_motifs`): a pass over the free sequences of all repertoires lists the k-mers that are most correlated
   with the label.
2. Comparisons (`_choose_in_round`): the significant k-mers of a round are compared, a few hundred at a time, the
   strongest ones first. The significant overdispersed k-mers take part in each comparison (`_choose_in_comparison`).
3. Motifs (`_choose_one_by_one`): the strongest k-mer of a comparison is a motif. Its sequences are no longer free, so
   all correlations are computed again, and the strongest of the other k-mers is the next motif.

The third loop needs the occurrences of all compared k-mers in memory. A k-mer that occurs too often for that is tested
alone, by one more pass over the repertoires (`_choose_alone`).

Letters: B repertoires, N sequences of all repertoires, n candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from deeprc.arrays import Flags, Floats, Integers
from deeprc.datasets.alphabet import compute_offsets
from deeprc.training.enriched_motif import EnrichedMotif
from deeprc.training.kmer_correlations import correlate_columns
from deeprc.training.kmer_dispersion import OverdispersedKmers
from deeprc.training.kmer_frequencies import count_flagged
from deeprc.training.kmer_occurrences import Occurrences, find_occurrences, find_sequences_with_kmer
from deeprc.training.kmer_sets import KmerCandidates, KmerSet, Spacing
from deeprc.training.kmer_summaries import StrongestKmers, summarise_spacings
from deeprc.training.motif_variants import find_all_variants
from deeprc.training.permutation_tests import N_DISCOVERY_PERMUTATIONS, FalseDiscoveryTest, PermutationNull
from deeprc.training.search_outputs import SearchOutputs

__all__ = ["OutputSearch"]

_MAX_COMPARED = 500  # candidates of one output that are compared with each other
_MAX_COMPARISONS = 10  # comparisons of one round, each of other candidates, until one of them has a motif


@dataclass(frozen=True)
class _KmerTest:
    """p-values of k-mers of one output by one or two tests.

    Attributes
    ----------
    strongest_null
        Null distribution of the strongest of all k-mers, for the test of all k-mers.
    overdispersed_test
        Test of the overdispersed k-mers alone; None if there are none. If there are, each of the two tests has half of
        the level, so p-values are doubled (Bonferroni).
    """

    strongest_null: PermutationNull
    overdispersed_test: FalseDiscoveryTest | None

    def compute_p_values(self, candidates: KmerCandidates) -> Floats:
        """Return the p-values of candidates with their correlations, (n,)."""
        kmers, correlation = candidates.kmers, candidates.correlation
        n_residues = np.array([len(spacing) for spacing in kmers.spacings])[kmers.spacing_index]
        p_values = np.ones(len(kmers))
        for k in np.unique(n_residues):
            has_k = n_residues == k
            p_values[has_k] = self.strongest_null.compute_p_values(int(k), correlation[has_k])
        if self.overdispersed_test is None:
            return p_values
        is_overdispersed = candidates.overdispersed
        q_values = self.overdispersed_test.compute_q_values(correlation[is_overdispersed])
        p_values[is_overdispersed] = np.minimum(p_values[is_overdispersed], q_values)
        return np.asarray(np.minimum(2 * p_values, 1))


class _FreeSequences:
    """The sequences without a chosen motif.

    Parameters
    ----------
    n_sequences
        Number of sequences of each repertoire, (B,).

    Attributes
    ----------
    has_motif
        Whether each sequence has a chosen motif, and so is not free, (N,).
    """

    def __init__(self, n_sequences: Integers) -> None:
        self._n_sequences, self._repertoire_offsets = n_sequences, compute_offsets(n_sequences)
        self.has_motif: Flags = np.zeros(int(self._repertoire_offsets[-1]), np.bool_)

    def count(self) -> Integers:
        """Return the number of free sequences in each repertoire, (B,)."""
        return np.asarray(self._n_sequences - count_flagged(self.has_motif, self._repertoire_offsets))

    def count_among(self, flags: Flags) -> Integers:
        """Return the number of free sequences in each repertoire that have a flag, (B,), from the flags, (N,)."""
        return count_flagged(flags & ~self.has_motif, self._repertoire_offsets)


class _Choice(NamedTuple):
    """The motifs that one comparison chose, and the candidates that were not compared, because they occur too often."""

    motifs: list[EnrichedMotif]
    not_compared: KmerCandidates


class OutputSearch:
    """The search for motifs of one output, after the first pass over the repertoires.

    Parameters
    ----------
    search_output
        The output, with its repertoires and their labels, (B, 1).
    spacings
        Spacings of the k-mers.
    level
        Largest p-value of a motif.
    strongest
        The strongest k-mers of each spacing, with the index of the spacing.
    overdispersed
        Overdispersed k-mers, which are also tested alone.
    rng
        Random generator of the permutations for this test.
    """

    def __init__(
        self,
        search_output: SearchOutputs,
        spacings: Sequence[Spacing],
        level: float,
        strongest: Sequence[tuple[int, StrongestKmers]],
        overdispersed: OverdispersedKmers,
        rng: np.random.Generator,
    ) -> None:
        self._search_output, self._spacings, self._level = search_output, spacings, level
        self._dataset, self._labels = search_output.dataset, search_output.labels
        self._first_candidates = self._list_candidates(strongest)
        null = PermutationNull({len(spacing) for spacing in spacings}, search_output.n_donors)
        for spacing_index, kmers in strongest:
            null.add_strongest(len(spacings[spacing_index]), kmers.max_permuted_correlation)
        overdispersed_test = self._test_overdispersed(overdispersed, rng)
        self._test = _KmerTest(null, overdispersed_test)
        correlation = np.zeros(0) if overdispersed_test is None else overdispersed_test.correlation
        strongest_first = np.argsort(-np.abs(correlation), kind="stable")
        self._overdispersed = KmerCandidates(
            overdispersed.kmers.take(strongest_first),
            correlation[strongest_first],
            np.ones(len(overdispersed), np.bool_),
        )
        self._overdispersed_occurrences = overdispersed.occurrences.take(strongest_first)

    def _test_overdispersed(
        self, overdispersed: OverdispersedKmers, rng: np.random.Generator
    ) -> FalseDiscoveryTest | None:
        """Return the test of the overdispersed k-mers alone; None if there are none."""
        if len(overdispersed) == 0:
            return None
        labels = self._search_output.permute_labels(N_DISCOVERY_PERMUTATIONS, rng)[:, 0]  # (B, 1 + P)
        weights = self._search_output.compute_weights()
        return FalseDiscoveryTest(overdispersed.frequencies, labels, weights, self._level / 2)

    def find_best_motif(self) -> EnrichedMotif:
        """Return the motif with the lowest p-value of all k-mers, which need not be significant: it may be 1."""
        candidates = KmerCandidates.concatenate([self._first_candidates, self._overdispersed]).sort()
        p = self._test.compute_p_values(candidates)
        return self._make_motif(candidates, int(p.argmin()), p)

    def choose_motifs(self, max_motifs: int) -> tuple[list[EnrichedMotif], Flags]:
        """Return at most `max_motifs` motifs, best first, and whether each sequence has one of them, (N,)."""
        free = _FreeSequences(self._dataset.n_sequences)
        motifs: list[EnrichedMotif] = []
        candidates: KmerCandidates | None = self._first_candidates
        while candidates is not None:
            new_motifs, compared_all = self._choose_in_round(candidates, free, max_motifs - len(motifs))
            motifs += new_motifs
            is_last_round = not new_motifs or len(motifs) == max_motifs or compared_all
            candidates = None if is_last_round else self._find_candidates(free)
        return motifs, free.has_motif

    def find_variants(
        self, motifs: Sequence[EnrichedMotif], has_motif: Flags, max_variants: int, rng: np.random.Generator
    ) -> list[EnrichedMotif]:
        """Return at most `max_variants` variants of the chosen motifs that are associated with the label.

        `motifs` and `has_motif` are what `choose_motifs` returns; see `find_all_variants`.
        """
        return find_all_variants(
            motifs,
            self._search_output,
            self._spacings,
            has_motif,
            max_variants=max_variants,
            level=self._level,
            rng=rng,
        )

    def _list_candidates(self, strongest: Sequence[tuple[int, StrongestKmers]]) -> KmerCandidates:
        """Return the strongest k-mers of all spacings as candidates, strongest first."""
        code = np.concatenate([kmers.code for _, kmers in strongest])
        correlation = np.concatenate([kmers.correlation for _, kmers in strongest])
        spacing_index = np.repeat([i for i, _ in strongest], [len(kmers.code) for _, kmers in strongest])
        kmers = KmerSet(self._spacings, spacing_index, code)
        return KmerCandidates(kmers, correlation, np.zeros(len(kmers), np.bool_)).sort()

    def _find_candidates(self, free: _FreeSequences) -> KmerCandidates | None:
        """Pass over the free sequences; return the k-mers that are most correlated with the label, strongest first.

        The result is None if too few sequences are free for any repertoire to have a weight.
        """
        weights = self._search_output.compute_weights(free.count())
        if not weights.any():
            return None
        labels = self._labels[:, :, None]  # (B, 1, 1), without permutations
        summaries = summarise_spacings(self._dataset, self._spacings, labels, weights, excluded=free.has_motif)
        return self._list_candidates([(summary.spacing_index, summary.by_output[0]) for summary in summaries])

    def _choose_in_round(
        self, candidates: KmerCandidates, free: _FreeSequences, max_motifs: int
    ) -> tuple[list[EnrichedMotif], bool]:
        """Choose motifs among all candidates; return them, and whether one comparison had all significant candidates.

        The strongest ones of each sign are compared. If none of them is a motif, so are the next ones: where motifs are
        frequent, many k-mers are correlated with the label among the free sequences only, see `_correlate`. The
        parameters are those of `_choose_in_comparison`.
        """
        waiting = candidates.take(self._test.compute_p_values(candidates) <= self._level)
        for comparison in range(_MAX_COMPARISONS):
            compared = waiting.take_first_of_each_sign(_MAX_COMPARED // 2)
            motifs, not_compared = self._choose_in_comparison(compared, free, max_motifs)
            weaker = waiting.take(waiting.kmers.find_missing(compared.kmers))
            # overdispersed k-mers need not wait: they are added to every comparison again
            waiting = KmerCandidates.concatenate([not_compared.take(~not_compared.overdispersed), weaker]).sort()
            if motifs or len(waiting) == 0:
                is_complete = len(not_compared) == 0 and len(waiting) == 0
                return motifs, comparison == 0 and is_complete
        return [], False

    def _choose_in_comparison(self, candidates: KmerCandidates, free: _FreeSequences, max_motifs: int) -> _Choice:
        """Choose motifs among n candidates that are compared with each other.

        A candidate cannot be compared with others if it occurs too often, see `find_occurrences`. If such a candidate
        is the strongest, it is tested alone, and is then the only motif.

        Parameters
        ----------
        candidates
            Candidate k-mers, strongest first; significant overdispersed ones are added to them.
        free
            Sequences without a motif; those of the new motifs are removed from it.
        max_motifs
            Largest number of motifs.
        """
        candidates, occurrences = self._add_overdispersed(candidates)
        while len(candidates) and not occurrences.was_searched[0]:
            motif = self._choose_alone(candidates.take(np.array([0])), free)
            if motif is not None:
                return _Choice([motif], candidates)
            others = np.arange(1, len(candidates))
            candidates, occurrences = candidates.take(others), occurrences.take(others)
        if len(candidates) == 0:
            return _Choice([], candidates)
        motifs = self._choose_one_by_one(candidates, occurrences, free, max_motifs)
        return _Choice(motifs, candidates.take(~occurrences.was_searched))

    def _add_overdispersed(self, candidates: KmerCandidates) -> tuple[KmerCandidates, Occurrences]:
        """Return the candidates, followed by the significant overdispersed k-mers, and the occurrences of them all."""
        significant = np.flatnonzero(self._test.compute_p_values(self._overdispersed) <= self._level)
        overdispersed = self._overdispersed.take(significant)
        occurrences = self._overdispersed_occurrences.take(significant)
        others = candidates.take(candidates.kmers.find_missing(overdispersed.kmers))
        if len(others):
            occurrences = find_occurrences(self._dataset, others.kmers).append(occurrences)
        return KmerCandidates.concatenate([others, overdispersed]), occurrences

    def _choose_alone(self, candidate: KmerCandidates, free: _FreeSequences) -> EnrichedMotif | None:
        """Return a single candidate as a motif, whose sequences are then no longer free.

        The result is None if there are motifs, and the candidate is not significant by `_correlate`, too.
        """
        motif = self._make_motif(candidate, 0, self._test.compute_p_values(candidate))
        has_candidate = find_sequences_with_kmer(self._dataset, motif.spacing, motif.code)
        if free.has_motif.any():
            r = self._correlate(free.count_among(has_candidate)[:, None], free.count())
            p = self._test.compute_p_values(candidate.with_correlation(r))
            is_significant = p[0] <= self._level and np.sign(r[0]) == np.sign(candidate.correlation[0])
            if not is_significant:
                return None
        free.has_motif |= has_candidate
        return motif

    def _choose_one_by_one(
        self, candidates: KmerCandidates, occurrences: Occurrences, free: _FreeSequences, max_motifs: int
    ) -> list[EnrichedMotif]:
        """Return the motifs among candidates; each is the strongest one in the sequences that the others leave free."""
        motifs: list[EnrichedMotif] = []
        is_motif = np.zeros(len(candidates), np.bool_)
        r_when_chosen = np.zeros(len(candidates))  # correlation that each motif had
        while len(motifs) < max_motifs and (n_free := free.count()).any():
            counts = occurrences.tabulate(len(self._labels), ~free.has_motif[occurrences.sequence])
            r = self._correlate(counts, n_free)
            r[np.sign(r) != np.sign(candidates.correlation)] = 0
            # the motifs are in the test, because the q-values of the others depend on how many are significant
            tested = candidates.with_correlation(np.where(is_motif, r_when_chosen, r))
            p = self._test.compute_p_values(tested)
            may_be_next = (p <= self._level) & ~is_motif & (r != 0)
            if not may_be_next.any():
                break
            best = int(np.where(may_be_next, np.abs(r), 0).argmax())
            motifs.append(self._make_motif(tested, best, p))
            is_motif[best], r_when_chosen[best] = True, r[best]
            free.has_motif[occurrences.sequence[occurrences.kmer == best]] = True
        return motifs

    def _correlate(self, counts: Integers, n_free: Integers) -> Floats:
        """Return the correlation of n k-mers with the label, (n,), by their counts in free sequences, (B, n).

        Two correlations are computed: of the counts as a share of the `n_free` free sequences, (B,), and as a share of
        all sequences. The weaker one counts, or 0 if their signs differ. Where motifs are frequent, the label
        determines `n_free`. So the first correlation alone would differ from 0 even for a k-mer that does not depend on
        the label.
        """
        among_free = self._correlate_shares(counts, n_free)
        among_all = self._correlate_shares(counts, self._dataset.n_sequences)
        weaker = np.where(np.abs(among_free) <= np.abs(among_all), among_free, among_all)
        return np.where(np.sign(among_free) == np.sign(among_all), weaker, 0.0)

    def _correlate_shares(self, counts: Integers, n_sequences: Integers) -> Floats:
        """Return the correlation of counts / n_sequences with the label, (n,), from counts, (B, n), and (B,)."""
        shares = counts / np.maximum(n_sequences, 1)[:, None]
        return correlate_columns(self._labels, shares, self._search_output.compute_weights(n_sequences)).ravel()

    def _make_motif(self, candidates: KmerCandidates, i: int, p_values: Floats) -> EnrichedMotif:
        """Return candidate i as a motif with its correlation and p-value."""
        letters, output = candidates.kmers.get_letters(i), self._search_output.outputs[0]
        return EnrichedMotif(letters, output, float(candidates.correlation[i]), float(p_values[i]))
