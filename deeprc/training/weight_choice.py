"""The choice of the weights that a training keeps, at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

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

__all__ = ["StateDict", "WeightChoice", "copy_state"]

StateDict = dict[str, Tensor]
"""All weights and buffers of a network, by name."""

_MAX_P_VALUE = 0.067
"""Largest one-sided p-value with which updates count as better than the start, if there are few validation donors.

It is that of 1.5 standard errors of many donors, and of 4.7 standard errors of two.
"""


class _Candidate(NamedTuple):
    """Weights that may be kept, the update that made them (0 for the start), and their loss on whole repertoires."""

    weights: StateDict
    update: int
    loss: float


@dataclass(frozen=True)
class WeightChoice:
    """The choice between the weights of the best update and those of the start.

    Attributes
    ----------
    inference
        The network, whose weights are changed, with the training repertoires.
    labels
        Labels of the training repertoires, (B, number of tasks), NaN where missing.
    evaluator
        Evaluator of the validation repertoires.
    state
        State of the training, which has ended. Its `best_update` is the best update by the evaluations of the training.
        `best_update` in the last row of its history becomes the update whose weights are kept, 0 for the start.
    update_weights, start_weights
        Weights of the best update, and of the start; the latter are empty if nothing was learned before the first
        update.
    """

    inference: Inference
    labels: NDArray[np.float64]
    evaluator: Evaluator
    state: TrainingState
    update_weights: StateDict
    start_weights: StateDict

    def choose(self) -> StateDict:
        """Return the weights that are kept; note the choice in the history.

        1. If evaluations read samples, the losses of whole validation repertoires decide, see
           `_choose_by_whole_repertoires`. Otherwise the weights of the best update are chosen.
        2. The start is kept if there are few validation donors and its output is a regression, unless the chosen
           weights are clearly better, see `_are_clearly_better`. The reason: the best of many updates often has a lower
           loss on few donors by chance, and is then worse on new repertoires.
        """
        if self.state.best_update == 0:
            return self.update_weights
        chosen = self._choose_by_whole_repertoires() if self.evaluator.reads_samples else self.update_weights
        start_is_regression = bool(self.start_weights) and self.inference.network.linear_output is not None
        if chosen is self.start_weights or not start_is_regression or not self.evaluator.has_few_donors:
            return chosen
        self.state.prefers_start = not self._are_clearly_better(chosen)
        if not self.state.prefers_start:
            return chosen
        self._note_start()
        return self.start_weights

    def _note_start(self) -> None:
        """Note in the last row of the history that the weights of the start are kept."""
        last_row = self.state.history[-1]
        last_row["best_update"] = 0
        if "fitted" in last_row:
            last_row["fitted"] = 0.0

    def _are_clearly_better(self, weights: StateDict) -> bool:
        """Return whether weights lower the loss of the start beyond chance, by a t-test across donors.

        Afterwards the network has these weights.
        """
        start_losses, losses = (self._measure_repertoire_losses(each) for each in (self.start_weights, weights))
        if not (np.isfinite(start_losses).all() and np.isfinite(losses).all()):
            return bool(np.isfinite(losses).all())
        t = count_standard_errors(start_losses - losses, self.evaluator.repertoires.groups)
        return bool(stdtr(max(self.evaluator.n_donors - 1, 1), -t) < _MAX_P_VALUE)

    def _measure_repertoire_losses(self, weights: StateDict) -> NDArray[np.float64]:
        """Return the loss of weights on each whole validation repertoire, (validation repertoires,)."""
        self.inference.network.load_state_dict(weights)
        return self.evaluator.compute_repertoire_losses(self.inference.network)

    def _choose_by_whole_repertoires(self) -> StateDict:
        """Return the weights with the lowest loss on whole repertoires; note the choice and all losses in the history.

        There are three candidates:

        - the best update;
        - the start, which is kept unless the best update is better by more than `least_gain`;
        - the best update with a refitted output, a regression on whole training repertoires. It is kept only if it is
          better by more than `least_gain` than the one of the first two that would be kept.

        The output is refitted because updates learn from samples, which show less of a signal than whole repertoires.
        """
        least_gain, best_update = self.evaluator.settings.least_gain, self.state.best_update
        kept = self._measure_candidate(self.update_weights, best_update, "whole")
        if self.start_weights:
            start = self._measure_candidate(self.start_weights, 0, "whole")
            if start.loss <= kept.loss + least_gain:
                kept = start
        is_refitted = False
        if self.inference.network.linear_output is not None:
            refitted = self._measure_candidate(self._refit_output(), best_update, "fitted")
            is_refitted = refitted.loss < kept.loss - least_gain
            if is_refitted:
                kept = refitted
        self.state.history[-1] |= {"best_update": kept.update, "fitted": float(is_refitted)}
        return kept.weights

    def _refit_output(self) -> StateDict:
        """Return the weights of the best update with an output that is refitted to whole training repertoires."""
        network = self.inference.network
        network.load_state_dict(self.update_weights)
        fit_output(self.inference, self.labels, self.evaluator.tasks)
        ranks.broadcast_tensors(list(network.state_dict().values()))
        return copy_state(network)

    def _measure_candidate(self, weights: StateDict, update: int, prefix: str) -> _Candidate:
        """Return weights with their loss on whole validation repertoires; note it in the history's row of an update.

        In the row, the names of all metrics begin with the prefix. If the loss is not finite, it becomes infinite, and
        nothing is noted.
        """
        self.inference.network.load_state_dict(weights)
        loss, monitored = self.evaluator.compute_whole_loss(self.inference.network)
        if not np.isfinite(loss):
            return _Candidate(weights, update, float("inf"))
        row = next(row for row in reversed(self.state.history) if row["update"] == update)
        row |= {f"{prefix}_{name}": value for name, value in {"validation_loss": loss, **monitored}.items()}
        return _Candidate(weights, update, loss)


def copy_state(network: DeepRC) -> StateDict:
    """Return a copy of all weights and buffers of a network, by name."""
    return {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
