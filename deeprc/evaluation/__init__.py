"""Splits, metrics and results: the one harness for every method. `benchmark` compares methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deeprc.evaluation.harness import benchmark

__all__ = ["benchmark"]


def __getattr__(name: str) -> Any:
    """Import on first use, so that what needs one module of the package does not wait for all."""
    if name != "benchmark":
        raise AttributeError(f"module 'deeprc.evaluation' has no attribute {name!r}")
    from deeprc.evaluation.harness import benchmark

    return benchmark
