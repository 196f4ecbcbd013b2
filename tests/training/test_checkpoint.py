"""Files of tensors."""

from pathlib import Path

import torch

from deeprc.training.checkpoint import load_tensors, save_tensors


def test_equal_contents_are_equal_bytes(tmp_path: Path) -> None:
    """The safetensors library writes the keys of the metadata in a random order."""
    tensors = {"b": torch.arange(3.0), "a": torch.ones(2, 2), "\u00fc": torch.zeros(0)}
    for index in range(8):
        save_tensors(tmp_path / f"{index}.safetensors", tensors, {"text": "\u00e9", "n": 1})
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1
    found, state = load_tensors(tmp_path / "0.safetensors")
    assert state == {"text": "\u00e9", "n": 1}
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
