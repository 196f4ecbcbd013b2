"""Survey of a cohort with a trained network, in one pass, for figures, motifs and the report.

Letters: B repertoires, T outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.interpretation.attention import HEADS_COLUMNS, iterate_attention
from deeprc.interpretation.directions import Direction
from deeprc.interpretation.false_sequences import FalseDiscoveryReference, HighestScores
from deeprc.interpretation.sequence_index import SequenceIndex
from deeprc.interpretation.survey_collector import POSITION, ROW, SurveyCollector, SurveyPlan
from deeprc.nn.sequence_scores import OutputParts
from deeprc.runs.performance import choose_held_out_part
from deeprc.runs.predictor import Predictor
from deeprc.training.model import Model

__all__ = [
    "Survey",
    "TopSequences",
    "add_q_values",
    "make_false_discovery_reference",
    "survey_cohort",
]


@dataclass(frozen=True)
class TopSequences:
    """The sequences that contribute most to a direction over all repertoires, best first.

    Sequences that do not contribute to the direction are never among them.

    Attributes
    ----------
    table
        Table with the columns of `attention_table`, with contribution, its parts and response for the output of this
        direction only; and `split` if the parts of the split are known.
    index
        Index of the sequences in the dataset.
    """

    table: pd.DataFrame
    index: SequenceIndex

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True)
class Survey:
    """The results of `survey_cohort`.

    Attributes
    ----------
    outputs
        Outputs of the repertoires before their activation, (B, T), and their parts through each branch.
    heads
        Table with one row per repertoire and head; see `HeadRow`.
    curves
        Table of the concentration of attention: repertoire_id, share (of the repertoire's sequences, most attended
        first), attention (sum of their weights).
    genes
        Table of genes: field ("v_call", "j_call"), name, all (share of sequences with the gene) and attended (share of
        the attention on them), both as means over repertoires. Empty if the container has no genes.
    residue_frequencies
        Frequency of each amino acid among all residues, (20,), in the order of `AMINO_ACIDS`.
    directions
        Directions of the outputs.
    top
        Sequences that contribute most to each direction, by its name. If the model has branches, each clone is included
        once, where it contributes most. Otherwise a few public clones, which many repertoires have, would fill the
        table.
    by_residues
        Sequences that contribute most through attention and composition, that is, by their residues and genes. For
        these sequences, attributions, kernels and motifs are computed. The branch `clones` is left out, because a
        stored clone counts as a whole, so its residues explain nothing. (What the counts of a repertoire add is shared
        equally by its sequences.) The same as `top` if the model has no branches.
    highest
        Highest contributions to each direction, by its name, from which `FalseDiscoveryReference` estimates false
        discovery rates.
    witnesses
        Tables of `witness_ranking` for each direction; empty if witnesses were not searched.
    """

    outputs: OutputParts
    heads: pd.DataFrame
    curves: pd.DataFrame
    genes: pd.DataFrame
    residue_frequencies: NDArray[np.float64]
    directions: list[Direction]
    top: dict[str, TopSequences]
    by_residues: dict[str, TopSequences]
    highest: dict[str, HighestScores]
    witnesses: list[pd.DataFrame]

    @classmethod
    def of(cls, collector: SurveyCollector, plan: SurveyPlan, model: Model) -> Survey:
        """Return the survey of all repertoires from its collector."""
        top = {name: _make_top_sequences(table) for name, table in collector.make_top_tables().items()}
        by_residues = {name: _make_top_sequences(table) for name, table in collector.make_residue_tables().items()}
        return cls(
            outputs=OutputParts.stack(collector.outputs, model.n_outputs),
            heads=pd.DataFrame(collector.head_rows, columns=HEADS_COLUMNS),
            curves=collector.make_curves_table(),
            genes=collector.make_genes_table(),
            residue_frequencies=collector.residues.compute_frequencies(),
            directions=list(plan.directions),
            top=top,
            by_residues=by_residues or top,
            highest=collector.highest,
            witnesses=collector.make_witness_tables(),
        )


def survey_cohort(
    model: Model,
    dataset: RepertoireDataset,
    *,
    top: int = 1000,
    parts: Sequence[str] | None = None,
    witnesses_among: Sequence[int] = (),
) -> Survey:
    """Survey a cohort with a trained model; every repertoire is read once.

    Parameters
    ----------
    model
        A trained model, or an ensemble.
    dataset
        The cohort.
    top
        Number of sequences to keep for each direction.
    parts
        Part of the split of each repertoire in training, (B,), for the tables; None leaves it out.
    witnesses_among
        Positions of the repertoires of a simulated cohort in which witnesses are searched.
    """
    plan, among = SurveyPlan.of(model, dataset, top, witnesses_among), frozenset(witnesses_among)
    collector = SurveyCollector(plan)
    for position, attention in enumerate(iterate_attention(model, dataset)):
        part = None if parts is None else parts[position]
        collector.add(attention, position, part=part, has_witnesses=position in among)
    return Survey.of(collector, plan, model)


def make_false_discovery_reference(
    predictor: Predictor, dataset: RepertoireDataset, direction: Direction, parts: Sequence[str]
) -> FalseDiscoveryReference | None:
    """Return the held-out repertoires from which false discovery rates for a direction are estimated.

    The result is None if there are none, or if the output is a number.

    Parameters
    ----------
    predictor, dataset
        The model with its training, and the cohort.
    direction
        Direction of an output.
    parts
        Part of the split of each repertoire in training, (B,).
    """
    part_of = np.array(parts, dtype=object)
    held_out = choose_held_out_part(part_of, predictor.model.encode_labels(dataset))
    if held_out is None:
        return None
    return FalseDiscoveryReference.of(
        predictor.model,
        dataset,
        part_of == held_out,
        output=direction.output,
        sign=direction.sign,
        group_by=predictor.group_by,
    )


def add_q_values(survey: Survey, predictor: Predictor, dataset: RepertoireDataset, parts: Sequence[str]) -> None:
    """Add the column `q_value` to the tables of the top sequences of a survey.

    It is the false discovery rate, see `FalseDiscoveryReference.compute_q_values`. Directions of numbers get no such
    column, and if no repertoire is held out, no direction does. The parameters are those of
    `make_false_discovery_reference`.
    """
    for direction in survey.directions:
        top = survey.top[direction.name]
        reference = make_false_discovery_reference(predictor, dataset, direction, parts)
        if reference is not None and len(top):
            scores = direction.sign * top.table["contribution"].to_numpy(np.float64)
            q_values = reference.compute_q_values(survey.highest[direction.name], scores, top.index.positions)
            top.table["q_value"] = q_values


def _make_top_sequences(table: pd.DataFrame) -> TopSequences:
    if table.empty:
        return TopSequences(table, SequenceIndex(np.zeros(0, np.int64), np.zeros(0, np.int64)))
    positions, rows = (table.pop(name).to_numpy(np.int64) for name in (POSITION, ROW))
    return TopSequences(table, SequenceIndex(positions, rows))
