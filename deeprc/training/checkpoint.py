"""Weights and checkpoints as safetensors files, without pickle and never half-written."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from deeprc.documents import abbreviate, parse_json, shorten_message, to_plain, validate
from deeprc.earlier_names import update_name, update_names
from deeprc.errors import InputError
from deeprc.files import check_regular_file, write_safetensors
from deeprc.nn.digest import digest_tensors

__all__ = ["LOSSES", "load_tensors", "save_tensors"]

LOSSES = "losses.since_evaluation"
"""Name of the vector of losses since the last evaluation, which may have any size."""

_KINDS = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64"}
"""Names in a safetensors header of the types that networks and optimisers have."""


def save_tensors(path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Write tensors and a state of JSON values into one file, under a temporary name first."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(to_plain(state))
    metadata = {"state": text, "digest": digest_tensors(contiguous, text=text)}

    def save(temporary_path: Path) -> None:
        save_file(contiguous, temporary_path, metadata=metadata)
        _sort_header(temporary_path)

    write_safetensors(path, save)


def _sort_header(path: Path) -> None:
    """Sort the header of a safetensors file, which has a random order, so that equal contents give equal bytes."""
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        if len(text) <= size:
            file.seek(8)
            file.write(text.ljust(size))


def load_tensors(
    path: Path, expected: Callable[[dict[str, Any], Collection[str]], Mapping[str, Tensor]] | None = None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors, on the CPU, and the state that `save_tensors` wrote.

    Parameters
    ----------
    path
        Path of the file.
    expected
        Function of the state and the names of the tensors. It returns tensors with the shapes and types that the file
        must have, perhaps on the device `meta`. They are compared with the header of the file before anything else is
        read; the vector with the name `LOSSES` may have any size. None: tensors are not checked.

    Raises
    ------
    InputError
        If the file is missing or damaged, its tensors are not those that are expected, or a number is not finite.
    """
    check_regular_file(path, expected="a safetensors file")
    try:
        with safe_open(path, framework="pt") as file:
            stored_names = {update_name(name): name for name in list(file.keys())}
            metadata = file.metadata() or {}
            text = metadata.get("state", "{}")
            state = update_names(validate(parse_json(text, source=f"{path}: state"), dict[str, Any], f"{path}: state"))
            if expected is not None:
                _check_header(path, file, stored_names, expected(state, stored_names.keys()))
            tensors = {name: file.get_tensor(stored_name) for name, stored_name in stored_names.items()}
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: is damaged or not a safetensors file: {shorten_message(error)}") from error
    digest = metadata.get("digest", "")  # files of earlier versions have none
    stored = {stored_names[name]: tensor for name, tensor in tensors.items()}
    if digest not in ("", digest_tensors(stored, text=text)):
        raise InputError(f"{path}: is damaged: its numbers are not those that were written")
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise InputError(f"{path}: {abbreviate(name)}: expected finite numbers")
    return tensors, state


def _check_header(path: Path, file: Any, stored_names: Mapping[str, str], expected: Mapping[str, Tensor]) -> None:
    """Compare shapes and types of a file's tensors, and their names today, with those that are expected."""
    missing, stray = sorted(expected.keys() - stored_names.keys()), sorted(stored_names.keys() - expected.keys())
    if missing or stray:
        problem = f"has no {abbreviate(missing[0])}" if missing else f"has {abbreviate(stray[0])}"
        raise InputError(f"{path}: does not fit config.yaml: {problem}")
    for name, like in expected.items():
        part = file.get_slice(stored_names[name])
        kind, shape = _KINDS[like.dtype], list(like.shape)
        fits = len(part.get_shape()) == 1 if name == LOSSES else list(part.get_shape()) == shape
        if part.get_dtype() != kind or not fits:
            seen = f"{part.get_dtype()} of shape {abbreviate(part.get_shape())}"
            raise InputError(
                f"{path}: does not fit config.yaml: {name}: expected {kind} of shape {shape}, found {seen}"
            )
