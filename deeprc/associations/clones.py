"""A table of the clones associated with a class, with tests that count donors; `deeprc.clones` is `associate_clones`.

Letters: n rows of the table, C classes, K strata, U units (see `DonorsByClass`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.arrays import Integers
from deeprc.associations.columns import (
    CarrierCounts,
    compute_generation_probabilities,
    compute_odds_ratios,
    compute_stratified_odds_ratios,
    make_carrier_columns,
    run_neighbour_tests,
)
from deeprc.associations.donors_by_class import DonorsByClass, find_donors_by_class
from deeprc.associations.metaclones import CarrierKind, find_carrier_kinds
from deeprc.associations.stratified_tests import (
    ClassTest,
    compare_carriers,
    compute_permutation_q_values,
    join_tested_clones,
)
from deeprc.baselines.association_tests import adjust_by_benjamini_hochberg, compute_fisher_p_values
from deeprc.datasets.clones.clone_set import CloneSet
from deeprc.datasets.clones.grouping import CloneCarriers
from deeprc.datasets.clones.shared import find_shared_clones
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.documents import abbreviate
from deeprc.errors import InputError, show_parameters, suggest_nearest

__all__ = ["COLUMNS", "CloneAssociations", "associate_clones"]

COLUMNS = ("junction_aa", "class", "odds_ratio", "p_value", "q_value", "p_neighbours")
"""Columns that each table has."""

_LEVEL = 0.05
_SEED = 0
_MAX_PERMUTATIONS = 1_000_000
_MIN_PERMUTATIONS = 20  # a donor that can exchange its label hardly ever keeps it in so many permutations
_MAX_METACLONES = 20_000  # number of clones, those with the smallest p-values, whose neighbours are looked for


@dataclass(frozen=True)
class CloneAssociations:
    """The clones associated with a class, as `associate_clones` finds them.

    Attributes
    ----------
    table
        One row for each clone and class with a low p-value, the smallest first: see `associate_clones`.
    class_sizes
        Number of donors of each class.
    n_tested
        Number of tests, which is the number of pairs of a class and a clone that could reach the p-value.
    max_p
        Largest p-value of a row of the table.
    notes
        Sentences about donors that were left out, and about other properties of the donors.
    """

    table: pd.DataFrame
    class_sizes: Mapping[str, int]
    n_tested: int
    max_p: float
    notes: tuple[str, ...]

    def count(self, column: str, level: float = _LEVEL) -> int:
        """Return the number of rows with a q-value of at most `level` in a column."""
        return int((self.table[column] <= level).sum())

    def to_lines(self) -> list[str]:
        """Return the result as a few lines of text."""
        sizes = ", ".join(f"{n:,} of class {name}" for name, n in self.class_sizes.items())
        rates = {"q_permutation": "permutations of donors", "q_value": "Benjamini and Hochberg"}
        counts = [f"{self.count(name):,} by {evidence}" for name, evidence in rates.items() if name in self.table]
        if self.n_tested == 0:
            none = "tests: none, because no clone has enough carriers for a p-value of at most `max_p`"
            return [f"donors: {sizes}", *map(show_parameters, [*self.notes, none])]
        is_empty = show_parameters(" (`max_p`); the table is empty") if self.table.empty else ""
        return [
            f"donors: {sizes}",
            *map(show_parameters, self.notes),
            f"tests: {self.n_tested:,} pairs of a clone and a class, of which {len(self.table):,} have a p-value of at"
            f" most {self.max_p:g}{is_empty}",
            f"clones that are associated with a class, at a false discovery rate of {_LEVEL:.0%}: {', '.join(counts)}",
            "clones whose neighbours (similar clones) are also associated with the class, at the same rate:"
            f" {self.count('q_neighbours'):,}",
        ]


class _Hits(NamedTuple):
    """The n pairs of a clone and a class with a low p-value, the lowest first.

    Attributes
    ----------
    clones
        Clone of each pair.
    class_codes
        Index of the class of each pair, (n,).
    carriers
        Number of donors that carry the clone of each pair, by stratum and class, (n, K, C).
    p_values, q_values
        P-value of each pair, (n,), over strata if there are any, and q-values by the name of their column, (n,) each.
    n_tested
        Number of tests.
    """

    clones: CloneSet
    class_codes: Integers
    carriers: Integers
    p_values: NDArray[np.float64]
    q_values: dict[str, NDArray[np.float64]]
    n_tested: int


def associate_clones(
    dataset: RepertoireDataset,
    target: str,
    *,
    group_by: str | None = None,
    stratify: Sequence[str] = (),
    classes: Sequence[str] = (),
    max_p: float = 1e-3,
    n_permutations: int = 100,
) -> CloneAssociations:
    """Return the clones that donors of a class carry more often than other donors.

    A clone is a junction with its V and J gene, as far as the container knows them. The unit is the donor: a donor
    carries a clone if any of the donor's repertoires does. A donor with a label but without sequences is left out. A
    clone is not tested if too few donors carry it for a p-value of `max_p`, whatever their labels are.

    Parameters
    ----------
    dataset, target
        Cohort, and name of a target with classes, see `deeprc.targets`.
    group_by
        Metadata column that names the donor of a repertoire; None: each repertoire has its own donor.
    stratify
        Metadata columns, such as an HLA allele, sex or batch. The test, the q-values and the permutations then compare
        donors with equal values in all of them.
    classes
        Classes to test; all classes if it is empty.
    max_p
        Largest p-value of a row.
    n_permutations
        Number of permutations of the labels between donors; 0: none.

    Returns
    -------
    The clones that are associated with a class. The columns of the table are described in docs/clones.md.

    Raises
    ------
    InputError
        If a column, a class or a number is not what is expected.
    """
    if not 0 < max_p <= 1:
        raise InputError(f"`max_p={max_p}`: expected a number above 0, up to 1")
    if not 0 <= n_permutations <= _MAX_PERMUTATIONS:
        found = abbreviate(n_permutations)
        raise InputError(f"`n_permutations={found}`: expected 0 to {_MAX_PERMUTATIONS:,}")
    donors = find_donors_by_class(dataset, target, group_by=group_by, stratify=stratify)
    class_codes = _select_class_codes(donors.class_names, classes)
    labels = donors.permute(n_permutations, np.random.default_rng(_SEED))
    hits = _find_associated_clones(dataset, donors, class_codes, labels, max_p)
    table = _make_table(dataset, donors, hits, is_stratified=bool(stratify))
    probabilities = compute_generation_probabilities(table[table[list(hits.q_values)].min(axis=1) <= _LEVEL])
    if probabilities is not None:
        table["generation_probability"] = probabilities
    sizes = dict(zip(donors.class_names, donors.count_by_stratum().sum(axis=0).tolist(), strict=True))
    notes = (*donors.notes, *_describe_unexchanged_donors(labels))
    return CloneAssociations(table, sizes, hits.n_tested, max_p, notes)


def _select_class_codes(names: Sequence[str], classes: Sequence[str]) -> list[int]:
    """Return the indices of the classes that are tested."""
    for name in classes:
        if name not in names:
            raise InputError(f"`classes={name!r}`: expected {' or '.join(names)}{suggest_nearest(name, names)}")
    return [code for code, name in enumerate(names) if not classes or name in classes]


def _find_associated_clones(
    dataset: RepertoireDataset, donors: DonorsByClass, class_codes: Sequence[int], labels: Integers, max_p: float
) -> _Hits:
    """Return the clones with a low p-value in one of the classes; the labels are those of `DonorsByClass.permute`."""
    clones = find_shared_clones(dataset, dataset.gene_fields)
    tests = [ClassTest.of(donors.unit_of, donors.strata, labels == code, max_p) for code in class_codes]
    tested_by_class = [compare_carriers(clones, test) for test in tests]
    tested = join_tested_clones(tested_by_class)
    q_values = {"q_value": adjust_by_benjamini_hochberg(tested.p_values, tested.n_tested)}
    if labels.shape[1] > 1:
        q_values["q_permutation"] = compute_permutation_q_values(tested.bins, tested.counts)
    code_of_hit = np.repeat(class_codes, [len(each.indices) for each in tested_by_class]).astype(np.int64)
    hit_clones = CloneSet(dataset.take_clones(clones.representative[tested.indices], dataset.gene_fields))
    names = hit_clones.to_frame().to_numpy(str)
    order = np.lexsort((*names.T[::-1], tested.p_values))  # by p-value, then by junction, then by genes
    return _Hits(
        hit_clones.take(order),
        code_of_hit[order],
        _count_carriers(clones, tested.indices[order], donors),
        tested.p_values[order],
        {name: values[order] for name, values in q_values.items()},
        tested.n_tested,
    )


def _count_carriers(clones: CloneCarriers, indices: Integers, donors: DonorsByClass) -> Integers:
    """Return the number of donors that carry each of some clones, by stratum and class, (n, K, C)."""
    counts = np.zeros((len(indices), *donors.count_by_stratum().shape), np.int64)
    for row, index in enumerate(indices.tolist()):
        units = donors.unit_of[clones.carriers[clones.offsets[index] : clones.offsets[index + 1]]]
        units = np.unique(units[units >= 0])
        np.add.at(counts[row], (donors.strata[units], donors.codes[units]), 1)
    return counts


def _make_table(dataset: RepertoireDataset, donors: DonorsByClass, hits: _Hits, *, is_stratified: bool) -> pd.DataFrame:
    """Return the table of `CloneAssociations`, with a row for each pair of a clone and a class."""
    names = donors.class_names
    counts = CarrierCounts(donors, hits.carriers, hits.class_codes)
    ratios = compute_odds_ratios(counts)
    columns: dict[str, Any] = {
        "class": np.array(names, dtype=object)[hits.class_codes],
        **make_carrier_columns(names, hits.carriers, "carriers"),
        "odds_ratio": ratios[:, 0],
        "odds_ratio_low": ratios[:, 1],
        "odds_ratio_high": ratios[:, 2],
        "p_value": _compute_unstratified_p_values(donors, hits.class_codes, counts),
    }
    if is_stratified:
        columns["odds_ratio_stratified"] = compute_stratified_odds_ratios(counts)
        columns["p_value_stratified"] = hits.p_values
    columns |= hits.q_values
    return hits.clones.to_frame().assign(**columns, **_make_metaclone_columns(dataset, donors, hits))


def _compute_unstratified_p_values(
    donors: DonorsByClass, class_codes: Integers, counts: CarrierCounts
) -> NDArray[np.float64]:
    """Return the p-value of Fisher's exact test of each row, (n,), over the donors of all strata together."""
    class_carriers, all_carriers = counts.class_carriers.sum(axis=1), counts.all_carriers.sum(axis=1)
    p_values = np.ones(len(class_codes))
    for code in np.unique(class_codes).tolist():
        rows = class_codes == code
        n_in_class = int((donors.codes == code).sum())
        p_values[rows] = compute_fisher_p_values(class_carriers[rows], all_carriers[rows], n_in_class, len(donors))
    return p_values


