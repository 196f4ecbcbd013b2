"""The donors whose clones are compared: their classes, sizes and strata.

A clone is tested on donors, not on repertoires, because repertoires of one donor share most of their clones. A donor
with repertoires of several classes counts once in each of them. So a unit, which is what the tests count, is a donor
with one class, as in `deeprc.baselines.carrier_counts`.

Letters: B repertoires of the dataset, U units, K strata, C classes, P permutations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.arrays import Integers
from deeprc.datasets.cache import digest_with_genes
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError, describe_missing_column, format_count
from deeprc.evaluation.donors import DonorColumn
from deeprc.permutations import permute_labels
from deeprc.targets import format_labels
from deeprc.task_labels import encode_labels
from deeprc.tasks import parse_tasks

__all__ = ["DonorsByClass", "find_donors_by_class"]


@dataclass(frozen=True)
class DonorsByClass:
    """The U units that tests count: each is a donor with one of the donor's classes, and has sequences.

    Attributes
    ----------
    unit_of
        Index of the unit of each repertoire of the container, or -1, (repertoires of the container,) int32.
    class_names
        Names of the classes.
    codes
        Index of the class of each unit, (U,).
    donors
        Index of the donor of each unit, (U,); a donor with several classes has several units.
    sizes
        Number of sequences of each unit, (U,).
    strata
        Index of the stratum of each unit, from 0, (U,).
    notes
        Sentences about donors that were left out, and about other properties of the donors.
    """

    unit_of: NDArray[np.int32]
    class_names: tuple[str, ...]
    codes: Integers
    donors: Integers
    sizes: Integers
    strata: Integers
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def count_by_stratum(self) -> Integers:
        """Return the number of units of each stratum and class, (K, C)."""
        counts = np.zeros((int(self.strata.max()) + 1, len(self.class_names)), np.int64)
        np.add.at(counts, (self.strata, self.codes), 1)
        return counts

    def permute(self, n_permutations: int, rng: np.random.Generator) -> Integers:
        """Return the true class of each unit, and its class in each permutation of the labels, (U, 1 + P).

        Donors exchange labels within their stratum, and there with donors that have about as many sequences. Donors
        with several classes exchange labels among themselves, and their own labels with each other.
        """
        permuted = np.empty((len(self), 1 + n_permutations), np.int64)
        for stratum in range(int(self.strata.max()) + 1):
            units = np.flatnonzero(self.strata == stratum)
            labels = self.codes[units, None].astype(np.float64)
            donors = np.asarray(pd.factorize(self.donors[units])[0], np.int64)
            permuted[units] = permute_labels(labels, self.sizes[units], donors, n_permutations, rng)[:, 0]
        return permuted


def find_donors_by_class(
    dataset: RepertoireDataset, target: str, *, group_by: str | None = None, stratify: Sequence[str] = ()
) -> DonorsByClass:
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
    labels = encode_labels([task], metadata)[:, 0]
    donor_of = _renumber_by_content(DonorColumn.require(metadata, group_by, source).index(), dataset, labels)
    kept, notes = _select_repertoires(dataset, labels, donor_of)
    donors, codes, unit = _index_units(donor_of[kept], labels[kept])
    if len(np.unique(codes)) < 2:
        raise InputError(f"{source}: target {task.name!r}: expected donors of two classes, found {len(codes)} of one")
    unit_of = np.full(len(dataset.container.repertoire_ids), -1, np.int32)
    unit_of[dataset.repertoire_indices[kept]] = unit
    sizes = np.bincount(unit, dataset.n_sequences[kept]).astype(np.int64)
    strata = _index_strata(metadata.iloc[kept], stratify, unit, source)
    if group_by is None:
        notes += _note_repeated_donors(metadata.iloc[kept])
    notes += _note_uninformative_donors(strata, codes) if stratify else []
    return DonorsByClass(unit_of, task.class_names, codes, donors, sizes, strata, tuple(notes))


def _renumber_by_content(donor_of: Integers, dataset: RepertoireDataset, labels: NDArray[np.float64]) -> Integers:
    """Return the index of each repertoire's donor, (B,), with the donors in the order of their repertoires' content."""
    sortable_labels = np.nan_to_num(labels, nan=-np.inf).tolist()
    content: dict[int, list[tuple[str, float]]] = {}
    for donor, digest, label in zip(donor_of.tolist(), digest_with_genes(dataset), sortable_labels, strict=True):
        content.setdefault(donor, []).append((digest, label))
    ordered = sorted(content, key=lambda donor: sorted(content[donor]))
    index_of = {donor: index for index, donor in enumerate(ordered)}
    return np.array([index_of[donor] for donor in donor_of.tolist()], np.int64)


class _Units(NamedTuple):
    """Units, which are pairs of a donor and a class, of n repertoires.

    Attributes
    ----------
    donors, codes
        Indices of the donor and of the class of each unit, (U,) each.
    unit_of
        Index of the unit of each repertoire, (n,).
    """

    donors: Integers
    codes: Integers
    unit_of: Integers


def _index_units(donor_of: Integers, labels: NDArray[np.float64]) -> _Units:
    """Return the units of repertoires with these donors and labels, (n,) each."""
    pairs, unit_of = np.unique(np.stack([donor_of, labels.astype(np.int64)]), axis=1, return_inverse=True)
    return _Units(pairs[0], pairs[1], unit_of.ravel())


def _select_repertoires(
    dataset: RepertoireDataset, labels: NDArray[np.float64], donor_of: Integers
) -> tuple[Integers, list[str]]:
    """Return the indices of the repertoires of donors with a class and sequences, and sentences about the donors."""
    labelled = np.flatnonzero(~np.isnan(labels))
    notes: list[str] = []
    units = _index_units(donor_of[labelled], labels[labelled])
    is_empty = np.bincount(units.unit_of, dataset.n_sequences[labelled]) == 0
    if is_empty.any():
        n_empty = len(np.unique(units.donors[is_empty]))
        notes.append(f"left out: {format_count(n_empty, 'donor')} with a label but no sequences")
    n_repeated = int((np.unique(units.donors[~is_empty], return_counts=True)[1] > 1).sum())
    if n_repeated:
        notes.append(
            f"in several classes, once in each: {format_count(n_repeated, 'donor')}; prefer q_permutation, "
            "which knows who they are; to compare donors with themselves, give their column to `stratify`, too"
        )
    return labelled[~is_empty[units.unit_of]], notes


def _index_strata(metadata: pd.DataFrame, columns: Sequence[str], unit_of: Integers, source: str) -> Integers:
    """Return the index of the stratum of each unit, (U,).

    Two units are of one stratum if their repertoires have the same set of values in each of the columns.
    """
    n_units = int(unit_of.max()) + 1
    values_of: list[list[frozenset[str | None]]] = [[] for _ in range(n_units)]  # of each unit, in each column
    for column in columns:
        if column not in metadata:
            raise InputError(f"{source}: {describe_missing_column(column, metadata.columns, 'for `stratify`')}")
        values_in_column: list[set[str | None]] = [set() for _ in range(n_units)]
        for unit, text in zip(unit_of.tolist(), format_labels(metadata[column]), strict=True):
            values_in_column[unit].add(text)
        for unit, values in enumerate(values_in_column):
            values_of[unit].append(frozenset(values))
    index_of: dict[tuple[frozenset[str | None], ...], int] = {}
    return np.array([index_of.setdefault(tuple(values), len(index_of)) for values in values_of], np.int64)


def _note_repeated_donors(metadata: pd.DataFrame) -> list[str]:
    """Return a note if the sheet says that donors have several repertoires, but each repertoire counts as a donor."""
    donors = DonorColumn.choose(metadata, None).index_if_known()
    if donors is None or len(np.unique(donors)) == len(donors):
        return []
    n_donors = format_count(len(np.unique(donors)), "donor")
    return [
        f"p-values are too small: the {len(donors):,} repertoires come from {n_donors}, but each repertoire counts as "
        "a donor; use `group_by` to count donors"
    ]


def _note_uninformative_donors(strata: Integers, codes: Integers) -> list[str]:
    """Return a note about the donors whose stratum has one class only."""
    classes = pd.Series(codes).groupby(strata).transform("nunique").to_numpy()
    n = int((classes < 2).sum())
    if n == len(codes):
        raise InputError("`stratify`: expected strata with donors of two classes, found none")
    donors = f"{format_count(n, 'donor')} of {len(codes):,}"
    return [f"{donors} in strata of one class only, which the test by strata cannot use"] if n else []
