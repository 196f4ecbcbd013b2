"""The table of the clones that a model stores: `clones.tsv` of a run."""

from __future__ import annotations

from typing import cast

import pandas as pd

from deeprc.outputs import output_names
from deeprc.readings.clones import CloneReading
from deeprc.training.model import TrainedModel

__all__ = ["make_clones_table"]

_COLUMNS = ("junction_aa", "output", "direction", "match", "p_value", "q_value")


def make_clones_table(model: TrainedModel) -> pd.DataFrame:
    """Return the table of the clones that a model stores, see `CloneReading.table`; empty if it has no such reading."""
    readings = model.network.readings
    if readings is None or CloneReading.name not in readings.names:
        return pd.DataFrame(columns=list(_COLUMNS))
    return cast("CloneReading", readings.members[CloneReading.name]).table(output_names(model.tasks))
