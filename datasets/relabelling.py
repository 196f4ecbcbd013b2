"""Replace the metadata of a container by another metadata sheet: `deeprc relabel` as a function.

The sequences are copied as they are, or stay where they are; only `/metadata` is written again.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from deeprc.datasets.container import Container
from deeprc.datasets.container_file import rewrite_metadata
from deeprc.datasets.container_header import refuse_other_file
from deeprc.datasets.linked_container import LinkedContainer, StoredContainer, open_container
from deeprc.datasets.linked_writer import write_linked
from deeprc.datasets.matching import list_stems, match_files
from deeprc.datasets.metadata import Metadata, find_file_column, read_metadata
from deeprc.datasets.plan import raise_or_warn_of_unmatched
from deeprc.datasets.sheet_values import has_large_integers
from deeprc.datasets.unmatched import explain_different_names
from deeprc.errors import InputError, describe_names, join_names, quote, show_parameters
from deeprc.files import WRITE_ERROR_CODES, FileStamp, name_write_errors, write_atomically
from deeprc.versions import package_version

__all__ = ["Relabelling", "relabel"]

_SHOWN_COLUMNS = 20
_RELABELLED = "; relabelled with the metadata sheet "


@dataclass(frozen=True)
class Relabelling:
    """The result of giving a container new labels.

    Attributes
    ----------
    path
        Path of the container that has the new labels.
    n_repertoires
        Number of its repertoires.
    columns
        Names of the columns of the new metadata.
    dropped_columns
        Names of the columns of the old metadata that the new one lacks.
    rows_without_repertoire, repertoires_without_row
        Ids of the sheet that were left out, and of repertoires whose labels are now missing.
    matching
        How rows found their repertoires, as text; "" if each did by its id.
    """

    path: Path
    n_repertoires: int
    columns: tuple[str, ...]
    dropped_columns: tuple[str, ...]
    rows_without_repertoire: tuple[str, ...]
    repertoires_without_row: tuple[str, ...]
    matching: str = ""

    def to_text(self) -> str:
        """Return the result as text."""
        n_labelled = self.n_repertoires - len(self.repertoires_without_row)
        lines = [
            f"labels for {n_labelled:,} of {self.n_repertoires:,} repertoires",
            f"columns: {', '.join(self.columns)}",
        ]
        if self.matching:
            lines.insert(1, self.matching)
        if self.dropped_columns:
            lines.append(f"columns that are gone: {', '.join(self.dropped_columns)} (`keep_columns` keeps them)")
        return show_parameters("\n".join([*lines, f"Wrote {self.path}"]))


def relabel(
    container: str | os.PathLike[str],
    metadata: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    id_column: str | None = None,
    keep_columns: bool = False,
    drop_columns: bool = False,
    allow_missing: bool = False,
) -> Relabelling:
    """Replace the columns of a container's metadata by those of a metadata sheet.

    The repertoires, their order and their sequences stay, so that runs still recognise them, and cached results of the
    sequences can still be used. The new container appears when it is complete, or not at all.

    Parameters
    ----------
    container
        Path of a container made by `deeprc preprocess` or `deeprc simulate`.
    metadata
        New sheet: TSV, CSV or XLSX. A row belongs to the repertoire with its id, otherwise to the one whose file
        `deeprc preprocess` would find for it.
    output
        Path of the container to write; another container there is replaced. None: `container` is replaced.
    id_column
        Column of repertoire ids in the sheet; None: it is found by its name.
    keep_columns
        Whether to keep the columns of the old sheet that the new one does not have.
    drop_columns
        Whether to drop these columns also if `container` is replaced. If neither is chosen, that is an error, because
        the columns would be lost.
    allow_missing
        Whether to leave out rows without a repertoire, and to leave the labels of repertoires without a row missing,
        with a warning; otherwise they are an error.

    Raises
    ------
    InputError
        If an argument cannot be used; the message names it, and no container is written or changed.
    """
    if keep_columns and drop_columns:
        raise InputError("`keep_columns` and `drop_columns` contradict each other; choose one")
    source = open_container(container)
    target = Path(container if output is None else output)
    refuse_other_file(target)
    ids = [str(name) for name in source.repertoire_ids]
    if not ids:
        raise InputError(f"{source.path}: the container has no repertoires")
    sheet = read_metadata(metadata, id_column=id_column, ids=ids)
    row_of, matching = _match_rows(sheet, source)
    used = set(row_of.values())
    rows_without_repertoire = [name for row, name in enumerate(sheet.repertoire_ids) if row not in used]
    repertoires_without_row = [name for position, name in enumerate(ids) if position not in row_of]
    _check_unmatched(sheet, source, rows_without_repertoire, repertoires_without_row, allow_missing)
    table = _align_table(sheet, row_of, ids)
    dropped = [str(name) for name in source.metadata.columns if name not in table]
    if keep_columns:
        table, dropped = pd.concat([table, source.metadata[dropped]], axis=1), []
    if not drop_columns and target.exists() and target.samefile(container):
        _check_dropped(sheet, source, dropped)
    done = Relabelling(
        target,
        len(ids),
        tuple(map(str, table.columns)),
        tuple(dropped),
        tuple(rows_without_repertoire),
        tuple(repertoires_without_row),
        matching,
    )
    _write_container(source, target, table, done, sheet.path.name)
    return done


def _check_dropped(sheet: Metadata, source: StoredContainer, dropped: Sequence[str]) -> None:
    """Refuse to replace a container by one without some of its columns.

    It is not a loss if a column repeats the ids, is missing everywhere, or names files that the sheet names, too.
    """
    ids = [str(name) for name in source.repertoire_ids]
    file_column = find_file_column(map(str, source.metadata.columns))

    def is_lost(name: str) -> bool:
        values = source.metadata[name]
        texts = values.map(str).tolist()
        if values.isna().all() or texts == ids:
            return False
        is_named = sheet.file_column is not None or [list_stems(text)[-1] for text in texts] == ids
        return name != file_column or not is_named

    lost = list(filter(is_lost, dropped))
    if lost:
        columns = f"column{'s' if len(lost) > 1 else ''} {join_names(list(map(repr, lost)), _SHOWN_COLUMNS)}"
        raise InputError(
            f"{source.path}: would lose the {columns}, which {sheet.path} does not have; choose `keep_columns` or "
            "`drop_columns`, or another `output`"
        )


def _match_rows(sheet: Metadata, source: StoredContainer) -> tuple[dict[int, int], str]:
    """Return the row of the sheet of each repertoire that has one, by the repertoire's index, and how rows matched."""
    position_of = {str(name): position for position, name in enumerate(source.repertoire_ids)}
    by_id = {position_of[name]: row for row, name in enumerate(sheet.repertoire_ids) if name in position_of}
    used = set(by_id.values())
    rows = [row for row in range(len(sheet.repertoire_ids)) if row not in used]
    files = {
        Path(file): position for file, position in _index_files(source, position_of).items() if position not in by_id
    }
    ids, file_names = ([column[row] for row in rows] for column in (sheet.repertoire_ids, sheet.files))
    file_of_rows, _ = match_files(ids, file_names, list(files))
    file_of = {row: file for row, file in zip(rows, file_of_rows, strict=True) if file is not None}
    return by_id | {files[file]: row for row, file in file_of.items()}, _describe_matching(sheet, len(by_id), file_of)


