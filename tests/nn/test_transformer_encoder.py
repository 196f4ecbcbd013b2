"""The transformer as an encoder: its features, its trained weights, and runs that keep them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file

from deeprc import encoders
from deeprc.cli import main
from deeprc.config import load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.interpretation.attention import attention_table
from deeprc.interpretation.attributions import attribute
from deeprc.nn import EncoderSettings, SequenceBatch
from deeprc.nn.encoders import ConvolutionEncoder
from deeprc.nn.motif_convolution.reference import make_dense_features
from deeprc.nn.transformer import TransformerEncoder
from deeprc.runs.bundle import CARD
from deeprc.runs.experiment import resume_run, train_run
from deeprc.runs.pack import pack_run
from deeprc.runs.run import load_run
from tests.conftest import Killed, killing


@pytest.fixture
def batch() -> SequenceBatch:
    """Nine sequences of 1 to 50 residues, in another order than in the array, with a scale for each."""
    rng = np.random.default_rng(0)
    lengths = torch.tensor([5, 50, 1, 12, 5, 9, 7, 45, 3])
    residues = torch.from_numpy(rng.integers(0, 20, int(lengths.sum())).astype(np.uint8))
    scale = torch.linspace(0.5, 3, len(lengths))
    batch = SequenceBatch(residues, lengths.cumsum(0) - lengths, lengths, scale, scale, 50)
    return batch.take(torch.tensor([3, 1, 0, 2, 8, 7, 4, 5, 6]))


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Weights as if they had been trained."""
    torch.manual_seed(1)
    save_file(TransformerEncoder(EncoderSettings(2)).trained_weights(), tmp_path / "weights.safetensors")
    return tmp_path / "weights.safetensors"


def make_encoder(weights: Path) -> TransformerEncoder:
    torch.manual_seed(2)
    encoder = TransformerEncoder(EncoderSettings(6, frozen=True))
    encoder.load_weights(weights)
    return encoder


def test_features_depend_neither_on_padding_nor_on_scale(weights: Path) -> None:
    encoder = make_encoder(weights)
    features = torch.zeros(1, 5, 23)
    features[0, torch.arange(5), torch.tensor([1, 0, 15, 15, 4])] = 1
    features[:, :, 20:] = 1 / 3
    alone = encoder.encode(features, torch.tensor([5]))
    padded = encoder.encode(torch.nn.functional.pad(3 * features, (0, 0, 0, 4)), torch.tensor([5]))
    torch.testing.assert_close(padded, alone)
    reversed_features = encoder.encode(features.flip(1), torch.tensor([5]))
    assert (reversed_features - alone).abs().max() > 0.05  # the order of the residues counts


def test_frozen_features_are_those_of_the_layers_in_16_bits(weights: Path, batch: SequenceBatch) -> None:
    encoder = make_encoder(weights)
    found, exact = encoder(batch), encoder.encode(make_dense_features(batch), batch.lengths)
    torch.testing.assert_close(found, exact, atol=4e-3, rtol=0)
    assert exact.std(0).min() > 0.05
    gradients = [torch.autograd.grad(each.square().sum(), encoder.project.weight)[0] for each in (found, exact)]
    torch.testing.assert_close(*gradients, atol=0.02, rtol=0.01)
    trainable = [name for name, parameter in encoder.named_parameters() if parameter.requires_grad]
    assert trainable == ["project.weight", "project.bias"]
    torch.testing.assert_close(encoder(batch.take(slice(2, 5))), found[2:5], rtol=0, atol=1e-6)
    assert encoder(batch.take(slice(0))).shape == (0, 6)


def test_an_encoder_with_other_weights_has_other_features(weights: Path, batch: SequenceBatch) -> None:
    encoder = make_encoder(weights)
    before = encoder(batch)
    with torch.no_grad():
        encoder.layers[0].linear1.weight.mul_(2)
    exact = encoder.encode(make_dense_features(batch), batch.lengths)
    torch.testing.assert_close(encoder(batch), exact, atol=4e-3, rtol=0)
    assert (encoder(batch) - before).abs().max() > 0.05


def test_without_trained_weights_every_layer_learns(batch: SequenceBatch) -> None:
    encoder = TransformerEncoder(EncoderSettings(6))
    encoder(batch).sum().backward()
    assert encoder.layers[0].linear1.weight.grad is not None
    assert encoder.layers[0].linear1.weight.grad.abs().max() > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensor: tensor * torch.nan, r"safetensors: [a-z0-9_.]+: expected finite floating-point numbers"),
        (lambda tensor: tensor.double() * 1e300, "expected finite floating-point numbers"),  # not finite in 32 bits
        (lambda tensor: tensor.to(torch.int32), "expected finite floating-point numbers"),
        (lambda tensor: tensor * 1e20, "the weights are too large: patterns of residues are not finite"),
        (lambda tensor: tensor[:1].clone(), r"that `TransformerEncoder\.trained_weights` returns"),
    ],
)
def test_weights_of_which_no_pattern_can_be_computed(
    weights: Path, change: Callable[[torch.Tensor], torch.Tensor], message: str
) -> None:
    save_file({name: change(tensor) for name, tensor in load_file(weights).items()}, weights)
    with pytest.raises(InputError, match=message):
        make_encoder(weights)


def test_weights_in_64_bits_are_rounded(weights: Path, tmp_path: Path) -> None:
    save_file({name: tensor.double() for name, tensor in load_file(weights).items()}, tmp_path / "double.safetensors")
    encoder = make_encoder(tmp_path / "double.safetensors")
    assert encoder.embed.weight.dtype == torch.float32
    torch.testing.assert_close(encoder.embed.weight.data, load_file(weights)["embed.weight"], rtol=0, atol=0)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_a_pipe_is_refused_without_opening_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is a pipe; expected a safetensors file"):
        make_encoder(tmp_path / "pipe")


