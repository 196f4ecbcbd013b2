"""Reliability curves of a benchmark."""

import numpy as np
import pandas as pd
import pytest

from deeprc.errors import InputError
from deeprc.evaluation.comparison import MethodInfo, compare_probabilities
from deeprc.evaluation.reliability import compute_calibration_bins
from deeprc.evaluation.reliability_figure import draw_reliability_figure, make_reliability_table
from deeprc.evaluation.scoring import MulticlassScoring, RegressionScoring

METHODS = [
    MethodInfo("sure", "Sure"),
    MethodInfo("right", "Right"),
    MethodInfo("none", "None"),
    MethodInfo("v", "V", "control"),
]


def two_classes() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    truth = rng.normal(0, 2, 60)
    label = (rng.random(60) < 1 / (1 + np.exp(-truth))).astype(int)
    place = {"fold": np.arange(60) % 3, "repertoire_id": [f"r{i}" for i in range(60)], "label": label, "score": truth}
    factors = {"sure": 4.0, "right": 1.0, "v": 0.1}
    parts = [
        pd.DataFrame({"method": name, **place, "probability": 1 / (1 + np.exp(-factor * truth))})
        for name, factor in factors.items()
    ]
    return pd.concat(parts, ignore_index=True)


def test_points_are_those_of_all_folds_together() -> None:
    table = two_classes()
    own = table[table["method"] == "right"]
    expected = compute_calibration_bins(own["label"].to_numpy(float), own["probability"].to_numpy())
    found = make_reliability_table(table, METHODS)
    assert set(found["method"]) == {"sure", "right", "v"}
    points = found[found["method"] == "right"].drop(columns="method")
    np.testing.assert_allclose(points.to_numpy(float), expected.to_numpy(float))


def test_a_panel_for_each_method_the_lowest_log_loss_first() -> None:
    table = two_classes()
    judged = compare_probabilities(table, METHODS).set_index("method")
    assert judged["log_loss"].is_monotonic_increasing
    assert judged.index[0] == "right"
    panels = [axis for axis in draw_reliability_figure(table, METHODS).axes if axis.get_visible()]
    label = {each.name: each.label for each in METHODS}
    titles = [f"{label[n]}\ncalibration error {judged.loc[n, 'calibration_error']:.3f}" for n in judged.index]
    assert [axis.get_title() for axis in panels] == titles
    line = panels[0].lines[1]
    points = make_reliability_table(table, METHODS).query("method == 'right'")
    np.testing.assert_allclose(line.get_xydata(), points[["probability", "share"]])


def test_several_classes_are_judged_together() -> None:
    scoring = MulticlassScoring(("a", "b"))
    table = pd.DataFrame({"method": "right", "fold": 0, "repertoire_id": list("wxyz"), "label": ["a", "b", "b", "a"]})
    for name, p in (("a", [0.9, 0.2, 0.4, 0.7]), ("b", [0.1, 0.8, 0.6, 0.3])):
        table[f"score={name}"] = table[f"probability={name}"] = p
    expected = compute_calibration_bins(
        np.array([1.0, 0, 0, 1, 0, 1, 1, 0]), np.array([0.9, 0.2, 0.4, 0.7, 0.1, 0.8, 0.6, 0.3])
    )
    found = make_reliability_table(table, METHODS, scoring)
    np.testing.assert_allclose(found.drop(columns="method").to_numpy(float), expected.to_numpy(float))


def test_numbers_have_no_curve() -> None:
    table = pd.DataFrame({"method": "right", "fold": 0, "repertoire_id": ["w"], "label": [1.0], "prediction": [2.0]})
    assert make_reliability_table(table, METHODS, RegressionScoring()).empty
    with pytest.raises(InputError, match="no method predicts classes"):
        draw_reliability_figure(table, METHODS, RegressionScoring())
