"""Per-sequence attention as a table with AIRR field names.

Letters: N sequences of one repertoire, H heads.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.evaluation.run import Run
from deeprc.files import write_aside
from deeprc.nn.inference import attention_logits

__all__ = ["attention_table", "iterate_attention", "write_attention"]


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
    return frame


def _ranks(weight: Tensor, logits: Tensor) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the place of each sequence from 1; weights that underflow to equal values keep their logits' order."""
    order = np.lexsort((np.arange(len(weight)), -logits.amax(dim=1).numpy(), -weight.numpy()))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(1, len(order) + 1)
    return rank


def iterate_attention(
    run: Run, dataset: RepertoireDataset, positions: Iterable[int] | None = None, *, top: int | None = None
) -> Iterator[pd.DataFrame]:
    """Yield `attention_table` of one repertoire after the other."""
    for position in range(len(dataset)) if positions is None else positions:
        yield attention_table(run, dataset, position, top=top)


def write_attention(path: str | os.PathLike[str], tables: Iterable[pd.DataFrame]) -> int:
    """Write tables below each other as TSV (gzip if the name ends in .gz), aside first, then renamed.

    Returns
    -------
    The number of rows written.
    """
    target, n = Path(path), 0
    opener = gzip.open if target.suffix == ".gz" else open
    with write_aside(target) as aside, opener(aside, "wt", encoding="utf-8") as file:
        for number, table in enumerate(tables):
            table.to_csv(file, sep="\t", index=False, header=number == 0, float_format="%.9g")
            n += len(table)
    return n
