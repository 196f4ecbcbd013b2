"""Which k-mers with gaps go with a label: found in one streaming pass per pattern, judged against permuted labels.

Letters: B repertoires, M k-mers of a pattern of places, T outputs, P permutations, n candidates, W places that a motif
spans.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.outputs import output_slices
from deeprc.tasks import Task
from deeprc.training.kmer_correlations import correlations, occurrences

__all__ = ["Motif", "enriched_motifs", "places_within"]

logger = logging.getLogger(__name__)

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

_N_LETTERS = len(AMINO_ACIDS)
_N_PERMUTATIONS = 100
_MOST_CANDIDATES = 500  # of an output, of which motifs are chosen one after another
_NOTED = 2000  # strongest k-mers of each pattern
_TOGETHER = 4  # outputs correlated at a time
_CONSTANT = 1e-12  # length of a label that does not vary
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
    of each class, or with the number. The same is done with the labels given to other repertoires, and the strongest of
    all k-mers each time gives p-values (Westfall and Young's), which hold for all k-mers and outputs together, whatever
    the k-mers' distributions and however they depend on each other. While p is up to `level`, motifs are
    taken one by one, each the one that stands out most in the sequences that carry none of those before it; so the
    shifted and shortened forms of one motif count once, and a variant counts where it has sequences of its own.

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
        Largest p-value.
    seed
        Of the permutations.
    """
    if not patterns or most < 1:
        return []
    rng = np.random.default_rng(seed)
    targets = list(_targets(dataset, labels, tasks, max(fewest, 2)))
    if not targets:
        return []
    sizes = sorted({len(places) for places in patterns})
    seen = {k: _Seen() for k in sizes}
    for target in targets:
        orders = [np.arange(target.n), *(rng.permutation(target.n) for _ in range(_N_PERMUTATIONS))]
        every = np.stack([target.values[order] for order in orders], axis=2).reshape(target.n, -1)  # (n, T * (1 + P))
        for number, r in correlations(target.dataset, patterns, every):
            seen[len(patterns[number])].note(target, number, r.reshape(len(target.outputs), len(orders), -1))
    nulls = [partial(seen[k].p_value, n_kinds=len(sizes)) for k in sizes]
    candidates = _Candidates.joined([seen[k].candidates(kind, level) for kind, k in enumerate(sizes)])
    found = []
    for target in targets:
        for output, values in zip(target.outputs, target.values.T, strict=True):
            mine = candidates.of_output(output)
            found.append(_chosen(target.dataset, values, mine, patterns, nulls, most=most, level=level))
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
    for task, part, column in zip(tasks, output_slices(tasks), labels.T, strict=True):
        known = np.flatnonzero(~np.isnan(column))
        if len(known) >= fewest:
            values = column[known, None]
            if task.kind == "multiclass":
                values = (values == np.arange(len(task.classes))).astype(np.float64)
            values = values - values.mean(axis=0)
            length = np.sqrt((values**2).sum(axis=0))
            varying = np.flatnonzero(length > _CONSTANT)
            for at in (varying[first : first + _TOGETHER] for first in range(0, len(varying), _TOGETHER)):
                yield _Target(dataset[known], values[:, at] / length[at], (part.start + at).tolist())


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
    highest
        Strength of the strongest k-mer with each order of the labels, (P,).
    """

    strongest: list[tuple[Codes, Codes, Codes, Floats, Floats]] = field(default_factory=list)
    highest: Floats = field(default_factory=lambda: np.zeros(_N_PERMUTATIONS))

    def note(self, target: _Target, pattern: int, r: NDArray[np.float32]) -> None:
        """Take in the correlations of a pattern's k-mers, (T', 1 + P, M): with the labels first, then permuted ones."""
        scale = float(target.n**0.5)
        for output, (seen, *others) in zip(target.outputs, r, strict=True):
            size = np.abs(seen)
            kept = min(_NOTED, len(size))
            code = np.argpartition(size, len(size) - kept)[len(size) - kept :]
            strength = (size[code] * scale).astype(np.float64)
            where = np.full(kept, output), np.full(kept, pattern), code
            self.strongest.append((*where, seen[code].astype(np.float64), strength))
            self.highest = np.maximum(self.highest, [scale * max(other.max(), -other.min()) for other in others])

    def p_value(self, strength: Floats, n_kinds: int) -> Floats:
        """Return how likely the strongest k-mer is as strong as each, (n,), where labels tell nothing.

        From a Gumbel distribution with the moments of the highest, and not below the share of them that is as strong;
        times the number of kinds that are looked at.
        """
        scale = max(self.highest.std(ddof=1) * 6**0.5 / np.pi, np.finfo(float).tiny)
        beyond = (strength - self.highest.mean()) / scale + np.euler_gamma
        gumbel = -np.expm1(-np.exp(np.clip(-beyond, -700, 700)))
        seen = np.mean(self.highest >= strength[..., None], axis=-1)
        return np.asarray(np.minimum(n_kinds * np.maximum(gumbel, seen), 1))

    def candidates(self, kind: int, level: float) -> _Candidates:
        """Return those whose p-value within this kind is up to the level."""
        output, pattern, code, r, strength = (np.concatenate(each) for each in zip(*self.strongest, strict=True))
        rows = np.flatnonzero(self.p_value(strength, 1) <= level)
        return _Candidates(output[rows], pattern[rows], code[rows], r[rows], np.full(len(rows), kind))


@dataclass(frozen=True)
class _Candidates:
    """k-mers that may stand out, strongest first: output, pattern, code, correlation and kind, (n,).

    A kind are all k-mers with one number of residues.
    """

    output: Codes
    pattern: Codes
    code: Codes
    correlation: Floats
    kind: Codes

    def __len__(self) -> int:
        return len(self.code)

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> _Candidates:
        return _Candidates(*(getattr(self, f.name)[rows] for f in fields(self)))

    @classmethod
    def joined(cls, parts: Sequence[_Candidates]) -> _Candidates:
        """Return all of them, strongest first."""
        joined = cls(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)))
        return joined.take(np.lexsort((joined.code, joined.pattern, -np.abs(joined.correlation))))

    def of_output(self, output: int) -> _Candidates:
        """Return one output's, as many of each sign at most as can be looked at."""
        mine = self.take(self.output == output)
        rank = np.zeros(len(mine), np.int64)
        for sign in (mine.correlation > 0, mine.correlation <= 0):
            rank[sign] = np.arange(int(sign.sum()))
        return mine.take(rank < _MOST_CANDIDATES // 2)

    def motif(self, i: int, patterns: Sequence[Sequence[int]], p_value: float) -> Motif:
        """Return one of them as a motif."""
        places = patterns[self.pattern[i]]
        code, letters = int(self.code[i]), [_ANY] * (places[-1] + 1)
        for place in reversed(places):
            code, letters[place] = divmod(code, _N_LETTERS)
        return Motif(tuple(letters), int(self.output[i]), float(self.correlation[i]), p_value)


def _chosen(
    dataset: RepertoireDataset,
    values: Floats,
    candidates: _Candidates,
    patterns: Sequence[Sequence[int]],
    nulls: Sequence[Callable[[Floats], Floats]],
    *,
    most: int,
    level: float,
) -> list[Motif]:
    """Return an output's motifs, best first: each by the sequences that carry none of those before it.

    So the longer, shorter and shifted forms of a motif, and what stands beside it, count once, because they are in the
    same sequences; another motif, or a form in sequences of its own, still stands out.

    Parameters
    ----------
    dataset, values
        The repertoires and what is correlated, (n,), of length 1.
    candidates
        K-mers that may stand out.
    patterns
        Places of their residues.
    nulls
        P-values of strengths, for each kind; see `_Seen.p_value`.
    most
        Motifs at most.
    level
        Largest p-value.
    """
    if len(candidates) == 0:
        return []
    found = occurrences(dataset, patterns, candidates.pattern, candidates.code)
    candidates = candidates.take(np.arange(found.n))
    place = found.repertoire * found.n + found.which
    carrier = np.unique(found.sequence, return_inverse=True)[1]
    taken = np.zeros(len(carrier), bool)  # by carrier; there are not more of them than occurrences
    sizes, root = np.maximum(dataset.n_sequences, 1)[:, None], len(values) ** 0.5
    free = np.ones(found.n, bool)
    chosen: list[Motif] = []
    while len(chosen) < most:
        counts = np.bincount(place[~taken[carrier]], minlength=len(values) * found.n).reshape(len(values), -1)
        r = _correlation(counts / sizes, values) * np.sign(candidates.correlation)
        strength = np.maximum(r, 0) * root
        p = np.choose(candidates.kind, [null(strength) for null in nulls])
        r[(p > level) | ~free] = 0
        best = int(r.argmax())
        if r[best] <= 0:
            break
        chosen.append(candidates.motif(best, patterns, float(p[best])))
        free[best] = False
        taken[carrier[found.which == best]] = True
    return chosen


def _correlation(columns: Floats, values: Floats) -> Floats:
    """Return the correlation of columns, (B, n), with values, (B,), centred and of length 1; 0 of a constant column."""
    centred = columns - columns.mean(axis=0)
    length = np.sqrt((centred**2).sum(axis=0))
    return np.asarray(values @ centred / np.where(length > 0, length, np.inf))
