"""Read the challenge's folders of repertoires, make containers of them, and make the folder for the tables."""

from __future__ import annotations

import contextlib
import logging
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.metadata import Metadata, read_metadata
from deeprc.datasets.options import ReadingOptions
from deeprc.datasets.preprocessing import preprocess
from deeprc.datasets.readers.layout import InvalidValueError, parse_boolean
from deeprc.datasets.report import PreprocessingReport
from deeprc.errors import InputError, UnusableFiles, describe_missing_column, quote

__all__ = [
    "LABEL",
    "SHEET",
    "Folder",
    "convert",
    "find_locus",
    "find_original_gene_names",
    "open_output_folder",
    "read_folder",
]

SHEET = "metadata.csv"
LABEL = "label_positive"
_BAD_FILES_ADVICE = f"Repair files with faults, or delete their rows in {SHEET}"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Folder:
    """A folder of repertoires: the id and the file of each, and the labels and donors that are known.

    A file may be missing on the disk. `labels` and `donors` are by repertoire id.
    """

    path: Path
    name: str
    repertoire_ids: tuple[str, ...]
    files: tuple[Path, ...]
    labels: dict[str, bool]
    donors: dict[str, str]


def read_folder(path: str | os.PathLike[str], *, labelled: bool, group_by: str | None = None) -> Folder:
    """Return the repertoires of a folder.

    With `labelled`, these are the repertoires of `metadata.csv` that have a label and a file. Otherwise they are all
    repertoires: those of `metadata.csv`, in its order, or without this file the `*.tsv` files, in the order of their
    names. The column `group_by` of `metadata.csv` names the donors.

    Raises
    ------
    InputError
        If the folder does not exist or holds no repertoire, or `metadata.csv` cannot be used, names a file that is not
        in the folder, or none that exists.
    """
    folder, name = Path(path), os.path.basename(os.path.abspath(path))
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    sheet_path = folder / SHEET
    if not _is_there(sheet_path):
        if labelled:
            raise InputError(f"{folder}: has no {SHEET}, which training needs")
        tables = sorted(path for path in folder.glob("*.tsv") if not (path.is_dir() or path.name.startswith(".")))
        if not tables:
            raise InputError(f"{folder}: has neither *.tsv files nor {SHEET}")
        return Folder(folder, name, tuple(file.name.removesuffix(".tsv") for file in tables), tuple(tables), {}, {})
    sheet = read_metadata(sheet_path, id_column="repertoire_id")
    ids_and_files = zip(sheet.repertoire_ids, sheet.files, strict=True)
    files = {
        repertoire_id: _locate_file(sheet, folder, repertoire_id, file or f"{repertoire_id}.tsv")
        for repertoire_id, file in ids_and_files
    }
    missing = [str(file.name) for file in files.values() if not file.is_file()]
    if len(missing) == len(files):
        raise InputError(f"{sheet_path}: none of its {len(files)} files exists, for example {missing[0]}")
    if missing:
        _logger.warning("%s: %d of its files do not exist: %s", sheet_path, len(missing), ", ".join(missing[:10]))
    owners: dict[Path, str] = {}
    for repertoire_id, file in files.items():
        if owners.setdefault(file, repertoire_id) != repertoire_id:
            raise InputError(
                f"{sheet_path}: {file.name} belongs to two repertoires, {owners[file]!r} and {repertoire_id!r}"
            )
    labels = _read_labels(sheet) if labelled else {}
    if labelled:
        files = {
            repertoire_id: file for repertoire_id, file in files.items() if repertoire_id in labels and file.is_file()
        }
        if len({labels[repertoire_id] for repertoire_id in files}) < 2:
            raise InputError(f"{sheet_path}: column {LABEL!r}: expected both classes, found one or none")
    return Folder(folder, name, tuple(files), tuple(files.values()), labels, _read_donors(sheet, group_by))


