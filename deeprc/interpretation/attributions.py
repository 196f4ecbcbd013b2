"""Attributions: what each residue of a sequence, and each kernel, adds to an output, by integrated gradients.

One sequence is changed, all others of its repertoire are fixed. Its attention weights are functions of its logits
l_h(z), a_h = sigmoid(l_h(z) - λ_h), where λ_h is the logarithm of the summed exponentials of the other sequences'
logits. Two quantities can be divided among its residues:

- the contribution of the sequence, Σ_h a_h r_h(z), see `deeprc.nn.contributions`; contributions sum to the output;
- the output itself, o(p_1 + a_1 (z - p_1), ..., p_H + a_H (z - p_H)), where p_h is the average of the other sequences'
  representations. This shows what would change without the sequence. If the repertoire has many similar sequences, the
  change is nearly 0, however much they contribute together.

The part through the branch `composition` is divided exactly, and added (`attribute_composition`). A stored clone
counts as a whole, so the part through the branch `clones` is not included.

A repertoire is read once for all its chosen sequences, and once more for the output. With a top fraction, the sequences
that it keeps are read again each time.

Integrated gradients (Sundararajan, Taly and Yan 2017) are averages of the gradient of the output along the straight
line from a baseline to the sequence. The baseline is the same sequence with an average residue at each position: its
one-hot features are the frequencies of the 20 amino acids in the background. The positional features are the same, and
so are V and J genes if the network reads them: attributions show what residues add in a sequence with these genes. The
attributions of all features sum to the difference of the two outputs, except for the error of the numerical integral.

Here, a `position` is the index of a repertoire in the dataset, a `row` that of a sequence in its repertoire, and an
`item` that of a sequence among the n chosen ones (see `SequenceIndex`).

Letters: N sequences of one repertoire, n chosen ones, L positions of the longest, D kernels (or LSTM units).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, get_args

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from deeprc.branches.composition import CompositionBranch
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.interpretation.composition_residues import attribute_composition
from deeprc.interpretation.explained_network import (
    AttributionArrays,
    ExplainedNetwork,
    ExplainedQuantity,
    Of,
    Surroundings,
    join_surroundings,
    take_surroundings,
)
from deeprc.interpretation.residue_counts import residue_frequencies
from deeprc.interpretation.sequence_index import RepertoireItems, SequenceIndex
from deeprc.nn.batch import RepertoireBatch
from deeprc.nn.features import N_AMINO_ACIDS
from deeprc.nn.inference import Inference, select_kept_rows
from deeprc.progress import open_step
from deeprc.training.model import Model

__all__ = ["Attributions", "attribute"]

_AT_A_TIME = 2**22  # numbers between convolution and maximum, for all steps of some sequences, which limits the memory


@dataclass(frozen=True)
class Attributions:
    """Attributions of n sequences: amounts that their residues, and the kernels, add to an output of their repertoires.

    All numbers are float64. They are differences of the output before its activation (for a binary target, of its
    logit), or of the sequence's contribution to it.

    Attributes
    ----------
    index
        Index of the n sequences in the dataset.
    output
        Index of the output, from 0.
    residues
        Amount that each residue adds compared with an average residue at its position, (n, L); NaN beyond the end of a
        sequence.
    kernels
        Amount through the attention, divided among the kernels, (n, D). Genes are the same in the baseline, so their
        dimensions of the representation have no part. An ensemble has the kernels of all models, one model after the
        other.
    change
        Contribution of the sequence (or output of its repertoire) minus that of the baseline, (n,), through attention
        and composition. The residues of a sequence sum to it, except for the error of the integral, and so do the
        kernels if there is no composition.
    through_composition
        Part of `residues` that comes through the branch `composition`, (n, L); the rest comes through the attention.
        None if no model has this branch.
    """

    index: SequenceIndex
    output: int
    residues: NDArray[np.float64]
    kernels: NDArray[np.float64]
    change: NDArray[np.float64]
    through_composition: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.change)

    @property
    def convergence_delta(self) -> NDArray[np.float64]:
        """Change minus the sum over residues, (n,), which is the error of the numerical integral."""
        return np.asarray(self.change - np.nansum(self.residues, axis=1))


def attribute(
    model: Model,
    dataset: RepertoireDataset,
    sequences: pd.DataFrame | SequenceIndex,
    *,
    output: int = 0,
    of: Of = "contribution",
    steps: int = 64,
    background: NDArray[np.float64] | None = None,
) -> Attributions:
    """Divide what chosen sequences add to an output among their residues, and among the kernels.

    The result of a row depends neither on the other rows nor on their order. A sequence that the top fraction leaves
    out adds nothing through the attention. The choice of the kept sequences is fixed. The residues of a sequence that
    the abundance scale hides (a count of 1 with `log`) also add nothing through it.

    For kernels, the line goes from the representation of the baseline to that of the sequence, so no maximum over
    positions is on it.

    Parameters
    ----------
    model
        A trained model, or an ensemble; the residues of an ensemble are means over its models, in common units.
    dataset
        Dataset with the repertoires.
    sequences
        The n sequences, see `SequenceIndex.of`. A sequence may occur more than once.
    output
        Index of the output, from 0; see `deeprc.outputs.list_output_names`.
    of
        Quantity that is divided: the `contribution` of the sequence to the output, or the `output` as a function of it.
    steps
        Number of points of the Gauss-Legendre rule. The maximum over positions and SELU make the gradient jump, so the
        error falls as 1 / steps; with 64 it is typically 0.3% of the change.
    background
        Frequencies of the amino acids in the average residue, (20,) in the order of `AMINO_ACIDS`. None takes those of
        the whole dataset, for which it is read once; see `residue_frequencies`.

    Raises
    ------
    InputError
        If a column is missing, the dataset has no such repertoire or sequence, or another parameter is out of range.
    """
    if not 0 <= output < model.n_outputs:
        raise InputError(f"output: expected 0 to {model.n_outputs - 1}, found {output}")
    if of not in get_args(Of):
        raise InputError(f"of: expected {' or '.join(get_args(Of))}, found {of!r}")
    if steps < 1:
        raise InputError(f"steps: expected at least 1, found {steps}")
    index = SequenceIndex.of(dataset, sequences)
    frequencies = residue_frequencies(dataset) if background is None else _validate_background(background)
    different, index_of_different = index.drop_repeats()
    with open_step("attributions of residues", len(different) * len(model.members)) as step:
        parts = []
        scales, shifts = (numbers[:, output].tolist() for numbers in model.unit_conversion)  # of each member
        for member, scale, shift in zip(model.members, scales, shifts, strict=True):
            quantity = ExplainedQuantity(output, of, scale, shift)
            inference = member.make_inference(dataset)
            explained = ExplainedNetwork(inference, torch.from_numpy(frequencies), quantity, steps=steps)
            parts.append(_attribute_with(explained, different, step.advance))
    shares = AttributionArrays(*(values[index_of_different] for values in _average_models(parts)))
    if CompositionBranch.name not in model.branch_names:
        return Attributions(index, output, *shares)
    added = attribute_composition(model, dataset, index, output=output, background=frequencies)
    change = shares.change + np.nansum(added, axis=1)
    return Attributions(index, output, shares.residues + added, shares.kernels, change, added)


def _validate_background(background: NDArray[np.float64]) -> NDArray[np.float64]:
    frequencies = np.asarray(background, np.float64)
    if frequencies.shape != (N_AMINO_ACIDS,) or not (frequencies >= 0).all() or abs(frequencies.sum() - 1) > 1e-6:
        raise InputError(
            f"background: expected {N_AMINO_ACIDS} frequencies that sum to 1, found {frequencies.shape} "
            f"that sum to {frequencies.sum():g}"
        )
    return frequencies


def _average_models(parts: Sequence[AttributionArrays]) -> AttributionArrays:
    """Return the mean over models of the attributions of the same sequences; kernels are joined, not averaged."""
    if len(parts) == 1:
        return parts[0]
    return AttributionArrays(
        np.mean([part.residues for part in parts], axis=0),
        np.concatenate([part.kernels for part in parts], axis=1) / len(parts),
        np.mean([part.change for part in parts], axis=0),
    )


def _attribute_with(
    explained: ExplainedNetwork, index: SequenceIndex, advance: Callable[[int], None]
) -> AttributionArrays:
    """Return the attributions of n different sequences by one network; 0 for those that the top fraction leaves out."""
    inference = explained.inference
    repertoires = list(index.group_by_repertoire())
    residues = _make_zeros(inference, index, repertoires)
    L, D = residues.shape[1], inference.network.embedding.out_features
    total = AttributionArrays(residues, np.zeros((len(index), D)), np.zeros(len(index)))
    max_sequences = max(1, _AT_A_TIME // max(1, explained.steps * L * D))
    for group in _group_sequences(_find_surroundings(explained, index, repertoires, advance), max_sequences):
        batch = _make_batch(inference, index, [sequences.items for sequences in group])
        part = explained.attribute(batch, join_surroundings([sequences.surroundings for sequences in group]))
        items = np.concatenate([sequences.items.items for sequences in group])
        total.residues[items, : part.residues.shape[1]] += part.residues  # NaN stays beyond the end
        total.kernels[items], total.change[items] = part.kernels, part.change
    return total


def _make_zeros(
    inference: Inference, index: SequenceIndex, repertoires: Sequence[RepertoireItems]
) -> NDArray[np.float64]:
    """Return 0 for each residue of the n sequences, (n, L), and NaN beyond the end of a sequence."""
    lengths = np.zeros(len(index), np.int64)
    items = np.concatenate([np.zeros(0, np.int64), *(repertoire.items for repertoire in repertoires)])
    lengths[items] = _make_batch(inference, index, repertoires).sequences.lengths.cpu().numpy()
    is_residue = np.arange(lengths.max(initial=0)) < lengths[:, None]  # (n, L)
    return np.where(is_residue, 0.0, np.nan)


def _make_batch(inference: Inference, index: SequenceIndex, repertoires: Sequence[RepertoireItems]) -> RepertoireBatch:
    """Return the batch of some of the n sequences, in the order of their repertoires."""
    positions = [repertoire.position for repertoire in repertoires]
    rows = [index.rows[repertoire.items] for repertoire in repertoires]
    return inference.collator.take_together(positions, rows).to(inference.device)


class _SurroundedSequences(NamedTuple):
    """Chosen sequences of one repertoire, with their surroundings."""

    items: RepertoireItems
    surroundings: Surroundings


def _find_surroundings(
    explained: ExplainedNetwork,
    index: SequenceIndex,
    repertoires: Sequence[RepertoireItems],
    advance: Callable[[int], None],
) -> Iterator[_SurroundedSequences]:
    """Yield the sequences of each repertoire that the top fraction keeps, with their surroundings."""
    pooled = explained.inference.iterate_pooled_with_logits([repertoire.position for repertoire in repertoires])
    for (position, items), (average, logits) in zip(repertoires, pooled, strict=True):
        is_kept = np.zeros(len(logits), np.bool_)
        is_kept[select_kept_rows(logits, explained.inference.top_fraction).numpy()] = True
        kept_items = items[is_kept[index.rows[items]]]
        if len(kept_items):
            rows = index.rows[kept_items]
            surroundings = explained.compute_surroundings(position, rows, is_kept, average, logits)
            yield _SurroundedSequences(RepertoireItems(position, kept_items), surroundings)
        advance(len(items))


def _group_sequences(
    sequences_by_repertoire: Iterable[_SurroundedSequences], max_sequences: int
) -> Iterator[list[_SurroundedSequences]]:
    """Yield the sequences in groups of at most `max_sequences`, each of them of one or several repertoires."""
    group: list[_SurroundedSequences] = []
    n = 0
    for (position, items), surroundings in sequences_by_repertoire:
        for first in range(0, len(items), max_sequences):
            part = slice(first, first + max_sequences)
            part_items = items[part]
            if group and n + len(part_items) > max_sequences:
                yield group
                group, n = [], 0
            part_surroundings = take_surroundings(surroundings, part)
            group.append(_SurroundedSequences(RepertoireItems(position, part_items), part_surroundings))
            n += len(part_items)
    if group:
        yield group
