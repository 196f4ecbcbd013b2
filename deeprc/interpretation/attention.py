"""Attention as tables: a table of sequences, with AIRR field names, and a table of heads.

Letters: N sequences of one repertoire, H heads, T outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.errors import InputError
from deeprc.hopfield.analysis import metastable_sizes, operating_class
from deeprc.interpretation.column_tables import Columns
from deeprc.interpretation.false_sequences import HeldOutSequences, HighestScores
from deeprc.interpretation.ranking import BY_ATTENTION, BestRows, Ranking
from deeprc.nn.contributions import Attended, SequenceScores, iterate_attended, mean_logit, mean_weight, score_rows
from deeprc.nn.inference import Inference
from deeprc.outputs import output_names
from deeprc.progress import open_step
from deeprc.training.model import Model

__all__ = [
    "HEADS_COLUMNS",
    "PIECE",
    "Columns",
    "RepertoireAttention",
    "attention_table",
    "best_sequences",
    "choose_default_ranking",
    "compute_attention",
    "iterate_attention",
]

HEADS_COLUMNS = ["repertoire_id", "head", "n_sequences", "metastable_size", "operating_class"]

_KEY, _POSITION = "key of the ranking", "position in the dataset"  # columns that are removed again

PIECE = 1 << 17
"""Number of sequences that are handled at a time."""


@dataclass(frozen=True)
class RepertoireAttention:
    """Attention on one repertoire, from `compute_attention`; its table has n of the N sequences.

    Attributes
    ----------
    repertoire
        The repertoire.
    scores
        Attention and contributions of the n sequences.
    outputs
        Names of the T outputs.
    rows
        Rows of the n sequences in the repertoire, in the order of the table, (n,).
    rank
        Rank of each of the n sequences among all sequences of the repertoire by weight, (n,), from 1.
    head_ranks
        Rank by the weight of each head, (n, H).
    sizes
        Number of sequences over which each head averages, of all N, (H,); see `heads`.
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
        """Table of the sequences, see `attention_table`."""
        return pd.DataFrame(self.columns(np.arange(len(self.rows))))

    def pieces(self) -> Iterator[Columns]:
        """Yield the table in parts of limited size; an empty table is one part."""
        for start in range(0, max(len(self.rows), 1), PIECE):
            yield self.columns(np.arange(start, min(start + PIECE, len(self.rows))))

    def columns(self, rows: NDArray[np.int64], output: int | None = None) -> Columns:
        """Return the columns of the table for some of the n sequences, by their indices among these.

        If `output` is given, contributions and responses are those of this output only, and the columns lack its name.
        """
        scores, n_heads = self.scores, self.scores.logits.shape[1]
        columns: Columns = {
            **self.repertoire.columns(self.rows[rows]),
            "attention_weight": scores.weight[rows],
            "attention_rank": self.rank[rows],
            "attention_logit": scores.logit[rows],
            "head": scores.head[rows],
        }
        for t, name in enumerate(self.outputs):
            if output in (None, t):
                ending = "" if len(self.outputs) == 1 or output is not None else f"_{name}"
                columns["contribution" + ending] = scores.contributions[rows, t]
                for source, part in scores.through.items() if scores.through_readings else ():
                    columns[f"through_{source}{ending}"] = part[rows, t]
                columns["response" + ending] = scores.responses[rows, t]
        if n_heads > 1:
            for head in range(n_heads):
                columns[f"attention_weight_{head + 1}"] = scores.weights[rows, head]
                columns[f"attention_rank_{head + 1}"] = self.head_ranks[rows, head]
                columns[f"attention_logit_{head + 1}"] = scores.logits[rows, head]
        return columns

    @property
    def heads(self) -> pd.DataFrame:
        """Table of the heads, see `head_rows`."""
        return pd.DataFrame(self.head_rows, columns=HEADS_COLUMNS)

    @property
    def head_rows(self) -> list[tuple[str, int, int, int, str]]:
        """Rows of the table of heads, one per head.

        The columns are repertoire_id, head (from 1), n_sequences, metastable_size (the number of sequences over which
        the head averages: the smallest number whose weights sum to 0.90) and operating_class (I to IV, from averages
        over more than half of the sequences to at most a thirty-second; empty for a repertoire without sequences).
        """
        name, N = self.scores.repertoire_id, len(self.repertoire)
        return [
            (name, head, N, size, operating_class(size, N) if N else "")
            for head, size in enumerate(self.sizes, start=1)
        ]


class _Ranked(NamedTuple):
    """The sequences of a table, and their ranks; see `RepertoireAttention`."""

    rows: NDArray[np.int64]
    rank: NDArray[np.int64]
    head_ranks: NDArray[np.int64]


