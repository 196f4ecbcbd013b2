"""The multiple-instance benchmark reads its files, learns, and looks at no test bag before the end."""

import dataclasses
import gzip
import importlib.util
import lzma
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse
from click.testing import CliRunner

FOLDER = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def mil() -> Iterator[ModuleType]:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # without, `common` would start this process anew
    sys.path.insert(0, str(FOLDER))
    specification = importlib.util.spec_from_file_location("mil", FOLDER / "mil.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["mil"] = module  # dataclasses look their module up
    try:
        specification.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(FOLDER))
        for name in ("mil", "mil_data", "common"):
            sys.modules.pop(name, None)


@pytest.fixture
def toy(mil: ModuleType):
    """Give bags of noise; a positive one has an instance whose first feature is large."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(2, 8, 60)
    offsets = np.concatenate([[0], sizes.cumsum()])
    labels = (np.arange(60) % 2).astype(np.float32)
    features = rng.normal(size=(offsets[-1], 4)).astype(np.float32)
    features[offsets[:-1][labels == 1], 0] += 8
    return mil.Bags(features, offsets, labels)


FEATURES = np.array([[0, 1.5], [2, 0], [0, 0], [-1, 4], [0.25, 0], [3, 3]])
IDS = np.array([7, 7, 200, 9, 200, 9])  # in no order: instances of a bag need not be neighbours
LABELS = np.array([-1, 1, -1, -1, -1, -1])  # one positive instance makes a bag positive


def write_mat(path: Path) -> None:
    sparse = {"features": FEATURES, "labels": LABELS[None].astype(float)}
    matrices = {name: scipy.sparse.csc_matrix(matrix) for name, matrix in sparse.items()}
    scipy.io.savemat(path, matrices | {"bag_ids": IDS[None].astype(np.uint8)})


def write_csv(path: Path) -> None:
    rows = np.column_stack([LABELS > 0, IDS, FEATURES])
    path.write_text("".join(",".join(f"{number:g}" for number in row) + "\n" for row in rows))


def test_both_layouts_give_the_same_bags_packed_or_not(mil: ModuleType, tmp_path: Path) -> None:
    write_mat(tmp_path / "fox_100x100.mat")
    write_csv(tmp_path / "musk1.csv")
    packed = gzip.compress((tmp_path / "fox_100x100.mat").read_bytes())
    (tmp_path / "tiger_100x100.mat.gz").write_bytes(packed)
    packed = lzma.compress((tmp_path / "musk1.csv").read_bytes())
    (tmp_path / "ucsb_breast_cancer.csv.xz").write_bytes(packed)
    for dataset in ("fox", "musk1", "tiger", "ucsb"):
        bags = mil.read_bags(tmp_path, dataset)
        np.testing.assert_array_equal(bags.features, FEATURES[[0, 1, 3, 5, 2, 4]])
        np.testing.assert_array_equal(bags.offsets, [0, 2, 4, 6])
        np.testing.assert_array_equal(bags.labels, [1, 0, 0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "expected musk1.csv, musk1.csv.gz or musk1.csv.xz"),
        (b"1,2,word\n", "cannot be read as musk1.csv"),
        (b"1,2\n", "label, bag id and features"),
        (b"1,1,0.5\n0,2,nan\n", "a number for each feature"),
        (b"1,1,0.5\n1,2,0.5\n", "positive and negative bags"),
    ],
)
def test_unusable_data_is_refused_in_one_line(
    mil: ModuleType, tmp_path: Path, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "musk1.csv").write_bytes(content)
    result = CliRunner().invoke(mil.main, ["--data", str(tmp_path), "--dataset", "musk1"])
    assert result.exit_code == 2
    assert message in result.output
    assert str(tmp_path) in result.output
    assert result.output.count("\n") == 1


def test_bags_are_selected_in_order(toy) -> None:
    keep = np.ones(len(toy.features), dtype=bool)
    keep[toy.offsets[9]] = False
    some = toy.select(np.array([9, 4]), keep)
    expected = np.concatenate([toy.features[toy.offsets[b] : toy.offsets[b + 1]] for b in (9, 4)])
    np.testing.assert_array_equal(some.features, expected[1:])
    np.testing.assert_array_equal(np.diff(some.offsets), np.diff(toy.offsets)[[9, 4]] - [1, 0])
    np.testing.assert_array_equal(some.labels, [1, 0])


def test_bag_dropout_leaves_at_least_one_instance(mil: ModuleType) -> None:
    sizes = np.array([1, 2, 1, 300, 5])
    offsets = np.concatenate([[0], sizes.cumsum()])
    rng = np.random.default_rng(0)
    for _ in range(50):
        kept = np.add.reduceat(mil.draw_kept_instances(offsets, 0.75, rng), offsets[:-1], dtype=int)
        assert kept.min() >= 1
        assert 45 < kept[3] < 110  # a quarter of 300
        np.testing.assert_array_equal(
            np.add.reduceat(mil.draw_kept_instances(offsets, 0.9999, rng), offsets[:-1], dtype=int).clip(max=1), 1
        )
    assert mil.draw_kept_instances(offsets, 0.0, rng).all()


def test_a_toy_problem_is_learned(mil: ModuleType, toy) -> None:
    setting = mil.Setting(width=16, heads=2, key_dim=8, hidden=16, bag_dropout=0.0, batches=5, learning_rate=3e-3)
    training, held_out = toy.select(np.arange(40)), toy.select(np.arange(40, 60))
    model = mil.train(training, setting, epochs=20, seed=0)
    logits = model.logits(held_out)
    assert logits[held_out.labels == 1].min() > logits[held_out.labels == 0].max()  # an AUC of 1
    np.testing.assert_array_equal(logits, mil.train(training, setting, epochs=20, seed=0).logits(held_out))


def test_the_search_does_not_see_the_test_bags(mil: ModuleType, toy) -> None:
    plan = mil.Plan(folds=3, settings=3, inner_folds=2, first_folds=1, survivors=2, averaged=2, epochs=2)
    first = mil.run_fold(toy, plan, 0, 1)
    hidden = toy.features.copy()
    for bag in first.test:
        hidden[toy.offsets[bag] : toy.offsets[bag + 1]] = np.nan
    again = mil.run_fold(dataclasses.replace(toy, features=hidden), plan, 0, 1)
    assert np.isfinite(first.single).all()
    assert np.isnan(again.single).all()
    assert (again.chosen, again.inner_auc) == (first.chosen, first.inner_auc)
    np.testing.assert_array_equal(again.test, first.test)
    other = mil.run_fold(toy, plan, 1, 1)
    assert set(other.test) != set(first.test)  # another repetition has other splits


def test_all_values_of_the_space_are_drawn_but_no_large_maps(mil: ModuleType) -> None:
    settings = mil.draw_settings(300, np.random.default_rng(0))
    for name, values in mil.SPACE.items():
        assert {getattr(setting, name) for setting in settings} == set(values)
    assert max(setting.width * setting.heads * setting.key_dim for setting in settings) == mil.MOST_WEIGHTS


def test_tables_hold_both_aucs_their_mean_and_spread(mil: ModuleType) -> None:
    labels = np.array([0, 1, 0, 1], dtype=np.float32)

    def result(repetition: int, test: list[int], single: list[float]):
        logits = np.array(single, dtype=np.float32)
        return mil.FoldResult(repetition, np.array(test), logits, -logits, mil.Setting(), 0.9, 1.0)

    results = [
        result(0, [0, 1], [0.0, 1.0]),  # both folds are ranked perfectly, but not together
        result(0, [2, 3], [5.0, 6.0]),
        result(1, [0, 1], [0.0, 1.0]),
        result(1, [2, 3], [3.0, 2.0]),
    ]
    first, second, mean, spread = mil.tabulate(labels, results)
    assert (first["auc_single"], first["pooled_single"], first["auc_ensemble"]) == (1.0, 0.75, 0.0)
    assert (second["auc_single"], mean["auc_single"]) == (0.5, 0.75)
    assert spread["auc_single"] == pytest.approx(0.5**0.5 / 2)
    assert mil.count_choices(results)["heads"] == {"8": 4}


@pytest.mark.parametrize("page", ["examples-mil.md", "results.md"])
def test_a_page_has_the_saved_figures(page: str) -> None:
    docs = FOLDER.parent / "docs"
    text = (docs / page).read_text(encoding="utf-8")
    saved = pd.read_csv(docs / "examples" / "mil.tsv", sep="\t", dtype=str).fillna("")
    for name, rows in saved.groupby("set", sort=False):
        shown = {row.method: f"{row.auc} ± {row.sd}" if row.sd else row.auc for row in rows.itertuples()}
        cells = [shown.get(method, "") for method in ("paper", "one model", "ensemble")]
        assert f"| {' | '.join([str(name), *cells])} |".replace("|  |", "| |") in text
