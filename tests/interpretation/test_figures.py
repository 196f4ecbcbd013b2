"""Figures: what is drawn, against independent numbers; and their files."""

import importlib.util
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import trapezoid
from sklearn.metrics import average_precision_score, mean_absolute_error, r2_score, roc_auc_score, roc_curve

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.drawing import CLASS_COLOURS, COLOURS, INK, MUTED, shorten_name
from deeprc.errors import InputError
from deeprc.evaluation.auc_intervals import compute_auc_interval
from deeprc.evaluation.reliability import compute_calibration_bins
from deeprc.interpretation.figures import (
    compute_logo_top,
    draw_attention_figure,
    draw_calibration_figure,
    draw_gene_figure,
    draw_history_figure,
    draw_kernels_figure,
    draw_logo_figure,
    draw_logos_figure,
    draw_metastable_figure,
    draw_precision_recall_figure,
    draw_regression_figure,
    draw_roc_figure,
    draw_sequence_figure,
)
from deeprc.interpretation.figures.attended import compute_attention_bands
from deeprc.interpretation.figures.classes import MOST_CLASSES, choose_drawn_classes, index_classes, index_drawn_classes
from deeprc.interpretation.figures.elements import choose_class_styles, make_panel, set_count_ticks, spread_points
from deeprc.tasks import Task
from deeprc.training.history import find_kept_weights

pytestmark = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is missing")
needs_logomaker = pytest.mark.skipif(importlib.util.find_spec("logomaker") is None, reason="logomaker is missing")


def some_predictions(seed: int = 0, target: str = "CMV=+") -> pd.DataFrame:
    """Return three splits; every seventh repertoire of the test split has no label."""
    rng = np.random.default_rng(seed)
    parts = []
    for split, n in (("train", 60), ("validation", 20), ("test", 35)):
        label = np.arange(n) % 2
        probability = (1 / (1 + np.exp(-2 * (label - 0.5) - rng.normal(size=n)))).round(2)
        known = pd.array(label, dtype="Int64").astype(object)
        if split == "test":
            known[::7] = None
        rows = {"repertoire_id": [f"{split}.{i}" for i in range(n)], "split": split, "target": target, "label": known}
        parts.append(pd.DataFrame({**rows, "probability": probability}))
    return pd.concat(parts, ignore_index=True)


def known(predictions: pd.DataFrame, split: str, column: str = "probability") -> tuple[Any, Any]:
    rows = predictions[(predictions["split"] == split) & predictions["label"].notna()]
    return rows["label"].to_numpy(float), rows[column].to_numpy(float)


def legend_of(axis: Any) -> dict[str, Any]:
    """Return the legend's texts and what stands before them."""
    legend = axis.get_legend()
    return dict(zip([text.get_text() for text in legend.get_texts()], legend.legend_handles, strict=True))


def line_like(axis: Any, handle: Any) -> Any:
    """Return the line that a line of the legend stands for."""
    same = [
        line
        for line in axis.lines
        if line.get_color() == handle.get_color() and line.get_linewidth() == handle.get_linewidth()
    ]
    assert len(same) == 1
    return same[0]


def test_roc_is_sklearns_for_every_split() -> None:
    predictions = some_predictions()
    (axis,) = draw_roc_figure(predictions).axes
    legend = legend_of(axis)
    assert [text.split(":")[0] for text in legend] == ["test", "validation", "training, fitted", "chance"]
    for (text, handle), split in zip(legend.items(), ["test", "validation", "train"], strict=False):
        label, probability = known(predictions, split)
        x, y, _ = roc_curve(label, probability)
        line = line_like(axis, handle)
        np.testing.assert_allclose(line.get_xdata(), x)
        np.testing.assert_allclose(line.get_ydata(), y)
        auc = roc_auc_score(label, probability)
        low, high = compute_auc_interval(auc, label.sum(), (1 - label).sum())
        interval = f" ({low:.3f} to {high:.3f})" if split == "test" else ""  # the model has seen the others
        assert text.endswith(f": AUC {auc:.3f}{interval}, n = {len(label)}")


def test_test_is_bold_and_training_dotted() -> None:
    (axis,) = draw_roc_figure(some_predictions()).axes
    test, validation, train, _ = legend_of(axis).values()
    assert test.get_linewidth() > 2 * validation.get_linewidth()
    assert not test.is_dashed()
    assert train.is_dashed()
    assert train.get_color() == MUTED


