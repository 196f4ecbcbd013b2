"""The options for reading a cohort's files, which `deeprc.preprocess` and `deeprc.check` share."""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import index
from typing import get_args

from deeprc.datasets.alphabet import MAX_LENGTH
from deeprc.datasets.cleaning import Cleaning, Merge
from deeprc.datasets.genes import LOCI
from deeprc.datasets.readers import Reader, choose_reader
from deeprc.errors import InputError

__all__ = ["ReadingOptions"]


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """Options that say how repertoire files and the metadata sheet are read, and which sequences are kept.

    The same object serves `deeprc.check` and `deeprc.preprocess`, so that what was checked is what is written:

        options = deeprc.ReadingOptions(locus="TRB", allow_missing=True)
        deeprc.check("exports/", "samples.xlsx", options=options)
        deeprc.preprocess("exports/", "samples.xlsx", "cohort.h5", options=options)

    Attributes
    ----------
    reader_format
        The format of all files, one of `deeprc.datasets.readers.FORMATS`; "auto" recognises each file by its header.
    id_column
        The sheet's column of repertoire ids; None finds it by its name.
    sequence_column, count_column, v_column, j_column
        The columns of a table in no known format: amino-acid sequences, counts, names of V and of J genes.
    split_by
        The files' column that names the repertoire of each row. None: only a file that belongs to no row of the sheet
        is split, by the column that its format has for this. "none": each file is one repertoire.
    locus
        The chain to keep, an AIRR locus (TRB, IGH, ...); None: the only one there is, a mixture is an error.
    merge
        Which rows become one sequence, with the sum of their counts: rows with the same junction, V gene and J gene
        ("genes"), rows with the same junction ("junction"), or no rows ("none").
    min_length, max_length
        Lengths of the shortest and the longest sequence that is kept, in residues.
    allow_missing
        Whether rows without a file, files without a row and repertoires without a kept sequence are left out with a
        warning; otherwise they are an error.

    Raises
    ------
    InputError
        If a value is none of those that are allowed, or two contradict each other.
    """

    reader_format: str = "auto"
    id_column: str | None = None
    sequence_column: str | None = None
    count_column: str | None = None
    v_column: str | None = None
    j_column: str | None = None
    split_by: str | None = None
    locus: str | None = None
    merge: Merge = "genes"
    min_length: int = 1
    max_length: int = 50
    allow_missing: bool = False

    def __post_init__(self) -> None:
        for name in ("min_length", "max_length"):  # numpy's integers become Python's
            object.__setattr__(self, name, index(getattr(self, name)))
        if not 1 <= self.min_length <= self.max_length <= MAX_LENGTH:
            found = f"{self.min_length} and {self.max_length}"
            raise InputError(f"expected 1 <= `min_length` <= `max_length` <= {MAX_LENGTH}, found {found}")
        if self.locus is not None and self.locus not in LOCI:
            raise InputError(f"`locus`: expected one of {', '.join(LOCI)}, found {self.locus!r}")
        if self.merge not in get_args(Merge):
            raise InputError(f"`merge`: expected one of {', '.join(get_args(Merge))}, found {self.merge!r}")
        self.find_reader()  # raises where the options of the format contradict each other

    def find_reader(self) -> Reader | None:
        """Return the reader of all files; None if each file's header decides."""
        columns = {name: getattr(self, name) for name in ("count_column", "v_column", "j_column")}
        return choose_reader(self.reader_format, sequence_column=self.sequence_column, **columns)

    def make_cleaning(self) -> Cleaning:
        """Return the settings that say which sequences are kept."""
        return Cleaning(**{field.name: getattr(self, field.name) for field in fields(Cleaning)})
