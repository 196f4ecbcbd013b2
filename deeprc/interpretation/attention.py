"""Attention as tables: per sequence, with AIRR field names, and per head, how many sequences it averages over.

Letters: N sequences of one repertoire, H heads, T outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.hopfield.analysis import metastable_sizes, operating_class
from deeprc.interpretation.false_sequences import HeldOutSequences, HighestScores
from deeprc.interpretation.ranking import BY_ATTENTION, BestRows, Ranking
from deeprc.nn.contributions import Attended, SequenceScores, attended, mean_logit, mean_weight, scores_at
from deeprc.nn.inference import Inference
from deeprc.outputs import output_names
from deeprc.progress import open_step
from deeprc.training.model import Model

__all__ = [
    "HEADS_COLUMNS",
    "PIECE",
    "Columns",
    "RepertoireAttention",
    "attention_of",
    "attention_table",
    "best_sequences",
    "default_ranking",
    "iterate_attention",
]

Columns = dict[str, NDArray[Any]]

HEADS_COLUMNS = ["repertoire_id", "head", "n_sequences", "metastable_size", "operating_class"]

_KEY, _POSITION = "key of the ranking", "position in the dataset"  # columns for a while

PIECE = 1 << 17
"""Number of sequences in work at a time, whatever the size of a repertoire."""


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
        for start in range(0, max(len(self.rows), 1), PIECE):
            yield self.columns(np.arange(start, min(start + PIECE, len(self.rows))))

    def frame(self, rows: NDArray[np.int64], output: int | None = None) -> pd.DataFrame:
        """Return the table of `columns`."""
        return pd.DataFrame(self.columns(rows, output))

    def columns(self, rows: NDArray[np.int64], output: int | None = None) -> Columns:
        """Return the columns of the table of some of the n sequences, by their places among these.

        Where `output` is given, contributions and responses are those of this output alone, without its name.
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


