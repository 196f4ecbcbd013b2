"""Regression of the labels on the representations of whole repertoires, which are the output layer of a network.

Letters: B repertoires, H heads, Q readings, T outputs, S numbers that represent a sequence.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeprc import ranks
from deeprc.nn.inference import Inference
from deeprc.nn.network import RunningStandardisation
from deeprc.outputs import multitask_loss
from deeprc.progress import track
from deeprc.tasks import Task

__all__ = ["fit_output"]

_PENALTY = 1.0  # factor of the squared output weights, which are added to the sum of the losses
_MAX_STEPS = 200  # largest number of steps of the optimiser of the output weights


@torch.no_grad()
def fit_output(
    inference: Inference, labels: NDArray[np.float64], tasks: Sequence[Task], *, n_features: int | None = None
) -> None:
    """Set a linear output to the regression of labels on whole repertoires, and the gains of the readings with it.

    The moments of the standardisation are those of the representations of whole repertoires. The regression has an l2
    penalty. Weights of features without part in it are 0. An output of several layers keeps its weights.

    Parameters
    ----------
    inference
        The network, which is changed in place, with the training repertoires and the scores of its readings for them.
    labels, tasks
        Labels of the training repertoires, (B, number of tasks), NaN where missing, and the tasks.
    n_features
        Number of the first features that take part, of H * S; None: all.
    """
    network, collator = inference.network, inference.collator
    filled = np.flatnonzero(collator.dataset.n_sequences > 0)  # empty repertoires have no information
    if len(filled) == 0:
        return
    was_training = network.training
    network.eval()
    own = filled[ranks.take_share_by_size(collator.dataset.n_sequences[filled])]
    averages = track(inference.averages(own.tolist()), "regression on whole repertoires", len(own))
    pooled = ranks.gather([mean.cpu() for mean in averages])
    network.train(was_training)
    representation = torch.stack(pooled).flatten(start_dim=1)  # (B, H, S) -> (B, H * S) float64
    moments = RunningStandardisation(representation.shape[1]).double()
    moments.start(representation)
    standardisation = network.output_network[0]
    if isinstance(standardisation, RunningStandardisation):
        standardisation.load_state_dict(moments.state_dict())
    output = network.linear_output
    if output is None:
        return
    scores = representation.new_zeros(len(filled), 0, sum(task.n_outputs for task in tasks))
    if collator.readings is not None:
        scores = collator.readings.at(torch.from_numpy(filled)).double()
    part = slice(n_features)
    x = moments.eval()(representation)[:, part]
    weight, gains, bias = _fit_regression(x, scores, torch.from_numpy(labels[filled]), tasks)
    if network.readings is not None:
        network.readings.gains.copy_(gains)
    if not isinstance(standardisation, RunningStandardisation):
        weight = weight * moments.scale[part]
        bias = bias - weight @ moments.mean[part]
    output.weight.zero_()
    output.weight[:, part] = weight
    output.bias.copy_(bias)


@torch.enable_grad()
def _fit_regression(x: Tensor, scores: Tensor, labels: Tensor, tasks: Sequence[Task]) -> tuple[Tensor, Tensor, Tensor]:
    """Fit the outputs as a regression on standardised features, (B, n), and on the scores of readings, (B, Q, T).

    The penalty pulls weights towards 0, and gains towards 1, because cross-fitted scores already have about the right
    scale. The penalty of a gain equals that of the weight of a standardised feature with the same effect on the
    outputs.

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
    share = torch.cat(
        [x.new_full((t.n_outputs,), _PENALTY * t.weight) / n for t, n in zip(tasks, n_labels, strict=True)]
    )
    optimizer = torch.optim.LBFGS([weight, gains, bias], max_iter=_MAX_STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        outputs = x @ weight.T + (scores * gains).sum(dim=1) + bias
        penalty = weight.square().sum(dim=1) + ((gains - 1) * spread).square().sum(dim=0)  # (T,)
        value = multitask_loss(outputs, labels, tasks) + share @ penalty
        value.backward()
        return value

    optimizer.step(loss)
    return weight.detach(), gains.detach().clamp(min=0), bias.detach()