def _describe_matching(sheet: Metadata, n_by_id: int, file_of: Mapping[int, Path]) -> str:
    """Return which columns matched rows to repertoires, as text; "" if no row was matched by the name of a file."""
    if not file_of:
        return ""
    by_name = [_is_named(sheet.files[row], file) for row, file in file_of.items()]
    columns = [sheet.file_column] if any(by_name) else []
    columns += [] if all(by_name) else [sheet.id_column]
    by = f"by the file names in column{'s' if len(columns) > 1 else ''} {' and '.join(map(repr, columns))}"
    matched = f"{len(file_of):,} {'row was' if len(file_of) == 1 else 'rows were'} matched {by}"
    if n_by_id == 0:
        return f"no value of {sheet.id_column!r} is a repertoire of the container; {matched}"
    return f"{n_by_id:,} {'row was' if n_by_id == 1 else 'rows were'} matched by column {sheet.id_column!r}; {matched}"


def _is_named(name: str, file: Path) -> bool:
    return bool(name) and not set(list_stems(name)).isdisjoint(list_stems(file.name))


def _index_files(source: StoredContainer, position_of: Mapping[str, int]) -> dict[str, int]:
    """Return the index of each repertoire that had a file of its own, by the file's name in the report."""
    reports = [entry for entry in source.preprocessing.get("repertoires", []) if entry["repertoire_id"] in position_of]
    shared = Counter(report["file"] for report in reports)
    return {report["file"]: position_of[report["repertoire_id"]] for report in reports if shared[report["file"]] == 1}