def default_ranking(model: Model) -> Ranking:
    """Return by what sequences are chosen if nothing else is said.

    By attention; in a model with readings by what a sequence adds to the first output, because attention is then but
    one of the ways in which a sequence counts.
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
    """Return the attention on the sequences of one repertoire.

    Parameters
    ----------
    model
        A trained model, or several together.
    dataset, position
        The repertoire is `dataset[position]`.
    top
        Keep this many sequences, the best first; None keeps all, in the file's order.
    ranking
        By what `top` chooses: by `attention` those of the highest weight. None: see `default_ranking`.

    Returns
    -------
    AIRR columns (repertoire_id, sequence_id, junction_aa, duplicate_count, v_call and j_call where known), then
    attention_weight, by which the prediction averages: it sums to 1 over the repertoire, and is 0 for sequences that
    `top_fraction` leaves out; attention_rank, from 1; attention_logit, which unlike the weight can be compared between
    repertoires; head, the one that looks at the sequence most, from 1; and contribution, what the sequence adds to the
    output before its activation (for a binary target the log-odds of the positive class), and response, what the output
    would be if all attention were on it, see `deeprc.nn.contributions`; contribution_NAME and
    response_NAME where there are several outputs. If the model has readings, a contribution is the sum of
    through_attention and, for each reading, what the sequence adds through it: through_composition, through_clones
    (through_attention_NAME ... where there are several outputs). With several heads the first three are given per head
    too (attention_weight_1, ...); attention_weight is then the heads' mean, by which attention_rank ranks, and
    attention_logit the highest of the heads'. An ensemble has the heads of all its members, one member's after the
    other's; attention_weight is then the mean of the members' weights, attention_logit the mean of their logits, and
    contribution and response are the means of theirs, in common units.
    """
    return attention_of(model, dataset, position, top=top, ranking=ranking).sequences


def attention_of(
    model: Model,
    dataset: RepertoireDataset,
    position: int,
    *,
    top: int | None = None,
    ranking: Ranking | None = None,
) -> RepertoireAttention:
    """Return the attention on one repertoire's sequences, and what each head does with them all.

    The parameters are those of `attention_table`; `top` concerns the sequences that are kept, not the heads' sizes.
    """
    inferences = [member.inference(dataset) for member in model.members]
    return _attention_of(model, inferences, [position], _Wanted.of(model, top, ranking))[0]


def iterate_attention(
    model: Model,
    dataset: RepertoireDataset,
    *,
    top: int | None = None,
    ranking: Ranking | None = None,
) -> Iterator[RepertoireAttention]:
    """Yield `attention_of` one repertoire after the other; small ones that follow each other share their work."""
    inferences = [member.inference(dataset) for member in model.members]
    wanted = _Wanted.of(model, top, ranking)
    with open_step("attention on sequences", len(dataset)) as step:
        for group in inferences[0].groups():
            yield from _attention_of(model, inferences, group, wanted)
            step.advance(len(group))


class _Wanted(NamedTuple):
    """How many sequences of each repertoire a table is to have, and which."""

    top: int
    ranking: Ranking

    @classmethod
    def of(cls, model: Model, top: int | None, ranking: Ranking | None) -> _Wanted | None:
        """Return what is wanted; None if all sequences are."""
        return None if top is None else cls(top, ranking or default_ranking(model))


def _attention_of(
    model: Model, inferences: Sequence[Inference], positions: Sequence[int], wanted: _Wanted | None
) -> list[RepertoireAttention]:
    """Return the attention on repertoires whose sequences fit into one chunk, or on one of any size."""
    dataset = inferences[0].collator.dataset
    of_members = [list(attended(inference, positions)) for inference in inferences]
    for member, attention in zip(model.members, of_members, strict=True):
        for position, each in zip(positions, attention, strict=True):
            for numbers in (each.weights, each.logits):
                member.check_finite(numbers.numpy(), dataset[position].repertoire_id)
    of_repertoires = list(zip(*of_members, strict=True))
    by_weight = wanted is not None and wanted.ranking.by == "attention"
    ranked = [_ranked(each, wanted.top if wanted is not None and by_weight else None) for each in of_repertoires]
    rows = [each.rows if by_weight else None for each in ranked]
    scores = [
        list(scores_at(inference, positions, attention, rows))
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
            places = _best_ranked(places, combined, wanted)
            combined = combined.take(places.rows)
        # The scores have copies of the weights, so these may be overwritten, but where all are kept.
        sizes = [metastable_sizes(each.weights, dim=0, overwrite=wanted is not None) for each in of_model]
        found.append(RepertoireAttention(dataset[position], combined, outputs, *places, torch.cat(sizes).tolist()))
    return found


def _best_ranked(ranked: _Ranked, scores: SequenceScores, wanted: _Wanted) -> _Ranked:
    """Return the best of all sequences of a repertoire, by their scores, with their ranks by weight."""
    best = _best_rows(wanted.ranking.keys(scores), scores.logit, wanted.top)
    return _Ranked(best, ranked.rank[best], ranked.head_ranks[best])


def _ranked(attention: Sequence[Attended], top: int | None) -> _Ranked:
    """Return the sequences that the table of a repertoire is to have, from the attention of each member."""
    n_heads = [len(each.pooled) for each in attention]
    weights, logits = (
        torch.cat(parts, dim=1).numpy() if len(parts) > 1 else parts[0].numpy()
        for parts in ([each.weights for each in attention], [each.logits for each in attention])
    )
    weight, logit = mean_weight(weights, n_heads), mean_logit(logits, n_heads)
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
    for start in range(0, len(weight), max(PIECE, n)):
        piece = np.arange(start, min(start + max(PIECE, n), len(weight)))
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


def best_sequences(
    attention: Iterable[RepertoireAttention],
    n: int,
    ranking: Ranking = BY_ATTENTION,
    *,
    held_out: HeldOutSequences | None = None,
) -> pd.DataFrame:
    """Return the sequences that rank highest over all repertoires, the best first, as `attention_table` does.

    Parameters
    ----------
    attention
        The attention on each repertoire; each is looked at once.
    n
        How many sequences.
    ranking
        By what they are ranked.
    held_out
        If given, the last column, `q_value`, is the false discovery rate of each sequence. The attention is then that
        on the repertoires of the same dataset, in order.
    """
    best, highest = BestRows(n), HighestScores()
    for position, one in enumerate(attention):
        keys = ranking.keys(one.scores)
        best.offer(keys, partial(_frame_with_key, one, keys, position))
        if held_out is not None:
            highest.offer(position, ranking.drop_silent(keys))
    table = best.table()
    if table.empty:
        return table
    scores, positions = table.pop(_KEY).to_numpy(np.float64), table.pop(_POSITION).to_numpy(np.int64)
    if held_out is None:
        return table
    return table.assign(q_value=held_out.q_values(highest, ranking.drop_silent(scores), positions))


def _frame_with_key(
    one: RepertoireAttention, keys: NDArray[np.float64], position: int, rows: NDArray[np.int64]
) -> pd.DataFrame:
    table = one.frame(rows)
    table[_KEY], table[_POSITION] = keys[rows], position
    return table
