"""`KnownMotif`: what someone who knows the implanted motifs sees in a repertoire (paper lines 8912-8931).

Letters: B repertoires.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from deeprc.datasets.cache import Arrays, cached
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.simulation.dataset import VirtualContainer
from deeprc.datasets.simulation.matching import match_motifs
from deeprc.datasets.simulation.recipe import cohort_from_mapping, cohort_to_mapping
from deeprc.errors import InputError
from deeprc.estimators import BinaryClassifier, fit_platt_scaling, validate_dataset

__all__ = ["KnownMotif", "motif_scores"]

_STATUSES = ("positive", "negative")  # what a recipe calls the classes
_COLUMNS = ("status", "true_status")  # where a simulated cohort's metadata say them


def motif_scores(
    dataset: RepertoireDataset,
    signals: Sequence[Mapping[str, Any]],
    overlap: Literal["binary", "continuous"] = "binary",
) -> NDArray[np.float64]:
    """Return how much of the implanted motifs each repertoire holds, (B,); NaN for one without sequences.

    `binary` is the share of the sequences that hold a complete motif, with any length of its gaps; `continuous` the
    mean over the sequences of the largest number of a motif's residues at one place. What signals of the recipe's
    negative class give is subtracted from what those of the positive class give. Where a signal was implanted by IMGT
    positions, the conserved ends of junctions are not searched: CAS begins most of them. Computed for the whole
    container once and cached.

    Parameters
    ----------
    dataset
        The repertoires, simulated or not.
    signals
        The recipe's signals, as `Container.simulation` has them.
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
    """Rank repertoires by the motifs that the recipe of the training cohort implants; nothing is searched for.

    An estimate of what can be achieved at all. What is learned is the slope and intercept that turn the scores of
    `motif_scores` into probabilities, and which of the two classes is the recipe's positive one: by name, where the
    labels are `negative` and `positive`; else by the metadata, where the labels are another way to write `status` or
    `true_status`; else by which class has the higher mean score. The motifs are sought in any repertoires, also in
    those of a container without a recipe. A repertoire without sequences has the mean score of the training ones.

    Parameters
    ----------
    overlap
        `binary` or `continuous`, see `motif_scores`.

    Attributes
    ----------
    signals_
        The signals of the recipe.
    sign_
        1 where the second class is the recipe's positive one, else -1; the scores are multiplied by it.
    neutral_
        The score of a repertoire without sequences.
    """

    def __init__(self, *, overlap: Literal["binary", "continuous"] = "binary") -> None:
        self.overlap = overlap

    @classmethod
    def check_cohort(cls, X: RepertoireDataset) -> None:
        """Raise InputError where the container has no recipe, or one that implants nothing."""
        _signals(X)

    def prepare(self, X: RepertoireDataset) -> None:
        """Search the whole container and cache what is found."""
        motif_scores(X, _signals(X))

    def _fit(self, X: RepertoireDataset, positive: NDArray[np.bool_]) -> None:
        if self.overlap not in ("binary", "continuous"):
            raise InputError(f"overlap: expected binary or continuous, found {self.overlap!r}")
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
        """Return the score of each repertoire, (B,), which needs no recipe of its own."""
        check_is_fitted(self)
        return self._decide(X) if len(validate_dataset(X)) else np.zeros(0)


def _signals(dataset: RepertoireDataset) -> list[dict[str, Any]]:
    """Return the signals of the recipe by which a cohort was simulated."""
    container: Any = dataset.container
    recipe = cohort_to_mapping(container.cohort) if isinstance(container, VirtualContainer) else container.simulation
    if recipe is None:
        raise InputError(f"{container.path}: has no recipe of its motifs; only cohorts of `deeprc simulate` have one")
    signals = [signal for signal in recipe.get("signals") or () if signal.get("kind", "motifs") == "motifs"]
    if not signals:
        raise InputError(f"{container.path}: its recipe implants no motif, so there is no motif to know")
    return signals


def _mean(scores: NDArray[np.float64]) -> float:
    """Return the mean of those that are known, whatever their order; 0 of none."""
    known = scores[~np.isnan(scores)].tolist()
    return math.fsum(known) / len(known) if known else 0.0
