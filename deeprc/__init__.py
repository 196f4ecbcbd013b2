"""DeepRC: immune repertoire classification with modern Hopfield networks.

`deeprc.check`, `deeprc.preprocess`, `deeprc.clones`, `deeprc.cv`, `deeprc.train`, `deeprc.evaluate`, `deeprc.report`
and `deeprc.benchmark` do the same as the commands of these names. `deeprc.ReadingOptions` has the options for reading
files (`check`, `preprocess`), `deeprc.SplitOptions` those for splitting a cohort (`train`), and
`deeprc.BenchmarkOptions` those of `benchmark`. `deeprc.open` opens a container, `deeprc.from_frame` and
`deeprc.from_anndata` make a dataset from tables in memory, and `deeprc.load` opens a run. `deeprc.DeepRCClassifier` is
an estimator for scikit-learn.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deeprc.associations import associate_clones as clones
    from deeprc.benchmarking.harness import benchmark
    from deeprc.benchmarking.options import BenchmarkOptions
    from deeprc.checks import check_cohort as check
    from deeprc.config import load_config
    from deeprc.datasets.cells import from_anndata
    from deeprc.datasets.dataset import open_dataset as open  # noqa: A004 (the documented name)
    from deeprc.datasets.in_memory import from_frame
    from deeprc.datasets.options import ReadingOptions
    from deeprc.datasets.preprocessing import preprocess
    from deeprc.evaluation.splits import SplitOptions
    from deeprc.interpretation.attention import attention_table
    from deeprc.interpretation.cells import annotate_cells
    from deeprc.interpretation.report import Report
    from deeprc.interpretation.report import write_any_report as report
    from deeprc.runs.composition_table import make_composition_table as composition_table
    from deeprc.runs.cross_validation import cross_validate as cv
    from deeprc.runs.ensemble import evaluate_runs as evaluate
    from deeprc.runs.ensemble import load_ensemble
    from deeprc.runs.experiment import train_run as train
    from deeprc.runs.pack import pack_run as pack
    from deeprc.runs.run import load_run as load
    from deeprc.specificity import annotate_sequences as annotate
    from deeprc.training.estimator import DeepRCClassifier

    __version__: str

__all__ = [
    "BenchmarkOptions",
    "DeepRCClassifier",
    "ReadingOptions",
    "Report",
    "SplitOptions",
    "__version__",
    "annotate",
    "annotate_cells",
    "attention_table",
    "benchmark",
    "check",
    "clones",
    "composition_table",
    "cv",
    "evaluate",
    "from_anndata",
    "from_frame",
    "load",
    "load_config",
    "load_ensemble",
    "open",
    "pack",
    "preprocess",
    "report",
    "train",
]

# Module and attribute of each public name. They are imported on first use, so that `import deeprc` is fast.
_WHERE = {
    "BenchmarkOptions": ("deeprc.benchmarking.options", "BenchmarkOptions"),
    "DeepRCClassifier": ("deeprc.training.estimator", "DeepRCClassifier"),
    "ReadingOptions": ("deeprc.datasets.options", "ReadingOptions"),
    "Report": ("deeprc.interpretation.report", "Report"),
    "SplitOptions": ("deeprc.evaluation.splits", "SplitOptions"),
    "annotate": ("deeprc.specificity", "annotate_sequences"),
    "annotate_cells": ("deeprc.interpretation.cells", "annotate_cells"),
    "attention_table": ("deeprc.interpretation.attention", "attention_table"),
    "benchmark": ("deeprc.benchmarking.harness", "benchmark"),
    "check": ("deeprc.checks", "check_cohort"),
    "clones": ("deeprc.associations", "associate_clones"),
    "composition_table": ("deeprc.runs.composition_table", "make_composition_table"),
    "cv": ("deeprc.runs.cross_validation", "cross_validate"),
    "evaluate": ("deeprc.runs.ensemble", "evaluate_runs"),
    "from_anndata": ("deeprc.datasets.cells", "from_anndata"),
    "from_frame": ("deeprc.datasets.in_memory", "from_frame"),
    "load": ("deeprc.runs.run", "load_run"),
    "load_config": ("deeprc.config", "load_config"),
    "load_ensemble": ("deeprc.runs.ensemble", "load_ensemble"),
    "open": ("deeprc.datasets.dataset", "open_dataset"),
    "pack": ("deeprc.runs.pack", "pack_run"),
    "preprocess": ("deeprc.datasets.preprocessing", "preprocess"),
    "report": ("deeprc.interpretation.report", "write_any_report"),
    "train": ("deeprc.runs.experiment", "train_run"),
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("deeprc.versions").package_version("deeprc")
    if name not in _WHERE:
        raise AttributeError(f"module 'deeprc' has no attribute {name!r}")
    module, attribute = _WHERE[name]
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return __all__