def test_precision_recall_has_the_area_of_average_precision() -> None:
    predictions = some_predictions()
    (axis,) = draw_precision_recall_figure(predictions).axes
    legend = legend_of(axis)
    for (text, handle), split in zip(legend.items(), ["test", "validation", "train"], strict=False):
        label, probability = known(predictions, split)
        line = line_like(axis, handle)
        expected = average_precision_score(label, probability)
        assert trapezoid(line.get_ydata(), line.get_xdata()) == pytest.approx(expected)
        assert f"average precision {expected:.3f}" in text
    share = known(predictions, "test")[0].mean()
    assert list(legend)[-1] == f"chance: {100 * share:.0f}% of test are positive"
    assert line_like(axis, list(legend.values())[-1]).get_ydata() == pytest.approx([share, share])


def test_a_split_of_one_class_is_left_out_and_none_left_is_an_error() -> None:
    predictions = some_predictions()
    predictions.loc[predictions["split"] == "test", "label"] = 1
    (axis,) = draw_roc_figure(predictions).axes
    assert [text.split(":")[0] for text in legend_of(axis)] == ["validation", "training, fitted", "chance"]
    predictions["label"] = 1
    with pytest.raises(InputError, match=r"target 'CMV=\+': no part of the split has labels of both classes"):
        draw_roc_figure(predictions)
    with pytest.raises(InputError, match=r"the predictions are empty: there is no repertoire to draw"):
        draw_roc_figure(predictions.iloc[:0])


def test_the_target_must_be_said_where_there_are_several() -> None:
    predictions = pd.concat([some_predictions(target="a=x"), some_predictions(1, target="a=$y_"), regression()])
    with pytest.raises(InputError, match=r"expected one target \(`target`\): a=x, a=\$y_"):
        draw_roc_figure(predictions)
    (axis,) = draw_roc_figure(predictions, target="a=$y_").axes
    label, probability = known(some_predictions(1), "test")
    assert f"AUC {roc_auc_score(label, probability):.3f}" in next(iter(legend_of(axis)))
    with pytest.raises(InputError, match=r"no target 'age' with classes; choose one of a=x, "):
        draw_roc_figure(predictions, target="age")
    assert draw_regression_figure(predictions).axes  # only one target is a number


def test_the_calibration_figure_says_the_brier_score() -> None:
    predictions = some_predictions()
    upper, lower = draw_calibration_figure(predictions).axes
    label, probability = known(predictions, "test")
    text = next(iter(legend_of(lower)))
    brier = np.mean((probability - label) ** 2)
    assert text == f"test: Brier score {brier:.3f}, n = {len(label)}; bars: 95% intervals"
    bins = compute_calibration_bins(label, probability)
    assert len(bins) == 3
    dots = next(line for line in upper.lines if line.get_marker() == "o")
    np.testing.assert_allclose(dots.get_xydata(), bins[["probability", "share"]])
    ((segments),) = [each.get_segments() for each in upper.collections]
    np.testing.assert_allclose([segment[:, 1] for segment in segments], bins[["lower", "upper"]])
    counts = np.array([bar.get_height() for bar in lower.patches])
    assert counts[counts > 0].sum() == label.sum()
    assert -counts[counts < 0].sum() == (1 - label).sum()


def test_calibration_is_of_the_new_repertoires_where_none_is_of_the_test() -> None:
    predictions = some_predictions().query("split != 'train'").assign(split="new")
    assert next(iter(legend_of(draw_calibration_figure(predictions).axes[1]))).startswith("new: ")
    with pytest.raises(InputError, match=r"the part 'test' of the split has no labelled repertoire"):
        draw_calibration_figure(some_predictions().query("split == 'train'"))


def regression() -> pd.DataFrame:
    predictions = some_predictions(target="age")
    rng = np.random.default_rng(1)
    label = rng.normal(50, 10, len(predictions))
    return predictions.assign(label=label, probability=np.nan, prediction=label + rng.normal(0, 5, len(label)))