def choose_default_ranking(model: Model) -> Ranking:
    """Return the default ranking of sequences for a model.

    It is by attention. If the model has readings, it is by contribution to the first output, because attention is then
    only one of the ways in which a sequence counts.
    """
    return Ranking("contribution") if model.reading_names else BY_ATTENTION


def attention_table(
    model: Model,
    dataset: RepertoireDataset,
    position: int,
    *,
    top: int | None = None,
    ranking: Ranking | None = None,
) -> pd.DataFrame:
    """Return a table of the attention on the sequences of one repertoire.

    Parameters
    ----------
    model
        A trained model, or an ensemble.
    dataset, position
        Dataset, and position of the repertoire in it.
    top
        Number of sequences to keep, best first; None keeps all, in the order of the file.
    ranking
        Ranking by which the best sequences are chosen; `attention` chooses those with the highest weight. None takes
        `choose_default_ranking`.

    Returns
    -------
    A table with the AIRR columns repertoire_id, sequence_id, junction_aa, duplicate_count, and v_call and j_call if
    they are known. Then follow attention_weight, with which the prediction averages: it sums to 1 over the repertoire,
    and is 0 for sequences that `top_fraction` leaves out; attention_rank, from 1; attention_logit, which unlike the
    weight can be compared between repertoires; head, the head that attends most to the sequence, from 1; contribution,
    the amount that the sequence adds to the output before its activation (for a binary target, the log-odds of the
    positive class); and response, the output that the network would have if all attention were on the sequence, see
    `deeprc.nn.contributions`. With several outputs, they are contribution_NAME and response_NAME. If the model has
    readings, a contribution is the sum of through_attention and the amounts through each reading, through_composition
    and through_clones (with several outputs through_attention_NAME ...). With several heads, the first three columns
    are also given per head (attention_weight_1, ...); attention_weight is then the mean over heads, by which
    attention_rank ranks, and attention_logit the highest logit of the heads. An ensemble has the heads of all its
    members, one member after the other; attention_weight and attention_logit are then means over members, and so are
    contribution and response, in common units.
    """
    return compute_attention(model, dataset, position, top=top, ranking=ranking).sequences


def compute_attention(
    model: Model,
    dataset: RepertoireDataset,
    position: int,
    *,
    top: int | None = None,
    ranking: Ranking | None = None,
) -> RepertoireAttention:
    """Return the attention on the sequences of one repertoire, and the sizes of its heads.

    The parameters are those of `attention_table`; `top` limits the sequences of the table, but sizes are of all
    sequences.
    """
    inferences = [member.inference(dataset) for member in model.members]
    return _compute_attention(model, inferences, [position], _Wanted.of(model, top, ranking))[0]


def iterate_attention(
    model: Model,
    dataset: RepertoireDataset,
    *,
    top: int | None = None,
    ranking: Ranking | None = None,
) -> Iterator[RepertoireAttention]:
    """Yield the attention on each repertoire, see `compute_attention`; consecutive small ones are computed together."""
    inferences = [member.inference(dataset) for member in model.members]
    wanted = _Wanted.of(model, top, ranking)
    with open_step("attention on sequences", len(dataset)) as step:
        for group in inferences[0].groups():
            yield from _compute_attention(model, inferences, group, wanted)
            step.advance(len(group))


class _Wanted(NamedTuple):
    """Number of sequences of each repertoire in a table, and the ranking that chooses them."""

    top: int
    ranking: Ranking

    @classmethod
    def of(cls, model: Model, top: int | None, ranking: Ranking | None) -> _Wanted | None:
        """Return number and ranking; None if the table has all sequences. InputError if the number is below 1."""
        if top is not None and top < 1:
            raise InputError(f"`top={top}`: expected at least 1")
        return None if top is None else cls(top, ranking or choose_default_ranking(model))


def _compute_attention(
    model: Model, inferences: Sequence[Inference], positions: Sequence[int], wanted: _Wanted | None
) -> list[RepertoireAttention]:
    """Return the attention on repertoires whose sequences fit into one chunk, or on one repertoire of any size."""
    dataset = inferences[0].collator.dataset
    of_members = [list(iterate_attended(inference, positions)) for inference in inferences]
    for member, attention in zip(model.members, of_members, strict=True):
        for position, each in zip(positions, attention, strict=True):
            for numbers in (each.weights, each.logits):
                member.check_finite(numbers.numpy(), dataset[position].repertoire_id)
    of_repertoires = list(zip(*of_members, strict=True))
    by_weight = wanted is not None and wanted.ranking.by == "attention"
    ranked = [
        _rank_repertoire(each, wanted.top if wanted is not None and by_weight else None) for each in of_repertoires
    ]
    rows = [each.rows if by_weight else None for each in ranked]
    scores = [
        list(score_rows(inference, positions, attention, rows))
        for inference, attention in zip(inferences, of_members, strict=True)
    ]
    for member, of_member in zip(model.members, scores, strict=True):
        for of_repertoire in of_member:
            member.check_scores(of_repertoire)
    outputs = output_names(model.tasks)
    found = []
    for position, of_model, own, places in zip(
        positions, of_repertoires, zip(*scores, strict=True), ranked, strict=True
    ):
        combined = model.combine(own)
        if wanted is not None and not by_weight:
            places = _select_best_ranked(places, combined, wanted)
            combined = combined.take(places.rows)
        # If not all sequences are kept, the scores have copies of the weights, so these may be overwritten.
        sizes = [metastable_sizes(each.weights, dim=0, overwrite=wanted is not None) for each in of_model]
        found.append(RepertoireAttention(dataset[position], combined, outputs, *places, torch.cat(sizes).tolist()))
    return found


