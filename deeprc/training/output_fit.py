"""Regression of the labels on the pooled values of whole repertoires: its weights become the output layer of a network.

Letters: B repertoires, n of them with sequences, H heads, Q branches, T outputs, S values of a sequence.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeprc import ranks
from deeprc.nn.inference import Inference
from deeprc.nn.network import DeepRC
from deeprc.nn.standardisation import RunningStandardisation
from deeprc.optimizers import LBFGS
from deeprc.outputs import compute_multitask_loss
from deeprc.progress import track
from deeprc.tasks import Task

__all__ = ["fit_output"]

_PENALTY = 1.0  # factor of the squared output weights, which are added to the sum of the losses
_MAX_STEPS = 200  # largest number of steps of the optimiser of the output weights


@torch.no_grad()
def fit_output(
    inference: Inference,
    labels: NDArray[np.float64],
    tasks: Sequence[Task],
    *,
    n_features: int | None = None,
    expected_gain: float = 1.0,
) -> None:
    """Set a linear output, and the gains of the branches, to the regression of labels on whole repertoires.

    The features of the regression are the pooled values, (H * S,). The moments of the standardisation become those of
    whole repertoires. The regression has an l2 penalty. The output weights of features that take no part are set to 0.
    An output of several layers keeps its weights.

    Parameters
    ----------
    inference
        The network, which is changed in place, with the training repertoires and the scores of its branches for them.
    labels, tasks
        Labels of the training repertoires, (B, number of tasks), NaN where missing, and the tasks.
    n_features
        Only the first `n_features` of the features take part; None: all.
    expected_gain
        Gain towards which the penalty pulls the gains of the branches: 1, since cross-fitted scores have about the
        right scale, or 0 if features and branches are to be treated alike.
    """
    network, collator = inference.network, inference.collator
    filled = np.flatnonzero(collator.dataset.n_sequences > 0)  # empty repertoires have no information
    if len(filled) == 0:
        return
    pooled = _pool_repertoires(inference, filled)
    moments = _set_moments(network, pooled)
    if network.linear_output is not None:
        scores = pooled.new_zeros(len(filled), 0, sum(task.n_outputs for task in tasks))  # without branches
        if collator.branches is not None:
            scores = collator.branches.take(torch.from_numpy(filled)).double()
        x = moments.eval()(pooled)[:, :n_features]
        weight, gains, bias = _fit_regression(x, scores, torch.from_numpy(labels[filled]), tasks, expected_gain)
        if network.branches is not None:
            network.branches.gains.copy_(gains)
        _write_output(network, weight, bias, moments)


def _pool_repertoires(inference: Inference, filled: NDArray[np.int64]) -> Tensor:
    """Return the pooled values of whole repertoires, (n, H * S) float64, by their positions, (n,).

    The ranks divide the repertoires among themselves, and all get the pooled values of all.
    """
    network, sizes = inference.network, inference.collator.dataset.n_sequences[filled]
    was_training = network.training
    network.eval()
    rank_share = filled[ranks.take_share_by_size(sizes)]
    own_pooled = track(
        inference.iterate_pooled(rank_share.tolist()), "regression on whole repertoires", len(rank_share)
    )
    all_pooled = ranks.gather([pooled.cpu() for pooled in own_pooled])
    network.train(was_training)
    return torch.stack(all_pooled).flatten(start_dim=1)  # (n, H, S) -> (n, H * S)


def _set_moments(network: DeepRC, pooled: Tensor) -> RunningStandardisation:
    """Return a standardisation by the moments of pooled values, (n, H * S); a network that standardises gets them."""
    moments = RunningStandardisation(pooled.shape[1]).double()
    moments.set_moments(pooled)
    standardisation = network.output_network[0]
    if isinstance(standardisation, RunningStandardisation):
        standardisation.load_state_dict(moments.state_dict())
    return moments


def _write_output(network: DeepRC, weight: Tensor, bias: Tensor, moments: RunningStandardisation) -> None:
    """Set the linear output to weights, (T, n), and biases, (T,), of the first n features, standardised by moments."""
    output, n = network.linear_output, weight.shape[1]
    assert output is not None
    if not isinstance(network.output_network[0], RunningStandardisation):
        weight = weight * moments.scale[:n]
        bias = bias - weight @ moments.mean[:n]
    output.weight.zero_()
    output.weight[:, :n] = weight
    output.bias.copy_(bias)


@torch.enable_grad()
def _fit_regression(
    x: Tensor, scores: Tensor, labels: Tensor, tasks: Sequence[Task], expected_gain: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Fit the outputs as a regression on standardised features, (B, n), and on the scores of branches, (B, Q, T).

    The penalty pulls weights towards 0, and gains towards `expected_gain`. The penalty of a gain equals that of the
    weight of a standardised feature with the same effect on the outputs.

    Returns
    -------
    tuple
        Weights (T, n), gains (Q, T) and biases (T,); no gain is below 0.
    """
    weight = x.new_zeros(scores.shape[2], x.shape[1], requires_grad=True)
    gains = x.new_ones(scores.shape[1:], requires_grad=True)
    bias = x.new_zeros(len(weight), requires_grad=True)
    spread = (scores - scores.mean(dim=0)).square().mean(dim=0).sqrt()
    n_labels = (~labels.isnan()).sum(dim=0).clamp(min=1)
    penalty_weights = torch.cat(
        [x.new_full((t.n_outputs,), _PENALTY * t.weight) / n for t, n in zip(tasks, n_labels, strict=True)]
    )
    optimizer = LBFGS([weight, gains, bias], max_iter=_MAX_STEPS, line_search_fn="strong_wolfe")

    def compute_loss() -> Tensor:
        optimizer.zero_grad()
        outputs = x @ weight.T + (scores * gains).sum(dim=1) + bias
        penalty = weight.square().sum(dim=1) + ((gains - expected_gain) * spread).square().sum(dim=0)  # (T,)
        value = compute_multitask_loss(outputs, labels, tasks) + penalty_weights @ penalty
        value.backward()
        return value

    optimizer.step(compute_loss)
    return weight.detach(), gains.detach().clamp(min=0), bias.detach()
