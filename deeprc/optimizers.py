"""torch's optimisers without its compiler, whose import takes seconds at the start of each training.

torch decorates methods of its optimisers, so that they import its compiler when they are called first. deeprc never
compiles an optimiser, so its optimisers have the methods without these decorators. Results are the same.
"""

from __future__ import annotations

import inspect
from typing import TypeVar, cast

import torch
from torch.optim import Optimizer

__all__ = ["LBFGS", "Adam"]

_DECORATED = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")

_AnyOptimizer = TypeVar("_AnyOptimizer", bound=Optimizer)


def _remove_decorators(optimizer: type[_AnyOptimizer]) -> type[_AnyOptimizer]:
    """Return a subclass of an optimiser whose methods do not import the compiler; `step` computes no gradients."""
    methods = {name: inspect.unwrap(getattr(optimizer, name)) for name in _DECORATED}
    methods["step"] = torch.no_grad()(inspect.unwrap(optimizer.step))
    return cast("type[_AnyOptimizer]", type(optimizer.__name__, (optimizer,), methods))


Adam = _remove_decorators(torch.optim.Adam)
LBFGS = _remove_decorators(torch.optim.LBFGS)
