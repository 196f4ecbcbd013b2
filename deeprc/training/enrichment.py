"""Which k-mers with gaps go with a label: found in one streaming pass per pattern, judged against permuted labels.

Letters: B repertoires, M k-mers of a pattern of places, T outputs, P permutations, n candidates, W places that a motif
spans.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.tasks import Task
from deeprc.training.kmer_correlations import correlations, frequencies

__all__ = ["Motif", "enriched_motifs", "places_within"]

logger = logging.getLogger(__name__)

Floats = NDArray[np.float64]

_N_LETTERS = len(AMINO_ACIDS)
_N_PERMUTATIONS = 100
_MOST_CANDIDATES = 500  # of which motifs are chosen one after another
_NOTED = 2000  # highest correlations kept of each pattern and each permutation
_SAME = 0.3  # share of a column's spread that must remain, or it is another form of what has been chosen
_SHARED = 2  # residues that related motifs share
_LEAST = 0.005  # share of the label's variance that a related motif must add
_TINY = 1e-30
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
        Of its frequency with the label, or with being of the class; negative where it is rarer.
    q
        Expected share of false ones among those that correlate as strongly, from permuted labels.
    """

    letters: tuple[int, ...]
    output: int
    correlation: float
    q: float

    @property
    def n_residues(self) -> int:
        """How many places name a residue."""
        return sum(letter != _ANY for letter in self.letters)

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
    level: float = 0.05,
    seed: int = 0,
) -> list[Motif]:
    """Return the motifs that go with a label, best first; none where none stands out.

    The frequency of each k-mer (occurrences per sequence) is correlated with the label: with being positive, with being
    of each class, or with the number. The same is done with the labels given to other repertoires, so that q-values
    hold whatever the k-mers' distributions and however they depend on each other. Of the k-mers with q up to `level`,
    motifs are taken one by one, each the one that goes best with what those before it leave open; so the shifted and
    shortened forms of one motif count once, and a variant counts where it adds something.

    Parameters
    ----------
    dataset
        The repertoires to learn from, and no others.
    labels
        (B, number of tasks), NaN where missing.
    tasks
        What the labels are.
    patterns
        Places of the k-mers' residues, each as in `deeprc.datasets.kmers.count_kmers`.
    most
        At most so many motifs, shared among the outputs.
    fewest
        A task with fewer labels has no motifs.
    level
        Largest q-value.
    seed
        Of the permutations.
    """
    found: list[list[Motif]] = []
    rng = np.random.default_rng(seed)
    first_output = 0
    for task, column in zip(tasks, labels.T, strict=True):
        known = np.flatnonzero(~np.isnan(column))
        if len(known) >= max(fewest, 2) and most > 0:
            targets = _targets(task, column[known])
            found += _of_task(dataset[known], targets, first_output, patterns, most, level, rng)
        first_output += task.n_outputs
    return _in_turn(found, most)


def _targets(task: Task, column: Floats) -> Floats:
    """Return what frequencies are correlated with, (B, T of the task): centred, of length 1, or 0 where constant."""
    values = column[:, None]
    if task.kind == "multiclass":
        values = (column[:, None] == np.arange(len(task.classes))).astype(np.float64)
    values = values - values.mean(axis=0)
    length = np.sqrt((values**2).sum(axis=0))
    return np.asarray(values / np.where(length > 1e-12, length, np.inf))


def _in_turn(found: list[list[Motif]], most: int) -> list[Motif]:
    """Take the best motif of each output, then the second of each ...; a pattern once."""
    chosen: dict[tuple[int, ...], Motif] = {}
    for rank in range(max(map(len, found), default=0)):
        for motifs in found:
            if rank < len(motifs) and len(chosen) < most:
                chosen.setdefault(motifs[rank].letters, motifs[rank])
    return list(chosen.values())


