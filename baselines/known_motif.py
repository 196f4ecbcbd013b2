"""`KnownMotif`: the ranking of repertoires by motifs that are known to be implanted (paper lines 8912-8931).

Letters: B repertoires.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from deeprc.baselines.known_truth import KnownTruth, get_recipe
from deeprc.baselines.parameters import check_choice
from deeprc.datasets.cache import Arrays, load_or_compute
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.simulation.motif_matching import match_motifs
from deeprc.datasets.simulation.motif_signal import MotifSignal
from deeprc.datasets.simulation.recipe import cohort_from_mapping
from deeprc.errors import InputError

__all__ = ["KnownMotif", "score_motifs"]

_STATUSES = ("positive", "negative")  # names of the classes in a recipe


def score_motifs(
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

    compute = partial(_compute_overlaps, cohort.motif_signals)
    arrays = load_or_compute(dataset, "known_motif", {"signals": [dict(signal) for signal in signals]}, compute)
    by_status = np.asarray(arrays[overlap][dataset.repertoire_indices])
    return np.asarray(by_status[:, 0] - by_status[:, 1])


def _compute_overlaps(signals: Sequence[MotifSignal], all_repertoires: RepertoireDataset) -> Arrays:
    """Return both kinds of score of each repertoire for the signals of each class, (B, 2) each; see `score_motifs`."""
    overlaps = np.full((2, len(all_repertoires), len(_STATUSES)), np.nan)
    for row, repertoire in enumerate(all_repertoires):
        if len(repertoire) == 0:
            continue
        overlaps[:, row] = 0
        for column, status in enumerate(_STATUSES):
            carried = [signal for signal in signals if signal.status == status]
            motifs = [motif for signal in carried for motif in signal.motifs]
            if motifs:
                inside = any(signal.position == "imgt" for signal in carried)
                matches = match_motifs(motifs, repertoire.residues, repertoire.lengths, inside=inside)
                overlaps[:, row, column] = matches.whole.mean(), matches.overlap.mean(dtype=np.float64)
    return {"binary": overlaps[0], "continuous": overlaps[1]}


class KnownMotif(KnownTruth):
    """A ranking of repertoires by the motifs that the recipe of the training cohort implants; see `KnownTruth`.

    It is not the best possible ranking: see `deeprc.baselines.known_recipe.KnownRecipe`.

    Parameters
    ----------
    overlap
        `binary` or `continuous`; see `score_motifs`.

    Attributes
    ----------
    signals_
        The signals of the recipe.
    """

    def __init__(self, *, overlap: Literal["binary", "continuous"] = "binary") -> None:
        self.overlap = overlap

    def check_parameters(self) -> None:
        """Raise InputError if a parameter is wrong for any cohort."""
        super().check_parameters()
        check_choice("overlap", self.overlap, ("binary", "continuous"))

    @classmethod
    def check_cohort(cls, X: RepertoireDataset) -> None:
        """Raise InputError if the container has no recipe, or a recipe that implants nothing."""
        _read_motif_signals(X)

    def prepare(self, X: RepertoireDataset) -> None:
        """Search the whole container for the motifs and cache the scores."""
        score_motifs(X, _read_motif_signals(X))

    def _read_recipe(self, X: RepertoireDataset) -> None:
        check_choice("overlap", self.overlap, ("binary", "continuous"))
        self.signals_ = _read_motif_signals(X)

    def _compute_scores(self, X: RepertoireDataset) -> NDArray[np.float64]:
        return score_motifs(X, self.signals_, self.overlap)


def _read_motif_signals(dataset: RepertoireDataset) -> list[dict[str, Any]]:
    """Return the signals of the recipe of a simulated cohort that are motifs."""
    signals = get_recipe(dataset).get("signals") or ()
    motifs = [signal for signal in signals if signal.get("kind", "motifs") == "motifs"]
    if not motifs:
        raise InputError(f"{dataset.container.path}: its recipe implants no motif, so there is no motif to know")
    return motifs
