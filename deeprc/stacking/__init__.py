"""Several methods that predict together: a stack of DeepRC and the methods that it is compared with."""

from deeprc.stacking.stack import Stack

__all__ = ["Stack"]
