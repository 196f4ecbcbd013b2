"""Find the same repertoire under several names, and repertoires of different donors that share too many sequences.

Letters: B repertoires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import index_connected
from deeprc.checks.findings import Finding, Severity, join_few
from deeprc.checks.overlaps import (
    MIN_SHARED,
    Overlaps,
    Pair,
    compute_median_overlap,
    iterate_overlap_blocks,
    shorten_sketches,
)
from deeprc.checks.profile import RepertoireProfile, list_files

__all__ = ["SimilarPair", "find_similar_repertoires"]

_MIN_SEQUENCES = 10  # two repertoires with fewer sequences may be equal by chance
_MIN_OVERLAP, _MIN_TOP_OVERLAP = 0.1, 0.25  # smallest overlap of two samples, and of the largest sequences
_MIN_ODDS_RATIO = 10.0  # smallest ratio of a pair's odds to those of the median pair
_MAX_COMPARED = 2000  # number of repertoires whose pairs give the median overlap

_SAMPLED, _LARGEST = "sequences", "largest sequences"
_MEASURES = {_SAMPLED: "of the sequences of the smaller one", _LARGEST: "of the hundred most abundant"}  # in messages

SameDonor = Callable[[str, str], bool]


@dataclass(frozen=True)
class SimilarPair:
    """Two repertoires of different donors that share far more sequences than the median pair, by one measure.

    Attributes
    ----------
    names
        The ids of the two repertoires.
    measure
        The sequences (junction, V gene, J gene) that are compared: "sequences" is a fair sample of both repertoires,
        "largest sequences" the hundred of each with the largest counts.
    pair
        The numbers of sequences that were compared, and the number that both have.
    usual
        The overlap of the median pair of the cohort, from 0 to 1; see `Pair.overlap`.
    """

    names: tuple[str, str]
    measure: str
    pair: Pair
    usual: float

    @property
    def expected(self) -> float:
        """The number of sequences that the two would share with the overlap of the median pair."""
        return self.usual * min(self.pair.sizes)


@dataclass(frozen=True)
class _GroupProblem:
    """What is wrong with groups of repertoires, in words, and what to do about it.

    The finding names repertoires of the largest group between `message` and `details`.
    """

    severity: Severity
    code: str
    message: str
    advice: str
    details: str = ""


def find_similar_repertoires(
    profiles: Sequence[RepertoireProfile], same_donor: SameDonor, *, donors_known: bool = True
) -> tuple[list[Finding], list[SimilarPair]]:
    """Return findings about repertoires with the same content or a suspiciously similar one, and the similar pairs.

    The overlap of two repertoires is the fraction of the smaller one's sequences (junction and genes) that the other
    one also has. It is estimated from the sketches, and again for the hundred sequences with the largest counts. Two
    repertoires of one donor are expected to share sequences. `donors_known` says whether a column names donors.
    """
    filled = [profile for profile in profiles if profile.kept]
    largest = [profile.fingerprints.top for profile in filled], [False] * len(filled)
    similar = [
        *_find_similar_pairs(filled, shorten_sketches(filled), _SAMPLED, _MIN_OVERLAP, same_donor),
        *_find_similar_pairs(filled, largest, _LARGEST, _MIN_TOP_OVERLAP, same_donor),
    ]
    return [*_make_identical_findings(filled), *_make_similar_findings(filled, similar, donors_known)], similar


def _find_similar_pairs(
    profiles: Sequence[RepertoireProfile],
    sketches: tuple[Sequence[NDArray[np.uint64]], Sequence[bool]],
    measure: str,
    min_overlap: float,
    same_donor: SameDonor,
) -> Iterator[SimilarPair]:
    """Yield the pairs with an overlap above `min_overlap` and with ten times the odds of the median pair."""
    blocks: Iterable[Overlaps] = iterate_overlap_blocks(*sketches)
    if len(profiles) <= _MAX_COMPARED:
        blocks = list(blocks)
        usual = compute_median_overlap(blocks, len(profiles))
    else:
        chosen = np.linspace(0, len(profiles) - 1, _MAX_COMPARED).astype(int).tolist()
        evenly = iterate_overlap_blocks([sketches[0][i] for i in chosen], [sketches[1][i] for i in chosen])
        usual = compute_median_overlap(evenly, len(chosen))
    for block in blocks:
        is_similar = (
            (block.shared >= MIN_SHARED)
            & (block.overlap > min_overlap)
            & (_compute_odds(block.overlap) > _MIN_ODDS_RATIO * _compute_odds(usual))
        )
        for pair in block.list_pairs(np.asarray(is_similar)):
            first, second = profiles[pair.first], profiles[pair.second]
            names = (first.repertoire_id, second.repertoire_id)
            if first.fingerprints.digest != second.fingerprints.digest and not same_donor(*names):
                yield SimilarPair(names, measure, pair, usual)


def _compute_odds(overlap: float | NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        return np.asarray(overlap / (1 - np.asarray(overlap)))


def _make_identical_findings(profiles: Sequence[RepertoireProfile]) -> Iterator[Finding]:
    """Yield a finding about repertoires with the same content: an error, but a warning if they have few sequences."""
    by_digest: dict[str, list[RepertoireProfile]] = {}
    for profile in profiles:
        by_digest.setdefault(profile.fingerprints.digest, []).append(profile)
    several = [group for group in by_digest.values() if len(group) > 1]
    certain = [group for group in several if group[0].kept >= _MIN_SEQUENCES]
    severities: tuple[tuple[Severity, list[list[RepertoireProfile]]], ...] = (
        ("error", certain),
        ("warning", [group for group in several if group[0].kept < _MIN_SEQUENCES]),
    )
    for severity, identical in severities:
        if not identical:
            continue
        groups = _sort_by_size([tuple(profile.repertoire_id for profile in group) for group in identical])
        n = sum(map(len, groups))
        problem = _GroupProblem(
            severity,
            "same-content",
            _describe_copies(n, len(groups)),
            "Find out which file was copied, or exported under a wrong name, and keep only one of them. If one is used "
            "for training and another for testing, metrics are too good.",
        )
        yield _make_group_finding(problem, groups, profiles, {})


def _describe_copies(n: int, n_groups: int) -> str:
    if n_groups == 1:
        return f"{n:,} repertoires have the same sequences, genes and counts"
    return (
        f"all repertoires of a group have the same sequences, genes and counts ({n_groups:,} groups, {n:,} repertoires)"
    )


def _make_similar_findings(
    profiles: Sequence[RepertoireProfile], similar: Sequence[SimilarPair], donors_known: bool
) -> Iterator[Finding]:
    """Yield a finding about groups of repertoires that share far more sequences than is usual in the cohort."""
    if not similar:
        return
    position_of = {profile.repertoire_id: i for i, profile in enumerate(profiles)}
    pairs = sorted(
        {similarity.names for similarity in similar}, key=lambda names: (position_of[names[0]], position_of[names[1]])
    )
    groups = _find_connected_groups(pairs, [profile.repertoire_id for profile in profiles])
    numbers: dict[str, int | float] = {"pairs": len(pairs)}
    texts = []
    for measure, phrase in _MEASURES.items():
        of_measure = [similarity for similarity in similar if similarity.measure == measure]
        if of_measure:
            highest, usual = max(similarity.pair.overlap for similarity in of_measure), of_measure[0].usual
            numbers |= {f"highest overlap of {measure}": highest, f"usual overlap of {measure}": usual}
            texts.append(f"{'' if len(pairs) == 1 else 'up to '}{highest:.0%} {phrase} (median pair: {usual:.1%})")
    of_donors = "of different donors" if donors_known else "(no column names their donors)"
    in_groups = f", in {len(groups):,} groups," if len(groups) > 1 else ""
    sharing = "They share" if len(pairs) == 1 else f"The {len(pairs):,} pairs share"
    problem = _GroupProblem(
        "warning",
        "similar-content",
        f"{sum(map(len, groups)):,} repertoires {of_donors}{in_groups} share far more sequences than expected by "
        "chance",
        "If they come from the same donor, say so in a column of the sheet (`deeprc check` with `write_subjects` adds "
        "one) and train with `group_by`. Otherwise check for swapped samples and contamination.",
        f". {sharing} {' and '.join(texts)}",
    )
    yield _make_group_finding(problem, groups, profiles, numbers)


def _make_group_finding(
    problem: _GroupProblem,
    groups: Sequence[tuple[str, ...]],
    profiles: Sequence[RepertoireProfile],
    numbers: Mapping[str, int | float],
) -> Finding:
    """Return a finding about groups of repertoires; its message names the largest group."""
    profile_of = {profile.repertoire_id: profile for profile in profiles}
    members = tuple(name for group in groups for name in group)
    largest = join_few(groups[0])
    return Finding(
        problem.severity,
        problem.code,
        f"{problem.message}{'; the largest group' if len(groups) > 1 else ''}: {largest}{problem.details}",
        problem.advice,
        list_files(profile_of[name] for name in members),
        members,
        groups=tuple(groups),
        numbers={"groups": len(groups), "repertoires": len(members), **numbers},
    )


def _find_connected_groups(pairs: Sequence[tuple[str, str]], ids: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the groups of repertoires that are connected by pairs, the largest group first."""
    index_of = {name: i for i, name in enumerate(ids)}
    ends = np.array([[index_of[name] for name in pair] for pair in pairs]).T  # (2, pairs)
    component = index_connected(ends, len(ids))
    groups: dict[int, list[str]] = {}
    for i in np.unique(ends).tolist():
        groups.setdefault(int(component[i]), []).append(ids[i])
    return _sort_by_size([tuple(group) for group in groups.values()])


def _sort_by_size(groups: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return sorted(groups, key=len, reverse=True)
