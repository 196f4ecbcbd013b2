"""Digests of tensors."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from deeprc.arrays import digest_buffers

__all__ = ["digest_tensors"]


def digest_tensors(tensors: Mapping[str, Tensor], *, text: str = "") -> str:
    """Return a digest, as hexadecimal text, of a text and of named tensors with their types and shapes.

    The order and the device of the tensors do not matter.
    """
    buffers = (
        (f"{name} {tensors[name].dtype} {list(tensors[name].shape)}", _copy_bytes(tensors[name]))
        for name in sorted(tensors)
    )
    return digest_buffers(buffers, text)


def _copy_bytes(tensor: Tensor) -> memoryview:
    """Return the elements of a tensor in new memory, end to end; a single element may otherwise have the stride 0."""
    return tensor.detach().cpu().flatten().clone(memory_format=torch.contiguous_format).view(torch.uint8).numpy().data
