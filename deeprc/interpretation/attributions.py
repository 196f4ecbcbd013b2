"""What each residue of a sequence, and each kernel, adds to an output of its repertoire: integrated gradients.

One sequence changes, all others of its repertoire stay. Its attention weights are functions of its logits l_h(z),
a_h = sigmoid(l_h(z) - λ_h), where λ_h is the log of the sum of the others' exponentiated logits. Two things can be
shared out among its residues:

- its contribution Σ_h a_h r_h(z) to the output (`deeprc.nn.contributions`): what the repertoire's output is made of;
- the output itself, o(p_1 + a_1 (z - p_1), ..., p_H + a_H (z - p_H)), where p_h is the average of the other sequences'
  representations: what would change without the sequence. In a repertoire that has many like it, that is next to
  nothing, however much they contribute together.

What comes through the reading `composition` is shared out exactly, and added (`composition_residues`). A remembered
clone counts as a whole: what comes through it is no part of this.

A repertoire is read a few times for all its chosen sequences.

Integrated gradients (Sundararajan, Taly and Yan 2017) follow the output's gradient along the straight line from a
baseline to the sequence. The baseline is the same sequence with an average residue at each position: the background's
frequencies of the 20 amino acids in the place of the one-hot features. The positional features stay, and so do V and J
genes where the network reads them: the question is what residues add in a sequence of these genes. What the features
are given sums to the difference of the two outputs, but for the error of the numerical integral.

Letters: N sequences of one repertoire, n chosen ones, L positions of the longest, H heads, D kernels (or LSTM units), G
units of a gene's embedding, S = D + 2 G dimensions of the representation, T outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.interpretation.composition_residues import composition_residues
from deeprc.interpretation.residue_counts import residue_frequencies
from deeprc.interpretation.sequence_index import SequenceIndex
from deeprc.nn.batch import RepertoireBatch
from deeprc.nn.contributions import tangent
from deeprc.nn.features import N_AMINO_ACIDS
from deeprc.nn.inference import Inference, kept_rows
from deeprc.nn.motif_convolution.reference import dense_features
from deeprc.progress import open_step
from deeprc.readings.composition import CompositionReading
from deeprc.training.model import Model

__all__ = ["Attributions", "attribute"]

Of = Literal["contribution", "output"]

_AT_A_TIME = 2**22  # numbers between convolution and maximum, for all steps of some sequences: bounds the memory


@dataclass(frozen=True)
class Attributions:
    """What the residues of n sequences, and the kernels, add to an output of their repertoires.

    All are differences of the output before its activation (for a binary target, of its logit), or of the sequence's
    contribution to it, float64.

    Attributes
    ----------
    index
        The n sequences, by their places in the dataset.
    output
        Which of the outputs was asked about, from 0.
    residues
        What each residue adds, against an average one in its place, (n, L); NaN beyond a sequence's end.
    kernels
        What comes of it through the attention, shared out among the kernels' dimensions of the sequence's
        representation, (n, D). Genes are the same at both ends, so their dimensions have no part in it. Several models
        have the kernels of all, one model's after the other's.
    change
        The contribution of the sequence (or the output of its repertoire) as it is, less that with the baseline in the
        sequence's place, (n,): what comes through attention and composition. The residues of a sequence sum to it, but
        for the integral's error, and so do the kernels if there is no composition.
    through_composition
        The part of `residues` that comes through the reading `composition`, (n, L); the rest comes through the
        attention. None if no model has this reading.
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
        """What the residues leave of the change, (n,): the error of the numerical integral."""
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
    """Share what chosen sequences add to an output out among their residues, and among the kernels.

    Each row's result is its own: it depends neither on the other rows nor on their order. A sequence that the top
    fraction leaves out adds nothing: its values are 0. Which sequences it keeps is held fixed. The residues of a
    sequence that the abundance scale hides (a count of 1 under `log`) add nothing either.

    The kernels' line runs straight from the baseline's representation to the sequence's: no maximum over positions lies
    on it.

    Parameters
    ----------
    model
        A trained model, or several together: what the residues add is then the mean over the models, in common units.
    dataset
        Holds the repertoires.
    sequences
        The n sequences, see `SequenceIndex.of`. A sequence may come more than once.
    output
        Which of the T outputs, from 0; see `deeprc.outputs.output_names`.
    of
        What is shared out: the sequence's `contribution` to the output, or the `output`, as it depends on the sequence.
    steps
        Points of the Gauss-Legendre rule at which the gradient is taken. The maximum over positions and SELU make the
        gradient jump, so the error falls as 1 / steps; with 64 it is typically 0.3% of the change.
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
    frequencies = residue_frequencies(dataset) if background is None else _checked_background(background)
    explained = [
        _Explained(member.inference(dataset), torch.from_numpy(frequencies), _Question(output, of, steps, scale, shift))
        for member, scale, shift in zip(
            model.members, *(units[:, output].tolist() for units in model.units), strict=True
        )
    ]
    parts = []
    with open_step("attributions of residues", len(index)) as step:
        for position, at in index.by_repertoire():
            chosen, place = np.unique(index.rows[at], return_inverse=True)
            parts.append((at, place, _mean([_of_repertoire(each, position, chosen) for each in explained])))
            step.advance(len(at))
    n_kernels = sum(member.network.embedding.out_features for member in model.members)
    shares = _joined(parts, len(index), n_kernels)
    if CompositionReading.name not in model.reading_names:
        return Attributions(index, output, *shares)
    added = composition_residues(model, dataset, index, output=output, background=frequencies)
    change = shares.change + np.nansum(added, axis=1)
    return Attributions(index, output, shares.residues + added, shares.kernels, change, added)


def _checked_background(background: NDArray[np.float64]) -> NDArray[np.float64]:
    frequencies = np.asarray(background, np.float64)
    if frequencies.shape != (N_AMINO_ACIDS,) or not (frequencies >= 0).all() or abs(frequencies.sum() - 1) > 1e-6:
        raise InputError(
            f"background: expected {N_AMINO_ACIDS} frequencies that sum to 1, found {frequencies.shape} "
            f"that sum to {frequencies.sum():g}"
        )
    return frequencies


class _Shares(NamedTuple):
    """Residues (n, L), kernels (n, D) and change (n,) of some sequences, see `Attributions`."""

    residues: NDArray[np.float64]
    kernels: NDArray[np.float64]
    change: NDArray[np.float64]


def _joined(parts: list[tuple[NDArray[np.int64], NDArray[np.int64], _Shares]], n: int, D: int) -> _Shares:
    """Put the parts together: each says at which of the n sequences (m,) which of its rows (m,) belongs."""
    longest = max((part.residues.shape[1] for _, _, part in parts), default=0)
    joined = _Shares(np.full((n, longest), np.nan), np.zeros((n, D)), np.zeros(n))
    for at, rows, part in parts:
        joined.residues[at, : part.residues.shape[1]] = part.residues[rows]
        joined.kernels[at] = part.kernels[rows]
        joined.change[at] = part.change[rows]
    return joined


def _mean(parts: Sequence[_Shares]) -> _Shares:
    """Return the mean over models of the attributions of the same sequences; the kernels of all are kept apart."""
    if len(parts) == 1:
        return parts[0]
    return _Shares(
        np.mean([part.residues for part in parts], axis=0),
        np.concatenate([part.kernels for part in parts], axis=1) / len(parts),
        np.mean([part.change for part in parts], axis=0),
    )


def _of_repertoire(explained: _Explained, position: int, chosen: NDArray[np.int64]) -> _Shares:
    """Return the attributions of n different sequences of one repertoire, rows (n,); 0 for those that are not kept."""
    inference = explained.inference
    collator = inference.collator
    ((pooled, logits),) = inference.pooled([position])
    kept = np.zeros(len(logits), np.bool_)
    kept[kept_rows(logits, inference.top_fraction).numpy()] = True
    if explained.question.of == "contribution":
        explained.take_tangent(pooled)
    lengths = collator.take(position, chosen).sequences.lengths.numpy()
    inside = np.arange(lengths.max()) < lengths[:, None]  # (n, L)
    D = inference.network.embedding.out_features
    whole = _Shares(np.where(inside, 0.0, np.nan), np.zeros((len(chosen), D)), np.zeros(len(chosen)))
    scored = np.flatnonzero(kept[chosen])
    others = _others(inference, position, chosen[scored], kept) if len(scored) else None
    size = max(1, _AT_A_TIME // (explained.question.steps * inside.shape[1] * D))
    for first in range(0, len(scored), size):
        assert others is not None
        piece = slice(first, first + size)
        at = scored[piece]
        batch = collator.take(position, chosen[at]).to(others.level.device)
        part = explained(batch, _Others(others.average[piece], others.level[piece]))
        whole.residues[at, : part.residues.shape[1]] += part.residues  # NaN beyond the end stays
        whole.kernels[at], whole.change[at] = part.kernels, part.change
    return whole


class _Others(NamedTuple):
    """Each of n sequences has others in its repertoire: their average and their level, float64 on the network's device.

    Attributes
    ----------
    average
        The average of the other sequences' representations by the attention of each head, (n, H, S); 0 if there is no
        other sequence.
    level
        The log of the sum of the other sequences' exponentiated logits, (n, H).
    """

    average: Tensor
    level: Tensor


@torch.no_grad()
def _others(inference: Inference, position: int, chosen: NDArray[np.int64], kept: NDArray[np.bool_]) -> _Others:
    """Return the sums over the kept sequences without each of the chosen ones, (n,).

    Nothing is subtracted, which would leave noise where one sequence has nearly all the attention: the sums over the
    sequences that are not chosen are joined with those over the chosen ones before and after each.
    """
    rest = kept.copy()
    rest[chosen] = False
    average, level = _averages(inference, position, np.flatnonzero(rest))
    pieces = [inference.network.attend(batch) for batch in inference.batches(position, chosen)]
    values, logits = (torch.cat(column).double() for column in zip(*pieces, strict=True))  # (n, S), (n, H)
    highest = torch.maximum(level, logits.amax(dim=0))  # (H,)
    share = torch.exp(logits - highest)  # (n, H)
    of_rest = torch.exp(level - highest)
    weight = of_rest + _without_own(share)  # (n, H)
    total = of_rest[:, None] * average + _without_own(share[:, :, None] * values[:, None])  # (n, H, S)
    tiny = torch.finfo(torch.float64).tiny
    return _Others(total / weight.clamp_min(tiny)[:, :, None], highest + weight.log())


def _averages(inference: Inference, position: int, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Return each head's average over the given sequences, (H, S), and the log of their summed exponentials, (H,)."""
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