def _is_there(path: Path) -> bool:
    """Return whether there is anything at a path, such as a link to nothing; what cannot be read is there, too."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    except OSError:
        return True  # reading it gives the reason
    return True


def _locate_file(sheet: Metadata, folder: Path, repertoire_id: str, name: str) -> Path:
    """Return the path of a file that `metadata.csv` names; it may come from strangers, so it names no other files."""
    absolute = Path(os.path.abspath(folder))
    path = Path(os.path.normpath(absolute / name))
    if not path.is_relative_to(absolute):
        raise InputError(
            f"{sheet.path}: repertoire {quote(repertoire_id)}: expected a file of this folder, found {quote(name)}"
        )
    return folder / path.relative_to(absolute)


def _read_donors(sheet: Metadata, group_by: str | None) -> dict[str, str]:
    """Return the known donors by repertoire id."""
    if group_by is None:
        return {}
    if group_by not in sheet.table:
        raise InputError(f"{sheet.path}: {describe_missing_column(group_by, sheet.table, 'for `group_by`')}")
    ids_and_donors = zip(sheet.repertoire_ids, sheet.table[group_by].tolist(), strict=True)
    return {repertoire_id: str(donor) for repertoire_id, donor in ids_and_donors if not pd.isna(donor)}


def _read_labels(sheet: Metadata) -> dict[str, bool]:
    """Return the known labels by repertoire id."""
    if LABEL not in sheet.table:
        raise InputError(f"{sheet.path}: {describe_missing_column(LABEL, sheet.table)}")
    labels: dict[str, bool] = {}
    unlabelled = []
    for repertoire_id, value in zip(sheet.repertoire_ids, sheet.table[LABEL].tolist(), strict=True):
        try:
            label = None if pd.isna(value) else parse_boolean(LABEL, str(value))
        except InvalidValueError as error:
            raise InputError(f"{sheet.path}: repertoire {repertoire_id!r}: {error}") from error
        if label is None:
            unlabelled.append(repertoire_id)
        else:
            labels[repertoire_id] = label
    if unlabelled:
        text = "%s: %d of its repertoires have no label and are left out: %s"
        _logger.warning(text, sheet.path, len(unlabelled), ", ".join(unlabelled[:10]))
    return labels


def convert(
    folder: Folder, working_folder: Path, *, locus: str | None, jobs: int
) -> tuple[RepertoireDataset, PreprocessingReport]:
    """Make a container of a folder's repertoires in `working_folder`; repertoires without a sequence are left out.

    The report is about the folder's repertoires only. If the folder has no labels, a fault of a single repertoire is no
    error.
    """
    rows = {name: str(file.absolute()) for name, file in zip(folder.repertoire_ids, folder.files, strict=True)}
    if not folder.labels:  # add a repertoire that can be read, so that there is always a container
        (working_folder / "any.tsv").write_text(
            "junction_aa\tduplicate_count\tv_call\tj_call\nCASSF\t1\t\t\n", encoding="utf-8"
        )
        rows[max(rows, key=len) + "_"] = str(working_folder / "any.tsv")
    table = pd.DataFrame({"repertoire_id": list(rows), "filename": list(rows.values())})
    table.to_csv(working_folder / "sheet.tsv", sep="\t", index=False)
    options = ReadingOptions(
        reader_format="airr", id_column="repertoire_id", split_by="none", locus=locus, allow_missing=True
    )
    try:
        report = preprocess(
            [file for file in rows.values() if Path(file).is_file()],
            working_folder / "sheet.tsv",
            working_folder / "cohort.h5",
            options=options,
            skip_bad_files=not folder.labels,
            jobs=jobs,
        )
    except UnusableFiles as error:
        raise error.replace_advice(_BAD_FILES_ADVICE) from error
    except InputError as error:
        prefix = f"{working_folder / 'sheet.tsv'}: "  # the user does not know this sheet
        if not str(error).startswith(prefix):
            raise
        raise InputError(f"{folder.path}: {str(error).removeprefix(prefix)}") from error
    listed = tuple(repertoire for repertoire in report.repertoires if repertoire.repertoire_id in folder.repertoire_ids)
    report = replace(report, repertoires=listed)  # without the one that was added
    X = open_dataset(working_folder / "cohort.h5")
    dropped = ", ".join(f"{reason} {n:,}" for reason, n in report.dropped.items() if n)
    _logger.info("%s: %s sequences kept%s", folder.name, f"{report.kept:,}", f"; dropped: {dropped}" if dropped else "")
    there = set(X.repertoire_ids)
    return X.select([name for name in folder.repertoire_ids if name in there]), report


def find_original_gene_names(report: PreprocessingReport) -> dict[str, dict[str, str]]:
    """Return, by field, the name in the files of each gene of the container; of several names, the most frequent."""
    names: dict[str, dict[str, str]] = {}
    for field in ("v_call", "j_call"):
        spellings = Counter(
            pair for repertoire in report.repertoires for pair in repertoire.genes.get(field, {}).items()
        )
        names[field] = {}
        for (original, stored), _ in spellings.most_common():
            if stored:
                names[field].setdefault(stored, original)
    return names


def find_locus(report: PreprocessingReport) -> str | None:
    """Return the chain of the training repertoires; None if none of their rows tells it."""
    loci = {repertoire.locus for repertoire in report.repertoires} | {
        name for repertoire in report.repertoires for name in repertoire.loci
    }
    known = sorted(name for name in loci if name)
    return report.cleaning.locus or (known[0] if known else None)


@contextlib.contextmanager
def open_output_folder(folder: Path) -> Iterator[None]:
    """Make a folder with its parents; if the block fails, delete those that were made and are still empty.

    Raises
    ------
    InputError
        If the folder cannot be made.
    """
    new = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    is_done = False
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:  # ValueError: the name contains NUL
            raise InputError(f"{folder}: cannot be written to: {getattr(error, 'strerror', None) or error}") from error
        yield
        is_done = True
    finally:
        if not is_done:
            for path in new:
                with contextlib.suppress(OSError, ValueError):  # a folder that is not empty, or was not made
                    path.rmdir()
