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

from deeprc import encoders
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.nn import EncoderSettings

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def transformer(load_example: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import the example, with a small network."""
    module = load_example("transformer")
    for name, value in {"WIDTH": 16, "LAYERS": 2, "MEASURED": (0, 40), "HELD_OUT": 100, "BATCH": 64}.items():
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
    assert [(head["layer"], head["head"]) for head in last["heads"]] == [(i, j) for i in (1, 2) for j in (1, 2, 3, 4)]
    assert {head["operating_class"] for head in first["heads"]} == {"I"}  # an untrained head averages almost all
    none, *_, every = found["replaced"]
    assert none == {"heads": "none", "n": 0, "loss": last["loss"], "accuracy": last["accuracy"]}
    assert sum(each["n"] for each in found["replaced"][1:3]) == every["n"] == 8  # class I and the others
    assert every["loss"] != none["loss"]


def test_a_replaced_head_weighs_all_residues_alike_and_others_stay(transformer: ModuleType) -> None:
    torch.manual_seed(0)
    model = transformer.ReceptorTransformer(EncoderSettings(3))
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


def test_representations_do_not_depend_on_padding_and_scale(transformer: ModuleType) -> None:
    torch.manual_seed(0)
    model = transformer.ReceptorTransformer(EncoderSettings(6))
    features = torch.zeros(1, 5, 23)
    features[0, torch.arange(5), torch.tensor([1, 0, 15, 15, 4])] = 1
    features[:, :, 20:] = 1 / 3
    alone = model.encode(features, torch.tensor([5]))
    padded = model.encode(torch.nn.functional.pad(3 * features, (0, 0, 0, 4)), torch.tensor([5]))
    torch.testing.assert_close(padded, alone)


def test_deeprc_trains_with_the_encoder_whose_layers_stay_as_they_are(
    transformer: ModuleType,
    learned: Path,
    tmp_path: Path,
    cohort_factory: Callable[..., RepertoireDataset],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(encoders, "_FACTORIES", dict(encoders._FACTORIES))
    monkeypatch.setattr(transformer, "FOLDS", 3)
    cohort = cohort_factory(20, 20)
    weights_file = Path(f"{learned}.safetensors")
    options = ["--target", "status", "--weights", str(weights_file), "--output", str(tmp_path / "runs")]
    settings = ["n_updates=3", "composition=false", "clones=false", "n_kernels=4"]
    command = ["compare", "--cohort", str(cohort.container.path), *options, *settings]
    result = CliRunner().invoke(transformer.main, command, catch_exceptions=False)
    assert result.exit_code == 0
    lines = [line for line in result.output.splitlines() if ", fold-" in line]
    names = [f"{encoder}, fold-{fold}" for encoder in ("convolution", "transformer") for fold in range(3)]
    assert [line.split(":")[0] for line in lines] == names
    weights = transformer.load_file(weights_file)
    trained = transformer.load_file(tmp_path / "runs" / "transformer" / "fold-0" / "model.safetensors")
    (name,) = [name for name in trained if name.endswith("layers.0.linear1.weight")]
    torch.testing.assert_close(trained[name], weights["layers.0.linear1.weight"], rtol=0, atol=0)
    encoders._FACTORIES.pop("transformer")  # the command registers it once per process
    again = CliRunner().invoke(transformer.main, command, catch_exceptions=False)
    assert [line for line in again.output.splitlines() if ", fold-" in line] == lines
    encoders._FACTORIES.pop("transformer")
    with pytest.raises(InputError, match="another `config`"):  # runs with other settings are not taken for these
        CliRunner().invoke(transformer.main, [*command, "n_updates=4"], catch_exceptions=False)


def test_what_cannot_be_read_is_said_in_one_line(transformer: ModuleType, tmp_path: Path) -> None:
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
