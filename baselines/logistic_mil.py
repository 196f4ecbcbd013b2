"""`LogisticMIL`: logistic regression on every 4-mer of a repertoire, of which the highest score counts.

Paper lines 8990-9011 and 9144-9176, after Ostmeyer et al. 2019, Cancer Research 79:1671.

Letters: B repertoires, F features, K restarts of all carriers, V numbers of epochs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from deeprc.baselines.atchley import ATCHLEY_FACTORS
from deeprc.baselines.kmer_abundance import kmer_abundances
from deeprc.baselines.logistic_mil_kernel import N_FEATURES, score, train
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.estimators import BinaryClassifier, canonical_order

__all__ = ["LogisticMIL"]

_NO_VARIANCE = 1e-12  # relative to the mean square: what rounding leaves of none


class LogisticMIL(BinaryClassifier):
    """Logistic regression on the Atchley factors and the abundance of 4-mers, fitted to repertoires by their maximum.

    The highest score of its 4-mers is the log-odds that a repertoire is of the class which carries something; of
    several 4-mers that have it the first in the order of `kmer_names` is taken. Because of the maximum it matters which
    class that is. Of several random starts the one with the lowest loss on the training repertoires is kept.
    Features are standardised, as Ostmeyer's are, by the mean and variance over the distinct 4-mers of a training
    repertoire, averaged over the training repertoires. A repertoire without a 4-mer trains nothing, and its score is
    the log-odds of the training repertoires' classes.

    Parameters
    ----------
    abundance
        A feature of 4-mers, as a logarithm: `4mer`, the 4-mer's abundance, relative to all 4-mers of the repertoire;
        `tcrb`, that of the sequence in which it stands, relative to all sequences. Both count a sequence as often as
        its `duplicate_count` says.
    learning_rate
        Of Adam, with coefficients 0.9 and 0.999.
    batch_size
        Repertoires per update.
    n_epochs
        Passes over the training repertoires.
    n_restarts
        Random starts for each class that may be the carrier: weights of variance 1 / F, uniformly distributed, and no
        bias.
    seed
        Of the starts and of the order of the repertoires.
    trim
        Residues that are left out at both ends of each sequence. Ostmeyer leaves out 3; the paper says nothing of it.
    carrier
        Which of the two classes, in sorted order, carries something: `first` or `second`; `either`: both are tried, and
        the training loss decides.

    Attributes
    ----------
    weights_
        (F = 21,) of the factors of the four residues, one residue after the other, and of the logarithm of the
        abundance; of features as they are, not standardised.
    bias_
        The score of a 4-mer whose features are all 0.
    carrier_
        The carrying class: 0 for the first or 1 for the second.
    prior_
        The log-odds of the training repertoires' classes.
    training_loss_
        (K,) the mean cross-entropy of each restart over the training repertoires that have a 4-mer; with `either` those
        for the first class come first.
    """

    path_parameter = "n_epochs"
    _checkpoints: Sequence[int] | None = None  # the numbers of epochs that `decision_path` wants the weights of

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

    def prepare(self, X: RepertoireDataset) -> None:
        """Compute and cache the abundances of all 4-mers of the container."""
        kmer_abundances(X, self.abundance, trim=self.trim)

    def _fit(self, X: RepertoireDataset, positive: NDArray[np.bool_]) -> None:
        self._check()
        self.prior_ = float(np.log(positive.sum() / (~positive).sum()))
        order = canonical_order(X, positive.astype(np.int64))
        found, losses = self._trained(X[order], positive[order], self._checkpoints or [self.n_epochs])
        best = losses.argmin(axis=1)
        carriers = np.repeat(self._carriers(), self.n_restarts)[best]
        self._path = found[np.arange(len(found)), best], carriers
        self.weights_, self.bias_ = found[-1, best[-1], :-1], float(found[-1, best[-1], -1])
        self.carrier_, self.training_loss_ = int(carriers[-1]), losses[-1]

    def _decide(self, X: RepertoireDataset) -> NDArray[np.float64]:
        parameters = np.append(self.weights_, self.bias_)[None]
        return np.asarray(self._scores(X, parameters, np.array([self.carrier_]))[0])

    def decision_path(
        self, X: RepertoireDataset, y: ArrayLike, X_new: RepertoireDataset, values: Sequence[Any]
    ) -> NDArray[np.float64]:
        """Return the scores, (V, B), after each of these numbers of epochs, for new repertoires X_new, (B,).

        The restarts are trained once, for the largest number; at each number the best of them is chosen anew.
        """
        if len(values) == 0 or len(X_new) == 0:
            return np.zeros((len(values), len(X_new)))
        each = sorted({int(value) for value in values})
        one = clone(self).set_params(n_epochs=each[-1])
        one._checkpoints = each
        scores = one.fit(X, y)._scores(X_new, *one._path)
        return np.asarray(scores[np.searchsorted(each, values)])

    def _check(self) -> None:
        """Raise InputError where a parameter is out of range."""
        if self.abundance not in ("4mer", "tcrb"):
            raise InputError(f"abundance: expected 4mer or tcrb, found {self.abundance!r}")
        if self.carrier not in ("either", "first", "second"):
            raise InputError(f"carrier: expected either, first or second, found {self.carrier!r}")
        if not 0 < self.learning_rate < np.inf:
            raise InputError(f"learning_rate: expected a number above 0, found {self.learning_rate}")
        fewest = min([self.n_epochs, *(self._checkpoints or ())])
        least = {"batch_size": 1, "n_epochs": 1, "n_restarts": 1, "seed": 0, "trim": 0}
        for name, value in {**self.get_params(), "n_epochs": fewest}.items():
            if name in least and (not isinstance(value, int | np.integer) or value < least[name]):
                raise InputError(f"{name}: expected a whole number of at least {least[name]}, found {value!r}")

    def _carriers(self) -> list[int]:
        return [number for number, name in enumerate(("first", "second")) if self.carrier in (name, "either")]

    def _trained(
        self, X: RepertoireDataset, positive: NDArray[np.bool_], checkpoints: Sequence[int]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the weights and biases, (V, K, F + 1), and losses, (V, K), of the restarts at numbers of epochs."""
        known = kmer_abundances(X, self.abundance, trim=self.trim)
        here = known.letters[X.rows].any(axis=(1, 2))
        rows, labels = X.rows[here], positive[here].astype(np.int64)
        carriers = self._carriers()
        found = np.zeros((len(carriers), len(checkpoints), self.n_restarts, N_FEATURES + 1))
        losses = np.zeros(found.shape[:3])
        if not len(rows):
            return np.concatenate(found, axis=1), np.concatenate(losses, axis=1)
        rng = np.random.default_rng(self.seed)
        limit = np.sqrt(3 / N_FEATURES)
        starts = np.zeros(found.shape[2:])
        starts[:, :-1] = rng.uniform(-limit, limit, (self.n_restarts, N_FEATURES))
        order = np.array([rng.permutation(len(rows)) for _ in range(checkpoints[-1])])
        standard = _standard(known.letters[rows], known.moments[rows])
        optimiser = (float(self.learning_rate), int(self.batch_size), np.asarray(checkpoints, np.int64))
        for at, carrier in enumerate(carriers):
            target = (labels == carrier).astype(np.float64)
            train(known, rows, target, order, standard, starts, *optimiser, found[at], losses[at])
        return np.concatenate(found, axis=1), np.concatenate(losses, axis=1)

    def _scores(
        self, X: RepertoireDataset, parameters: NDArray[np.float64], carriers: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the scores, (V, B), by weights and biases, (V, F + 1), for the scores of carrying classes, (V,)."""
        known = kmer_abundances(X, self.abundance, trim=self.trim)
        scores = np.empty((len(parameters), len(X)))
        score(known, np.ascontiguousarray(X.rows), parameters, scores)
        signed = np.where(carriers[:, None] == 1, scores, -scores)
        return np.where(known.letters[X.rows].any(axis=(1, 2)), signed, self.prior_)


def _standard(letters: NDArray[np.float64], moments: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return mean and standard deviation of each feature, (2, F), from the `KmerAbundances` of some repertoires.

    A feature that does not vary has 1.
    """
    use = letters.mean(axis=0)
    first, second = moments.mean(axis=0)
    mean = np.append((use @ ATCHLEY_FACTORS).ravel(), first)
    square = np.append((use @ ATCHLEY_FACTORS**2).ravel(), second)
    variance = square - mean**2
    return np.stack([mean, np.sqrt(np.where(variance > _NO_VARIANCE * square, variance, 1))])
