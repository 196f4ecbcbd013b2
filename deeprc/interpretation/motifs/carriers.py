"""Carriers of patterns in a whole cohort: sequences, repertoires and donors, by class.

Letters: B repertoires, M patterns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.evaluation.donors import DonorColumn
from deeprc.interpretation.motifs.donor_tests import (
    compute_class_p_value,
    compute_donor_rates,
    compute_spearman_p_value,
)
from deeprc.interpretation.motifs.matching import count_pattern_carriers
from deeprc.interpretation.motifs.patterns import Masks
from deeprc.interpretation.output_labels import OutputLabels
from deeprc.progress import track
from deeprc.training.model import Model

__all__ = [
    "HeldOutTest",
    "compare_held_out_donors",
    "count_carrying_sequences",
    "find_new_repertoires",
    "tabulate_carriers",
]


def count_carrying_sequences(dataset: RepertoireDataset, patterns: Sequence[Masks]) -> NDArray[np.int64]:
    """Return the number of sequences of each repertoire that carry each pattern, (B, M); it reads one at a time."""
    counts = np.zeros((len(dataset), len(patterns)), np.int64)
    if not patterns:
        return counts
    for position in track(range(len(dataset)), "who carries the motifs", len(dataset)):
        repertoire = dataset[position]
        counts[position] = count_pattern_carriers(repertoire.residues, repertoire.offsets, patterns)
    return counts


def tabulate_carriers(
    model: Model, dataset: RepertoireDataset, counts: NDArray[np.int64], *, output: int, group_by: str | None
) -> list[pd.DataFrame]:
    """Return a table of carriers for each pattern, by class of the output's target.

    Parameters
    ----------
    model, dataset
        The trained model, which knows the targets, and the cohort.
    counts
        Number of sequences of each repertoire that carry each pattern, (B, M), see `count_carrying_sequences`.
    output
        Index of an output of the target whose classes are used.
    group_by
        Metadata column that names the donor of a repertoire; None searches for one.

    Returns
    -------
    Tables as in `AttendedMotif.carriers`.
    """
    classes = OutputLabels.of(model, dataset, output).find_class_members()
    donors = DonorColumn.choose(dataset.metadata, group_by).index()
    is_repeated = len(np.unique(donors)) < len(donors)
    sizes = dataset.n_sequences
    tables = []
    for pattern_counts in counts.T:
        rows = []
        for name, members in classes.items():
            n_with, n = pattern_counts[members], sizes[members]
            share = float((n_with / np.maximum(n, 1)).mean()) if len(n) else np.nan
            rows.append((name, len(n), int((n_with > 0).sum()), int(n.sum()), int(n_with.sum()), share))
        names = ["class", "n_repertoires", "n_repertoires_with", "n_sequences", "n_sequences_with", "mean_share"]
        table = pd.DataFrame(rows, columns=names)
        tables.append(table.assign(**_count_donors(pattern_counts > 0, donors, classes)) if is_repeated else table)
    return tables


def _count_donors(
    carries: NDArray[np.bool_], donors: NDArray[np.int64], classes: dict[str, NDArray[np.bool_]]
) -> dict[str, list[int]]:
    """Return the numbers of donors with a repertoire of each class, and with one that carries a pattern.

    Parameters
    ----------
    carries, donors
        Whether each repertoire carries the pattern, and index of its donor, (B,) each.
    classes
        Whether each repertoire is of a class, (B,), by class.
    """
    return {
        "n_cohort_donors": [len(np.unique(donors[in_class])) for in_class in classes.values()],
        "n_cohort_donors_with": [len(np.unique(donors[in_class & carries])) for in_class in classes.values()],
    }


class HeldOutTest(NamedTuple):
    """A test of whether a pattern is associated with a direction, in donors that the model has not learned from.

    Attributes
    ----------
    donors
        Table of these donors by class, see `AttendedMotif.donors`.
    p_value
        The p-value, see `AttendedMotif.p_donors`.
    """

    donors: pd.DataFrame
    p_value: float


def compare_held_out_donors(
    model: Model,
    dataset: RepertoireDataset,
    counts: NDArray[np.int64],
    is_held_out: NDArray[np.bool_],
    *,
    output: int,
    sign: int,
    group_by: str | None,
) -> list[HeldOutTest]:
    """Return the donors by class, and the test of association with a direction of an output, for each pattern.

    Parameters
    ----------
    model, dataset, counts, output, group_by
        Model, cohort, counts, output and column of the donor, see `tabulate_carriers`.
    is_held_out
        Whether the model has not learned from each repertoire, (B,). If it has learned from another repertoire of the
        same donor, the repertoire does not count.
    sign
        1 if the patterns are those of sequences that raise the output, -1 if of those that lower it.
    """
    target = OutputLabels.of(model, dataset, output)
    donors = DonorColumn.choose(dataset.metadata, group_by).index()
    is_new = find_new_repertoires(donors, is_held_out, target.is_known)
    classes = {name: is_new & in_class for name, in_class in target.find_class_members().items()}

    def compute_rates(pattern_counts: NDArray[np.int64], rows: NDArray[np.bool_]) -> dict[int, float]:
        """Return the rate of a pattern in each donor, from some of the repertoires, (B,)."""
        return compute_donor_rates(pattern_counts[rows], dataset.n_sequences[rows], donors[rows])

    tests = []
    for pattern_counts in counts.T:
        rates = {name: compute_rates(pattern_counts, rows) for name, rows in classes.items()}
        if target.is_number:
            signed_labels = sign * target.labels
            numbers = [float(signed_labels[classes["all"] & (donors == donor)].mean()) for donor in rates["all"]]
            p_value = compute_spearman_p_value(np.array([*rates["all"].values()]), np.array(numbers))
        else:
            in_direction = target.find_direction_members(sign)
            p_value = compute_class_p_value(
                compute_rates(pattern_counts, is_new & in_direction),
                compute_rates(pattern_counts, is_new & target.is_known & ~in_direction),
            )
        tests.append(HeldOutTest(_tabulate_donors(rates), p_value))
    return tests


def _tabulate_donors(rates: Mapping[str, Mapping[int, float]]) -> pd.DataFrame:
    """Return a table of the donors of each class, from the rate of a pattern in each of them."""
    return pd.DataFrame(
        {
            "class": [*rates],
            "n_donors": [len(rate_of) for rate_of in rates.values()],
            "n_donors_with": [np.count_nonzero([*rate_of.values()]) for rate_of in rates.values()],
            "mean_rate": [np.mean([*rate_of.values()]) if rate_of else np.nan for rate_of in rates.values()],
        }
    )


def find_new_repertoires(
    donors: NDArray[np.int64], is_held_out: NDArray[np.bool_], is_known: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return whether the model has learned from no repertoire of the donor of each repertoire, (B,).

    Parameters
    ----------
    donors
        Index of the donor of each repertoire, (B,).
    is_held_out, is_known
        Whether the model has not learned from each repertoire, and whether it has a label, (B,) each.
    """
    return np.asarray(is_held_out & ~np.isin(donors, donors[~is_held_out & is_known]))