def test_regression_says_r2_and_error() -> None:
    predictions = regression()
    (axis,) = draw_regression_figure(predictions).axes
    text, handle = next(iter(legend_of(axis).items()))
    label, value = known(predictions, "test", "prediction")
    error = mean_absolute_error(label, value)
    expected = f"r2 {r2_score(label, value):.2f}, mean absolute error {error:.3g}, n = {len(label)}"
    assert text == f"test: {expected}"
    dots = next(line for line in axis.lines if line.get_marker() == handle.get_marker())
    np.testing.assert_allclose(dots.get_xydata(), np.stack([label, value], axis=1))
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("age, true", "age, predicted")
    assert axis.get_xlim() == axis.get_ylim()


def test_history_marks_the_first_of_the_lowest_loss() -> None:
    history = pd.DataFrame(
        {
            "update": [10, 20, 30, 40],
            "train_loss": [0.7, 0.5, 0.4, 0.3],
            "validation_loss": [0.7, 0.6, 0.65, 0.6],
            "validation_auc": [0.5, 0.8, 0.75, 0.9],
        }
    )
    assert find_kept_weights(history) == (20, 0.6, 0.8)
    upper, lower = draw_history_figure(history).axes
    assert list(legend_of(lower)) == ["training", "validation", "chosen: update 20, loss 0.600, AUC 0.800"]
    dot = next(line for line in upper.lines if line.get_marker() == "o")
    assert dot.get_xydata().tolist() == [[20, 0.6]]
    assert upper.lines[0].get_ydata().tolist() == history["train_loss"].tolist()
    assert lower.lines[0].get_ydata().tolist() == history["validation_auc"].tolist()
    (only,) = draw_history_figure(history.drop(columns="validation_auc")).axes
    assert only.get_xlabel() == "update"
    with pytest.raises(InputError, match="the history of the training is empty"):
        draw_history_figure(history.iloc[:0])


def test_history_draws_what_whole_repertoires_decided() -> None:
    history = pd.DataFrame(
        {
            "update": [0, 10, 20],
            "train_loss": [np.nan, 0.7, 0.6],
            "validation_loss": [2.0, 0.65, 0.66],
            "validation_auc": [0.6, 0.7, 0.7],
            "best_update": [0, 10, 0],
            "fitted": [np.nan, np.nan, 0],
            "whole_validation_loss": [2.5, 0.4005, np.nan],
            "whole_validation_auc": [0.35, 0.85, np.nan],
            "fitted_validation_loss": [np.nan, 0.4, np.nan],
            "fitted_validation_auc": [np.nan, 0.9, np.nan],
        }
    )

    def find_squares(axis: Any) -> list[list[float]]:
        points = [line.get_xydata() for line in axis.lines if line.get_marker() == "s"]
        return sorted(point for line in points for point in line.tolist() if not np.isnan(point[1]))

    upper, lower = draw_history_figure(history).axes
    assert find_squares(upper) == [[0, 2.5], [10, 0.4], [10, 0.4005]]
    assert find_squares(lower) == [[0, 0.35], [10, 0.85], [10, 0.9]]
    assert upper.get_ylim()[1] > 2.5
    assert lower.get_ylim()[0] < 0.35
    names = ["training", "validation", "whole validation repertoires", "chosen: update 0, loss 2.500, AUC 0.350"]
    assert list(legend_of(lower)) == names
    history.loc[2, "best_update"] = 10  # the fitted output is not better by 0.001
    _, lower = draw_history_figure(history).axes
    assert list(legend_of(lower))[-1] == "chosen: update 10, loss 0.401, AUC 0.850"
    history.loc[2, "fitted"] = 1
    _, lower = draw_history_figure(history).axes
    assert list(legend_of(lower))[-1] == "chosen: update 10, loss 0.400, AUC 0.900"


def heads_and_classes() -> tuple[pd.DataFrame, dict[str, str]]:
    rows = [(f"r{i}", head, 1000, 10 ** (head - 1) * (i + 1), "IV") for i in range(6) for head in (1, 2)]
    rows.append(("empty", 1, 0, 0, ""))
    columns = ["repertoire_id", "head", "n_sequences", "metastable_size", "operating_class"]
    classes = {f"r{i}": "_sick" if i % 2 else "well" for i in range(5)} | {"empty": "well"}  # r5 has none
    return pd.DataFrame(rows, columns=columns), classes


