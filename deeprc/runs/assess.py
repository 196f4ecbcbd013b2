"""How good a run is, with what must be known to believe it: metrics, controls and warnings in one.

Letters: B repertoires, T outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from deeprc.checks.cautions import duplicate_cautions
from deeprc.checks.of_run import read_checks
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.evaluation.caution import Caution
from deeprc.evaluation.sheet_control import columns_for_control, columns_left_out
from deeprc.evaluation.splits import NEW
from deeprc.nn.contributions import OutputParts
from deeprc.runs.controls import Controls, compare_controls
from deeprc.runs.performance import Performance, measure_performance
from deeprc.runs.predictor import Predictor
from deeprc.runs.run_cautions import run_cautions
from deeprc.runs.shift import measure_shift, with_shift
from deeprc.runs.variation import Variation, share_variation

__all__ = ["Assessment", "assess", "assess_outputs"]


@dataclass(frozen=True)
class Assessment:
    """How good a run, or several together, is on a cohort.

    Attributes
    ----------
    performance, controls, cautions
        How good it is, what does as well without a sequence, and what to know first.
    variation
        What the outputs of the held-out repertoires vary by, if the model has readings besides the attention.
    """

    performance: Performance
    controls: Sequence[Controls]
    cautions: Sequence[Caution]
    variation: Sequence[Variation] = ()

    @property
    def metrics(self) -> dict[str, Any]:
        """Metrics by split and target, see `task_metrics`.

        Those of the held-out part have two lists more: `controls`, and `variation` (an output, and its shares).
        """
        found = {split: {name: dict(own) for name, own in of.items()} for split, of in self.performance.metrics.items()}
        held_out = found.get(self.performance.held_out or "", {})
        for each in self.controls:
            target = held_out.get(each.contrast.target)
            if target is not None:
                target["controls"] = [*target.get("controls", []), *each.to_list()]
        for varied in self.variation:
            own = {"output": varied.output, "shares": dict(varied.shares)}
            held_out[varied.target]["variation"] = [*held_out[varied.target].get("variation", []), own]
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the metrics with the warnings, as JSON knows them: what to know before the metrics are believed."""
        return {**self.metrics, "warnings": [asdict(each) for each in self.cautions]}


def assess(predictor: Predictor, dataset: RepertoireDataset) -> Assessment:
    """Judge a run, or several together, on a cohort; parameters as of `Model.outputs`.

    Raises
    ------
    InputError
        If no repertoire of the dataset has a label.
    """
    found = assess_outputs(predictor, dataset, predictor.model.output_parts(dataset))
    if not found.performance.metrics:
        names = ", ".join(task.name for task in predictor.model.tasks)
        raise InputError(f"{dataset.container.path}: no repertoire has a label for {names}")
    return found


def _duplicates(predictor: Predictor, performance: Performance) -> list[Caution]:
    """Return a warning if repertoires that shared far more than chance in a check of the training are apart."""
    kept = [read_checks(run.path) for run in predictor.runs]
    findings = [finding for checks in kept if checks is not None for finding in checks.findings]
    side_of = {str(name): str(side) for name, side in zip(performance.ids, performance.splits, strict=True)}
    return list(duplicate_cautions(findings, {i: s for i, s in side_of.items() if s != NEW}, apart="sides"))


def assess_outputs(predictor: Predictor, dataset: RepertoireDataset, found: OutputParts) -> Assessment:
    """Judge a run by its outputs for a cohort, (B, T)."""
    performance = measure_performance(predictor, dataset, found.outputs)
    shift = measure_shift(predictor.summaries(), dataset, performance.splits.tolist())
    performance = replace(performance, predictions=with_shift(performance.predictions, shift))
    columns = columns_for_control(dataset.metadata, predictor.model.tasks)
    controls = compare_controls(dataset, performance, predictor.model.tasks, columns=columns.read)
    cautions = run_cautions(performance, controls, metadata=dataset.metadata)
    if any(each.measures for each in controls):
        cautions += columns_left_out(columns)
    cautions += [*_duplicates(predictor, performance), *shift.cautions()]
    judged = performance.rows(performance.held_out)
    return Assessment(performance, controls, cautions, share_variation(found, judged, predictor.model.tasks))
