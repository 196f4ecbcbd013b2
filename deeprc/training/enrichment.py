"""Which k-mers with gaps go with a label: found in one streaming pass per pattern, judged against permuted labels.

Letters: B repertoires, M k-mers of a pattern of places, T outputs, P permutations, n candidates, W places that a motif
spans.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.tasks import Task
from deeprc.training.kmer_correlations import add_strengths, correlations, frequencies

__all__ = ["Motif", "enriched_motifs", "places_within"]

logger = logging.getLogger(__name__)

Floats = NDArray[np.float64]

_N_LETTERS = len(AMINO_ACIDS)
_N_PERMUTATIONS = 100
_MOST_CANDIDATES = 500  # of an output, of which motifs are chosen one after another
_NOTED = 2000  # strongest k-mers of each pattern
_TOGETHER = 4  # outputs correlated at a time
_STEP = 0.005  # of the strengths that are counted
_CONSTANT = 1e-12  # length of a label that does not vary
_ROUNDING = 1e-6
_EQUAL = 0.95  # correlation of columns that are taken for one
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
    if not patterns or most < 1:
        return []
    rng = np.random.default_rng(seed)
    targets = list(_targets(dataset, labels, tasks, max(fewest, 2)))
    sizes = sorted({len(places) for places in patterns})
    seen = {k: _Seen.of(len(dataset)) for k in sizes}
    for target in targets:
        orders = [np.arange(target.n), *(rng.permutation(target.n) for _ in range(_N_PERMUTATIONS))]
        every = np.stack([target.values[order] for order in orders], axis=2).reshape(target.n, -1)  # (n, T * (1 + P))
        for number, r in correlations(target.dataset, patterns, every):
            seen[len(patterns[number])].note(target, number, r.reshape(len(target.outputs), len(orders), -1))
    standing_out = [seen[k].candidates(level / len(sizes)) for k in sizes]
    found = []
    for target in targets:
        for output, values in zip(target.outputs, target.values.T, strict=True):
            candidates = _Candidates.joined([each.of_output(output, target.n) for each in standing_out])
            found.append(_chosen(target.dataset, values, candidates, patterns, most))
    return _in_turn(found, most)


@dataclass(frozen=True)
class _Target:
    """What frequencies are correlated with: some outputs of one task.

    Attributes
    ----------
    dataset
        The repertoires whose label is known, n of them.
    values
        (n, T'): centred, of length 1.
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
    first_output = 0
    for task, column in zip(tasks, labels.T, strict=True):
        known = np.flatnonzero(~np.isnan(column))
        if len(known) >= fewest:
            values = column[known, None]
            if task.kind == "multiclass":
                values = (values == np.arange(len(task.classes))).astype(np.float64)
            values = values - values.mean(axis=0)
            length = np.sqrt((values**2).sum(axis=0))
            varying = np.flatnonzero(length > _CONSTANT)
            for at in (varying[first : first + _TOGETHER] for first in range(0, len(varying), _TOGETHER)):
                yield _Target(dataset[known], values[:, at] / length[at], (first_output + at).tolist())
        first_output += task.n_outputs


def _in_turn(found: list[list[Motif]], most: int) -> list[Motif]:
    """Take the best motif of each output, then the second of each ...; a pattern once."""
    chosen: dict[tuple[int, ...], Motif] = {}
    for rank in range(max(map(len, found), default=0)):
        for motifs in found:
            if rank < len(motifs) and len(chosen) < most:
                chosen.setdefault(motifs[rank].letters, motifs[rank])
    return list(chosen.values())


@dataclass
class _Seen:
    """Of the k-mers with one number of residues, all outputs together: the strongest, and what permuted labels give.

    What is compared is |r| times the square root of the number of repertoires, which is alike for all outputs.

    Attributes
    ----------
    strongest
        Output, pattern, code and r of the strongest k-mers of each pattern for each output, and their strength.
    null
        How many k-mers had each strength with permuted labels, in steps of `_STEP`.
    """

    strongest: list[tuple[Floats, ...]]
    null: NDArray[np.int64]

    @classmethod
    def of(cls, n: int) -> _Seen:
        return cls([], np.zeros(int(n**0.5 / _STEP) + 3, np.int64))

    def note(self, target: _Target, pattern: int, r: NDArray[np.float32]) -> None:
        """Take in the correlations of a pattern's k-mers, (T', 1 + P, M): with the labels first, then permuted ones."""
        scale = float(target.n**0.5)
        for output, (seen, *others) in zip(target.outputs, r, strict=True):
            size = np.abs(seen)
            kept = min(_NOTED, len(size))
            code = np.argpartition(size, len(size) - kept)[len(size) - kept :]
            columns = (np.full(kept, output), np.full(kept, pattern), code, seen[code], size[code] * scale)
            self.strongest.append(tuple(column.astype(np.float64) for column in columns))
            for other in others:
                add_strengths(other, scale / _STEP, self.null)

    def candidates(self, level: float) -> _Candidates:
        """Return those whose q-value, null ones expected per one that is seen, is at most the level."""
        if not self.strongest:
            return _Candidates.joined([])
        output, pattern, code, r, strength = (np.concatenate(each) for each in zip(*self.strongest, strict=True))
        order = np.lexsort((code, pattern, output, -strength))
        above = np.cumsum(self.null[::-1])[::-1][(strength[order] / _STEP).astype(np.int64)]
        # one more than were seen: the labels as they are, are one of the orders
        expected = (above + 1) / (_N_PERMUTATIONS + 1)
        q = np.minimum.accumulate((expected / np.arange(1, len(r) + 1))[::-1])[::-1]
        order, q = order[q <= level], q[q <= level]
        bar = np.full(len(order), strength[order].min(initial=np.inf))
        return _Candidates(output[order], pattern[order], code[order], r[order], q, bar)


@dataclass(frozen=True)
class _Candidates:
    """k-mers that stand out, strongest first: output, pattern, code, correlation, q-value and bar passed, (n,)."""

    output: Floats
    pattern: Floats
    code: Floats
    correlation: Floats
    q: Floats
    bar: Floats

    def __len__(self) -> int:
        return len(self.q)

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> _Candidates:
        return _Candidates(*(getattr(self, f.name)[rows] for f in fields(self)))

    @classmethod
    def joined(cls, parts: Sequence[_Candidates]) -> _Candidates:
        """Return all of them, strongest first."""
        columns = [np.concatenate([np.zeros(0), *(getattr(part, f.name) for part in parts)]) for f in fields(cls)]
        joined = cls(*columns)
        return joined.take(np.lexsort((joined.code, joined.pattern, -np.abs(joined.correlation))))

    def of_output(self, output: int, n: int) -> _Candidates:
        """Return one output's, as many of each sign at most as can be looked at, the bar as a correlation of n."""
        mine = self.take(self.output == output)
        rank = np.zeros(len(mine), np.int64)
        for sign in (mine.correlation > 0, mine.correlation <= 0):
            rank[sign] = np.arange(int(sign.sum()))
        kept = mine.take(rank < _MOST_CANDIDATES // 2)
        return replace(kept, bar=kept.bar / n**0.5 * (1 - _ROUNDING))

    def motifs(self, patterns: Sequence[Sequence[int]]) -> list[Motif]:
        """Return them as motifs."""
        return [self._motif(i, patterns[int(self.pattern[i])]) for i in range(len(self))]

    def _motif(self, i: int, places: Sequence[int]) -> Motif:
        code, letters = int(self.code[i]), [_ANY] * (places[-1] + 1)
        for place in reversed(places):
            code, letters[place] = divmod(code, _N_LETTERS)
        return Motif(tuple(letters), int(self.output[i]), float(self.correlation[i]), float(self.q[i]))


def _chosen(
    dataset: RepertoireDataset,
    values: Floats,
    candidates: _Candidates,
    patterns: Sequence[Sequence[int]],
    most: int,
) -> list[Motif]:
    """Return an output's motifs, best first."""
    if len(candidates) == 0:
        return []
    motifs = candidates.motifs(patterns)
    columns = _columns(dataset, patterns, candidates)
    letters = [motif.letters for motif in motifs]
    return [motifs[i] for i in _pursue(columns, values, letters, candidates.bar, most)]


def _columns(dataset: RepertoireDataset, patterns: Sequence[Sequence[int]], candidates: _Candidates) -> Floats:
    """Return the frequencies of the candidates in each repertoire, (B, n)."""
    number, code = candidates.pattern.astype(np.int64), candidates.code.astype(np.int64)
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
    related, same = np.zeros((2, x.shape[1]), bool)
    size = np.sqrt((x**2).sum(axis=0)) + _TINY
    chosen: list[int] = []
    while len(chosen) < min(most, x.shape[1]):
        length = within.length
        r = np.abs(within.effect) / np.sqrt(within.effect**2 + length**2 + _TINY)
        open_length = np.sqrt(max(1 - among.explained, _TINY))
        gain = np.abs(among.effect) / (among.length + _TINY)
        adds = (gain / open_length >= threshold) & (gain**2 >= _LEAST)
        r[(length < _SAME * within.original) | (related & ~adds) | same] = 0
        r[r < threshold] = 0
        best = int(r.argmax()) if len(r) else 0
        if r[best] == 0:
            break
        chosen.append(best)
        same |= x[:, best] @ x >= _EQUAL * size[best] * size
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
