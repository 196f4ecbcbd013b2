"""Triton kernels under test: on a CUDA device if there is one, otherwise in Triton's interpreter, on CPU tensors."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@contextmanager
def use_interpreter() -> Iterator[None]:
    """Choose Triton's interpreter where there is no CUDA device."""
    with pytest.MonkeyPatch.context() as patch:
        if DEVICE.type == "cpu":
            patch.setenv("TRITON_INTERPRET", "1")
        yield


def import_kernels(name: str) -> Any:
    """Import a module with Triton kernels, or skip the test module that asks for it.

    Triton reads the variable where a kernel is defined; its own are, when it is first imported. Test modules are
    imported before any test runs, and so before torch, which does it lazily, has imported Triton.
    """
    with use_interpreter():
        triton = pytest.importorskip("triton")
        kernels = importlib.import_module(name)
    if DEVICE.type == "cpu" and isinstance(triton.language.max, triton.JITFunction):
        pytest.skip("triton was imported before its interpreter could be chosen", allow_module_level=True)
    return kernels