def test_metastable_sizes_by_class_and_head() -> None:
    heads, classes = heads_and_classes()
    for given in (classes, pd.Series(classes)):
        (axis,) = draw_metastable_figure(heads, given).axes
        assert axis.get_yscale() == "log"
        assert list(legend_of(axis)) == ["well", " _sick"]
        medians = sorted(line.get_ydata()[0] for line in axis.lines if line.get_linewidth() == 1.8)
        assert medians == [3, 3, 30, 30]  # of 1, 3, 5 and of 2, 4
        dots = [line for line in axis.lines if line.get_marker() in ("o", "^") and len(line.get_xdata()) in (2, 3)]
        assert sorted(y for line in dots for y in line.get_ydata()) == [1, 2, 3, 4, 5, 10, 20, 30, 40, 50]
        for line in dots:
            assert len(set(line.get_xdata())) == len(line.get_xdata())
        assert [text.get_text() for text in axis.get_xticklabels()] == ["1", "2"]
    with pytest.raises(InputError, match="no repertoire with sequences has a class"):
        draw_metastable_figure(heads, {"another": "well"})


def test_points_keep_apart() -> None:
    places = np.sort(spread_points(100))
    assert -0.5 <= places[0] <= places[-1] <= 0.5
    assert np.diff(places).min() > 0.003


def test_attention_bands_by_hand() -> None:
    curves = pd.DataFrame(
        {
            "repertoire_id": ["a", "a", "a", "b", "b"],
            "share": [0.01, 0.1, 1.0, 0.1, 1.0],
            "attention": [0.5, 0.8, 1.0, 0.2, 1.0],
        }
    )
    bands = compute_attention_bands(curves, n_points=3)
    assert bands["share"].tolist() == pytest.approx([0.01, 0.1, 1.0])
    # of b's straight line from 0 to (0.1, 0.2), 0.01 has 0.02
    assert bands["median"].tolist() == pytest.approx([0.26, 0.5, 1.0])
    assert bands["lower"].tolist() == pytest.approx([0.14, 0.35, 1.0])
    assert bands["upper"].tolist() == pytest.approx([0.38, 0.65, 1.0])


def some_curves() -> tuple[pd.DataFrame, dict[str, str]]:
    parts = []
    for i in range(6):
        share = np.geomspace(1 / (100 + 50 * i), 1, 20)
        parts.append(pd.DataFrame({"repertoire_id": f"r{i}", "share": share, "attention": share ** (0.2 + 0.1 * i)}))
    return pd.concat(parts, ignore_index=True), {f"r{i}": "AB"[i % 2] for i in range(6)}


def test_attention_curves_per_class() -> None:
    curves, classes = some_curves()
    (axis,) = draw_attention_figure(curves, classes).axes
    legend = legend_of(axis)
    assert list(legend) == ["A (3 repertoires)", "B (3 repertoires)", "equal attention"]
    expected = compute_attention_bands(curves[curves["repertoire_id"].isin(["r1", "r3", "r5"])])
    line = line_like(axis, legend["B (3 repertoires)"])
    np.testing.assert_allclose(line.get_xydata(), expected[["share", "median"]])
    first, second, chance = legend.values()
    assert not first.is_dashed()
    assert second.is_dashed()
    x, y = line_like(axis, chance).get_data()
    np.testing.assert_allclose(x, y)


def test_attention_curves_of_repertoires_of_one_sequence() -> None:
    curves = pd.DataFrame({"repertoire_id": ["a", "b"], "share": [1.0, 1.0], "attention": [1.0, 1.0]})
    (axis,) = draw_attention_figure(curves, {"a": "A", "b": "B"}).axes
    assert axis.get_xlim() == (0.1, 1)
    assert [text.get_text() for text in axis.get_xticklabels()] == ["10%", "100%"]


