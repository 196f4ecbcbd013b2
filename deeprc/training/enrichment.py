"""Which k-mers with gaps go with a label: counted in few passes over the repertoires, tested by permuted labels.

Letters: B repertoires, N sequences of all repertoires, M k-mers of one pattern (one tuple of offsets), T outputs of the
network, P permutations, n candidates, W residues that a motif spans.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, zip_longest

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from deeprc.datasets.alphabet import AMINO_ACIDS, offsets_of
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.outputs import output_slices
from deeprc.tasks import Task
from deeprc.training.kmer_correlations import correlate, standardise, weigh_by_size
from deeprc.training.kmer_frequencies import Codes, Flags, count_flagged
from deeprc.training.kmer_occurrences import find_carriers, find_occurrences
from deeprc.training.permutations import N_PERMUTATIONS, PermutationNull, permute_labels

__all__ = [
    "LEVEL",
    "EnrichedMotif",
    "MotifLimits",
    "enumerate_kmer_offsets",
    "find_enriched_motifs",
    "output_columns",
]

LEVEL = 0.01
"""Largest p-value of a motif that needs no further evidence; see docs/experiments.md."""

Floats = NDArray[np.float64]

_N_LETTERS = len(AMINO_ACIDS)
_MAX_CANDIDATES = 500  # of one output that are compared with each other
_MIN_MEMBERS = 10  # of a class, and of the other classes together
_MAX_NOTED = 2000  # k-mers of each pattern that are remembered, those with the strongest correlations
_MAX_OUTPUTS = 4  # whose correlations are computed together
_ANY = -1  # a letter that stands for any residue


@dataclass(frozen=True)
class EnrichedMotif:
    """A k-mer, perhaps with gaps, whose frequency goes with a label.

    Attributes
    ----------
    letters
        Amino-acid indices, (W,); -1 where any residue may stand.
    output
        Index of the output with which the motif goes, among the outputs of all tasks.
    correlation
        Correlation of the motif's frequency with the output's label: with 1 for members of the class and 0 for others,
        or with the number's rank. It is negative where the motif is rarer. Sequences that hold a motif found earlier
        for the same output are left out.
    p_value
        Probability that the strongest of all k-mers has such a correlation if labels have nothing to do with sequences;
        computed from the same sequences as the correlation.
    """

    letters: tuple[int, ...]
    output: int
    correlation: float
    p_value: float

    @property
    def n_residues(self) -> int:
        """Number of residues that the motif names."""
        return len(self.kmer_offsets)

    @property
    def kmer_offsets(self) -> tuple[int, ...]:
        """Offsets of the residues that the motif names."""
        return tuple(offset for offset, letter in enumerate(self.letters) if letter != _ANY)

    @property
    def code(self) -> int:
        """Index of the motif among the k-mers with its offsets, as in `deeprc.datasets.kmers.count_kmers`."""
        code = 0
        for offset in self.kmer_offsets:
            code = code * _N_LETTERS + self.letters[offset]
        return code

    @property
    def pattern(self) -> str:
        """The motif as text, with a point for any residue."""
        return "".join("." if letter == _ANY else AMINO_ACIDS[letter] for letter in self.letters)


@dataclass(frozen=True)
class MotifLimits:
    """How many motifs are searched for, and what a motif must show.

    Attributes
    ----------
    max_motifs
        Largest number of motifs, of all outputs together.
    min_labels
        A task with fewer labels has no motifs. Neither has a class with fewer than 10 members or fewer than 10 others.
    level
        Largest p-value.
    doubtful_level
        Where no output of any task has a motif, each output has its strongest one if its p-value is at most this.
    """

    max_motifs: int
    min_labels: int = 8
    level: float = LEVEL
    doubtful_level: float = 0.0


def enumerate_kmer_offsets(k: int, span: int) -> list[tuple[int, ...]]:
    """Return all offsets that k residues can have within `span` positions, the first of them at 0."""
    return [(0, *others) for others in combinations(range(1, span), k - 1)]


def find_enriched_motifs(
    dataset: RepertoireDataset,
    labels: Floats,
    tasks: Sequence[Task],
    *,
    patterns: Sequence[Sequence[int]],
    limits: MotifLimits,
    seed: int = 0,
) -> list[EnrichedMotif]:
    """Return the motifs that go with a label, best first; an empty list where no motif stands out.

    The frequency of each k-mer (occurrences per sequence) is correlated with the label: with membership in the positive
    class, in each class, or with the rank of the number. Small repertoires, whose frequencies vary by chance, weigh
    less. The same is done with permuted labels, which stay among repertoires of about the same size. The strongest
    correlation of all k-mers in each permutation gives the p-values of Westfall and Young. They hold for all k-mers
    together, whatever their distributions and dependences, and are multiplied by the number of outputs.

    Motifs of an output are chosen one by one, as long as the p-value is at most the level. The next motif is the
    strongest one when the sequences with a motif chosen before are left out. So shifted and shortened forms of one
    motif count once, and a variant counts if it has sequences of its own. Each output is searched alone.

    Parameters
    ----------
    dataset
        The repertoires to learn from, and no others. Empty repertoires tell nothing.
    labels
        (B, number of tasks), NaN where missing.
    tasks
        The tasks that the labels belong to.
    patterns
        Offsets of the k-mers' residues, each as in `deeprc.datasets.kmers.count_kmers`.
    limits
        How many motifs to return, and from which p-value on.
    seed
        Seed of the permutations.
    """
    if not patterns or limits.max_motifs < 1:
        return []
    rng = np.random.default_rng(seed)
    targets = list(_targets(dataset, labels, tasks, max(limits.min_labels, 2)))
    n_outputs = sum(len(target.outputs) for target in targets)
    found, strongest = [], []
    for target in targets:
        for search in _searches(target, patterns, limits.level / n_outputs, rng):
            strongest.append(search.strongest())
            found.append(search.find_motifs(limits.max_motifs))
    if not any(found):
        found = [[motif] if motif.p_value <= limits.doubtful_level / n_outputs else [] for motif in strongest]
    corrected = [[replace(motif, p_value=motif.p_value * n_outputs) for motif in motifs] for motifs in found]
    return _take_in_turn(corrected, limits.max_motifs)


@dataclass(frozen=True)
class _Target:
    """Some outputs of one task, with which frequencies are correlated.

    Attributes
    ----------
    dataset
        The n repertoires whose label is known.
    values
        One column per output, (n, T').
    outputs
        Indices of the outputs among those of all tasks, (T',).
    """

    dataset: RepertoireDataset
    values: Floats
    outputs: list[int]

    @property
    def n(self) -> int:
        return len(self.values)


def _targets(dataset: RepertoireDataset, labels: Floats, tasks: Sequence[Task], min_labels: int) -> Iterator[_Target]:
    """Yield all outputs that vary, a few of a task at a time."""
    for task, part, column in zip(tasks, output_slices(tasks), labels.T, strict=True):
        known = np.flatnonzero(~np.isnan(column) & (dataset.n_sequences > 0))
        if len(known) >= min_labels:
            values = output_columns(task, column[known])
            varies = np.ptp(values, axis=0) > 0
            if task.kind != "regression":
                varies &= np.minimum(values.sum(axis=0), (1 - values).sum(axis=0)) >= _MIN_MEMBERS
            varying = np.flatnonzero(varies)
            for at in (varying[first : first + _MAX_OUTPUTS] for first in range(0, len(varying), _MAX_OUTPUTS)):
                yield _Target(dataset[known], values[:, at], (part.start + at).tolist())


def output_columns(task: Task, labels: Floats) -> Floats:
    """Return one column for each output of a task, (n, T'): 1 for members of its class and 0 for others, or ranks.

    Ranks keep a single extreme number from ruling a correlation.
    """
    if task.kind == "multiclass":
        return np.asarray(labels[:, None] == np.arange(len(task.classes)), np.float64)
    return np.asarray(rankdata(labels) if task.kind == "regression" else labels)[:, None]


def _searches(
    target: _Target, patterns: Sequence[Sequence[int]], level: float, rng: np.random.Generator
) -> list[_Search]:
    """Return a search for each output of a target, after the pass with the labels as they are and permuted."""
    sizes = target.dataset.n_sequences
    versions = [target.values[order] for order in permute_labels(sizes, N_PERMUTATIONS, rng)]
    columns = np.stack(versions, axis=2).reshape(target.n, -1)  # (n, T' * (1 + P))
    searches = [
        _Search(target.dataset, values, output, patterns, level)
        for values, output in zip(target.values.T, target.outputs, strict=True)
    ]
    for index, r in correlate(target.dataset, patterns, columns, weigh_by_size(sizes, sizes)):
        for search, (observed, *permuted) in zip(searches, r.reshape(len(searches), len(versions), -1), strict=True):
            search.null.add(len(patterns[index]), permuted)
            search.note_strongest(index, observed)
    return searches


def _take_in_turn(found: Sequence[Sequence[EnrichedMotif]], max_motifs: int) -> list[EnrichedMotif]:
    """Return the best motif of each output, then the second of each, and so on; each pattern once.

    Within a round, the motif with the smallest p-value comes first.
    """
    chosen: dict[tuple[int, ...], EnrichedMotif] = {}
    for motifs in zip_longest(*found):
        for motif in sorted(filter(None, motifs), key=lambda each: each.p_value):
            if len(chosen) < max_motifs:
                chosen.setdefault(motif.letters, motif)
    return list(chosen.values())


class _Search:
    """The search for motifs of one output.

    Parameters
    ----------
    dataset, values
        The repertoires and the numbers that frequencies are correlated with, (B,).
    output
        Index of the output.
    patterns
        Offsets of the k-mers' residues.
    level
        Largest p-value.
    """

    def __init__(
        self,
        dataset: RepertoireDataset,
        values: Floats,
        output: int,
        patterns: Sequence[Sequence[int]],
        level: float,
    ) -> None:
        self._dataset, self._values, self._output, self._patterns = dataset, values, output, patterns
        self._level = level
        self._noted: list[_Candidates] = []
        self.null = PermutationNull({len(kmer_offsets) for kmer_offsets in patterns}, len(dataset))

    def note_strongest(self, index: int, r: NDArray[np.float32]) -> None:
        """Remember the k-mers of a pattern with the strongest correlations, from those of all, (M,)."""
        size = np.abs(r)
        kept = min(_MAX_NOTED, len(size))
        code = np.argpartition(size, len(size) - kept)[len(size) - kept :]
        self._noted.append(_Candidates(np.full(kept, index), code, r[code].astype(np.float64)))

    def strongest(self) -> EnrichedMotif:
        """Return the motif with the lowest p-value after the first pass; to be called before `find_motifs`."""
        noted = _Candidates.concatenate(self._noted)
        best = int(self._p_values(noted.pattern, noted.correlation).argmin())
        return self._motif(noted, best, noted.correlation)

    def find_motifs(self, max_motifs: int) -> list[EnrichedMotif]:
        """Return the motifs, best first; each further pass leaves out the sequences that hold a chosen motif."""
        sizes = self._dataset.n_sequences
        starts = offsets_of(sizes)
        explained = np.zeros(int(starts[-1]), bool)  # whether a sequence holds a chosen motif, (N,)
        chosen: list[EnrichedMotif] = []
        while True:
            candidates = self._take_candidates()
            compared = candidates.first_of_each_sign(_MAX_CANDIDATES // 2)
            found, complete = self._choose(compared, explained, starts, max_motifs - len(chosen))
            chosen += found
            if not found or len(chosen) == max_motifs or (complete and len(compared) == len(candidates)):
                return chosen
            weights = weigh_by_size(sizes - count_flagged(explained, starts), sizes)
            if not weights.any():
                return chosen
            for index, r in correlate(self._dataset, self._patterns, self._values[:, None], weights, explained):
                self.note_strongest(index, r[0])

    def _take_candidates(self) -> _Candidates:
        """Return the noted k-mers whose p-value is at most the level, strongest first, and forget all noted ones."""
        noted = _Candidates.concatenate(self._noted)
        self._noted = []
        return noted.take(self._p_values(noted.pattern, noted.correlation) <= self._level)

    def _p_values(self, pattern: Codes, correlation: Floats) -> Floats:
        size = np.array([len(kmer_offsets) for kmer_offsets in self._patterns])[pattern]
        p = np.ones(len(pattern))
        for k in np.unique(size):
            p[size == k] = self.null.p_value(int(k), correlation[size == k])
        return p

    def _choose(
        self, candidates: _Candidates, explained: Flags, starts: Codes, max_motifs: int
    ) -> tuple[list[EnrichedMotif], bool]:
        """Choose motifs among n candidates; return them, and whether all candidates could be compared.

        Parameters
        ----------
        candidates
            The k-mers, strongest first.
        explained
            Whether each sequence holds a chosen motif, (N,); changed in place.
        starts
            Offsets of the repertoires' sequences, (B + 1,).
        max_motifs
            Largest number of motifs.
        """
        if len(candidates) == 0:
            return [], True
        found = find_occurrences(self._dataset, self._patterns, candidates.pattern, candidates.code)
        if not found.looked_for[0]:  # it is too common to be compared with the others
            kmer_offsets = self._patterns[candidates.pattern[0]]
            explained |= find_carriers(self._dataset, kmer_offsets, int(candidates.code[0]))
            return [self._motif(candidates, 0, candidates.correlation)], False
        n_repertoires, n = len(self._values), len(candidates)
        cell = found.repertoire.astype(np.int64) * n + found.which  # of a table (B, n)
        n_free = np.diff(starts) - count_flagged(explained, starts)
        chosen: list[EnrichedMotif] = []
        while len(chosen) < max_motifs and n_free.any():
            weights = weigh_by_size(n_free, np.diff(starts))
            target = weights * standardise(self._values[:, None], weights)[:, 0]
            free_cells = cell[~explained[found.sequence]]
            counts = np.bincount(free_cells, minlength=n_repertoires * n).reshape(n_repertoires, n)
            r = target @ standardise(counts / np.maximum(n_free, 1)[:, None], weights)
            r[np.sign(r) != np.sign(candidates.correlation)] = 0
            p = self._p_values(candidates.pattern, r)
            best = int(np.where(p <= self._level, np.abs(r), 0).argmax())
            if p[best] > self._level or r[best] == 0:
                break
            chosen.append(self._motif(candidates, best, r))
            new = np.unique(found.sequence[found.which == best])
            new = new[~explained[new]]
            explained[new] = True
            n_free -= np.bincount(np.searchsorted(starts, new, side="right") - 1, minlength=n_repertoires)
        return chosen, bool(found.looked_for.all())

    def _motif(self, candidates: _Candidates, i: int, correlation: Floats) -> EnrichedMotif:
        p_value = self._p_values(candidates.pattern[[i]], correlation[[i]])
        letters = candidates.letters(i, self._patterns)
        return EnrichedMotif(letters, self._output, float(correlation[i]), float(p_value[0]))


@dataclass(frozen=True)
class _Candidates:
    """k-mers that may be motifs: index of the pattern, index among its k-mers, and correlation, (n,) each."""

    pattern: Codes
    code: Codes
    correlation: Floats

    def __len__(self) -> int:
        return len(self.code)

    def take(self, rows: NDArray[np.int64] | Flags) -> _Candidates:
        return _Candidates(self.pattern[rows], self.code[rows], self.correlation[rows])

    @classmethod
    def concatenate(cls, parts: Sequence[_Candidates]) -> _Candidates:
        """Return the candidates of all parts, strongest first."""
        columns = zip(*((part.pattern, part.code, part.correlation) for part in parts), strict=True)
        joined = cls(*map(np.concatenate, columns))
        return joined.take(np.lexsort((joined.code, joined.pattern, -np.abs(joined.correlation))))

    def first_of_each_sign(self, max_of_sign: int) -> _Candidates:
        """Return at most so many candidates with a positive and with a negative correlation, the first ones."""
        rank = np.zeros(len(self), np.int64)
        for sign in (self.correlation > 0, self.correlation <= 0):
            rank[sign] = np.arange(int(sign.sum()))
        return self.take(rank < max_of_sign)

    def letters(self, i: int, patterns: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """Return the letters of one candidate, as in `EnrichedMotif`."""
        kmer_offsets = patterns[self.pattern[i]]
        code, letters = int(self.code[i]), [_ANY] * (kmer_offsets[-1] + 1)
        for offset in reversed(kmer_offsets):
            code, letters[offset] = divmod(code, _N_LETTERS)
        return tuple(letters)
