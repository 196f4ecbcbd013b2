"""A linked container: it holds no sequences, but names the containers of its parts, which are read where they are.

`deeprc join --link` writes it (`linked_writer`). It holds the metadata of all repertoires, and the path, the size and
the checksum of each part. The parts are opened and checked as any container.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.alphabet import compute_offsets, invert_order
from deeprc.datasets.categorical import Categorical, extend_vocabulary
from deeprc.datasets.checksum import compute_checksum
from deeprc.datasets.container import Container
from deeprc.datasets.container_header import (
    EXPECTED,
    LINKED_VERSION,
    Texts,
    get_dataset,
    read_header,
    read_version,
)
from deeprc.datasets.hdf5 import (
    convert_hdf5_errors,
    list_members,
    map_values,
    open_hdf5,
    read_text_attribute,
)
from deeprc.datasets.parts import Part, SingleStoreContainer
from deeprc.datasets.sequences import GENE_FIELDS, SequenceArrays, Sequences
from deeprc.errors import InputError, quote
from deeprc.files import FileStamp, allow_open_files, check_regular_file

__all__ = [
    "MAX_PARTS",
    "LinkedContainer",
    "LinkedSequences",
    "SequenceContainer",
    "StoredContainer",
    "is_plain",
    "join_vocabularies",
    "open_container",
    "open_parts",
]

MAX_PARTS = 1000
"""Parts of a container: each takes some six memory maps, of which a process of Linux may have 65,530."""

_MAX_PATH = 4096
_FILES_OF_PART = 6
"""Files that a part keeps open: one for each memory map."""


class LinkedContainer:
    """An open linked container: it names parts, which hold the sequences.

    It has all attributes of the container that `join` would copy from the parts, except for `sequences`, because these
    lie in several files: see `parts` and `take`.

    Parameters
    ----------
    path
        A file written by `write_linked`.

    Attributes
    ----------
    stores
        The opened containers of the parts. Their sequences all have the same columns.
    parts
        The same containers, each with its first sequence.
    gene_names
        The joint vocabulary of each gene, by field.

    Raises
    ------
    InputError
        If the file or a part is missing, damaged, or not what the file says it is; the message names the file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        with convert_hdf5_errors(path), open_hdf5(Path(path), expected=EXPECTED) as file:
            self.stamp = FileStamp.of(self.path)
            if read_version(file, self.path) != LINKED_VERSION:
                raise InputError(f"{self.path}: holds its sequences itself; expected a container that names others")
            self.checksum = read_text_attribute(file, "checksum")
            if compute_checksum(file, self.path) != self.checksum:
                raise InputError(f"{self.path}: the container is damaged: its content is not what its checksum says")
            self._read_file(file)
        self._give_parts_same_columns()
        self._join_genes()
        self._number_parts()

    def __reduce__(self) -> tuple[type[LinkedContainer], tuple[Path]]:
        """Pickle as the path: a worker process maps the files by itself."""
        return LinkedContainer, (self.path,)

    def _read_file(self, file: h5py.File) -> None:
        """Set the attributes from the content of the file, and open its parts."""
        members, texts = list_members(file), Texts()
        self.version = LINKED_VERSION
        origin, self.repertoire_ids, self.repertoire_offsets, self.metadata = read_header(
            file, members, texts, self.path
        )
        self.created_by, self.source, self.preprocessing, self.simulation = origin
        if len(self.metadata) != len(self.repertoire_ids):
            raise ValueError(f"/metadata: expected {len(self.repertoire_ids):,} rows, found {len(self.metadata):,}")
        if not isinstance(group := members.get("parts"), h5py.Group):
            raise ValueError("no group 'parts'")
        columns = list_members(group)
        names, checksums = (texts.read_dataset(get_dataset(columns, name)) for name in ("path", "checksum"))
        sizes = map_values(self.path, get_dataset(columns, "size"), np.int64).tolist()
        if not 1 <= len(names) <= MAX_PARTS or not len(names) == len(checksums) == len(sizes):
            raise ValueError(f"/parts: expected 1 to {MAX_PARTS:,} paths with as many checksums and sizes")
        self.stores = _open_parts(self.path, names, checksums, sizes)
        self._check_parts()

    def _check_parts(self) -> None:
        """Raise ValueError unless the parts have the repertoires of which this file has the metadata."""
        ids = [str(name) for store in self.stores for name in store.repertoire_ids]
        offsets = compute_offsets(np.concatenate([np.diff(store.repertoire_offsets) for store in self.stores]))
        _check_same("/repertoire_ids", "the repertoires", ids, self.repertoire_ids.tolist())
        if len(set(ids)) != len(ids):
            raise ValueError("/repertoire_ids: expected different ids, found one twice")
        _check_same("/repertoire_offsets", "those", offsets.tolist(), self.repertoire_offsets.tolist())
        if self.simulation is not None:  # the parts' witnesses are checked with the parts' own signals
            for store in self.stores:
                if store.simulation is None or store.simulation["signals"] != self.simulation["signals"]:
                    raise ValueError(f"/: attribute 'simulation': expected the signals of {store.path}, found others")

    def _give_parts_same_columns(self) -> None:
        """Give all parts the same columns: where a part lacks a gene that others have, it is unknown.

        Witnesses of parts are left out if this file has no recipe that explains them.
        """
        fields = [name for name in GENE_FIELDS if any(name in store.sequences.genes for store in self.stores)]
        self.has_witness = self.simulation is not None and any(
            store.sequences.witness is not None for store in self.stores
        )
        for store in self.stores:
            sequences, n = store.sequences, len(store.sequences)
            genes = {name: sequences.genes.get(name, Categorical.unknown(n)) for name in fields}
            witness = sequences.witness if self.has_witness else None
            if witness is None and self.has_witness:
                witness = np.zeros(n, np.uint8)
            store.sequences = replace(sequences.with_genes(genes), witness=witness)

    def _number_parts(self) -> None:
        """Set `parts`, and the first repertoire and sequence of each, counted through all parts."""
        n_repertoires = np.array([len(store.repertoire_ids) for store in self.stores])
        self._first_repertoire = compute_offsets(n_repertoires).tolist()
        self._first_sequence = compute_offsets(np.array([len(store.sequences) for store in self.stores]))
        self.parts = tuple(map(Part, self.stores, self._first_sequence[:-1].tolist()))

    def _join_genes(self) -> None:
        """Set the joint vocabulary of each gene, and the codes that each part's names have in it.

        The vocabulary of each part gets the names of the others behind its own, so no code of the part changes.
        """
        self.gene_names: dict[str, tuple[str, ...]] = {}
        self._joint_codes: dict[str, list[NDArray[np.uint16]]] = {}  # by field, of the names of each part
        for name in self.stores[0].sequences.genes:
            self.gene_names[name], self._joint_codes[name] = join_vocabularies(name, self.stores)
        for store in self.stores:
            genes = {name: _extend_names(calls, self.gene_names[name]) for name, calls in store.sequences.genes.items()}
            store.sequences = store.sequences.with_genes(genes)

    @property
    def gene_fields(self) -> list[str]:
        """Those of `v_call` and `j_call` that the sequences of any part have."""
        return list(self.gene_names)

    @property
    def part_stamps(self) -> list[list[int]]:
        """The stamps of the parts' files."""
        return [list(store.stamp) for store in self.stores]

    def find_part(self, repertoire: int) -> int:
        """Return the index of the part in which a repertoire lies."""
        return bisect_right(self._first_repertoire, repertoire, hi=len(self.parts)) - 1

    def take_genes(self, part: int, rows: slice | NDArray[np.int64]) -> dict[str, Categorical]:
        """Return the genes of some sequences of a part, by field, with the vocabularies `gene_names`."""
        genes = self.stores[part].sequences.genes
        return {
            name: Categorical(self.map_to_joint_codes(part, name, genes[name].codes[rows]), names)
            for name, names in self.gene_names.items()
        }

    def map_to_joint_codes(self, part: int, field: str, codes: NDArray[np.integer[Any]]) -> NDArray[np.integer[Any]]:
        """Return the codes that genes of a part have in `gene_names`, (n,), from those that they have in the part."""
        return np.asarray(self._joint_codes[field][part][codes])

    def get_arrays_at(
        self, rows: NDArray[np.int64], gene_fields: Collection[str]
    ) -> tuple[SequenceArrays, NDArray[np.int64]]:
        """Return copies of the sequences at `rows`, (n,), and the indices 0 to n - 1; see `CohortContainer`."""
        return self.take(rows).arrays(gene_fields), np.arange(len(rows))

    def arrays(self, gene_fields: Collection[str]) -> LinkedSequences:
        """Return all sequences as arrays for compiled code, with the codes of the genes that `gene_fields` names."""
        return LinkedSequences(self, gene_fields)

    def choose_max_hashes(self, gene_fields: Collection[str], minimum: int) -> int:  # noqa: ARG002 (of any genes)
        """Return how many hashes should be in memory at once; see `CohortContainer`."""
        return minimum

    def take(self, rows: NDArray[np.int64]) -> Sequences:
        """Return some of the sequences, at rows (n,) counted through all parts, in this order."""
        part_of = np.searchsorted(self._first_sequence, rows, side="right") - 1
        if len(rows) and not 0 <= rows.min() <= rows.max() < self._first_sequence[-1]:
            raise IndexError(f"expected sequences from 0 to {self._first_sequence[-1] - 1}")
        order = np.argsort(part_of, kind="stable")
        bounds = np.searchsorted(part_of[order], np.arange(len(self.stores) + 1)).tolist()
        taken = []  # the sequences of each part
        for part, store in enumerate(self.stores):
            rows_in_part = rows[order[bounds[part] : bounds[part + 1]]] - self._first_sequence[part]
            taken.append(store.sequences.take(rows_in_part).with_genes(self.take_genes(part, rows_in_part)))
        joined = Sequences.concatenate([sequences.with_genes({}) for sequences in taken])
        joined = joined.with_genes(
            {  # not by `Sequences.concatenate`, which merges vocabularies: all parts have one
                name: Categorical(np.concatenate([sequences.genes[name].codes for sequences in taken]), names)
                for name, names in self.gene_names.items()
            }
        )
        if np.array_equal(order, np.arange(len(order))):
            return joined
        return joined.take(invert_order(order))