def test_genes_are_sorted_by_their_difference() -> None:
    names = [f"TRBV{i}" for i in range(30)]
    every = np.full(30, 1 / 30)
    attended = every + np.linspace(-0.02, 0.03, 30)
    genes = pd.DataFrame({"field": "v_call", "name": names, "all": every, "attended": attended})
    genes = genes.sample(frac=1, random_state=0)
    (axis,) = draw_gene_figure(genes).axes
    shown = [text.get_text() for text in axis.get_yticklabels()]
    kept = np.argsort(-np.abs(attended - every))[:25]
    assert shown == [names[i] for i in sorted(kept)]  # from the bottom, the least difference first
    legend = legend_of(axis)
    dots = next(line for line in axis.lines if line.get_marker() == legend["weighted by attention"].get_marker())
    np.testing.assert_allclose(dots.get_xdata(), attended[sorted(kept)])
    width = axis.bbox.width * 72 / axis.figure.dpi  # points
    low, high = axis.get_xlim()
    assert (high - attended.max()) / (high - low) * width > dots.get_markersize() * 2**0.5 / 2  # a whole diamond
    with pytest.raises(InputError, match="the cohort has no j_call"):
        draw_gene_figure(genes, "j_call")
    with pytest.raises(InputError, match="the cohort has no v_call"):
        draw_gene_figure(pd.DataFrame(columns=["field", "name", "all", "attended"]))


def motif(pattern: str = "LDR.", low: float = 0.0) -> Any:
    information = np.full((len(pattern), 20), low)
    for position, letter in enumerate(pattern):
        if letter != ".":
            information[position, AMINO_ACIDS.index(letter)] = 1.0 + position
    return SimpleNamespace(pattern=pattern, information=information)


@needs_logomaker
def test_a_logo_has_a_letter_for_each_height() -> None:
    (axis,) = draw_logo_figure(motif()).axes
    boxes = [letter.get_extents().transformed(axis.transData.inverted()) for letter in axis.patches]
    heights = {round(box.x0 + 0.5): box.height for box in boxes}
    assert heights == pytest.approx({1: 1, 2: 2, 3: 3}, rel=0.05)
    assert axis.get_ylim() == (0, pytest.approx(1.05 * 3))
    assert axis.get_ylabel() == "bits"
    colours = [to_hex(letter.get_facecolor()) for letter in axis.patches]
    assert sorted(colours) == sorted([INK.lower(), COLOURS[1].lower(), COLOURS[0].lower()])  # L, D, R


@needs_logomaker
def test_logos_have_one_scale_and_say_their_patterns() -> None:
    figure = draw_logos_figure([motif("LDR"), motif("W"), motif("AC"), motif("Y")])
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["1  LDR", "2  W", "3  AC", "4  Y"]
    assert [axis.get_ylim() for axis in figure.axes] == [(0, pytest.approx(3.15))] * 4
    (legend,) = figure.legends
    assert legend.get_texts()[0].get_text() == "acidic (DE)"
    with pytest.raises(InputError, match="no motif was found"):
        draw_logos_figure([])
    with pytest.raises(InputError, match=r"motif 'LD': expected information of \(W, 20\), found \(2, 4\)"):
        draw_logo_figure(SimpleNamespace(pattern="LD", information=np.zeros((2, 4))))  # type: ignore[arg-type]


def test_without_logomaker_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "logomaker" else find(name))
    with pytest.raises(InputError, match=r"^the logos need logomaker: pip install 'deeprc\[interpret\]'$"):
        draw_logo_figure(motif())


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"^the figures need matplotlib: pip install 'deeprc\[plots\]'$"):
        draw_roc_figure(some_predictions())


def test_kernels_are_sorted_means() -> None:
    kernels = np.array([[1.0, -4, 2, 0.5], [3.0, -2, 2, 0.5]])
    (axis,) = draw_kernels_figure(kernels, output="CMV").axes
    bars = sorted(axis.patches, key=lambda bar: bar.get_x())
    assert [bar.get_height() for bar in bars] == [2, 2, 0.5, -3]
    assert [text.get_text() for text in axis.get_xticklabels()] == ["1", "3", "4", "2"]
    assert [bar.get_hatch() for bar in bars] == [None, None, None, "////"]
    assert axis.get_ylabel() == "mean contribution to CMV"
    many = np.arange(-30.0, 31)[None]
    (axis,) = draw_kernels_figure(many).axes
    assert axis.get_xlabel() == "kernel (the strongest 20 of 61)"
    assert {abs(bar.get_height()) for bar in axis.patches} == set(range(21, 31))
    with pytest.raises(InputError, match=r"\(n, D\), found \(0, 3\)"):
        draw_kernels_figure(np.zeros((0, 3)))


