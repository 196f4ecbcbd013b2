"""The example of a transformer learns, measures its heads, replaces them, and is an encoder of DeepRC."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.nn import EncoderSettings
from deeprc.nn.transformer import TransformerEncoder
from deeprc.runs.run import load_run

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def transformer(load_example: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import the example, with fewer sequences and folds."""
    module = load_example("transformer")
    for name, value in {"MEASURED": (0, 40), "HELD_OUT": 100, "BATCH": 32, "FOLDS": 3}.items():
        monkeypatch.setattr(module, name, value)
    return module


@pytest.fixture
def learned(transformer: ModuleType, tmp_path: Path) -> Path:
    """Learn sequences CASS...F whose middle repeats one residue: a masked residue follows from the others."""
    letters = np.random.default_rng(0).choice(list("ADEGKLNPQRSTVY"), 3000)
    sequences = [f"CASS{letter * (3 + number % 5)}F" for number, letter in enumerate(letters)]
    pd.DataFrame({"junction_aa": sequences}).to_csv(tmp_path / "sequences.tsv.gz", sep="\t", index=False)
    options = ["learn", "--data", str(tmp_path / "sequences.tsv.gz"), "--output", str(tmp_path / "out.v2"), "--updates"]
    result = CliRunner().invoke(transformer.main, [*options, "40"], catch_exceptions=False)
    assert result.exit_code == 0
    return tmp_path / "out.v2"


def test_masked_residues_are_learned_and_heads_are_measured_and_replaced(learned: Path) -> None:
    found = json.loads(Path(f"{learned}.json").read_text())
    first, last = found["history"]
    assert last["loss"] < 0.85 * first["loss"]
    assert [(head["layer"], head["head"]) for head in last["heads"]] == [
        (i, j) for i in (1, 2, 3, 4) for j in (1, 2, 3, 4)
    ]
    assert {head["operating_class"] for head in first["heads"]} == {"I"}  # an untrained head averages almost all
    none, *_, every = found["replaced"]
    assert none == {"heads": "none", "n": 0, "loss": last["loss"], "accuracy": last["accuracy"]}
    assert sum(each["n"] for each in found["replaced"][1:3]) == every["n"] == 16  # class I and the others
    assert every["loss"] != none["loss"]


def test_a_replaced_head_weighs_all_residues_alike_and_others_stay(transformer: ModuleType) -> None:
    torch.manual_seed(0)
    model = TransformerEncoder(EncoderSettings(3))
    replaced = transformer.replace_by_average(model, [{"layer": 1, "head": 2}])
    residues, lengths = torch.randint(20, (5, 7)), torch.tensor([7, 7, 7, 4, 4])
    residues[3:, 4:] = -1
    one_hot, masked = transformer.mask_residues((residues, lengths), torch.Generator().manual_seed(0))
    assert not one_hot[masked].any()
    assert not one_hot[residues < 0].any()
    assert not masked[residues < 0].any()
    before: list[torch.Tensor] = []
    after: list[torch.Tensor] = []
    model.patterns(one_hot, lengths, before)
    replaced.patterns(one_hot, lengths, after)
    torch.testing.assert_close(after[0][0, 1], torch.full((7, 7), 1 / 7))
    torch.testing.assert_close(after[0][3, 1, :4], torch.tensor([[0.25] * 4 + [0.0] * 3] * 4))
    torch.testing.assert_close(after[0][:, [0, 2, 3]], before[0][:, [0, 2, 3]])


