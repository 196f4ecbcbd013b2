"""Assessment of a run on a cohort: metrics, controls and warnings together.

Letters: B repertoires, T outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from deeprc.checks.cautions import find_duplicate_cautions, find_shortcut_cautions
from deeprc.checks.of_run import read_checks
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.evaluation.adjustment import make_adjustment_cautions
from deeprc.evaluation.caution import Caution
from deeprc.evaluation.sheet_control import select_control_columns, warn_of_left_out_columns
from deeprc.evaluation.splits import NEW
from deeprc.evaluation.strata import StratifiedAuc, auc_within, find_strata_columns
from deeprc.nn.contributions import OutputParts
from deeprc.runs.controls import Controls, compare_controls
from deeprc.runs.metrics import Metrics
from deeprc.runs.performance import Performance, measure_performance
from deeprc.runs.predictor import Predictor
from deeprc.runs.run_cautions import find_run_cautions
from deeprc.runs.shift import add_shift_columns, measure_shift
from deeprc.runs.variation import Variation, share_variation

__all__ = ["Assessment", "assess_outputs", "assess_predictor"]


@dataclass(frozen=True)
class Assessment:
    """Metrics, controls and warnings of a run, or of several runs that predict together, on a cohort.

    Attributes
    ----------
    performance, controls, cautions
        Performance of the model, controls that read no sequence, and warnings.
    variation
        Shares of the variance of the outputs that come through attention and readings, on the held-out repertoires;
        empty if the model has no readings.
    within
        AUC of each binary target within the values of each categorical column of the metadata sheet, on the held-out
        repertoires, by the name of the target.
    """

    performance: Performance
    controls: Sequence[Controls]
    cautions: Sequence[Caution]
    variation: Sequence[Variation] = ()
    within: Mapping[str, Sequence[StratifiedAuc]] = field(default_factory=dict)

    @property
    def metrics(self) -> Metrics:
        """Metrics by split and target, see `task_metrics`.

        The metrics of the held-out part have three more lists: `controls`, `variation` (an output, and its shares), and
        `within` (the AUC within the values of a column).
        """
        splits = self.performance.metrics.items()
        found = Metrics({split: {name: dict(own) for name, own in of.items()} for split, of in splits})
        held_out = found.get(self.performance.held_out or "", {})
        for each in self.controls:
            target = held_out.get(each.contrast.target)
            if target is not None:
                target["controls"] = [*target.get("controls", []), *each.to_list()]
        for name, strata in self.within.items():
            held_out[name]["within"] = [each.to_dict() for each in strata]
        for varied in self.variation:
            own = {"output": varied.output, "shares": dict(varied.shares)}
            held_out[varied.target]["variation"] = [*held_out[varied.target].get("variation", []), own]
        return found

    def to_dict(self) -> Metrics:
        """Return the metrics and the warnings, as values for JSON."""
        return Metrics({**self.metrics, "warnings": [asdict(each) for each in self.cautions]})


def assess_predictor(predictor: Predictor, dataset: RepertoireDataset) -> Assessment:
    """Assess a run, or several runs that predict together, on a cohort.

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


def _warn_of_check(predictor: Predictor, dataset: RepertoireDataset, performance: Performance) -> list[Caution]:
    """Return warnings by the checks before the trainings: copies in different parts of the split, shortcuts to a label.

    There is none for a cohort without repertoires of the trainings, and no shortcut if the metadata have changed since.
    """
    split_of = {str(name): str(part) for name, part in zip(performance.ids, performance.splits, strict=True)}
    part_of = {name: part for name, part in split_of.items() if part != NEW}
    if not part_of:
        return []
    kept = [checks for checks in (read_checks(run.path) for run in predictor.runs) if checks is not None]
    findings = [finding for checks in kept for finding in checks.findings]
    current = [finding for checks in kept if checks.is_current(dataset) for finding in checks.findings]
    shortcuts = {each.text: each for each in find_shortcut_cautions(current)}  # several runs may have the same finding
    return [*find_duplicate_cautions(findings, part_of, apart="parts"), *shortcuts.values()]


def _note_adjustment(predictor: Predictor, performance: Performance) -> list[Caution]:
    """Return a note that says for which columns the trainings of the runs were adjusted."""
    columns = list(dict.fromkeys(name for run in predictor.runs for name in run.settings.adjust_for))
    known = performance.labels[:, 0]
    learned = [np.isin(performance.ids.astype(str), run.splits["train"]) & ~np.isnan(known) for run in predictor.runs]
    if not any(rows.any() for rows in learned):  # the cohort has no training repertoires
        return []
    sizes = [len(run.splits["train"]) for run in predictor.runs]
    return make_adjustment_cautions(columns, predictor.model.tasks[0].kind, [known[rows] for rows in learned], sizes)


def assess_outputs(predictor: Predictor, dataset: RepertoireDataset, found: OutputParts) -> Assessment:
    """Assess a run by its outputs for a cohort, (B, T)."""
    performance = measure_performance(predictor, dataset, found.outputs)
    shift = measure_shift(predictor.summaries(), dataset, performance.splits.tolist())
    performance = replace(performance, predictions=add_shift_columns(performance.predictions, shift))
    columns = select_control_columns(dataset.metadata, predictor.model.tasks)
    controls = compare_controls(dataset, performance, predictor.model.tasks, columns=columns.read)
    within = _measure_within_strata(predictor, dataset, performance)
    cautions = find_run_cautions(performance, controls, metadata=dataset.metadata, within=within)
    if any(each.measures for each in controls):
        cautions += warn_of_left_out_columns(columns)
    cautions += [
        *_warn_of_check(predictor, dataset, performance),
        *_note_adjustment(predictor, performance),
        *shift.cautions(),
    ]
    judged = performance.rows(performance.held_out)
    variation = share_variation(found, judged, predictor.model.tasks)
    cautions += _find_strata_cautions(within, performance)
    return Assessment(performance, controls, cautions, variation, within)


def _measure_within_strata(
    predictor: Predictor, dataset: RepertoireDataset, performance: Performance
) -> dict[str, list[StratifiedAuc]]:
    """Return the AUC of each binary target within the values of columns, on the held-out repertoires, by target."""
    rows, metadata = np.flatnonzero(performance.rows(performance.held_out)), dataset.metadata
    contrast_of = {each.target: each for each in performance.contrasts}
    found = {}
    for task in predictor.model.tasks:
        if task.kind == "binary" and len(rows):
            own = contrast_of[task.name]
            donors = None if own.donors is None else own.donors[rows]
            strata = [
                auc_within(name, metadata[name].iloc[rows].tolist(), own.label[rows], own.score[rows], donors)
                for name in find_strata_columns(metadata, task)
            ]
            found[task.name] = [each for each in strata if each is not None]
    return {target: strata for target, strata in found.items() if strata}


def _find_strata_cautions(within: Mapping[str, Sequence[StratifiedAuc]], performance: Performance) -> Iterator[Caution]:
    """Yield a warning for each column if the AUC within its values is no better than chance."""
    for contrast in performance.contrasts:
        auc = contrast.auc(performance.rows(performance.held_out))
        for each in within.get(contrast.target, ()) if auc is not None else ():
            if auc is not None and each.explains(auc.value, auc.low):
                text = (
                    f"Among repertoires with the same {each.column!r}, the AUC{contrast.named} is {each.auc:.3f} "
                    f"({each.low:.3f} to {each.high:.3f}), and {auc.value:.3f} over all: the network may have learned "
                    f"{each.column!r} instead of the target."
                )
                yield Caution("warning", text, "controls", "auc-within", each.to_dict())
