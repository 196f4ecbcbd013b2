"""`LogisticMIL`: logistic regression on 4-mers; the score of a repertoire is the highest score of its 4-mers.

Paper lines 8990-9011 and 9144-9176, after Ostmeyer et al. 2019, Cancer Research 79:1671.

Letters: B repertoires, F features, K restarts for all carrier classes, V numbers of epochs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from deeprc.baselines.atchley import ATCHLEY_FACTORS
from deeprc.baselines.kmer_abundance import load_kmer_abundances
from deeprc.baselines.logistic_mil_loops import N_FEATURES, Checkpoints, Sample, Schedule, score, train
from deeprc.baselines.parameters import check_choice, check_positive, check_whole_number
from deeprc.baselines.restored import check_dtype, check_numbers
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.documents import abbreviate, validate
from deeprc.estimators import BinaryClassifier

__all__ = ["LogisticMIL"]

_NO_VARIANCE = 1e-12  # share of the mean square; a variance below it comes from rounding


class LogisticMIL(BinaryClassifier):
    """Logistic regression on the Atchley factors and the abundance of 4-mers, fitted to repertoires by their maximum.

    The highest score among a repertoire's 4-mers is the log-odds that the repertoire is of the carrier class, the class
    that carries a signal. Because of the maximum, the two classes cannot be exchanged. If several 4-mers have the
    highest score, the first in the order of `list_kmers` counts. Training starts from several random weights and keeps
    the result with the lowest training loss. Features are standardised, as by Ostmeyer et al.: the mean and the
    variance over the distinct 4-mers of a repertoire are averaged over the training repertoires. A repertoire without a
    4-mer does not take part in training, and its score is the log-odds of the classes in the training repertoires.

    Parameters
    ----------
    abundance
        Abundance that is a feature, as a logarithm. `4mer`: the abundance of the 4-mer, relative to all 4-mers of the
        repertoire. `tcrb`: the abundance of the sequence that contains the 4-mer, relative to all sequences. Both count
        a sequence as often as its `duplicate_count` says.
    learning_rate
        Step size of Adam, whose betas are 0.9 and 0.999.
    batch_size
        Number of repertoires of an update.
    n_epochs
        Number of passes over the training repertoires.
    n_restarts
        Number of random starts for each class that may be the carrier class. Weights start from a uniform distribution
        with variance 1 / F, the bias from 0.
    seed
        Seed of the starts and of the order of the repertoires.
    trim
        Number of residues that are left out at both ends of each sequence. Ostmeyer et al. leave out 3; the paper does
        not say.
    carrier
        Class, of the two in sorted order, that is the carrier class: `first`, `second`, or `either`: both are tried,
        and the training loss decides.

    Attributes
    ----------
    weights_
        Weights of the features in their original units, (F = 21,): of the factors of the four residues, one residue
        after the other, and of the logarithm of the abundance.
    bias_
        Score of a 4-mer whose features are all 0.
    carrier_
        The carrier class: 0 for the first, 1 for the second.
    prior_
        Log-odds of the classes in the training repertoires.
    training_loss_
        Mean cross-entropy of each restart over the training repertoires that have a 4-mer, (K,). With `either`, the
        restarts with the first class as the carrier class come first.
    """

    path_parameter = "n_epochs"
    _checkpoints: Sequence[int] | None = None  # numbers of epochs after which `decision_path` needs the weights

    def __init__(
        self,
        *,
        abundance: Literal["4mer", "tcrb"] = "4mer",
        learning_rate: float = 1e-2,
        batch_size: int = 16,
        n_epochs: int = 100,
        n_restarts: int = 32,
        seed: int = 0,
        trim: int = 0,
        carrier: Literal["either", "first", "second"] = "either",
    ) -> None:
        self.abundance = abundance
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.n_epochs = n_epochs
        self.n_restarts = n_restarts
        self.seed = seed
        self.trim = trim
        self.carrier = carrier

    def check_parameters(self) -> None:
        """Raise InputError if a parameter is wrong for any cohort."""
        super().check_parameters()
        self._check_ranges()

    def prepare(self, X: RepertoireDataset) -> None:
        """Compute and cache the abundances of all 4-mers of the container."""
        load_kmer_abundances(X, self.abundance, trim=self.trim)

    def _fit(self, X: RepertoireDataset, positive: NDArray[np.bool_]) -> None:
        self._check_ranges()
        self.prior_ = float(np.log(positive.sum() / (~positive).sum()))
        parameters, losses = self._train(X, positive, self._checkpoints or [self.n_epochs])
        best = losses.argmin(axis=1)
        carrier_classes = np.repeat(self._list_carrier_classes(), self.n_restarts)[best]
        self._parameter_path = parameters[np.arange(len(parameters)), best], carrier_classes
        self.weights_, self.bias_ = parameters[-1, best[-1], :-1], float(parameters[-1, best[-1], -1])
        self.carrier_, self.training_loss_ = int(carrier_classes[-1]), losses[-1]

    def _copy_for_fold(self) -> LogisticMIL:
        """Return a copy with a quarter of the restarts, for one carrier class: it needs an eighth of the time."""
        n_restarts = max(1, self.n_restarts // 4)
        carrier = ("first", "second")[self.carrier_]
        copy: LogisticMIL = clone(self).set_params(n_restarts=n_restarts, carrier=carrier)
        return copy

    def _score_repertoires(self, X: RepertoireDataset) -> NDArray[np.float64]:
        parameters = np.append(self.weights_, self.bias_)[None]
        return np.asarray(self._compute_scores(X, parameters, np.array([self.carrier_]))[0])

    def decision_path(
        self, X: RepertoireDataset, y: ArrayLike, X_new: RepertoireDataset, values: Sequence[Any]
    ) -> NDArray[np.float64]:
        """Return the scores of new repertoires, (V, B), after each number of epochs.

        The restarts are trained once, for the largest number. For each number, the restart with the lowest loss after
        this number of epochs counts.
        """
        if len(values) == 0 or len(X_new) == 0:
            return np.zeros((len(values), len(X_new)))
        epochs = sorted({int(value) for value in values})
        model = clone(self).set_params(n_epochs=epochs[-1])
        model._checkpoints = epochs
        scores = model.fit_uncalibrated(X, y)._compute_scores(X_new, *model._parameter_path)
        return np.asarray(scores[np.searchsorted(epochs, values)])

    def _restore(self, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Mapping[str, Any]]) -> None:
        super()._restore(arrays, values)
        self._check_ranges()
        check_dtype("weights", self.weights_, np.float64)
        check_numbers("weights", self.weights_, N_FEATURES)
        self.bias_, self.prior_ = validate(self.bias_, float, "bias"), validate(self.prior_, float, "prior")
        if self.carrier_ not in (0, 1):
            raise ValueError(f"carrier: expected 0 or 1, found {abbreviate(self.carrier_)}")

    def _check_ranges(self) -> None:
        """Raise InputError if a parameter is out of range."""
        check_choice("abundance", self.abundance, ("4mer", "tcrb"))
        check_choice("carrier", self.carrier, ("either", "first", "second"))
        check_positive("learning_rate", self.learning_rate)
        for name, low in (("batch_size", 1), ("n_restarts", 1), ("seed", 0), ("trim", 0)):
            check_whole_number(name, getattr(self, name), low=low)
        check_whole_number("n_epochs", min([self.n_epochs, *(self._checkpoints or ())]))

    def _list_carrier_classes(self) -> list[int]:
        return [index for index, name in enumerate(("first", "second")) if self.carrier in (name, "either")]

    def _train(
        self, X: RepertoireDataset, positive: NDArray[np.bool_], checkpoints: Sequence[int]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return weights and biases, (V, K, F + 1), and losses, (V, K), of the restarts after numbers of epochs."""
        abundances = load_kmer_abundances(X, self.abundance, trim=self.trim)
        has_kmers = abundances.letters[X.repertoire_indices].any(axis=(1, 2))
        rows, labels = X.repertoire_indices[has_kmers], positive[has_kmers].astype(np.int64)
        carrier_classes = self._list_carrier_classes()
        parameters = np.zeros((len(carrier_classes), len(checkpoints), self.n_restarts, N_FEATURES + 1))
        losses = np.zeros(parameters.shape[:3])
        if not len(rows):
            return np.concatenate(parameters, axis=1), np.concatenate(losses, axis=1)
        rng = np.random.default_rng(self.seed)
        limit = np.sqrt(3 / N_FEATURES)
        starts = np.zeros(parameters.shape[2:])
        starts[:, :-1] = rng.uniform(-limit, limit, (self.n_restarts, N_FEATURES))
        order = np.array([rng.permutation(len(rows)) for _ in range(checkpoints[-1])])
        mean_and_sd = _compute_moments(abundances.letters[rows], abundances.moments[rows])
        schedule = Schedule(order, int(self.batch_size), float(self.learning_rate))
        for i, carrier_class in enumerate(carrier_classes):
            sample = Sample(rows, (labels == carrier_class).astype(np.float64), mean_and_sd)
            kept = Checkpoints(np.asarray(checkpoints, np.int64), parameters[i], losses[i])
            train(abundances, sample, schedule, starts, kept)
        return np.concatenate(parameters, axis=1), np.concatenate(losses, axis=1)

    def _compute_scores(
        self, X: RepertoireDataset, parameters: NDArray[np.float64], carrier_classes: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the scores, (V, B), of weights and biases, (V, F + 1), that were trained for carrier classes, (V,)."""
        abundances = load_kmer_abundances(X, self.abundance, trim=self.trim)
        scores = np.empty((len(parameters), len(X)))
        score(abundances, np.ascontiguousarray(X.repertoire_indices), parameters, scores)
        signed = np.where(carrier_classes[:, None] == 1, scores, -scores)
        return np.where(abundances.letters[X.repertoire_indices].any(axis=(1, 2)), signed, self.prior_)


def _compute_moments(letters: NDArray[np.float64], moments: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return mean and standard deviation of each feature, (2, F), from `KmerAbundances` of the training repertoires.

    The standard deviation of a constant feature is set to 1.
    """
    use = letters.mean(axis=0)
    first, second = moments.mean(axis=0)
    mean = np.append((use @ ATCHLEY_FACTORS).ravel(), first)
    square = np.append((use @ ATCHLEY_FACTORS**2).ravel(), second)
    variance = square - mean**2
    return np.stack([mean, np.sqrt(np.where(variance > _NO_VARIANCE * square, variance, 1))])
