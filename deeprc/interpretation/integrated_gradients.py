"""The gradient of a function, averaged along a straight line.

Integrated gradients (Sundararajan, Taly and Yan 2017) are products of this gradient and the difference of the ends.
Letters: n rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["average_gradient"]


def average_gradient(
    function: Callable[..., Tensor], start: Tensor, end: Tensor, fixed: Sequence[Tensor], *, steps: int
) -> Tensor:
    """Return the gradient of a function averaged along the straight line from start to end, (n, ...).

    The integral is approximated by the Gauss-Legendre rule, which has a smaller error than the midpoint rule,
    especially with few steps. All steps are computed at once. Each row depends only on its own arguments, so the
    gradient of the sum over rows contains the gradient of each row.

    Parameters
    ----------
    function
        Function of rows, (n, ...), and `fixed` that returns one number for each row, (n,).
    start, end
        Ends of the line, (n, ...).
    fixed
        Further arguments, (n, ...) each, which are constant along the line.
    steps
        Number of points at which the gradient is computed.
    """
    points, weights = (torch.from_numpy(array).to(start) for array in _compute_gauss_legendre(steps))
    line = torch.cat([start + point * (end - start) for point in points]).requires_grad_()  # (steps * n, ...)
    repeated = [tensor.repeat(steps, *[1] * (tensor.ndim - 1)) for tensor in fixed]
    (gradient,) = torch.autograd.grad(function(line, *repeated).sum(), line)
    mean: Tensor = torch.tensordot(weights, gradient.unflatten(0, (steps, len(start))), dims=1)
    return mean


@cache
def _compute_gauss_legendre(steps: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the points of the Gauss-Legendre rule on [0, 1] and their weights, which sum to 1, (steps,) each."""
    points, weights = np.polynomial.legendre.leggauss(steps)
    return (1 + points) / 2, weights / 2
