"""Choice of the device and of the precision of computations."""

from __future__ import annotations

import logging
import os
import shutil
from functools import cache
from importlib.util import find_spec
from typing import Literal

import torch

from deeprc.errors import InputError
from deeprc.ranks import find_local_index

__all__ = ["has_triton", "resolve_device", "resolve_precision"]

_logger = logging.getLogger(__name__)


def resolve_device(name: str = "auto") -> torch.device:
    """Return the device with this name; `auto` is CUDA if it is available, else the CPU.

    If several processes of this machine train together, `cuda` is a different GPU for each of them.

    Raises
    ------
    InputError
        If the device is not available.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    index = find_local_index()
    if index is not None and name.startswith("cuda"):
        if name != "cuda":
            raise InputError(f"`device={name}`: expected cuda, because each of the processes uses a different GPU")
        name = f"cuda:{index}"
    try:
        probe = torch.empty(1, device=name)
        probe.cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError(f"`device={name}`: not available here: {str(error).splitlines()[0]}") from error
    return probe.device  # with its index, for example "cuda:0"


def resolve_precision(
    precision: Literal["auto", "bfloat16", "float32"], device: torch.device
) -> Literal["bfloat16", "float32"]:
    """Return the precision of the convolution; `auto` is bfloat16 on CUDA and float32 elsewhere."""
    if precision == "auto":
        return "bfloat16" if device.type == "cuda" else "float32"
    return precision


@cache
def has_triton() -> bool:
    """Return whether CUDA kernels can be compiled; warn once if they cannot."""
    missing = None
    if find_spec("triton") is None:
        missing = "triton is not installed"
    elif not (os.environ.get("CC") or any(shutil.which(name) for name in ("gcc", "clang", "cc"))):
        missing = "triton needs a C compiler (gcc or clang) and finds none"
    if missing:
        _logger.warning("%s: CUDA takes slower, dense forms of the motif convolution and attention", missing)
    return missing is None
