"""Columns and measurements that predict a label, from tables without sequences."""

from __future__ import annotations

import numpy as np
import pandas as pd

from deeprc.checks.features import Feature
from deeprc.checks.shortcuts import Shortcut, find_shortcuts
from deeprc.task_labels import encode_labels
from deeprc.tasks import parse_tasks


def find(sheet: pd.DataFrame, targets: list[str], *features: Feature) -> list[Shortcut]:
    tasks = parse_tasks(targets, sheet)
    found, _ = find_shortcuts(tasks, encode_labels(tasks, sheet), [None] * len(sheet), features)
    return found


def test_a_column_is_tested_for_each_target_of_another_column() -> None:
    disease = np.repeat(["flu", "covid", "none"], 40)
    batch = np.where(disease == "covid", "b1", "b2").astype(object)
    feature = Feature("column 'batch'", "label-from-column", batch, "batch")
    found = find(pd.DataFrame({"disease": disease}), ["disease=flu", "disease=covid"], feature)
    assert [each.target for each in found] == ["disease=flu", "disease=covid"]
    assert found[1].verdict == "warning"


def test_two_targets_are_tested_in_one_direction() -> None:
    first, second = np.repeat(["a", "b"], 30), np.repeat(["x", "y"], 30)
    sheet = pd.DataFrame({"first": first, "second": second})
    features = [Feature(f"column {name!r}", "label-from-column", sheet[name].to_numpy(object), name) for name in sheet]
    found = find(sheet, ["first=a", "second=x"], *features)
    assert len({frozenset((each.target.split("=")[0], each.column)) for each in found}) == len(found)


def test_a_small_class_does_not_hide_a_large_one() -> None:
    """The small class has the highest AUC by chance; the other two certainly differ in depth."""
    rng = np.random.default_rng(0)
    kind = np.repeat(["rare", "A", "B"], [8, 100, 100])
    depth = rng.normal(size=208) + np.repeat([1.0, 0.75, 0.0], [8, 100, 100])
    (found,) = find(pd.DataFrame({"kind": kind}), ["kind:multiclass"], Feature("depth", "label-from-size", depth))
    assert found.label in ("'A' against the other classes", "'B' against the other classes")
    assert found.verdict in ("note", "warning")


def test_a_class_without_repertoires_does_not_count() -> None:
    """The repertoires of a class may all be empty, or their files missing: a column by chance is then no shortcut."""
    rng = np.random.default_rng(0)
    sheet = pd.DataFrame({"kind": ["a"] * 20 + ["b"] * 20 + ["c"] * 20 + ["lost"] * 2})
    batch = np.array(rng.choice(["x", "y"], 60), object)
    tasks = parse_tasks(["kind:multiclass"], sheet)
    labels = encode_labels(tasks, sheet)[:60]
    features = [Feature("column 'batch'", "label-from-column", batch, "batch")]
    ((found,), _), ((without, *_), _) = (
        find_shortcuts(tasks, labels, [None] * 60, features),
        find_shortcuts(parse_tasks(["kind:multiclass"], sheet[:60]), labels, [None] * 60, features),
    )
    assert found == without
    assert found.verdict == ""
    assert 0 < found.value < 0.5


def test_numbers_of_which_most_are_the_largest_have_two_halves() -> None:
    rng = np.random.default_rng(0)
    score = np.r_[np.full(70, 10.0), rng.uniform(0, 9, 50)]
    depth = score + rng.normal(size=120)
    (found,) = find(pd.DataFrame({"score": score}), ["score:regression"], Feature("depth", "label-from-size", depth))
    assert found.label == "'upper half' against 'lower half'"
    assert found.value > 0.95


def test_a_part_of_the_name_that_is_the_label_is_not_tested_but_named() -> None:
    sheet = pd.DataFrame({"cell": np.repeat(["CD4", "CD8"], 20)})
    part = Feature("part 2 of the file name", "label-from-name", np.repeat(["cd4", "cd8"], 20).astype(object))
    folder = Feature("folder", "label-from-name", np.repeat(["CD-4", "CD-8"], 20).astype(object))
    other = Feature("part 1 of the file name", "label-from-name", np.tile(["x", "y"], 20).astype(object))
    tasks = parse_tasks(["cell"], sheet)
    shortcuts, (note,) = find_shortcuts(tasks, encode_labels(tasks, sheet), [None] * 40, [part, folder, other])
    assert [each.property for each in shortcuts] == ["part 1 of the file name"]
    assert (note.severity, note.code, note.target) == ("note", "label-from-name", "cell")
    assert note.message == ("target 'cell': part 2 of the file name and folder equal the label, and were not tested")
    _, (note,) = find_shortcuts(tasks, encode_labels(tasks, sheet), [None] * 40, [part, other])
    assert note.message == "target 'cell': part 2 of the file name equals the label, and was not tested"