class LinkedSequences:
    """The sequences of a linked container, with the genes of the clone definition, as `SequencesInParts`.

    Parameters
    ----------
    container
        The container.
    gene_fields
        The genes of the clone definition.
    """

    def __init__(self, container: LinkedContainer, gene_fields: Collection[str]) -> None:
        self._container, self._fields = container, gene_fields
        starts = [part.first_sequence for part in container.parts]
        self.bounds: Sequence[int] = [*starts, int(container.repertoire_offsets[-1])]

    def view(self, start: int, stop: int) -> SequenceArrays:
        """Return the sequences from `start` to `stop`, counted through all parts, which must lie in one of them."""
        index = bisect_right(self.bounds, start, hi=len(self.bounds) - 1) - 1
        part = self._container.parts[index]
        rows = slice(start - part.first_sequence, stop - part.first_sequence)
        sequences = part.store.sequences
        genes = self._container.take_genes(index, rows) if self._fields else {}
        v, j = (genes[name].codes if name in self._fields else np.zeros(0, np.uint16) for name in GENE_FIELDS)
        return SequenceArrays(
            np.asarray(sequences.residues), np.asarray(sequences.offsets[rows.start : rows.stop + 1]), v, j
        )

    def take(self, rows: NDArray[np.int64]) -> SequenceArrays:
        """Return some of the sequences, at rows (n,) counted through all parts, copied."""
        return self._container.take(rows).arrays(self._fields)


