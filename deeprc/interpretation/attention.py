"""Attention as tables: per sequence, with AIRR field names, and per head, how many sequences it averages over.

Letters: N sequences of one repertoire, H heads, T outputs.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as arrow_csv
import torch
from numpy.typing import NDArray

from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.files import check_table_output, write_atomically, write_text
from deeprc.hopfield.analysis import HeadSummary, metastable_sizes, operating_class, summarise_heads
from deeprc.interpretation.contributions import Attended, SequenceScores, attended, scores_at
from deeprc.interpretation.ranking import BestRows, ranking_of
from deeprc.nn.batch import Collator
from deeprc.nn.inference import groups_of_small
from deeprc.outputs import output_names
from deeprc.runs.run import Run

__all__ = [
    "HEADS_COLUMNS",
    "AttentionSummary",
    "RepertoireAttention",
    "attention_of",
    "attention_table",
    "best_sequences",
    "check_attention_outputs",
    "heads_path",
    "iterate_attention",
    "write_attention",
]

Columns = dict[str, NDArray[Any]]

HEADS_COLUMNS = ["repertoire_id", "head", "n_sequences", "metastable_size", "operating_class"]

_PIECE = 1 << 17  # sequences in work at a time, whatever the size of a repertoire
_TABLES = 512  # of small repertoires, that are written together
_GZIP_LEVEL = 4  # of level 9's size within a tenth, in a third of its time

# What AIRR Rearrangement files must have; empty, because containers do not hold it
_REQUIRED = (
    *("v_call", "j_call", "sequence", "rev_comp", "productive", "d_call", "sequence_alignment", "germline_alignment"),
    *("junction", "v_cigar", "d_cigar", "j_cigar"),
)


@dataclass(frozen=True)
class RepertoireAttention:
    """The attention on one repertoire, from `attention_of`.

    Attributes
    ----------
    repertoire
        Its sequences.
    scores
        Attention and contributions of the n sequences that the table is to have.
    outputs
        The names of the T outputs.
    rows
        Positions of these n in the repertoire, in the table's order, (n,).
    rank
        The place of each of the n among all sequences of the repertoire by its weight, (n,), from 1.
    head_ranks
        The same by the weight of each head, (n, H).
    sizes
        Over how many of all sequences each head averages, (H,); see `heads`.
    """

    repertoire: Repertoire
    scores: SequenceScores
    outputs: list[str]
    rows: NDArray[np.int64]
    rank: NDArray[np.int64]
    head_ranks: NDArray[np.int64]
    sizes: list[int]

    @property
    def sequences(self) -> pd.DataFrame:
        """The table of `attention_table`."""
        return self.frame(np.arange(len(self.rows)))

    def pieces(self) -> Iterator[Columns]:
        """Yield the table in parts whose size does not depend on the repertoire's; one, if it is empty."""
        for start in range(0, max(len(self.rows), 1), _PIECE):
            yield self.columns(np.arange(start, min(start + _PIECE, len(self.rows))))

    def frame(self, rows: NDArray[np.int64]) -> pd.DataFrame:
        """Return the table of some of the n sequences, by their places among these."""
        return pd.DataFrame(self.columns(rows))

    def columns(self, rows: NDArray[np.int64]) -> Columns:
        """Return the columns of the table of some of the n sequences, by their places among these."""
        scores, n_heads = self.scores, self.scores.logits.shape[1]
        columns: Columns = {
            **self.repertoire.columns(self.rows[rows]),
            "attention_weight": scores.weight[rows],
            "attention_rank": self.rank[rows],
            "attention_logit": scores.logit[rows],
            "head": scores.head[rows],
        }
        for t, name in enumerate(self.outputs):
            ending = "" if len(self.outputs) == 1 else f"_{name}"
            columns["contribution" + ending] = scores.contributions[rows, t]
            columns["response" + ending] = scores.responses[rows, t]
        if n_heads > 1:
            for head in range(n_heads):
                columns[f"attention_weight_{head + 1}"] = scores.weights[rows, head]
                columns[f"attention_rank_{head + 1}"] = self.head_ranks[rows, head]
                columns[f"attention_logit_{head + 1}"] = scores.logits[rows, head]
        return columns

    @property
    def heads(self) -> pd.DataFrame:
        """The rows of `head_rows` as a table."""
        return pd.DataFrame(self.head_rows, columns=HEADS_COLUMNS)

    @property
    def head_rows(self) -> list[tuple[str, int, int, int, str]]:
        """One row per head.

        repertoire_id, head (from 1), n_sequences, metastable_size (over how many sequences the head averages: the
        smallest number whose weights sum to 0.90), operating_class (I to IV, from averaging over more than half of the
        sequences to at most a thirty-second; empty for a repertoire without sequences).
        """
        name, N = self.scores.repertoire_id, len(self.repertoire)
        return [
            (name, head, N, size, operating_class(size, N) if N else "")
            for head, size in enumerate(self.sizes, start=1)
        ]


