"""Warnings about the split of a run: training or validation repertoires of one class."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from deeprc.evaluation.caution import Caution
from deeprc.runs.performance import PART_NAMES, Performance

__all__ = ["ONE_CLASS_PART", "find_one_class_cautions"]

ONE_CLASS_PART = "one-class-part"
"""Name of the warning about training or validation repertoires of one class."""


def find_one_class_cautions(performance: Performance) -> Iterator[Caution]:
    """Yield a warning for each target whose training or validation repertoires have one class only.

    Parameters
    ----------
    performance
        Performance on all repertoires of the run's split. If a cohort has only some of them, the classes that they have
        do not show what the run was trained on.
    """
    effects = {
        "train": "the network could not learn to separate the classes",
        "validation": "they could not show which weights and which cutoff separate the classes best",
    }
    for target, contrasts in performance.iterate_targets():
        for part, effect in effects.items():
            labels = [contrast.label[performance.is_in(part) & ~np.isnan(contrast.label)] for contrast in contrasts]
            n_present = sum(bool(label.any()) for label in labels)
            if len(contrasts) == 1:
                n_present += bool((labels[0] == 0).any())
            if n_present == 1:
                text = (
                    f"The {PART_NAMES[part]} repertoires have only one class of {target!r}, so {effect}. Try another "
                    "`seed` or fewer `folds`."
                )
                yield Caution("warning", text, "setup", ONE_CLASS_PART, {"target": target, "part": part})
