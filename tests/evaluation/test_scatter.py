"""The figure of predicted against true numbers: which of its panels are labelled."""

import numpy as np
import pandas as pd
import pytest

from deeprc.evaluation.comparison import MethodInfo
from deeprc.evaluation.scatter import draw_scatter_figure

pytest.importorskip("matplotlib")


@pytest.mark.parametrize(("n_methods", "labelled"), [(1, [0]), (4, [0, 1, 2, 3]), (5, [1, 2, 3, 4])])
def test_the_lowest_panel_of_each_column_is_labelled(n_methods: int, labelled: list[int]) -> None:
    rng, label = np.random.default_rng(0), np.arange(12.0)
    methods = [MethodInfo(f"m{i}", f"Method {i}") for i in range(n_methods)]
    ids = [f"r{i}" for i in range(12)]
    parts = [
        pd.DataFrame(
            {
                "method": each.name,
                "fold": 0,
                "repertoire_id": ids,
                "label": label,
                "prediction": label + rng.normal(size=12),
            }
        )
        for each in methods
    ]
    axes = draw_scatter_figure(pd.concat(parts, ignore_index=True), methods).axes
    visible = [axis for axis in axes if axis.get_visible()]
    assert len(visible) == n_methods
    assert [place for place, axis in enumerate(visible) if axis.get_xlabel() == "true"] == labelled
    first_of_row = list(range(0, n_methods, 4))
    assert [place for place, axis in enumerate(visible) if axis.get_ylabel() == "predicted"] == first_of_row