class _Ranked(NamedTuple):
    """The sequences that a table is to have, and their ranks; see `RepertoireAttention`."""

    rows: NDArray[np.int64]
    rank: NDArray[np.int64]
    head_ranks: NDArray[np.int64]


class AttentionSummary(NamedTuple):
    """What `write_attention` wrote.

    Attributes
    ----------
    n_sequences
        Rows in the table of sequences.
    heads
        A summary of each head over all repertoires; empty if no repertoire has a sequence.
    """

    n_sequences: int
    heads: list[HeadSummary]


def attention_table(run: Run, dataset: RepertoireDataset, position: int, *, top: int | None = None) -> pd.DataFrame:
    """Return the attention on the sequences of one repertoire.

    Parameters
    ----------
    run
        A trained model.
    dataset, position
        The repertoire is `dataset[position]`.
    top
        Keep this many sequences of the highest weight, in that order; None keeps all, in the file's order.

    Returns
    -------
    AIRR columns (repertoire_id, sequence_id, junction_aa, duplicate_count, v_call and j_call where known), then
    attention_weight, by which the prediction averages: it sums to 1 over the repertoire, and is 0 for sequences that
    `top_fraction` leaves out; attention_rank, from 1; attention_logit, which unlike the weight can be compared between
    repertoires; head, the one that looks at the sequence most, from 1; and contribution, what the sequence adds to the
    output before its activation (for a binary target the log-odds of the positive class), and response, what the output
    would be if all attention were on it, see `deeprc.interpretation.contributions`; contribution_NAME and
    response_NAME where there are several outputs. With several heads the
    first three are given per head too (attention_weight_1, ...); attention_weight is then the heads' mean, by which
    attention_rank ranks, and attention_logit the highest of the heads'.
    """
    return attention_of(run, dataset, position, top=top).sequences


def attention_of(run: Run, dataset: RepertoireDataset, position: int, *, top: int | None = None) -> RepertoireAttention:
    """Return the attention on one repertoire's sequences, and what each head does with them all.

    The parameters are those of `attention_table`; `top` concerns the sequences that are kept, not the heads' sizes.
    """
    return next(iterate_attention(run, dataset, [position], top=top))


def _attention_of(run: Run, collator: Collator, positions: Sequence[int], top: int | None) -> list[RepertoireAttention]:
    """Return the attention on repertoires whose sequences fit into one chunk, or on one of any size."""
    network, fraction = run.network, run.settings.config.training.averaged_fraction
    repertoires = [collator.dataset[position] for position in positions]
    attention = list(attended(network, collator, positions, top_fraction=fraction))
    for repertoire, each in zip(repertoires, attention, strict=True):
        for numbers in (each.weights, each.logits):
            run.check_finite(numbers.numpy(), repertoire.repertoire_id)
    ranked = [_ranked(each, top) for each in attention]
    scores = scores_at(network, collator, positions, attention, [None if top is None else each.rows for each in ranked])
    outputs = output_names(run.tasks)
    found = []
    for repertoire, each, own, places in zip(repertoires, attention, scores, ranked, strict=True):
        sizes = metastable_sizes(each.weights, dim=0, overwrite=top is not None)  # the scores have copies
        found.append(RepertoireAttention(repertoire, own, outputs, *places, sizes.tolist()))
    return found


