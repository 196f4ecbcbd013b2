"""Attention as tables: a table of sequences, with AIRR field names, and a table of heads.

Letters: N sequences of one repertoire, H heads, T outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.errors import InputError
from deeprc.hopfield.analysis import metastable_sizes, operating_class
from deeprc.interpretation.column_tables import Columns
from deeprc.interpretation.ranking import BY_ATTENTION, Ranking
from deeprc.interpretation.sequence_ranks import RankedRows, find_best_rows, rank_repertoire
from deeprc.nn.contributions import HeadAttention, iterate_head_attention, score_rows
from deeprc.nn.inference import Inference
from deeprc.nn.sequence_scores import SequenceScores
from deeprc.outputs import list_output_names
from deeprc.progress import open_step
from deeprc.training.model import Model, check_model

__all__ = [
    "HEADS_COLUMNS",
    "PIECE",
    "HeadRow",
    "RepertoireAttention",
    "attention_table",
    "choose_default_ranking",
    "compute_attention",
    "iterate_attention",
]

PIECE = 1 << 17
"""Number of sequences that are handled at a time."""


class HeadRow(NamedTuple):
    """A row of the table of heads: how broad the attention of a head is on a repertoire.

    Attributes
    ----------
    repertoire_id
        Id of the repertoire.
    head
        Index of the head, from 1.
    n_sequences
        Number of sequences of the repertoire.
    metastable_size
        Smallest number of sequences whose weights sum to 0.90.
    operating_class
        From I, an average over more than half of the sequences, to IV, over at most a thirty-second; empty for a
        repertoire without sequences.
    """

    repertoire_id: str
    head: int
    n_sequences: int
    metastable_size: int
    operating_class: str


HEADS_COLUMNS = list(HeadRow._fields)
"""Columns of the table of heads."""


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
    metastable_sizes
        Number of sequences over which each head averages, of all N, (H,); see `HeadRow`.
    """

    repertoire: Repertoire
    scores: SequenceScores
    outputs: list[str]
    rows: NDArray[np.int64]
    rank: NDArray[np.int64]
    head_ranks: NDArray[np.int64]
    metastable_sizes: list[int]

    @property
    def sequences(self) -> pd.DataFrame:
        """Table of the sequences, see `attention_table`."""
        return pd.DataFrame(self.make_columns(np.arange(len(self.rows))))

    def iterate_pieces(self) -> Iterator[Columns]:
        """Yield the table in parts of limited size; an empty table is one part."""
        for start in range(0, max(len(self.rows), 1), PIECE):
            yield self.make_columns(np.arange(start, min(start + PIECE, len(self.rows))))

    def make_columns(self, rows: NDArray[np.int64], output: int | None = None) -> Columns:
        """Return the columns of the table for some of the n sequences, by their indices among these.

        If `output` is given, contributions and responses are those of this output only, and the columns lack its name.
        """
        scores, n_heads = self.scores, self.scores.head_logits.shape[1]
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
                for source, part in scores.by_source.items() if scores.beside_attention else ():
                    columns[f"through_{source}{ending}"] = part[rows, t]
                columns["response" + ending] = scores.responses[rows, t]
        if n_heads > 1:
            for head in range(n_heads):
                columns[f"attention_weight_{head + 1}"] = scores.head_weights[rows, head]
                columns[f"attention_rank_{head + 1}"] = self.head_ranks[rows, head]
                columns[f"attention_logit_{head + 1}"] = scores.head_logits[rows, head]
        return columns

    @property
    def heads(self) -> pd.DataFrame:
        """Table of the heads, see `HeadRow`."""
        return pd.DataFrame(self.head_rows, columns=HEADS_COLUMNS)

    @property
    def head_rows(self) -> list[HeadRow]:
        """Rows of the table of heads, one per head."""
        name, N = self.scores.repertoire_id, len(self.repertoire)
        return [
            HeadRow(name, head, N, size, operating_class(size, N) if N else "")
            for head, size in enumerate(self.metastable_sizes, start=1)
        ]


