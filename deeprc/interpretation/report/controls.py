"""Classifiers that read no receptor sequence, fitted and tested on the network's own split.

Where one of them does as well as the network, its sequences and motifs may only stand for how the samples were taken.

Letters: B repertoires.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.baselines.controls import RepertoireSize, VGeneUsage
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.estimators import BinaryClassifier
from deeprc.evaluation.comparison import MethodInfo, compare, p_text
from deeprc.interpretation.report.judged import SIDE_NAMES, Contrast, Judged

__all__ = ["LABELS", "Controls", "compare_controls"]

LABELS = {
    "network": "The network",
    "size": "Repertoire size",
    "v-genes": "V gene usage",
    "genes": "V and J gene usage",
}
"""How the network and the controls are called in tables."""

_SEES = {
    "size": "the size and diversity of a repertoire",
    "v-genes": "the usage of V genes",
    "genes": "the usage of V and J genes",
}
_CONTROLS: dict[str, Callable[[], BinaryClassifier]] = {
    "size": RepertoireSize,
    "v-genes": VGeneUsage,
    "genes": partial(VGeneUsage, genes="both"),  # every junction ends as its J gene does
}


@dataclass(frozen=True)
class Controls:
    """The controls of one contrast.

    Attributes
    ----------
    contrast
        What was told apart.
    comparison
        Of the network and the controls, see `deeprc.evaluation.comparison.compare`; empty where none could be fitted.
    reasons
        Why a control is missing, in sentences.
    """

    contrast: Contrast
    comparison: pd.DataFrame
    reasons: Sequence[str]

    @property
    def reaching(self) -> list[str]:
        """The controls that the network is not shown to be better than: as high an AUC, or lower with p >= 0.05."""
        if self.comparison.empty:
            return []
        rows = self.comparison[self.comparison["kind"] == "control"]
        reach = (rows["difference"] >= 0) | (rows["p_value"] >= 0.05)
        return [str(name) for name in rows.loc[reach, "method"]]

    @property
    def others(self) -> list[str]:
        """The controls that the network is better than."""
        controls = [name for name in self.aucs if name != "network"]
        return [name for name in controls if name not in self.reaching]

    @property
    def aucs(self) -> dict[str, float]:
        """The AUC of the network and of each control."""
        if self.comparison.empty:
            return {}
        return dict(zip(self.comparison["method"], self.comparison["auc_mean"].astype(float), strict=True))

    def sentence(self, name: str) -> str:
        """Return what a control says."""
        row = next(row for row in self.comparison.to_dict("records") if row["method"] == name)
        p = f"p = {p_text(row['p_value'])}".replace("= <", "< ")
        numbers = f"AUC {row['auc_mean']:.3f} against {self.aucs['network']:.3f}, {p}"
        if name not in self.reaching:
            named = self.contrast.named
            return f"The network{named} is better than a classifier that looks only at {_SEES[name]} ({numbers})."
        how = "is as good as" if row["difference"] >= 0 else "cannot be told from"
        return (
            f"A classifier that looks only at {_SEES[name]} {how} the network{self.contrast.named} ({numbers}): these "
            "repertoires do not show that receptor sequences add anything, and the motifs may stand for that "
            "difference between the classes."
        )


def compare_controls(dataset: RepertoireDataset, judged: Judged) -> list[Controls]:
    """Fit every control for every contrast on the labelled training repertoires, and test it where the network is."""
    return [_controls(dataset, judged, contrast) for contrast in judged.contrasts]


def _controls(dataset: RepertoireDataset, judged: Judged, contrast: Contrast) -> Controls:
    known = ~np.isnan(contrast.label)
    training, tested = np.flatnonzero(known & judged.rows("train")), np.flatnonzero(known & judged.rows(judged.side))
    problem = _problem(contrast, training, tested, judged.side)
    if problem:
        return Controls(contrast, pd.DataFrame(), [problem])
    scores, reasons = {"network": contrast.score[tested]}, []
    labels = np.where(known, contrast.label, 0).astype(np.int64)
    for name, control in _CONTROLS.items():
        found = _scores(control(), dataset[training], labels[training], dataset[tested])
        if isinstance(found, str):
            reasons.append(f"{LABELS[name]} could not be compared{contrast.named}: {found}.")
        else:
            scores[name] = found
    methods = [MethodInfo(name, LABELS[name], "method" if name == "network" else "control") for name in scores]
    table = _predictions(judged.ids[tested], labels[tested], scores)
    return Controls(contrast, compare(table, methods, n_folds=1), reasons)


def _scores(
    control: BinaryClassifier, training: RepertoireDataset, labels: NDArray[np.int64], tested: RepertoireDataset
) -> NDArray[np.float64] | str:
    """Return a control's scores of the repertoires that are tested, (B,), or why it cannot be fitted."""
    try:
        return control.fit(training, labels).decision_function(tested)
    except InputError as error:
        return str(error)


def _problem(
    contrast: Contrast, training: NDArray[np.int64], tested: NDArray[np.int64], side: str | None
) -> str | None:
    """Return why no control can be fitted or tested."""
    none = f"No control could be compared{contrast.named}"
    for rows, name in ((training, "training"), (tested, SIDE_NAMES[side] if side else "test")):
        if len(rows) == 0:
            return f"{none}: the cohort has no labelled {name} repertoire of this run."
        if len(np.unique(contrast.label[rows])) < 2:
            return f"{none}: the {name} repertoires are of one class."
    return None


def _predictions(
    ids: NDArray[np.object_], label: NDArray[np.int64], scores: dict[str, NDArray[np.float64]]
) -> pd.DataFrame:
    common = {"fold": 0, "repertoire_id": ids, "label": label}
    parts = [
        pd.DataFrame({"method": name, **common, "score": score, "probability": 0.5}) for name, score in scores.items()
    ]
    return pd.concat(parts, ignore_index=True)