def _without_own(terms: Tensor) -> Tensor:
    """Return for each of n terms the sum of all others, (n, ...)."""
    none = torch.zeros_like(terms[:1])
    before = torch.cat([none, terms[:-1].cumsum(dim=0)])
    after = torch.cat([none, terms[1:].flip(0).cumsum(dim=0)]).flip(0)
    return before + after


class _Question(NamedTuple):
    """What is asked of a network: which output, see `attribute`, times `scale` plus `shift`."""

    output: int
    of: Of
    steps: int
    scale: float
    shift: float


class _Explained:
    """The network in float64, as a function of one sequence, and its integrated gradients.

    Between the features and the representation lies what is linear, the convolution, and what is not. A straight line
    of features is a straight line of convolved windows: the integral follows the latter, so that the convolution is
    computed at both ends only, and the mean gradient is then taken back through it.
    """

    def __init__(self, inference: Inference, frequencies: Tensor, question: _Question) -> None:
        self.inference, self.question = inference, question
        self.frequencies = frequencies.to(inference.device)  # (20,)
        self._exact = deepcopy(inference.network).double().requires_grad_(False)
        self._exact.embedding.train()  # cuDNN's LSTM has gradients in this mode only; no embedding differs in it

    def take_tangent(self, pooled: Tensor) -> None:
        """Explain contributions to the output of a repertoire with this representation, (H, S)."""
        output, _, _, scale, shift = self.question
        gradient, offset, _ = tangent(self.inference.network, pooled)
        device = self.inference.device
        self._gradient = (scale * gradient[output]).to(device)  # (H, S)
        self._offset = (scale * offset[output] + shift / len(pooled)).to(device)  # ()

    def __call__(self, batch: RepertoireBatch, others: _Others) -> _Shares:
        """Return the attributions of the n sequences of a batch."""
        lengths = batch.sequences.lengths
        features = dense_features(batch.sequences).double().requires_grad_()  # (n, L, 23)
        baseline = self._baseline(features.detach())
        encoder = self._exact.embedding
        windows, baseline_windows = encoder.linear_part(features), encoder.linear_part(baseline)
        genes = self._exact.embed_genes(batch).double()  # (n, 2 G)
        fixed = (genes, *others)
        with torch.no_grad():
            values, baseline_values = (encoder.encode(w, lengths) for w in (windows, baseline_windows))
            change = self._explained(values, *fixed) - self._explained(baseline_values, *fixed)

        gradient = _mean_gradient(
            lambda windows, lengths, *fixed: self._explained(encoder.encode(windows, lengths), *fixed),
            baseline_windows.detach(),
            windows.detach(),
            (lengths, *fixed),
            steps=self.question.steps,
        )
        (gradient,) = torch.autograd.grad(windows, features, gradient)  # (n, L, 23)
        residues = (gradient * (features.detach() - baseline)).sum(dim=2)
        mean = _mean_gradient(self._explained, baseline_values, values, fixed, steps=self.question.steps)  # (n, D)
        kernels = mean * (values - baseline_values)
        return _Shares(*(result.detach().cpu().numpy() for result in (residues, kernels, change)))

    def _baseline(self, features: Tensor) -> Tensor:
        """Return the features (n, L, 23) of an average residue at every position."""
        one_hot, positional = features[:, :, :N_AMINO_ACIDS], features[:, :, N_AMINO_ACIDS:]
        return torch.cat([one_hot.sum(dim=2, keepdim=True) * self.frequencies, positional], dim=2)

    def _explained(self, values: Tensor, genes: Tensor, average: Tensor, level: Tensor) -> Tensor:
        """Return the contributions of n sequences, or the outputs of their repertoires, (n,)."""
        values = torch.cat([values, genes], dim=1)  # (n, D), (n, 2 G) -> (n, S)
        logits = self._exact.key_network(values) @ self._exact.pooling.scaled_queries()[:, 0].T  # (n, d_k) @ (d_k, H)
        attention = torch.sigmoid(logits - level)[:, :, None]  # (n, H, 1)
        if self.question.of == "contribution":
            return (attention[:, :, 0] * (values @ self._gradient.T + self._offset)).sum(dim=1)  # (n, S) @ (S, H)
        pooled = average + attention * (values[:, None] - average)  # (n, H, S)
        outputs: Tensor = self._exact.output_network(pooled.flatten(1))  # (n, H * S) -> (n, T)
        return self.question.scale * outputs[:, self.question.output]


