"""Attention as tables: per sequence, with AIRR field names, and per head, how many sequences it averages over.

Letters: N sequences of one repertoire, H heads.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.evaluation.run import Run
from deeprc.files import check_table_output, write_aside
from deeprc.hopfield.analysis import HeadSummary, metastable_sizes, operating_class, summarise_heads
from deeprc.nn.inference import attention_logits

__all__ = [
    "AttentionSummary",
    "RepertoireAttention",
    "attention_of",
    "attention_table",
    "check_attention_outputs",
    "heads_path",
    "iterate_attention",
    "write_attention",
]

_HEADS_COLUMNS = ["repertoire_id", "head", "n_sequences", "metastable_size", "operating_class"]


class RepertoireAttention(NamedTuple):
    """The attention on one repertoire, from `attention_of`.

    Attributes
    ----------
    sequences
        See `attention_table`.
    heads
        One row per head: repertoire_id, head (from 1), n_sequences, metastable_size (over how many sequences the head
        averages: the smallest number whose weights sum to 0.90), operating_class (I to IV, from averaging over more
        than half of the sequences to at most a thirty-second; empty for a repertoire without sequences).
    """

    sequences: pd.DataFrame
    heads: pd.DataFrame


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
    attention_weight, the softmax over the whole repertoire, which sums to 1; attention_rank, from 1; and
    attention_logit, which unlike the weight can be compared between repertoires. With several heads the three are
    given per head too (attention_weight_1, ...); attention_weight is then the heads' mean, by which attention_rank
    ranks, and attention_logit the highest of the heads'.
    """
    return attention_of(run, dataset, position, top=top).sequences


def attention_of(run: Run, dataset: RepertoireDataset, position: int, *, top: int | None = None) -> RepertoireAttention:
    """Return the attention on one repertoire's sequences, and what each head does with them all.

    The parameters are those of `attention_table`; `top` concerns the sequences that are kept, not the heads' sizes.
    """
    logits = attention_logits(run.network, run.maker(dataset), position)  # (N, H)
    per_head = torch.softmax(logits.double(), dim=0)  # (N, H)
    weight = per_head.mean(dim=1)
    rank = _ranks(weight, logits)
    rows = np.arange(len(rank)) if top is None else np.argsort(rank, kind="stable")[:top]
    frame = dataset[position].to_frame(rows)
    frame["attention_weight"] = weight.numpy()[rows]
    frame["attention_rank"] = rank[rows]
    frame["attention_logit"] = logits.amax(dim=1).numpy()[rows]
    if logits.shape[1] > 1:
        for head in range(logits.shape[1]):
            frame[f"attention_weight_{head + 1}"] = per_head[:, head].numpy()[rows]
            frame[f"attention_rank_{head + 1}"] = _ranks(per_head[:, head], logits[:, head : head + 1])[rows]
            frame[f"attention_logit_{head + 1}"] = logits[:, head].numpy()[rows]
    return RepertoireAttention(frame, _heads_table(str(dataset.repertoire_ids[position]), per_head))


def _heads_table(repertoire_id: str, per_head: Tensor) -> pd.DataFrame:
    N, H = per_head.shape
    sizes = metastable_sizes(per_head, dim=0).tolist()
    return pd.DataFrame(
        {
            "repertoire_id": repertoire_id,
            "head": np.arange(1, H + 1),
            "n_sequences": N,
            "metastable_size": sizes,
            "operating_class": [operating_class(size, N) if N else "" for size in sizes],
        },
        columns=_HEADS_COLUMNS,
    )


def _ranks(weight: Tensor, logits: Tensor) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the place of each sequence from 1; weights that underflow to equal values keep their logits' order."""
    order = np.lexsort((np.arange(len(weight)), -logits.amax(dim=1).numpy(), -weight.numpy()))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(1, len(order) + 1)
    return rank


def iterate_attention(
    run: Run, dataset: RepertoireDataset, positions: Iterable[int] | None = None, *, top: int | None = None
) -> Iterator[RepertoireAttention]:
    """Yield `attention_of` one repertoire after the other."""
    for position in range(len(dataset)) if positions is None else positions:
        yield attention_of(run, dataset, position, top=top)


def heads_path(path: str | os.PathLike[str]) -> Path:
    """Return where the table of heads goes, beside that of sequences: attention.tsv.gz gives attention.heads.tsv."""
    name = Path(path).name
    for ending in (".gz", ".tsv", ".txt", ".csv"):
        name = name.removesuffix(ending)
    return Path(path).with_name(f"{name}.heads.tsv")


def check_attention_outputs(path: str | os.PathLike[str]) -> None:
    """Refuse a path at which `write_attention` cannot write; see `deeprc.files.check_table_output`."""
    check_table_output(Path(path), ["repertoire_id", "junction_aa", "attention_weight", "attention_rank"])
    check_table_output(heads_path(path), _HEADS_COLUMNS)


def write_attention(path: str | os.PathLike[str], attention: Iterable[RepertoireAttention]) -> AttentionSummary:
    """Write the sequences of all repertoires as TSV (gzip if the name ends in .gz), and the heads to `heads_path`.

    Both are written aside first, then renamed.
    """
    target, n = Path(path), 0
    opener = gzip.open if target.suffix == ".gz" else open
    heads = []
    with write_aside(target) as aside, write_aside(heads_path(target)) as heads_aside:
        with opener(aside, "wt", encoding="utf-8") as file:
            for number, one in enumerate(attention):
                one.sequences.to_csv(file, sep="\t", index=False, header=number == 0, float_format="%.9g")
                n += len(one.sequences)
                heads.append(one.heads)
        table = pd.concat(heads) if heads else pd.DataFrame(columns=_HEADS_COLUMNS)
        table.to_csv(heads_aside, sep="\t", index=False)
    occupied = table[table["n_sequences"] > 0]
    if occupied.empty:
        return AttentionSummary(n, [])
    n_heads = int(occupied["head"].max())
    sizes = torch.tensor(occupied["metastable_size"].to_numpy(np.int64)).view(-1, n_heads)
    n_sequences = torch.tensor(occupied["n_sequences"].to_numpy(np.int64)).view(-1, n_heads)[:, 0]
    return AttentionSummary(n, summarise_heads(sizes, n_sequences))
