"""Datasets without a file: tables in memory become repertoires by the same cleaning as files.

Letters: B repertoires, N sequences of all of them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.cleaning import CleanedTable, clean, examine_file, split_by_repertoire
from deeprc.datasets.container_header import VERSION, get_creator
from deeprc.datasets.container_writer import ContainerWriter, check_n_gene_names
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.frames import extract_categorical, extract_texts, find_constant_columns, to_arrow
from deeprc.datasets.metadata import Metadata, make_metadata, read_metadata
from deeprc.datasets.options import ReadingOptions
from deeprc.datasets.parts import SingleStoreContainer
from deeprc.datasets.plan import NO_SPLIT, raise_or_warn_of_unmatched
from deeprc.datasets.preprocessing import check_container_output
from deeprc.datasets.readers import Header, Layout, RawRows, make_rows, match_reader
from deeprc.datasets.readers.columns import check_column_names
from deeprc.datasets.repertoire_checks import (
    check_loci,
    count_numbers_as_genes,
    raise_or_warn_of_empty,
    warn_of_numbers_as_genes,
)
from deeprc.datasets.report import PreprocessingReport, RepertoireReport
from deeprc.datasets.sequences import GENE_FIELDS, Sequences
from deeprc.errors import InputError, describe_missing_column, describe_names
from deeprc.files import name_write_errors

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MemoryContainer", "MemoryDataset", "RowsInMemory", "from_frame", "make_dataset", "make_sheet"]

_NAME = "table"


class MemoryDataset(RepertoireDataset):
    """Repertoires that are only in memory, from `deeprc.from_frame` or `deeprc.from_anndata`.

    It is sliced, split, trained on and predicted like the dataset of a container; `to_container` writes it.

    Parameters
    ----------
    container
        Container in memory with the repertoires.
    """

    container: MemoryContainer

    def __init__(self, container: MemoryContainer) -> None:
        self.container = container
        self.repertoire_indices = np.arange(len(container.repertoire_ids))

    def __repr__(self) -> str:
        return f"MemoryDataset({len(self)} repertoires, {int(self.n_sequences.sum()):,} sequences)"

    @property
    def report(self) -> PreprocessingReport:
        """The report of what was kept and dropped of the whole table."""
        return self.container.report

    def to_container(self, path: str | os.PathLike[str]) -> RepertoireDataset:
        """Write these repertoires to a container, which replaces an existing one; return it, opened."""
        output = Path(path)
        check_container_output(output)
        with name_write_errors(output), ContainerWriter(output) as writer:
            for repertoire in self:
                writer.append(repertoire.repertoire_id, repertoire.sequences)
            source = f"{len(self)} repertoires of {self.container.source}"
            writer.finish(self.metadata, source=source, preprocessing=self.container.preprocessing)
        return RepertoireDataset(output)


class MemoryContainer(SingleStoreContainer):
    """A container in memory, with all that a dataset needs of a container.

    Parameters
    ----------
    sequences_of
        Sequences of each of B repertoires, by its id.
    metadata
        Metadata, with one row per repertoire, in the same order.
    report
        Report of what was kept and dropped.
    source
        Origin of the repertoires, in words.
    """

    def __init__(
        self, sequences_of: Mapping[str, Sequences], metadata: pd.DataFrame, report: PreprocessingReport, source: str
    ) -> None:
        self.path = Path(source)
        self.source, self.report = source, report
        self.version, self.created_by = VERSION, get_creator()
        self.preprocessing: dict[str, Any] = report.to_dict()
        self.simulation: dict[str, Any] | None = None
        self.repertoire_ids: NDArray[np.object_] = np.array(list(sequences_of), object)
        self.repertoire_offsets = compute_offsets(np.array(list(map(len, sequences_of.values())), np.int64))
        self.sequences = _concatenate_repertoires(list(sequences_of.values()))
        self.metadata = metadata
        self.digests: dict[tuple[int, int], str] = {}


def _concatenate_repertoires(repertoires: Sequence[Sequences]) -> Sequences:
    """Return the sequences of all repertoires; if a repertoire lacks a gene that others have, it is unknown."""
    joined = Sequences.concatenate([sequences.with_genes({}) for sequences in repertoires])
    genes = {}
    for name in GENE_FIELDS:
        if any(name in sequences.genes for sequences in repertoires):
            calls = [sequences.genes.get(name, Categorical.unknown(len(sequences))) for sequences in repertoires]
            joint = Categorical.concatenate([Categorical.unknown(0), *calls])
            check_n_gene_names(name, len(joint.vocabulary))
            genes[name] = Categorical(joint.codes.astype(np.uint16), joint.vocabulary)
    return joined.with_genes(genes)


def from_frame(
    table: Any,
    *,
    repertoire: str | None = None,
    metadata: Any = None,
    options: ReadingOptions | None = None,
) -> MemoryDataset:
    """Make a dataset of a table in memory; `deeprc.from_frame` is this function.

    The result holds what `deeprc.preprocess` would write from a file with the same columns.

    Parameters
    ----------
    table
        One row per sequence: a table of pandas, polars or pyarrow, or a mapping of columns. The columns are recognised
        by the names of AIRR or of any other format that `preprocess` reads.
    repertoire
        The column that names the repertoire of each row; None: `repertoire_id`, or the `sample_id` of AIRR. A
        `split_by` of the options counts more.
    metadata
        One row per repertoire: such a table, or the path of a sheet. None: the other columns of `table` that have one
        value in each repertoire.
    options
        Options that say how the table is read and which sequences are kept; None: the defaults of `ReadingOptions`.

    Raises
    ------
    InputError
        If an argument cannot be used.
    """
    options = ReadingOptions() if options is None else options
    frame = to_arrow(table)
    header = Header(Path(_NAME), tuple(frame.column_names))
    if repertoire is not None and repertoire not in header.columns:
        raise InputError(f"the table has {describe_missing_column(repertoire, header.columns, 'for `repertoire`')}")
    matched = match_reader(header, options.find_reader())
    split_column = _find_split_column(header, options.split_by)
    column = repertoire if split_column is None else split_column
    layout = matched.layout if column is None else replace(matched.layout, repertoire=(column,))
    if not layout.repertoire:
        raise InputError("no column names the repertoire of each row; say which one does with `repertoire`")
    check_column_names(header, frame.column_names)
    texts = {name: extract_texts(frame, name) for name in layout.sequences.values()}
    coded = {name: extract_categorical(frame, name) for name in layout.coded_columns}
    rows = make_rows(texts, coded, layout, lambda row: f"table: row {row}")
    assert rows.repertoire is not None
    if metadata is None:
        sheet = _collect_sheet(frame, replace(layout, repertoire=(rows.repertoire_column,)), rows.repertoire)
    else:
        sheet = make_sheet(metadata, options.id_column, rows.repertoire.vocabulary)
    return make_dataset(RowsInMemory(rows, matched.reader.name, "a table"), sheet, options)


def _find_split_column(header: Header, split_by: str | None) -> str | None:
    """Return the column of a table that the option `split_by` names; None if it names none."""
    if split_by is None or split_by == NO_SPLIT:
        return None
    column = header.find(split_by)
    if column is None:
        raise InputError(f"the table has {describe_missing_column(split_by, header.columns, 'to split by')}")
    return column


def _collect_sheet(frame: pa.Table, layout: Layout, repertoires: Categorical) -> Metadata:
    """Return the sheet of the repertoires of a table: its columns that have one value in each of them.

    Rows without the name of a repertoire do not count, and columns of the layout are left out.

    Raises
    ------
    InputError
        If no row has the name of a repertoire.
    """
    (id_column,) = layout.repertoire
    is_named = np.array([name != "" for name in repertoires.vocabulary], np.bool_)[repertoires.codes]
    if not is_named.any():
        raise InputError(f"the table has no row with a repertoire (column {id_column!r})")
    if not is_named.all():
        frame, repertoires = frame.filter(is_named), repertoires.take(is_named).drop_unused()
    others = [name for name in frame.column_names if name not in layout.columns]
    columns = {id_column: list(repertoires.vocabulary), **find_constant_columns(frame, others, repertoires)}
    return make_metadata(columns, id_column=id_column)


def make_sheet(metadata: Any, id_column: str | None, ids: Sequence[str]) -> Metadata:
    """Return the metadata sheet of a table in memory or of a file."""
    if isinstance(metadata, str | os.PathLike):
        return read_metadata(metadata, id_column=id_column, ids=ids)
    frame = to_arrow(metadata)
    check_column_names(Header(Path("metadata"), tuple(frame.column_names)), frame.column_names)
    columns = {name: extract_categorical(frame, name).names().tolist() for name in frame.column_names}
    return make_metadata(columns, id_column=id_column, ids=ids)


@dataclass(frozen=True)
class RowsInMemory:
    """The rows of a table, with the names of their repertoires.

    Attributes
    ----------
    rows
        The rows.
    format
        Name of the format whose columns they have.
    source
        Origin of the rows, in words.
    """

    rows: RawRows
    format: str
    source: str

    def clean(self, options: ReadingOptions) -> dict[str, CleanedTable]:
        """Return the kept sequences of each repertoire, and how many rows were dropped and merged."""
        facts = examine_file(self.rows, self.source)
        return {name: clean(rows, options.make_cleaning(), facts) for name, rows in split_by_repertoire(self.rows)}


def make_dataset(table: RowsInMemory, sheet: Metadata, options: ReadingOptions) -> MemoryDataset:
    """Clean rows and make a dataset of the repertoires that a sheet names, in its order.

    Raises
    ------
    InputError
        If a repertoire has no row of the sheet or the sheet a row without repertoire, unless `allow_missing`; if rows
        are of several chains; or if nothing is kept.
    """
    cleaned = table.clean(options) if len(table.rows) else {}
    missing = [name for name in sheet.repertoire_ids if name not in cleaned]
    unknown = [name or "(no name)" for name in cleaned if name not in sheet.repertoire_ids]
    _check_ids(sheet, missing, unknown, options.allow_missing)
    reports, loci = [], dict[str, str]()
    for name in sheet.repertoire_ids:
        if name in cleaned:
            report = RepertoireReport.of(name, table.source, table.format, cleaned[name], options.locus)
            check_loci(loci, report)
            reports.append(report)
            if not report.kept:
                raise_or_warn_of_empty(table.source, report, options.allow_missing)
    kept = [report.repertoire_id for report in reports if report.kept]
    if not kept:
        raise InputError(f"{table.source}: none of its repertoires has a sequence that is kept")
    row_of = {name: row for row, name in enumerate(sheet.repertoire_ids)}
    metadata = sheet.table.iloc[[row_of[name] for name in kept]].reset_index(drop=True)
    without_row = {table.source: tuple(unknown)} if unknown else {}
    report_of_all = PreprocessingReport(
        repertoires=tuple(reports),
        rows_without_file=tuple(missing),
        files_without_row=(),
        repertoires_without_row=without_row,
        skipped_files={},
        cleaning=options.make_cleaning(),
    )
    sequences_of = {name: cleaned[name].sequences for name in kept}
    numbers = sum(map(count_numbers_as_genes, sequences_of.values()), Counter[str]())
    warn_of_numbers_as_genes({table.source: numbers})
    return MemoryDataset(MemoryContainer(sequences_of, metadata, report_of_all, table.source))


def _check_ids(sheet: Metadata, missing: Sequence[str], unknown: Sequence[str], allow_missing: bool) -> None:
    """Raise InputError, or log a warning, if rows of the sheet have no sequences or repertoires have no row."""
    differences = []
    if missing:
        rows = describe_names(missing, "row", "rows")
        differences.append(f"{sheet.path}: no sequence for {rows} (by column {sheet.id_column!r})")
    if unknown:
        differences.append(f"no row of {sheet.path} for {describe_names(unknown, 'repertoire', 'repertoires')}")
    if len(missing) == len(sheet.repertoire_ids):
        raise InputError("; ".join(differences) + ". Not one repertoire matches: is `id_column` right?")
    raise_or_warn_of_unmatched(dict.fromkeys(differences, "left out"), allow_missing)