def _mean_gradient(
    function: Callable[..., Tensor], start: Tensor, end: Tensor, fixed: Sequence[Tensor], *, steps: int
) -> Tensor:
    """Return the gradient of a function averaged along the straight line from start to end, (n, ...).

    The integral is approximated by the Gauss-Legendre rule, which has a smaller error than the midpoint rule, above all
    with few steps. All steps are computed at once; each row depends on its own arguments only, so the gradient of the
    sum over rows holds the gradient of each.

    Parameters
    ----------
    function
        Takes rows (n, ...) and `fixed`, and returns one number for each row, (n,).
    start, end
        The ends of the line, (n, ...).
    fixed
        Further arguments, (n, ...) each, which are the same along the line.
    steps
        Number of points at which the gradient is computed.
    """
    points, weights = (torch.from_numpy(each).to(start) for each in _gauss_legendre(steps))
    line = torch.cat([start + point * (end - start) for point in points]).requires_grad_()  # (steps * n, ...)
    repeated = [each.repeat(steps, *[1] * (each.ndim - 1)) for each in fixed]
    (gradient,) = torch.autograd.grad(function(line, *repeated).sum(), line)
    mean: Tensor = torch.tensordot(weights, gradient.unflatten(0, (steps, len(start))), dims=1)
    return mean


@cache
def _gauss_legendre(steps: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the points of the Gauss-Legendre rule on [0, 1] and their weights, which sum to 1, (steps,) each."""
    points, weights = np.polynomial.legendre.leggauss(steps)
    return (1 + points) / 2, weights / 2
