"""Single figures of a run, a cross-validation, a benchmark or a cohort, by name, for `deeprc plot`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd

from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.errors import InputError
from deeprc.evaluation.donors import DonorColumn
from deeprc.evaluation.stored_tables import read_history
from deeprc.interpretation.attributions import Attributions, attribute
from deeprc.interpretation.cohort_numbers import compute_cohort_numbers
from deeprc.interpretation.directions import Direction, find_direction
from deeprc.interpretation.figures import (
    draw_attention_figure,
    draw_calibration_figure,
    draw_gene_figure,
    draw_history_figure,
    draw_kernels_figure,
    draw_logos_figure,
    draw_metastable_figure,
    draw_precision_recall_figure,
    draw_regression_figure,
    draw_roc_figure,
    draw_sequence_figure,
)
from deeprc.interpretation.figures.classes import choose_drawn_classes, index_classes, index_drawn_classes
from deeprc.interpretation.figures.cohort import draw_cohort_figure
from deeprc.interpretation.figures.network import draw_network_figure
from deeprc.interpretation.folder_curves import draw_folder_curves
from deeprc.interpretation.motifs import find_motifs
from deeprc.interpretation.survey import Survey, TopSequences, survey_cohort
from deeprc.runs.ensemble import RunEnsemble, load_ensemble
from deeprc.runs.run import read_stored_predictions
from deeprc.runs.run_folders import find_cross_validation
from deeprc.runs.run_settings import read_settings
from deeprc.tasks import Task
from deeprc.training.model import Model

if TYPE_CHECKING:
    from matplotlib.figure import Figure


__all__ = ["KINDS", "FigureOptions", "find_drawn_classes", "make_figure"]

_N_TOP = 1000  # number of sequences whose attributions and motifs are used
_N_SHOWN = 20  # number of sequences in a figure
_N_LOGOS = 6  # number of logos in a figure


@dataclass(frozen=True)
class FigureOptions:
    """Options of a figure.

    Attributes
    ----------
    target
        Name of the target; None takes the first target of the run. It is required if the predictions have several.
    repertoire
        Id of the only repertoire to show; None shows all.
    class_name
        Class of the target whose sequences `logos`, `kernels` and `sequences` show; None takes the positive class.
    field
        Gene field of the figure `genes`, v_call or j_call; None takes v_call.
    """

    target: str | None = None
    repertoire: str | None = None
    class_name: str | None = None
    field: str | None = None


@dataclass(frozen=True)
class _Request:
    """The arguments of `make_figure`, from which figures are made."""

    kind: str
    paths: tuple[Path, ...]
    cohort: str | os.PathLike[str] | None
    options: FigureOptions
    device: str

    @property
    def path(self) -> Path:
        """First folder; the only one for most figures."""
        return self.paths[0]

    @property
    def target(self) -> str | None:
        return self.options.target

    @cached_property
    def runs(self) -> RunEnsemble:
        return load_ensemble(self.paths, device=self.device)

    @property
    def model(self) -> Model:
        return self.runs.model

    @cached_property
    def dataset(self) -> RepertoireDataset:
        assert self.cohort is not None
        dataset, repertoire = open_dataset(self.cohort), self.options.repertoire
        return dataset if repertoire is None else dataset.select([repertoire])

    @cached_property
    def task(self) -> Task:
        """Task of the target that is shown."""
        names = [task.name for task in self.model.tasks]
        if self.target is not None and self.target not in names:
            raise InputError(f"{self.path}: no target {self.target!r}; its targets: {', '.join(names)}")
        return self.model.tasks[0 if self.target is None else names.index(self.target)]

    def survey(self, top: int = 1) -> Survey:
        if not self.dataset.n_sequences.any():
            repertoire = self.options.repertoire
            where = "the cohort" if repertoire is None else f"the repertoire {repertoire!r}"
            raise InputError(f"{self.cohort}: {where} has no sequences, so there is nothing to draw")
        return survey_cohort(self.model, self.dataset, top=top)

    def predictions(self) -> pd.DataFrame:
        if self.cohort is not None:
            return self.runs.predict(self.dataset)
        self.check_alone(self._explain_missing_predictions())
        self.check_stored("predictions", ": give a CONTAINER, too")
        return read_stored_predictions(self.path)

    def _explain_missing_predictions(self) -> str:
        """Return what to do if several runs are given without a cohort."""
        folder = find_cross_validation(self.paths)
        if folder is None:
            return "their joint predictions are not stored: give a CONTAINER"
        place = shlex.quote(os.path.relpath(folder))
        if self.kind == "calibration":
            what = f"`deeprc report {place}` shows the calibration in its test folds"
        else:
            what = f"`deeprc plot curves {place}` draws the curves of its test folds"
        return f"they are of a cross-validation: {what}; for new repertoires, give their CONTAINER"

    def donors(self, predictions: pd.DataFrame) -> dict[str, int] | None:
        """Return the index of the donor of each repertoire, by its id; None if the metadata sheet did not name donors.

        Without a cohort, the donors are those that the run has stored with its predictions.
        """
        if self.cohort is None:
            if "donor" not in predictions:
                return None
            return dict(zip(predictions["repertoire_id"], predictions["donor"].astype(int), strict=True))
        return DonorColumn.choose(self.dataset.metadata, self.runs.group_by).index_by_id(self.dataset.repertoire_ids)

    def check_alone(self, reason: str) -> None:
        """Raise InputError if several runs are given."""
        if len(self.paths) > 1:
            raise InputError(f"{len(self.paths)} runs: {reason}")

    def check_stored(self, what: str, advice: str = "") -> None:
        """Raise InputError if the path is not a run directory, which has the predictions and the history of a run."""
        if self.path.is_file():
            raise InputError(f"{self.path}: is a file; a packed model holds no {what}{advice}")
        read_settings(self.path)


def _draw_roc(request: _Request) -> Figure:
    predictions = request.predictions()
    return draw_roc_figure(predictions, target=request.target, donors=request.donors(predictions))


def _draw_precision_recall(request: _Request) -> Figure:
    return draw_precision_recall_figure(request.predictions(), target=request.target)


def _draw_calibration(request: _Request) -> Figure:
    return draw_calibration_figure(request.predictions(), target=request.target)


def _draw_regression(request: _Request) -> Figure:
    return draw_regression_figure(request.predictions(), target=request.target)


def _draw_history(request: _Request) -> Figure:
    request.check_alone("each has a history of its own; give one")
    request.check_stored("history")
    return draw_history_figure(read_history(request.path / "history.tsv"))


def _draw_metastable(request: _Request) -> Figure:
    return draw_metastable_figure(
        request.survey().heads, *find_drawn_classes(request.model, request.dataset, request.task)
    )


def _draw_attention(request: _Request) -> Figure:
    return draw_attention_figure(
        request.survey().curves, *find_drawn_classes(request.model, request.dataset, request.task)
    )


def _draw_genes(request: _Request) -> Figure:
    return draw_gene_figure(request.survey().genes, request.options.field or "v_call")


def _draw_logos(request: _Request) -> Figure:
    attributions = _attribute_top_sequences(request, _N_TOP).attributions
    group_by = request.runs.group_by
    return draw_logos_figure(
        find_motifs(request.model, request.dataset, attributions, max_motifs=_N_LOGOS, group_by=group_by)
    )


def _draw_kernels(request: _Request) -> Figure:
    request.check_alone("each has kernels of its own; give one")
    explained = _attribute_top_sequences(request, _N_TOP)
    direction = explained.direction
    kernels = direction.sign * explained.attributions.kernels
    colour_index = index_classes(request.model.tasks)[direction.target][direction.label]
    return draw_kernels_figure(kernels, output=direction.name, colour_index=colour_index)


def _draw_sequences(request: _Request) -> Figure:
    explained = _attribute_top_sequences(request, _N_SHOWN)
    residues = explained.direction.sign * explained.attributions.residues
    junctions = explained.top.table["junction_aa"].tolist()
    return draw_sequence_figure(junctions, residues, output=explained.direction.name)


@dataclass(frozen=True)
class _ExplainedSequences:
    """The sequences that contribute most to a direction by their residues, and their attributions."""

    direction: Direction
    top: TopSequences
    attributions: Attributions


def _attribute_top_sequences(request: _Request, n: int) -> _ExplainedSequences:
    """Return the n sequences that contribute most to the direction that was asked for."""
    target = None if request.options.target is None else request.task.name
    direction = find_direction(request.model.tasks, request.options.class_name, target=target)
    survey = request.survey(n)
    top = survey.by_residues[direction.name]
    if not len(top):
        raise InputError(f"{request.cohort}: no sequence contributes to {direction.name!r}, so there is none to draw")
    background = survey.residue_frequencies
    attributions = attribute(request.model, request.dataset, top.index, output=direction.output, background=background)
    return _ExplainedSequences(direction, top, attributions)


def _draw_network(request: _Request) -> Figure:
    request.check_alone("each has a network of its own; give one")
    (run,) = request.runs.runs
    return draw_network_figure(run.settings.config.network, run.tasks, run.model.branch_features)


def _draw_cohort(request: _Request) -> Figure:
    request.check_alone("one cohort is drawn at a time; give one container")
    return draw_cohort_figure(*compute_cohort_numbers(open_dataset(request.path), request.target))


def _draw_curves(request: _Request) -> Figure:
    request.check_alone("curves are of one folder of a benchmark or of a cross-validation; give one")
    return draw_folder_curves(request.path, request.target)


@dataclass(frozen=True)
class _FigureKind:
    """The function that draws a figure, whether it takes the path of a cohort, and the options that it has."""

    draw: Callable[[_Request], Figure]
    cohort: Literal["needed", "optional", "unused"]
    options: tuple[str, ...] = ()


_KINDS = {
    "roc": _FigureKind(_draw_roc, "optional", ("target",)),
    "precision-recall": _FigureKind(_draw_precision_recall, "optional", ("target",)),
    "calibration": _FigureKind(_draw_calibration, "optional", ("target",)),
    "regression": _FigureKind(_draw_regression, "optional", ("target",)),
    "history": _FigureKind(_draw_history, "unused"),
    "metastable": _FigureKind(_draw_metastable, "needed", ("target", "repertoire")),
    "attention": _FigureKind(_draw_attention, "needed", ("target", "repertoire")),
    "genes": _FigureKind(_draw_genes, "needed", ("repertoire", "field")),
    "logos": _FigureKind(_draw_logos, "needed", ("target", "repertoire", "class_name")),
    "kernels": _FigureKind(_draw_kernels, "needed", ("target", "repertoire", "class_name")),
    "sequences": _FigureKind(_draw_sequences, "needed", ("target", "repertoire", "class_name")),
    "curves": _FigureKind(_draw_curves, "unused", ("target",)),
    "network": _FigureKind(_draw_network, "unused"),
    "cohort": _FigureKind(_draw_cohort, "unused", ("target",)),
}

KINDS = tuple(_KINDS)
"""Names of the figures."""


def make_figure(
    kind: str,
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    cohort: str | os.PathLike[str] | None = None,
    options: FigureOptions | None = None,
    *,
    device: str = "auto",
) -> Figure:
    """Return a figure of a run, an ensemble of runs, a cross-validation, a benchmark, or a cohort.

    Parameters
    ----------
    kind
        Name of the figure, one of `KINDS`. `cohort` shows a container, `curves` a benchmark or a
        cross-validation, and all others show runs.
    source
        Path of the folder, paths of several runs that predict together, or path of the container.
    cohort
        Path of the container. `history`, `network`, `curves` and `cohort` do not take it. `roc`, `precision-recall`,
        `calibration` and `regression` predict it if it is given; otherwise they read the predictions of the run. All
        others need it.
    options
        Options of the figure; None: the defaults.
    device
        Name of the device, see `load_run`.

    Raises
    ------
    InputError
        If there is no such kind, if the cohort is missing or not needed, if an option does not belong to this kind, or
        if the folder or the cohort lacks the data.
    """
    if kind not in _KINDS:
        raise InputError(f"no figure {kind!r}; one of {', '.join(KINDS)}")
    figure_kind = _KINDS[kind]
    paths = tuple(Path(path) for path in ([source] if isinstance(source, str | os.PathLike) else source))
    if figure_kind.cohort == "needed" and cohort is None:
        raise InputError(f"{kind} needs the cohort: deeprc plot {kind} {shlex.join(map(str, paths))} COHORT")
    if figure_kind.cohort == "unused" and cohort is not None:
        raise InputError(f"{kind} needs no cohort, found {os.fspath(cohort)}")
    options = options or FigureOptions()
    unused = [name for name, value in vars(options).items() if value is not None and name not in figure_kind.options]
    if unused:
        raise InputError(f"{kind} has no `{unused[0]}`")
    return figure_kind.draw(_Request(kind, paths, cohort, options, device))


def find_drawn_classes(model: Model, dataset: RepertoireDataset, task: Task) -> tuple[dict[str, str], dict[str, int]]:
    """Return the class of each repertoire, and the index of each class (`choose_drawn_classes`, `index_drawn_classes`).

    Raises
    ------
    InputError
        If no repertoire has a label.
    """
    labels = model.encode_labels(dataset)[:, model.tasks.index(task)]
    if np.isnan(labels).all():
        raise InputError(f"{dataset.container.path}: no repertoire has a label for {task.name}")
    class_of = choose_drawn_classes(task, dataset.repertoire_ids.tolist(), labels)
    return class_of, index_drawn_classes(model.tasks, task, labels)
