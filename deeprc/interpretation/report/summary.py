"""The summary at the beginning of a report, in a few plain sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.evaluation.splits import NEW
from deeprc.interpretation.report.branch_tables import make_variation_sentence
from deeprc.interpretation.report.directions import DirectionSection
from deeprc.runs.assess import Assessment
from deeprc.runs.control_comparison import NAMES, ControlComparison
from deeprc.runs.performance import PART_NAMES, Contrast, NumericTarget, Performance
from deeprc.tasks import Task

__all__ = ["summarise_report"]

_FEW_DONORS = " These repertoires are from too few donors for a conclusion."


def summarise_report(
    tasks: Sequence[Task],
    dataset: RepertoireDataset,
    assessment: Assessment,
    directions: Sequence[DirectionSection],
    branch_features: Mapping[str, Sequence[str]],
) -> list[tuple[str, str]]:
    """Return the summary of a report as pairs of a term and sentences; `branch_features` are those of the model."""
    performance = assessment.performance
    return [
        ("Question", " ".join(_format_question(task) for task in tasks)),
        ("Cohort", _describe_cohort(dataset, performance)),
        *((f"Answer{contrast.for_target}", _describe_auc(contrast, performance)) for contrast in performance.contrasts),
        *(
            (f"Answer{numeric.for_target}", _describe_r2(numeric, performance))
            for numeric in performance.numeric_targets
        ),
        *_iterate_control_lines(assessment),
        *_iterate_branch_lines(assessment, branch_features),
        *(
            (f"First motif for {section.direction.name}", section.first or _explain_no_motif(section))
            for section in directions
        ),
    ]


def _iterate_control_lines(assessment: Assessment) -> Iterator[tuple[str, str]]:
    for comparison in assessment.controls:
        if not (comparison.table.empty or comparison.is_of_class):
            yield f"Control methods{comparison.quantity.for_target}", _describe_controls(comparison)


def _iterate_branch_lines(
    assessment: Assessment, branch_features: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, str]]:
    part = PART_NAMES[assessment.performance.held_out or "new"]
    for variation in assessment.variation:
        term = f"Branches for {variation.output}" if len(assessment.variation) > 1 else "Branches"
        yield term, make_variation_sentence(variation, part, branch_features)


def _describe_cohort(dataset: RepertoireDataset, performance: Performance) -> str:
    """Return a sentence with the numbers of repertoires, sequences, and repertoires in each part of the split."""
    n_of_part = {name: int(performance.is_in(part).sum()) for part, name in PART_NAMES.items()}
    sizes = ", ".join(f"{n:,} {name}" for name, n in n_of_part.items() if n)
    name = Path(dataset.container.path).name
    return f"{len(dataset):,} repertoires of {name} with {int(dataset.n_sequences.sum()):,} sequences: {sizes}."


def _explain_no_motif(section: DirectionSection) -> str:
    if section.n_sequences == 0:
        return f"None: no sequence contributes to it{'' if section.table is None else ' by its residues'}."
    return (
        f"None. A motif must be clearly more frequent among the {section.n_sequences:,} sequences that contribute most "
        "to it than among others, and at most a quarter of the others may carry it. No pattern fulfils both conditions."
    )


def _format_question(task: Task) -> str:
    if task.kind == "regression":
        return f"Can receptor sequences predict the value of “{task.column}”?"
    if task.kind == "multiclass":
        return f"Can receptor sequences predict the class of “{task.column}”: {', '.join(task.classes)}?"
    positive, negative = (f"({name})" if " or " in name else name for name in (task.positive, task.negative))
    return f"Can receptor sequences predict whether “{task.column}” is {positive} rather than {negative}?"


def _describe_auc(contrast: Contrast, performance: Performance) -> str:
    """Return a sentence about the AUC on the held-out repertoires, and whether it shows more than chance."""
    auc = contrast.measure_auc(performance.is_held_out)
    if auc is None:
        return "Not known: there are no repertoires of both classes that the network has not seen."
    n = int((performance.is_held_out & ~np.isnan(contrast.label)).sum())
    part = PART_NAMES[performance.held_out or ""]
    few = performance.has_few_donors(contrast.target)
    verdict = "is not shown to distinguish" if auc.low <= 0.5 or few else "distinguishes"
    return (
        f"The network {verdict} {contrast.positive} from {contrast.negative}: its AUC is {auc.value:.3f} (95% interval "
        f"{auc.low:.3f} to {auc.high:.3f}; 1 is perfect, 0.5 is guessing) on {n:,} {part} "
        f"repertoires{_describe_seen(performance)}, {auc.n_positive:,} of them {contrast.positive}."
        f"{_FEW_DONORS if few else ''}"
    )


def _describe_seen(performance: Performance) -> str:
    """Return a clause about held-out repertoires; a packed model knows none, so nothing is said of new ones."""
    return "" if performance.held_out == NEW else " that it had not seen"


def _describe_r2(numeric: NumericTarget, performance: Performance) -> str:
    """Return a sentence about r² on the held-out repertoires, and whether it shows more than chance."""
    r2 = numeric.measure_r2(performance.is_held_out)
    if r2 is None:
        return "Not known: there are no repertoires with different values that the network has not seen."
    part = PART_NAMES[performance.held_out or ""]
    error = performance.metrics[performance.held_out or ""][numeric.target]["mae"]
    few = performance.has_few_donors(numeric.target)
    limits = "without an interval"
    verdict = "is not shown to predict"
    if r2.interval is not None:
        limits = f"95% interval {r2.interval[0]:.3f} to {r2.interval[1]:.3f}"
        verdict = "predicts" if r2.interval[0] > 0 and not few else verdict
    return (
        f"The network {verdict} {numeric.target}: its r² is {r2.value:.3f} ({limits}; 1 is perfect, 0 is no better "
        f"than the mean) and its mean absolute error {error:.3g}, on {r2.n:,} {part} "
        f"repertoires{_describe_seen(performance)}.{_FEW_DONORS if few else ''}"
    )


def _describe_controls(comparison: ControlComparison) -> str:
    measure = comparison.scoring.heading
    control_texts = [f"{NAMES[name]} {value:.3f}" for name, value in comparison.measures.items() if name != "network"]
    if not control_texts:
        return "No control method could be fitted."
    if comparison.not_worse:
        *others, last = (NAMES[name] for name in comparison.not_worse)
        not_better = f"{', '.join(others)} or {last}" if others else last
        verdict = f"it is not shown that the network is better than {not_better}"
    else:
        verdict = "the network is better than all of them"
    article = "a" if measure.startswith("Macro") else "an"
    return f"Simple methods that see no amino acids have {article} {measure} of: {', '.join(control_texts)}; {verdict}."
