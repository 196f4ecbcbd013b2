"""examples/molecules.py learns a toy, computes nothing twice, and says what it needs."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

DOCS = Path(__file__).parents[2] / "docs"
CHAINS = ["C" * length for length in range(1, 11)] + ["C" * length + "OC" for length in range(1, 6)]
ENDS = {"C(=O)O": 1, "CC(=O)O": 1, "CN": 0, "CO": 0, "CCl": 0, "C(N)C(=O)O": 1}  # acids are the positive class


@pytest.fixture
def molecules(load_example: Callable[[str], ModuleType]) -> ModuleType:
    return load_example("molecules")


def write_toy(folder: Path) -> None:
    """Write acids and others; the first molecule twice, and one that cannot be read."""
    rows = [(chain + end, label) for chain, (end, label) in product(CHAINS, ENDS.items())]
    rows += [rows[0], ("C(((", 1)]
    pd.DataFrame(rows, columns=["smiles", "p_np"]).to_csv(folder / "BBBP.csv.gz", index=False)


@pytest.mark.long
def test_a_toy_is_learned_by_every_method_and_no_row_is_computed_twice(
    molecules: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("rdkit", reason="RDKit is not installed")
    write_toy(tmp_path)
    monkeypatch.setattr(molecules, "CHECKPOINTS", (10, 40))
    options = ["--data", str(tmp_path), "--output", str(tmp_path / "out.tsv"), "--sets", "bbbp", "--repeats", "1"]
    result = CliRunner().invoke(molecules.main, options, catch_exceptions=False)
    assert result.exit_code == 0
    found = pd.read_csv(tmp_path / "out.tsv", sep="\t")
    assert sorted(found["method"]) == sorted(molecules.METHODS)
    assert found["auc"].min() > 0.95
    (kept,) = tmp_path.glob("BBBP-*.npz")
    with np.load(kept) as file:
        features = dict(file)
    assert features["rows"].max() < len(CHAINS) * len(ENDS)  # neither the duplicate nor what cannot be read
    assert len(np.unique(features["counts"], axis=0)) == len(features["rows"])
    assert "paper, HopfieldLayer" in result.output

    def fail(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(molecules, "run", fail)
    monkeypatch.setattr(molecules, "compute_features", fail)
    again = CliRunner().invoke(molecules.main, options, catch_exceptions=False)
    assert again.output.splitlines()[-6:] == result.output.splitlines()[-6:]
    pd.read_csv(tmp_path / "BBBP.csv.gz")[1:].to_csv(tmp_path / "BBBP.csv.gz", index=False)
    with pytest.raises(AssertionError):  # features of another table are not taken for this one's
        CliRunner().invoke(molecules.main, options, catch_exceptions=False)


def test_scaling_looks_at_training_molecules_alone(molecules: ModuleType) -> None:
    rng = np.random.default_rng(0)
    features = {"counts": rng.integers(0, 3, (40, 6)).astype(np.uint8), "descriptors": rng.normal(size=(40, 5))}
    training = np.arange(30)
    x = molecules.scale(features, training)
    assert x.shape == (40, 11)
    np.testing.assert_allclose(x[training].mean(0), 0, atol=1e-6)
    for block in (x[training, :6], x[training, 6:]):
        assert np.square(block).sum(1).mean() == pytest.approx(1, rel=1e-5)
    features["counts"][30:], features["descriptors"][30:] = 9, np.nan
    np.testing.assert_array_equal(molecules.scale(features, training)[training], x[training])


def test_the_auc_is_the_mean_of_the_tasks_that_have_both_classes(molecules: ModuleType) -> None:
    labels = np.array([[0, 0, 1], [1, 0, 0], [1, 0, 1], [0, 0, 0]])
    scores = np.array([[0, 5, 1], [1, 5, 0], [2, 5, 0.5], [0.5, 5, 2]])
    assert molecules.mean_auc(labels, scores) == (1.0 + 0.5) / 2


def test_without_rdkit_one_line_says_what_to_install(
    molecules: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_toy(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = CliRunner().invoke(molecules.main, ["--data", str(tmp_path), "--sets", "bbbp"])
    assert result.exit_code == 2
    assert result.output.splitlines()[-1] == "Error: fingerprints need RDKit: pip install 'deeprc[molecules]'"


@pytest.mark.parametrize("wrong", ["BACE", "bbbp,hiv"])
def test_a_set_that_is_unknown_or_has_no_file_is_named(molecules: ModuleType, tmp_path: Path, wrong: str) -> None:
    write_toy(tmp_path)
    result = CliRunner().invoke(molecules.main, ["--data", str(tmp_path), "--sets", wrong])
    assert result.exit_code == 2
    assert result.output.splitlines()[-1].endswith(f"with a file in {tmp_path}, found {wrong.split(',')[-1]}")


def test_the_page_has_the_saved_numbers(molecules: ModuleType) -> None:
    page = (DOCS / "examples-molecules.md").read_text(encoding="utf-8")
    results = pd.read_csv(DOCS / "examples" / "molecules.tsv", sep="\t")
    lines = page[page.index("| method | BACE | BBBP | HIV | SIDER |") :].splitlines()
    rows = {name: cells for name, *cells in ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:10])}
    for method in molecules.METHODS:
        for name, cell in zip(molecules.FILES, rows.pop(method), strict=True):
            own = results.loc[(results["set"] == name) & (results["method"] == method), "auc"]
            spread = f" ± {own.std():.3f}" if len(own) > 1 else ""
            missing = f" ({len(own)})" if len(own) < 5 else ""
            assert cell == (f"{own.mean():.3f}{spread}{missing}" if len(own) else "")
    assert rows.pop("paper: HopfieldLayer") == list(molecules.PAPER.values())
    assert [name.startswith("paper: ") for name in rows] == [True] * 3
