"""Predictions as a table.

Letters: B repertoires, T outputs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from deeprc.outputs import activate
from deeprc.tasks import Task

__all__ = ["call_classes", "predictions_table"]


def predictions_table(
    repertoire_ids: NDArray[np.object_],
    splits: Sequence[str],
    outputs: Tensor,
    labels: NDArray[np.float64],
    tasks: Sequence[Task],
) -> pd.DataFrame:
    """Return one row per repertoire and target, in the repertoires' order.

    A multiclass target has one row per class, named `target=class`, with label 1 for the true class.

    Parameters
    ----------
    repertoire_ids, splits
        The ids and parts of the split of the repertoires, (B,).
    outputs
        Before their activation, (B, T).
    labels
        From `deeprc.tasks.labels`, (B, number of tasks).
    tasks
        In the order of both.

    Returns
    -------
    The columns repertoire_id, split, target, label, probability, positive_class (whose probability it is, and what
    label 1 means) and called_class (see `call_classes`); and prediction (in the target's units, probability empty)
    where there is a regression target. A missing label is empty.
    """
    parts = []
    for i, (task, predicted) in enumerate(zip(tasks, activate(outputs, tasks), strict=True)):
        common = {"repertoire_id": repertoire_ids, "split": splits, "order": np.arange(len(splits))}
        label = pd.array(labels[:, i], dtype="Float64")
        if task.kind == "regression":
            parts.append(pd.DataFrame({**common, "target": task.name, "label": label, "prediction": predicted}))
        elif task.kind == "binary":
            whole = label.astype("Int64")
            binary = {"target": task.name, "label": whole, "probability": predicted, "positive_class": task.positive}
            parts.append(pd.DataFrame({**common, **binary, "called_class": call_classes(predicted, task)}))
        else:
            for c, name in enumerate(task.classes):
                member = pd.array(np.where(np.isnan(labels[:, i]), np.nan, labels[:, i] == c), dtype="Float64")
                rows = {**common, "target": f"{task.name}={name}", "label": member.astype("Int64")}
                rows["called_class"] = call_classes(predicted, task)
                parts.append(pd.DataFrame({**rows, "probability": predicted[:, c], "positive_class": name}))
    table = pd.concat([part.astype({"label": object}) for part in parts], ignore_index=True)
    table = table.sort_values("order", kind="stable").drop(columns="order").reset_index(drop=True)
    columns = ["repertoire_id", "split", "target", "label", "probability", "positive_class", "called_class"]
    return table.reindex(columns=[*columns, *(["prediction"] if "prediction" in table else [])])


def call_classes(probability: NDArray[np.float64], task: Task) -> NDArray[np.object_]:
    """Return the name of the class that is called for each repertoire, (B,).

    Of two classes, the positive one is called where its probability, (B,), is at least the cutoff that was chosen by
    the validation repertoires (see `deeprc.calibration.choose_cutoff`), otherwise the negative one. Of several
    classes, with probabilities (B, C), the likeliest is called.
    """
    if task.kind == "binary":
        index = (probability >= task.calibration.min_probability).astype(np.int64)
    else:
        index = probability.argmax(axis=1)
    return np.array(task.class_names, dtype=object)[index]
