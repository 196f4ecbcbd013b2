"""Tables of predictions.

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

__all__ = ["call_classes", "make_predictions_table"]


def make_predictions_table(
    repertoire_ids: NDArray[np.object_],
    parts: Sequence[str],
    outputs: Tensor,
    labels: NDArray[np.float64],
    tasks: Sequence[Task],
) -> pd.DataFrame:
    """Return a table with one row per repertoire and target, in the order of the repertoires.

    A multiclass target has one row per class, named `target=class`, with label 1 for the true class.

    Parameters
    ----------
    repertoire_ids, parts
        Ids of the repertoires and their parts of the split, (B,) each.
    outputs
        Outputs before their activation, (B, T).
    labels
        Labels from `deeprc.task_labels.encode_labels`, (B, number of tasks).
    tasks
        Tasks in the order of outputs and labels.

    Returns
    -------
    The columns repertoire_id, split, target, label, probability, positive_class (the class that has this probability
    and the label 1) and called_class (see `call_classes`). If there is a regression target, also prediction, in the
    units of the target; probability is then empty. A missing label is empty.
    """
    tables = []
    for i, (task, predicted) in enumerate(zip(tasks, activate(outputs, tasks), strict=True)):
        common = {"repertoire_id": repertoire_ids, "split": parts, "order": np.arange(len(parts))}
        label = pd.array(labels[:, i], dtype="Float64")
        if task.kind == "regression":
            tables.append(pd.DataFrame({**common, "target": task.name, "label": label, "prediction": predicted}))
        elif task.kind == "binary":
            integer_label = label.astype("Int64")
            binary = {
                "target": task.name,
                "label": integer_label,
                "probability": predicted,
                "positive_class": task.positive,
            }
            tables.append(pd.DataFrame({**common, **binary, "called_class": call_classes(predicted, task)}))
        else:
            for c, (name, row_target) in enumerate(zip(task.classes, task.predicted_names, strict=True)):
                is_of_class = pd.array(np.where(np.isnan(labels[:, i]), np.nan, labels[:, i] == c), dtype="Float64")
                rows = {**common, "target": row_target, "label": is_of_class.astype("Int64")}
                rows["called_class"] = call_classes(predicted, task)
                tables.append(pd.DataFrame({**rows, "probability": predicted[:, c], "positive_class": name}))
    table = pd.concat([table.astype({"label": object}) for table in tables], ignore_index=True)
    table = table.sort_values("order", kind="stable").drop(columns="order").reset_index(drop=True)
    columns = ["repertoire_id", "split", "target", "label", "probability", "positive_class", "called_class"]
    return table.reindex(columns=[*columns, *(["prediction"] if "prediction" in table else [])])


def call_classes(probability: NDArray[np.float64], task: Task) -> NDArray[np.object_]:
    """Return the name of the class that is called for each repertoire, (B,).

    Of two classes, the positive one is called if its probability, (B,), is at least the cutoff that was chosen on the
    validation repertoires (see `deeprc.calibration.choose_cutoff`), otherwise the negative one. Of several classes,
    with probabilities (B, C), the most probable is called.
    """
    if task.kind == "binary":
        index = (probability >= task.calibration.min_probability).astype(np.int64)
    else:
        index = probability.argmax(axis=1)
    return np.array(task.class_names, dtype=object)[index]
