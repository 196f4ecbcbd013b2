"""Attributions: what each residue of a sequence, and each kernel, adds to an output, by integrated gradients.

One sequence is changed, all others of its repertoire are fixed. Its attention weights are functions of its logits
l_h(z), a_h = sigmoid(l_h(z) - λ_h), where λ_h is the logarithm of the summed exponentials of the other sequences'
logits. Two quantities can be divided among its residues:

- the contribution of the sequence, Σ_h a_h r_h(z), see `deeprc.nn.contributions`; contributions sum to the output;
- the output itself, o(p_1 + a_1 (z - p_1), ..., p_H + a_H (z - p_H)), where p_h is the average of the other sequences'
  representations. This shows what would change without the sequence. If the repertoire has many similar sequences, the
  change is nearly 0, however much they contribute together.

The part through the reading `composition` is divided exactly, and added (`attribute_composition`). A stored clone
counts as a whole, so the part through the reading `clones` is not included.

A repertoire is read a few times for all its chosen sequences.

Integrated gradients (Sundararajan, Taly and Yan 2017) are averages of the gradient of the output along the straight
line from a baseline to the sequence. The baseline is the same sequence with an average residue at each position: its
one-hot features are the frequencies of the 20 amino acids in the background. The positional features are the same, and
so are V and J genes if the network reads them: attributions show what residues add in a sequence with these genes. The
attributions of all features sum to the difference of the two outputs, except for the error of the numerical integral.

Letters: N sequences of one repertoire, n chosen ones, L positions of the longest, H heads, D kernels (or LSTM units), G
units of a gene's embedding, S = D + 2 G dimensions of the representation, T outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.interpretation.composition_residues import attribute_composition
from deeprc.interpretation.integrated_gradients import average_gradient
from deeprc.interpretation.residue_counts import residue_frequencies
from deeprc.interpretation.sequence_index import SequenceIndex
from deeprc.nn.batch import RepertoireBatch
from deeprc.nn.contributions import linearise_outputs
from deeprc.nn.features import N_AMINO_ACIDS
from deeprc.nn.inference import Inference, select_kept_rows
from deeprc.nn.motif_convolution.reference import dense_features
from deeprc.progress import open_step
from deeprc.readings.composition import CompositionReading
from deeprc.training.model import Model

__all__ = ["Attributions", "attribute"]

Of = Literal["contribution", "output"]

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
        Part of `residues` that comes through the reading `composition`, (n, L); the rest comes through the attention.
        None if no model has this reading.
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
    out adds nothing: its values are 0. The choice of the kept sequences is fixed. The residues of a sequence that the
    abundance scale hides (a count of 1 with `log`) also add nothing.

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
        Index of the output, from 0; see `deeprc.outputs.output_names`.
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
    explained = [
        _Explained(member.inference(dataset), torch.from_numpy(frequencies), _Question(output, of, steps, scale, shift))
        for member, scale, shift in zip(
            model.members, *(units[:, output].tolist() for units in model.units), strict=True
        )
    ]
    parts = []
    with open_step("attributions of residues", len(index)) as step:
        for position, at in index.group_by_repertoire():
            chosen, place = np.unique(index.rows[at], return_inverse=True)
            parts.append(
                (at, place, _average_models([_attribute_repertoire(each, position, chosen) for each in explained]))
            )
            step.advance(len(at))
    n_kernels = sum(member.network.embedding.out_features for member in model.members)
    shares = _join_parts(parts, len(index), n_kernels)
    if CompositionReading.name not in model.reading_names:
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


class _Shares(NamedTuple):
    """Attributions of n sequences: residues (n, L), kernels (n, D) and change (n,), see `Attributions`."""

    residues: NDArray[np.float64]
    kernels: NDArray[np.float64]
    change: NDArray[np.float64]


def _join_parts(parts: list[tuple[NDArray[np.int64], NDArray[np.int64], _Shares]], n: int, D: int) -> _Shares:
    """Join parts for n sequences; each part has the indices of its sequences, (m,), and their rows in it, (m,)."""
    longest = max((part.residues.shape[1] for _, _, part in parts), default=0)
    joined = _Shares(np.full((n, longest), np.nan), np.zeros((n, D)), np.zeros(n))
    for at, rows, part in parts:
        joined.residues[at, : part.residues.shape[1]] = part.residues[rows]
        joined.kernels[at] = part.kernels[rows]
        joined.change[at] = part.change[rows]
    return joined


def _average_models(parts: Sequence[_Shares]) -> _Shares:
    """Return the mean over models of the attributions of the same sequences; kernels are joined, not averaged."""
    if len(parts) == 1:
        return parts[0]
    return _Shares(
        np.mean([part.residues for part in parts], axis=0),
        np.concatenate([part.kernels for part in parts], axis=1) / len(parts),
        np.mean([part.change for part in parts], axis=0),
    )


def _attribute_repertoire(explained: _Explained, position: int, chosen: NDArray[np.int64]) -> _Shares:
    """Return the attributions of n different sequences of one repertoire, rows (n,); 0 for those that are dropped."""
    inference = explained.inference
    collator = inference.collator
    ((pooled, logits),) = inference.pooled([position])
    kept = np.zeros(len(logits), np.bool_)
    kept[select_kept_rows(logits, inference.top_fraction).numpy()] = True
    if explained.question.of == "contribution":
        explained.take_tangent(pooled)
    lengths = collator.take(position, chosen).sequences.lengths.numpy()
    inside = np.arange(lengths.max()) < lengths[:, None]  # (n, L)
    D = inference.network.embedding.out_features
    whole = _Shares(np.where(inside, 0.0, np.nan), np.zeros((len(chosen), D)), np.zeros(len(chosen)))
    scored = np.flatnonzero(kept[chosen])
    others = _summarise_others(inference, position, chosen[scored], kept) if len(scored) else None
    size = max(1, _AT_A_TIME // (explained.question.steps * inside.shape[1] * D))
    for first in range(0, len(scored), size):
        assert others is not None
        piece = slice(first, first + size)
        at = scored[piece]
        batch = collator.take(position, chosen[at]).to(others.level.device)
        part = explained(batch, _Others(others.average[piece], others.level[piece]))
        whole.residues[at, : part.residues.shape[1]] += part.residues  # NaN stays beyond the end
        whole.kernels[at], whole.change[at] = part.kernels, part.change
    return whole


class _Others(NamedTuple):
    """Average and level of the other sequences in the repertoire of each of n sequences, float64 on the device.

    Attributes
    ----------
    average
        Average of the representations of the other sequences with the attention of each head, (n, H, S); 0 if there is
        no other sequence.
    level
        Logarithm of the summed exponentials of the logits of the other sequences, (n, H).
    """

    average: Tensor
    level: Tensor


@torch.no_grad()
def _summarise_others(
    inference: Inference, position: int, chosen: NDArray[np.int64], kept: NDArray[np.bool_]
) -> _Others:
    """Return average and level over the kept sequences without each of the chosen ones, (n,).

    To subtract one sequence from the sum of all would leave only noise if it has nearly all the attention. So the sums
    over sequences that are not chosen are joined with those over the chosen ones before and after it.
    """
    rest = kept.copy()
    rest[chosen] = False
    average, level = _average_heads(inference, position, np.flatnonzero(rest))
    pieces = [inference.network.attend(batch) for batch in inference.batches(position, chosen)]
    values, logits = (torch.cat(column).double() for column in zip(*pieces, strict=True))  # (n, S), (n, H)
    highest = torch.maximum(level, logits.amax(dim=0))  # (H,)
    share = torch.exp(logits - highest)  # (n, H)
    of_rest = torch.exp(level - highest)
    weight = of_rest + _sum_all_others(share)  # (n, H)
    total = of_rest[:, None] * average + _sum_all_others(share[:, :, None] * values[:, None])  # (n, H, S)
    tiny = torch.finfo(torch.float64).tiny
    return _Others(total / weight.clamp_min(tiny)[:, :, None], highest + weight.log())


def _average_heads(inference: Inference, position: int, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Return the average of each head over some sequences, (H, S), and the log of their summed exponentials, (H,)."""
    network = inference.network
    H, S = len(network.pooling.queries), network.n_values
    level = torch.full((H,), -torch.inf, dtype=torch.float64, device=inference.device)
    average = level.new_zeros((H, S))
    for batch in inference.batches(position, rows):
        values, logits = (result.double() for result in network.attend(batch))
        together = torch.logaddexp(level, torch.logsumexp(logits, dim=0))
        average = torch.exp(level - together)[:, None] * average + torch.exp(logits - together).T @ values  # (H, S)
        level = together
    return average, level