def test_sequences_are_letters_on_colours() -> None:
    values = np.array([[0.0, 2, -1, np.nan], [0.5, 0.05, -2, 1]])
    figure = draw_sequence_figure(["CAS", "CWSF"], values)
    axis, scale = figure.axes
    placed = {(int(text.get_position()[1]), int(text.get_position()[0])): text.get_text() for text in axis.texts}
    assert placed == {(0, 0): "C", (0, 1): "A", (0, 2): "S", (1, 0): "C", (1, 1): "W", (1, 2): "S", (1, 3): "F"}
    tiles = {}
    for patch in axis.patches:
        if patch.get_height() > 0.8:
            tiles[int(patch.get_y()), int(patch.get_x())] = (to_hex(patch.get_facecolor()[:3]), patch.get_alpha())
    orange, blue = COLOURS[1].lower(), COLOURS[0].lower()
    assert tiles[0, 1] == (orange, 0.75)
    assert tiles[0, 2] == (blue, 0.375)
    assert tiles[1, 2] == (blue, 0.75)
    assert (0, 0) not in tiles  # adds nothing
    edges = [patch for patch in axis.patches if patch.get_height() < 0.8]
    assert len(edges) == 5  # not for 0.05 of 2
    assert all((patch.get_y() % 1 < 0.5) == (to_hex(patch.get_facecolor()) == orange) for patch in edges)
    assert [text.get_text() for text in scale.texts] == ["\u22122", "0", "+2: what a residue adds to the output"]
    with pytest.raises(InputError, match=r"values: expected shape \(1, L\) with L of at least 4, found \(1, 3\)"):
        draw_sequence_figure(["CASF"], np.zeros((1, 3)))


TASKS = [
    Task("status", "status", "binary", ("healthy", "case")),
    Task("grade", "grade", "multiclass", ("high", "low", "mid")),
    Task("age", "age", "regression"),
]


def test_each_class_of_each_target_has_its_own_place() -> None:
    assert index_classes(TASKS) == {
        "status": {"healthy": 0, "case": 1},
        "grade": {"high": 2, "low": 3, "mid": 4},
        "age": {"lower": 5, "higher": 6},
    }
    ids = ["a", "b", "c", "d"]
    grade, age = np.array([2.0, np.nan, 2.0, 0.0]), np.array([50.0, 20.0, np.nan, 60.0])
    assert choose_drawn_classes(TASKS[1], ids, grade) == {"d": "high", "a": "mid", "c": "mid"}
    assert index_drawn_classes(TASKS, TASKS[1], grade)["mid"] == 4  # also where no repertoire is "low"
    assert choose_drawn_classes(TASKS[2], ids, age) == {"a": "age up to 50", "b": "age up to 50", "d": "age above 50"}
    places = index_drawn_classes(TASKS, TASKS[2], age)
    assert (places["age up to 50"], places["age above 50"]) == (5, 6)
    none = np.full(4, np.nan)
    assert set(choose_drawn_classes(TASKS[0], ids, none).values()) == {"all repertoires"}
    assert index_drawn_classes(TASKS, TASKS[0], none) == {}


def test_a_class_keeps_its_colour_where_others_are_missing() -> None:
    places = index_classes(TASKS)["grade"]
    styles = choose_class_styles(["mid", "all repertoires"], places)
    assert styles["mid"]["color"] == CLASS_COLOURS[4]
    assert styles["all repertoires"]["color"] == INK
    assert styles["mid"]["dashes"] != styles["all repertoires"]["dashes"]
    assert len(set(CLASS_COLOURS)) == MOST_CLASSES
    (axis,) = draw_metastable_figure(
        pd.DataFrame({"repertoire_id": ["a"], "head": [1], "n_sequences": [9], "metastable_size": [3]}),
        {"a": "mid"},
        places,
    ).axes
    assert CLASS_COLOURS[4] in {line.get_color() for line in axis.lines}


def test_only_classes_are_drawn_in_colour() -> None:
    (axis,) = draw_roc_figure(some_predictions()).axes
    assert {line.get_color() for line in axis.lines} == {INK, MUTED}
    upper, lower = draw_calibration_figure(some_predictions(), classes=(("not mid", None), ("mid", 4))).axes
    assert {line.get_color() for line in upper.lines} == {INK, MUTED}
    assert {to_hex(bar.get_edgecolor()) for bar in lower.patches} == {CLASS_COLOURS[4].lower(), MUTED}
    assert [text.get_text() for text in lower.texts] == ["mid", "not mid"]
    assert upper.get_ylabel() == "share of mid repertoires"
    (axis,) = draw_kernels_figure(np.array([[1.0, -1.0]]), colour_index=3).axes
    assert [to_hex(bar.get_edgecolor()) for bar in axis.patches] == [CLASS_COLOURS[3].lower(), MUTED]


