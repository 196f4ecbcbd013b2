"""The CMV cohort of Emerson et al. 2017 (Nature Genetics 49:659): its associated sequences.

Its sample overview is read by `deeprc.datasets.overview`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from deeprc.datasets.genes import normalise_gene
from deeprc.datasets.workbook import open_sheet
from deeprc.errors import InputError

__all__ = ["read_associated_sequences"]

_SEQUENCE_COLUMNS = ("CDR3", "V gene", "J gene")
_NUMBER_COLUMNS = ("Incidence in CMV+ subjects", "Incidence in CMV- subjects", "P-value")
_AMINO_ACIDS = re.compile("[ACDEFGHIKLMNPQRSTVWY]+")


def read_associated_sequences(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read the TCR beta sequences associated with CMV: supplementary table 2 of Emerson et al., `ng.3822-S3.xlsx`.

    They are the 164 of cohort 1 with P < 1e-4: Fisher's exact test, one-sided, on presence in 289 CMV+ and 352 CMV-
    donors.

    Returns
    -------
    pandas.DataFrame
        `junction_aa`, `v_call`, `j_call`, then the sheet's columns with their names and values: `V gene`, `CDR3`,
        `J gene`, `Incidence in CMV+ subjects`, `Incidence in CMV- subjects`, `P-value`, `HLA restriction` (None where
        there is none). The calls are IMGT names: TCRBV05-01*01 is TRBV5-1*01, TCRBV09-01 is TRBV9 (the only gene of
        its family), and a family, TCRBV24, stays one, TRBV24; "unresolved" is "".

    Raises
    ------
    InputError
        If the file cannot be read, lacks a column or a sequence, or has text where a number belongs.
    """
    path = Path(path)
    header, body = _read_sheet(path)
    rows = [(row_number, dict(zip(header, row, strict=True))) for row_number, row in body]
    for row_number, row in rows:
        _check_sequence(path, row_number, row)
    if not rows:
        raise InputError(f"{path}: a header and no rows")
    columns = {name: [row[name] for _, row in rows] for name in header if name}
    added = {
        "junction_aa": columns["CDR3"],
        "v_call": [_normalise_gene_name(name) for name in columns["V gene"]],
        "j_call": [_normalise_gene_name(name) for name in columns["J gene"]],
    }
    types = {name: None if name in _NUMBER_COLUMNS else object for name in (*added, *columns)}
    return pd.DataFrame({name: pd.Series(values, dtype=types[name]) for name, values in {**added, **columns}.items()})


def _read_sheet(path: Path) -> tuple[list[str], list[tuple[int, tuple[Any, ...]]]]:
    """Return the first sheet's header and its rows that are not blank, each with its number."""
    with open_sheet(path) as sheet:
        cells = [
            (row_number, tuple(_strip_text(cell.value) for cell in row)) for row_number, row in sheet.iterate_rows()
        ]
    width = max((len(row) for _, row in cells), default=0)
    rows = [(n, row + (None,) * (width - len(row))) for n, row in cells if any(value is not None for value in row)]
    header = ["" if name is None else str(name) for name in rows[0][1]] if rows else []
    missing = [name for name in (*_SEQUENCE_COLUMNS, *_NUMBER_COLUMNS) if name not in header]
    if missing:
        raise InputError(
            f"{path}: no column {', '.join(map(repr, missing))}; expected supplementary table 2 of Emerson et al. 2017,"
            f" found the columns {', '.join(filter(None, header)) or '(none)'}"
        )
    return header, rows[1:]


def _strip_text(value: object) -> object:
    return (value.strip() or None) if isinstance(value, str) else value


def _check_sequence(path: Path, row_number: int, row: Mapping[str, Any]) -> None:
    """Raise InputError unless a row of the sheet has texts, amino acids and numbers in their columns."""
    for name in _SEQUENCE_COLUMNS:
        if not isinstance(row[name], str):
            raise InputError(f"{path}: row {row_number}, column {name!r}: expected text, found {row[name]!r}")
    if not _AMINO_ACIDS.fullmatch(row["CDR3"]):
        raise InputError(f"{path}: row {row_number}, column 'CDR3': expected amino acids, found {row['CDR3']!r}")
    for name in _NUMBER_COLUMNS:
        if isinstance(row[name], bool) or not isinstance(row[name], int | float):
            raise InputError(f"{path}: row {row_number}, column {name!r}: expected a number, found {row[name]!r}")


def _normalise_gene_name(name: str) -> str:
    """Return the IMGT name of an Adaptive gene or family, and its allele."""
    gene, star, allele = name.partition("*")
    return normalise_gene(gene).name + star + allele