StoredContainer = Container | LinkedContainer
"""A container on the disk: one file that holds its sequences, or one that names the files that do."""

SequenceContainer = SingleStoreContainer | LinkedContainer
"""A container that holds its sequences, on the disk or in memory; that of a simulated cohort does not."""


def open_container(path: str | os.PathLike[str]) -> StoredContainer:
    """Open a container of either kind.

    Raises
    ------
    InputError
        If it, or a part that it names, cannot be used.
    """
    with convert_hdf5_errors(path), open_hdf5(Path(path), expected=EXPECTED) as file:
        linked = read_version(file, Path(path)) == LINKED_VERSION
    return LinkedContainer(path) if linked else Container(path)


def _check_same(name: str, content: str, expected: Sequence[str | int], found: Sequence[str | int]) -> None:
    """Raise ValueError, which names the first difference, unless values of a file equal those of its parts."""
    first = next((pair for pair in zip(expected, found, strict=False) if pair[0] != pair[1]), None)
    if first is not None:
        difference = ", found ".join(quote(value) if isinstance(value, str) else f"{value:,}" for value in first)
    elif len(expected) != len(found):
        difference = f"{len(expected):,} values, found {len(found):,}"
    else:
        return
    raise ValueError(f"{name}: expected {content} of the parts, part after part: {difference}")


