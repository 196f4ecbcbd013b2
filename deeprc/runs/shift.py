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
    new_repertoires = dataset[rows]
    distance = np.full(len(dataset), np.nan)
    reasons: list[Sequence[tuple[str, str]]] = [[]] * len(dataset)
    other_chains = [""] * len(dataset)
    different = _select_different(summaries) if len(rows) else []
    references = [summary.reference for summary in different if summary.reference is not None]
    comparisons = [_compare_with_reference(reference, new_repertoires) for reference in references]
    for i, comparison in enumerate(_choose_median_comparisons(comparisons)):
        row = rows[i]
        distance[row], reasons[row] = comparison.distance[i], comparison.reasons[i]
        other_chains[row] = comparison.other_chains[i]
    all_references = [summary.reference for summary in summaries if summary.reference is not None]
    differences = dict.fromkeys(text for comparison in comparisons for text in comparison.reading_differences)
    return Shift(
        ids=dataset.repertoire_ids,
        is_new=is_new,
        distance=distance,
        reasons=reasons,
        copies=_find_closest_copies(different, new_repertoires, parts, rows),
        n_donors=min((reference.n_donors for reference in all_references), default=0),
        n_unknown=len(summaries) - len(all_references),
        n_models=len(summaries),
        read_otherwise=tuple(differences),
        part=" or ".join(part for part in HELD_OUT if part in parts),
        other_chains=other_chains,
    )


def _select_different(summaries: Sequence[TrainingSummary]) -> list[TrainingSummary]:
    """Return the different summaries; runs that differ only in their validation fold have the same one."""
    different: list[TrainingSummary] = []
    for summary in summaries:
        if not any(_are_equal(summary, other) for other in different):
            different.append(summary)
    return different


def _are_equal(first: TrainingSummary, second: TrainingSummary) -> bool:
    """Return whether two models have learned from the same repertoires."""
    return first.reference == second.reference and _collect_ids(first) == _collect_ids(second)


def _collect_ids(summary: TrainingSummary) -> set[str]:
    return set(summary.identities or ()) | set(summary.sketches.repertoire_ids if summary.sketches else ())


class _Comparison(NamedTuple):
    """Repertoires compared with the training repertoires of one model; the names are those of `Shift`."""

    distance: NDArray[np.float64]
    reasons: list[list[tuple[str, str]]]
    other_chains: list[str]
    reading_differences: list[str]


def _choose_median_comparisons(comparisons: Sequence[_Comparison]) -> list[_Comparison]:
    """Return for each new repertoire the comparison with the median distance; no entry if there is no comparison."""
    if not comparisons:
        return []
    by_distance = np.argsort([comparison.distance for comparison in comparisons], axis=0, kind="stable")
    return [comparisons[model] for model in by_distance[len(comparisons) // 2].tolist()]


def _compare_with_reference(reference: Reference, dataset: RepertoireDataset) -> _Comparison:
    """Compare repertoires with the training repertoires of one model, (n,) each."""
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


def _find_closest_copies(
    summaries: Sequence[TrainingSummary],
    new_repertoires: RepertoireDataset,
    parts: Sequence[str],
    rows: NDArray[np.int64],
) -> list[Copy | None]:
    """Return the copy with the largest overlap among all models, (B,); None for repertoires not at `rows`."""
    closest: list[Copy | None] = [None] * len(parts)
    for summary in summaries:
        for row, copy in zip(rows.tolist(), _find_copies(summary, new_repertoires, parts, rows), strict=True):
            previous = closest[row]
            if copy is not None and (previous is None or copy.overlap > previous.overlap):
                closest[row] = copy
    return closest


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
