"""Assessment of a run on a cohort: metrics, controls and warnings together.

Letters: B repertoires, T outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from deeprc.checks.cautions import find_duplicate_cautions, find_shortcut_cautions
from deeprc.checks.run_checks import read_checks
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.evaluation.adjustment import find_adjustment_cautions
from deeprc.evaluation.caution import Caution
from deeprc.evaluation.sheet_control import find_target_like_cautions, select_control_columns
from deeprc.evaluation.splits import NEW
from deeprc.evaluation.strata import StratifiedAuc, compute_stratified_auc, find_strata_columns
from deeprc.nn.sequence_scores import OutputParts
from deeprc.runs.control_comparison import ControlComparison
from deeprc.runs.controls import compare_controls
from deeprc.runs.metrics import Metrics
from deeprc.runs.model_cautions import (
    find_doubtful_branch_cautions,
    find_packed_cautions,
    find_unused_attention_cautions,
    reads_only_branches,
)
from deeprc.runs.performance import Performance, measure_performance
from deeprc.runs.predictor import Predictor
from deeprc.runs.run_cautions import find_run_cautions
from deeprc.runs.shift import add_shift_columns, measure_shift
from deeprc.runs.shift_cautions import find_shift_cautions
from deeprc.runs.strata_cautions import find_strata_cautions
from deeprc.runs.variation import VarianceShares, compute_variance_shares

__all__ = ["Assessment", "assess_outputs", "assess_predictor"]


@dataclass(frozen=True)
class Assessment:
    """Metrics, controls and warnings of a run, or of several runs that predict together, on a cohort.

    Attributes
    ----------
    performance, controls, cautions
        Performance of the model, controls that read no sequence, and warnings.
    variation
        Shares of the variance of the outputs that come through attention and branches, on the held-out repertoires;
        empty if the model has no branches.
    stratified_aucs
        AUC of each binary target within the values of each categorical column of the metadata sheet, on the held-out
        repertoires, by the name of the target.
    """

    performance: Performance
    controls: Sequence[ControlComparison]
    cautions: Sequence[Caution]
    variation: Sequence[VarianceShares] = ()
    stratified_aucs: Mapping[str, Sequence[StratifiedAuc]] = field(default_factory=dict)

    @property
    def metrics(self) -> Metrics:
        """Metrics by part of the split and target, see `compute_task_metrics`.

        The metrics of the held-out part have three more lists: `controls`, `variation` (an output, and its shares), and
        `within` (the AUC within the values of a column).
        """
        metrics = Metrics(
            {
                part: {target: dict(values) for target, values in by_target.items()}
                for part, by_target in self.performance.metrics.items()
            }
        )
        held_out = metrics.get(self.performance.held_out or "", {})
        for comparison in self.controls:
            values = held_out.get(comparison.quantity.target)
            if values is not None:
                values["controls"] = [*values.get("controls", []), *comparison.to_list()]
        for target, aucs in self.stratified_aucs.items():
            held_out[target]["within"] = [stratified.to_dict() for stratified in aucs]
        for variation in self.variation:
            entry = {"output": variation.output, "shares": dict(variation.shares)}
            held_out[variation.target]["variation"] = [*held_out[variation.target].get("variation", []), entry]
        return metrics

    def to_dict(self) -> Metrics:
        """Return the metrics and the warnings, as values for JSON."""
        return Metrics({**self.metrics, "warnings": [asdict(caution) for caution in self.cautions]})


def assess_predictor(predictor: Predictor, dataset: RepertoireDataset) -> Assessment:
    """Assess a run, or several runs that predict together, on a cohort.

    Raises
    ------
    InputError
        If no repertoire of the dataset has a label.
    """
    assessment = assess_outputs(predictor, dataset, predictor.model.compute_output_parts(dataset))
    if not assessment.performance.metrics:
        names = ", ".join(task.name for task in predictor.model.tasks)
        raise InputError(f"{dataset.container.path}: no repertoire has a label for {names}")
    return assessment


def assess_outputs(predictor: Predictor, dataset: RepertoireDataset, output_parts: OutputParts) -> Assessment:
    """Assess a run by its outputs for a cohort, (B, T)."""
    performance = measure_performance(predictor, dataset, output_parts.outputs)
    shift = measure_shift(predictor.summaries(), dataset, performance.parts.tolist())
    performance = replace(performance, predictions=add_shift_columns(performance.predictions, shift))
    columns = select_control_columns(dataset.metadata, predictor.model.tasks)
    controls = compare_controls(dataset, performance, predictor.model.tasks, columns=columns.read)
    stratified_aucs = _measure_stratified_aucs(predictor, dataset, performance)
    cautions = [
        *find_packed_cautions(predictor.runs, performance.parts.tolist()),
        *find_run_cautions(
            performance,
            controls,
            metadata=dataset.metadata,
            stratified_aucs=stratified_aucs,
            is_cross_fitted=bool(predictor.runs) and all(map(reads_only_branches, predictor.runs)),
        ),
        *find_unused_attention_cautions(predictor.runs),
        *find_doubtful_branch_cautions(predictor.model),
        *(find_target_like_cautions(columns) if any(comparison.measures for comparison in controls) else []),
        *_find_check_cautions(predictor, dataset, performance),
        *_find_adjustment_cautions(predictor, performance),
        *find_shift_cautions(shift),
        *find_strata_cautions(stratified_aucs, performance, _list_adjusted_columns(predictor)),
    ]
    variation = compute_variance_shares(output_parts, performance.is_held_out, predictor.model.tasks)
    return Assessment(performance, controls, cautions, variation, stratified_aucs)


def _measure_stratified_aucs(
    predictor: Predictor, dataset: RepertoireDataset, performance: Performance
) -> dict[str, list[StratifiedAuc]]:
    """Return the AUC of each binary target within the values of columns, on the held-out repertoires, by target."""
    rows, metadata = np.flatnonzero(performance.is_held_out), dataset.metadata
    contrast_of = {contrast.target: contrast for contrast in performance.contrasts}
    stratified_aucs = {}
    for task in predictor.model.tasks:
        if task.kind == "binary" and len(rows):
            contrast = contrast_of[task.name]
            donors = None if contrast.donors is None else contrast.donors[rows]
            label, score = contrast.label[rows], contrast.score[rows]
            aucs = [
                compute_stratified_auc(column, metadata[column].iloc[rows].tolist(), label, score, donors)
                for column in find_strata_columns(metadata, task)
            ]
            stratified_aucs[task.name] = [stratified for stratified in aucs if stratified is not None]
    return {target: aucs for target, aucs in stratified_aucs.items() if aucs}


def _find_check_cautions(predictor: Predictor, dataset: RepertoireDataset, performance: Performance) -> list[Caution]:
    """Return warnings from the checks before the trainings: copies in different parts, and shortcuts to a label.

    There is none if the cohort has no repertoire of the trainings, and no shortcut if the metadata have changed since.
    """
    part_of = {
        str(repertoire_id): str(part)
        for repertoire_id, part in zip(performance.ids, performance.parts, strict=True)
        if part != NEW
    }
    if not part_of:
        return []
    all_checks = [checks for checks in (read_checks(run.path) for run in predictor.runs) if checks is not None]
    findings = [finding for checks in all_checks for finding in checks.findings]
    current = [finding for checks in all_checks if checks.is_current(dataset) for finding in checks.findings]
    shortcuts = {caution.text: caution for caution in find_shortcut_cautions(current)}  # several runs may have the same
    return [*find_duplicate_cautions(findings, part_of, apart="parts"), *shortcuts.values()]


def _find_adjustment_cautions(predictor: Predictor, performance: Performance) -> list[Caution]:
    """Return a note that says for which columns the trainings of the runs were adjusted."""
    columns = _list_adjusted_columns(predictor)
    labels = performance.labels[:, 0]
    training = [np.isin(performance.ids.astype(str), run.splits["train"]) & ~np.isnan(labels) for run in predictor.runs]
    if not any(rows.any() for rows in training):  # the cohort has no training repertoires
        return []
    sizes = [len(run.splits["train"]) for run in predictor.runs]
    return find_adjustment_cautions(columns, predictor.model.tasks[0].kind, [labels[rows] for rows in training], sizes)


def _list_adjusted_columns(predictor: Predictor) -> list[str]:
    """Return the columns for which the trainings of the runs were adjusted."""
    return list(dict.fromkeys(name for run in predictor.runs for name in run.settings.split_options.adjust_for))