@needs_logomaker
def test_logos_of_a_page_have_one_scale() -> None:
    motifs = [motif("LDR"), motif("W")]
    top = compute_logo_top(motifs)
    assert top == pytest.approx(1.05 * 3)
    axes = [draw_logo_figure(one, top=top).axes[0] for one in motifs]
    assert [axis.get_ylim() for axis in axes] == [(0, top)] * 2
    assert [text.get_text() for text in axes[0].get_xticklabels()] == ["1", "2", "3"]


def to_hex(colour: Any) -> str:
    from matplotlib.colors import to_hex as of

    text: str = of(colour)
    return text


def luminance(colour: str) -> float:
    """Of WCAG 2."""
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("colour", [*CLASS_COLOURS, MUTED])
def test_colours_stand_out_from_light_and_dark_pages(colour: str) -> None:
    assert 1.05 / (luminance(colour) + 0.05) >= 3
    assert (luminance(colour) + 0.05) / (luminance("#121212") + 0.05) >= 3


def test_a_figure_keeps_its_looks_where_other_settings_hold() -> None:
    figure = draw_roc_figure(some_predictions())
    figure.draw_without_rendering()
    (axis,) = figure.axes
    assert {tick.get_fontsize() for tick in axis.get_xticklabels()} == {8}
    assert {tick.get_color() for tick in axis.get_xticklabels()} == {INK}


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (1_998, 2_000, ["2,000"]),
        (700, 700, ["700"]),
        (1_200, 2_900, ["1,200", "2,900"]),
        (800, 1_400, ["800", "1,400"]),
        (2, 40, ["3", "10", "30"]),
        (200, 250_000, ["1,000", "10,000", "100,000"]),
    ],
)
def test_an_axis_of_counts_has_ticks_within_its_range(low: float, high: float, texts: list[str]) -> None:
    _, axis = make_panel(2, 2)
    axis.set_yscale("log")
    axis.set_ylim(0.8 * low, 1.25 * high)
    set_count_ticks(axis, "y", low, high)
    axis.figure.canvas.draw()
    found = zip(axis.get_yticks(), axis.get_yticklabels(), strict=True)
    assert [text.get_text() for tick, text in found if 0.8 * low <= tick <= 1.25 * high] == texts


def test_long_names_lose_their_middle() -> None:
    assert [shorten_name("abcdefgh", n) for n in (8, 7, 6, 2)] == ["abcdefgh", "abc…fgh", "abc…gh", "a…"]
    assert shorten_name("two\nlines", 10) == "two lines"
    assert shorten_name(" kept as it is ", 15) == " kept as it is "


def test_long_names_in_a_legend_are_all_there() -> None:
    """They differ at their end only, and one begins with an underscore, which matplotlib would leave out."""
    names = [f"{'_' * (n == 2)}{'a long name of a class, ' * 9}{n}" for n in range(3)]
    table = pd.DataFrame({"repertoire_id": ["a", "b", "c"], "head": 1, "n_sequences": 9, "metastable_size": [3, 4, 5]})
    figure = draw_metastable_figure(table, dict(zip("abc", names, strict=True)))
    legend = figure.axes[0].get_legend()
    assert legend is not None
    texts = [text.get_text() for text in legend.get_texts()]
    assert [text[-1] for text in texts] == ["0", "1", "2"]
    assert {len(text) for text in texts} == {28}


def test_a_message_about_targets_has_few_and_short_names() -> None:
    rows = [("y" * 100_000, 0, 0.2), *((f"t{i}", i % 2, 0.4) for i in range(1000))]
    predictions = pd.DataFrame(rows, columns=["target", "label", "probability"]).assign(split="test")
    with pytest.raises(InputError, match=r"expected one target \(`target`\): y{60}\.\.\., t0, .*, t8 and 991 more$"):
        draw_roc_figure(predictions)
