"""Curves: their corners by hand, the areas under them, and the files of the pictures."""

import importlib.util
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import trapezoid
from sklearn.metrics import average_precision_score, roc_auc_score

from deeprc.errors import InputError
from deeprc.evaluation import curves
from deeprc.evaluation.comparison import MethodInfo, compute_fold_metrics, validate_predictions
from deeprc.evaluation.curves import MEAN, draw_curves, draw_curves_figure, make_curves_table
from deeprc.evaluation.scatter import NoCurveError

needs_matplotlib = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is missing")
A, B = MethodInfo("a", "Method A"), MethodInfo("b", "Method $B$ | _x_")


def one_fold(fold: int, label: list[int], score: list[float], method: str = "a") -> pd.DataFrame:
    ids = [f"{fold}-{i}" for i in range(len(label))]
    return pd.DataFrame(
        {"method": method, "fold": fold, "repertoire_id": ids, "label": label, "score": score, "probability": 0.5}
    )


def random_predictions(methods: tuple[str, ...] = ("a",), folds: int = 4, seed: int = 0) -> pd.DataFrame:
    """Return folds of different sizes; scores are rounded, so that there are ties."""
    rng = np.random.default_rng(seed)
    parts = []
    for fold in range(folds):
        label = rng.permutation(np.arange(15 + 4 * fold) % 3 == 0).astype(int)
        scores = {method: (rng.normal(size=len(label)) + label).round(1) for method in methods}
        parts += [one_fold(fold, list(label), list(score), method) for method, score in scores.items()]
    return pd.concat(parts, ignore_index=True)


def roc_points(predictions: pd.DataFrame) -> pd.DataFrame:
    return curves._compute_points(validate_predictions(predictions), curves.compute_roc_corners)


def pr_points(predictions: pd.DataFrame) -> pd.DataFrame:
    return curves._compute_points(validate_predictions(predictions), curves.compute_precision_recall_corners)


def corners(points: pd.DataFrame, fold: str) -> list[tuple[float, float]]:
    part = points[points["fold"] == fold]
    return list(zip(part["x"].round(6), part["y"].round(6), strict=True))


def area(points: pd.DataFrame, fold: str) -> float:
    part = points[points["fold"] == fold]
    return float(trapezoid(part["y"], part["x"]))


def test_roc_by_hand() -> None:
    """From the highest score down: positive, negative, positive and negative together, negative."""
    points = roc_points(one_fold(0, [1, 0, 1, 0, 0], [5.0, 4.0, 3.0, 3.0, 1.0]))
    third = round(1 / 3, 6), round(2 / 3, 6)
    assert corners(points, "0") == [(0, 0), (0, 0.5), (third[0], 0.5), (third[1], 1), (1, 1)]
    assert corners(points, MEAN) == corners(points, "0")


def test_precision_recall_by_hand() -> None:
    """Recall 1/2 is reached with precision 1, recall 1 with precision 2/4; between them precision is a step."""
    points = pr_points(one_fold(0, [1, 0, 1, 0, 0], [5.0, 4.0, 3.0, 3.0, 1.0]))
    assert corners(points, "0") == [(0, 1), (0.5, 1), (0.5, 0.5), (1, 0.5)]
    assert corners(points, MEAN) == corners(points, "0")


def test_vertical_mean_by_hand() -> None:
    """One fold is perfect; the other goes right to 1/2, up, and right."""
    predictions = pd.concat(
        [one_fold(0, [1, 1, 0, 0], [4.0, 3.0, 2.0, 1.0]), one_fold(1, [0, 1, 1, 0], [4.0, 3.0, 2.0, 1.0])]
    )
    assert corners(roc_points(predictions), MEAN) == [(0, 0), (0, 0.5), (0.5, 0.5), (0.5, 1), (1, 1)]
    second = 1 / 2, 2 / 3  # precision of the other fold at recall 1/2 and 1
    means = [round((1 + value) / 2, 6) for value in second]
    assert corners(pr_points(predictions), MEAN) == [(0, means[0]), (0.5, means[0]), (0.5, means[1]), (1, means[1])]


@pytest.mark.parametrize("seed", range(5))
def test_areas_are_those_of_the_tables(seed: int) -> None:
    predictions = random_predictions(seed=seed)
    roc, precision_recall = roc_points(predictions), pr_points(predictions)
    for fold, part in predictions.groupby("fold"):
        assert area(roc, str(fold)) == pytest.approx(roc_auc_score(part["label"], part["score"]))
        assert area(precision_recall, str(fold)) == pytest.approx(average_precision_score(part["label"], part["score"]))
    means = compute_fold_metrics(predictions).groupby("metric")["value"].mean()
    assert area(roc, MEAN) == pytest.approx(means["auc"], rel=1e-12)
    assert area(precision_recall, MEAN) == pytest.approx(means["average_precision"], rel=1e-12)


def test_curves_are_monotone_and_span_the_axis() -> None:
    predictions = random_predictions()
    for points in (roc_points(predictions), pr_points(predictions)):
        for _, part in points.groupby("fold"):
            assert (np.diff(part["x"]) >= 0).all()
            assert (part["x"].iloc[0], part["x"].iloc[-1]) == (0, 1)
            assert part["y"].between(0, 1).all()
    mean = roc_points(predictions).query("fold == 'mean'")
    assert (np.diff(mean["y"]) >= -1e-12).all()
    assert (mean["y"].iloc[0], mean["y"].iloc[-1]) == (0, 1)


