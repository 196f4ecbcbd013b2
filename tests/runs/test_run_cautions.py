"""Warnings about the performance of a run: few repertoires, one class, and control methods."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deeprc.evaluation.caution import Caution, write_cautions
from deeprc.runs.control_comparison import ControlComparison
from deeprc.runs.controls import _find_problem
from deeprc.runs.cross_cautions import find_cautions_of_runs
from deeprc.runs.performance import Contrast, Performance
from deeprc.runs.run_cautions import find_control_cautions, find_one_class_cautions, find_run_cautions

FEW = np.tile([0.0, 1.0], 3)


def make_contrast(label: Sequence[float], score: Sequence[float]) -> Contrast:
    values = np.array(label, float), np.array(score, float)
    return Contrast("severe", "severe", "yes", "no", 0, *values, values[1])


def make_performance(
    splits: Sequence[str], label: Sequence[float], score: Sequence[float], *, is_packed: bool = False
) -> Performance:
    contrast = make_contrast(label, score)
    ids = np.array([f"r{i}" for i in range(len(splits))], object)
    held_out = "test" if "test" in splits else "new"
    labels = contrast.label[:, None]
    parts = np.array(splits, object)
    return Performance(ids, parts, labels, {}, pd.DataFrame(), [contrast], [], held_out, is_packed=is_packed)


def find_cautions(performance: Performance) -> list[Caution]:
    return find_run_cautions(performance, [], metadata=pd.DataFrame({"x": np.zeros(len(performance.ids))}))


def test_a_high_auc_of_few_repertoires_is_not_evidence() -> None:
    (chance, *_) = find_cautions(make_performance(["test"] * 6, FEW.tolist(), [0.1, 0.9, 0.2, 0.8, 0.85, 0.7]))
    assert chance.name == "chance"
    low = chance.details["low"]
    assert chance.text == (
        f"The AUC of the network is 0.778, but with so few test repertoires it could be as low as {low:.3f} (95% "
        f"interval from {low:.3f} to {chance.details['high']:.3f}). So it is not evidence that the network is better "
        "than chance. Do not interpret its sequences and motifs."
    )


def test_an_auc_below_chance_is_told_in_other_words() -> None:
    (chance, *_) = find_cautions(make_performance(["test"] * 6, FEW.tolist(), [0.9, 0.1, 0.8, 0.2, 0.1, 0.9]))
    assert chance.text.startswith("The network is not significantly better than chance: its AUC is 0.")


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ([1.0, 1.0], "The test repertoires have only one class, so there is no AUC, and it is"),
        ([1.0, np.nan], "The test repertoires have only one class, so there is no AUC, and it is"),
        ([np.nan, np.nan], "No test repertoire has a label of severe, so it is"),  # they have one of another target
    ],
)
def test_repertoires_without_labels_are_not_of_one_class(label: list[float], text: str) -> None:
    (caution, *_) = find_cautions(make_performance(["test"] * 2, label, [0.1, 0.9]))
    assert caution.text == f"{text} not known how good the network is."


@pytest.mark.parametrize(
    ("part", "effect"),
    [
        ("validation", "they could not show which weights and which cutoff separate the classes best"),
        ("train", "the network could not learn to separate the classes"),
    ],
)
def test_a_part_with_one_class_is_a_warning_of_the_run(part: str, effect: str) -> None:
    other = {"validation": "train", "train": "validation"}[part]
    splits = ["test", "test", part, part, other, other]
    performance = make_performance(splits, [0, 1, 1, 1, 0, 1], [0.1, 0.9, 0.9, 0.9, 0.1, 0.9])
    (caution,) = find_one_class_cautions(performance)
    assert caution.name == "one-class-part"
    name = {"validation": "validation", "train": "training"}[part]
    assert (caution.level, caution.section) == ("warning", "setup")
    assert caution.text == (
        f"The {name} repertoires have only one class of 'severe', so {effect}. Try another `seed` or fewer `folds`."
    )
    complete = make_performance(splits, [0, 1, 0, 1, 0, 1], [0.1, 0.9, 0.1, 0.9, 0.1, 0.9])
    assert list(find_one_class_cautions(complete)) == []


def test_a_new_cohort_with_a_few_training_repertoires_does_not_judge_the_split() -> None:
    splits, label = ["train"] * 2 + ["new"] * 20, [1, 1] + [0, 1] * 10
    found = find_cautions(make_performance(splits, label, [0.9, 0.9] + [0.1, 0.9] * 10))
    assert "one-class-part" not in [each.name for each in found]


def test_a_cross_validation_tells_how_many_runs_have_a_warning(tmp_path: Path) -> None:
    doubtful = Caution("warning", "The evidence is weak.", "branches", "doubtful-branch", {"n": 1})
    one_class = Caution("warning", "The validation repertoires have only one class.", "setup", "one-class-part")
    other = Caution("warning", "Something else.", "setup", "shift")
    for name, cautions in {"a": [one_class, other], "b": [other], "c": [one_class, doubtful]}.items():
        (tmp_path / name).mkdir()
        write_cautions(tmp_path / name, cautions)
    first, second = find_cautions_of_runs([tmp_path / name for name in ("a", "b", "c")])
    assert first.text == "2 of 3 runs: The validation repertoires have only one class."
    assert (first.level, first.name, first.section) == ("warning", "one-class-part", "setup")
    assert second.text == "1 of 3 runs: The evidence is weak."
    assert (second.name, second.section) == ("doubtful-branch", "branches")


def make_controls(*, network: tuple[float, float], control: tuple[float, float], p_value: float) -> ControlComparison:
    """Return controls from the AUC, and the lower limit of its interval, of the network and of a control."""
    rows = [
        {"method": name, "auc_mean": auc, "ci_low": low, "ci_high": 1.0, "difference": auc - network[0], "p_value": p}
        for name, (auc, low), p in (("network", network, np.nan), ("sheet", control, p_value))
    ]
    return ControlComparison(make_contrast(FEW, FEW).quantity, pd.DataFrame(rows), [], columns=["Donor"])


def tell(controls: ControlComparison) -> list[str]:
    return [each.text for each in find_control_cautions([controls], {})]


def test_too_few_repertoires_are_not_taken_for_an_equal_control() -> None:
    controls = make_controls(network=(1.0, 0.6), control=(0.5, 0.1), p_value=0.23)
    expected = (
        "There are too few tested repertoires to tell whether the network is better than a control method that sees "
        "only the sheet column Donor (AUC 0.500 against 1.000, p = 0.23)."
    )
    assert tell(controls) == [expected]


def test_a_network_and_a_control_at_chance_are_both_said_to_be() -> None:
    controls = make_controls(network=(0.6, 0.4), control=(0.5, 0.1), p_value=0.23)
    assert controls.describe("sheet") == (
        "Neither the network nor a control method that sees only the sheet column Donor is significantly better than "
        "chance (AUC 0.600 and 0.500)."
    )


def test_a_control_is_told_if_both_are_better_than_chance() -> None:
    (text,) = tell(make_controls(network=(0.95, 0.8), control=(0.9, 0.7), p_value=0.4))
    assert "is not significantly worse than the network (AUC 0.900 against 0.950, p = 0.40)" in text
    assert "These repertoires do not show that receptor sequences add information, and the motifs may reflect" in text


def test_a_network_at_chance_has_no_warning_about_controls_as_bad_as_it() -> None:
    assert tell(make_controls(network=(0.25, 0.0), control=(0.0, 0.0), p_value=1.0)) == []
    assert tell(make_controls(network=(0.6, 0.4), control=(0.8, 0.7), p_value=0.2)) == []
    (text,) = tell(make_controls(network=(0.6, 0.4), control=(0.9, 0.8), p_value=0.01))
    assert "is significantly better than the network (AUC 0.900 against 0.600" in text


def test_a_packed_model_has_no_control() -> None:
    performance = make_performance(["new"] * 6, FEW.tolist(), FEW.tolist(), is_packed=True)
    none = np.zeros(0, np.int64)
    assert _find_problem(performance.contrasts[0], none, np.arange(6), performance) == (
        "No control method could be compared: control methods need the training repertoires, which a packed model "
        "cannot recognise."
    )
