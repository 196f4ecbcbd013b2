"""The report of a run: what was trained on what, how good it is, what it looked at, and how to make it again."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.summary import render_summary, summarise
from deeprc.errors import InputError
from deeprc.evaluation.run import Run, environment
from deeprc.files import read_table
from deeprc.interpretation.figures.classes import class_texts, drawn_classes
from deeprc.interpretation.ranking import witness_ranking
from deeprc.interpretation.report import origin, pictures
from deeprc.interpretation.report.cautions import cautions
from deeprc.interpretation.report.controls import Controls, compare_controls
from deeprc.interpretation.report.judged import SIDE_NAMES, Judged, judge
from deeprc.interpretation.report.number_tables import control_table, metrics_table, witness_table
from deeprc.interpretation.report.page import Figure, Table, check_report_output, today, write_page
from deeprc.interpretation.report.sequences import legend
from deeprc.interpretation.report.sides import side_pages
from deeprc.interpretation.report.summary import summary
from deeprc.interpretation.survey import Side, Survey, survey

__all__ = ["REPORT_NEEDS", "write_report"]

REPORT_NEEDS = ("captum", "logomaker", "matplotlib")
"""The packages of the extra `interpret`, without which there is no report of a run."""

_CONTENTS = [
    ("summary", "Summary"),
    ("setup", "What was trained on what"),
    ("performance", "How good is it?"),
    ("history", "Training"),
    ("controls", "Does it need the sequences?"),
    ("attention", "Where does the network look?"),
    ("sequences", "Which sequences speak for which class?"),
    ("motifs", "Which motifs?"),
    ("witnesses", "Does it find what was implanted?"),
    ("reproduce", "To reproduce"),
]

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
    logger.info("reading %d repertoires", len(dataset))
    found = survey(run, dataset, top=top, positions=positions)
    judged = judge(run, dataset, found.outputs)
    logger.info("comparing with controls")
    controls = compare_controls(dataset, judged)
    classes = {
        task.name: dict(zip(judged.ids, class_texts(task, judged.labels[:, i]), strict=True))
        for i, task in enumerate(run.tasks)
    }
    sides = side_pages(run, dataset, found, classes)
    history, seeds = (_table(run.path / name) for name in ("history.tsv", "seeds.tsv"))
    witnesses = _witnesses(run, dataset, judged, found.sides)
    known = cautions(run, judged, controls, metadata=dataset.metadata, heads=found.heads, history=history, seeds=seeds)
    known.sort(key=lambda each: each.level != "warning")
    return {
        "title": f"DeepRC: {', '.join(task.name for task in run.tasks)}",
        "lead": "What a neural network learned from immune repertoires: how well it tells them apart, and by which "
        "receptor sequences.",
        "date": today(),
        "contents": [entry for entry in _CONTENTS if entry[0] != "witnesses" or witnesses is not None],
        "cautions": known,
        "summary": summary(run, dataset, judged, controls, sides),
        "judging": None if judged.side is None else SIDE_NAMES[judged.side],
        "facts": origin.cohort_facts(dataset),
        "split": origin.split_table(judged, run.tasks, dataset.n_sequences),
        "settings": origin.settings_table(run.settings),
        "about": render_summary(summarise(dataset)),
        "metrics": [metrics_table(judged, task, place) for place, task in enumerate(run.tasks, start=1)],
        "curves": [
            *(picture for contrast in judged.contrasts for picture in pictures.contrast_pictures(judged, contrast)),
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
        "config": (run.path / "config.yaml").read_text(encoding="utf-8"),
    }


def _attention(run: Run, judged: Judged, found: Survey) -> list[Figure]:
    """Return the figures of the attention by class, for each target."""
    figures = []
    for i, task in enumerate(run.tasks):
        classes = drawn_classes(task, judged.ids.tolist(), judged.labels[:, i])
        named = task.name if len(run.tasks) > 1 else ""
        figures += pictures.attention_pictures(found.heads, found.curves, classes, named)
    return figures


def _control_table(controls: Controls, place: int) -> Table | None:
    return None if controls.comparison.empty else control_table(controls, place)


def _witnesses(run: Run, dataset: RepertoireDataset, judged: Judged, sides: Sequence[Side]) -> Table | None:
    """Return how well the carriers of a simulated signal are found, among the repertoires that judge, or all."""
    if dataset.container.witness is None:
        return None
    rows = (np.flatnonzero(judged.rows(judged.side)) if judged.side else np.arange(len(dataset))).tolist()
    logger.info("looking for the implanted sequences in %d repertoires", len(rows))
    return witness_table(
        [(side, witness_ranking(run, dataset, rows, output=side.output, sign=side.sign)) for side in sides]
    )


def _table(path: Path) -> pd.DataFrame:
    """Return one of a run's tables; an empty one where a run of an earlier version lacks it, or it cannot be read."""
    try:
        return read_table(path)
    except InputError:
        return pd.DataFrame()


def _report_command(run: Run, dataset: RepertoireDataset, output: Path, top: int) -> str:
    words: Sequence[str] = ("deeprc", "report", str(run.path), str(dataset.container.path), "-o", str(output))
    return shlex.join([*words, "--top", str(top)])
