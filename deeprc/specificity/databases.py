"""Databases of receptors with known antigens: VDJdb, McPAS-TCR, exports of the IEDB, and any table with AIRR names.

A sequence is compared without the first and the last residue of its junction, because databases differ in whether they
keep the two conserved residues.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from deeprc.datasets.container import is_container
from deeprc.datasets.genes import normalise_genes
from deeprc.datasets.readers.text import read_text
from deeprc.documents import CONTROL_CHARACTERS
from deeprc.errors import InputError, join_names

__all__ = [
    "COLUMNS",
    "HOSTS",
    "normalise_calls",
    "read_database",
    "read_databases",
    "read_sequences",
    "trim_conserved_residues",
]

COLUMNS = ("cdr3_aa", "v_call", "epitope", "antigen", "antigen_organism")
"""Columns of a database as `read_database` returns it; `cdr3_aa` lacks the two conserved residues."""

HOSTS = {
    "human": ("homosapiens", "homo sapiens", "human", "ncbitaxon_9606", "9606"),
    "mouse": ("musmusculus", "mus musculus", "mouse", "ncbitaxon_10090", "10090"),
}
"""The names in databases of the animal whose receptors they list."""

_LETTERS = "[ACDEFGHIKLMNPQRSTVWY]+"
_MOSTLY = 0.5
_MIN_RESIDUES = 3
_MAX_BYTES = 1 << 30
_CONTROLS = f"{CONTROL_CHARACTERS.pattern}+"


@dataclass(frozen=True)
class _Chain:
    """The columns of one chain of a receptor; of several, the first that exists and is not empty counts."""

    sequence: tuple[str, ...]
    v_call: tuple[str, ...] = ()
    host: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Format:
    """The columns of a database; a file has the first format whose `marks` are all among its columns."""

    marks: tuple[str, ...]
    chains: tuple[_Chain, ...]
    epitope: tuple[str, ...]
    antigen: tuple[str, ...]
    organism: tuple[str, ...]


def _make_vdjdb_format(marks: tuple[str, ...], *chains: _Chain) -> _Format:
    return _Format(
        marks, chains, epitope=("antigen.epitope",), antigen=("antigen.gene",), organism=("antigen.species",)
    )


def _make_iedb_chain(number: int) -> _Chain:
    kinds = ("Curated", "Calculated")
    return _Chain(
        sequence=tuple(f"Chain {number} CDR3 {kind}" for kind in kinds),
        v_call=(
            *(f"Chain {number} {kind} V Gene" for kind in kinds),
            *(f"{kind} Chain {number} V Gene" for kind in kinds),  # older exports
        ),
        host=(f"Chain {number} Organism IRI",),
    )


def _make_own_format(sequence: str, mark: str) -> _Format:
    return _Format(
        marks=(sequence, mark),
        chains=(_Chain((sequence,), ("v_call",), host=("species", "organism")),),
        epitope=("epitope",),
        antigen=("antigen",),
        organism=("antigen_organism",),
    )


_VDJDB = _make_vdjdb_format(("cdr3", "antigen.epitope"), _Chain(("cdr3",), ("v.segm",), host=("species",)))
_PAIRED_VDJDB = _make_vdjdb_format(
    ("cdr3.beta", "antigen.epitope"),
    _Chain(("cdr3.alpha",), ("v.alpha",), host=("species",)),
    _Chain(("cdr3.beta",), ("v.beta",), host=("species",)),
)
_MCPAS = _Format(
    marks=("CDR3.beta.aa", "Pathology"),
    chains=(
        _Chain(("CDR3.alpha.aa",), ("TRAV",), host=("Species",)),
        _Chain(("CDR3.beta.aa",), ("TRBV",), host=("Species",)),
    ),
    epitope=("Epitope.peptide",),
    antigen=("Antigen.protein",),
    organism=("Pathology",),
)
_IEDB = _Format(
    marks=("Chain 2 CDR3 Curated",),
    chains=(_make_iedb_chain(1), _make_iedb_chain(2)),
    epitope=("Epitope Name", "Description"),
    antigen=("Epitope Source Molecule", "Antigen"),
    organism=("Epitope Source Organism", "Organism"),
)
_OWN_FORMATS = [
    _make_own_format(sequence, mark)
    for sequence in ("junction_aa", "cdr3_aa")
    for mark in ("antigen_organism", "antigen", "epitope")
]
_FORMATS = (_VDJDB, _PAIRED_VDJDB, _MCPAS, _IEDB, *_OWN_FORMATS)


def read_database(path: str | Path, *, host: str | None = "human") -> pd.DataFrame:
    """Read a database of receptors with known antigens.

    Parameters
    ----------
    path
        The file, packed or not: VDJdb's release, McPAS-TCR's table, an export of receptors from the IEDB, or a table
        with the columns `junction_aa` (or `cdr3_aa`), `v_call` and at least one of `antigen_organism`, `antigen` and
        `epitope`.
    host
        `human` or `mouse`: receptors of other animals are left out. None: all are kept. Receptors whose animal the file
        does not name are kept.

    Returns
    -------
    pandas.DataFrame
        One row for each chain, with `COLUMNS`; an unknown value is "".

    Raises
    ------
    InputError
        If the file cannot be read, has none of these forms, or holds no receptor of this host.
    """
    path = Path(path)
    table = _read_table(path)
    known = next((file_format for file_format in _FORMATS if set(file_format.marks) <= set(table.columns)), None)
    if known is None:
        raise InputError(
            f"{path}: not a database of known specificities: expected VDJdb, McPAS-TCR, an export of receptors from "
            f"the IEDB, or the column junction_aa with antigen_organism, antigen or epitope; found "
            f"{join_names([str(name) for name in table.columns], 8)}"
        )
    parts = [_read_chain(table, known, chain, host) for chain in known.chains]
    entries = pd.concat(parts, ignore_index=True).drop_duplicates(ignore_index=True)
    if entries.empty:
        host_phrase = "" if host is None else f" of {host} receptors"
        raise InputError(f"{path}: holds no amino-acid sequence{host_phrase} with a known antigen")
    return entries


def read_databases(paths: Iterable[str | os.PathLike[str]], *, host: str | None = "human") -> pd.DataFrame:
    """Return the receptors of one or more databases in one table, see `read_database`."""
    return pd.concat([read_database(Path(path), host=host) for path in paths], ignore_index=True)


def read_sequences(path: str | Path) -> pd.DataFrame:
    """Read a table of sequences, with all cells as texts.

    Raises
    ------
    InputError
        If the file is a container, or cannot be read as a table.
    """
    if Path(path).is_file() and is_container(Path(path)):
        raise InputError(f"{path}: is a container; expected a table of sequences, as `deeprc attention` writes it")
    return _read_table(Path(path))


def trim_conserved_residues(sequences: pd.Series) -> pd.Series:
    """Return CDR3s without the conserved residues, from junctions or from CDR3s: the majority says which they are.

    Sequences that are too short, or have other letters than the 20 amino acids, become "".
    """
    texts = sequences.str.strip().str.upper()
    is_valid = texts.str.fullmatch(_LETTERS)
    is_junction = texts.str.match("C.*[FW]$")
    if is_valid.any() and (is_junction & is_valid).sum() >= _MOSTLY * is_valid.sum():
        texts = texts.str[1:-1]  # for every sequence, as some junctions end with other residues
    return texts.where(is_valid & (texts.str.len() >= _MIN_RESIDUES), "")


def normalise_calls(calls: pd.Series) -> pd.Series:
    """Return genes with IMGT's names, without alleles."""
    spellings = calls.unique().tolist()
    return calls.map(dict(zip(spellings, normalise_genes(spellings).stored.names(), strict=True)))


