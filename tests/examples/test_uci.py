"""The example of small UCI sets reads, chooses, judges and ranks as it says."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner, Result

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def uci(load_example: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import the example, with at most two settings per method and few updates."""
    module = load_example("uci")

    def shorten(choice: partial[Any]) -> partial[Any]:
        return partial(choice, updates=15) if choice.func is module.train else choice

    names = [name for name in module.METHODS if name != "Hopfield, any layer"]
    methods = {name: [shorten(each) for each in module.METHODS[name][-2:]] for name in names}
    methods["gradient boosting"] = [partial(choice, max_iter=5) for choice in methods["gradient boosting"]]
    methods["random forest"] = [partial(choice, n_estimators=10) for choice in methods["random forest"]]
    methods["Hopfield, any layer"] = [choice for name in names[:4] for choice in methods[name]]
    monkeypatch.setattr(module, "METHODS", methods)
    return module


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write two sets in the published format: three classes that are far apart, and two that are noise."""
    for seed, (name, n_classes) in enumerate({"easy": 3, "noise": 2}.items()):
        rng = np.random.default_rng(seed)
        folder = tmp_path / "data" / name
        folder.mkdir(parents=True)
        classes = np.arange(60) % n_classes
        features = rng.normal(size=(60, 4)) + 100
        if name == "easy":
            features[np.arange(60), classes] += 12
        table = pd.DataFrame(features, index=range(1, 61)).assign(clase=classes)
        part = "_train" if name == "easy" else ""
        table.to_csv(folder / f"{name}{part}_R.dat", sep="\t")
        if part:
            (table * 0).to_csv(folder / f"{name}_test_R.dat", sep="\t")  # must not be read
        rows = rng.permutation(60)
        halves = [rows[:30], rows[30:]]
        tests = [rng.permutation(60)[:15] for _ in range(4)]  # as published: they overlap
        folds = [part for test in tests for part in (np.setdiff1d(rows, test), test)]
        for file, lists in (("conxuntos", halves), ("conxuntos_kfold", folds)):
            (folder / f"{file}.dat").write_text("".join(" ".join(map(str, each)) + " \n" for each in lists))
    return tmp_path / "data"


def run(uci: ModuleType, *arguments: str | Path) -> Result:
    return CliRunner().invoke(uci.main, [str(argument) for argument in arguments])


def test_features_classes_and_splits_are_those_of_the_files(uci: ModuleType, data: Path) -> None:
    x, classes, halves, folds = uci.read_set(data / "easy")
    assert x.shape == (60, 4)
    assert x.min() > 90  # the training part, not the test part
    assert classes.tolist() == [row % 3 for row in range(60)]
    assert [len(rows) for half in halves for rows in half] == [30, 30, 30, 30]
    assert torch.equal(halves[0][0], halves[1][1])
    assert [(len(known), len(new)) for known, new in folds] == [(45, 15)] * 4
    assert all(sorted(torch.cat(each).tolist()) == list(range(60)) for each in folds)


@pytest.mark.long
def test_every_method_learns_what_can_be_learned(uci: ModuleType, data: Path, tmp_path: Path) -> None:
    result = run(uci, "--data", data, "--output", tmp_path / "found.tsv")
    assert result.exit_code == 0, result.output
    accuracy = pd.read_csv(tmp_path / "found.tsv", sep="\t").pivot_table("accuracy", "method", "set")
    assert set(accuracy.index) == set(uci.METHODS)
    assert accuracy["easy"].min() > 0.9
    assert accuracy["noise"].between(0.2, 0.8).all()


@pytest.mark.long
def test_an_interrupted_run_goes_on_and_an_archive_is_its_folder(uci: ModuleType, data: Path, tmp_path: Path) -> None:
    found = tmp_path / "found.tsv"
    for method in list(uci.METHODS)[1:7]:
        del uci.METHODS[method]
    uci.METHODS["Hopfield, any layer"] = uci.METHODS["HopfieldLayer, training set"]
    assert run(uci, "--data", data, "--output", found, "--sets", "noise").exit_code == 0
    first = found.read_text()
    archive = shutil.make_archive(str(tmp_path / "packed"), "gztar", data)
    result = run(uci, "--data", archive, "--output", found)
    assert result.exit_code == 0, result.output
    assert "noise\n" not in result.stderr
    assert found.read_text().startswith(first)
    assert pd.read_csv(found, sep="\t")["set"].tolist() == ["noise"] * 3 + ["easy"] * 3
    assert [path.name for path in tmp_path.glob("found*")] == ["found.tsv"]


@pytest.mark.long
def test_choices_do_not_depend_on_what_the_folds_predict(uci: ModuleType, data: Path) -> None:
    x, classes, halves, folds = uci.read_set(data / "noise")
    known, new = halves[0]
    method = {"HopfieldLayer, training set": uci.METHODS["HopfieldLayer, training set"]}
    uci.METHODS = method | {"SVM": uci.METHODS["SVM"]}
    rows = list(uci.run_set(x, classes, [(known[:20], known[20:])], folds))
    changed = classes.clone()
    changed[new] = 1 - changed[new]
    again = list(uci.run_set(x, changed, [(known[:20], known[20:])], folds))
    assert [row["settings"] for row in rows] == [row["settings"] for row in again]
    assert [row["accuracy"] for row in rows] != [row["accuracy"] for row in again]


def test_a_training_row_does_not_find_itself(uci: ModuleType) -> None:
    x, targets = torch.randn(5, 3), torch.eye(5)
    for layers in (0, 1):
        torch.manual_seed(0)
        memory = uci.Memory(x, targets, layers=layers, beta=4.0).eval()
        shares = memory(x, own=torch.arange(2)) if layers else memory(x, own=torch.arange(5))
        own = shares.exp().diagonal(dim1=0, dim2=2)  # (H, 5)
        assert own[:, : 2 if layers else 5].max().item() == pytest.approx(0.02 / 5)
        assert memory(x).exp().diagonal(dim1=0, dim2=2).min() > 0.02 / 5


def test_ranks_and_the_test_against_the_best_hopfield_network(uci: ModuleType) -> None:
    accuracies = {
        "Hopfield, any layer": [0.9, 0.8, 0.7, 0.9, 0.6, 0.8],
        "Hopfield, training set": [0.1] * 6,
        "SVM": [0.8, 0.8, 0.6, 0.8, 0.5, 0.7],
    }
    rows = [
        {"set": str(i), "method": method, "accuracy": accuracy}
        for method, values in accuracies.items()
        for i, accuracy in enumerate(values)
    ]
    table = uci.summarise(pd.DataFrame(rows))
    assert table.index.tolist() == ["Hopfield, any layer", "SVM", "Hopfield, training set"]
    assert table["mean rank"].tolist() == pytest.approx([(5 + 1.5) / 6, (10 + 1.5) / 6, 3.0])
    assert table["difference"].sum() == pytest.approx(0)
    assert np.isnan(table["p"].iloc[0])
    assert table["p"].iloc[2] == pytest.approx(2 / 2**6)  # all six differences have one sign


def test_an_unknown_set_is_said_in_one_line(uci: ModuleType, data: Path, tmp_path: Path) -> None:
    result = run(uci, "--data", data, "--output", tmp_path / "found.tsv", "--sets", "easy,hard")
    assert result.exit_code == 2
    assert "--sets: expected some of the 2 sets of the data, found easy,hard" in result.output
    assert not (tmp_path / "found.tsv").exists()
    result = run(uci, "--data", tmp_path, "--output", tmp_path / "found.tsv")
    assert result.exit_code == 2
    assert "--data: expected the archive, or a folder with SET/conxuntos.dat" in result.output


def test_the_table_of_the_page_is_that_of_the_saved_results(uci: ModuleType) -> None:
    results = pd.read_csv(DOCS / "examples" / "uci.tsv", sep="\t")
    table = uci.summarise(results)
    developed = results["set"].isin(sorted(results["set"].unique())[::5])
    others = uci.summarise(results[~developed])["mean rank"]
    page = (DOCS / "examples-uci.md").read_text(encoding="utf-8")
    assert len(table) == len(uci.METHODS)
    for name, row in table.iterrows():
        p = "" if np.isnan(row["p"]) else f"{row['p']:.2g}"
        cells = f"{row['accuracy']:.3f} | {row['mean rank']:.2f} | {row['difference']:+.2f} | {p} | {others[name]:.2f}"
        assert f"| {name} | {cells} |" in page
