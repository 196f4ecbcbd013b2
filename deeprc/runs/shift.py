"""Shift of repertoires from those of a model's training: distances, and columns of a table.

Letters: B repertoires.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.known_repertoires import KnownRepertoires, identify_repertoire
from deeprc.evaluation.splits import HELD_OUT, NEW
from deeprc.shift.feature_table import compute_features
from deeprc.shift.reasons import name_other_chains, name_reasons
from deeprc.shift.sketches import Copy
from deeprc.shift.summary import TrainingSummary
from deeprc.shift.training_reference import Reference

__all__ = ["SHIFT_COLUMNS", "Shift", "add_shift_columns", "measure_shift"]

SHIFT_COLUMNS = ("shift", "shift_reason", "resembles")
"""Columns that `add_shift_columns` adds to a table of predictions."""


@dataclass(frozen=True)
class Shift:
    """Distances of B repertoires from the training repertoires of a model, with the reasons.

    Attributes
    ----------
    ids
        Ids of the repertoires, (B,).
    is_new
        Whether each repertoire was neither in the training nor in the validation fold, (B,). Only these are compared.
    distance
        Distance from the training repertoires, (B,): above 1, it exceeds the level that 5% of training repertoires
        exceed. NaN if not known.
    reasons
        Reasons why each repertoire beyond the level is unusual, (B,): pairs of an aspect and a text.
    copies
        Training repertoire of which each one is a copy, or with which it shares far more than by chance, (B,); else
        None.
    n_donors
        Number of donors from whose repertoires the level was estimated, the smallest of all models.
    n_unknown, n_models
        Number of models without a summary of their training repertoires, and number of all models.
    read_otherwise
        Texts that say how files were read differently from all files of the training.
    part
        Name in texts of the repertoires that are compared: "test", "new" or "test or new".
    other_chains
        Chain of each repertoire, and that of the training repertoires, if they differ, (B,); else an empty text.
    """

    ids: NDArray[np.object_]
    is_new: NDArray[np.bool_]
    distance: NDArray[np.float64]
    reasons: Sequence[Sequence[tuple[str, str]]]
    copies: Sequence[Copy | None]
    n_donors: int
    n_unknown: int
    n_models: int
    read_otherwise: Sequence[str]
    part: str = NEW
    other_chains: Sequence[str] = ()

    @property
    def is_beyond(self) -> NDArray[np.bool_]:
        """Whether each repertoire is beyond the level, (B,)."""
        return np.nan_to_num(self.distance) > 1

    def columns(self) -> pd.DataFrame:
        """Return a table with a row per repertoire: `repertoire_id`, `shift`, `shift_reason` and `resembles`."""
        reasons = ["; ".join(text for _, text in pairs) or None for pairs in self.reasons]
        copies = [None if copy is None else f"{copy.repertoire_id} ({copy.overlap:.0%})" for copy in self.copies]
        return pd.DataFrame(
            {
                "repertoire_id": self.ids,
                "shift": np.round(self.distance, 3),
                "shift_reason": np.array(reasons, object),
                "resembles": np.array(copies, object),
            }
        )


def measure_shift(summaries: Sequence[TrainingSummary], dataset: RepertoireDataset, parts: Sequence[str]) -> Shift:
    """Compare repertoires with the training repertoires of one or several models.

    Only repertoires that are in no model's training or validation fold are compared. If several models predict
    together, the distance of a repertoire is the median over the models, the upper one if their number is even. So a
    repertoire is beyond the level if it is for at least half of the models. The largest distance would exceed 1 more
    often than in 5% of the repertoires.

    Parameters
    ----------
    summaries
        Summary of the training repertoires of each model.
    dataset
        The B repertoires.
    parts
        Part of the split of each repertoire, (B,).
    """
    is_new = np.array([part in HELD_OUT for part in parts], np.bool_)
    rows = np.flatnonzero(is_new)
    distance = np.full(len(dataset), np.nan)
    reasons: list[Sequence[tuple[str, str]]] = [[]] * len(dataset)
    other_chains = [""] * len(dataset)
    copies: list[Copy | None] = [None] * len(dataset)
    reading_differences: dict[str, None] = {}
    new_repertoires = dataset[rows]
    comparisons = []
    for summary in _select_different(summaries) if len(rows) else []:
        if summary.reference is not None:
            comparison = _compare_with_reference(summary.reference, new_repertoires)
            reading_differences |= dict.fromkeys(comparison.reading_differences)
            comparisons.append(comparison)
        for row, copy in zip(rows.tolist(), _find_copies(summary, new_repertoires, parts, rows), strict=True):
            previous = copies[row]
            if copy is not None and (previous is None or copy.overlap > previous.overlap):
                copies[row] = copy
    if comparisons:
        by_distance = np.argsort([comparison.distance for comparison in comparisons], axis=0, kind="stable")
        median_models = by_distance[len(comparisons) // 2]
        for i, (row, model) in enumerate(zip(rows.tolist(), median_models.tolist(), strict=True)):
            distance[row], reasons[row] = comparisons[model].distance[i], comparisons[model].reasons[i]
            other_chains[row] = comparisons[model].other_chains[i]
    n_donors = min([summary.reference.n_donors for summary in summaries if summary.reference is not None], default=0)
    n_unknown = sum(summary.reference is None for summary in summaries)
    return Shift(
        dataset.repertoire_ids,
        is_new,
        distance,
        reasons,
        copies,
        n_donors,
        n_unknown,
        len(summaries),
        tuple(reading_differences),
        " or ".join(part for part in HELD_OUT if part in parts),
        other_chains,
    )


def _select_different(summaries: Sequence[TrainingSummary]) -> list[TrainingSummary]:
    """Return the different summaries; runs that differ only in their validation fold have the same one."""
    different: list[TrainingSummary] = []
    for summary in summaries:
        if not any(_are_equal(summary, other) for other in different):
            different.append(summary)
    return different


def _are_equal(first: TrainingSummary, second: TrainingSummary) -> bool:
    return first.reference == second.reference and _collect_ids(first) == _collect_ids(second)


def _collect_ids(summary: TrainingSummary) -> set[str]:
    return set(summary.identities or ()) | set(summary.sketches.repertoire_ids if summary.sketches else ())


class _Comparison(NamedTuple):
    """Repertoires compared with the training repertoires of one model; the names are those of `Shift`."""

    distance: NDArray[np.float64]
    reasons: list[list[tuple[str, str]]]
    other_chains: list[str]
    reading_differences: list[str]


def _compare_with_reference(reference: Reference, dataset: RepertoireDataset) -> _Comparison:
    table = compute_features(dataset, reference.vocabulary)
    deviations = reference.compute_deviations(table)
    differences = []
    for name, texts in table.file_properties.items():
        trained_on = reference.file_properties.get(name, ())
        others = sorted({text for text in texts if text and text not in trained_on}) if trained_on else []
        if others:
            differences.append(
                f"{name} {', '.join(others)}, trained on {', '.join(text or 'none' for text in trained_on)}"
            )
    return _Comparison(
        deviations.distance / reference.threshold,
        name_reasons(reference, table, deviations),
        name_other_chains(reference, table),
        differences,
    )


def _find_copies(
    summary: TrainingSummary, dataset: RepertoireDataset, parts: Sequence[str], rows: NDArray[np.int64]
) -> list[Copy | None]:
    """Return the training repertoire of which each one at `rows` is a copy, by content or by sketches; else None.

    A copy with other genes is found, too, unless training repertoires differ from each other in genes alone.
    """
    copies: list[Copy | None] = [None] * len(dataset)
    if summary.sketches is not None:
        copies = summary.sketches.find_copies(dataset)
    id_of = {identity: name for name, identity in (summary.identities or {}).items()}
    training_repertoires, names = KnownRepertoires(list(id_of)), list(id_of.values())
    for i, (row, repertoire) in enumerate(zip(rows.tolist(), dataset, strict=True)):
        if parts[row] == NEW and len(repertoire):
            index = training_repertoires.find(identify_repertoire(repertoire), with_other_genes=True)
            if index is not None:
                copies[i] = Copy(
                    names[index], 1.0, 0.0 if summary.sketches is None else summary.sketches.typical_overlap
                )
    return copies


def add_shift_columns(table: pd.DataFrame, shift: Shift, *, abstain: bool = False) -> pd.DataFrame:
    """Return a table of predictions with the columns of `SHIFT_COLUMNS`.

    With `abstain`, predictions for repertoires beyond the level are empty.
    """
    by_id = shift.columns().drop_duplicates("repertoire_id").set_index("repertoire_id")
    extended = table.copy()
    for column in SHIFT_COLUMNS:
        extended[column] = by_id[column].reindex(table["repertoire_id"]).to_numpy()
    if abstain:
        beyond = table["repertoire_id"].isin(shift.ids[shift.is_beyond])
        for column in ("probability", "called_class", "prediction"):
            if column in extended:
                extended.loc[beyond, column] = np.nan
    return extended
