"""The check of every container when it is opened, and the note that a container has passed it.

Letters: R residues, N sequences, B repertoires.
"""

from __future__ import annotations

import logging
from collections.abc import Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.alphabet import AMINO_ACIDS, MAX_LENGTH
from deeprc.datasets.cache_folder import read_cached_json, write_cached_json
from deeprc.datasets.hdf5 import BlockCheck
from deeprc.errors import InputError
from deeprc.files import FileStamp
from deeprc.versions import package_version

if TYPE_CHECKING:
    from deeprc.datasets.container import Container

__all__ = [
    "find_changed_container",
    "is_checked",
    "list_checked",
    "make_content_checks",
    "remember_checked",
    "remember_written",
]

_WORTH_REMEMBERING = 1 << 26
"""Size in bytes from which a note of the check is kept; a smaller container is checked again in a moment."""

_MAX_GENES = 1 << 16
"""Number of different codes of 16 bits: a container has no more names of a gene."""

_NOTE = "checked.json"

_CHECKED: set[tuple[Path, FileStamp]] = set()

_logger = logging.getLogger(__name__)


def make_content_checks(container: Container) -> dict[str, BlockCheck]:
    """Check that a container's arrays fit together; return the checks that the values of large datasets still need.

    No value leads outside of another array if every check has been called with all blocks of its dataset, in order. So
    a large container is read once for these checks and for its checksum.

    Raises
    ------
    ValueError
        If the arrays do not fit together; the message names the dataset, what was expected and what was found. The
        checks raise it, too.
    """
    sequences = container.sequences
    n, n_repertoires = len(sequences.offsets) - 1, len(container.repertoire_ids)
    _check_number("/repertoire_offsets", "values", n_repertoires + 1, len(container.repertoire_offsets))
    if n < 0:
        raise ValueError("/sequence_offsets: expected at least one value, found none")
    _check_number("/metadata", "rows", n_repertoires, len(container.metadata))
    _check_ids(container.repertoire_ids)
    _make_offsets_check("/repertoire_offsets", container.repertoire_offsets, n, smallest=0)(
        container.repertoire_offsets
    )
    n_residues = len(sequences.residues)
    if n_residues > MAX_LENGTH * n:
        raise ValueError(f"/residues: expected at most {MAX_LENGTH * n:,} in {n:,} sequences, found {n_residues:,}")
    checks = {
        "residues": _make_range_check("/residues", 0, len(AMINO_ACIDS) - 1),
        "sequence_offsets": _make_offsets_check(
            "/sequence_offsets", sequences.offsets, n_residues, smallest=1, largest=MAX_LENGTH
        ),
        "counts": _make_range_check("/counts", 1, None),
    }
    _check_number("/counts", "values", n, len(sequences.counts))
    for name, genes in sequences.genes.items():
        _check_number(f"/{name}", "values", n, len(genes.codes))
        checks[name] = _make_range_check(f"/{name}", 0, len(genes.vocabulary) - 1)
        if len(genes.vocabulary) > _MAX_GENES:
            raise ValueError(f"/{name}: expected at most {_MAX_GENES:,} names, found {len(genes.vocabulary):,}")
        if len(set(genes.vocabulary)) != len(genes.vocabulary):
            raise ValueError(f"/{name}: expected a vocabulary of different names, found one twice")
    if sequences.witness is not None:
        _check_number("/witness", "values", n, len(sequences.witness))
        if container.simulation is not None:
            checks["witness"] = _make_range_check("/witness", 0, len(container.simulation["signals"]))
    return checks


def _check_number(name: str, unit: str, expected: int, found: int) -> None:
    if found != expected:
        raise ValueError(f"{name}: expected {expected:,} {unit}, found {found:,}")


def _check_ids(ids: NDArray[np.object_]) -> None:
    seen: set[str] = set()
    for repertoire_id in ids:
        if not repertoire_id:
            raise ValueError("/repertoire_ids: expected a text, found an empty one")
        if repertoire_id in seen:
            raise ValueError(f"/repertoire_ids: expected different ids, found {repertoire_id!r:.60} twice")
        seen.add(repertoire_id)


