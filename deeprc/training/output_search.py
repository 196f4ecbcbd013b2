"""The search for motifs of one output: tests of its k-mers, and the choice of motifs among them.

Motifs are chosen in rounds (`choose_motifs`). For each round, a pass over the repertoires, without the sequences that
have a motif, lists the k-mers that are most correlated with the label. The significant ones are compared, the strongest
ones first (`_choose_in_round`), together with the significant overdispersed k-mers (`_choose_in_comparison`). In a
comparison, the strongest k-mer is a motif; without its sequences, the strongest of the other k-mers is the next motif
(`_choose_one_by_one`). For this, the sequences with each k-mer must fit into memory. A k-mer that occurs too often for
that is tested alone (`_choose_alone`).

Letters: B repertoires, N sequences of all repertoires, n candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deeprc.arrays import Flags, Floats, Integers
from deeprc.datasets.alphabet import compute_offsets
from deeprc.training.enriched_motif import EnrichedMotif
from deeprc.training.false_discovery import N_DISCOVERY_PERMUTATIONS, FalseDiscoveryTest
from deeprc.training.kmer_candidates import KmerCandidates
from deeprc.training.kmer_correlations import correlate_columns
from deeprc.training.kmer_dispersion import OverdispersedKmers
from deeprc.training.kmer_frequencies import count_flagged
from deeprc.training.kmer_occurrences import Occurrences, find_occurrences, find_sequences_with_kmer
from deeprc.training.kmer_sets import KmerSet, Spacing
from deeprc.training.kmer_summaries import StrongestKmers, summarise_spacings
from deeprc.training.motif_variants import find_all_variants
from deeprc.training.permutation_null import PermutationNull
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

    def compute_p_values(self, candidates: KmerCandidates, correlation: Floats) -> Floats:
        """Return the p-values that candidates have with these correlations, (n,)."""
        kmers = candidates.kmers
        n_residues = np.array([len(spacing) for spacing in kmers.spacings])[kmers.spacing_index]
        p = np.ones(len(kmers))
        for k in np.unique(n_residues):
            has_k = n_residues == k
            p[has_k] = self.strongest_null.compute_p_values(int(k), correlation[has_k])
        if self.overdispersed_test is None:
            return p
        is_overdispersed = candidates.overdispersed
        p[is_overdispersed] = np.minimum(
            p[is_overdispersed], self.overdispersed_test.compute_q_values(correlation[is_overdispersed])
        )
        return np.asarray(np.minimum(2 * p, 1))


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
        self._repertoire_offsets = compute_offsets(self._dataset.n_sequences)  # in the sequences, (B + 1,)
        self._first_candidates = self._list_candidates(strongest)
        null = PermutationNull({len(spacing) for spacing in spacings}, search_output.n_donors)
        for spacing_index, kmers in strongest:
            null.add_strongest(len(spacings[spacing_index]), kmers.max_permuted_correlation)
        overdispersed_test, correlation = None, np.zeros(0)
        if len(overdispersed):
            labels = search_output.permute_labels(N_DISCOVERY_PERMUTATIONS, rng)[:, 0]
            weights = search_output.compute_weights()
            overdispersed_test = FalseDiscoveryTest(overdispersed.frequencies, labels, weights, level / 2)
            correlation = overdispersed_test.correlation
        self._test = _KmerTest(null, overdispersed_test)
        order = np.argsort(-np.abs(correlation), kind="stable")
        all_overdispersed = KmerCandidates(overdispersed.kmers, correlation, np.ones(len(order), np.bool_))
        self._overdispersed = all_overdispersed.take(order)
        self._occurrences = overdispersed.occurrences.take(order)  # of the overdispersed k-mers

    def find_best_motif(self) -> EnrichedMotif:
        """Return the motif with the lowest p-value of all k-mers, which may be no smaller than 1."""
        candidates = KmerCandidates.concatenate([self._first_candidates, self._overdispersed]).sort()
        p = self._test.compute_p_values(candidates, candidates.correlation)
        return self._make_motif(candidates, int(p.argmin()), candidates.correlation, p)

    def choose_motifs(self, max_motifs: int) -> tuple[list[EnrichedMotif], Flags]:
        """Return at most `max_motifs` motifs, best first, and whether each sequence has one of them, (N,).

        Choose motifs until none is left. After each round, pass over the repertoires again without the sequences that
        have a motif.
        """
        has_motif = np.zeros(int(self._repertoire_offsets[-1]), np.bool_)
        chosen: list[EnrichedMotif] = []
        candidates = self._first_candidates
        while True:
            new_motifs, is_complete = self._choose_in_round(candidates, has_motif, max_motifs - len(chosen))
            chosen += new_motifs
            if not new_motifs or len(chosen) == max_motifs or is_complete:
                return chosen, has_motif
            weights = self._search_output.compute_weights(self._count_free(has_motif))
            if not weights.any():
                return chosen, has_motif
            labels = self._labels[:, :, None]  # (B, 1, 1), without permutations
            summaries = summarise_spacings(self._dataset, self._spacings, labels, weights, excluded=has_motif)
            candidates = self._list_candidates([(summary.spacing_index, summary.by_output[0]) for summary in summaries])

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

    def _join_overdispersed(self, candidates: KmerCandidates) -> tuple[KmerCandidates, Occurrences]:
        """Return the candidates, followed by the significant overdispersed k-mers, and the occurrences of them all."""
        p = self._test.compute_p_values(self._overdispersed, self._overdispersed.correlation)
        significant = np.flatnonzero(p <= self._level)
        others, occurrences = self._overdispersed.take(significant), self._occurrences.take(significant)
        missing = candidates.take(candidates.kmers.find_missing(others.kmers))
        if len(missing):
            occurrences = find_occurrences(self._dataset, missing.kmers).append(occurrences)
        return KmerCandidates.concatenate([missing, others]), occurrences

    def _count_free(self, has_motif: Flags) -> Integers:
        """Return the number of sequences without a motif in each repertoire, (B,)."""
        return np.asarray(self._dataset.n_sequences - count_flagged(has_motif, self._repertoire_offsets))

    def _choose_in_round(
        self, candidates: KmerCandidates, has_motif: Flags, max_motifs: int
    ) -> tuple[list[EnrichedMotif], bool]:
        """Choose motifs among all candidates; return them, and whether one comparison had all significant ones.

        The strongest ones of each sign are compared. If none of them is a motif, so are the next ones: where motifs are
        frequent, many k-mers are correlated with the label among the sequences without a motif only, see `_correlate`.
        The parameters are those of `_choose_in_comparison`.
        """
        waiting = candidates.take(self._test.compute_p_values(candidates, candidates.correlation) <= self._level)
        for comparison in range(_MAX_COMPARISONS):
            compared = waiting.take_first_of_each_sign(_MAX_COMPARED // 2)
            motifs, too_frequent = self._choose_in_comparison(compared, has_motif, max_motifs)
            later = waiting.take(waiting.kmers.find_missing(compared.kmers))
            # overdispersed k-mers are added to every comparison again
            waiting = KmerCandidates.concatenate([too_frequent.take(~too_frequent.overdispersed), later]).sort()
            if motifs or len(waiting) == 0:
                is_complete = comparison == 0 and len(too_frequent) == 0 and len(waiting) == 0
                return motifs, is_complete
        return [], False

    def _choose_in_comparison(
        self, candidates: KmerCandidates, has_motif: Flags, max_motifs: int
    ) -> tuple[list[EnrichedMotif], KmerCandidates]:
        """Choose motifs among n candidates; return them, and the candidates that could not be compared.

        A candidate cannot be compared with others if it occurs too often, see `find_occurrences`. If such a candidate
        is the strongest, it is tested alone, and is then the only motif.

        Parameters
        ----------
        candidates
            Candidate k-mers, strongest first; significant overdispersed ones are added to them.
        has_motif
            Whether each sequence has a chosen motif, (N,); changed in place.
        max_motifs
            Largest number of motifs.
        """
        candidates, occurrences = self._join_overdispersed(candidates)
        while len(candidates) and not occurrences.was_searched[0]:
            motif = self._choose_alone(candidates.take(np.array([0])), has_motif)
            if motif is not None:
                return [motif], candidates
            others = np.arange(1, len(candidates))
            candidates, occurrences = candidates.take(others), occurrences.take(others)
        if len(candidates) == 0:
            return [], candidates
        motifs = self._choose_one_by_one(candidates, occurrences, has_motif, max_motifs)
        return motifs, candidates.take(~occurrences.was_searched)

    def _choose_alone(self, candidate: KmerCandidates, has_motif: Flags) -> EnrichedMotif | None:
        """Return a single candidate as a motif, and flag its sequences in `has_motif`, (N,).

        The result is None if there are motifs, and the candidate is not significant by `_correlate`, too.
        """
        p = self._test.compute_p_values(candidate, candidate.correlation)
        motif = self._make_motif(candidate, 0, candidate.correlation, p)
        has_candidate = find_sequences_with_kmer(self._dataset, motif.spacing, motif.code)
        if has_motif.any():
            counts = count_flagged(has_candidate & ~has_motif, self._repertoire_offsets)[:, None]
            r = self._correlate(counts, self._count_free(has_motif))
            p = self._test.compute_p_values(candidate, r)
            is_significant = p[0] <= self._level and np.sign(r[0]) == np.sign(candidate.correlation[0])
            if not is_significant:
                return None
        has_motif |= has_candidate
        return motif

    def _choose_one_by_one(
        self, candidates: KmerCandidates, occurrences: Occurrences, has_motif: Flags, max_motifs: int
    ) -> list[EnrichedMotif]:
        """Return the motifs among candidates; each is the strongest one in the sequences without those before.

        The sequences with a motif are flagged in `has_motif`, (N,).
        """
        motifs: list[EnrichedMotif] = []
        r_when_chosen = np.zeros(len(candidates))  # correlation that each motif had; 0 if it is none
        while len(motifs) < max_motifs and (n_free := self._count_free(has_motif)).any():
            counts = occurrences.tabulate(len(self._labels), ~has_motif[occurrences.sequence])
            r = self._correlate(counts, n_free)
            r[np.sign(r) != np.sign(candidates.correlation)] = 0
            is_motif = r_when_chosen != 0
            p = self._test.compute_p_values(candidates, np.where(is_motif, r_when_chosen, r))
            best = int(np.where((p <= self._level) & ~is_motif, np.abs(r), 0).argmax())
            if p[best] > self._level or r[best] == 0:
                break
            motifs.append(self._make_motif(candidates, best, r, p))
            r_when_chosen[best] = r[best]
            has_motif[occurrences.sequence[occurrences.kmer == best]] = True
        return motifs

    def _correlate(self, counts: Integers, n_free: Integers) -> Floats:
        """Return the correlation of n k-mers with the label, (n,), by their counts without a motif, (B, n).

        It is the weaker one of two, or 0 if their signs differ: of the counts as a share of the `n_free` sequences
        without a motif, (B,), and as a share of all sequences. Where motifs are frequent, the first alone would depend
        on the label even for a k-mer that does not, because the label determines `n_free`.
        """
        among_free = self._correlate_shares(counts, n_free)
        among_all = self._correlate_shares(counts, self._dataset.n_sequences)
        weaker = np.where(np.abs(among_free) <= np.abs(among_all), among_free, among_all)
        return np.where(np.sign(among_free) == np.sign(among_all), weaker, 0.0)

    def _correlate_shares(self, counts: Integers, n_sequences: Integers) -> Floats:
        """Return the correlation of counts, (B, n), as shares of numbers of sequences, (B,), with the label, (n,)."""
        shares = counts / np.maximum(n_sequences, 1)[:, None]
        return correlate_columns(self._labels, shares, self._search_output.compute_weights(n_sequences)).ravel()

    def _make_motif(self, candidates: KmerCandidates, i: int, correlation: Floats, p_values: Floats) -> EnrichedMotif:
        letters = candidates.kmers.get_letters(i)
        return EnrichedMotif(letters, self._search_output.outputs[0], float(correlation[i]), float(p_values[i]))
