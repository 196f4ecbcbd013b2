"""Reports of any source: one or several runs, a model that was fitted in Python, a cross-validation, or a benchmark."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from numpy.typing import ArrayLike

from deeprc.benchmarking.store import POWER, holds_benchmark
from deeprc.datasets.container import is_container
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.documents import read_text
from deeprc.errors import InputError
from deeprc.interpretation.report.benchmark_report import write_benchmark_report
from deeprc.interpretation.report.cv_report import write_cv_report
from deeprc.interpretation.report.run_report import write_report
from deeprc.jobs import Workers, check_scheduler
from deeprc.runs.cross_plan import holds_cross_validation
from deeprc.runs.ensemble import RunEnsemble, load_ensemble
from deeprc.runs.fitted import FittedModel, set_labels
from deeprc.runs.predictor import Predictor
from deeprc.runs.run import Run
from deeprc.training.estimator import DeepRCEstimator

__all__ = ["Report", "write_any_report"]

_COMMAND = "deeprc report RUN CONTAINER -o FILE"

_AnyPath = str | os.PathLike[str]
_HEIGHT = 640  # height of the frame in pixels
_MAX_BYTES = 256 << 20


def write_any_report(
    source: _AnyPath | Sequence[_AnyPath] | Run | RunEnsemble | DeepRCEstimator,
    cohort: _AnyPath | RepertoireDataset | None = None,
    *,
    output: _AnyPath,
    target: str | None = None,
    labels: ArrayLike | None = None,
    top: int = 1000,
    databases: Sequence[_AnyPath] = (),
    host: str | None = "human",
    device: str = "auto",
    scheduler: str | None = None,
) -> Report:
    """Write the report of a model on a cohort, of a cross-validation, or of a benchmark, as one HTML file.

    `deeprc.report` is this function. A notebook shows the returned page.

    Parameters
    ----------
    source
        Path of a run directory, paths of several that predict together, a result of `deeprc.load` or
        `deeprc.load_ensemble`, a fitted `DeepRCClassifier` or `DeepRCRegressor`, or path of the folder of a
        cross-validation or a benchmark.
    cohort
        Only for a model: path of a container, or a dataset, usually that of the training.
    output
        Path of the file; an existing file is replaced only if it is a report.
    target, labels
        Only for a model that was fitted in Python: name of the target, and known labels, one for each repertoire.
        Without labels, the metadata column of this name is used; no control reads this column.
    top
        Number of sequences of the cohort to keep for each class.
    databases, host
        Paths of files of receptors with known antigens, which are searched among these sequences, and host of the
        receptors: `human`, `mouse` or None for all; see `deeprc.specificity.read_database`.
    device
        Name of the device: `auto`, `cpu`, `cuda` ...
    scheduler
        Only for runs from files: address of a Dask scheduler whose workers read the repertoires, on this device; None
        reads them here.

    Raises
    ------
    InputError
        If a folder is none of these, if a cohort is missing or not needed, or as in `write_report`, `write_cv_report`
        and `write_benchmark_report`.
    """
    if not isinstance(source, DeepRCEstimator) and (target is not None or labels is not None):
        raise InputError("`target` and `labels` are only for a model that was fitted in Python: a run knows its own")
    if scheduler is not None:
        check_scheduler(scheduler)
    if isinstance(source, DeepRCEstimator | Run | RunEnsemble):
        predictor, dataset = _prepare_model(source, cohort, target, labels)
    else:
        folders = [Path(path) for path in ([source] if isinstance(source, str | os.PathLike) else source)]
        write_folder_report = _choose_folder_writer(folders, cohort)
        if write_folder_report is not None:
            for name, value in (("database", databases), ("scheduler", scheduler)):
                if value:
                    raise InputError(f"{folders[0]}: `{name}` is only for the report of a run; leave it out")
            write_folder_report(folders[0], output)
            return Report(Path(output))
        predictor, dataset = _load_runs(folders, cohort, device if scheduler is None else "cpu")
    workers = None if scheduler is None else Workers(scheduler=scheduler)
    write_report(predictor, dataset, output, top=top, databases=databases, host=host, workers=workers, device=device)
    return Report(Path(output))


def _prepare_model(
    source: Run | RunEnsemble | DeepRCEstimator,
    cohort: _AnyPath | RepertoireDataset | None,
    target: str | None,
    labels: ArrayLike | None,
) -> tuple[Predictor, RepertoireDataset]:
    """Return a model in memory with what is known of its training, and the cohort with the labels of the user."""
    if cohort is None:
        raise InputError("expected a cohort to report on, found None")
    dataset = _open_cohort(cohort)
    predictor = FittedModel.of(source, target) if isinstance(source, DeepRCEstimator) else source
    if labels is not None:
        dataset = set_labels(dataset, target or "y", labels)
    return predictor, dataset


def _load_runs(
    folders: Sequence[Path], cohort: _AnyPath | RepertoireDataset | None, device: str
) -> tuple[Predictor, RepertoireDataset]:
    """Return the runs of some folders, which predict together, and the cohort."""
    if cohort is None:
        _check_are_runs(folders)
        raise InputError(f"{folders[0]}: is a run, whose report needs a CONTAINER: {_COMMAND}")
    return load_ensemble(folders, device=device), _open_cohort(cohort)


def _open_cohort(cohort: _AnyPath | RepertoireDataset) -> RepertoireDataset:
    return cohort if isinstance(cohort, RepertoireDataset) else open_dataset(cohort)


def _choose_folder_writer(
    folders: Sequence[Path], cohort: _AnyPath | RepertoireDataset | None
) -> Callable[[_AnyPath, _AnyPath], None] | None:
    """Return the function that writes the report of a benchmark or a cross-validation; None if no folder holds one.

    Raises
    ------
    InputError
        If a folder holds one, but there are other folders or a cohort.
    """
    writers = {"benchmark": write_benchmark_report, "cross-validation": write_cv_report}
    for folder in folders:
        if holds_benchmark(folder):
            kind = "benchmark"
        elif holds_cross_validation(folder):
            kind = "cross-validation"
        else:
            continue
        if len(folders) > 1:
            raise InputError(f"{folder}: the report of a {kind} takes one folder, found {len(folders)}")
        if cohort is not None:
            path = cohort.container.path if isinstance(cohort, RepertoireDataset) else cohort
            raise InputError(f"{folder}: the report of a {kind} takes no CONTAINER, found {str(path)!r}")
        return writers[kind]
    return None


def _check_are_runs(folders: Sequence[Path]) -> None:
    """Raise InputError if a folder is not a run."""
    for folder in folders:
        if any((folder / name).is_file() for name in ("power.tsv", POWER.file_name)):
            raise InputError(f"{folder}: holds a {POWER.words}, which has no report; its figure is power.png")
        if folder.is_file() and is_container(folder):
            raise InputError(f"{folder}: is a container; expected a run before it: {_COMMAND}")
        if not folder.is_file() and not (folder / "config.yaml").is_file():
            raise InputError(
                f"{folder}: is neither a run (no config.yaml), nor a cross-validation (no cv.yaml), nor a "
                "benchmark (no benchmark.yaml)"
            )


@dataclass(frozen=True)
class Report:
    """An HTML page that `deeprc.report` has written.

    Attributes
    ----------
    path
        Path of the file.
    """

    path: Path

    def _repr_html_(self) -> str:
        """Return the page in a frame, in which only its own script runs."""
        page = escape(read_text(self.path, limit=_MAX_BYTES))
        style = "width:100%;border:1px solid currentColor"
        return (
            f'<p>{escape(str(self.path))}</p><iframe title="{escape(self.path.name)}" srcdoc="{page}" '
            f'sandbox="allow-scripts allow-downloads allow-popups" height="{_HEIGHT}" style="{style}"></iframe>'
        )
