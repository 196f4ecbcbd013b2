"""The ROC and precision-recall curves of a folder with test folds: a benchmark, or a cross-validation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deeprc.benchmarking.store import holds_benchmark, read_header
from deeprc.errors import InputError
from deeprc.evaluation.comparison import MethodInfo
from deeprc.evaluation.curves import draw_curves_figure
from deeprc.evaluation.scoring import choose_scoring
from deeprc.evaluation.stored_tables import read_method_predictions
from deeprc.interpretation.report.cv_curves import draw_cv_curves
from deeprc.runs.cross_plan import holds_cross_validation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_folder_curves"]


def draw_folder_curves(folder: Path, target: str | None = None) -> Figure:
    """Draw the curves of the methods of a benchmark, or of the network of a cross-validation.

    Parameters
    ----------
    folder
        Path of the folder of `deeprc benchmark` or `deeprc cv`.
    target
        Name of the target of a cross-validation; it is required if there are several. A benchmark has one.

    Raises
    ------
    InputError
        If the folder has neither, or is damaged, or if there is no such target or nothing to draw.
    """
    if holds_cross_validation(folder):
        return draw_cv_curves(folder, target)
    if not holds_benchmark(folder):
        raise InputError(
            f"{folder}: holds no benchmark (no benchmark.yaml) and no cross-validation (no cv.yaml); expected a "
            "folder of `deeprc benchmark` or `deeprc cv`"
        )
    if target is not None:
        raise InputError(f"{folder}: a benchmark has one target, found `target={target}`")
    return _draw_benchmark_curves(folder)


def _draw_benchmark_curves(folder: Path) -> Figure:
    """Draw the curves of all methods of a benchmark that have ended."""
    header = read_header(folder)
    methods = header["methods"]
    scoring = choose_scoring(str(header.get("kind", "binary")), header.get("classes", ()))
    predictions = read_method_predictions(folder / "predictions.tsv", scoring)
    done = set(predictions["method"])
    known = [
        MethodInfo(name, settings["label"], settings["kind"]) for name, settings in methods.items() if name in done
    ]
    return draw_curves_figure(predictions, known, scoring)
