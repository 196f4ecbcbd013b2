"""`RepertoireDataset`: a container as an indexable set of repertoires, and `Repertoire`, one of them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar, overload

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deeprc.datasets.categorical import Categorical
from deeprc.datasets.linked_container import SequenceContainer, open_container
from deeprc.datasets.parts import CohortContainer, SequenceStore
from deeprc.datasets.sequences import GENE_FIELDS, Sequences
from deeprc.errors import InputError, quote
from deeprc.notebook_html import render_details, render_histogram, render_table

__all__ = ["Repertoire", "RepertoireDataset", "open_dataset"]

_SHOWN = 5
"""Number of rows of the metadata that a notebook shows."""

_Result = TypeVar("_Result")


@dataclass(frozen=True, repr=False)
class Repertoire:
    """One repertoire: a view of its part of the container; nothing is copied before it is used.

    Attributes
    ----------
    repertoire_id
        Id in the metadata sheet.
    start, stop
        Range of the repertoire's sequences in the container.
    container
        Store of the sequences: the container, or the part of a linked container in which the repertoire lies.
    metadata
        Repertoire's row of the metadata sheet.
    """

    repertoire_id: str
    start: int
    stop: int
    container: SequenceStore
    metadata: dict[str, Any]

    def __repr__(self) -> str:
        return f"Repertoire({self.repertoire_id!r}, {len(self):,} sequences)"

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def sequences(self) -> Sequences:
        """The N sequences with all their columns; only their offsets are copied."""
        return self.container.sequences.slice(self.start, self.stop)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Offsets of the N sequences, (N + 1,) int64, counted from the repertoire's first residue."""
        bounds = self.container.sequences.offsets[self.start : self.stop + 1]
        return np.asarray(bounds - bounds[0])

    @property
    def residues(self) -> NDArray[np.uint8]:
        """Amino-acid indices of all sequences end to end, (R,) uint8."""
        first, stop = self.container.sequences.offsets[[self.start, self.stop]]
        return self.container.sequences.residues[first:stop]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Lengths of the sequences in residues, (N,) int64."""
        return np.diff(self.container.sequences.offsets[self.start : self.stop + 1])

    @property
    def counts(self) -> NDArray[np.uint32]:
        """Abundances of the sequences, AIRR's `duplicate_count`, (N,) uint32."""
        return self.container.sequences.counts[self.start : self.stop]

    @property
    def genes(self) -> dict[str, Categorical]:
        """The genes of the sequences that are known, by field: `v_call`, `j_call`."""
        rows = slice(self.start, self.stop)
        return {name: calls.take(rows) for name, calls in self.container.sequences.genes.items()}

    @property
    def witness(self) -> NDArray[np.uint8] | None:
        """Index of the implanted signal that each sequence carries, 0 for none, (N,) uint8; None if it is unknown."""
        witness = self.container.sequences.witness
        return None if witness is None else witness[self.start : self.stop]

    def digest(self) -> str:
        """Return a hash of the sequences and their counts, as hexadecimal text: equal content, equal digest.

        It is computed once for an open container.
        """
        digests = self.container.digests
        if (self.start, self.stop) not in digests:
            digests[self.start, self.stop] = self.sequences.digest()
        return digests[self.start, self.stop]

    def digest_with_genes(self) -> str:
        """Return a hash of the sequences, their counts and their genes by name, as hexadecimal text.

        A gene field without any known gene counts as absent, because joining containers may add such fields.
        """
        content = hashlib.blake2b(self.digest().encode(), digest_size=16)
        for calls in self.genes.values():
            occurring = calls.count_occurrences().nonzero()[0]
            names = [calls.vocabulary[code] for code in occurring]
            if not any(names):
                continue
            hashes = np.zeros(len(calls.vocabulary), "V8")
            hashes[occurring] = [hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names]
            content.update(hashes[calls.codes].data)
        return content.hexdigest()

    def to_frame(self, rows: ArrayLike | None = None) -> pd.DataFrame:
        """Return `columns` as a table."""
        return pd.DataFrame(self.columns(rows))

    def columns(self, rows: ArrayLike | None = None) -> dict[str, NDArray[Any]]:
        """Return the columns of the sequences, by AIRR field names.

        `sequence_id` numbers the repertoire's kept sequences from 1: containers hold no ids of files.

        Parameters
        ----------
        rows
            Indices within the repertoire, (n,); None: all.
        """
        chosen = np.arange(len(self)) if rows is None else np.asarray(rows, np.int64)
        sequences = self.container.sequences.take(chosen + self.start)
        columns: dict[str, NDArray[Any]] = {
            "repertoire_id": np.full(len(chosen), self.repertoire_id, dtype=object),
            "sequence_id": chosen + 1,
            "junction_aa": np.array(sequences.decode(), dtype=object),
            "duplicate_count": np.asarray(sequences.counts),
        }
        columns |= {name: calls.names() for name, calls in sequences.genes.items()}
        if sequences.witness is not None:
            columns["witness"] = np.asarray(sequences.witness)
        return columns