def _make_metaclone_columns(dataset: RepertoireDataset, donors: DonorsByClass, hits: _Hits) -> dict[str, NDArray[Any]]:
    """Return the columns about clones with their neighbours; they are NaN for clones far down the table."""
    n = min(len(hits.class_codes), _MAX_METACLONES)
    kinds = find_carrier_kinds(dataset, donors, hits.clones.take(np.arange(n)))  # (U, n)
    exact = _count_donors_of_clones(kinds == CarrierKind.CLONE, donors)
    near = _count_donors_of_clones(kinds == CarrierKind.NEIGHBOUR_ONLY, donors)
    class_codes = hits.class_codes[:n]
    odds_ratios = compute_odds_ratios(CarrierCounts(donors, exact + near, class_codes))
    p_values, q_values = run_neighbour_tests(CarrierCounts(donors, near, class_codes, excluded=exact))
    columns: dict[str, NDArray[Any]] = {
        **make_carrier_columns(donors.class_names, exact + near, "metaclone_carriers"),
        "metaclone_odds_ratio": odds_ratios[:, 0],
        "p_neighbours": p_values,
        "q_neighbours": q_values,
    }
    n_rest = len(hits.class_codes) - n
    return {name: np.append(values, np.full(n_rest, np.nan)) if n_rest else values for name, values in columns.items()}


def _count_donors_of_clones(carries: NDArray[np.bool_], donors: DonorsByClass) -> Integers:
    """Return the number of donors that carry each clone, by stratum and class, (n, K, C); `carries` is (U, n)."""
    n_strata, n_classes = donors.count_by_stratum().shape
    counts = np.zeros((carries.shape[1], n_strata, n_classes), np.int64)
    for stratum, code in np.ndindex(n_strata, n_classes):
        is_counted = (donors.strata == stratum) & (donors.codes == code)
        counts[:, stratum, code] = carries[is_counted].sum(axis=0)
    return counts


def _describe_unexchanged_donors(labels: Integers) -> list[str]:
    """Return a sentence about donors that keep their label in all permutations, (U, 1 + P), if there are any."""
    n = int((labels[:, 1:] == labels[:, :1]).all(axis=1).sum()) if labels.shape[1] > _MIN_PERMUTATIONS else 0
    if n == 0:
        return []
    return [
        f"permutations: {n} of {len(labels)} donors always keep their label, because no donor of another class (in "
        "the same stratum) has a similar number of sequences. If these are many, q_permutation is high for every clone"
    ]