def _of_task(
    dataset: RepertoireDataset,
    targets: Floats,
    first_output: int,
    patterns: Sequence[Sequence[int]],
    most: int,
    level: float,
    rng: np.random.Generator,
) -> list[list[Motif]]:
    """Return the motifs of each of a task's outputs, best first."""
    n, n_outputs = targets.shape
    orders = [np.arange(n), *(rng.permutation(n) for _ in range(_N_PERMUTATIONS))]
    every = np.stack([targets[order] for order in orders], axis=2).reshape(n, -1)  # (B, T * (1 + P))
    sizes = sorted({len(places) for places in patterns})
    found_of: dict[tuple[int, int], _Found] = {(output, k): _Found() for output in range(n_outputs) for k in sizes}
    for number, products in correlations(dataset, patterns, every):
        r = products.reshape(n_outputs, len(orders), -1)  # (T, 1 + P, M)
        for output, (seen, *others) in enumerate(r):
            codes = _largest(seen)
            found = found_of[output, len(patterns[number])]
            found.observed.append((number, codes, seen[codes].astype(np.float64)))
            least = np.abs(seen[codes]).min()
            sizes_of = (np.abs(other) for other in others)
            found.null += [size[size >= least] for size in sizes_of]
    chosen = []
    for output in range(n_outputs):
        by_size = [_candidates(found_of[output, k], level / len(sizes)) for k in sizes]
        candidates = _Candidates.joined(by_size)
        columns = _columns(dataset, patterns, candidates)
        motifs = [candidates.motif(i, patterns, first_output + output) for i in range(columns.shape[1])]
        letters = [motif.letters for motif in motifs]
        thresholds = candidates.threshold[: len(motifs)]
        chosen.append([motifs[i] for i in _pursue(columns, targets[:, output], letters, thresholds, most)])
    return chosen


@dataclass
class _Found:
    """Of the patterns with one number of residues: strongest k-mers of each, and what permuted labels give."""

    observed: list[tuple[int, NDArray[np.int64], Floats]] = field(default_factory=list)
    null: list[NDArray[np.float32]] = field(default_factory=list)


