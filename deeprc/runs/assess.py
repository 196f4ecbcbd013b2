"""How good a run is, with what must be known to believe it: metrics, controls and warnings in one.

Letters: B repertoires, T outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.evaluation.caution import Caution
from deeprc.evaluation.sheet_control import columns_for_control, columns_left_out
from deeprc.runs.controls import Controls, compare_controls
from deeprc.runs.judged import Judged, judge
from deeprc.runs.predictor import Predictor, outputs
from deeprc.runs.run_cautions import run_cautions

__all__ = ["Assessment", "assess", "assess_outputs"]


@dataclass(frozen=True)
class Assessment:
    """How good a run, or several together, is on a cohort.

    Attributes
    ----------
    judged, controls, cautions
        How good it is, what does as well without a sequence, and what to know first.
    """

    judged: Judged
    controls: Sequence[Controls]
    cautions: Sequence[Caution]

    @property
    def metrics(self) -> dict[str, Any]:
        """Metrics by side and target, see `task_metrics`; those of the side that judges with `controls`, a list."""
        found = {side: {name: dict(own) for name, own in of.items()} for side, of in self.judged.metrics.items()}
        for each in self.controls:
            target = found.get(self.judged.side or "", {}).get(each.contrast.target)
            if target is not None:
                target["controls"] = [*target.get("controls", []), *each.to_list()]
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the metrics with the warnings, as JSON knows them: what to know before the metrics are believed."""
        return {**self.metrics, "warnings": [asdict(each) for each in self.cautions]}


def assess(predictor: Predictor, dataset: RepertoireDataset, positions: Iterable[int] | None = None) -> Assessment:
    """Judge a run, or several together, on a cohort; parameters as of `deeprc.runs.predictor.outputs`.

    Raises
    ------
    InputError
        If no repertoire of the dataset has a label.
    """
    found = assess_outputs(predictor, dataset, outputs(predictor, dataset, positions).numpy())
    if not found.judged.metrics:
        names = ", ".join(task.name for task in predictor.tasks)
        raise InputError(f"{dataset.container.path}: no repertoire has a label for {names}")
    return found


def assess_outputs(predictor: Predictor, dataset: RepertoireDataset, found: NDArray[np.floating[Any]]) -> Assessment:
    """Judge a run by its outputs for a cohort, (B, T)."""
    judged = judge(predictor, dataset, found)
    controls = compare_controls(dataset, judged, predictor.tasks)
    cautions = run_cautions(judged, controls, metadata=dataset.metadata)
    if any(each.measures for each in controls):
        cautions += columns_left_out(columns_for_control(dataset.metadata, predictor.tasks))
    return Assessment(judged, controls, cautions)