@pytest.mark.long
def test_both_encoders_are_trained_on_the_same_folds(
    transformer: ModuleType, tmp_path: Path, cohort_factory: Callable[..., RepertoireDataset]
) -> None:
    cohort = cohort_factory(20, 20)
    save_file(TransformerEncoder(EncoderSettings(1)).trained_weights(), tmp_path / "own.safetensors")
    options = ["--target", "status", "--weights", str(tmp_path / "own.safetensors"), "--output", str(tmp_path / "runs")]
    command = ["compare", "--cohort", str(cohort.container.path), *options, "n_updates=3", "n_kernels=4"]
    command += ["composition=false", "clones=false"]
    result = CliRunner().invoke(transformer.main, command, catch_exceptions=False)
    assert result.exit_code == 0
    found = pd.read_csv(tmp_path / "runs" / "compare.tsv", sep="\t")
    names = ["convolution", "convolution-random", "transformer"]
    assert found["encoder"].tolist() == [name for name in names for _ in range(3)]
    assert found["fold"].tolist() == ["fold-0", "fold-1", "fold-2"] * 3
    assert found["auc"].between(0, 1).all()
    tested = [pd.read_csv(tmp_path / "runs" / name / "fold-1" / "predictions.tsv", sep="\t") for name in names]
    ids = [each.loc[each["split"] == "test", "repertoire_id"].tolist() for each in tested]
    assert ids[0] == ids[1] == ids[2]
    own = load_run(tmp_path / "runs" / "transformer" / "fold-0", device="cpu").settings.config
    assert (own.network.embedding, own.network.composition, own.network.clones) == ("transformer", False, False)
    mean = found.loc[found["encoder"] == "transformer", "auc"].mean()
    assert f"{mean:.3f}" in result.stdout.splitlines()[-1]
    again = CliRunner().invoke(transformer.main, command, catch_exceptions=False)  # nothing is trained again
    assert again.stdout.splitlines()[-3:] == result.stdout.splitlines()[-3:]
    fewer = CliRunner().invoke(transformer.main, [*command, "--folds", "1"], catch_exceptions=False)
    assert fewer.exit_code == 0
    of_first = pd.read_csv(tmp_path / "runs" / "compare.tsv", sep="\t")
    assert of_first["auc"].tolist() == found.loc[found["fold"] == "fold-0", "auc"].tolist()
    with pytest.raises(InputError, match=r"other settings \(n_updates\)"):  # they are not taken for these
        CliRunner().invoke(transformer.main, [*command, "n_updates=4"], catch_exceptions=False)


def test_unusable_data_and_weights_are_refused_in_one_line(transformer: ModuleType, tmp_path: Path) -> None:
    table = tmp_path / "sequences.tsv"
    pd.DataFrame({"junction_aa": ["CASSF", "CAXSF", "CA*F", None] * 60}).to_csv(table, sep="\t", index=False)
    result = CliRunner().invoke(transformer.main, ["learn", "--data", str(table)])
    assert result.exit_code == 2
    assert result.output.splitlines()[-1] == f"Error: {table}: expected more than 100 sequences, found 60"
    result = CliRunner().invoke(transformer.main, ["compare", "--weights", str(tmp_path / "none")])
    assert result.exit_code == 2
    assert "does not exist" in result.output


def test_the_page_has_the_saved_numbers() -> None:
    page = (DOCS / "examples-transformer.md").read_text(encoding="utf-8")
    saved = json.loads((DOCS / "examples" / "transformer.json").read_text(encoding="utf-8"))
    for each in saved["history"]:
        of_class_1 = [head["layer"] for head in each["heads"] if head["operating_class"] == "I"]
        of_class_2 = sum(head["operating_class"] == "II" for head in each["heads"])
        by_layer = ", ".join(str(of_class_1.count(layer)) for layer in (1, 2, 3, 4))
        row = f"| {each['update']:,} | {each['loss']:.3f} | {each['accuracy']:.3f} | {len(of_class_1)} | {of_class_2} |"
        assert f"{row} {by_layer} |" in page
    for each in saved["replaced"]:
        assert f" | {each['n']} | {each['loss']:.3f} | {each['accuracy']:.3f} |" in page


def test_the_page_has_the_saved_comparison() -> None:
    page = (DOCS / "examples-transformer.md").read_text(encoding="utf-8")
    saved = pd.read_csv(DOCS / "examples" / "transformer.tsv", sep="\t")
    lines = page[page.index("| cohort | repertoires x sequences |") :].split("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert len(rows) == saved["cohort"].nunique()
    for (_, own), row in zip(saved.groupby("cohort", sort=False), rows, strict=True):
        by_encoder = own.groupby("encoder", sort=False)
        (n_folds,) = by_encoder["fold"].nunique().unique()
        spreads = [f" ± {each['auc'].std():.3f}" if n_folds == 5 else f" ({n_folds})" for _, each in by_encoder]
        means = [f"{each['auc'].mean():.3f}" for _, each in by_encoder]
        assert row[3:6] == [mean + spread for mean, spread in zip(means, spreads, strict=True)]
        assert row[6] == ", ".join(f"{each['seconds'].sum():,}" for _, each in by_encoder)
