"""The choice of the weights that a training keeps, at its end."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr
from torch import Tensor

from deeprc import ranks
from deeprc.branches.donors import count_standard_errors
from deeprc.nn.inference import Inference
from deeprc.nn.network import DeepRC
from deeprc.training.output_fit import fit_output
from deeprc.training.state import TrainingState
from deeprc.training.validation import Evaluator

__all__ = ["Weights", "choose_weights", "copy_state"]

Weights = dict[str, Tensor]
"""All weights and buffers of a network, by name."""

_MAX_P_VALUE = 0.067
"""Largest one-sided p-value with which updates count as better than the start, if there are few validation donors.

It is that of 1.5 standard errors of many donors, and of 4.7 standard errors of two.
"""


def choose_weights(
    inference: Inference,
    labels: NDArray[np.float64],
    evaluator: Evaluator,
    state: TrainingState,
    best: Weights,
    start: Weights,
) -> Weights:
    """Return the weights that are kept; note the choice in the history.

    If evaluations read samples, the losses of whole validation repertoires decide, see `_choose_by_whole_repertoires`.
    Of few validation donors, the best of many updates often has a lower loss than the start by chance, and is worse on
    new repertoires. Then a start that is a regression is kept unless the later weights are clearly better, see
    `_are_clearly_better`.

    Parameters
    ----------
    inference
        The network, whose weights are changed, with the training repertoires.
    labels
        Labels of the training repertoires, (B, number of tasks), NaN where missing.
    evaluator
        Evaluator of the validation repertoires.
    state
        State of the training, which has ended.
    best, start
        Weights of the best update, and of the start; the latter are empty if nothing was learned before the first
        update.
    """
    if state.best_update == 0:
        return best
    kept = best
    if evaluator.reads_samples:
        kept = _choose_by_whole_repertoires(inference, labels, evaluator, state, best=best, start=start)
    is_regression = bool(start) and inference.network.linear_output is not None
    if not is_regression or kept is start or not evaluator.has_few_donors:
        return kept
    state.prefers_start = not _are_clearly_better(kept, start, inference.network, evaluator)
    if not state.prefers_start:
        return kept
    state.history[-1]["best_update"] = 0
    if "fitted" in state.history[-1]:
        state.history[-1]["fitted"] = 0.0
    return start


def _are_clearly_better(weights: Weights, start: Weights, network: DeepRC, evaluator: Evaluator) -> bool:
    """Return whether weights lower the loss of the start beyond chance, by a t-test in which a donor is one observation.

    The network ends with any of the weights.
    """
    losses = []
    for each in (start, weights):
        network.load_state_dict(each)
        losses.append(evaluator.compute_repertoire_losses(network))
    if not np.isfinite(losses[0]).all():
        return True
    z = count_standard_errors(losses[0] - losses[1], evaluator.fold.groups)
    n_donors = len(np.unique(evaluator.fold.index_donors()))
    return bool(stdtr(max(n_donors - 1, 1), -z) < _MAX_P_VALUE)


def _choose_by_whole_repertoires(
    inference: Inference,
    labels: NDArray[np.float64],
    evaluator: Evaluator,
    state: TrainingState,
    *,
    best: Weights,
    start: Weights,
) -> Weights:
    """Return the weights with the lowest loss on whole repertoires; note the choice and all losses in the history.

    Candidates are, in this order, the best update, the start, and the best update with a refitted output, because
    updates learn from samples, which show less of a signal than whole repertoires. The start is kept unless the best
    update is better by more than `least_gain`. The refitted output, a regression on whole training repertoires, is kept
    only if it is better than that by more than `least_gain`. The parameters are those of `choose_weights`.
    """
    least_gain = evaluator.settings.least_gain
    losses = _LossRecorder(inference.network, evaluator, {row["update"]: row for row in state.history})
    kept, kept_update, lowest = best, state.best_update, losses.measure(best, state.best_update, "whole")
    if start:
        loss = losses.measure(start, 0, "whole")
        if loss <= lowest + least_gain:
            kept, kept_update, lowest = start, 0, loss
    fitted = False
    if inference.network.linear_output is not None:
        inference.network.load_state_dict(best)
        fit_output(inference, labels, evaluator.tasks)
        ranks.broadcast_tensors(list(inference.network.state_dict().values()))
        weights = copy_state(inference.network)
        loss = losses.measure(weights, state.best_update, "fitted")
        if fitted := loss < lowest - least_gain:
            kept, kept_update = weights, state.best_update
    state.history[-1] |= {"best_update": kept_update, "fitted": float(fitted)}
    return kept


class _LossRecorder:
    """Recorder of the losses of candidate weights, in the rows of the history, by the number of updates."""

    def __init__(self, network: DeepRC, evaluator: Evaluator, rows: Mapping[float, dict[str, float]]) -> None:
        self._network, self._evaluator, self._rows = network, evaluator, rows

    def measure(self, weights: Weights, update: int, prefix: str) -> float:
        """Return the loss of weights on whole validation repertoires, and note all numbers in the row of an update.

        In the row, the names of the numbers begin with the prefix. Weights whose loss is not finite are no candidates:
        their loss is infinite, and nothing is noted.
        """
        self._network.load_state_dict(weights)
        loss, monitored = self._evaluator.compute_loss(self._network, whole=True)
        if not np.isfinite(loss):
            return float("inf")
        self._rows[update] |= {
            f"{prefix}_{name}": value for name, value in {"validation_loss": loss, **monitored}.items()
        }
        return loss


def copy_state(network: DeepRC) -> Weights:
    """Return a copy of all weights and buffers of a network, by name."""
    return {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