def _ranked(attention: Attended, top: int | None) -> _Ranked:
    weights, logits = attention.weights.numpy(), attention.logits.numpy()
    weight = weights[:, 0] if weights.shape[1] == 1 else weights.mean(axis=1)
    logit = logits[:, 0] if logits.shape[1] == 1 else logits.max(axis=1, initial=-np.inf)
    if top is None:
        rows, rank = np.arange(len(weight)), _ranks(weight, logit)
    else:
        rows = _best_rows(weight, logit, top)
        rank = np.arange(1, len(rows) + 1)
    head_ranks = rank[:, None]
    if weights.shape[1] > 1:
        heads = zip(weights.T, logits.T, strict=True)
        head_ranks = np.stack([_ranks(weight, logit)[rows] for weight, logit in heads], axis=1)
    return _Ranked(rows, rank, head_ranks)


def _best_rows(weight: NDArray[np.float64], logit: NDArray[np.float32], n: int) -> NDArray[np.int64]:
    """Return the rows that `_ranks` ranks first, in its order, without sorting all: (min(n, N),)."""
    best = np.zeros(0, np.int64)
    for start in range(0, len(weight), max(_PIECE, n)):
        piece = np.arange(start, min(start + max(_PIECE, n), len(weight)))
        if len(best) == n:
            piece = piece[weight[piece] >= weight[best[-1]]]
        candidates = np.concatenate([best, piece])  # of equal ones the first comes first
        best = candidates[np.lexsort((-logit[candidates], -weight[candidates]))[:n]]
    return best


