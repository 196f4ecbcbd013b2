"""Read the real sequences of a background: from a container, a repertoire file of any format, or a plain list."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from deeprc.datasets.alphabet import INVALID, compute_offsets, encode_letters
from deeprc.datasets.cleaning import Cleaning, clean, examine_file
from deeprc.datasets.readers import NoTableError, match_reader, read_header, read_rows
from deeprc.datasets.readers.columns import read_columns
from deeprc.datasets.readers.layout import Header
from deeprc.datasets.readers.row_search import find_row_number
from deeprc.datasets.sequences import Sequences
from deeprc.errors import InputError

__all__ = ["read_source"]

_LONGEST = 40
_SHOWN = 40
_HEADINGS = {
    "aa",
    "aa_seq",
    "aaseq",
    "amino_acid",
    "cdr",
    "cdr3",
    "cdr3aa",
    "chain",
    "id",
    "name",
    "peptide",
    "read",
    "sample",
    "seq",
    "tcr",
}
"""Words that the first line of a list may hold, in any case; SEQ, for example, could be read as a sequence."""


def read_source(path: Path, *, longest: int = _LONGEST) -> Sequences:
    """Read the productive sequences of a file.

    Parameters
    ----------
    path
        Path of a container, whose repertoires are pooled; of a repertoire file of a known format; or of a list of
        sequences, one in each line. In such a list, a first line such as `SEQ` or `cdr3` is left out.
    longest
        Largest number of residues; longer sequences are left out.

    Raises
    ------
    InputError
        If the file cannot be read, or a list holds something that is not a sequence.
    """
    from deeprc.datasets.container import is_container

    if path.is_file() and is_container(path):
        return _count_once(_read_container(path, longest))
    header = read_header(path)
    if len(header.columns) == 1 and (_is_heading(header.columns[0]) or _is_sequence(header.columns[0])):
        return _read_list(header, longest)
    try:
        layout = match_reader(header).layout
    except NoTableError:
        raise InputError(
            f"{path}: expected a container, a repertoire file of a known format, or a list of sequences, one in each "
            f"line; the first line begins with {header.columns[0][:_SHOWN]!r}"
        ) from None
    rows = read_rows(header, layout)
    cleaned = clean(rows, Cleaning(max_length=longest, merge="none"), examine_file(rows, path))
    chains = sorted(filter(None, cleaned.loci))
    if len(chains) > 1:
        raise InputError(f"{path}: expected sequences of one chain as the background, found {', '.join(chains)}")
    return _count_once(cleaned.sequences)


def _count_once(sequences: Sequences) -> Sequences:
    """Return sequences with the count 1 each."""
    return Sequences.counted_once(sequences.residues, sequences.offsets).with_genes(sequences.genes)


def _read_container(path: Path, longest: int) -> Sequences:
    """Return the sequences of all repertoires of a container that are not too long."""
    from deeprc.datasets.linked_container import LinkedContainer, open_container

    container = open_container(path)
    if isinstance(container, LinkedContainer):
        sequences = container.take(np.arange(container.repertoire_offsets[-1]))
    else:
        sequences = container.sequences
    is_kept = sequences.lengths <= longest
    return sequences if is_kept.all() else sequences.take(np.flatnonzero(is_kept))


def _is_heading(text: str) -> bool:
    return text.casefold() in _HEADINGS


def _is_sequence(text: str) -> bool:
    return text.isascii() and text.isupper() and INVALID not in encode_letters(np.frombuffer(text.encode(), np.uint8))


def _read_list(header: Header, longest: int) -> Sequences:
    """Return the sequences of a plain list, whose first line is a sequence, too, unless it is a heading."""
    first = np.frombuffer(b"" if _is_heading(header.columns[0]) else header.columns[0].encode(), np.uint8)
    texts = read_columns(header, header.columns, ())[0][header.columns[0]]
    lengths = np.concatenate([[len(first)], np.diff(texts.offsets)])
    residues = encode_letters(np.concatenate([first, texts.letters]))
    wrong = np.flatnonzero(residues == INVALID)
    if len(wrong):
        row = int(np.searchsorted(np.cumsum(lengths), wrong[0], side="right"))
        text = texts.get_bytes(row - 1).decode("latin-1")
        row_number = find_row_number(header, row - 1)
        raise InputError(f"{header.path}: row {row_number}: expected an amino-acid sequence, found {text!r}")
    is_kept = (lengths > 0) & (lengths <= longest)
    return Sequences.counted_once(residues[np.repeat(is_kept, lengths)], compute_offsets(lengths[is_kept]))
