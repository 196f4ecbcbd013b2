"""`KnownRecipe`: the ranking of repertoires by the likelihood ratio of the recipe.

Letters: B repertoires.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeprc.baselines.known_truth import PART_COLUMN, KnownTruth, get_recipe
from deeprc.datasets.cache import Arrays, load_or_compute
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.simulation.likelihood import RecipeLikelihood
from deeprc.datasets.simulation.recipe import cohort_from_mapping
from deeprc.progress import track

__all__ = ["KnownRecipe", "score_recipe"]


def score_recipe(dataset: RepertoireDataset, recipe: Mapping[str, Any]) -> NDArray[np.float64]:
    """Return the log-likelihood ratio of a recipe's classes, (B,); NaN for a repertoire without sequences.

    See `deeprc.datasets.simulation.likelihood`. The scores are computed once for the whole container and cached.

    Parameters
    ----------
    dataset
        The repertoires, simulated or not. `test` in the metadata column `part` names those of the recipe's test part.
    recipe
        The recipe, in the form of `Container.simulation`.

    Raises
    ------
    InputError
        If the ratio cannot be computed for this recipe.
    """
    cohort = cohort_from_mapping(recipe)
    metadata = dataset.whole().metadata
    has_parts = cohort.test_share > 0 and PART_COLUMN in metadata
    parts = metadata[PART_COLUMN].astype(str).tolist() if has_parts else [""] * len(metadata)

    def compute(all_repertoires: RepertoireDataset) -> Arrays:
        likelihood = RecipeLikelihood(cohort)
        log_ratios = np.full(len(all_repertoires), np.nan)
        repertoires = track(zip(all_repertoires, parts, strict=True), "likelihood of the recipe", len(all_repertoires))
        for row, (repertoire, part) in enumerate(repertoires):
            if len(repertoire):
                log_ratios[row] = likelihood.compute_log_ratio(repertoire.sequences, is_test=part == "test")
        return {"log_ratio": log_ratios}

    settings = {"recipe": dict(recipe), "parts": hashlib.sha256("\n".join(parts).encode()).hexdigest()}
    arrays = load_or_compute(dataset, "known_recipe", settings, compute)
    return np.asarray(arrays["log_ratio"][dataset.repertoire_indices])


class KnownRecipe(KnownTruth):
    """A ranking of repertoires by the likelihood ratio of the recipe of the training cohort; see `KnownTruth`.

    No method can have a higher expected AUC if the ratio is exact, see `deeprc.datasets.simulation.likelihood`.

    Attributes
    ----------
    recipe_
        The recipe.
    """

    @classmethod
    def check_cohort(cls, X: RepertoireDataset) -> None:
        """Raise InputError if the container has no recipe, or one whose likelihood ratio cannot be computed."""
        RecipeLikelihood.check(replace(cohort_from_mapping(get_recipe(X)), name=str(X.container.path)))

    def prepare(self, X: RepertoireDataset) -> None:
        """Compute the ratio of the whole container's repertoires and cache it."""
        score_recipe(X, get_recipe(X))

    def _read_recipe(self, X: RepertoireDataset) -> None:
        self.recipe_ = get_recipe(X)

    def _compute_scores(self, X: RepertoireDataset) -> NDArray[np.float64]:
        return score_recipe(X, self.recipe_)