def choose_default_ranking(model: Model) -> Ranking:
    """Return the default ranking of sequences for a model.

    It is by attention. If the model has branches, it is by contribution to the first output, because attention is then
    only one of the ways in which a sequence counts.
    """
    return Ranking("contribution") if model.branch_names else BY_ATTENTION


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
        A trained model, or an ensemble: `run.model` of a run, or `classifier.model_` of a fitted `DeepRCClassifier`.
    dataset, position
        Dataset, and position of the repertoire in it, from 0.
    top
        Number of sequences to keep, best first; None keeps all, in the order of the file.
    ranking
        Ranking by which the best sequences are chosen; `attention` chooses those with the highest weight. None takes
        `choose_default_ranking`.

    Returns
    -------
    A table with these columns:

    - repertoire_id, sequence_id, junction_aa, duplicate_count, and v_call and j_call if they are known: the fields of
      the AIRR standard;
    - attention_weight: the weight with which the prediction averages. It sums to 1 over the repertoire, and is 0 for
      sequences that `top_fraction` leaves out. With several heads, it is the mean over heads;
    - attention_rank: the rank by this weight, from 1;
    - attention_logit: the logit, which unlike the weight can be compared between repertoires. With several heads, it is
      the highest logit of the heads;
    - head: the head that attends most to the sequence, from 1;
    - contribution: the amount that the sequence adds to the output before its activation (for a binary target, the
      log-odds of the positive class). With several outputs, contribution_NAME;
    - through_attention, through_composition, through_clones: only if the model has branches, the parts of the
      contribution, which sum to it. With several outputs, through_attention_NAME and so on;
    - response: the output that the network would have if all attention were on the sequence, see
      `deeprc.nn.contributions`. With several outputs, response_NAME;
    - attention_weight_1, attention_rank_1, attention_logit_1 and so on: only with several heads, those of each head.

    An ensemble has the heads of all its members, one member after the other. Its attention_weight, attention_logit,
    contribution and response are means over members, the latter two in common units.
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
    check_model(model)
    if not isinstance(position, int | np.integer):
        raise TypeError(
            f"position: expected the position of one repertoire in the dataset, found {position!r}; that of an id is "
            "dataset.repertoire_ids.tolist().index(id)"
        )
    inferences = [member.make_inference(dataset) for member in model.members]
    return _compute_attention(model, inferences, [position], _Selection.of(model, top, ranking))[0]


def iterate_attention(
    model: Model,
    dataset: RepertoireDataset,
    *,
    top: int | None = None,
    ranking: Ranking | None = None,
) -> Iterator[RepertoireAttention]:
    """Yield the attention on each repertoire, see `compute_attention`; consecutive small ones are computed together."""
    inferences = [member.make_inference(dataset) for member in model.members]
    selection = _Selection.of(model, top, ranking)
    with open_step("attention on sequences", len(dataset)) as step:
        for group in inferences[0].iterate_groups():
            yield from _compute_attention(model, inferences, group, selection)
            step.advance(len(group))


class _Selection(NamedTuple):
    """Which sequences of each repertoire are in a table.

    Attributes
    ----------
    max_sequences
        Number of sequences, best first; None takes all, in the order of the file.
    ranking
        Ranking that chooses them.
    """

    max_sequences: int | None
    ranking: Ranking

    @classmethod
    def of(cls, model: Model, top: int | None, ranking: Ranking | None) -> _Selection:
        """Return the selection of the best `top` sequences; InputError if `top` is below 1."""
        if top is not None and top < 1:
            raise InputError(f"`top={top}`: expected at least 1")
        return cls(top, ranking or choose_default_ranking(model))

    @property
    def is_by_weight(self) -> bool:
        """Whether the sequences are chosen by attention, before any score is computed."""
        return self.max_sequences is not None and self.ranking.by == "attention"

    @property
    def is_by_score(self) -> bool:
        """Whether the sequences are chosen by their scores."""
        return self.max_sequences is not None and self.ranking.by != "attention"