def _make_offsets_check(
    name: str, offsets: NDArray[np.int64], total: int, *, smallest: int, largest: int | None = None
) -> BlockCheck:
    """Return a check that offsets go from 0 to a total, in steps whose size is between two limits."""
    if offsets[0] != 0 or offsets[-1] != total:
        raise ValueError(f"{name}: expected offsets from 0 to {total:,}, found {offsets[0]:,} to {offsets[-1]:,}")
    limits = f"at least {smallest}" + ("" if largest is None else f" and at most {largest}")
    n_seen, last = 0, np.zeros(0, np.int64)  # values of the blocks before, and the last of them, (0 or 1,)

    def check(block: NDArray[np.int64]) -> None:
        nonlocal n_seen, last
        if block.min() < 0 or block.max() > total:  # also keeps the differences from overflowing
            raise ValueError(f"{name}: expected offsets from 0 to {total:,}, found {block.min():,} to {block.max():,}")
        for steps, first in ((block[:1] - last, n_seen), (np.diff(block), n_seen + 1)):
            if len(steps) and (steps.min() < smallest or (largest is not None and steps.max() > largest)):
                at = int(np.argmax((steps < smallest) | (False if largest is None else steps > largest)))
                raise ValueError(f"{name}: expected steps of {limits}, found {steps[at]:,} after value {first + at:,}")
        n_seen, last = n_seen + len(block), block[-1:]

    return check


def _make_range_check(name: str, lowest: int, highest: int | None) -> BlockCheck:
    """Return a check that no value of unsigned integers is below `lowest` or above `highest`."""

    def check(block: NDArray[Any]) -> None:
        if lowest > 0 and (found := int(block.min())) < lowest:
            raise ValueError(f"{name}: expected values of at least {lowest}, found {found}")
        if highest is not None and (found := int(block.max())) > highest:
            raise ValueError(f"{name}: expected values of at most {highest}, found {found}")

    return check


def is_checked(path: Path, stamp: FileStamp) -> bool:
    """Return whether this very file was checked before, or written by this process.

    A file is known by its size, its inode and its times of change. The system sets the last of them, and nobody can
    choose it, so a note that came with a container from elsewhere is not believed.
    """
    if (path, stamp) in _CHECKED:
        return True
    return bool(read_cached_json(path, _NOTE) == _make_note(stamp))


def remember_written(path: Path) -> None:
    """Remember, in this process, that a container needs no check, because this process has written it."""
    _CHECKED.add((path.absolute(), FileStamp.of(path)))


def remember_checked(path: Path, stamp: FileStamp) -> None:
    """Remember that a container was checked; a large one also gets a note beside it, if that can be written."""
    _CHECKED.add((path, stamp))
    if stamp.size < _WORTH_REMEMBERING:
        return
    try:
        write_cached_json(path, _NOTE, _make_note(stamp))
    except (OSError, InputError) as error:
        _logger.debug("%s: will be checked again, because no note can be written beside it: %s", path, error)


def list_checked() -> frozenset[tuple[Path, FileStamp]]:
    """Return the containers that this process has checked or written, with their stamps of then."""
    return frozenset(_CHECKED)


def find_changed_container(earlier: Set[tuple[Path, FileStamp]]) -> Path | None:
    """Return a container that was changed in place since this process checked it, or None.

    The memory maps of such a container show the change. A file that was replaced is none: maps keep the old one.

    Parameters
    ----------
    earlier
        Containers that are left out, see `list_checked`.
    """
    for path, stamp in _CHECKED - earlier:
        try:
            now = FileStamp.of(path)
        except OSError:
            continue
        is_same_file = now.inode == stamp.inode and (path, now) not in _CHECKED
        if is_same_file and (now.size, now.changed) != (stamp.size, stamp.changed):
            return path
    return None


def _make_note(stamp: FileStamp) -> dict[str, Any]:
    """Return the content of the note that says which file was checked, by which version."""
    return {**stamp._asdict(), "deeprc": package_version("deeprc")}
