"""The donors whose clones are compared: their classes, sizes and strata.

A clone is tested on donors, not on repertoires, because repertoires of one donor share most of their clones. A donor
with repertoires of several classes counts once in each of them.

Letters: B repertoires of the dataset, U donors (in each of their classes), K strata, C classes, P permutations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.arrays import Integers
from deeprc.datasets.cache import digest_repertoires
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.evaluation.splits import index_given_groups, index_known_donors
from deeprc.targets import format_labels
from deeprc.tasks import encode_labels, parse_tasks
from deeprc.training.permutations import permute_labels

__all__ = ["Donors", "find_donors"]


@dataclass(frozen=True)
class Donors:
    """The U donors that have a class and sequences.

    Attributes
    ----------
    donor_of
        Index of the donor of each repertoire of the container, or -1, (repertoires of the container,) int32.
    class_names
        Names of the classes.
    codes
        Index of the class of each donor, (U,).
    subjects
        Index of the subject of each donor, (U,); a subject with several classes is several donors.
    sizes
        Number of sequences of each donor, (U,).
    strata
        Index of the stratum of each donor, from 0, (U,).
    notes
        Sentences about donors that were left out, and about other properties of the donors.
    """

    donor_of: NDArray[np.int32]
    class_names: tuple[str, ...]
    codes: Integers
    subjects: Integers
    sizes: Integers
    strata: Integers
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def count_by_stratum(self) -> Integers:
        """Return the number of donors of each stratum and class, (K, C)."""
        counts = np.zeros((int(self.strata.max()) + 1, len(self.class_names)), np.int64)
        np.add.at(counts, (self.strata, self.codes), 1)
        return counts

    def permute(self, n_permutations: int, rng: np.random.Generator) -> Integers:
        """Return the true class of each donor, and its class in each permutation of the labels, (U, 1 + P).

        Donors exchange labels within their stratum, and there with donors that have about as many sequences. Subjects
        with several classes exchange labels among themselves, and their own labels with each other.
        """
        permuted = np.empty((len(self), 1 + n_permutations), np.int64)
        for stratum in range(int(self.strata.max()) + 1):
            own = np.flatnonzero(self.strata == stratum)
            values = self.codes[own, None].astype(np.float64)
            subjects = np.asarray(pd.factorize(self.subjects[own])[0], np.int64)
            permuted[own] = permute_labels(values, self.sizes[own], subjects, n_permutations, rng)[:, 0]
        return permuted


def find_donors(
    dataset: RepertoireDataset, target: str, *, group_by: str | None = None, stratify: Sequence[str] = ()
) -> Donors:
    """Return the donors of a cohort with their classes.

    Parameters
    ----------
    dataset, target
        Cohort, and name of a target with classes, see `deeprc.targets`.
    group_by
        Metadata column that names the donor; None: each repertoire has its own donor.
    stratify
        Metadata columns. Donors with equal values in all of them are a stratum; a missing value is a value, too.

    Raises
    ------
    InputError
        If the target is a number, a column does not exist, or fewer than two classes have a donor.
    """
    metadata, source = dataset.metadata, str(dataset.container.path)
    task = parse_tasks([target], metadata, source=source)[0]
    if task.kind == "regression":
        raise InputError(f"{source}: `target={target!r}`: is a number; expected classes, such as {task.column}>NUMBER")
    of_each = encode_labels([task], metadata)[:, 0]
    groups = _sort_by_content(index_given_groups(metadata, group_by, source), dataset, of_each)
    kept, notes = _keep_repertoires(dataset, of_each, groups)
    labelled = np.stack([groups[kept], of_each[kept].astype(np.int64)])
    (subjects, codes), donor = np.unique(labelled, axis=1, return_inverse=True)
    donor = donor.ravel()
    if len(np.unique(codes)) < 2:
        raise InputError(f"{source}: target {task.name!r}: expected donors of two classes, found {len(codes)} of one")
    donor_of = np.full(len(dataset.container.repertoire_ids), -1, np.int32)
    donor_of[dataset.rows[kept]] = donor
    sizes = np.bincount(donor, dataset.n_sequences[kept]).astype(np.int64)
    strata = _index_strata(metadata.iloc[kept], stratify, donor, source)
    if group_by is None:
        notes += _note_repeated_donors(metadata.iloc[kept])
    notes += _note_uninformative_donors(strata, codes) if stratify else []
    return Donors(donor_of, task.class_names, codes, subjects, sizes, strata, tuple(notes))


def _sort_by_content(groups: Integers, dataset: RepertoireDataset, labels: NDArray[np.float64]) -> Integers:
    """Return the groups with other indices, which do not depend on the order of the repertoires; both are (B,)."""
    known = np.nan_to_num(labels, nan=-np.inf).tolist()
    content: dict[int, list[tuple[str, float]]] = {}
    for group, *key in zip(groups.tolist(), digest_repertoires(dataset), known, strict=True):
        content.setdefault(group, []).append((key[0], key[1]))
    place = {group: place for place, group in enumerate(sorted(content, key=lambda group: sorted(content[group])))}
    return np.array([place[group] for group in groups.tolist()], np.int64)


def _keep_repertoires(
    dataset: RepertoireDataset, of_each: NDArray[np.float64], groups: Integers
) -> tuple[Integers, list[str]]:
    """Return the indices of the repertoires of donors with a class and sequences, and sentences about the donors."""
    known, notes = np.flatnonzero(~np.isnan(of_each)), []
    labelled = np.stack([groups[known], of_each[known].astype(np.int64)])
    units, unit = np.unique(labelled, axis=1, return_inverse=True)
    n_sequences = np.bincount(unit.ravel(), dataset.n_sequences[known])
    is_empty = n_sequences == 0
    if is_empty.any():
        notes.append(f"left out: {_count(len(np.unique(units[0, is_empty])), 'donor')} with a label but no sequences")
    n = int((np.unique(units[0, ~is_empty], return_counts=True)[1] > 1).sum())
    if n:
        notes.append(
            f"in several classes, once in each: {_count(n, 'donor')}; prefer q_permutation, which knows who they are; "
            "to compare donors with themselves, give their column to `stratify`, too"
        )
    return known[~is_empty[unit.ravel()]], notes


def _index_strata(metadata: pd.DataFrame, columns: Sequence[str], donor: Integers, source: str) -> Integers:
    """Return the index of the stratum of each donor, (U,), by the set of values of the donor's repertoires."""
    n = int(donor.max()) + 1
    values: list[list[str]] = [[] for _ in range(n)]
    for column in columns:
        if column not in metadata:
            raise InputError(
                f"{source}: no column {column!r} for `stratify`; columns: {', '.join(map(str, metadata.columns))}"
            )
        sets: list[set[str]] = [set() for _ in range(n)]
        for owner, text in zip(donor.tolist(), format_labels(metadata[column]), strict=True):
            sets[owner].add("" if text is None else f"={text}")
        for own, found in zip(values, sets, strict=True):
            own.append("\t".join(sorted(found)))
    return np.asarray(pd.factorize(np.array(["\n".join(own) for own in values], dtype=object))[0], np.int64)


def _note_repeated_donors(metadata: pd.DataFrame) -> list[str]:
    """Return a note if the sheet says that donors have several repertoires, but each repertoire counts as a donor."""
    subjects = index_known_donors(metadata, None)
    if subjects is None or len(np.unique(subjects)) == len(subjects):
        return []
    return [
        f"{len(subjects):,} repertoires are of {len(np.unique(subjects)):,} donors by the sheet, but each counts as "
        "one: p-values are too small; `group_by` counts donors"
    ]


def _note_uninformative_donors(strata: Integers, codes: Integers) -> list[str]:
    """Return a note about the donors whose stratum has one class only."""
    classes = pd.Series(codes).groupby(strata).transform("nunique").to_numpy()
    n = int((classes < 2).sum())
    if n == len(codes):
        raise InputError("`stratify`: expected strata with donors of two classes, found none")
    note = (
        f"{_count(n, 'donor')} of {len(codes):,} in strata of one class only, which tell nothing in the test by strata"
    )
    return [note] if n else []


def _count(n: int, word: str) -> str:
    return f"{n:,} {word}{'s' * (n != 1)}"
