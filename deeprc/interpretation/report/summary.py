"""The first thing that a report says: a few plain sentences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.interpretation.report.sides import SidePage
from deeprc.runs.controls import SHORT, Controls
from deeprc.runs.judged import SIDE_NAMES, Contrast, Judged, Numbers
from deeprc.runs.run import Run
from deeprc.tasks import Task

__all__ = ["summary"]

_FEW_PEOPLE = " These repertoires are of too few people to say more."


def summary(
    run: Run, dataset: RepertoireDataset, judged: Judged, controls: Sequence[Controls], sides: Sequence[SidePage]
) -> list[tuple[str, str]]:
    """Return the report in brief: terms and sentences."""
    lines = [("Question", " ".join(_question(task) for task in run.tasks))]
    n = {name: int(judged.rows(side).sum()) for side, name in SIDE_NAMES.items()}
    sizes = ", ".join(f"{count:,} {name}" for name, count in n.items() if count)
    name = Path(dataset.container.path).name
    lines.append(
        (
            "Cohort",
            f"{len(dataset):,} repertoires of {name} with {int(dataset.n_sequences.sum()):,} sequences: {sizes}.",
        )
    )
    lines += [(f"Answer{contrast.named}", _answer(contrast, judged)) for contrast in judged.contrasts]
    lines += [(f"Answer{numbers.named}", _number_answer(numbers, judged)) for numbers in judged.numbers]
    shown = [each for each in controls if not (each.comparison.empty or each.is_of_class)]
    lines += [(f"Controls{each.contrast.named}", _compared(each)) for each in shown]
    for page in sides:
        lines.append((f"First motif for {page.side.name}", page.first or _no_motif(page)))
    return lines


def _no_motif(page: SidePage) -> str:
    if page.n_sequences == 0:
        return "None: no sequence speaks for it."
    return f"None is more frequent among the {page.n_sequences:,} sequences that speak most for it than elsewhere."


def _question(task: Task) -> str:
    if task.kind == "regression":
        return f"Do receptor sequences tell the value of “{task.column}”?"
    if task.kind == "multiclass":
        return f"Do receptor sequences tell the class of “{task.column}”: {', '.join(task.classes)}?"
    positive, negative = (f"({name})" if " or " in name else name for name in (task.positive, task.negative))
    return f"Do receptor sequences tell whether “{task.column}” is {positive} rather than {negative}?"


def _answer(contrast: Contrast, judged: Judged) -> str:
    auc = contrast.auc(judged.rows(judged.side))
    if auc is None:
        return "Not known: there are no repertoires of both classes that the network has not seen."
    n = int((judged.rows(judged.side) & ~np.isnan(contrast.label)).sum())
    few = judged.has_few_people(contrast.target)
    verdict = "cannot be shown to tell" if auc.low <= 0.5 or few else "tells"
    return (
        f"The network {verdict} {contrast.positive} from {contrast.negative}: its AUC is {auc.value:.3f} (95% interval "
        f"{auc.low:.3f} to {auc.high:.3f}; 1 is perfect, 0.5 is guessing) on {n:,} {SIDE_NAMES[judged.side or '']} "
        f"repertoires that it had not seen, {auc.n_positive:,} of them {contrast.positive}.{_FEW_PEOPLE * few}"
    )


def _number_answer(numbers: Numbers, judged: Judged) -> str:
    found = numbers.r2(judged.rows(judged.side))
    if found is None:
        return "Not known: there are no repertoires with different values that the network has not seen."
    side = SIDE_NAMES[judged.side or ""]
    error = judged.metrics[judged.side or ""][numbers.target]["mae"]
    few = judged.has_few_people(numbers.target)
    limits = "of which there is no interval"
    verdict = "cannot be shown to predict"
    if found.interval is not None:
        limits = f"95% interval {found.interval[0]:.3f} to {found.interval[1]:.3f}"
        verdict = "predicts" if found.interval[0] > 0 and not few else verdict
    return (
        f"The network {verdict} {numbers.target}: its r² is {found.value:.3f} ({limits}; 1 is perfect, 0 is no better "
        f"than the mean) and its mean error {error:.3g}, on {found.n:,} {side} repertoires that it had not seen."
        f"{_FEW_PEOPLE * few}"
    )


def _compared(controls: Controls) -> str:
    what = controls.scoring.heading
    named = [f"{SHORT[name]} {value:.3f}" for name, value in controls.measures.items() if name != "network"]
    if not named:
        return "None could be fitted."
    if controls.reaching:
        not_better = " or ".join(SHORT[name] for name in controls.reaching)
        verdict = f"the network is not shown to be better than {not_better}"
    else:
        verdict = "the network is better"
    return f"Models that read no receptor sequence have an {what} of: {', '.join(named)}; {verdict}."