def _largest(r: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return where the largest absolute values of (M,) are."""
    size = np.abs(r)
    if len(r) <= _NOTED:
        return np.arange(len(r))
    return np.argpartition(size, len(r) - _NOTED)[len(r) - _NOTED :]


@dataclass(frozen=True)
class _Candidates:
    """k-mers that stand out: pattern, code, correlation, q-value and what correlations of their size exceed, (n,)."""

    pattern: NDArray[np.int64]
    code: NDArray[np.int64]
    correlation: Floats
    q: Floats
    threshold: Floats

    @classmethod
    def joined(cls, parts: Sequence[_Candidates]) -> _Candidates:
        """Return all of them, strongest first."""
        columns = [np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)]
        order = np.lexsort((columns[1], columns[0], -np.abs(columns[2])))
        return cls(*(column[order] for column in columns))

    def motif(self, i: int, patterns: Sequence[Sequence[int]], output: int) -> Motif:
        places, code = patterns[self.pattern[i]], int(self.code[i])
        letters = [_ANY] * (places[-1] + 1)
        for place in reversed(places):
            code, letters[place] = divmod(code, _N_LETTERS)
        return Motif(tuple(letters), output, float(self.correlation[i]), float(self.q[i]))


def _candidates(found: _Found, level: float) -> _Candidates:
    """Return those whose q-value, null ones expected per one that is seen, is at most the level."""
    pattern = np.concatenate([np.full(len(codes), number) for number, codes, _ in found.observed])
    code = np.concatenate([codes for _, codes, _ in found.observed])
    r = np.concatenate([values for _, _, values in found.observed])
    order = np.lexsort((code, pattern, -np.abs(r)))
    pattern, code, r = pattern[order], code[order], r[order]
    null = np.sort(np.concatenate(found.null))
    above = len(null) - np.searchsorted(null, np.abs(r), side="left")
    # one more than were seen: the labels as they are, are one of the orders
    expected = (above + 1) / (_N_PERMUTATIONS + 1)
    q = np.minimum.accumulate((expected / np.arange(1, len(r) + 1))[::-1])[::-1]
    n = int((q <= level).sum())
    allowed = max(int(level * n * (_N_PERMUTATIONS + 1)) - 1, 0)  # null ones above the last kept
    threshold = null[len(null) - 1 - allowed] if allowed < len(null) else np.abs(r[-1])
    return _Candidates(pattern[:n], code[:n], r[:n], q[:n], np.full(n, threshold))


def _columns(dataset: RepertoireDataset, patterns: Sequence[Sequence[int]], candidates: _Candidates) -> Floats:
    """Return the frequencies of the first candidates in each repertoire, (B, n), n up to `_MOST_CANDIDATES`."""
    number, code = candidates.pattern[:_MOST_CANDIDATES], candidates.code[:_MOST_CANDIDATES]
    columns = np.zeros((len(dataset), len(code)))
    used = np.unique(number)
    for rows, one, counted in frequencies(dataset, [patterns[each] for each in used]):
        at = np.flatnonzero(number == used[one])
        columns[rows, at] = counted[:, code[at]]
    return columns


def _pursue(
    columns: Floats, target: Floats, letters: Sequence[tuple[int, ...]], threshold: Floats, most: int
) -> list[int]:
    """Choose columns, (B, n), one by one, by what each says about the target that the chosen ones do not say.

    Forms of one motif vary together among repertoires of the same label, and independent motifs do not. So from each
    column its regression on the chosen ones, among repertoires of the same label, is taken away, and what remains must
    still correlate with the target, (B,), which has length 1. One that shares residues with a chosen one must also go
    with what the chosen ones leave open of the target; two unlike motifs may well say the same.
    """
    x = columns - columns.mean(axis=0)
    within, among = _Remaining(x - np.outer(target, target @ x), target @ x), _Remaining(x, target @ x)
    related = np.zeros(x.shape[1], bool)
    chosen: list[int] = []
    while len(chosen) < min(most, x.shape[1]):
        length = within.length
        r = np.abs(within.effect) / np.sqrt(within.effect**2 + length**2 + _TINY)
        open_length = np.sqrt(max(1 - among.explained, _TINY))
        gain = np.abs(among.effect) / (among.length + _TINY)
        adds = (gain / open_length >= threshold) & (gain**2 >= _LEAST)
        r[(length < _SAME * within.original) | (related & ~adds)] = 0
        r[chosen] = 0
        r[r < threshold] = 0
        best = int(r.argmax()) if len(r) else 0
        if r[best] == 0:
            break
        chosen.append(best)
        related |= np.array([_shared(letters[best], other) >= _SHARED for other in letters])
        within.take(best)
        among.take(best)
    return chosen


class _Remaining:
    """Columns, (B, n), without their regression on those taken; and their products with a target, (n,)."""

    def __init__(self, columns: Floats, effect: Floats) -> None:
        self.columns, self.effect, self.explained = columns.copy(), effect.copy(), 0.0
        self.original = self.length

    @property
    def length(self) -> Floats:
        return np.asarray(np.sqrt((self.columns**2).sum(axis=0)))

    def take(self, one: int) -> None:
        square = float(self.columns[:, one] @ self.columns[:, one]) + _TINY
        slope = self.columns[:, one] @ self.columns / square
        self.explained += float(self.effect[one]) ** 2 / square
        self.effect = self.effect - self.effect[one] * slope
        self.columns = self.columns - np.outer(self.columns[:, one], slope)


def _shared(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """Return how many residues two motifs share at most, one moved along the other."""
    return max(
        sum(x == y != _ANY for x, y in zip(a[max(shift, 0) :], b[max(-shift, 0) :], strict=False))
        for shift in range(-len(b) + 1, len(a))
    )
