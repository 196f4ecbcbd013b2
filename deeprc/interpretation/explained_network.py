"""A network as a function of one sequence, with all other sequences of its repertoire fixed, and its attributions.

See `deeprc.interpretation.attributions`. Of the sequences of a repertoire that the top fraction keeps, some are chosen,
to be explained, and the others are the rest. For example, 10 of 1,000 kept sequences are chosen. What one of them
contributes depends on 999 others: the 9 other chosen ones and the 990 of the rest. These are its surroundings.

Letters: N sequences of one repertoire, n chosen ones (in `attribute`, of any repertoires), L positions of the longest,
H heads, D kernels (or LSTM units), G units of a gene's embedding, S = D + 2 G dimensions of the representation, T
outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deeprc.interpretation.integrated_gradients import average_gradient
from deeprc.nn.batch import RepertoireBatch
from deeprc.nn.features import N_AMINO_ACIDS
from deeprc.nn.inference import Inference
from deeprc.nn.linearisation import linearise_outputs
from deeprc.nn.motif_convolution.reference import make_dense_features
from deeprc.nn.pooled_values import PooledAccumulator

__all__ = [
    "AttributionArrays",
    "ExplainedNetwork",
    "ExplainedQuantity",
    "Of",
    "Surroundings",
    "join_surroundings",
    "take_surroundings",
]

Of = Literal["contribution", "output"]
"""Which quantity is divided: the contribution of the sequence to the output of its repertoire, or this output."""

_LOGITS_AT_A_TIME = 2**20  # sequences whose logits are converted to float64 at a time


class ExplainedQuantity(NamedTuple):
    """The quantity that is divided, as a function of one sequence: `scale` times the network's number, plus `shift`.

    Attributes
    ----------
    output
        Index of the output.
    of
        Whether the quantity is the output, or the contribution of the sequence to it.
    scale, shift
        Conversion of the network's units into those that all models of an ensemble have in common. A difference of two
        outputs does not depend on the shift.
    """

    output: int
    of: Of
    scale: float
    shift: float


class AttributionArrays(NamedTuple):
    """Attributions of n sequences: residues (n, L), kernels (n, D) and change (n,), see `Attributions`."""

    residues: NDArray[np.float64]
    kernels: NDArray[np.float64]
    change: NDArray[np.float64]


class ContributionSurroundings(NamedTuple):
    """What the contributions of n sequences depend on besides each sequence, float64 on the network's device.

    Attributes
    ----------
    logsumexp
        Logarithm of the summed exponentials of the logits of the other sequences, (n, H); -inf if there is none.
    gradient
        Gradient of the output by the average of each head over the repertoire, (n, H, S).
    offset
        Part of a response that does not depend on the sequence, (n,).
    """

    logsumexp: Tensor
    gradient: Tensor
    offset: Tensor


class OutputSurroundings(NamedTuple):
    """What the output of n repertoires depends on besides one sequence of each, float64 on the network's device.

    Attributes
    ----------
    logsumexp
        As in `ContributionSurroundings`, (n, H).
    average
        Average of the representations of the other sequences with the attention of each head, (n, H, S); 0 if there is
        no other sequence.
    """

    logsumexp: Tensor
    average: Tensor


Surroundings = ContributionSurroundings | OutputSurroundings
"""What the quantity depends on besides each of n sequences."""


def take_surroundings(surroundings: Surroundings, rows: slice) -> Surroundings:
    """Return the surroundings of some of the n sequences."""
    return type(surroundings)(*(array[rows] for array in surroundings))


def join_surroundings(parts: Sequence[Surroundings]) -> Surroundings:
    """Return the surroundings of several groups of sequences, one after the other; all have one type."""
    return type(parts[0])(*(torch.cat(arrays) for arrays in zip(*parts, strict=True)))


class ExplainedNetwork:
    """The network in float64, as a function of one sequence, with its integrated gradients.

    The convolution, which is the first step from features to the representation, is linear. So a straight line of
    features becomes a straight line of convolved windows. The integral follows the line of windows. So the convolution
    is computed only at both ends, and the mean gradient is propagated back through it once.

    Parameters
    ----------
    inference
        The network and the dataset.
    frequencies
        Frequencies of the amino acids in an average residue, (20,).
    quantity
        The quantity that is divided.
    steps
        Number of points of the numerical integral.
    """

    def __init__(self, inference: Inference, frequencies: Tensor, quantity: ExplainedQuantity, *, steps: int) -> None:
        self.inference, self.quantity, self.steps = inference, quantity, steps
        self.frequencies = frequencies.to(inference.device)  # (20,)
        self._exact = deepcopy(inference.network).double().requires_grad_(False).eval()
        for module in self._exact.embedding.modules():
            if isinstance(module, nn.RNNBase):
                module.train().dropout = 0.0  # cuDNN's recurrent layers have gradients in this mode only

    def compute_surroundings(
        self, position: int, chosen: NDArray[np.int64], kept: NDArray[np.bool_], pooled: Tensor, logits: Tensor
    ) -> Surroundings:
        """Return the surroundings of the sequences at the rows `chosen`, (n,), of one repertoire.

        Parameters
        ----------
        position, chosen
            Position of the repertoire in the dataset, and rows of its different sequences, (n,), all of them kept.
        kept
            Whether the top fraction keeps each sequence, (N,).
        pooled, logits
            Average of each head over the repertoire, (H, S), and logits of all sequences, (N, H), on the CPU.
        """
        is_rest = kept.copy()
        is_rest[chosen] = False
        chosen_logits, rest_logits = logits[torch.from_numpy(chosen)].double(), logits[torch.from_numpy(is_rest)]
        logsumexp = _compute_logsumexp_of_others(rest_logits, chosen_logits).to(self.inference.device)
        if self.quantity.of == "contribution":
            return self._surround_contributions(pooled, logsumexp)
        rest = np.flatnonzero(is_rest)
        average = self._average_others(position, chosen, rest, chosen_logits.to(logsumexp), logsumexp)
        return OutputSurroundings(logsumexp, average)

    def _surround_contributions(self, pooled: Tensor, logsumexp: Tensor) -> ContributionSurroundings:
        """Return the surroundings of n sequences of a repertoire; all but `logsumexp` are the same for all of them."""
        n, scale = len(logsumexp), self.quantity.scale
        linear = linearise_outputs(self.inference.network, pooled)
        gradient = scale * linear.gradient[self.quantity.output]  # (H, S)
        offset = scale * linear.offset[self.quantity.output] + self.quantity.shift / len(pooled)
        return ContributionSurroundings(
            logsumexp, gradient.to(logsumexp).expand(n, -1, -1), offset.to(logsumexp).expand(n)
        )

    @torch.no_grad()
    def _average_others(
        self,
        position: int,
        chosen: NDArray[np.int64],
        rest: NDArray[np.int64],
        chosen_logits: Tensor,
        logsumexp: Tensor,
    ) -> Tensor:
        """Return the average of each head over the other kept sequences, for n chosen sequences, (n, H, S).

        Parameters
        ----------
        position
            Position of the repertoire in the dataset.
        chosen, rest
            Rows of the chosen sequences, (n,), and of the rest.
        chosen_logits, logsumexp
            Logits of the chosen sequences, and logsumexp of the logits of all others, (n, H) each.
        """
        network = self.inference.network
        pooled_rest = PooledAccumulator(network)
        for batch in self.inference.iterate_batches(position, rest):
            pooled_rest.add(*(result.double() for result in network.attend(batch)))
        batches = self.inference.iterate_batches(position, chosen)
        values = torch.cat([network.attend(batch)[0] for batch in batches]).double()  # (n, S)
        rest_average, rest_logsumexp = pooled_rest.compute_pooled(), pooled_rest.compute_logsumexp()
        return _average_all_but_one(values, chosen_logits, rest_average, rest_logsumexp, logsumexp)

    def attribute(self, batch: RepertoireBatch, surroundings: Surroundings) -> AttributionArrays:
        """Return the attributions of the n sequences of a batch, which may be of several repertoires."""
        lengths = batch.sequences.lengths
        features = make_dense_features(batch.sequences).double().requires_grad_()  # (n, L, 23)
        baseline = self._make_baseline(features.detach())
        encoder = self._exact.embedding
        windows, baseline_windows = encoder.linear_part(features), encoder.linear_part(baseline)
        genes = self._exact.embed_genes(batch).double()  # (n, 2 G)
        fixed = (genes, *surroundings)  # the same along the line from the baseline to the sequence
        compute = self._compute_contributions if self.quantity.of == "contribution" else self._compute_outputs
        with torch.no_grad():
            values, baseline_values = encoder.encode(windows, lengths), encoder.encode(baseline_windows, lengths)
            change = compute(values, *fixed) - compute(baseline_values, *fixed)

        window_gradient = average_gradient(
            lambda windows, lengths, *fixed: compute(encoder.encode(windows, lengths), *fixed),
            baseline_windows.detach(),
            windows.detach(),
            (lengths, *fixed),
            steps=self.steps,
        )
        weighted = (windows * window_gradient).sum()  # a third argument of `grad` would have torch import sympy
        (feature_gradient,) = torch.autograd.grad(weighted, features)  # (n, L, 23)
        residues = (feature_gradient * (features.detach() - baseline)).sum(dim=2)
        value_gradient = average_gradient(compute, baseline_values, values, fixed, steps=self.steps)  # (n, D)
        kernels = value_gradient * (values - baseline_values)
        return AttributionArrays(*(result.detach().cpu().numpy() for result in (residues, kernels, change)))

    def _make_baseline(self, features: Tensor) -> Tensor:
        """Return the features of the baseline, (n, L, 23), with an average residue at every position."""
        one_hot, positional = features[:, :, :N_AMINO_ACIDS], features[:, :, N_AMINO_ACIDS:]
        return torch.cat([one_hot.sum(dim=2, keepdim=True) * self.frequencies, positional], dim=2)

    def _compute_contributions(
        self, values: Tensor, genes: Tensor, logsumexp: Tensor, gradient: Tensor, offset: Tensor
    ) -> Tensor:
        """Return the contributions of n sequences, (n,), see `ContributionSurroundings`."""
        values = torch.cat([values, genes], dim=1)  # (n, D), (n, 2 G) -> (n, S)
        responses = (gradient @ values[:, :, None])[:, :, 0] + offset[:, None]  # (n, H, S) @ (n, S, 1)
        return (self._compute_attention(values, logsumexp) * responses).sum(dim=1)

    def _compute_outputs(self, values: Tensor, genes: Tensor, logsumexp: Tensor, average: Tensor) -> Tensor:
        """Return the outputs of the repertoires of n sequences, (n,), see `OutputSurroundings`."""
        values = torch.cat([values, genes], dim=1)  # (n, D), (n, 2 G) -> (n, S)
        attention = self._compute_attention(values, logsumexp)
        pooled = average + attention[:, :, None] * (values[:, None] - average)  # (n, H, S)
        outputs: Tensor = self._exact.output_network(pooled.flatten(1))  # (n, H * S) -> (n, T)
        return self.quantity.scale * outputs[:, self.quantity.output]

    def _compute_attention(self, values: Tensor, logsumexp: Tensor) -> Tensor:
        """Return the attention weight of n sequences beside the others of their repertoires, (n, H)."""
        logits = self._exact.key_network(values) @ self._exact.pooling.scaled_queries()[:, 0].T  # (n, d_k) @ (d_k, H)
        return torch.sigmoid(logits - logsumexp)


def _average_all_but_one(
    values: Tensor, logits: Tensor, rest_average: Tensor, rest_logsumexp: Tensor, logsumexp: Tensor
) -> Tensor:
    """Return the average of each head over the rest and all chosen sequences but one, for n chosen ones, (n, H, S).

    The total minus one sequence would be inaccurate if this sequence has nearly all the attention. So the others are
    added up instead: the rest, and the chosen sequences before and after this one. The sequence with the highest logit
    of a head may make all other terms 0 by rounding, so the average beside it is computed separately.

    Parameters
    ----------
    values, logits
        Representations, (n, S), and logits, (n, H), of the chosen sequences.
    rest_average, rest_logsumexp
        Average of each head over the rest, (H, S), and logsumexp of their logits, (H,).
    logsumexp
        Logsumexp of the logits of all others, for each chosen sequence, (n, H).
    """
    highest = torch.maximum(logits, logsumexp).amax(dim=0)  # (H,), subtracted so that no exp overflows
    weighted = torch.exp(logits - highest)[:, :, None] * values[:, None]  # (n, H, S)
    totals = torch.exp(rest_logsumexp - highest)[:, None] * rest_average + _sum_all_others(weighted)
    averages = totals / torch.exp(logsumexp - highest).clamp_min(torch.finfo(torch.float64).tiny)[:, :, None]
    # beside the sequence with the highest logit, all other terms may have become 0
    for head, top in enumerate(logits.argmax(dim=0).tolist()):
        if torch.isfinite(logsumexp[top, head]):
            weights = torch.exp(logits[:, head] - logsumexp[top, head])  # (n,)
            weights[top] = 0
            rest_weight = torch.exp(rest_logsumexp[head] - logsumexp[top, head])
            averages[top, head] = rest_weight * rest_average[head] + weights @ values
    return averages


def _compute_logsumexp_of_others(rest: Tensor, chosen: Tensor) -> Tensor:
    """Return the logsumexp of the logits of all other kept sequences for each of n chosen ones, (n, H) float64.

    The arguments are the logits of the rest, (m, H), and of the chosen sequences, (n, H) float64. Each chosen sequence
    has the rest, those before it and those after it as others; without any, the result is -inf.
    """
    none = torch.full_like(chosen[:1], -torch.inf)
    before = torch.cat([none, chosen[:-1].logcumsumexp(dim=0)])
    after = torch.cat([none, chosen[1:].flip(0).logcumsumexp(dim=0)]).flip(0)
    parts = [part.double().logsumexp(dim=0) for part in rest.split(_LOGITS_AT_A_TIME)]
    of_rest = torch.stack(parts).logsumexp(dim=0)  # (H,)
    return torch.stack([of_rest.expand_as(chosen), before, after]).logsumexp(dim=0)


def _sum_all_others(terms: Tensor) -> Tensor:
    """Return the sum of all other terms for each of n terms, (n, ...)."""
    none = torch.zeros_like(terms[:1])
    before = torch.cat([none, terms[:-1].cumsum(dim=0)])
    after = torch.cat([none, terms[1:].flip(0).cumsum(dim=0)]).flip(0)
    return before + after