def _select_best_ranked(ranked: _Ranked, scores: SequenceScores, wanted: _Wanted) -> _Ranked:
    """Return the best sequences of a repertoire by their scores, with their ranks by weight."""
    best = _find_best_rows(wanted.ranking.keys(scores), scores.logit, wanted.top)
    return _Ranked(best, ranked.rank[best], ranked.head_ranks[best])


def _rank_repertoire(attention: Sequence[Attended], top: int | None) -> _Ranked:
    """Return the sequences for the table of a repertoire, from the attention of each member."""
    n_heads = [len(each.pooled) for each in attention]
    weights, logits = (
        torch.cat(parts, dim=1).numpy() if len(parts) > 1 else parts[0].numpy()
        for parts in ([each.weights for each in attention], [each.logits for each in attention])
    )
    weight, logit = mean_weight(weights, n_heads), mean_logit(logits, n_heads)
    if top is None:
        rows, rank = np.arange(len(weight)), _rank_weights(weight, logit)
    else:
        rows = _find_best_rows(weight, logit, top)
        rank = np.arange(1, len(rows) + 1)
    head_ranks = rank[:, None]
    if weights.shape[1] > 1:
        heads = zip(weights.T, logits.T, strict=True)
        head_ranks = np.stack([_rank_weights(weight, logit)[rows] for weight, logit in heads], axis=1)
    return _Ranked(rows, rank, head_ranks)


def _find_best_rows(weight: NDArray[np.float64], logit: NDArray[np.float32], n: int) -> NDArray[np.int64]:
    """Return the n rows with the first ranks of `_rank_weights`, in their order, without sorting all: (min(n, N),)."""
    best = np.zeros(0, np.int64)
    for start in range(0, len(weight), max(PIECE, n)):
        piece = np.arange(start, min(start + max(PIECE, n), len(weight)))
        if len(best) == n:
            piece = piece[weight[piece] >= weight[best[-1]]]
        candidates = np.concatenate([best, piece])  # among equal ones the first is kept

        best = candidates[np.lexsort((-logit[candidates], -weight[candidates]))[:n]]
    return best


def _rank_weights(weight: NDArray[np.float64], logit: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the rank of each sequence, from 1; if weights underflow to equal values, logits decide."""
    order = np.lexsort((-logit, -weight))  # a stable sort: among equal ones the first is first
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(1, len(order) + 1)
    return rank


def best_sequences(
    attention: Iterable[RepertoireAttention],
    n: int,
    ranking: Ranking = BY_ATTENTION,
    *,
    held_out: HeldOutSequences | None = None,
) -> pd.DataFrame:
    """Return a table like `attention_table` of the sequences with the highest rank over all repertoires, best first.

    Parameters
    ----------
    attention
        Attention on each repertoire; it is iterated once.
    n
        Number of sequences.
    ranking
        Ranking of the sequences.
    held_out
        If given, the last column, `q_value`, is the false discovery rate of each sequence. `attention` must then be
        that on all repertoires of the same dataset, in their order.
    """
    best, highest = BestRows(n), HighestScores()
    for position, one in enumerate(attention):
        keys = ranking.keys(one.scores)
        best.offer(keys, partial(_make_columns_with_key, one, keys, position))
        if held_out is not None:
            highest.offer(position, ranking.drop_silent(keys))
    table = best.table()
    if table.empty:
        return table
    scores, positions = table.pop(_KEY).to_numpy(np.float64), table.pop(_POSITION).to_numpy(np.int64)
    if held_out is None:
        return table
    return table.assign(q_value=held_out.q_values(highest, ranking.drop_silent(scores), positions))


def _make_columns_with_key(
    one: RepertoireAttention, keys: NDArray[np.float64], position: int, rows: NDArray[np.int64]
) -> Columns:
    return {**one.columns(rows), _KEY: keys[rows], _POSITION: np.full(len(rows), position)}
