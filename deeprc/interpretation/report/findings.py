"""Findings of a check of the cohort in a report: warnings, groups of repertoires, and carriers of top sequences.

Letters: n sequences, B repertoires.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.checks.cautions import format_finding
from deeprc.checks.container import hash_repertoire
from deeprc.checks.profile import hash_with_gene_names
from deeprc.checks.run_checks import RunChecks, check_for_training, read_checks
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.errors import join_names
from deeprc.evaluation.caution import Caution
from deeprc.evaluation.donors import DonorColumn
from deeprc.evaluation.splits import NEW
from deeprc.interpretation.report.page import Column, Table, make_number_cell, make_text_cell
from deeprc.interpretation.sequence_index import SequenceIndex
from deeprc.interpretation.survey import TopSequences
from deeprc.progress import track
from deeprc.runs.performance import Performance
from deeprc.runs.predictor import Predictor

__all__ = [
    "SequenceCarriers",
    "SimilarGroup",
    "find_sequence_carriers",
    "is_relabelled",
    "list_flagged_groups",
    "load_or_run_checks",
    "make_check_cautions",
    "make_group_table",
    "make_shortcut_table",
]

_LOOKED_AT = 10  # number of top sequences of a direction that the warning uses
_SHOWN = 3  # largest number of names in a text
_ROWS = 50  # largest number of repertoires of a group in the table
_FINDINGS = {"same-content": "the same content", "similar-content": "similar content"}  # by the code of the finding


@dataclass(frozen=True)
class SimilarGroup:
    """A group of repertoires with the same or suspiciously similar sequences.

    Attributes
    ----------
    name
        Name of the group, such as "group 1".
    code
        Code of the finding, `same-content` or `similar-content`.
    members
        Ids of the repertoires.
    """

    name: str
    code: str
    members: tuple[str, ...]


@dataclass(frozen=True)
class SequenceCarriers:
    """Numbers of repertoires and donors that carry a sequence (junction and genes).

    Attributes
    ----------
    n_repertoires, n_donors
        Number of repertoires of the cohort with the sequence, and number of donors from whom they are; None if donors
        are not known. A repertoire of unknown origin counts as one donor.
    group
        Group that has more than half of these repertoires, and at least two; None if there is no such group.
    n_in_group
        Number of these repertoires in the group.
    """

    n_repertoires: int
    n_donors: int | None
    group: SimilarGroup | None
    n_in_group: int = 0


def load_or_run_checks(predictor: Predictor, dataset: RepertoireDataset, performance: Performance) -> RunChecks:
    """Return the stored checks of the run; if there are none, or if the cohort has changed, check the cohort now.

    Raises
    ------
    InputError
        If a run's file is damaged.
    """
    if predictor.runs and not (performance.parts == NEW).any():
        kept = read_checks(predictor.runs[0].path)
        if kept is not None and kept.is_current(dataset):
            return kept
    return check_for_training(dataset, predictor.model.tasks, predictor.group_by)


def is_relabelled(predictor: Predictor, dataset: RepertoireDataset) -> bool:
    """Return whether the metadata differ from those with which a run was trained.

    Raises
    ------
    InputError
        If a run's file is damaged.
    """
    stored = [read_checks(run.path) for run in predictor.runs]
    return any(kept is not None and not kept.is_current(dataset) for kept in stored)


def list_flagged_groups(checks: RunChecks) -> list[SimilarGroup]:
    """Return all groups of repertoires that a check found, those with the same content first."""
    groups = [(finding.code, members) for finding in checks.findings for members in finding.groups]
    groups.sort(key=lambda group: group[0] != "same-content")
    return [SimilarGroup(f"group {i}", code, members) for i, (code, members) in enumerate(groups, start=1)]


def make_check_cautions(checks: RunChecks, carriers: Mapping[str, Sequence[SequenceCarriers]]) -> Iterator[Caution]:
    """Yield the warnings of a check, and a warning if top sequences are shared within a group that it found.

    Parameters
    ----------
    checks
        Findings of the check.
    carriers
        Carriers of each top sequence, best first, by the name of the direction.
    """
    for direction, shared in carriers.items():
        first = shared[:_LOOKED_AT]
        in_groups = [carrier.group for carrier in first if carrier.group is not None]
        if in_groups:
            groups = list(dict.fromkeys(in_groups))
            group_list = "; ".join(f"{group.name} ({join_names(group.members, _SHOWN)})" for group in groups[:_SHOWN])
            more = f" and {len(groups) - _SHOWN} more groups" if len(groups) > _SHOWN else ""
            text = (
                f"{len(in_groups)} of the first {len(first)} sequences that contribute to {direction} are shared "
                f"mainly within {group_list}{more}, repertoires that have more sequences in common than chance "
                "explains. They may be there by contamination, copies or a common origin, not because of the target."
            )
            yield Caution("warning", text, "sequences")
    for finding in checks.warnings:
        yield Caution("warning", format_finding(finding), "cohort-check")


def make_group_table(
    groups: Sequence[SimilarGroup], dataset: RepertoireDataset, performance: Performance, donor_column: str | None
) -> Table | None:
    """Return a table of the first repertoires of each group, with donor and part of the split; None without groups."""
    if not groups:
        return None
    part_of = dict(zip(map(str, performance.ids), performance.parts, strict=True))
    donor_of: dict[str, Any] = {}
    if donor_column is not None:
        donor_of = dict(zip(map(str, dataset.repertoire_ids), dataset.metadata[donor_column].tolist(), strict=True))
    split_note = "part of the split that has this repertoire: train, validation, test or new"
    columns = [
        Column("Repertoire", is_number=False),
        Column("Group", is_number=False),
        Column("Size", note="number of repertoires of the group"),
        Column("Finding", is_number=False),
        *([] if donor_column is None else [Column(donor_column, is_number=False)]),
        Column("Split", is_number=False, note=split_note),
    ]
    rows = [
        [
            make_text_cell(name),
            make_text_cell(group.name),
            make_number_cell(len(group.members), ",d"),
            make_text_cell(_FINDINGS[group.code]),
            *([] if donor_column is None else [make_text_cell(None if pd.isna(donor_of[name]) else donor_of[name])]),
            make_text_cell(part_of[name]),
        ]
        for group in groups
        for name in group.members[:_ROWS]
        if name in part_of
    ]
    caption = "Groups of repertoires that have more sequences in common than chance explains"
    if any(len(group.members) > _ROWS for group in groups):
        caption += f" (the first {_ROWS} of each group)"
    return Table("groups", caption, columns, rows, sortable=True, searchable="Search repertoires, groups")


_BEYOND_CHANCE = "significant at 1%, corrected for all tests of the check; the interval is not corrected"


def make_shortcut_table(checks: RunChecks) -> Table | None:
    """Return a table of how well labels are predicted without receptors; None if nothing was tested."""
    if not checks.shortcuts:
        return None
    columns = [
        Column("Property", is_number=False),
        Column("Predicts", is_number=False),
        Column("Measure", is_number=False),
        Column("Value"),
        Column("95% interval", is_number=False),
        Column("Better than chance", is_number=False, note=_BEYOND_CHANCE),
    ]
    measures = {"auc": "AUC", "cramers_v": "Cramér's V"}
    rows = []
    for shortcut in checks.shortcuts:
        interval = None if shortcut.interval is None else f"{shortcut.interval[0]:.2f} to {shortcut.interval[1]:.2f}"
        cells = [
            make_text_cell(shortcut.property),
            make_text_cell(shortcut.label),
            make_text_cell(measures[shortcut.measure]),
            make_number_cell(shortcut.value, ".2f"),
        ]
        rows.append([*cells, make_text_cell(interval), make_text_cell("yes" if shortcut.verdict else "no")])
    caption = "How well the label is predicted without receptor sequences, over all labelled repertoires"
    return Table("shortcuts", caption, columns, rows, sortable=True)


def find_sequence_carriers(
    dataset: RepertoireDataset,
    top: Mapping[str, TopSequences],
    groups: Sequence[SimilarGroup],
    donor_column: str | None,
) -> dict[str, list[SequenceCarriers]]:
    """Return the carriers of each top sequence among all repertoires of the dataset, by direction.

    Parameters
    ----------
    dataset
        The cohort.
    top
        The top sequences of each direction, see `deeprc.interpretation.survey.Survey`.
    groups
        Groups of repertoires.
    donor_column
        Metadata column that names the donor of a repertoire; None if donors are not known.
    """
    hashes = {direction: _hash_sequences(dataset, sequences.index) for direction, sequences in top.items()}
    all_hashes = np.unique(np.concatenate([*hashes.values(), np.zeros(0, np.uint64)]))
    donors = DonorColumn(dataset.metadata, donor_column).index_if_known()
    ids = [str(name) for name in dataset.repertoire_ids]
    members = [frozenset(group.members) for group in groups]

    def describe(rows: Sequence[int]) -> SequenceCarriers:
        n_donors = None if donors is None else len({donors[row] for row in rows})
        n_by_group = [sum(ids[row] in group for row in rows) for group in members]
        best = int(np.argmax(n_by_group)) if n_by_group else -1
        if best >= 0 and n_by_group[best] > max(1, len(rows) / 2):
            return SequenceCarriers(len(rows), n_donors, groups[best], n_by_group[best])
        return SequenceCarriers(len(rows), n_donors, None)

    carriers = [describe(rows) for rows in _find_carriers(dataset, all_hashes)]
    return {
        direction: [carriers[i] for i in np.searchsorted(all_hashes, own_hashes).tolist()]
        for direction, own_hashes in hashes.items()
    }


def _hash_sequences(dataset: RepertoireDataset, index: SequenceIndex) -> NDArray[np.uint64]:
    """Return the hash of each sequence with its genes, (n,), as `hash_repertoire` computes it."""
    return hash_with_gene_names(dataset.sequence_container.take(index.to_container_rows(dataset)))


def _find_carriers(dataset: RepertoireDataset, sorted_hashes: NDArray[np.uint64]) -> list[list[int]]:
    """Return, for each of the sorted hashes, the indices of the repertoires that have it."""
    carriers: list[list[int]] = [[] for _ in sorted_hashes]

    def find_indices(repertoire: Repertoire) -> NDArray[np.int64]:
        hashes = hash_repertoire(repertoire)
        index = np.minimum(np.searchsorted(sorted_hashes, hashes), len(sorted_hashes) - 1)
        return np.unique(index[sorted_hashes[index] == hashes])

    if len(sorted_hashes):
        indices_of_repertoires = track(
            dataset.map_repertoires(find_indices), "repertoires that have the top sequences", len(dataset)
        )
        for row, indices in enumerate(indices_of_repertoires):
            for index in indices.tolist():
                carriers[index].append(row)
    return carriers