def _check_unmatched(
    sheet: Metadata,
    source: StoredContainer,
    rows_without_repertoire: Sequence[str],
    repertoires_without_row: Sequence[str],
    allow_missing: bool,
) -> None:
    """Refuse rows that have no repertoire and repertoires that have no row; log them if this is allowed."""
    by = f"(by column {sheet.id_column!r})"
    if len(rows_without_repertoire) == len(sheet.repertoire_ids):
        remark = explain_different_names([[name] for name in rows_without_repertoire], repertoires_without_row)
        raise InputError(
            f"{sheet.path}: no row is of a repertoire of {source.path} {by}: the sheet has "
            f"{quote(rows_without_repertoire[0])}, the container {quote(repertoires_without_row[0])}"
            f"{f' ({remark})' if remark else ''}. Is `id_column` right?"
        )
    faults = {}
    if rows_without_repertoire:
        rows = describe_names(rows_without_repertoire, "row", "rows")
        faults[f"{source.path}: no repertoire for {rows} {by}"] = "left out"
    if repertoires_without_row:
        repertoires = describe_names(repertoires_without_row, "repertoire", "repertoires")
        faults[f"{sheet.path}: no row for {repertoires}"] = "labels are missing"
    raise_or_warn_of_unmatched(faults, allow_missing, "go on without with `allow_missing`")


def _align_table(sheet: Metadata, row_of: Mapping[int, int], ids: Sequence[str]) -> pd.DataFrame:
    """Return the sheet's table with a row per repertoire, in the container's order; missing if there is no row."""
    rows = [row_of.get(position, -1) for position in range(len(ids))]
    missing = [position for position, row in enumerate(rows) if row < 0]
    table = sheet.table
    if missing:
        large = [name for name, values in table.items() if has_large_integers(values)]
        table = table.assign(**{str(name): table[name].map(str).astype(object) for name in large})
    table = table.reindex(rows).reset_index(drop=True)  # -1 is no row: missing values
    table.loc[missing, sheet.id_column] = [ids[position] for position in missing]
    return table


def _write_container(
    source: StoredContainer, target: Path, table: pd.DataFrame, done: Relabelling, sheet_name: str
) -> None:
    """Copy the container to a hidden file, replace its metadata there, and rename the file."""
    entry = {
        "metadata": sheet_name,
        "deeprc": package_version("deeprc"),
        "columns": list(done.columns),
        "dropped_columns": list(done.dropped_columns),
        "rows_without_repertoire": list(done.rows_without_repertoire),
        "repertoires_without_row": list(done.repertoires_without_row),
    }
    history = [*source.preprocessing.get("relabelled", []), entry]
    new_source = source.source.partition(_RELABELLED)[0] + _RELABELLED + sheet_name
    provenance = {**source.preprocessing, "relabelled": history}
    if isinstance(source, LinkedContainer):
        write_linked(
            target, source.stores, table, source=new_source, preprocessing=provenance, simulation=source.simulation
        )
        return
    with name_write_errors(target), write_atomically(target) as temporary_path:
        _copy_container(source, temporary_path)
        rewrite_metadata(temporary_path, source, table, source=new_source, preprocessing=provenance)


def _copy_container(source: Container, temporary_path: Path) -> None:
    """Copy a container as it was when it was opened."""
    try:
        shutil.copyfile(source.path, temporary_path)
        stamp = FileStamp.of(source.path)
    except OSError as error:  # which names the source, whichever of the two files it is about
        if error.errno in WRITE_ERROR_CODES:
            raise OSError(error.errno, error.strerror) from error
        raise InputError(f"{source.path}: cannot be read: {error.strerror}") from error
    if stamp != source.stamp:
        raise InputError(f"{source.path}: was changed while it was read; try again")
