"""The same repertoire under two names, and repertoires of different subjects that share too much.

Letters: B repertoires, H hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, triu

from deeprc.datasets.plan import listed
from deeprc.evaluation.checks.findings import Finding
from deeprc.evaluation.checks.profile import SKETCH_SIZE, RepertoireProfile

__all__ = ["Pair", "check_twins", "overlaps", "sampled_overlaps"]

_CHANCE = 10  # fewer sequences may be the same by chance
_SHARED = 10  # fewer in common are no sign
_OVERLAP = 0.1
_TOP_OVERLAP = 0.25
_ODDS = 10.0
_SHOWN = 10
_LAST = np.uint64(2**64 - 1)

SameSubject = Callable[[str, str], bool]


@dataclass(frozen=True)
class Pair:
    """Two repertoires, by their place: how many of the sampled sequences of each, `sizes`, are in both."""

    first: int
    second: int
    shared: int
    sizes: tuple[int, int]

    @property
    def overlap(self) -> float:
        """The share of the smaller one, estimated."""
        return self.shared / min(self.sizes) if min(self.sizes) else 0.0

    def is_far_above(self, usual: float, limit: float) -> bool:
        """Tell whether the two share enough to ask why: at least ten times the odds of the usual pair."""
        return self.shared >= _SHARED and self.overlap > limit and _odds(self.overlap) > _ODDS * _odds(usual)


def check_twins(profiles: Sequence[RepertoireProfile], same_subject: SameSubject) -> list[Finding]:
    """Return the groups of repertoires with the same content, and those with a suspiciously similar one.

    The overlap of two repertoires is the share of the smaller one's (junction, genes) that the other has too,
    estimated from the sketches, and the same among their hundred largest. Pairs of one subject are expected to share.
    """
    filled = [each for each in profiles if each.kept]
    suspicious: dict[tuple[int, int], list[str]] = {}
    sampled = sampled_overlaps(filled)
    largest = overlaps([each.top for each in filled], [False] * len(filled))
    for pairs, limit, what in (
        (sampled, _OVERLAP, "of the sequences of the smaller one"),
        (largest, _TOP_OVERLAP, "of their hundred largest sequences"),
    ):
        usual = _median_overlap(pairs, len(filled))
        for pair in pairs:
            first, second = filled[pair.first], filled[pair.second]
            expected = first.digest == second.digest or same_subject(first.repertoire_id, second.repertoire_id)
            if not expected and pair.is_far_above(usual, limit):
                text = f"{pair.overlap:.0%} {what} (median of all pairs: {usual:.1%})"
                suspicious.setdefault((pair.first, pair.second), []).append(text)
    pairs_found = [(filled[a], filled[b], " and ".join(texts)) for (a, b), texts in sorted(suspicious.items())]
    return [*_same(filled), *_similar(pairs_found)]


def sampled_overlaps(profiles: Sequence[RepertoireProfile], *, every: bool = False) -> list[Pair]:
    """Return the pairs of repertoires whose sampled (junction, genes) have anything in common, or `every` pair."""
    is_sampled = [each.n_distinct > SKETCH_SIZE for each in profiles]
    return overlaps([each.sketch for each in profiles], is_sampled, every=every)


def overlaps(sketches: Sequence[NDArray[np.uint64]], sampled: Sequence[bool], *, every: bool = False) -> list[Pair]:
    """Return the pairs of sketches with anything in common, or `every` pair.

    A sketch that is `sampled` holds all hashes up to its last one; any other holds all there are. So two of them are
    compared up to where both are complete, which is a fair sample of the hashes of both.
    """
    if len(sketches) < 2:
        return []
    end = [sketch[-1] if cut else _LAST for sketch, cut in zip(sketches, sampled, strict=True)]
    row = np.repeat(np.arange(len(sketches)), [len(sketch) for sketch in sketches])
    _, column = np.unique(np.concatenate(sketches), return_inverse=True)
    held = csr_array((np.ones(len(row), np.int32), (row, column)), shape=(len(sketches), int(column.max()) + 1))
    common = triu(held @ held.T, k=1).tocoo()  # (B, H) @ (H, B)
    shared = dict(zip(zip(common.row.tolist(), common.col.tolist(), strict=True), common.data.tolist(), strict=True))
    pairs = []
    for first, second in combinations(range(len(sketches)), 2) if every else shared:
        limit = min(end[first], end[second])
        a, b = (int(np.searchsorted(sketches[each], limit, side="right")) for each in (first, second))
        pairs.append(Pair(first, second, shared.get((first, second), 0), (a, b)))
    return pairs


def _median_overlap(pairs: Sequence[Pair], n: int) -> float:
    """Return the median over all pairs of n repertoires; those that are not listed share nothing."""
    total = n * (n - 1) // 2
    values = np.zeros(max(total, 1))
    values[: len(pairs)] = [pair.overlap for pair in pairs]
    return float(np.median(values))


def _odds(share: float) -> float:
    return share / (1 - share) if share < 1 else float("inf")


def _same(profiles: Sequence[RepertoireProfile]) -> Iterator[Finding]:
    groups: dict[str, list[RepertoireProfile]] = {}
    for each in profiles:
        groups.setdefault(each.digest, []).append(each)
    for group in groups.values():
        if len(group) > 1:
            ids = tuple(each.repertoire_id for each in group)
            yield Finding(
                "error" if group[0].kept >= _CHANCE else "warning",
                "same-content",
                f"{', '.join(ids)} hold the same {group[0].kept:,} sequences with the same genes and counts",
                "find out which file was copied or exported under a wrong name, and keep one: where one of them trains "
                "and the other tests, results look better than they are",
                tuple(dict.fromkeys(str(each.path) for each in group)),
                ids,
            )


def _similar(pairs: Sequence[tuple[RepertoireProfile, RepertoireProfile, str]]) -> Iterator[Finding]:
    advice = (
        "if they are of one subject, say so in a subject column of the sheet and train with --group-by; if not, look "
        "for swapped samples or for contamination of one by the other"
    )
    for first, second, text in pairs[:_SHOWN]:
        ids = (first.repertoire_id, second.repertoire_id)
        message = f"{ids[0]} and {ids[1]} share {text}"
        yield Finding("warning", "similar-content", message, advice, (str(first.path), str(second.path)), ids)
    if len(pairs) > _SHOWN:
        names = [f"{first.repertoire_id} and {second.repertoire_id}" for first, second, _ in pairs[_SHOWN:]]
        both = tuple(dict.fromkeys(each.repertoire_id for pair in pairs[_SHOWN:] for each in pair[:2]))
        message = f"likewise {listed(names, 'more pair', 'more pairs')}"
        yield Finding("warning", "similar-content", message, advice, repertoires=both)