class RepertoireDataset:
    """A set of repertoires in a container: `len`, `dataset[i]`, `dataset[rows]`; a view, cheap to slice.

    An integer gives one `Repertoire`; a slice, a list of positions or a boolean mask gives a
    `RepertoireDataset` of those repertoires in that order. `shape` is `(len,)`, so scikit-learn's splitters
    and searches index it like an array. The sequences are memory-mapped; a worker process that receives the
    dataset opens the file by itself.

    Parameters
    ----------
    path
        Path of a container made by `deeprc preprocess`, or of a linked container made by `deeprc join --link`.

    Attributes
    ----------
    container
        The container of the sequences.
    repertoire_indices
        Index of each repertoire of this dataset among all repertoires of the container, (B,) int64.

    Raises
    ------
    InputError
        If the container cannot be used; the message names the file and the dataset inside it.
    """

    _other_metadata: pd.DataFrame | None = None  # set by `with_metadata`, for all repertoires of the container

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.container: CohortContainer = open_container(path)
        self.repertoire_indices: NDArray[np.int64] = np.arange(len(self.container.repertoire_ids))

    def __len__(self) -> int:
        return len(self.repertoire_indices)

    @property
    def shape(self) -> tuple[int]:
        """The number of repertoires, as scikit-learn expects it."""
        return (len(self),)

    @property
    def repertoire_ids(self) -> NDArray[np.object_]:
        """The ids of the repertoires, (B,) text."""
        return self.container.repertoire_ids[self.repertoire_indices]

    @property
    def sequence_container(self) -> SequenceContainer:
        """The container of a dataset whose sequences are stored: neither simulated, nor with some of them left out."""
        assert isinstance(self.container, SequenceContainer)
        return self.container

    @property
    def gene_fields(self) -> list[str]:
        """Those of `v_call` and `j_call` that the container's sequences have."""
        return self.container.gene_fields

    @property
    def metadata(self) -> pd.DataFrame:
        """The metadata sheet of these repertoires, one row each, in the dataset's order."""
        return self._whole_metadata.iloc[self.repertoire_indices].reset_index(drop=True)

    @property
    def n_sequences(self) -> NDArray[np.int64]:
        """The number of sequences of each repertoire, (B,) int64."""
        offsets = self.container.repertoire_offsets
        return offsets[self.repertoire_indices + 1] - offsets[self.repertoire_indices]

    @overload
    def __getitem__(self, key: int | np.integer[Any]) -> Repertoire: ...
    @overload
    def __getitem__(self, key: slice | Sequence[int] | NDArray[Any]) -> RepertoireDataset: ...
    def __getitem__(self, key: Any) -> Repertoire | RepertoireDataset:
        if isinstance(key, tuple) and len(key) == 2 and key[1] is Ellipsis:
            key = key[0]  # scikit-learn's `_safe_indexing` asks for `dataset[rows, ...]`
        if isinstance(key, int | np.integer):
            return self._make_repertoire(int(self.repertoire_indices[key]))
        if isinstance(key, str) or (isinstance(key, list) and key and isinstance(key[0], str)):
            text = key if isinstance(key, str) else key[0]
            raise TypeError(
                f"expected a position, positions, booleans or a slice, found the text {text!r}; the repertoire of an "
                f"id is cohort[cohort.repertoire_ids == {text!r}][0]"
            )
        view = object.__new__(type(self))
        view.container, view._other_metadata = self.container, self._other_metadata
        if not isinstance(key, slice) and len(key) == 0:
            key = np.zeros(0, np.int64)
        chosen = self.repertoire_indices[key]
        view.repertoire_indices = np.ascontiguousarray(chosen)  # compiled code takes no reversed view
        return view

    def __iter__(self) -> Iterator[Repertoire]:
        return map(self._make_repertoire, self.repertoire_indices.tolist())

    def map_repertoires(self, function: Callable[[Repertoire], _Result]) -> Iterator[_Result]:
        """Yield the result of a function for each repertoire, in order, computed in threads.

        The function should let other threads run (numpy, `hashlib`, code compiled with `nogil=True`), and must not use
        numba's own threads, see `deeprc.compilation.open_threads`. Results should be small, because they are kept until
        they are asked for.
        """
        from deeprc.compilation import open_threads  # numba takes long to import

        with open_threads() as threads:
            yield from threads.map(lambda index: function(self[index]), range(len(self)))

    def __repr__(self) -> str:
        return f"RepertoireDataset({str(self.container.path)!r}, {len(self)} repertoires)"

    def _repr_html_(self) -> str:
        """Return the dataset as a notebook shows it: the first rows of the metadata, and the sizes."""
        shown = self[:_SHOWN]
        columns = ["repertoire", "sequences", *map(str, shown.metadata.columns)]
        cells = shown.metadata.astype(object).where(shown.metadata.notna(), "").to_numpy()
        rows = [
            [str(name), f"{n:,}", *map(str, row)]
            for name, n, row in zip(shown.repertoire_ids, shown.n_sequences, cells, strict=True)
        ]
        total = f"{len(self):,} with {int(self.n_sequences.sum()):,} sequences"
        listed = render_table(columns, rows)
        more = f"<small>and {len(self) - _SHOWN:,} more</small>" if len(self) > _SHOWN else ""
        sizes = render_histogram(self.n_sequences.tolist(), "sequences of a repertoire")
        return render_details(
            f"{type(self).__name__} of {self.container.path.name}", [("repertoires", total)], sizes, listed, more
        )

    def check_gene_fields(self, gene_fields: Sequence[str]) -> list[str]:
        """Return those of `v_call` and `j_call` that `gene_fields` names, in this order.

        Raises
        ------
        InputError
            If the container lacks one of these genes. Without repertoires, nothing is checked.
        """
        for name in gene_fields if len(self) else ():
            if name not in self.gene_fields:
                raise InputError(f"{self.container.path}: has no {name}")
        return [name for name in GENE_FIELDS if name in gene_fields]

    def take_clones(self, rows: NDArray[np.int64], gene_fields: Sequence[str] = ()) -> Sequences:
        """Return the clones at some rows of the container: its sequences with these genes, each with a count of 1.

        Parameters
        ----------
        rows
            Indices of the sequences among all sequences of the container, (n,), in any order; which repertoires this
            view shows does not matter.
        gene_fields
            Genes that belong to a clone; see `deeprc.datasets.clones.shared.find_shared_clones`.
        """
        sequences = self.container.take(rows)
        genes = {name: calls for name, calls in sequences.genes.items() if name in gene_fields}
        return Sequences.counted_once(sequences.residues, sequences.offsets).with_genes(genes)

    def concatenate(self, other: RepertoireDataset) -> RepertoireDataset:
        """Return these repertoires, then those of another view of the same container."""
        assert self.is_of_same_cohort(other)
        view = self[:0]
        view.repertoire_indices = np.concatenate([self.repertoire_indices, other.repertoire_indices])
        return view

    def whole(self) -> RepertoireDataset:
        """Return all repertoires of the container that this dataset is a view of."""
        view = self[:0]
        view.repertoire_indices = np.arange(len(self.container.repertoire_ids))
        return view

    def is_of_same_cohort(self, other: RepertoireDataset) -> bool:
        """Return whether another dataset is a view of the same container, with the same metadata."""
        return other.container is self.container and other._whole_metadata is self._whole_metadata

    @property
    def has_other_metadata(self) -> bool:
        """Whether the metadata are not those of the container, see `with_metadata`."""
        return self._other_metadata is not None

    def with_metadata(self, metadata: pd.DataFrame) -> RepertoireDataset:
        """Return a view of the same repertoires with other metadata, a row for each repertoire of the container.

        Raises
        ------
        InputError
            If there are more or fewer rows, or two columns of one name.
        """
        n, names = len(self.container.repertoire_ids), metadata.columns
        if len(metadata) != n:
            raise InputError(
                f"metadata: expected a row for each of the {n:,} repertoires of the container, found {len(metadata):,}"
            )
        if not names.is_unique:
            raise InputError(f"metadata: two columns are called {quote(str(names[names.duplicated()][0]))}")
        view = self[:]
        view._other_metadata = metadata
        return view

    def select(self, repertoire_ids: Sequence[str]) -> RepertoireDataset:
        """Return the repertoires with these ids, in this order.

        Raises
        ------
        InputError
            If the dataset has no repertoire of one of these ids.
        """
        position = {repertoire_id: i for i, repertoire_id in enumerate(self.repertoire_ids)}
        missing = [repertoire_id for repertoire_id in repertoire_ids if repertoire_id not in position]
        if missing:
            raise InputError(
                f"{self.container.path}: no repertoire {missing[0]!r}"
                + (f" (nor {len(missing) - 1} others asked for)" if len(missing) > 1 else "")
            )
        return self[np.asarray([position[repertoire_id] for repertoire_id in repertoire_ids], np.int64)]

    @property
    def _whole_metadata(self) -> pd.DataFrame:
        """The metadata of all repertoires of the container, also of those that this view does not show."""
        return self.container.metadata if self._other_metadata is None else self._other_metadata

    @cached_property
    def _metadata_columns(self) -> dict[str, NDArray[Any]]:
        """The columns of the whole container's metadata as arrays, because reading a cell of a table is slow."""
        return {str(name): values.to_numpy() for name, values in self._whole_metadata.items()}

    def _make_repertoire(self, index: int) -> Repertoire:
        """Return the repertoire with this index in the container."""
        container = self.sequence_container
        part = container.parts[container.find_part(index)]
        start, stop = (container.repertoire_offsets[index : index + 2] - part.first_sequence).tolist()
        metadata = {name: values[index] for name, values in self._metadata_columns.items()}
        return Repertoire(str(container.repertoire_ids[index]), start, stop, part.store, metadata)


def open_dataset(path: str | os.PathLike[str]) -> RepertoireDataset:
    """Open a container; `deeprc.open` is this function. See `RepertoireDataset`."""
    return RepertoireDataset(path)