def _extend_names(calls: Categorical, names: Sequence[str]) -> Categorical:
    """Return the same calls with a vocabulary that holds these names, too."""
    return Categorical(calls.codes, tuple(dict.fromkeys((*calls.vocabulary, *names))))


def join_vocabularies(field: str, stores: Sequence[Container]) -> tuple[tuple[str, ...], list[NDArray[np.uint16]]]:
    """Return the names of a gene in all parts together, and the code of each part's names among them.

    Raises
    ------
    InputError
        If there are more names than codes.
    """
    code_of, tables = {"": 0}, []
    for store in stores:
        calls = store.sequences.genes.get(field)
        tables.append(extend_vocabulary(code_of, () if calls is None else calls.vocabulary).astype(np.uint16))
        if len(code_of) > np.iinfo(np.uint16).max:
            limit = np.iinfo(np.uint16).max
            raise InputError(
                f"{store.path}: {field}: more than {limit:,} different gene names with the parts before it"
            )
    return tuple(code_of), tables


def _open_parts(link: Path, names: Sequence[str], checksums: Sequence[str], sizes: Sequence[int]) -> list[Container]:
    """Open the parts that a container names, each of which must be the file that was linked."""
    folder = Path(os.path.realpath(link)).parent
    paths = [_locate_part(link, folder, name) for name in names]
    if len(set(paths)) != len(paths):
        raise ValueError("/parts: expected different files, found one twice")
    allow_open_files(_FILES_OF_PART * len(paths), str(link))
    stores = []
    for path, checksum, size in zip(paths, checksums, sizes, strict=True):
        check_regular_file(path, expected=f"a part of {link}")
        if (found := path.stat().st_size) != size:
            raise _make_changed_error(path, link, f"{size:,} bytes, found {found:,}")
        store = Container(path)
        if store.checksum != checksum:
            raise _make_changed_error(
                path, link, f"the checksum {quote(checksum)}, found {quote(store.checksum or 'none')}"
            )
        stores.append(store)
    return stores


def _make_changed_error(path: Path, link: Path, difference: str) -> InputError:
    return InputError(
        f"{path}: is not the part that {link} was made of: expected {difference}; run `deeprc join --link` again"
    )


def open_parts(paths: Sequence[Path], what: str) -> list[Container]:
    """Open several containers, and raise the process's limit of open files if they are more than it allows.

    Raises
    ------
    InputError
        If one cannot be used; or if the system does not allow so many open files: this message begins with `what`.
    """
    allow_open_files(_FILES_OF_PART * len(paths), what)
    return [Container(path) for path in paths]


def is_plain(name: str) -> bool:
    """Return whether a path leads below a folder, and says the same on all systems: no drive and no backslash."""
    pure = PurePosixPath(name)
    if pure.as_posix() != name or PureWindowsPath(name).parts != pure.parts or pure.is_absolute():
        return False
    return 0 < len(name) <= _MAX_PATH and len(pure.parts) > 0 and ".." not in pure.parts


def _locate_part(link: Path, folder: Path, name: str) -> Path:
    """Return where a part is; it must lie in the folder of the file that names it, or below, also behind links."""
    if not is_plain(name):
        raise InputError(f"{link}: /parts: expected a path below the folder of this file, found {quote(name)}")
    path = Path(os.path.realpath(folder / name))
    if not path.is_relative_to(folder) or path == folder:
        raise InputError(f"{link}: /parts: {quote(name)} leads out of the folder of this file")
    return path
