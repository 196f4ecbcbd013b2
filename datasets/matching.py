"""Repertoire files: where they lie in the sources, and which row of the metadata sheet each belongs to."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from deeprc.datasets.readers.text import PACKED
from deeprc.errors import InputError

__all__ = ["find_files", "match_files", "stems"]

_ENDINGS = (*PACKED, ".tsv", ".txt", ".csv", ".clonotypes")
_SEARCHED = (".tsv", ".txt", ".csv")


def find_files(sources: Iterable[str | os.PathLike[str]], *, exclude: Path | None = None) -> list[Path]:
    """List the repertoire files: every source that is a file, and in folders the tables.

    Tables are `*.tsv`, `*.txt` and `*.csv`, also with `.gz`, `.bz2`, `.xz` or `.zip`. Folders are searched with all
    folders in them; hidden files and `exclude`, the metadata sheet, are left out. HDF5 files are given by name.

    Raises
    ------
    InputError
        If a source does not exist, or a folder holds no such file.
    """
    found: dict[Path, Path] = {}
    for source in map(Path, sources):
        if source.is_dir():
            files = sorted(path for path in source.rglob("*") if _is_table(path, source))
            if not files:
                raise InputError(
                    f"{source}: no *.tsv, *.txt or *.csv file (or .gz, .bz2, .xz, .zip of these) in this folder"
                )
        elif source.exists():
            files = [source]
        else:
            raise InputError(f"{source}: no such file or folder")
        for path in files:
            found.setdefault(path.resolve(), path)
    if exclude is not None:
        found.pop(exclude.resolve(), None)
    if not found:
        raise InputError("no repertoire files: give the files or the folders that hold them")
    return list(found.values())


def _is_table(path: Path, folder: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
    name = path.name.lower()
    unpacked = next((name.removesuffix(ending) for ending in PACKED if name.endswith(ending)), name)
    return not hidden and unpacked.endswith(_SEARCHED) and path.is_file()


def stems(name: str) -> list[str]:
    """Return a file's name without folders, then without one known ending after the other.

    Only known endings are cut: `HD.01.tsv.gz` gives `HD.01.tsv.gz`, `HD.01.tsv`, `HD.01`.
    """
    stem = re.split(r"[/\\]", name)[-1]
    names = [stem]
    while stem := next((stem[: -len(end)] for end in _ENDINGS if stem.lower().endswith(end)), ""):
        names.append(stem)
    return names


def match_files(
    repertoire_ids: Sequence[str], named: Sequence[str], files: Sequence[Path]
) -> tuple[list[Path | None], list[Path]]:
    """Find each row's file: by the file name that the sheet gives, else by the id.

    The match that needs the fewest endings cut wins; of files with the same name in several folders, the one
    whose folders agree with the sheet's.

    Parameters
    ----------
    repertoire_ids, named
        Each row's id, and the file that the sheet names for it, or "".
    files
        The files that there are.

    Returns
    -------
    matched
        Each row's file, or None.
    left
        The files that belong to no row.

    Raises
    ------
    InputError
        If two files match one row, or one file matches two rows.
    """
    index: dict[str, list[tuple[int, Path]]] = defaultdict(list)
    for file in files:
        for cut, stem in enumerate(stems(file.name)):
            index[stem].append((cut, file))
    matched: list[Path | None] = []
    owner: dict[Path, str] = {}
    for repertoire_id, name in zip(repertoire_ids, named, strict=True):
        best = _best(name, repertoire_id, index) if name else None
        best = best or _best(repertoire_id, repertoire_id, index)
        if best is not None and best in owner:
            raise InputError(f"{best}: belongs to two repertoires, {owner[best]!r} and {repertoire_id!r}")
        if best is not None:
            owner[best] = repertoire_id
        matched.append(best)
    left = [file for file in files if file not in owner]
    _check_twins(owner, left)
    return matched, left


def _check_twins(owner: Mapping[Path, str], left: Iterable[Path]) -> None:
    """Refuse to choose between files like `a.tsv` and `a.tsv.gz` that lie side by side."""
    plain = {(file.parent, stems(file.name)[-1]): file for file in owner}
    for file in left:
        twin = plain.get((file.parent, stems(file.name)[-1]))
        if twin is not None:
            raise InputError(f"two files match the repertoire {owner[twin]!r}: {twin} and {file}")


def _best(key: str, repertoire_id: str, index: dict[str, list[tuple[int, Path]]]) -> Path | None:
    ranked = sorted(
        (cut_from_key + cut_from_file, -_common_folders(key, file), file)
        for cut_from_key, stem in enumerate(stems(key))
        for cut_from_file, file in index.get(stem, ())
    )
    if not ranked:
        return None
    rivals = {file for *rank, file in ranked if rank == list(ranked[0][:2])}
    if len(rivals) > 1:
        names = " and ".join(str(file) for file in sorted(rivals))
        raise InputError(f"two files match the repertoire {repertoire_id!r}: {names}")
    return ranked[0][2]


def _common_folders(key: str, file: Path) -> int:
    """Count the folders before the file's name that the sheet's path and the file's have in common."""
    wanted, found = re.split(r"[/\\]", key)[-2::-1], file.parts[-2::-1]
    agree = [a == b for a, b in zip(wanted, found, strict=False)]
    return next((n for n, same in enumerate(agree) if not same), len(agree))