def _read_table(path: Path) -> pd.DataFrame:
    """Read a table of texts; rows have as many fields as the header, apart from empty ones at the end."""
    header, text = read_text(path, _MAX_BYTES)
    is_tabs = header.delimiter == "\t"
    file = io.StringIO(text, newline="")
    reader = csv.reader(file, delimiter=header.delimiter, quoting=csv.QUOTE_NONE if is_tabs else csv.QUOTE_MINIMAL)
    names: list[str] = []
    rows: list[list[str]] = []
    try:
        for row_number, cells in enumerate(reader, start=header.n_comments + 1):
            if not cells:
                continue
            if not names:
                names = list(header.columns)
                continue
            row = _trim_row(path, row_number, cells, names)
            if not rows and _is_half_of_header(names):  # the IEDB's header has two rows
                names = [f"{group} {name}".strip() for group, name in zip(names, row, strict=True)]
            else:
                rows.append(row)
    except csv.Error as error:
        raise InputError(f"{path}: row {reader.line_num}: cannot be read as a table: {error}") from error
    if len(set(names)) < len(names):
        raise InputError(f"{path}: two columns are named {next(name for name in names if names.count(name) > 1)!r}")
    table = pd.DataFrame(rows, columns=names, dtype=object)
    return table.map(_strip_quotes) if is_tabs else table


def _is_half_of_header(names: Sequence[str]) -> bool:
    return len(set(names)) < len(names) and {"Chain 2", "Epitope"} <= set(names)


def _trim_row(path: Path, row_number: int, row: list[str], names: Sequence[str]) -> list[str]:
    """Return a row without empty fields beyond the header; InputError if it has another number of fields."""
    while len(row) > len(names) and not row[-1]:
        row = row[:-1]
    if len(row) != len(names):
        raise InputError(f"{path}: row {row_number}: expected {len(names)} fields, found {len(row)}")
    return row


def _strip_quotes(text: str) -> str:
    """Return a cell of a table with tabs without the quotes around it."""
    is_quoted = len(text) > 1 and text[0] == text[-1] == '"'
    return text[1:-1].replace('""', '"') if is_quoted else text


def _read_chain(table: pd.DataFrame, known: _Format, chain: _Chain, host: str | None) -> pd.DataFrame:
    """Return the rows of one chain, with `COLUMNS`."""
    entries = pd.DataFrame(
        {
            "cdr3_aa": trim_conserved_residues(_take_first_known(table, chain.sequence)),
            "v_call": normalise_calls(_take_first_known(table, chain.v_call)),
            "epitope": _take_first_known(table, known.epitope),
            "antigen": _take_first_known(table, known.antigen),
            "antigen_organism": _take_first_known(table, known.organism),
        }
    )
    has_antigen = (entries[["epitope", "antigen", "antigen_organism"]] != "").any(axis=1)
    kept = (entries["cdr3_aa"] != "") & has_antigen
    if host is not None:
        hosts = _take_first_known(table, chain.host).str.lower().str.rsplit("/").str[-1]
        kept &= hosts.isin([*HOSTS[host], ""])
    return entries[kept]


def _take_first_known(table: pd.DataFrame, names: Sequence[str]) -> pd.Series:
    """Return for each row the first value of some columns that exists and is not empty; otherwise ""."""
    first_known = pd.Series("", index=table.index, dtype=object)
    for name in names:
        if name in table:
            texts = table[name].str.replace(_CONTROLS, " ", regex=True).str.strip()
            first_known = first_known.where(first_known != "", texts.where(~texts.isin(["None", "nan", "NA"]), ""))
    return first_known
