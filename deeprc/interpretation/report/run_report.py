"""The report of a run: what was trained on what, how good it is, what it looked at, and how to make it again."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.summary import render_summary, summarise
from deeprc.documents import MAX_YAML_BYTES, read_text
from deeprc.errors import InputError
from deeprc.evaluation.stored_tables import read_history, read_seeds
from deeprc.interpretation.figures.classes import class_places, class_texts, drawn_classes, drawn_places
from deeprc.interpretation.ranking import witness_ranking
from deeprc.interpretation.report import origin, pictures
from deeprc.interpretation.report.cautions import cautions
from deeprc.interpretation.report.findings import (
    cautions_of_checks,
    checks_of,
    flagged_groups,
    group_table,
    is_relabelled,
    shared_by,
    shortcut_table,
)
from deeprc.interpretation.report.number_tables import control_table, metrics_table, witness_table
from deeprc.interpretation.report.page import Figure, Table, check_report_output, today, write_page
from deeprc.interpretation.report.sequences import legend
from deeprc.interpretation.report.sides import side_pages
from deeprc.interpretation.report.summary import summary
from deeprc.interpretation.survey import Side, Survey, survey
from deeprc.runs.assess import assess_outputs
from deeprc.runs.controls import Controls
from deeprc.runs.judged import SIDE_NAMES, Judged
from deeprc.runs.run import Run, environment

__all__ = ["REPORT_NEEDS", "write_report"]

REPORT_NEEDS = ("logomaker", "matplotlib")
"""The packages of the extra `interpret`, without which there is no report of a run."""

_CONTENTS = [
    ("summary", "Summary"),
    ("setup", "What was trained on what"),
    ("cohort-check", "Is the cohort what it seems?"),
    ("performance", "How good is it?"),
    ("history", "Training"),
    ("controls", "Does it need the sequences?"),
    ("attention", "Where does the network look?"),
    ("sequences", "Which sequences speak for which class?"),
    ("motifs", "Which motifs?"),
    ("witnesses", "Does it find what was implanted?"),
    ("reproduce", "To reproduce"),
]

_FOR_NUMBERS = {"sequences": "Which sequences speak for which direction?"}
"""Headings of a run that predicts numbers only."""

logger = logging.getLogger(__name__)


def write_report(
    run: Run,
    dataset: RepertoireDataset,
    output: str | os.PathLike[str],
    *,
    top: int = 1000,
    positions: Iterable[int] | None = None,
) -> None:
    """Write the report of a run on a cohort, usually the one it was trained on, as one HTML file.

    Parameters
    ----------
    run
        A trained model.
    dataset
        The cohort.
    output
        The file to write; it is replaced only if it is a report.
    top
        How many sequences to keep for each side.
    positions
        All positions of the dataset in order, wrapped in a progress bar, if one is wanted.

    Raises
    ------
    InputError
        If a package of the extra `interpret` is missing, the cohort is empty, or `output` cannot be written.
    """
    check_report_output(Path(output))
    for package in REPORT_NEEDS:
        if find_spec(package) is None:
            raise InputError(f"the report needs {package}: pip install 'deeprc[interpret]'")
    if len(dataset) == 0:
        raise InputError(f"{dataset.container.path}: has no repertoire to report on")
    write_page(Path(output), "report.html.j2", **_content(run, dataset, Path(output), top, positions))


def _content(
    run: Run, dataset: RepertoireDataset, output: Path, top: int, positions: Iterable[int] | None
) -> dict[str, Any]:
    """Return all that the template shows."""
    history, seeds = _table(read_history, run.path / "history.tsv"), _table(read_seeds, run.path / "seeds.tsv")
    logger.info("reading %d repertoires", len(dataset))
    found = survey(run, dataset, top=top, positions=positions)
    logger.info("comparing with controls")
    assessment = assess_outputs(run, dataset, found.outputs)
    judged, controls = assessment.judged, assessment.controls
    classes = {
        task.name: dict(zip(judged.ids, class_texts(task, judged.labels[:, i]), strict=True))
        for i, task in enumerate(run.tasks)
    }
    places = class_places(run.tasks)
    checks = checks_of(run, dataset, judged)
    groups = flagged_groups(checks)
    shared = shared_by(dataset, found.top, groups, checks.subject_column)
    sides = side_pages(run, dataset, found, classes, shared)
    witnesses = _witnesses(run, dataset, judged, found.sides)
    relabelled = is_relabelled(run, dataset)
    known = cautions(run, assessment, heads=found.heads, history=history, seeds=seeds, relabelled=relabelled)
    known += cautions_of_checks(checks, shared)
    known.sort(key=lambda each: each.level != "warning")
    return {
        "title": f"DeepRC: {', '.join(task.title for task in run.tasks)}",
        "lead": "What a neural network learned from immune repertoires: how well it tells them apart, and by which "
        "receptor sequences.",
        "date": today(),
        "contents": [
            (name, _FOR_NUMBERS.get(name, heading) if not judged.contrasts else heading)
            for name, heading in _CONTENTS
            if name != "witnesses" or witnesses is not None
        ],
        "has_classes": bool(judged.contrasts),
        "has_numbers": bool(judged.numbers),
        "cautions": known,
        "summary": summary(run, dataset, judged, controls, sides),
        "auc_of": _auc_of(judged),
        "judging": None if judged.side is None else SIDE_NAMES[judged.side],
        "facts": origin.cohort_facts(dataset),
        "split": origin.split_table(judged, run.tasks, dataset.n_sequences, places),
        "settings": origin.settings_table(run.settings),
        "about": render_summary(summarise(dataset)),
        "findings": checks.warnings,
        "groups": group_table(groups, dataset, judged, checks.subject_column),
        "shortcuts": shortcut_table(checks),
        "metrics": [metrics_table(judged, task, place) for place, task in enumerate(run.tasks, start=1)],
        "curves": [
            *(
                picture
                for contrast in judged.contrasts
                for picture in pictures.contrast_pictures(judged, contrast, places[contrast.target])
            ),
            *(picture for numbers in judged.numbers for picture in pictures.number_picture(judged, numbers)),
        ],
        "history": pictures.history_picture(history),
        "controls": [(each, _control_table(each, place)) for place, each in enumerate(controls, start=1)],
        "attention": _attention(run, judged, found),
        "genes": pictures.gene_pictures(found.genes),
        "sides": sides,
        "legend": legend(),
        "witnesses": witnesses,
        "train_command": origin.train_command(run.settings, str(run.path)),
        "report_command": _report_command(run, dataset, output, top),
        "fingerprint": run.settings.fingerprint,
        "versions": origin.versions_table(
            origin.read_environment(run), environment(run.network.pooling.queries.device)
        ),
        "config": read_text(run.path / "config.yaml", limit=MAX_YAML_BYTES),
    }


def _auc_of(judged: Judged) -> str:
    """Return of what the AUC is the probability, by the names of the classes."""
    if len(judged.contrasts) == 1:
        (contrast,) = judged.contrasts
        first, second = f"a random {contrast.positive} repertoire", f"a random {contrast.negative} one"
    else:
        first, second = "a random repertoire of the class that is named", "a random one of the others"
    return f"{first} gets a higher score than {second}"


def _attention(run: Run, judged: Judged, found: Survey) -> list[Figure]:
    """Return the figures of the attention by class, for each target."""
    figures = []
    for i, task in enumerate(run.tasks):
        classes = drawn_classes(task, judged.ids.tolist(), judged.labels[:, i])
        named = task.name if len(run.tasks) > 1 else ""
        places = drawn_places(run.tasks, task, judged.labels[:, i])
        by = f"by {task.column}" if task.kind == "regression" else f"by class{f' of {named}' * bool(named)}"
        figures += pictures.attention_pictures(found.heads, found.curves, classes, places, named, by)
    return figures


def _control_table(controls: Controls, place: int) -> Table | None:
    return None if controls.comparison.empty else control_table(controls, place)


def _witnesses(run: Run, dataset: RepertoireDataset, judged: Judged, sides: Sequence[Side]) -> Table | None:
    """Return how well the carriers of a simulated signal are found, among the repertoires that judge, or all."""
    if dataset.container.sequences.witness is None:
        return None
    rows = (np.flatnonzero(judged.rows(judged.side)) if judged.side else np.arange(len(dataset))).tolist()
    logger.info("looking for the implanted sequences in %d repertoires", len(rows))
    return witness_table(
        [(side, witness_ranking(run, dataset, rows, output=side.output, sign=side.sign)) for side in sides]
    )


def _table(read: Callable[[Path], pd.DataFrame], path: Path) -> pd.DataFrame:
    """Return one of a run's tables; an empty one where a run of an earlier version lacks it."""
    return read(path) if path.exists() else pd.DataFrame()


def _report_command(run: Run, dataset: RepertoireDataset, output: Path, top: int) -> str:
    words: Sequence[str] = ("deeprc", "report", str(run.path), str(dataset.container.path), "-o", str(output))
    return shlex.join([*words, "--top", str(top)])
