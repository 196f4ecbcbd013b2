"""DeepRC: immune repertoire classification with modern Hopfield networks.

`deeprc.open` a container, `deeprc.load` a run, train with `deeprc.DeepRCClassifier` or `deeprc.train`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deeprc.datasets.dataset import open_dataset as open  # noqa: A004 (the documented name)
    from deeprc.evaluation.ensemble import load_ensemble
    from deeprc.evaluation.experiment import train_run as train
    from deeprc.evaluation.run import load_run as load
    from deeprc.interpretation.attention import attention_table
    from deeprc.training.estimator import DeepRCClassifier

__all__ = ["DeepRCClassifier", "attention_table", "load", "load_ensemble", "open", "train"]

# Imported on first use, so that `import deeprc` and the commands that need no network stay quick.
_WHERE = {
    "DeepRCClassifier": ("deeprc.training.estimator", "DeepRCClassifier"),
    "attention_table": ("deeprc.interpretation.attention", "attention_table"),
    "load": ("deeprc.evaluation.run", "load_run"),
    "load_ensemble": ("deeprc.evaluation.ensemble", "load_ensemble"),
    "open": ("deeprc.datasets.dataset", "open_dataset"),
    "train": ("deeprc.evaluation.experiment", "train_run"),
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'deeprc' has no attribute {name!r}")
    module, attribute = _WHERE[name]
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return __all__