def _ranks(weight: NDArray[np.float64], logit: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the place of each sequence from 1; weights that underflow to equal values keep their logits' order."""
    order = np.lexsort((-logit, -weight))  # a stable sort: of equal ones the first comes first
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(1, len(order) + 1)
    return rank


def iterate_attention(
    run: Run, dataset: RepertoireDataset, positions: Iterable[int] | None = None, *, top: int | None = None
) -> Iterator[RepertoireAttention]:
    """Yield `attention_of` one repertoire after the other; small ones that follow each other share their work."""
    collator = run.collator(dataset)
    for group in groups_of_small(run.network, collator, range(len(dataset)) if positions is None else positions):
        yield from _attention_of(run, collator, group, top)


def best_sequences(
    attention: Iterable[RepertoireAttention], most: int, *, by: str = "attention", output: int = 0, sign: int = 1
) -> pd.DataFrame:
    """Return the sequences that rank highest over all repertoires, the best first, as `attention_table` does.

    Parameters
    ----------
    attention
        Of the repertoires; each is looked at once.
    most
        How many sequences.
    by, output, sign
        See `deeprc.interpretation.ranking.ranking_of`.
    """
    best = BestRows(most)
    for one in attention:
        best.offer(ranking_of(one.scores, by, output=output, sign=sign), one.frame)
    return best.table()


def heads_path(path: str | os.PathLike[str]) -> Path:
    """Return where the table of heads goes, beside that of sequences: attention.tsv.gz gives attention.heads.tsv."""
    name = Path(path).name
    for ending in (".gz", ".tsv", ".txt", ".csv"):
        name = name.removesuffix(ending)
    return Path(path).with_name(f"{name}.heads.tsv")


def check_attention_outputs(path: str | os.PathLike[str]) -> None:
    """Refuse a path at which `write_attention` cannot write; see `deeprc.files.check_table_output`."""
    check_table_output(Path(path), ["repertoire_id", "junction_aa", "attention_weight", "attention_rank"])
    check_table_output(heads_path(path), HEADS_COLUMNS)


def write_attention(
    path: str | os.PathLike[str],
    attention: Iterable[RepertoireAttention],
    *,
    most: int | None = None,
    by: str = "attention",
    output: int = 0,
    sign: int = 1,
) -> AttentionSummary:
    """Write the sequences of all repertoires as TSV (gzip if the name ends in .gz), and the heads to `heads_path`.

    Both are written aside first, then renamed. The table of sequences is an AIRR Rearrangement file: the fields that
    the standard requires and containers do not hold are there, and empty. Memory does not grow with the number of
    repertoires.

    Parameters
    ----------
    path
        The file.
    attention
        Of the repertoires, in the order of the file.
    most, by, output, sign
        Write only the sequences that rank highest over all repertoires, the best first; see `best_sequences`.
    """
    target = Path(path)
    heads: list[tuple[str, int, int, int, str]] = []
    with write_atomically(target) as aside:
        with _TableWriter(aside, compress=target.suffix == ".gz") as table:
            seen = _noting(attention, heads)
            if most is None:
                for frame in _together(piece for one in seen for piece in one.pieces()):
                    table.write(frame)
            else:
                table.write(best_sequences(seen, most, by=by, output=output, sign=sign))
        all_heads = pd.DataFrame(heads, columns=HEADS_COLUMNS)
        write_text(heads_path(target), all_heads.to_csv(sep="\t", index=False))
    return AttentionSummary(table.n_rows, _summary(all_heads))


def _together(pieces: Iterable[Columns]) -> Iterator[pd.DataFrame]:
    """Yield small tables that follow each other as one: to make a table takes its time, however short it is."""
    some: list[Columns] = []
    n = 0
    for columns in pieces:
        some.append(columns)
        n += len(columns["sequence_id"])
        if n >= _PIECE or len(some) == _TABLES:
            yield _joined(some)
            some, n = [], 0
    if some:
        yield _joined(some)


def _joined(tables: Sequence[Columns]) -> pd.DataFrame:
    return pd.DataFrame({name: np.concatenate([columns[name] for columns in tables]) for name in tables[0]})


def _noting(
    attention: Iterable[RepertoireAttention], heads: list[tuple[str, int, int, int, str]]
) -> Iterator[RepertoireAttention]:
    for one in attention:
        heads += one.head_rows
        yield one


class _TableWriter:
    """Writes tables of the same columns one after the other as one AIRR Rearrangement file."""

    def __init__(self, path: Path, *, compress: bool) -> None:
        self.n_rows, self._begun = 0, False
        self._path, self._compress = path, compress
        self._stack = ExitStack()
        self._file: IO[bytes] | None = None

    def __enter__(self) -> _TableWriter:
        file = self._stack.enter_context(open(self._path, "wb"))  # the stack closes it
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
        whole = frame.assign(**{name: "" for name in _REQUIRED if name not in frame})
        if not self._begun:
            self._file.write(("\t".join(whole.columns) + "\n").encode())
            self._begun = True
        self.n_rows += len(whole)
        if len(whole) == 0:
            return
        floats = whole.select_dtypes("float64").columns
        table = pa.Table.from_pandas(whole.astype(dict.fromkeys(floats, np.float32)), preserve_index=False)
        try:
            self._file.write(_tsv(table, "none"))
        except pa.ArrowInvalid:  # an id with a quotation mark, say
            self._file.write(_tsv(table, "needed"))


def _tsv(table: pa.Table, quoting: str) -> pa.Buffer:
    options = arrow_csv.WriteOptions(include_header=False, delimiter="\t", quoting_style=quoting)
    text = pa.BufferOutputStream()
    arrow_csv.write_csv(table, text, options)
    return text.getvalue()


def _summary(heads: pd.DataFrame) -> list[HeadSummary]:
    occupied = heads[heads["n_sequences"] > 0]
    if occupied.empty:
        return []
    n_heads = int(occupied["head"].max())
    sizes = torch.tensor(occupied["metastable_size"].to_numpy(np.int64)).view(-1, n_heads)
    n_sequences = torch.tensor(occupied["n_sequences"].to_numpy(np.int64)).view(-1, n_heads)[:, 0]
    return summarise_heads(sizes, n_sequences)
