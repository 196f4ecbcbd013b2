"""Find repertoire files in the sources, and the row of the metadata sheet to which each belongs."""

from __future__ import annotations

import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deeprc.datasets.readers.text import PACKED
from deeprc.datasets.unmatched import EXCEL_ENDINGS, describe_excel_files, describe_unsearched_files
from deeprc.errors import InputError
from deeprc.files import check_regular_file

__all__ = [
    "SourceFiles",
    "find_excel_files",
    "find_files",
    "find_unsearched_files",
    "list_stems",
    "match_files",
    "name_files",
]

_ENDINGS = (*PACKED, ".tsv", ".txt", ".csv", ".clonotypes")
_SEARCHED = (".tsv", ".txt", ".csv")


@dataclass(frozen=True)
class SourceFiles:
    """The files of the sources.

    Attributes
    ----------
    tables
        Files given by name, and in folders `*.tsv`, `*.txt` and `*.csv`, also packed.
    others
        All other files of the folders; the sheet may name them.
    """

    tables: tuple[Path, ...]
    others: tuple[Path, ...] = ()

    def make_absolute(self) -> SourceFiles:
        """Return the same files by their absolute paths."""
        return SourceFiles(*(tuple(path.absolute() for path in paths) for paths in (self.tables, self.others)))

    def select_named(self, names: Iterable[str]) -> list[Path]:
        """Return the tables, and those of the other files that have one of these names; folders are ignored.

        Raises
        ------
        InputError
            If there is no such file.
        """
        requested = {_get_base_name(name) for name in names}
        selected = [*self.tables, *(path for path in self.others if path.name in requested)]
        if not selected:
            found = describe_excel_files(self.others) or describe_unsearched_files(self.others)
            folders = ", ".join(dict.fromkeys(str(path.parent) for path in self.others[:3]))
            raise InputError(
                f"{folders}: no file is a *.tsv, *.txt or *.csv file (or .gz, .bz2, .xz, "
                ".zip of these), and the sheet's file column names none of them"
                f"{f'; {found}' if found else ''}"
            )
        return selected


def find_files(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], *, exclude: Path | None = None
) -> SourceFiles:
    """List the files of the sources: every source that is a file, and all files in folders.

    Folders are searched with all folders in them; hidden files and `exclude`, the metadata sheet, are left out. HDF5
    files are given by name. A single source need not be in a list.

    Raises
    ------
    InputError
        If a source does not exist or is neither a folder nor a regular file, or there is no file.
    """
    tables: dict[str, Path] = {}  # by their real paths; unlike Path.resolve, realpath also accepts links in a circle
    others: dict[str, Path] = {}
    for source in map(Path, [sources] if isinstance(sources, str | os.PathLike) else sources):
        if source.is_dir():
            files = [path for path in sorted(source.rglob("*")) if not _is_hidden(path, source) and path.is_file()]
            if not files:
                raise InputError(
                    f"{source}: no *.tsv, *.txt or *.csv file (or .gz, .bz2, .xz, .zip of these) in this folder"
                )
            for path in files:
                (tables if _is_table(path.name) else others).setdefault(os.path.realpath(path), path)
        elif source.exists():
            check_regular_file(source, expected="a repertoire file or a folder")
            tables.setdefault(os.path.realpath(source), source)
        else:
            raise InputError(f"{source}: no such file or folder")
    if exclude is not None:
        tables.pop(os.path.realpath(exclude), None)
        others.pop(os.path.realpath(exclude), None)
    if not tables and not others:
        raise InputError("no repertoire files: give the files or the folders that hold them")
    return SourceFiles(tuple(tables.values()), tuple(path for key, path in others.items() if key not in tables))


def _is_hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _is_table(name: str) -> bool:
    name = name.lower()
    unpacked = next((name.removesuffix(ending) for ending in PACKED if name.endswith(ending)), name)
    return unpacked.endswith(_SEARCHED)


def name_files(files: Iterable[Path]) -> dict[Path, str]:
    """Return the name of each file for reports: its path below the deepest folder that has all of them, with slashes.

    So files of one folder have their bare names, and files of the same name in several folders have different ones.
    """
    paths = {file: os.path.abspath(file) for file in files}
    try:
        folder = os.path.commonpath([os.path.dirname(path) for path in paths.values()])
    except ValueError:  # no files; or, on Windows, files of several drives
        return {file: file.name for file in paths}
    return {file: Path(os.path.relpath(path, folder)).as_posix() for file, path in paths.items()}


def _get_base_name(name: str) -> str:
    return re.split(r"[/\\]", name)[-1]


