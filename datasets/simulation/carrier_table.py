"""Signals of public clones whose carriers a table names: real incidence in simulated repertoires.

Letters: P clones of the table, K clones that a repertoire carries.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.datasets.alphabet import AMINO_ACIDS, encode_many
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.genes import normalise_gene
from deeprc.datasets.metadata import Metadata, read_metadata
from deeprc.datasets.sequences import Sequences
from deeprc.datasets.simulation.background import Background
from deeprc.datasets.simulation.clone_signal import MAX_CLONES
from deeprc.datasets.simulation.cohort_settings import MAX_SEQUENCES
from deeprc.datasets.simulation.signal_checks import check_share
from deeprc.documents import abbreviate
from deeprc.errors import InputError, describe_missing_column

__all__ = ["CarrierTable"]

_MAX_DEPTH = 1000.0
_MAX_NUMBER = 1_000_000_000
_N_FIELDS = 3  # V gene, junction and J gene
_MAX_NAME = 200
_FILE_NAME = re.compile(rf"\w[\w .+=@-]{{0,{_MAX_NAME - 1}}}")
_POSITIVE = {"1", "1.0", "true", "positive", "yes", "+"}
_NEGATIVE = {"0", "0.0", "false", "negative", "no", "-"}


@dataclass(frozen=True)
class CarrierTable:
    """A signal of clones from a table with a row for each repertoire: its clones, its class and its size.

    Each column whose name holds `|` is a clone, `V gene|junction|J gene`, with 1 if the repertoire carries it and 0
    otherwise. The genes are used if the background has genes.

    Attributes
    ----------
    path
        Path of a table separated by tabs or commas.
    depth
        Share of a repertoire's real number of sequences that is simulated.
    minimum
        Smallest number of sequences of a repertoire.
    id_column, status_column, size_column
        Columns with the repertoire's name, its class (1 or 0, true or false, positive or negative) and its number of
        sequences.
    variant_rate
        Probability that a carrier has a variant: one substitution between the junction's conserved ends.
    name
        Name of the signal in the truth.
    """

    path: Path
    depth: float = 1.0
    minimum: int = 500
    id_column: str = "sample"
    status_column: str = "status"
    size_column: str = "uniques"
    variant_rate: float = 0.0
    name: str = "clones"

    status: ClassVar[Literal["positive"]] = "positive"
    prevalence: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.depth <= _MAX_DEPTH or self.minimum < 1:
            raise InputError(
                f"signal {self.name!r}: expected a depth above 0 and at most {_MAX_DEPTH} and a minimum of at least 1, "
                f"found {self.depth:g} and {self.minimum}"
            )
        check_share(self.name, "variant_rate", self.variant_rate)

    def __len__(self) -> int:
        """Return the number of repertoires in the table."""
        return len(self.repertoire_ids)

    @cached_property
    def repertoire_ids(self) -> tuple[str, ...]:
        """The names of the repertoires, in the table's order; files may be named after them."""
        for name in self._sheet.repertoire_ids:
            if not _FILE_NAME.fullmatch(name):
                raise InputError(
                    f"{self.path}: {self.id_column}: expected names of letters, digits and the signs _ . + - = @ and "
                    f"blank, with a letter, a digit or _ in front, at most {_MAX_NAME} long; found {abbreviate(name)}"
                )
        return self._sheet.repertoire_ids

    @cached_property
    def is_positive(self) -> NDArray[np.bool_]:
        """Whether each repertoire is of the positive class."""
        positive = []
        for row, value in enumerate(self._read_column(self.status_column)):
            text = str(value).strip().lower()
            if text not in _POSITIVE | _NEGATIVE:
                raise InputError(
                    f"{self.path}: {self.repertoire_ids[row]}: {self.status_column}: expected 1 or 0, true or false, "
                    f"positive or negative, found {value!r}"
                )
            positive.append(text in _POSITIVE)
        return np.array(positive, np.bool_)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """The number of sequences to simulate for each repertoire."""
        sizes = np.maximum(np.rint(self.depth * self._read_numbers(self.size_column)), self.minimum)
        row = int(np.argmax(sizes))
        if sizes[row] > MAX_SEQUENCES:
            found = f"{self.depth:g} x {self._read_column(self.size_column)[row]}"
            raise InputError(
                f"{self.path}: {self.repertoire_ids[row]}: expected at most {MAX_SEQUENCES:,} sequences, found {found}"
            )
        return sizes.astype(np.int64)

    @cached_property
    def incidence(self) -> NDArray[np.bool_]:
        """Whether each repertoire carries each of the P clones, (repertoires, P)."""
        columns = [self._read_numbers(name) for name in self._clone_columns]
        for name, values in zip(self._clone_columns, columns, strict=True):
            wrong = np.flatnonzero((values != 0) & (values != 1))
            if len(wrong):
                raise InputError(
                    f"{self.path}: {self.repertoire_ids[wrong[0]]}: {name}: expected 0 or 1, found {values[wrong[0]]:g}"
                )
        return np.stack(columns, axis=1).astype(np.bool_)

    def make_pool(self, background: Background, key: int) -> Sequences:  # noqa: ARG002 (only `CloneSignal` draws its clones)
        """Return the P clones of the table; their genes have IMGT names."""
        fields = [name.split("|") for name in self._clone_columns]
        for name, values in zip(self._clone_columns, fields, strict=True):
            if len(values) != _N_FIELDS or not values[1] or set(values[1]) - set(AMINO_ACIDS):
                raise InputError(f"{self.path}: column {name!r}: expected V gene|junction|J gene")
        residues, offsets = encode_many([values[1] for values in fields])
        v_call, j_call = (Categorical.encode([normalise_gene(values[i]).name for values in fields]) for i in (0, 2))
        return Sequences.counted_once(residues, offsets).with_genes({"v_call": v_call, "j_call": j_call})

    def draw_clones(self, key: int, repertoire: int, carries: bool, *, is_test: bool = False) -> NDArray[np.int64]:  # noqa: ARG002 (the table decides)
        """Return which of the P clones are in one repertoire, as indices (K,); see `CloneSource.draw_clones`."""
        return np.flatnonzero(self.incidence[repertoire])

    @cached_property
    def _sheet(self) -> Metadata:
        return read_metadata(self.path, id_column=self.id_column)

    @cached_property
    def _clone_columns(self) -> list[str]:
        columns = [str(name) for name in self._sheet.table if "|" in str(name)]
        if not 1 <= len(columns) <= MAX_CLONES:
            raise InputError(
                f"{self.path}: expected 1 to {MAX_CLONES:,} columns whose names are V gene|junction|J gene, found "
                f"{len(columns)}"
            )
        return columns

    def _read_column(self, name: str) -> list[object]:
        if name not in self._sheet.table:
            raise InputError(f"{self.path}: {describe_missing_column(name, self._sheet.table)}")
        return list(self._sheet.table[name])

    def _read_numbers(self, name: str) -> NDArray[np.float64]:
        """Return the numbers of a column, (B,); raise InputError if one is negative, too large or no number."""
        cells = self._read_column(name)
        values = pd.to_numeric(pd.Series(cells, dtype=object), errors="coerce").to_numpy(np.float64)
        wrong = np.flatnonzero(~((values >= 0) & (values <= _MAX_NUMBER)))
        if len(wrong):
            where = f"{self.path}: {self.repertoire_ids[wrong[0]]}: {name}"
            raise InputError(f"{where}: expected 0 to {_MAX_NUMBER:,}, found {cells[wrong[0]]!r}")
        return values
