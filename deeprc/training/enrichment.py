"""Which k-mers with gaps go with a label: found in one streaming pass per pattern, judged against permuted labels.

Letters: B repertoires, M k-mers of a pattern of places, T outputs, P permutations, n candidates, W places that a motif
spans. The strength of a k-mer is |r| times the square root of the number of repertoires.
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
from deeprc.training.kmer_correlations import carriers, correlations, flagged, occurrences, size_weights, standardised
from deeprc.training.permutations import N_PERMUTATIONS, PermutationNull, label_permutations

__all__ = ["LEVEL", "Motif", "enriched_motifs", "output_columns", "places_within"]

LEVEL = 0.01
"""Largest p-value of a motif that needs no further evidence; see docs/experiments.md."""

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Flags = NDArray[np.bool_]

_N_LETTERS = len(AMINO_ACIDS)
_MOST_CANDIDATES = 500  # of an output that are looked at together
_FEWEST_MEMBERS = 10  # of a class and of all others
_NOTED = 2000  # strongest k-mers of each pattern
_TOGETHER = 4  # outputs correlated at a time
_ANY = -1


@dataclass(frozen=True)
class Motif:
    """A k-mer, perhaps with gaps, whose frequency goes with a label.

    Attributes
    ----------
    letters
        Amino-acid indices, (W,); -1 where any residue may stand.
    output
        The output of the network that it goes with, counted over all tasks.
    correlation
        Of its frequency with the label, with being of the class, or with the number's rank; negative where it is rarer.
        Like the p-value it is of the sequences that hold no motif of the output before it.
    p_value
        Chance that the strongest of all motifs looked at is as strong where labels tell nothing.
    """

    letters: tuple[int, ...]
    output: int
    correlation: float
    p_value: float

    @property
    def n_residues(self) -> int:
        """How many places name a residue."""
        return len(self.places)

    @property
    def places(self) -> tuple[int, ...]:
        """Where residues are named."""
        return tuple(place for place, letter in enumerate(self.letters) if letter != _ANY)

    @property
    def code(self) -> int:
        """Its number among the k-mers of its places, as `deeprc.datasets.kmers.count_kmers` has it."""
        code = 0
        for place in self.places:
            code = code * _N_LETTERS + self.letters[place]
        return code

    @property
    def pattern(self) -> str:
        """As text, with a point for any residue."""
        return "".join("." if letter == _ANY else AMINO_ACIDS[letter] for letter in self.letters)


def places_within(k: int, span: int) -> list[tuple[int, ...]]:
    """Return all ways to place k residues within `span` places, the first of them at 0."""
    return [(0, *rest) for rest in combinations(range(1, span), k - 1)]


def enriched_motifs(
    dataset: RepertoireDataset,
    labels: Floats,
    tasks: Sequence[Task],
    *,
    patterns: Sequence[Sequence[int]],
    most: int,
    fewest: int = 8,
    level: float = LEVEL,
    doubtful: float = 0.0,
    seed: int = 0,
) -> list[Motif]:
    """Return the motifs that go with a label, best first; none where none stands out, but see `doubtful`.

    The frequency of each k-mer (occurrences per sequence) is correlated with the label: with being positive, with being
    of each class, or with the number's rank; small repertoires, whose frequencies are chance, count less. The same is
    done with the labels given to other repertoires of about the same size, and the strongest of all k-mers each time
    gives p-values (Westfall and Young's), which hold for all k-mers together, whatever their distributions and however
    they depend on each other; they are multiplied by the number of outputs.
    While p is up to `level`, motifs are taken one by one, each the one that stands out most when the sequences with
    those before it are left out; so the shifted and shortened forms of one motif, what stands beside it and what it
    displaced count once, and a variant counts where it has sequences of its own. Each output is looked at alone.

    Parameters
    ----------
    dataset
        The repertoires to learn from, and no others. Empty ones tell nothing.
    labels
        (B, number of tasks), NaN where missing.
    tasks
        What the labels are.
    patterns
        Places of the k-mers' residues, each as in `deeprc.datasets.kmers.count_kmers`.
    most
        At most so many motifs, shared among the outputs.
    fewest
        A task with fewer labels has no motifs. Nor has a class with fewer than 10 members, or with all but so few.
    level
        Largest p-value.
    doubtful
        Where no output of any task has a motif, each has its strongest one if that has a p-value up to this.
    seed
        Of the permutations.
    """
    if not patterns or most < 1:
        return []
    rng = np.random.default_rng(seed)
    targets = list(_targets(dataset, labels, tasks, max(fewest, 2)))
    n_outputs = sum(len(target.outputs) for target in targets)
    found, strongest = [], []
    for target in targets:
        for search in _searches(target, patterns, level / n_outputs, rng):
            strongest.append(search.strongest())
            found.append(search.motifs(most))
    if not any(found):
        found = [[motif] if motif.p_value <= doubtful / n_outputs else [] for motif in strongest]
    return _in_turn([[replace(m, p_value=m.p_value * n_outputs) for m in motifs] for motifs in found], most)


@dataclass(frozen=True)
class _Target:
    """What frequencies are correlated with: some outputs of one task.

    Attributes
    ----------
    dataset
        The repertoires whose label is known, n of them.
    values
        (n, T').
    outputs
        Their numbers among the outputs of all tasks, (T',).
    """

    dataset: RepertoireDataset
    values: Floats
    outputs: list[int]

    @property
    def n(self) -> int:
        return len(self.values)


def _targets(dataset: RepertoireDataset, labels: Floats, tasks: Sequence[Task], fewest: int) -> Iterator[_Target]:
    """Yield all outputs that vary, a few of a task at a time."""
    for task, part, column in zip(tasks, output_slices(tasks), labels.T, strict=True):
        known = np.flatnonzero(~np.isnan(column) & (dataset.n_sequences > 0))
        if len(known) >= fewest:
            values = output_columns(task, column[known])
            varies = np.ptp(values, axis=0) > 0
            if task.kind != "regression":
                varies &= np.minimum(values.sum(axis=0), (1 - values).sum(axis=0)) >= _FEWEST_MEMBERS
            varying = np.flatnonzero(varies)
            for at in (varying[first : first + _TOGETHER] for first in range(0, len(varying), _TOGETHER)):
                yield _Target(dataset[known], values[:, at], (part.start + at).tolist())


def output_columns(task: Task, labels: Floats) -> Floats:
    """Return a column per output of a task, (n, T'): 1 for members of its class, or ranks: no single one rules."""
    if task.kind == "multiclass":
        return np.asarray(labels[:, None] == np.arange(len(task.classes)), np.float64)
    return np.asarray(rankdata(labels) if task.kind == "regression" else labels)[:, None]


def _searches(
    target: _Target, patterns: Sequence[Sequence[int]], level: float, rng: np.random.Generator
) -> list[_Search]:
    """Return a search for each output of a target, after the pass over the labels as they are and permuted."""
    sizes = target.dataset.n_sequences
    ordered = [target.values[order] for order in label_permutations(sizes, N_PERMUTATIONS, rng)]
    every = np.stack(ordered, axis=2).reshape(target.n, -1)  # (n, T' * (1 + P))
    searches = [
        _Search(target.dataset, values, output, patterns, level)
        for values, output in zip(target.values.T, target.outputs, strict=True)
    ]
    for number, r in correlations(target.dataset, patterns, every, size_weights(sizes, sizes)):
        for search, (seen, *permuted) in zip(searches, r.reshape(len(searches), len(ordered), -1), strict=True):
            search.null.note(len(patterns[number]), permuted)
            search.note(number, seen)
    return searches


def _in_turn(found: Sequence[Sequence[Motif]], most: int) -> list[Motif]:
    """Take the best motif of each output, then the second of each ..., each time the surest first; a pattern once."""
    chosen: dict[tuple[int, ...], Motif] = {}
    for motifs in zip_longest(*found):
        for motif in sorted(filter(None, motifs), key=lambda each: each.p_value):
            if len(chosen) < most:
                chosen.setdefault(motif.letters, motif)
    return list(chosen.values())


class _Search:
    """Of one output: motifs, one after the other, each in the sequences without those before it.

    Parameters
    ----------
    dataset, values
        The repertoires and what is correlated, (n,).
    output
        Its number.
    patterns
        Places of the residues.
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
        self._standing_out: list[_Candidates] = []
        self.null = PermutationNull({len(places) for places in patterns}, len(dataset))

    def note(self, number: int, r: NDArray[np.float32]) -> None:
        """Keep the strongest k-mers of a pattern."""
        size = np.abs(r)
        kept = min(_NOTED, len(size))
        code = np.argpartition(size, len(size) - kept)[len(size) - kept :]
        self._standing_out.append(_Candidates(np.full(kept, number), code, r[code].astype(np.float64)))

    def strongest(self) -> Motif:
        """Return the motif with the lowest p-value after the first pass, before `motifs` forgets it."""
        noted = _Candidates.joined(self._standing_out)
        best = int(self._p_values(noted.pattern, noted.correlation).argmin())
        return self._motif(noted, best, noted.correlation)

    def motifs(self, most: int) -> list[Motif]:
        """Return them, best first, after the first pass; each further pass leaves out the sequences that are taken."""
        sizes = self._dataset.n_sequences
        starts = offsets_of(sizes)
        taken = np.zeros(int(starts[-1]), bool)
        chosen: list[Motif] = []
        while True:
            candidates = self._candidates()
            looked_at = candidates.first_of_each_sign(_MOST_CANDIDATES // 2)
            found, whole = self._chosen(looked_at, taken, starts, most - len(chosen))
            chosen += found
            if not found or len(chosen) == most or (whole and len(looked_at) == len(candidates)):
                return chosen
            weights = size_weights(sizes - flagged(taken, starts), sizes)
            if not weights.any():
                return chosen
            for number, r in correlations(self._dataset, self._patterns, self._values[:, None], weights, taken):
                self.note(number, r[0])

    def _candidates(self) -> _Candidates:
        """Return the noted ones whose p-value is up to the level, strongest first, and forget them all."""
        noted = _Candidates.joined(self._standing_out)
        self._standing_out = []
        return noted.take(self._p_values(noted.pattern, noted.correlation) <= self._level)

    def _p_values(self, pattern: Codes, correlation: Floats) -> Floats:
        size = np.array([len(places) for places in self._patterns])[pattern]
        p = np.ones(len(pattern))
        for k in np.unique(size):
            p[size == k] = self.null.p_value(int(k), correlation[size == k])
        return p

    def _chosen(self, candidates: _Candidates, taken: Flags, starts: Codes, most: int) -> tuple[list[Motif], bool]:
        """Return motifs among the candidates, note whose sequences are taken, and say whether all were looked at.

        Parameters
        ----------
        candidates
            n of them.
        taken
            By sequence, in place.
        starts
            Of the repertoires' sequences, (B + 1,).
        most
            Motifs at most.
        """
        if len(candidates) == 0:
            return [], True
        found = occurrences(self._dataset, self._patterns, candidates.pattern, candidates.code)
        if not found.looked_for[0]:  # it is too common to be compared with the others
            places = self._patterns[candidates.pattern[0]]
            taken |= carriers(self._dataset, places, int(candidates.code[0]))
            return [self._motif(candidates, 0, candidates.correlation)], False
        n_repertoires, n = len(self._values), len(candidates)
        place = found.repertoire.astype(np.int64) * n + found.which
        n_free = np.diff(starts) - flagged(taken, starts)
        chosen: list[Motif] = []
        while len(chosen) < most and n_free.any():
            weights = size_weights(n_free, np.diff(starts))
            target = weights * standardised(self._values[:, None], weights)[:, 0]
            counts = np.bincount(place[~taken[found.sequence]], minlength=n_repertoires * n).reshape(n_repertoires, n)
            r = target @ standardised(counts / np.maximum(n_free, 1)[:, None], weights)
            r[np.sign(r) != np.sign(candidates.correlation)] = 0
            p = self._p_values(candidates.pattern, r)
            best = int(np.where(p <= self._level, np.abs(r), 0).argmax())
            if p[best] > self._level or r[best] == 0:
                break
            chosen.append(self._motif(candidates, best, r))
            new = np.unique(found.sequence[found.which == best])
            new = new[~taken[new]]
            taken[new] = True
            n_free -= np.bincount(np.searchsorted(starts, new, side="right") - 1, minlength=n_repertoires)
        return chosen, bool(found.looked_for.all())

    def _motif(self, candidates: _Candidates, i: int, correlation: Floats) -> Motif:
        p_value = self._p_values(candidates.pattern[[i]], correlation[[i]])
        letters = candidates.letters(i, self._patterns)
        return Motif(letters, self._output, float(correlation[i]), float(p_value[0]))


@dataclass(frozen=True)
class _Candidates:
    """k-mers that may stand out: pattern, code and correlation, (n,)."""

    pattern: Codes
    code: Codes
    correlation: Floats

    def __len__(self) -> int:
        return len(self.code)

    def take(self, rows: NDArray[np.int64] | Flags) -> _Candidates:
        return _Candidates(self.pattern[rows], self.code[rows], self.correlation[rows])

    @classmethod
    def joined(cls, parts: Sequence[_Candidates]) -> _Candidates:
        """Return all of them, strongest first."""
        columns = zip(*((part.pattern, part.code, part.correlation) for part in parts), strict=True)
        joined = cls(*map(np.concatenate, columns))
        return joined.take(np.lexsort((joined.code, joined.pattern, -np.abs(joined.correlation))))

    def first_of_each_sign(self, most: int) -> _Candidates:
        rank = np.zeros(len(self), np.int64)
        for sign in (self.correlation > 0, self.correlation <= 0):
            rank[sign] = np.arange(int(sign.sum()))
        return self.take(rank < most)

    def letters(self, i: int, patterns: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """Return one of them as a motif has it."""
        places = patterns[self.pattern[i]]
        code, letters = int(self.code[i]), [_ANY] * (places[-1] + 1)
        for place in reversed(places):
            code, letters[place] = divmod(code, _N_LETTERS)
        return tuple(letters)
