"""Files of `deeprc attention`: a table of sequences, which is an AIRR Rearrangement file, and a table of heads."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import torch

from deeprc.datasets.airr_tables import add_required_fields, format_tsv
from deeprc.files import check_table_output, write_atomically, write_text
from deeprc.hopfield.analysis import HeadSummary, summarise_heads
from deeprc.interpretation.attention import HEADS_COLUMNS, PIECE, HeadRow, RepertoireAttention
from deeprc.interpretation.cohort_ranking import best_sequences
from deeprc.interpretation.column_tables import Columns, concatenate_columns
from deeprc.interpretation.false_sequences import FalseDiscoveryReference
from deeprc.interpretation.ranking import BY_ATTENTION, Ranking

__all__ = ["AttentionSummary", "check_attention_outputs", "make_heads_path", "write_attention"]

_TABLES = 512  # number of tables of small repertoires that are written together
_GZIP_LEVEL = 4  # a file is at most a tenth larger than with level 9, and takes a third of the time


class AttentionSummary(NamedTuple):
    """Summary of the files that `write_attention` wrote.

    Attributes
    ----------
    n_sequences
        Number of rows in the table of sequences.
    heads
        Summary of each head over all repertoires; empty if no repertoire has a sequence.
    """

    n_sequences: int
    heads: list[HeadSummary]


def make_heads_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of the table of heads, beside that of sequences: attention.tsv.gz gives attention.heads.tsv."""
    name = Path(path).name
    for ending in (".gz", ".tsv", ".txt", ".csv"):
        name = name.removesuffix(ending)
    return Path(path).with_name(f"{name}.heads.tsv")


def check_attention_outputs(path: str | os.PathLike[str]) -> None:
    """Raise InputError if `write_attention` cannot write to a path; see `deeprc.files.check_table_output`."""
    check_table_output(Path(path), ["repertoire_id", "junction_aa", "attention_weight", "attention_rank"])
    check_table_output(make_heads_path(path), HEADS_COLUMNS)


def write_attention(
    path: str | os.PathLike[str],
    attention: Iterable[RepertoireAttention],
    *,
    max_sequences: int | None = None,
    ranking: Ranking = BY_ATTENTION,
    reference: FalseDiscoveryReference | None = None,
) -> AttentionSummary:
    """Write the sequences of all repertoires as TSV (gzip if the name ends in .gz), and the heads to `make_heads_path`.

    Both files are written under temporary names first. The table of sequences is an AIRR Rearrangement file: fields
    that the standard requires but containers do not have are empty. Memory does not grow with the number of
    repertoires.

    Parameters
    ----------
    path
        Path of the table of sequences.
    attention
        Attention on each repertoire, in the order of the file.
    max_sequences, ranking, reference
        If `max_sequences` is given, only so many sequences with the highest rank over all repertoires are written, best
        first; see `best_sequences`.
    """
    target = Path(path)
    heads: list[HeadRow] = []
    attention = _collect_head_rows(attention, heads)
    with write_atomically(target) as temporary_path:
        with _TableWriter(temporary_path, compress=target.suffix == ".gz") as table:
            if max_sequences is not None:
                table.write(best_sequences(attention, max_sequences, ranking, reference=reference))
            else:
                for frame in _iterate_tables(attention):
                    table.write(frame)
        all_heads = pd.DataFrame(heads, columns=HEADS_COLUMNS)
        write_text(make_heads_path(target), all_heads.to_csv(sep="\t", index=False))
    return AttentionSummary(table.n_rows, _summarise_heads_table(all_heads))


def _collect_head_rows(attention: Iterable[RepertoireAttention], heads: list[HeadRow]) -> Iterator[RepertoireAttention]:
    """Yield the attention of each repertoire unchanged, and add the rows of its heads to the list `heads`."""
    for repertoire_attention in attention:
        heads += repertoire_attention.head_rows
        yield repertoire_attention


def _iterate_tables(attention: Iterable[RepertoireAttention]) -> Iterator[pd.DataFrame]:
    """Yield tables of all sequences, in the order of the repertoires.

    Small tables are joined, because to make a data frame takes time, however short it is.
    """
    waiting: list[Columns] = []
    n = 0
    for columns in chain.from_iterable(each.iterate_pieces() for each in attention):
        waiting.append(columns)
        n += len(columns["sequence_id"])
        if n >= PIECE or len(waiting) == _TABLES:
            yield pd.DataFrame(concatenate_columns(waiting))
            waiting, n = [], 0
    if waiting:
        yield pd.DataFrame(concatenate_columns(waiting))


class _TableWriter:
    """A writer of tables with the same columns, one after the other, to one AIRR Rearrangement file."""

    def __init__(self, path: Path, *, compress: bool) -> None:
        self.n_rows, self._begun = 0, False
        self._path, self._compress = path, compress
        self._stack = ExitStack()
        self._file: IO[bytes] | None = None

    def __enter__(self) -> _TableWriter:
        file = self._stack.enter_context(open(self._path, "wb"))  # closed by the stack
        if self._compress:
            packed = gzip.GzipFile(filename="", mode="wb", compresslevel=_GZIP_LEVEL, fileobj=file, mtime=0)
            self._file = cast(IO[bytes], self._stack.enter_context(packed))
        else:
            self._file = file
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def write(self, frame: pd.DataFrame) -> None:
        assert self._file is not None
        floats = frame.select_dtypes("float64").columns
        table = pa.Table.from_pandas(frame.astype(dict.fromkeys(floats, np.float32)), preserve_index=False)
        self._file.write(format_tsv(add_required_fields(table), has_header=not self._begun))
        self._begun = True
        self.n_rows += len(frame)


def _summarise_heads_table(heads: pd.DataFrame) -> list[HeadSummary]:
    occupied = heads[heads["n_sequences"] > 0]
    if occupied.empty:
        return []
    n_heads = int(occupied["head"].max())
    sizes = torch.tensor(occupied["metastable_size"].to_numpy(np.int64)).view(-1, n_heads)
    n_sequences = torch.tensor(occupied["n_sequences"].to_numpy(np.int64)).view(-1, n_heads)[:, 0]
    return summarise_heads(sizes, n_sequences)
