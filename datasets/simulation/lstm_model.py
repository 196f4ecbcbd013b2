"""The weights of an LSTM that writes sequences residue by residue, and the file of these weights.

Letters: H units, T = 21 tokens: the 20 amino acids in the alphabet's order, then the boundary, which stands for the
start in the input and for the end in the output.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.documents import parse_json, read_arrays
from deeprc.errors import InputError
from deeprc.files import write_safetensors

__all__ = ["BOUNDARY", "MAX_LENGTH", "N_TOKENS", "SHIPPED", "LstmModel", "check_hidden", "load_model", "save_model"]

MAX_LENGTH = 40
"""Number of residues of the longest sequence that is used for training or written; a sequence of this length always
ends."""

BOUNDARY = len(AMINO_ACIDS)
"""Token of the start in the input, and of the end in the output."""

N_TOKENS = len(AMINO_ACIDS) + 1

SHIPPED = Path(__file__).with_name("trb_lstm.safetensors")
"""Path of the model in the package: human TRB junctions; docs/simulation.md says how it was made."""

_UNITS = 16
_MAX_UNITS = 1024


@dataclass(frozen=True)
class LstmModel:
    """A trained LSTM of one layer; all arrays are float32. Gates are in torch's order: input, forget, cell, output.

    Attributes
    ----------
    inputs
        Numbers that each input token adds to the gates, with the gates' biases, (T, 4 H).
    recurrent
        Numbers that each unit adds to the gates, (H, 4 H).
    outputs, bias
        Weights from the units to the logits of the next token, (H, T), and biases of the logits, (T,).
    about
        Origin of the model: `source`, `sequences`, `held_out_loss` (nats per token), `deeprc`.
    """

    inputs: NDArray[np.float32]
    recurrent: NDArray[np.float32]
    outputs: NDArray[np.float32]
    bias: NDArray[np.float32]
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def hidden(self) -> int:
        """The number of units, H."""
        return len(self.recurrent)

    @property
    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """The arrays by name."""
        return {name: getattr(self, name) for name in _list_shapes(self.hidden)}


def _list_shapes(hidden: int) -> dict[str, tuple[int, ...]]:
    return {
        "inputs": (N_TOKENS, 4 * hidden),
        "recurrent": (hidden, 4 * hidden),
        "outputs": (hidden, N_TOKENS),
        "bias": (N_TOKENS,),
    }


def save_model(path: Path, model: LstmModel) -> None:
    """Write a model as a safetensors file, to a hidden file that is then renamed."""
    about = {"alphabet": AMINO_ACIDS, "hidden": model.hidden, **model.about}
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in model.tensors.items()}
    write_safetensors(
        path, lambda temporary_path: save_file(tensors, temporary_path, metadata={"lstm": json.dumps(about)})
    )


def load_model(path: Path = SHIPPED) -> LstmModel:
    """Read a model that `save_model` wrote.

    Raises
    ------
    InputError
        If the file is missing or damaged, or its tensors are not those of a model.
    """
    tensors, texts = read_arrays(path, expected="a model made by `deeprc simulate train-lstm`")
    about = parse_json(texts.get("lstm", "{}"), source=f"{path}: its header")
    _check_tensors(path, tensors, about)
    return LstmModel(**tensors, about=about)


def _check_tensors(path: Path, tensors: dict[str, NDArray[Any]], about: Any) -> None:
    """Raise InputError unless the tensors of a file are those of an LSTM over amino acids."""
    recurrent = tensors.get("recurrent")
    hidden = len(recurrent) if recurrent is not None and recurrent.ndim else 0
    shapes = _list_shapes(hidden)
    if set(tensors) != set(shapes):
        raise InputError(
            f"{path}: expected the tensors {_format_names(shapes)}, found {_format_names(tensors) or 'none'}"
        )
    check_hidden(hidden, f"{path}: the tensor 'recurrent'")
    for name, shape in shapes.items():
        tensor = tensors[name]
        if tensor.dtype != np.float32 or tensor.shape != shape:
            raise InputError(
                f"{path}: the tensor {name!r} is {tensor.dtype} of shape {tensor.shape}; expected float32 of {shape}"
            )
        if not np.isfinite(tensor).all():
            raise InputError(f"{path}: the tensor {name!r} holds numbers that are not finite")
    if not isinstance(about, dict) or about.get("alphabet", AMINO_ACIDS) != AMINO_ACIDS:
        raise InputError(f"{path}: expected a model of the alphabet {AMINO_ACIDS}")


def check_hidden(hidden: int, name: str = "hidden") -> None:
    """Refuse a number of units for which the compiled recurrence is not written."""
    if hidden % _UNITS or not _UNITS <= hidden <= _MAX_UNITS:
        raise InputError(f"{name} has {hidden} units; expected a multiple of {_UNITS} up to {_MAX_UNITS}")


def _format_names(names: Mapping[str, Any]) -> str:
    return ", ".join(sorted(names))
