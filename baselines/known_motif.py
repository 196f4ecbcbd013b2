"""`KnownMotif`: the ranking of repertoires by motifs that are known to be implanted (paper lines 8912-8931).

Letters: B repertoires.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from deeprc.baselines.parameters import check_choice
from deeprc.calibration import fit_platt_scaling
from deeprc.datasets.cache import Arrays, cached
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.simulation.dataset import VirtualContainer
from deeprc.datasets.simulation.matching import match_motifs
from deeprc.datasets.simulation.recipe import cohort_from_mapping, cohort_to_mapping
from deeprc.errors import InputError
from deeprc.estimators import BinaryClassifier, validate_dataset

__all__ = ["KnownMotif", "motif_scores"]

_STATUSES = ("positive", "negative")  # names of the classes in a recipe
_COLUMNS = ("status", "true_status")  # columns of a simulated cohort's metadata that hold them


def motif_scores(
    dataset: RepertoireDataset,
    signals: Sequence[Mapping[str, Any]],
    overlap: Literal["binary", "continuous"] = "binary",
) -> NDArray[np.float64]:
    """Return a score for the implanted motifs in each repertoire, (B,); NaN for a repertoire without sequences.

    The `binary` score is the share of sequences that contain a complete motif, with any length of its gaps. The
    `continuous` score is the mean over sequences of the largest number of a motif's residues that match at one
    position. The score of the signals of the recipe's negative class is subtracted from that of the positive class. If
    a signal was implanted by IMGT positions, the conserved ends of junctions are not searched, because most begin with
    CAS. The scores are computed once for the whole container and cached.

    Parameters
    ----------
    dataset
        The repertoires, simulated or not.
    signals
        The signals of the recipe, in the form of `Container.simulation`.
    overlap
        `binary` or `continuous`.
    """
    cohort = cohort_from_mapping({"n_repertoires": 1, "signals": signals})  # the background does not matter

    def compute(whole: RepertoireDataset) -> Arrays:
        found = np.full((2, len(whole), len(_STATUSES)), np.nan)
        for row, repertoire in enumerate(whole):
            if len(repertoire) == 0:
                continue
            found[:, row] = 0
            for column, status in enumerate(_STATUSES):
                carried = [signal for signal in cohort.motif_signals if signal.status == status]
                motifs = [motif for signal in carried for motif in signal.motifs]
                if motifs:
                    inside = any(signal.position == "imgt" for signal in carried)
                    matches = match_motifs(motifs, repertoire.residues, repertoire.lengths, inside=inside)
                    found[:, row, column] = matches.whole.mean(), matches.overlap.mean(dtype=np.float64)
        return {"binary": found[0], "continuous": found[1]}

    kept = cached(dataset, "known_motif", {"signals": [dict(signal) for signal in signals]}, compute)
    of_class = np.asarray(kept[overlap][dataset.rows])
    return np.asarray(of_class[:, 0] - of_class[:, 1])


class KnownMotif(BinaryClassifier):
    """A ranking of repertoires by the motifs that the recipe of the training cohort implants.

    It estimates the best AUC that a method could reach. `fit` learns the slope and the intercept that turn the scores
    of `motif_scores` into probabilities, and which class is the recipe's positive one. If the labels are `negative` and
    `positive`, their names decide; else if they divide the repertoires as the metadata column `status` or `true_status`
    does, that column decides; else the class with the higher mean score is the positive one. New repertoires need no
    recipe. A repertoire without sequences has the mean score of the training repertoires.

    Parameters
    ----------
    overlap
        `binary` or `continuous`; see `motif_scores`.

    Attributes
    ----------
    signals_
        The signals of the recipe.
    sign_
        Factor of the scores: 1 if the second class is the recipe's positive one, else -1.
    neutral_
        Score of a repertoire without sequences.
    """

    calibrates_itself = True  # the scores of training repertoires do not depend on their labels

    def __init__(self, *, overlap: Literal["binary", "continuous"] = "binary") -> None:
        self.overlap = overlap

    @classmethod
    def check_cohort(cls, X: RepertoireDataset) -> None:
        """Raise InputError if the container has no recipe, or a recipe that implants nothing."""
        _signals(X)

    def prepare(self, X: RepertoireDataset) -> None:
        """Search the whole container for the motifs and cache the scores."""
        motif_scores(X, _signals(X))

    def _fit(self, X: RepertoireDataset, positive: NDArray[np.bool_]) -> None:
        check_choice("overlap", self.overlap, ("binary", "continuous"))
        self.signals_ = _signals(X)
        self.sign_, self.neutral_ = 1, 0.0
        scores = motif_scores(X, self.signals_, self.overlap)
        self.sign_ = self._orientation(X, positive, scores)
        self.neutral_ = self.sign_ * _mean(scores)
        scores = self._decide(X)
        order = np.lexsort((positive, scores))  # whatever the order of X
        self.calibration_ = fit_platt_scaling(scores[order], positive[order])

    def _orientation(self, X: RepertoireDataset, positive: NDArray[np.bool_], scores: NDArray[np.float64]) -> int:
        if self.classes_.tolist() == sorted(_STATUSES):
            return 1
        for column in _COLUMNS:
            if column in X.metadata:
                status = X.metadata[column].to_numpy()
                for sign, second in ((1, _STATUSES[0]), (-1, _STATUSES[1])):
                    if np.isin(status, _STATUSES).all() and np.array_equal(status == second, positive):
                        return sign
        return 1 if _mean(scores[positive]) >= _mean(scores[~positive]) else -1

    def _decide(self, X: RepertoireDataset) -> NDArray[np.float64]:
        scores = self.sign_ * motif_scores(X, self.signals_, self.overlap)
        return np.where(np.isnan(scores), self.neutral_, scores)

    def decision_function(self, X: RepertoireDataset) -> NDArray[np.float64]:
        """Return the score of each repertoire, (B,); the repertoires need no recipe."""
        check_is_fitted(self)
        return self._decide(X) if len(validate_dataset(X)) else np.zeros(0)


def _signals(dataset: RepertoireDataset) -> list[dict[str, Any]]:
    """Return the signals of the recipe of a simulated cohort."""
    container: Any = dataset.container
    recipe = cohort_to_mapping(container.cohort) if isinstance(container, VirtualContainer) else container.simulation
    if recipe is None:
        raise InputError(f"{container.path}: has no recipe of its motifs; only cohorts of `deeprc simulate` have one")
    signals = [signal for signal in recipe.get("signals") or () if signal.get("kind", "motifs") == "motifs"]
    if not signals:
        raise InputError(f"{container.path}: its recipe implants no motif, so there is no motif to know")
    return signals


def _mean(scores: NDArray[np.float64]) -> float:
    """Return the mean of the scores that are not NaN, independent of their order; 0 if there are none."""
    known = scores[~np.isnan(scores)].tolist()
    return math.fsum(known) / len(known) if known else 0.0