def list_stems(name: str) -> list[str]:
    """Return a file's name without folders, then without one known ending after the other.

    Only known endings are cut: `HD.01.tsv.gz` gives `HD.01.tsv.gz`, `HD.01.tsv`, `HD.01`.
    """
    stem = unicodedata.normalize("NFC", _get_base_name(name))  # macOS writes accents as letters of their own
    names = [stem]
    while stem := next((stem[: -len(end)] for end in _ENDINGS if stem.lower().endswith(end)), ""):
        names.append(stem)
    return names


def find_excel_files(files: Iterable[Path], names: Iterable[str]) -> list[Path]:
    """Return the Excel files that have one of these names, apart from endings."""
    stems = {stem for name in names for stem in list_stems(_cut_excel_ending(name))}
    excel = (file for file in files if file.suffix.lower() in EXCEL_ENDINGS)
    return [file for file in excel if not stems.isdisjoint(list_stems(_cut_excel_ending(file.name)))]


def find_unsearched_files(files: Iterable[Path], names: Iterable[str]) -> list[Path]:
    """Return the files, other than Excel's, that have one of these names apart from endings: `HD.01.tsv.zst`."""
    stems = {stem for name in names for stem in list_stems(name)}
    others = (file for file in files if file.suffix.lower() not in EXCEL_ENDINGS)
    return [file for file in others if not stems.isdisjoint((*list_stems(file.name), *list_stems(file.stem)))]


def _cut_excel_ending(name: str) -> str:
    stem, dot, ending = name.rpartition(".")
    return stem if dot + ending.lower() in EXCEL_ENDINGS else name


def match_files(
    repertoire_ids: Sequence[str], file_names: Sequence[str], files: Sequence[Path]
) -> tuple[list[Path | None], list[Path]]:
    """Find the file of each row: by the file name that the sheet gives, otherwise by the id.

    The match with the fewest cut endings wins. Of files with the same name in several folders, the one wins whose
    folders agree with the sheet's.

    Parameters
    ----------
    repertoire_ids, file_names
        Id of each row, and the file that the sheet names for it, or "".
    files
        Files that were found.

    Returns
    -------
    matched
        File of each row, or None.
    unmatched
        Files that belong to no row.

    Raises
    ------
    InputError
        If two files match one row, or one file matches two rows.
    """
    index: dict[str, list[tuple[int, Path]]] = defaultdict(list)
    for file in files:
        for cut, stem in enumerate(list_stems(file.name)):
            index[stem].append((cut, file))
    matched: list[Path | None] = []
    owner: dict[Path, str] = {}
    for repertoire_id, name in zip(repertoire_ids, file_names, strict=True):
        best = _find_best_file(name, repertoire_id, index) if name else None
        best = best or _find_best_file(repertoire_id, repertoire_id, index)
        if best is not None and best in owner:
            raise InputError(f"{best}: belongs to two repertoires, {owner[best]!r} and {repertoire_id!r}")
        if best is not None:
            owner[best] = repertoire_id
        matched.append(best)
    unmatched = [file for file in files if file not in owner]
    _check_equal_names(owner, unmatched)
    return matched, unmatched


def _check_equal_names(owner: Mapping[Path, str], unmatched: Iterable[Path]) -> None:
    """Refuse to choose between files like `a.tsv` and `a.tsv.gz` that lie side by side."""
    plain = {(file.parent, list_stems(file.name)[-1]): file for file in owner}
    for file in unmatched:
        twin = plain.get((file.parent, list_stems(file.name)[-1]))
        if twin is not None:
            raise InputError(f"two files match the repertoire {owner[twin]!r}: {twin} and {file}")


def _find_best_file(key: str, repertoire_id: str, index: dict[str, list[tuple[int, Path]]]) -> Path | None:
    """Return the file whose name agrees best with a key, a file name or an id; None if none agrees."""
    ranked = sorted(
        (cut_from_key + cut_from_file, -_count_common_folders(key, file), file)
        for cut_from_key, stem in enumerate(list_stems(key))
        for cut_from_file, file in index.get(stem, ())
    )
    if not ranked:
        return None
    rivals = {file for *rank, file in ranked if rank == list(ranked[0][:2])}
    if len(rivals) > 1:
        names = " and ".join(str(file) for file in sorted(rivals))
        raise InputError(f"two files match the repertoire {repertoire_id!r}: {names}")
    return ranked[0][2]


def _count_common_folders(key: str, file: Path) -> int:
    """Return the number of folders before the file's name that the sheet's path and the file's have in common."""
    wanted_folders, folders = re.split(r"[/\\]", key)[-2::-1], file.parts[-2::-1]
    agree = [a == b for a, b in zip(wanted_folders, folders, strict=False)]
    return next((n for n, same in enumerate(agree) if not same), len(agree))
