"""Find repertoires that share more with another class of their donor than with their own: swaps, contamination.

Clones persist in a donor. So two samples of CD4 cells of one donor share more sequences than a sample of CD4 and one of
CD8 cells. Labels for which this does not hold, such as visits, give no finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import binom

from deeprc.checks.findings import Finding, name_few
from deeprc.checks.overlaps import MIN_SHARED, Pair, find_overlaps, shorten_sketches
from deeprc.checks.profile import RepertoireProfile, list_files
from deeprc.checks.sheet import SheetDonors
from deeprc.datasets.metadata import Metadata
from deeprc.task_labels import encode_labels
from deeprc.tasks import Task

__all__ = ["ClassComparison", "find_swaps"]

_MIN_RATIO = 3.0  # smallest ratio of the similarity to another class to that to the own class
_LEVEL = 0.01  # level of significance, for all comparisons together
_LEVEL_OF_COHORT = 0.05  # level of the sign test whether samples of one class share more than others


@dataclass(frozen=True)
class ClassComparison:
    """A repertoire, and the most similar repertoires of the same donor: in its own class, and in another class.

    Attributes
    ----------
    target, donor
        Name of the target that has the classes, and of the donor.
    names
        The ids of the repertoire and of the most similar one of another class.
    classes
        The classes of these two.
    within, across
        Sequences that the repertoire shares with the most similar one of its own class, and of another class.
    n_across
        Number of the donor's repertoires of other classes.
    """

    target: str
    donor: str
    names: tuple[str, str]
    classes: tuple[str, str]
    within: Pair
    across: Pair
    n_across: int

    @property
    def is_closest_to_own_class(self) -> bool:
        """Whether the repertoire is more similar to its own class."""
        return _compute_similarity(self.within) > _compute_similarity(self.across)

    @property
    def p_value(self) -> float:
        """The p-value of sharing so much with another class, if both pairs were equally similar.

        It is corrected for choosing the most similar of `n_across` repertoires. A pair within the class cannot share
        more sequences than its smaller repertoire has.
        """
        across, within = _compute_pair_scale(self.across), min(self.within.sizes)
        n = self.across.shared + self.within.shared
        return self.n_across * float(binom.sf(self.across.shared - 1, n, across / (across + within)))

    def is_closer_to_other_class(self, level: float) -> bool:
        """Return whether the similarity to another class is much higher, and significant at a level."""
        far = _compute_similarity(self.across) > _MIN_RATIO * _compute_similarity(self.within)
        return self.across.shared >= MIN_SHARED and far and self.p_value <= level

    @property
    def text(self) -> str:
        """A sentence that says how much the repertoire shares with both."""
        first, second = (f"{name} ({label})" for name, label in zip(self.names, self.classes, strict=True))
        within = f"{self.within.overlap:.1%} with the most similar one of its own class"
        return f"{first} shares {self.across.overlap:.1%} with {second}, but {within}"


def _compute_pair_scale(pair: Pair) -> float:
    """Return the geometric mean of the numbers of sequences of two repertoires."""
    return float(np.sqrt(pair.sizes[0] * pair.sizes[1]))


def _compute_similarity(pair: Pair) -> float:
    """Return the similarity of two repertoires relative to both sizes, so that depth alone does not raise it."""
    return pair.shared / _compute_pair_scale(pair) if pair.shared else 0.0


def find_swaps(
    profiles: Sequence[RepertoireProfile], sheet: Metadata, tasks: Sequence[Task], donors: SheetDonors
) -> tuple[list[Finding], list[ClassComparison]]:
    """Return findings about repertoires that are more similar to another class of their donor, and these comparisons.

    A repertoire is compared if its donor has another repertoire of the same class and one of another class. There are
    findings only if a sign test over donors shows that samples of one class share more sequences than samples of
    different classes. With 5 donors it must hold in all of them, with 8 donors in 7.
    """
    profile_of = {profile.repertoire_id: profile for profile in profiles if profile.kept}
    findings: list[Finding] = []
    all_misplaced: list[ClassComparison] = []
    for task in tasks:
        if task.kind == "regression":
            continue
        by_donor = _compare_within_donors(profile_of, sheet, task, donors)
        if not _is_sign_test_significant(by_donor):
            continue
        comparisons = [comparison for compared in by_donor for comparison in compared]
        level = _LEVEL / len(comparisons)
        misplaced = [comparison for comparison in comparisons if comparison.is_closer_to_other_class(level)]
        findings += [_make_finding(task, misplaced, profile_of)] if misplaced else []
        all_misplaced += misplaced
    return findings, all_misplaced


def _compare_within_donors(
    profile_of: Mapping[str, RepertoireProfile], sheet: Metadata, task: Task, donors: SheetDonors
) -> list[list[ClassComparison]]:
    """Return the comparisons of each donor who has any, for the classes of one target."""
    known = pd.DataFrame({"donor": donors.list_donors(), "label": encode_labels([task], sheet.table)[:, 0]}).dropna()
    known = known[known.index.isin(profile_of)]
    by_donor = []
    for donor, rows in known.groupby("donor", sort=False):
        members = [profile_of[str(name)] for name in rows.index]
        by_donor.append(list(_iterate_comparisons(members, rows["label"].tolist(), task, str(donor))))
    return [compared for compared in by_donor if compared]


def _iterate_comparisons(
    members: Sequence[RepertoireProfile], label: Sequence[float], task: Task, donor: str
) -> Iterator[ClassComparison]:
    """Yield the comparisons among the repertoires of a donor; exact copies are not compared."""
    if len(set(label)) < 2:
        return
    pairs_of: list[dict[int, Pair]] = [{} for _ in members]
    for pair in find_overlaps(*shorten_sketches(members), with_disjoint=True):
        if members[pair.first].fingerprints.digest != members[pair.second].fingerprints.digest:
            pairs_of[pair.first][pair.second] = pairs_of[pair.second][pair.first] = pair
    for i, (member, own_pairs) in enumerate(zip(members, pairs_of, strict=True)):
        same_class = [pair for j, pair in own_pairs.items() if label[j] == label[i]]
        others = [j for j in own_pairs if label[j] != label[i]]
        if same_class and others:
            j = max(others, key=lambda other: _compute_similarity(own_pairs[other]))
            names = (member.repertoire_id, members[j].repertoire_id)
            classes = (task.class_names[int(label[i])], task.class_names[int(label[j])])
            within = max(same_class, key=_compute_similarity)
            yield ClassComparison(task.name, donor, names, classes, within, own_pairs[j], len(others))


def _is_sign_test_significant(by_donor: Sequence[Sequence[ClassComparison]]) -> bool:
    """Return whether donors are closest to their own class more often than by chance, by a sign test."""
    n = sum(_are_closest_to_own_class(compared) for compared in by_donor)
    return n > 0 and float(binom.sf(n - 1, len(by_donor), 0.5)) <= _LEVEL_OF_COHORT


def _are_closest_to_own_class(compared: Sequence[ClassComparison]) -> bool:
    """Return whether most repertoires of each class of a donor, at least two, are most similar to their own class.

    One class is not enough: if it is larger than the others, its repertoires are most similar to it by chance.
    """
    flags_of_class: dict[str, list[bool]] = {}
    for comparison in compared:
        flags_of_class.setdefault(comparison.classes[0], []).append(comparison.is_closest_to_own_class)
    return len(flags_of_class) > 1 and all(sum(flags) > len(flags) / 2 for flags in flags_of_class.values())


def _make_finding(
    task: Task, misplaced: Sequence[ClassComparison], profile_of: Mapping[str, RepertoireProfile]
) -> Finding:
    """Return one finding about all donors with such repertoires; its message shows the clearest case."""
    donors = list(dict.fromkeys(comparison.donor for comparison in misplaced))
    ids = tuple(dict.fromkeys(name for comparison in misplaced for name in comparison.names))
    clearest = max(misplaced, key=lambda comparison: comparison.across.overlap)
    return Finding(
        "warning",
        "closer-to-other-class",
        f"target {task.name!r}: repertoires share more sequences with a different class of the same donor than with "
        f"their own class ({name_few(donors, 'donor', 'donors')}). Example: {clearest.text} (shares of the sequences "
        "of the smaller one)",
        "Check for swapped or contaminated samples, and leave out those whose class is in doubt. Samples of the same "
        "day may share more without any error.",
        list_files(profile_of[name] for name in ids),
        ids,
        task.column,
        task.name,
        numbers={"subjects": len(donors), "repertoires": len(ids)},
    )