def test_scores_of_folds_are_not_pooled() -> None:
    predictions = random_predictions()
    shifted = predictions.assign(score=predictions["score"] + 100 * predictions["fold"])
    pd.testing.assert_frame_equal(roc_points(predictions), roc_points(shifted))
    pd.testing.assert_frame_equal(pr_points(predictions), pr_points(shifted))


def test_a_fold_of_one_class_and_no_folds_have_no_curve() -> None:
    predictions = pd.concat([random_predictions(folds=2), one_fold(2, [1, 1], [0.0, 1.0])])
    assert set(roc_points(predictions)["fold"]) == {"0", "1", MEAN}
    nothing = roc_points(predictions.iloc[:0])
    assert nothing.empty
    assert list(nothing) == ["fold", "x", "y"]


def test_the_table_has_the_points_of_every_curve() -> None:
    predictions = random_predictions(("a", "b"))
    table = make_curves_table(predictions, [B, A])
    assert list(table) == ["method", "fold", "curve", "x", "y"]
    assert list(table["method"].unique()) == ["b", "a"]
    part = table.query("method == 'a' and curve == 'roc'").reset_index(drop=True)
    pd.testing.assert_frame_equal(part[["fold", "x", "y"]], roc_points(predictions.query("method == 'a'")))
    part = table.query("method == 'b' and curve == 'precision-recall'").reset_index(drop=True)
    pd.testing.assert_frame_equal(part[["fold", "x", "y"]], pr_points(predictions.query("method == 'b'")))
    assert make_curves_table(predictions.iloc[:0], []).empty


def test_names_of_files_are_safe_and_distinct() -> None:
    names = [
        "svm-minmax",
        "my.module:Class",
        "../../etc/passwd",
        "A b/c",
        "a B c",
        "all",
        "Curves",
        "NUL",
        "β",
        "",
        "a" * 300,
    ]
    stems = curves._make_file_stems(names)
    assert stems[:4] == ["svm-minmax", "my.module-Class", "etc-passwd", "A-b-c"]
    assert stems[4:9] == ["a-B-c-2", "all-2", "Curves-2", "method-NUL", "method"]
    assert stems[9] == "method-2"
    assert len(stems[10]) <= 100
    assert len({stem.lower() for stem in stems}) == len(names)


def test_no_two_lines_look_alike_without_colour() -> None:
    styles = curves._choose_styles([MethodInfo(f"m{i}", f"M{i}", "control" if i > 20 else "method") for i in range(36)])
    assert len({(style["dashes"], style["marker"]) for style in styles.values()}) == 36


def test_without_matplotlib_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"^the figures need matplotlib: pip install 'deeprc\[plots\]'$"):
        draw_curves(random_predictions(), [A], tmp_path / "curves")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@needs_matplotlib
def test_every_method_and_all_together_get_pictures(tmp_path: Path) -> None:
    odd, absent = MethodInfo("x:Y/z", "Ψ % & <own>", "control"), MethodInfo("none", "None", "truth")
    predictions = random_predictions(("a", "b", "x:Y/z"))
    paths = draw_curves(predictions, [A, B, odd, absent], tmp_path / "new" / "curves")
    names = {"curves.tsv", *(f"{stem}.{kind}" for stem in ("a", "b", "x-Y-z", "all") for kind in ("png", "svg"))}
    assert {path.name for path in paths} == {path.name for path in (tmp_path / "new" / "curves").iterdir()} == names
    for path in paths:
        if path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG")
            width, height = np.frombuffer(path.read_bytes()[16:24], ">u4")
            assert 800 < width < 2500
            assert 400 < height < 1500
        if path.suffix == ".svg":
            assert ElementTree.parse(path).getroot().tag.endswith("svg")
    table = pd.read_csv(tmp_path / "new" / "curves" / "curves.tsv", sep="\t", dtype={"fold": str})
    expected = make_curves_table(predictions, [A, B, odd, absent])
    pd.testing.assert_frame_equal(table, expected, rtol=1e-6, check_dtype=False)


@pytest.mark.slow
@needs_matplotlib
def test_pictures_are_the_same_each_time(tmp_path: Path) -> None:
    predictions = random_predictions()
    first = draw_curves(predictions, [A], tmp_path / "1")
    second = draw_curves(predictions.sample(frac=1, random_state=0), [A], tmp_path / "2")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    svg = (tmp_path / "1" / "a.svg").read_text(encoding="utf-8")
    assert "<dc:date>" not in svg


@pytest.mark.slow
@needs_matplotlib
def test_one_fold_has_no_spread_and_no_method_no_picture(tmp_path: Path) -> None:
    assert len(draw_curves(random_predictions(folds=1), [A], tmp_path / "1")) == 5
    paths = draw_curves(random_predictions().iloc[:0], [A], tmp_path / "2")
    assert [path.name for path in paths] == ["curves.tsv"]
    assert paths[0].read_text() == "method\tfold\tcurve\tx\ty\n"


@needs_matplotlib
def test_the_figure_of_all_methods_has_their_mean_curves() -> None:
    predictions = random_predictions(("a", "b"))
    left, right = draw_curves_figure(predictions, [A, B]).axes
    drawn = [line.get_xydata().tolist() for line in left.lines]
    for method in ("a", "b"):
        points = roc_points(predictions[predictions["method"] == method]).query("fold == 'mean'")
        assert points[["x", "y"]].to_numpy().tolist() in drawn
    texts = [text.get_text() for text in right.get_legend().get_texts()]
    assert {text.split("   ", 2)[-1] for text in texts} == {"Method A", "Method $B$ | _x_", "chance"}
    with pytest.raises(NoCurveError, match="no fold has both classes, so there is no curve"):
        draw_curves_figure(one_fold(0, [1, 1], [0.0, 1.0]), [A])