def _compute_attention(
    model: Model, inferences: Sequence[Inference], positions: Sequence[int], selection: _Selection
) -> list[RepertoireAttention]:
    """Return the attention on repertoires whose sequences fit into one chunk, or on one repertoire of any size."""
    dataset, outputs = inferences[0].collator.dataset, list_output_names(model.tasks)
    attention = _read_attention(model, inferences, positions)
    max_rows = selection.max_sequences if selection.is_by_weight else None
    ranked = [rank_repertoire(attention_by_member, max_rows) for attention_by_member in attention]
    rows = [ranked_rows.rows if selection.is_by_weight else None for ranked_rows in ranked]
    scores = _score_sequences(model, inferences, positions, attention, rows)
    return [
        _make_repertoire_attention(dataset[position], attention_by_member, own_scores, ranked_rows, outputs, selection)
        for position, attention_by_member, own_scores, ranked_rows in zip(
            positions, attention, scores, ranked, strict=True
        )
    ]


def _read_attention(
    model: Model, inferences: Sequence[Inference], positions: Sequence[int]
) -> list[tuple[HeadAttention, ...]]:
    """Return the attention of each member on each repertoire, indexed [repertoire][member].

    Raises
    ------
    InputError
        If a weight or a logit is not finite.
    """
    by_member = [list(iterate_head_attention(inference, positions)) for inference in inferences]
    dataset = inferences[0].collator.dataset
    for member, attention_by_repertoire in zip(model.members, by_member, strict=True):
        for position, head_attention in zip(positions, attention_by_repertoire, strict=True):
            for numbers in (head_attention.weights, head_attention.logits):
                member.check_finite(numbers.numpy(), dataset[position].repertoire_id)
    return list(zip(*by_member, strict=True))


def _score_sequences(
    model: Model,
    inferences: Sequence[Inference],
    positions: Sequence[int],
    attention: Sequence[tuple[HeadAttention, ...]],
    rows: Sequence[NDArray[np.int64] | None],
) -> list[SequenceScores]:
    """Return the scores of the model for the sequences at some rows of each repertoire; None for all rows."""
    by_member = []
    for member, inference, attention_by_repertoire in zip(
        model.members, inferences, zip(*attention, strict=True), strict=True
    ):
        scores_by_repertoire = list(score_rows(inference, positions, attention_by_repertoire, rows))
        for scores in scores_by_repertoire:
            member.check_scores(scores)
        by_member.append(scores_by_repertoire)
    return [model.combine_scores(scores_by_member) for scores_by_member in zip(*by_member, strict=True)]


def _make_repertoire_attention(
    repertoire: Repertoire,
    attention_by_member: Sequence[HeadAttention],
    scores: SequenceScores,
    ranked_rows: RankedRows,
    outputs: list[str],
    selection: _Selection,
) -> RepertoireAttention:
    """Return the attention on one repertoire from that of each member, with the selected sequences."""
    if selection.is_by_score:
        ranked_rows = _select_best_ranked(ranked_rows, scores, selection)
        scores = scores.take(ranked_rows.rows)
    # If not all sequences are kept, the scores have copies of the weights, so these may be overwritten.
    can_overwrite = selection.max_sequences is not None
    sizes = [
        metastable_sizes(head_attention.weights, dim=0, overwrite=can_overwrite)
        for head_attention in attention_by_member
    ]
    return RepertoireAttention(repertoire, scores, outputs, *ranked_rows, torch.cat(sizes).tolist())


def _select_best_ranked(ranked_rows: RankedRows, scores: SequenceScores, selection: _Selection) -> RankedRows:
    """Return the best sequences of a repertoire by their scores, with their ranks by weight."""
    assert selection.max_sequences is not None
    best = find_best_rows(selection.ranking.keys(scores), scores.logit, selection.max_sequences)
    return RankedRows(best, ranked_rows.rank[best], ranked_rows.head_ranks[best])
