"""The report of a run: its training, performance, attention, motifs, and the commands that make it again."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.branches.clones import CloneBranch
from deeprc.checks.run_checks import RunChecks
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.linked_container import StoredContainer
from deeprc.datasets.simulation.simulated_dataset import SimulatedDataset
from deeprc.datasets.summary import render_summary, summarise
from deeprc.errors import InputError
from deeprc.evaluation.caution import Caution
from deeprc.interpretation.by_workers import survey_by_workers
from deeprc.interpretation.figures.classes import (
    choose_drawn_classes,
    format_class_names,
    index_classes,
    index_drawn_classes,
)
from deeprc.interpretation.report import origin, page_figures
from deeprc.interpretation.report.antigens import AntigenSection, annotate_survey, make_antigen_sections
from deeprc.interpretation.report.branch_tables import is_mainly_stored_clones, make_clone_tables, make_variation_table
from deeprc.interpretation.report.cautions import collect_cautions
from deeprc.interpretation.report.composition_tables import make_composition_tables
from deeprc.interpretation.report.directions import DirectionSection, make_direction_sections
from deeprc.interpretation.report.findings import (
    SimilarGroup,
    find_sequence_carriers,
    is_relabelled,
    list_flagged_groups,
    load_or_run_checks,
    make_check_cautions,
    make_group_table,
    make_shortcut_table,
)
from deeprc.interpretation.report.number_tables import (
    make_control_table,
    make_metrics_table,
    make_within_table,
    make_witness_table,
)
from deeprc.interpretation.report.page import Figure, Table, check_report_output, format_today, write_page
from deeprc.interpretation.report.sequences import make_legend
from deeprc.interpretation.report.summary import summarise_report
from deeprc.interpretation.survey import Survey, add_q_values, survey_cohort
from deeprc.jobs import Workers
from deeprc.nn.sequence_scores import ATTENTION
from deeprc.runs.assess import Assessment, assess_outputs
from deeprc.runs.ensemble import RunEnsemble
from deeprc.runs.performance import PART_NAMES, Performance, choose_held_out_part
from deeprc.runs.predictor import Predictor
from deeprc.runs.repeated_messages import log_once
from deeprc.runs.shares import DividedCohort
from deeprc.specificity import read_databases
from deeprc.tasks import Task

__all__ = ["REPORT_NEEDS", "write_report"]

REPORT_NEEDS = ("logomaker", "matplotlib")
"""Packages of the extra `interpret` that the report of a run needs."""

_CONTENTS = [
    ("summary", "Summary"),
    ("setup", "What was trained, and on which data"),
    ("cohort-check", "Is the cohort what it seems?"),
    ("performance", "How good is it?"),
    ("history", "Training"),
    ("controls", "Does it need the sequences?"),
    ("branches", "All, some or single sequences?"),
    ("attention", "Where does the network look?"),
    ("sequences", "Which sequences contribute most to which class?"),
    ("antigens", "Known antigens?"),
    ("motifs", "Which motifs?"),
    ("witnesses", "Does it find what was implanted?"),
    ("reproduce", "To reproduce"),
]

_HEADINGS_FOR_NUMBERS = {"sequences": "Which sequences contribute most to which direction?"}
"""Headings of a run that predicts only numbers."""

_logger = logging.getLogger(__name__)


def write_report(
    predictor: Predictor,
    dataset: RepertoireDataset,
    output: str | os.PathLike[str],
    *,
    top: int = 1000,
    databases: Sequence[str | os.PathLike[str]] = (),
    host: str | None = "human",
    workers: Workers | None = None,
    device: str = "auto",
) -> None:
    """Write the report of a model on a cohort, usually that of its training, as one HTML file.

    Parameters
    ----------
    predictor
        A run, several runs together, or a model that was fitted in Python.
    dataset
        The cohort.
    output
        Path of the file; an existing file is replaced only if it is a report.
    top
        Number of sequences to keep for each direction of an output.
    databases, host
        Paths of files of receptors with known antigens, which are searched among these sequences, and host of the
        receptors; see `deeprc.specificity.read_databases`.
    workers, device
        Where the repertoires are read with the runs, and on what device; None reads them here, on the device of the
        model. Only runs from files can be sent to workers.

    Raises
    ------
    InputError
        If a package of the extra `interpret` is missing, if the cohort is empty or in no container, or if `output`
        cannot be written.
    """
    check_report_output(Path(output))
    for package in REPORT_NEEDS:
        if find_spec(package) is None:
            raise InputError(f"the report needs {package}: pip install 'deeprc[interpret]'")
    if len(dataset) == 0:
        raise InputError(f"{dataset.container.path}: has no repertoire to report on")
    if isinstance(dataset, SimulatedDataset):
        raise InputError(f"{dataset!r}: the report needs a container; make one with `write_container` and open it")
    known = read_databases(databases, host=host) if databases else None
    survey_repertoires: Callable[..., Survey] = partial(survey_cohort, predictor.model, dataset)
    if workers is not None:
        if not isinstance(predictor, RunEnsemble) or not isinstance(dataset.container, StoredContainer):
            raise InputError("`scheduler` needs runs and a container that workers can open: give their paths")
        survey_repertoires = partial(survey_by_workers, DividedCohort(predictor, dataset, workers, device))
    files = list(map(str, databases))
    with log_once("deeprc.task_labels"):  # each section reads the labels anew; they may differ from those of training
        results = _compute_results(predictor, dataset, top, known, survey_repertoires)
        made_by = origin.describe_origin(predictor, dataset, Path(output), top, files, host)
        write_page(Path(output), "report.html.j2", **_make_content(results), **made_by)


@dataclass(frozen=True)
class _ReportResults:
    """All results of a report, before they are put into tables and figures.

    Attributes
    ----------
    predictor, dataset
        The model with its training, and the cohort.
    survey
        Survey of the cohort with the model.
    assessment
        Performance of the model, with controls.
    checks, groups
        Findings of a check of the cohort, and groups of repertoires with too many common sequences.
    directions
        Section of the page about each direction of an output.
    antigens
        Sections of the page about known antigens; empty without a database.
    cautions
        Warnings, then notes.
    """

    predictor: Predictor
    dataset: RepertoireDataset
    survey: Survey
    assessment: Assessment
    checks: RunChecks
    groups: Sequence[SimilarGroup]
    directions: Sequence[DirectionSection]
    antigens: Sequence[AntigenSection]
    cautions: Sequence[Caution]

    @property
    def performance(self) -> Performance:
        """Performance of the model on the cohort."""
        return self.assessment.performance

    @property
    def tasks(self) -> Sequence[Task]:
        """Tasks that are predicted."""
        return self.predictor.model.tasks


def _compute_results(
    predictor: Predictor,
    dataset: RepertoireDataset,
    top: int,
    known: pd.DataFrame | None,
    survey_repertoires: Callable[..., Survey],
) -> _ReportResults:
    """Compute all results of the report.

    Parameters
    ----------
    predictor, dataset, top
        See `write_report`.
    known
        Receptors with known antigens; None: they are not searched.
    survey_repertoires
        `survey_cohort` or `survey_by_workers` of this cohort, which reads each repertoire once.
    """
    model = predictor.model
    _logger.info("reading %d repertoires", len(dataset))
    parts = predictor.split_of(dataset)
    witnesses_among = _select_witness_repertoires(dataset, parts, model.encode_labels(dataset))
    survey = survey_repertoires(top=top, parts=parts, witnesses_among=witnesses_among)
    _logger.info("comparing with control methods")
    assessment = assess_outputs(predictor, dataset, survey.outputs)
    performance = assessment.performance
    labels = {
        task.name: dict(zip(performance.ids, format_class_names(task, performance.labels[:, i]), strict=True))
        for i, task in enumerate(model.tasks)
    }
    checks = load_or_run_checks(predictor, dataset, performance)
    groups = list_flagged_groups(checks)
    carriers = find_sequence_carriers(dataset, survey.top, groups, checks.donor_column)
    is_held_out = None if performance.held_out is None else performance.is_held_out
    add_q_values(survey, predictor, dataset, parts)
    survey, organisms = annotate_survey(survey, known, dataset)
    antigens = make_antigen_sections(survey, organisms, index_classes(model.tasks))
    directions = make_direction_sections(predictor, dataset, survey, labels, carriers, is_held_out)
    relabelled = is_relabelled(predictor, dataset)
    cautions = collect_cautions(predictor, assessment, heads=survey.heads, relabelled=relabelled)
    texts = {caution.text for caution in cautions}
    cautions += [caution for caution in make_check_cautions(checks, carriers) if caution.text not in texts]
    cautions.sort(key=lambda caution: caution.level != "warning")
    return _ReportResults(predictor, dataset, survey, assessment, checks, groups, directions, antigens, cautions)


def _make_content(results: _ReportResults) -> dict[str, Any]:
    """Return the content of the template, without the part about how to make it again."""
    performance, checks, dataset = results.performance, results.checks, results.dataset
    witnesses = _make_witness_table(results.survey)
    branch_features = results.predictor.model.branch_features
    is_shown = {  # sections that not every report has
        "witnesses": witnesses is not None,
        "branches": bool(branch_features),
        "antigens": bool(results.antigens),
    }
    return {
        "title": f"DeepRC: {', '.join(task.title for task in results.tasks)}",
        "lead": "What a neural network learned from immune repertoires: how well it predicts their labels, and from "
        "which receptor sequences.",
        "date": format_today(),
        "contents": [
            (name, _HEADINGS_FOR_NUMBERS.get(name, heading) if not performance.contrasts else heading)
            for name, heading in _CONTENTS
            if is_shown.get(name, True)
        ],
        "cautions": results.cautions,
        "several": len(results.predictor.model.members) > 1,
        "summary": summarise_report(results.tasks, dataset, results.assessment, results.directions, branch_features),
        "facts": origin.list_cohort_facts(dataset),
        "split": origin.make_sizes_table(performance, results.tasks, dataset.n_sequences, index_classes(results.tasks)),
        "about": render_summary(summarise(dataset)),
        "findings": checks.warnings,
        "groups": make_group_table(results.groups, dataset, performance, checks.donor_column),
        "shortcuts": make_shortcut_table(checks),
        **_make_performance_sections(results),
        "branches": _make_branches_section(results) if branch_features else None,
        "attention": _make_attention_section(results.tasks, performance, results.survey),
        "genes": page_figures.make_gene_figures(results.survey.genes),
        "directions": results.directions,
        "antigens": results.antigens,
        "legend": make_legend(),
        "witnesses": witnesses,
    }


def _make_branches_section(results: _ReportResults) -> dict[str, Any]:
    """Return the content of the section about branches."""
    features = results.predictor.model.branch_features
    return {
        "variation": make_variation_table(results.assessment.variation, {ATTENTION: [], **features}),
        "has_stored_clones": CloneBranch.name in features,
        "is_mainly_stored_clones": is_mainly_stored_clones(results.assessment.variation),
        "clones": make_clone_tables(results.predictor.model),
        "composition": make_composition_tables(results.predictor.model, results.dataset),
    }


def _make_performance_sections(results: _ReportResults) -> dict[str, Any]:
    """Return the content of the sections about performance, training and controls."""
    performance, colours_by_target = results.performance, index_classes(results.tasks)
    curves = [
        *(
            figure
            for contrast in performance.contrasts
            for figure in page_figures.make_contrast_figures(performance, contrast, colours_by_target[contrast.target])
        ),
        *(
            figure
            for numeric in performance.numeric_targets
            for figure in page_figures.make_regression_figures(performance, numeric)
        ),
    ]
    controls = enumerate(results.assessment.controls, start=1)
    histories = results.predictor.histories()
    return {
        "has_classes": bool(performance.contrasts),
        "has_numbers": bool(performance.numeric_targets),
        "auc_of": _describe_auc(performance),
        "judging": None if performance.held_out is None else PART_NAMES[performance.held_out],
        "metrics": [make_metrics_table(performance, task, i) for i, task in enumerate(results.tasks, start=1)],
        "curves": curves,
        "history": [
            figure
            for name, history in histories.items()
            for figure in page_figures.make_history_figures(history, name if len(histories) > 1 else "")
        ],
        "controls": [(each, None if each.table.empty else make_control_table(each, i)) for i, each in controls],
        "within": make_within_table(results.assessment.stratified_aucs),
    }


def _describe_auc(performance: Performance) -> str:
    """Return a text that explains the AUC as a probability, with the names of the classes."""
    if len(performance.contrasts) == 1:
        (contrast,) = performance.contrasts
        first, second = f"a random {contrast.positive} repertoire", f"a random {contrast.negative} one"
    else:
        first, second = "a random repertoire of the named class", "a random one of the others"
    return f"{first} gets a higher score than {second}"


def _make_attention_section(tasks: Sequence[Task], performance: Performance, survey: Survey) -> list[Figure]:
    """Return the figures of the attention by class, for each target."""
    figures = []
    for i, task in enumerate(tasks):
        classes = choose_drawn_classes(task, performance.ids.tolist(), performance.labels[:, i])
        target_name = task.name if len(tasks) > 1 else ""
        colour_of_class = index_drawn_classes(tasks, task, performance.labels[:, i])
        if task.kind == "regression":
            by = f"by {task.column}"
        else:
            by = f"by class of {target_name}" if target_name else "by class"
        figures += page_figures.make_attention_figures(
            survey.heads, survey.curves, classes, colour_of_class, target_name, by
        )
    return figures


def _select_witness_repertoires(
    dataset: RepertoireDataset, parts: Sequence[str], labels: NDArray[np.float64]
) -> list[int]:
    """Return the held-out repertoires of a simulated cohort, or all; empty if its witnesses are not known."""
    if not dataset.container.has_witness:
        return []
    part_of = np.array(parts, dtype=object)
    held_out = choose_held_out_part(part_of, labels)
    chosen = np.flatnonzero(part_of == held_out) if held_out else np.arange(len(dataset))
    return chosen.tolist()


def _make_witness_table(survey: Survey) -> Table | None:
    """Return the table of how well witnesses are found; None if they are not known."""
    return make_witness_table(list(zip(survey.directions, survey.witnesses, strict=True))) if survey.witnesses else None
