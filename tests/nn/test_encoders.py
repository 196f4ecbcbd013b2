"""Encoders are exchanged by name: one that another package brings is trained, explained and reported like our own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from deeprc import encoders
from deeprc.cli import main
from deeprc.config import load_config
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.encoders import _list_installed, find_encoder, list_encoders, register_encoder
from deeprc.errors import InputError
from deeprc.interpretation.attention import attention_table
from deeprc.interpretation.attributions import attribute
from deeprc.nn import DeepRC, EncoderSettings, SequenceEncoder
from deeprc.nn.encoders import ConvolutionEncoder
from deeprc.nn.sequences import SequenceBatch
from deeprc.runs.run import load_run
from deeprc.settings import list_settings

PACKAGE = '''
"""An encoder that another package brings: the average of learned vectors of residues."""
import torch
from torch import nn
from deeprc.nn import EncoderSettings, SequenceEncoder


class Composition(SequenceEncoder):
    def __init__(self, settings: EncoderSettings) -> None:
        super().__init__(settings.out_features)
        self.project = nn.Linear(23, settings.out_features)

    def linear_part(self, features):
        return self.project(features)  # (N, L, D)

    def encode(self, linear, lengths):
        inside = torch.arange(linear.shape[1], device=lengths.device) < lengths[:, None]
        return torch.tanh((linear * inside[:, :, None]).sum(dim=1) / lengths[:, None])
'''


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with the entry point, as pip would leave it."""
    folder = tmp_path / "site"
    (folder / "composition-1.0.dist-info").mkdir(parents=True)
    (folder / "composition_encoder.py").write_text(PACKAGE)
    (folder / "composition-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: composition\nVersion: 1.0\n"
    )
    entry = "[deeprc.encoders]\ncomposition = composition_encoder:Composition\n"
    (folder / "composition-1.0.dist-info" / "entry_points.txt").write_text(entry)
    monkeypatch.syspath_prepend(str(folder))
    _list_installed.cache_clear()
    yield folder
    _list_installed.cache_clear()


@pytest.mark.slow
def test_an_encoder_of_another_package(installed: Path, cohort: RepertoireDataset, tmp_path: Path) -> None:
    assert list_encoders() == ["convolution", "lstm", "transformer", "composition"]
    path, out = str(cohort.container.path), tmp_path / "run"
    settings = ["embedding=composition", "n_updates=4", "evaluate_every=2", "n_kernels=6", "n_sequences=20"]
    with pytest.raises(SystemExit) as end:
        main(
            [
                "train",
                path,
                "--target",
                "status=case",
                "--folds",
                "3",
                "--device",
                "cpu",
                "--output",
                str(out),
                *settings,
            ]
        )
    assert not end.value.code
    run = load_run(out, device="cpu")
    assert type(run.model.network.embedding).__name__ == "Composition"
    table = attention_table(run.model, cohort, 0, top=5)
    found = attribute(run.model, cohort, table, steps=20)
    torch.testing.assert_close(
        torch.from_numpy(found.residues).nansum(dim=1), torch.from_numpy(found.change), atol=1e-4, rtol=1e-3
    )
    with pytest.raises(SystemExit) as end:
        main(["report", str(out), path, "-o", str(tmp_path / "page.html"), "--top", "5", "--device", "cpu"])
    assert not end.value.code
    assert "embedding: composition" in " ".join((tmp_path / "page.html").read_text().split())


def test_nothing_that_a_file_names_is_imported(tmp_path: Path) -> None:
    message = r"expected one of convolution, lstm, transformer, found 'os:system' \(.*encoders.register_encoder in"
    with pytest.raises(InputError, match=f"network.embedding: {message}"):
        load_config("deeprc", ["embedding=os:system"])
    with pytest.raises(ValueError, match=message):
        find_encoder("os:system")


class Lengths(SequenceEncoder):
    """The length of a sequence, D times."""

    def __init__(self, settings: EncoderSettings) -> None:
        super().__init__(settings.out_features)
        self.scale = nn.Parameter(torch.ones(settings.out_features))

    def encode(self, linear: Tensor, lengths: Tensor) -> Tensor:
        return lengths[:, None].to(self.scale) * self.scale


def test_a_registered_encoder_can_be_named_and_a_known_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders, "_FACTORIES", dict(encoders._FACTORIES))
    register_encoder("lengths", Lengths)
    register_encoder("lengths", Lengths)  # once more the same, as in a notebook's cell
    with pytest.raises(ValueError, match="an encoder 'lstm' is registered already"):
        register_encoder("lstm", Lengths)
    assert load_config("deeprc", ["embedding=lengths"]).network.embedding == "lengths"
    assert isinstance(DeepRC(embedding="lengths").embedding, Lengths)
    (setting,) = (each for each in list_settings() if each.name == "embedding")
    assert setting.kind == "convolution, lstm, transformer, lengths"


def test_the_linear_part_and_the_rest_are_the_convolution(cohort: RepertoireDataset) -> None:
    """What attributions walk through equals what training computes."""
    from deeprc.nn.batch import Collator

    encoder = ConvolutionEncoder(EncoderSettings(12, 5))
    batch = Collator(cohort, "none").take(0, slice(None)).sequences
    torch.testing.assert_close(SequenceEncoder.forward(encoder, batch), encoder(batch), atol=1e-5, rtol=1e-5)


def test_the_best_windows_of_a_kernel_are_those_of_its_precision() -> None:
    """The window of WA is 1.003, but 1 in bfloat16, and that of CD is 1.001 in both."""
    codes = torch.tensor([AMINO_ACIDS.index(letter) for letter in "WACD"])
    first, one = torch.zeros(1, dtype=torch.int64), torch.ones(1)
    sequences = SequenceBatch(codes.to(torch.uint8), first, first + 4, one, one, 4)
    for precision, start in (("float32", 0), ("bfloat16", 2)):
        encoder = ConvolutionEncoder(EncoderSettings(1, 2, precision=precision))  # type: ignore[arg-type]  # a text
        with torch.no_grad():
            encoder.weight.zero_()
            encoder.weight[0, codes[[0, 2]], 0] = torch.tensor([1.003, 1.0])
            encoder.weight[0, codes[3], 1] = 0.001
        assert encoder.best_windows(sequences, np.array([0])).tolist() == [[start]]


def test_a_configuration_is_loaded_without_an_import_of_torch() -> None:
    code = "import sys; from deeprc.config import load_config; load_config('deeprc'); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