SETTINGS = [
    "embedding=transformer",
    "composition=false",
    "clones=false",
    "n_updates=4",
    "evaluate_every=2",
    "n_kernels=4",
]


@pytest.mark.slow
def test_a_run_keeps_the_weights_and_does_not_need_their_file_again(
    weights: Path, cohort: RepertoireDataset, tmp_path: Path
) -> None:
    trained, (path, out) = load_file(weights), (str(cohort.container.path), tmp_path / "run")
    (tmp_path / "mine.yaml").write_text(f"network: {{embedding: transformer, embedding_weights: {weights}}}\n")
    command = ["train", path, "--target", "status=case", "--device", "cpu", "--output", str(out)]
    with pytest.raises(SystemExit) as end:
        main([*command, "--config", str(tmp_path / "mine.yaml"), *SETTINGS])
    assert not end.value.code
    weights.unlink()
    run = load_run(out, device="cpu")
    encoder = run.model.network.embedding
    assert isinstance(encoder, TransformerEncoder)
    assert encoder.frozen
    for name, tensor in encoder.trained_weights().items():
        torch.testing.assert_close(tensor, trained[name], rtol=0, atol=0)
    with pytest.raises(SystemExit) as end:
        main(["predict", str(out), path, "-o", str(tmp_path / "predictions.tsv"), "--device", "cpu"])
    assert not end.value.code
    pack_run(out, tmp_path / "packed.deeprc")
    packed = load_run(tmp_path / "packed.deeprc", device="cpu")
    assert packed.settings.config.network.embedding_weights == "weights.safetensors"  # without its folder
    assert str(tmp_path) not in (packed.path / CARD).read_text()
    written, again = (pd.read_csv(each, sep="\t") for each in (out / "predictions.tsv", tmp_path / "predictions.tsv"))
    both = written.merge(again, on="repertoire_id")
    np.testing.assert_allclose(both["probability_x"], both["probability_y"], atol=1e-5)
    table = attention_table(run.model, cohort, 0, top=5)
    found = attribute(run.model, cohort, table, steps=20)
    torch.testing.assert_close(
        torch.from_numpy(found.residues).nansum(dim=1), torch.from_numpy(found.change), atol=1e-3, rtol=0.05
    )


@pytest.mark.slow
def test_an_interrupted_run_goes_on_without_the_file(weights: Path, cohort: RepertoireDataset, tmp_path: Path) -> None:
    config = load_config("deeprc", [*SETTINGS, f"embedding_weights={weights}"])
    whole = train_run(cohort.container.path, tmp_path / "whole", targets="status=case", config=config, device="cpu")
    with pytest.raises(Killed):
        train_run(
            cohort.container.path,
            tmp_path / "part",
            targets="status=case",
            config=config,
            device="cpu",
            progress=killing(3),
        )
    weights.unlink()
    part = resume_run(tmp_path / "part")
    for name, tensor in whole.model.network.state_dict().items():
        torch.testing.assert_close(part.model.network.state_dict()[name], tensor, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["embedding=transformer", "embedding_weights=none.safetensors"], "expected a safetensors file"),
        (["embedding=transformer", "embedding_weights=text.safetensors"], "expected a safetensors file"),
        (["embedding=transformer", "embedding_weights=other.safetensors"], "that `TransformerEncoder.trained_weights`"),
    ],
)
def test_unusable_weights_are_said_before_anything_is_written(
    cohort: RepertoireDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.safetensors").write_text("no weights")
    save_file({"embed.weight": torch.zeros(2, 3)}, "other.safetensors")
    with pytest.raises(InputError, match=message):
        train_run(cohort.container.path, "run", targets="status=case", config=load_config("deeprc", settings))
    assert not Path("run").exists()


def test_encoders_without_trained_weights_are_refused_with_all_other_errors() -> None:
    settings = ["embedding_weights=w.safetensors", "n_updates=0", "top_number=3", "n_kernel=4"]
    with pytest.raises(InputError) as caught:
        load_config("deeprc", settings)
    for part in (
        "network.embedding_weights: expected null with embedding=convolution, which cannot take over weights, found",
        "training.n_updates: expected at least 1",
        "training.top_number: expected unattended=constant",
        "did you mean 'n_kernels'",
    ):
        assert part in str(caught.value)
    with pytest.raises(InputError, match="expected null with embedding=lstm"):
        load_config("deeprc", ["embedding=lstm", "embedding_weights=w.safetensors"])
    with pytest.raises(InputError, match="embedding: expected one of") as caught:  # nothing is said of the default
        load_config("deeprc", ["embedding=lstn", "embedding_weights=w.safetensors"])
    assert "expected null" not in str(caught.value)


def test_encoders_of_other_packages_refuse_weights_themselves(
    cohort: RepertoireDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(encoders._FACTORIES, "plain-convolution", ConvolutionEncoder)
    config = load_config("deeprc", ["embedding=plain-convolution", "embedding_weights=w.safetensors"])
    with pytest.raises(InputError, match="expected null, because this encoder"):
        train_run(cohort.container.path, tmp_path / "run", targets="status=case", config=config)


def test_settings_that_do_not_fit_are_named() -> None:
    with pytest.raises(InputError, match=r"network\.abundance: expected none with embedding=transformer, found log1p"):
        load_config("deeprc", ["embedding=transformer", "abundance=log1p"])
    config = load_config("deeprc", {"embedding": "transformer", "embedding_weights": Path("a") / "b"})
    assert config.network.embedding_weights == str(Path("a") / "b")
    with pytest.raises(InputError, match=r"embedding_weights: expected the path of a file, or null, found 3"):
        load_config("deeprc", ["embedding_weights=3"])
