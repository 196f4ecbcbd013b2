"""Repertoires of one subject that share more with another class than with their own: swapped or contaminated samples.

Clones persist: of a subject's samples of CD4 and of CD8 cells, say, those of one kind share more than the others. Where
labels do not go with clones at all, as those of visits, nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import binom

from deeprc.checks.findings import Finding, named
from deeprc.checks.overlaps import Pair, sampled_overlaps
from deeprc.checks.profile import RepertoireProfile
from deeprc.checks.sheet import Subjects
from deeprc.datasets.metadata import Metadata
from deeprc.tasks import Task, labels

__all__ = ["ClassComparison", "check_swaps"]

_SHARED = 10  # fewer in common are no sign
_TIMES = 3.0
_LEVEL = 0.01  # of all comparisons together
_LEVEL_OF_COHORT = 0.05  # that subjects' clones go with the class


@dataclass(frozen=True)
class ClassComparison:
    """A repertoire of a subject, and the nearest ones of its class and of the others.

    Attributes
    ----------
    target, subject
        Of what the classes are, and whose the repertoires.
    names
        Of the repertoire and the nearest one of another class.
    classes
        Of these.
    within, across
        What the repertoire shares with the nearest ones.
    n_across
        How many of other classes there were to choose from.
    """

    target: str
    subject: str
    names: tuple[str, str]
    classes: tuple[str, str]
    within: Pair
    across: Pair
    n_across: int

    @property
    def is_in_order(self) -> bool:
        """Whether its own class is nearer."""
        return _likeness(self.within) > _likeness(self.across)

    @property
    def p_value(self) -> float:
        """Chance of so many in common across, if both pairs were equally alike; for the nearest one.

        A pair within the class cannot share more than the smaller one has.
        """
        across, within = _scale(self.across), min(self.within.sizes)
        n = self.across.shared + self.within.shared
        return self.n_across * float(binom.sf(self.across.shared - 1, n, across / (across + within)))

    def is_strange(self, level: float) -> bool:
        """Whether another class is nearer by far, and not by chance."""
        far = _likeness(self.across) > _TIMES * _likeness(self.within)
        return self.across.shared >= _SHARED and far and self.p_value <= level

    @property
    def text(self) -> str:
        """What is shared with whom."""
        first, second = (f"{name} ({label})" for name, label in zip(self.names, self.classes, strict=True))
        own = f"the first and its own class {self.within.overlap:.1%}"
        return f"{first} and {second} share {self.across.overlap:.1%} of the smaller one's sequences, {own}"


def _scale(pair: Pair) -> float:
    return float(np.sqrt(pair.sizes[0] * pair.sizes[1]))


def _likeness(pair: Pair) -> float:
    """Return what two repertoires share, relative to both sizes: so a deeper one does not look more like all others."""
    return pair.shared / _scale(pair) if pair.shared else 0.0


def check_swaps(
    profiles: Sequence[RepertoireProfile], sheet: Metadata, tasks: Sequence[Task], subjects: Subjects
) -> tuple[list[Finding], list[ClassComparison]]:
    """Return findings on subjects whose repertoires share more across classes than within, and how much these share.

    A repertoire is compared if its subject has another one of its class and one of another class. Subjects are named
    only where those in order are so many that labels must go with clones (a sign test): at least 5, or 7 of 8.
    """
    profile_of = {each.repertoire_id: each for each in profiles if each.kept}
    found: list[Finding] = []
    told: list[ClassComparison] = []
    for task in tasks:
        if task.kind == "regression":
            continue
        known = pd.DataFrame({"subject": subjects.of_each(), "label": labels([task], sheet.table)[:, 0]}).dropna()
        known = known[known.index.isin(profile_of)]
        compared_of: dict[str, list[ClassComparison]] = {}
        for subject, rows in known.groupby("subject", sort=False):
            members = [profile_of[str(name)] for name in rows.index]
            if compared := list(_comparisons(members, rows["label"].tolist(), task, str(subject))):
                compared_of[str(subject)] = compared
        if _go_with_clones(list(compared_of.values())):
            level = _LEVEL / sum(map(len, compared_of.values()))
            strange = [each for compared in compared_of.values() for each in compared if each.is_strange(level)]
            found += [_finding(task, strange, profile_of)] if strange else []
            told += strange
    return found, told


def _comparisons(
    members: Sequence[RepertoireProfile], label: Sequence[float], task: Task, subject: str
) -> Iterator[ClassComparison]:
    """Yield what can be compared among a subject's repertoires; copies of each other are not."""
    if len(set(label)) < 2:
        return
    pairs_of: list[dict[int, Pair]] = [{} for _ in members]
    for pair in sampled_overlaps(members, every=True):
        if members[pair.first].prints.digest != members[pair.second].prints.digest:
            pairs_of[pair.first][pair.second] = pairs_of[pair.second][pair.first] = pair
    for i, (member, mine) in enumerate(zip(members, pairs_of, strict=True)):
        own = [pair for j, pair in mine.items() if label[j] == label[i]]
        others = [j for j in mine if label[j] != label[i]]
        if own and others:
            j = max(others, key=lambda other: _likeness(mine[other]))
            names = (member.repertoire_id, members[j].repertoire_id)
            classes = (task.class_names[int(label[i])], task.class_names[int(label[j])])
            within = max(own, key=_likeness)
            yield ClassComparison(task.name, subject, names, classes, within, mine[j], len(others))


def _go_with_clones(subjects: Sequence[Sequence[ClassComparison]]) -> bool:
    """Say whether more subjects are in order than by chance."""
    n = sum(_is_in_order(compared) for compared in subjects)
    return n > 0 and float(binom.sf(n - 1, len(subjects), 0.5)) <= _LEVEL_OF_COHORT


def _is_in_order(compared: Sequence[ClassComparison]) -> bool:
    """Say whether in two classes or more, and in each, most of a subject's repertoires are nearest to their own class.

    Where one class is large and the other small, the nearest one is of the large class whatever clones do.
    """
    order: dict[str, list[bool]] = {}
    for each in compared:
        order.setdefault(each.classes[0], []).append(each.is_in_order)
    return len(order) > 1 and all(sum(flags) > len(flags) / 2 for flags in order.values())


def _finding(task: Task, strange: Sequence[ClassComparison], profile_of: Mapping[str, RepertoireProfile]) -> Finding:
    """Return one finding on all subjects with repertoires that are nearer to another class, with one of them."""
    subjects = list(dict.fromkeys(each.subject for each in strange))
    ids = tuple(dict.fromkeys(name for each in strange for name in each.names))
    clearest = max(strange, key=lambda each: each.across.overlap)
    return Finding(
        "warning",
        "closer-to-other-class",
        f"target {task.name!r}: repertoires share more with another class of their subject than with their own, of "
        f"{named(subjects, 'subject', 'subjects')}; {clearest.text}",
        "look for swapped or contaminated samples, and leave out those whose class is in doubt; samples of one day may "
        "share more for good reasons",
        tuple(dict.fromkeys(str(profile_of[name].path) for name in ids)),
        ids,
        task.column,
        task.name,
        figures={"subjects": len(subjects), "repertoires": len(ids)},
    )
