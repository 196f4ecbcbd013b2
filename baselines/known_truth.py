"""`KnownTruth`: the base of the estimators that know the recipe of a simulated cohort.

Letters: B repertoires.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from deeprc.calibration import fit_platt_scaling
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.estimators import BinaryClassifier
from deeprc.labels import validate_dataset

__all__ = ["PART_COLUMN", "KnownTruth", "get_recipe"]

_STATUSES = ("positive", "negative")  # names of the classes in a recipe
_COLUMNS = ("status", "true_status")  # columns of a simulated cohort's metadata that hold them
PART_COLUMN = "part"
"""Column of a simulated cohort's metadata in which `test` names the repertoires of the recipe's test part."""


class KnownTruth(BinaryClassifier):
    """A ranking of repertoires by the recipe of the training cohort.

    A subclass defines `_read_recipe`, which keeps the parts of the recipe that it needs, and `_compute_scores`. `fit`
    learns the slope and the intercept that turn scores into probabilities, and which class is the recipe's positive
    one. The first of these rules that applies decides:

    - the labels are `negative` and `positive`;
    - the labels divide the repertoires as the metadata column `status` or `true_status` does;
    - the class with the higher mean score is the positive one.

    New repertoires need no recipe. A repertoire without sequences has the mean score of the training repertoires.

    Attributes
    ----------
    sign_
        Factor of the scores: 1 if the second class is the recipe's positive one, else -1.
    neutral_
        Score of a repertoire without sequences.
    """

    calibrates_itself = True  # the scores of training repertoires do not depend on their labels

    @property
    def sheet_columns(self) -> Sequence[str]:
        """Names of the columns of the metadata sheet that the method reads, where they exist."""
        return (*_COLUMNS, PART_COLUMN)

    def _read_recipe(self, X: RepertoireDataset) -> None:
        """Keep the parts of the cohort's recipe that the method needs."""
        raise NotImplementedError

    def _compute_scores(self, X: RepertoireDataset) -> NDArray[np.float64]:
        """Return the score of each repertoire, (B,); NaN for one without sequences."""
        raise NotImplementedError

    def _fit(self, X: RepertoireDataset, positive: NDArray[np.bool_]) -> None:
        self._read_recipe(X)
        self.sign_, self.neutral_ = 1, 0.0
        scores = self._compute_scores(X)
        self.sign_ = self._find_orientation(X, positive, scores)
        self.neutral_ = self.sign_ * _average_scores(scores)
        scores = self._score_repertoires(X)
        order = np.lexsort((positive, scores))  # the same for every order of X
        self.calibration_ = fit_platt_scaling(scores[order], positive[order])

    def _find_orientation(self, X: RepertoireDataset, positive: NDArray[np.bool_], scores: NDArray[np.float64]) -> int:
        """Return 1 if the second class is the recipe's positive class, else -1; the class docstring has the rules."""
        if self.classes_.tolist() == sorted(_STATUSES):
            return 1
        for column in _COLUMNS:
            if column in X.metadata:
                status = X.metadata[column].to_numpy()
                for sign, second in ((1, _STATUSES[0]), (-1, _STATUSES[1])):
                    if np.isin(status, _STATUSES).all() and np.array_equal(status == second, positive):
                        return sign
        return 1 if _average_scores(scores[positive]) >= _average_scores(scores[~positive]) else -1

    def _score_repertoires(self, X: RepertoireDataset) -> NDArray[np.float64]:
        scores = self.sign_ * self._compute_scores(X)
        return np.where(np.isnan(scores), self.neutral_, scores)

    def decision_function(self, X: RepertoireDataset) -> NDArray[np.float64]:
        """Return the score of each repertoire, (B,); the repertoires need no recipe."""
        check_is_fitted(self)
        return self._score_repertoires(X) if len(validate_dataset(X)) else np.zeros(0)


def get_recipe(dataset: RepertoireDataset) -> dict[str, Any]:
    """Return the recipe of a simulated cohort.

    Raises
    ------
    InputError
        If the cohort was not simulated.
    """
    recipe = dataset.container.simulation
    if recipe is None:
        raise InputError(f"{dataset.container.path}: has no recipe; only cohorts of `deeprc simulate` have one")
    return dict(recipe)


def _average_scores(scores: NDArray[np.float64]) -> float:
    """Return the mean of the scores that are not NaN, independent of their order; 0 if there are none."""
    defined = scores[~np.isnan(scores)].tolist()
    return math.fsum(defined) / len(defined) if defined else 0.0
