"""The clones that a model remembers, as a table: `clones.tsv` of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

import pandas as pd

from deeprc.outputs import output_names
from deeprc.readings.clones import CloneReading
from deeprc.training.model import TrainedModel

__all__ = ["CLONE_COLUMNS", "clones_table"]

CLONE_COLUMNS = (
    *("junction_aa", "v_call", "j_call", "output", "direction", "match"),
    *("carriers_positive", "carriers_negative", "p_value", "q_value"),
)
"""The columns of the table."""


class _Memory(Protocol):
    def table(self, names: Sequence[str]) -> pd.DataFrame: ...


def clones_table(model: TrainedModel) -> pd.DataFrame:
    """Return the clones that a model remembers, the most telling first; none where it has no such reading.

    Columns: junction_aa, v_call and j_call; output, the name of the output that the clone speaks about; direction, up
    or down; match, what of a sequence must be equal; carriers_positive and carriers_negative, how many repertoires of
    each class carry it, among those that the model learned from; p_value, and q_value, the false discovery rate.
    """
    readings = model.network.readings
    if readings is None or CloneReading.name not in readings.names:
        return pd.DataFrame(columns=list(CLONE_COLUMNS))
    memory = cast("_Memory", readings.members[CloneReading.name])
    return memory.table(output_names(model.tasks))[list(CLONE_COLUMNS)]