def _sum_all_others(terms: Tensor) -> Tensor:
    """Return the sum of all other terms for each of n terms, (n, ...)."""
    none = torch.zeros_like(terms[:1])
    before = torch.cat([none, terms[:-1].cumsum(dim=0)])
    after = torch.cat([none, terms[1:].flip(0).cumsum(dim=0)]).flip(0)
    return before + after


class _Question(NamedTuple):
    """The quantity that is divided: an output of a network, see `attribute`, times `scale` plus `shift`."""

    output: int
    of: Of
    steps: int
    scale: float
    shift: float


class _Explained:
    """The network in float64, as a function of one sequence, with its integrated gradients.

    The first steps from features to the representation, the convolution, are linear. So a straight line of features is
    a straight line of convolved windows. The integral follows the latter line, so the convolution is computed only at
    both ends, and the mean gradient is propagated back through it.
    """

    def __init__(self, inference: Inference, frequencies: Tensor, question: _Question) -> None:
        self.inference, self.question = inference, question
        self.frequencies = frequencies.to(inference.device)  # (20,)
        self._exact = deepcopy(inference.network).double().requires_grad_(False)
        self._exact.embedding.train()  # cuDNN's LSTM has gradients only in this mode; no encoder depends on the mode

    def take_tangent(self, pooled: Tensor) -> None:
        """Set the tangent for contributions to the output of a repertoire with this representation, (H, S)."""
        output, _, _, scale, shift = self.question
        gradient, offset, _ = linearise_outputs(self.inference.network, pooled)
        device = self.inference.device
        self._gradient = (scale * gradient[output]).to(device)  # (H, S)
        self._offset = (scale * offset[output] + shift / len(pooled)).to(device)  # ()

    def __call__(self, batch: RepertoireBatch, others: _Others) -> _Shares:
        """Return the attributions of the n sequences of a batch."""
        lengths = batch.sequences.lengths
        features = dense_features(batch.sequences).double().requires_grad_()  # (n, L, 23)
        baseline = self._make_baseline(features.detach())
        encoder = self._exact.embedding
        windows, baseline_windows = encoder.linear_part(features), encoder.linear_part(baseline)
        genes = self._exact.embed_genes(batch).double()  # (n, 2 G)
        fixed = (genes, *others)
        with torch.no_grad():
            values, baseline_values = (encoder.encode(w, lengths) for w in (windows, baseline_windows))
            change = self._explain_sequences(values, *fixed) - self._explain_sequences(baseline_values, *fixed)

        gradient = average_gradient(
            lambda windows, lengths, *fixed: self._explain_sequences(encoder.encode(windows, lengths), *fixed),
            baseline_windows.detach(),
            windows.detach(),
            (lengths, *fixed),
            steps=self.question.steps,
        )
        (gradient,) = torch.autograd.grad(windows, features, gradient)  # (n, L, 23)
        residues = (gradient * (features.detach() - baseline)).sum(dim=2)
        mean = average_gradient(
            self._explain_sequences, baseline_values, values, fixed, steps=self.question.steps
        )  # (n, D)
        kernels = mean * (values - baseline_values)
        return _Shares(*(result.detach().cpu().numpy() for result in (residues, kernels, change)))

    def _make_baseline(self, features: Tensor) -> Tensor:
        """Return the features of the baseline, (n, L, 23), with an average residue at every position."""
        one_hot, positional = features[:, :, :N_AMINO_ACIDS], features[:, :, N_AMINO_ACIDS:]
        return torch.cat([one_hot.sum(dim=2, keepdim=True) * self.frequencies, positional], dim=2)

    def _explain_sequences(self, values: Tensor, genes: Tensor, average: Tensor, level: Tensor) -> Tensor:
        """Return the quantity for n sequences: contributions, or outputs of their repertoires, (n,)."""
        values = torch.cat([values, genes], dim=1)  # (n, D), (n, 2 G) -> (n, S)
        logits = self._exact.key_network(values) @ self._exact.pooling.scaled_queries()[:, 0].T  # (n, d_k) @ (d_k, H)
        attention = torch.sigmoid(logits - level)[:, :, None]  # (n, H, 1)
        if self.question.of == "contribution":
            return (attention[:, :, 0] * (values @ self._gradient.T + self._offset)).sum(dim=1)  # (n, S) @ (S, H)
        pooled = average + attention * (values[:, None] - average)  # (n, H, S)
        outputs: Tensor = self._exact.output_network(pooled.flatten(1))  # (n, H * S) -> (n, T)
        return self.question.scale * outputs[:, self.question.output]
