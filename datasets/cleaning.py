"""Clean the rows of a file: decide which rows are kept as sequences, and which of them are merged.

Rows are kept that are productive, in frame, of one chain and made of the 20 amino acids.

Letters: N rows, R residues.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.alphabet import INVALID, compute_offsets, encode_letters
from deeprc.datasets.categorical import Categorical, extend_vocabulary
from deeprc.datasets.drop_reasons import DROP_REASONS, IS_DROPPED, KEPT, OTHER_LOCUS, find_drop_reasons
from deeprc.datasets.genes import GeneMapping, find_mouse_genes, infer_locus, normalise_genes, normalise_locus
from deeprc.datasets.merging import group_rows
from deeprc.datasets.raw_texts import RawTexts
from deeprc.datasets.readers import RawRows, SequenceKind
from deeprc.datasets.readers.columns import factorize, find_first_rows
from deeprc.datasets.sequences import Sequences
from deeprc.errors import InputError

__all__ = [
    "CleanedTable",
    "Cleaning",
    "FileFacts",
    "Merge",
    "clean",
    "examine_file",
    "find_kept_rows",
    "split_by_repertoire",
]

Merge = Literal["genes", "junction", "none"]
"""The rows that become one sequence: those with the same junction, V and J gene; with the same junction; none."""

_MAX_COUNT = int(np.iinfo(np.uint32).max)
_MAX_GENES = int(np.iinfo(np.uint16).max)
_MAX_FOUND_NAMES = 1 << 18
"""Largest number of gene names that are looked up, in any spelling: a million takes a minute."""
_LAST_RESIDUES = {"TRAJ33": "W", "TRAJ35": "C", "TRAJ38": "W", "TRAJ55": "W"}  # at IMGT position 118
_MIN_CDR3S = 10  # with fewer CDR3s in a file, they are not tested for being junctions
_EXCEPTION_RATIO = 10  # of so many CDR3s of a file, one may be of another kind than the others
_C, _F, _W = b"CFW"


@dataclass(frozen=True)
class Cleaning:
    """Settings that say which sequences are kept and merged.

    Attributes
    ----------
    min_length, max_length
        Shortest and longest junction, in residues.
    locus
        The chain to keep, an AIRR locus (TRB, IGH, ...); None keeps all.
    merge
        Which rows become one sequence, whose counts are added.
    """

    min_length: int = 1
    max_length: int = 50
    locus: str | None = None
    merge: Merge = "genes"


@dataclass(frozen=True)
class FileFacts:
    """Facts about a file that must be found in all of its rows, not in those of one repertoire.

    Attributes
    ----------
    cdr3s_are_junctions
        Whether the column of CDR3s holds junctions, as in many exports.
    of_mice
        Gene columns, `v_call` or `j_call`, in which at least one gene is one that only mice have.
    """

    cdr3s_are_junctions: bool
    of_mice: frozenset[str]


@dataclass(frozen=True)
class CleanedTable:
    """The kept sequences of one repertoire, and how many rows were dropped and merged.

    Each row that was read is kept, merged or dropped for one reason.

    Attributes
    ----------
    sequences
        Kept sequences in the order of the rows; a merged sequence is at the place of its first row.
    rows_read
        Number of rows of the file.
    dropped
        Number of dropped rows, by reason.
    merged
        Number of rows whose counts were added to another row.
    counts_from
        Number of rows that were not dropped, by the column that their count comes from.
    counts_rounded
        Number of rows that were not dropped and whose count was not a whole number of at least 1.
    counts_capped
        Number of sequences whose sum of counts exceeds 32 bits; they get the largest number of 32 bits.
    sequences_from
        Number of rows that were not dropped, by the source of their sequence: `junction_aa`, `cdr3_aa` (completed to
        junctions), `cdr3_aa as junction_aa` (the column holds junctions) or `junction` (translated).
    loci
        Number of rows that were not dropped, or only for their locus, by locus; "" is an unknown locus.
    genes
        Translation of the gene names of the file, for `v_call` and `j_call`.
    """

    sequences: Sequences
    rows_read: int
    dropped: dict[str, int]
    merged: int
    counts_from: dict[str, int]
    counts_rounded: int
    counts_capped: int
    sequences_from: dict[str, int]
    loci: dict[str, int]
    genes: dict[str, GeneMapping]

    @property
    def kept(self) -> int:
        """The number of sequences that are kept."""
        return len(self.sequences)


def split_by_repertoire(rows: RawRows) -> Iterator[tuple[str, RawRows]]:
    """Yield the name and the rows of each repertoire of a file, in the order of their first rows; "" is a name too."""
    column = rows.repertoire
    if column is None or len(column.vocabulary) <= 1:
        yield column.vocabulary[0] if column is not None and column.vocabulary else "", rows
        return
    order = np.argsort(column.codes, kind="stable")
    bounds = compute_offsets(np.bincount(column.codes, minlength=len(column.vocabulary)))
    for row in find_first_rows(factorize(column.codes.astype(np.int64))):
        code = column.codes[row]
        yield column.vocabulary[code], rows.take(order[bounds[code] : bounds[code + 1]])


def examine_file(rows: RawRows, path: Path | str = "") -> FileFacts:
    """Return the facts about a file that `clean` needs, from all its rows; the path is for messages.

    A column of CDR3s holds junctions if at least nine tenths of its productive CDR3s of valid letters begin with C and
    end with F or W. Hardly any true CDR3 does.

    Raises
    ------
    InputError
        If there are at least ten such CDR3s, and more than a tenth of them are of either kind; or if a column has too
        many gene names.
    """
    for column in rows.genes.values():
        if len(column.vocabulary) > _MAX_FOUND_NAMES:
            raise _make_too_many_genes_error()
    mouse_columns = frozenset(name for name, column in rows.genes.items() if find_mouse_genes(column.vocabulary))
    return FileFacts(_has_junctions_as_cdr3s(rows, path), mouse_columns)


def _has_junctions_as_cdr3s(rows: RawRows, path: Path | str) -> bool:
    """Return whether the column of CDR3s holds junctions; False if there are too few CDR3s to tell."""
    is_cdr3 = rows.kinds == SequenceKind.CDR3_AA
    if np.count_nonzero(is_cdr3) < _MIN_CDR3S:
        return False
    counted = is_cdr3 & (rows.sequences.lengths > 0) & ~IS_DROPPED[rows.status]
    counted[rows.sequences.find_rows(np.flatnonzero(encode_letters(rows.sequences.letters) == INVALID))] = False
    n = int(counted.sum())
    if n < _MIN_CDR3S:
        return False
    ends = rows.sequences.offsets[:-1][counted], rows.sequences.offsets[1:][counted] - 1
    first, last = (rows.sequences.letters[end] & 0xDF for end in ends)  # ASCII letters in upper case
    n_junctions = int(((first == _C) & ((last == _F) | (last == _W))).sum())
    n_others = n - n_junctions
    if _EXCEPTION_RATIO * min(n_junctions, n_others) > n:  # whole numbers, because a tenth has no exact float
        raise InputError(
            f"{path}: the column of CDR3s holds {n_junctions:,} that look like junctions (C...F or C...W) and "
            f"{n_others:,} that do not; expected one kind. `sequence_column` takes a column as it is"
        )
    return n_junctions > n_others


def clean(rows: RawRows, cleaning: Cleaning | None = None, facts: FileFacts | None = None) -> CleanedTable:
    """Keep the productive, in-frame rows made of the 20 amino acids; lower-case residues become upper case.

    Unless their column holds junctions, CDR3s are completed by the two conserved residues that they lack. The first is
    C. The last is W in IGH, W or C in a few J genes of TRA, and otherwise F.

    Parameters
    ----------
    rows
        Rows of a file, or those of one repertoire of it.
    cleaning
        Settings that say which sequences are kept and merged; None: the defaults of `Cleaning`.
    facts
        Result of `examine_file` for the whole file; None: these rows are the whole file.
    """
    cleaning = Cleaning() if cleaning is None else cleaning
    facts = examine_file(rows) if facts is None else facts
    examined = _examine_rows(rows, cleaning, facts)
    keep = examined.reason == KEPT
    sequences, n_capped = _merge_equal_rows(examined, cleaning.merge)
    kinds = ["junction_aa", "cdr3_aa as junction_aa" if facts.cdr3s_are_junctions else "cdr3_aa", "junction"]
    return CleanedTable(
        sequences,
        rows_read=len(rows),
        dropped={name: int(np.sum(examined.reason == code)) for code, name in enumerate(DROP_REASONS)},
        merged=int(keep.sum()) - len(sequences),
        counts_from=_count_names(rows.count_sources, rows.count_source[keep]),
        counts_rounded=int(rows.count_rounded[keep].sum()),
        counts_capped=n_capped,
        sequences_from=_count_names(kinds, rows.kinds[keep]),
        loci=_count_names(examined.loci.vocabulary, examined.loci.codes[examined.is_receptor]),
        genes=examined.genes,
    )


def find_kept_rows(rows: RawRows, cleaning: Cleaning, facts: FileFacts) -> tuple[NDArray[np.int64], RawTexts]:
    """Return the indices of the n rows that `clean` keeps, before it merges any, (n,), and their whole junctions.

    The parameters are those of `clean`.
    """
    examined = _examine_rows(rows, cleaning, facts)
    return examined.kept, examined.rows.sequences.take(examined.kept)


class _ExaminedRows(NamedTuple):
    """N rows of a file with what was found about each of them, before any are dropped or merged.

    Attributes
    ----------
    rows
        Rows whose CDR3s are completed to junctions.
    residues
        Letters of the junctions as indices of amino acids, (R,).
    reason
        Index of the reason for which each row is dropped in `DROP_REASONS`, or `KEPT`, (N,).
    genes
        Translation of the gene names of the file, for `v_call` and `j_call`.
    is_receptor
        Whether each row is kept, or dropped only for its locus, (N,).
    loci
        Locus of each row; "" is an unknown one.
    """

    rows: RawRows
    residues: NDArray[np.uint8]
    reason: NDArray[np.uint8]
    genes: dict[str, GeneMapping]
    is_receptor: NDArray[np.bool_]
    loci: Categorical

    @property
    def kept(self) -> NDArray[np.int64]:
        """The indices of the n rows that are kept, (n,)."""
        return np.flatnonzero(self.reason == KEPT)


def _examine_rows(rows: RawRows, cleaning: Cleaning, facts: FileFacts) -> _ExaminedRows:
    """Complete junctions, translate gene names, and find the reason for which each row is dropped."""
    genes = {
        name: normalise_genes(column.vocabulary, of_mice=name in facts.of_mice) for name, column in rows.genes.items()
    }
    loci = _find_loci(rows)
    if not facts.cdr3s_are_junctions:
        rows = _complete_junctions(rows, genes, loci)
    residues = encode_letters(rows.sequences.letters)
    reason = find_drop_reasons(rows, residues, min_length=cleaning.min_length, max_length=cleaning.max_length)
    is_receptor = reason == KEPT
    if cleaning.locus is not None:
        others = [code for code, name in enumerate(loci.vocabulary) if name not in ("", cleaning.locus)]
        reason[np.isin(loci.codes, others)] = OTHER_LOCUS
    return _ExaminedRows(rows, residues, reason, genes, is_receptor, loci)


def _find_loci(rows: RawRows) -> Categorical:
    """Return the locus of each row; "" is an unknown one.

    The first locus that is known counts: that of the locus column, of the J gene, of the V gene. The J gene comes
    before the V gene because TRA and TRD share V genes.
    """
    code_of = {"": 0}
    codes = np.zeros(len(rows), np.int32)
    for column, find_locus in ((rows.locus, normalise_locus), (rows.j_call, infer_locus), (rows.v_call, infer_locus)):
        if column is not None and column.vocabulary:
            code_of_value = extend_vocabulary(code_of, map(find_locus, column.vocabulary)).astype(np.int32)
            codes = np.where(codes == 0, code_of_value[column.codes], codes)
    return Categorical(codes, tuple(code_of))


def _complete_junctions(rows: RawRows, genes: dict[str, GeneMapping], loci: Categorical) -> RawRows:
    """Return the rows with CDR3s completed to junctions by the conserved residues, see `clean`."""
    lengths = rows.sequences.lengths
    is_cdr3 = (rows.kinds == SequenceKind.CDR3_AA) & (lengths > 0)
    if not is_cdr3.any():
        return rows
    ends = np.array([ord("W" if locus == "IGH" else "F") for locus in loci.vocabulary], np.uint8)[loci.codes]
    if rows.j_call is not None and rows.j_call.vocabulary:
        stored = genes["j_call"].stored
        letter_of_gene = np.array([ord(_LAST_RESIDUES.get(name, "\0")) for name in stored.vocabulary], np.uint8)
        last_residues = letter_of_gene[stored.codes][rows.j_call.codes]
        ends = np.where(last_residues > 0, last_residues, ends)
    offsets = compute_offsets(lengths + 2 * is_cdr3)
    first, last = offsets[:-1][is_cdr3], offsets[1:][is_cdr3] - 1
    from_file = np.ones(offsets[-1], bool)
    from_file[first] = from_file[last] = False
    letters = np.empty(offsets[-1], np.uint8)
    letters[from_file] = rows.sequences.letters
    letters[first] = _C
    letters[last] = ends[is_cdr3]
    return replace(rows, sequences=RawTexts(letters, offsets))


def _merge_equal_rows(examined: _ExaminedRows, merge: Merge) -> tuple[Sequences, int]:
    """Return the kept rows as sequences, and the number of those whose sum of counts is too large to be stored."""
    rows, kept = examined.rows, examined.kept
    all_sequences = Sequences(examined.residues, rows.sequences.offsets, rows.counts)
    genes = {}
    for name, column in rows.genes.items():
        calls = _normalise_gene_calls(column, examined.genes[name], kept)
        if calls is not None:
            genes[name] = calls
    counts: NDArray[Any] = rows.counts[kept] if rows.cell is None else np.ones(len(kept), np.int64)
    first = np.arange(len(kept))  # of the rows of each sequence, as an index in `kept`
    if merge != "none" and len(kept):
        by: list[NDArray[Any]] = [calls.codes for calls in genes.values()] if merge == "genes" else []
        if rows.cell is not None:  # a cell counts once, however many rows it has
            first_in_cell, _ = group_rows(all_sequences, kept, [*by, _encode_cells(rows.cell, kept)], counts)
            counts = np.zeros(len(kept), np.int64)
            counts[first_in_cell] = 1
        first, counts = group_rows(all_sequences, kept, by, counts)
    merged = replace(all_sequences.take(kept[first]), counts=np.minimum(counts, _MAX_COUNT).astype(np.uint32))
    sequences = merged.with_genes({name: calls.take(first) for name, calls in genes.items()})
    return sequences, int((counts > _MAX_COUNT).sum())


def _encode_cells(column: Categorical, kept: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a code of each kept row's cell, (n,), not negative; a row without a name of a cell is one of its own."""
    codes = column.codes[kept].astype(np.int64)
    unnamed = np.array([not name for name in column.vocabulary], bool)[codes]
    return np.where(unnamed, len(column.vocabulary) + np.arange(len(codes)), codes)


def _normalise_gene_calls(column: Categorical, mapping: GeneMapping, kept: NDArray[np.int64]) -> Categorical | None:
    """Return the gene names of the kept rows; None if none of them has a name."""
    if not mapping.stored.vocabulary:
        return None
    calls = mapping.stored.take(column.codes[kept]).drop_unused()
    if not any(calls.vocabulary):
        return None
    if len(calls.vocabulary) > _MAX_GENES:
        raise _make_too_many_genes_error()
    return Categorical(calls.codes.astype(np.uint16), calls.vocabulary)


def _make_too_many_genes_error() -> InputError:
    return InputError(f"a column of genes has more than {_MAX_GENES:,} different names; does it really hold genes?")


def _count_names(names: Sequence[str], codes: NDArray[np.integer[Any]]) -> dict[str, int]:
    return {name: n for name, n in zip(names, np.bincount(codes, minlength=len(names)).tolist(), strict=True) if n}
