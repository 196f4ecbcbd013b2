"""Digests of tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

__all__ = ["digest_tensors"]


def digest_tensors(tensors: Mapping[str, Tensor], *, text: str = "") -> str:
    """Return a digest, as hexadecimal text, of a text and of named tensors with their types and shapes.

    The order and the device of the tensors do not matter.
    """
    content = hashlib.blake2b(text.encode(), digest_size=16)
    for name in sorted(tensors):
        content.update(f"{name} {tensors[name].dtype} {list(tensors[name].shape)}\n".encode())
        content.update(_copy_elements(tensors[name]).view(torch.uint8).numpy().data)
    return content.hexdigest()


def _copy_elements(tensor: Tensor) -> Tensor:
    """Return the elements of a tensor in new memory, end to end; a single element may otherwise have the stride 0."""
    return tensor.detach().cpu().flatten().clone(memory_format=torch.contiguous_format)
