"""Stacked generalisation: DeepRC and other methods of `deeprc benchmark`, combined into one prediction."""

from deeprc.stacking.stack import Stack

__all__ = ["Stack"]
