"""Quantities and bounds from the paper's theorems: separation of patterns, bounds on errors, storage capacity.

Letters: N stored patterns, d their dimension, M their largest norm, β inverse temperature, Δ_i separation of pattern i,
f(ξ) = softmax(β ξᵀ Xᵀ) X the update rule. `stored` is X, (N, d), with one pattern per row (per column in the paper).
Results keep the dtype of the patterns. float64 is recommended, because the bounds soon fall below the precision of
float32. Labels such as `th:storage` and line numbers are those of the LaTeX source of the paper.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from scipy.special import lambertw, wrightomega
from torch import Tensor

__all__ = [
    "MetastableSphere",
    "StorageCapacity",
    "fixed_point_error_bound",
    "jacobian",
    "jacobian_bound",
    "largest_norm",
    "metastable_sphere",
    "one_update_bound",
    "retrieval_error_bound",
    "separation",
    "sphere_radius",
    "storage_capacity",
    "storage_dimension",
    "well_separated",
]

_BLOCK_ROWS = 1024  # patterns whose products with all others are in memory at once


class StorageCapacity(NamedTuple):
    """The number of random patterns on a sphere that can be stored, from `storage_capacity`.

    `c`, `smallest_c` and `n_patterns` are inf if they exceed float64.

    Attributes
    ----------
    a, b
        Constants of the theorem.
    c
        Base of the exponential: the capacity grows as c^((d - 1) / 4).
    smallest_c
        Smallest c for which the theorem holds. A smaller c would give less than two patterns.
    n_patterns
        Number of patterns, √p c^((d - 1) / 4), not rounded.
    proven
        Whether the assumptions hold. If not, `n_patterns` has no guarantee.
    """

    a: float
    b: float
    c: float
    smallest_c: float
    n_patterns: float
    proven: bool


class MetastableSphere(NamedTuple):
    """The sphere around the mean of similar patterns that holds a metastable state, from `metastable_sphere`.

    Attributes
    ----------
    centre
        m_x, mean of the members, (d,).
    largest_distance
        m_max, largest distance of a member from the centre, a scalar.
    radius
        Radius of the sphere, 1 / (β m_max), a scalar.
    separation
        Δ_m, separation of the centre from the other patterns, a scalar; inf if there are no others.
    needed_separation
        Smallest Δ_m that the lemma allows, a scalar; inf if no Δ_m is enough, -inf if there are no other patterns.
    proven
        Whether the assumptions A1 and A2 hold. Then f maps the sphere into itself and has a fixed point in it.
    """

    centre: Tensor
    largest_distance: Tensor
    radius: Tensor
    separation: Tensor
    needed_separation: Tensor
    proven: bool


def largest_norm(stored: Tensor) -> Tensor:
    """Return M, the largest norm of the stored patterns (N, d), a scalar; ValueError if there is no pattern."""
    _check_stored(stored)
    norms: Tensor = torch.linalg.vector_norm(stored, dim=1)
    return norms.max()


def separation(stored: Tensor) -> Tensor:
    """Return the separation of each pattern, Δ_i = x_iᵀx_i - max x_iᵀx_j over j ≠ i (paper line 573).

    (N, d) gives (N,). The separation of a single pattern is inf. ValueError as in `largest_norm`.
    """
    _check_stored(stored)
    n = len(stored)
    return torch.cat(
        [_separation_of_rows(stored, start, min(start + _BLOCK_ROWS, n)) for start in range(0, n, _BLOCK_ROWS)]
    )


def well_separated(stored: Tensor, *, beta: float) -> Tensor:
    """Return for each pattern whether f is proven to have a fixed point near it: (N, d) gives (N,) bool.

    The condition is assumption A1 of lemma `th:banach`, line 2863: Δ_i ≥ 2 / (β N) + ln(2 (N - 1) N β M²) / β. If it
    holds, f maps the sphere of `sphere_radius` around the pattern into itself, and every state of the sphere converges
    to its fixed point x_i*. The fixed points of several patterns are proven to differ only if also
    1 < 2 (N - 1) N β M² (`eq:assumeA`, line 4141). With a small β M², all spheres may contain one global fixed point.

    Raises
    ------
    ValueError
        If `beta` is not positive, or as in `largest_norm`.
    """
    _check_positive("beta", beta)
    n = len(stored)
    logarithm = torch.log(2 * (n - 1) * n * beta * largest_norm(stored) ** 2)
    return separation(stored) >= 2 / (beta * n) + logarithm / beta


def sphere_radius(stored: Tensor, *, beta: float) -> Tensor:
    """Return 1 / (β N M), the radius of the sphere S_i around each pattern (definition `th:DefSphere`, line 2600).

    The result is a scalar; it is inf if all patterns are 0. ValueError as in `well_separated`.
    """
    _check_positive("beta", beta)
    return 1 / (beta * len(stored) * largest_norm(stored))


def jacobian(state: Tensor, stored: Tensor, *, beta: float) -> Tensor:
    """Return the Jacobian of the update rule at a state: (d,) and (N, d) give (d, d).

    J = β X (diag(p) - p pᵀ) Xᵀ with the paper's X (lemma `th:boundJ`, line 1906). It is computed as β times the
    covariance of patterns that are drawn with probabilities p (`eq:jacVar`, line 2057), which avoids cancellation.
    ValueError as in `jacobian_bound`.
    """
    _check_positive("beta", beta)
    _check_stored(stored)
    _check_vector("state", state, stored)
    p = torch.softmax(beta * (stored @ state), dim=0)  # (N,)
    centred = stored - p @ stored  # (N, d)
    return beta * centred.T @ (p[:, None] * centred)  # (d, N) @ (N, d) -> (d, d)


def jacobian_bound(state: Tensor, stored: Tensor, *, index: int, fixed_point: Tensor, beta: float) -> Tensor:
    """Bound the norm of the Jacobian between a state and the fixed point near a pattern.

    Theorem `th:oneUpdate`, lines 583-599 and 5014-5031: ‖J^m‖₂ ≤ 2 β N M² (N - 1) exp(-β (Δ_i - 2 m M)), where m is the
    larger of ‖ξ - x_i‖ and ‖x_i* - x_i‖. The bound holds for ‖J‖₂ at every point between ξ and x_i*, and so for the
    mean Jacobian J^m. It needs no assumption. It is useful only if it is smaller than β times a squared distance
    between patterns.

    Parameters
    ----------
    state
        ξ, (d,).
    stored
        Stored patterns, (N, d).
    index
        i, index of the pattern to be retrieved, from 0.
    fixed_point
        x_i*, (d,): the fixed point that the update rule reaches from the pattern itself.
    beta
        Inverse temperature.

    Returns
    -------
    The bound, a scalar.

    Raises
    ------
    ValueError
        If `beta` is not positive, if there is no pattern `index`, or if the shapes do not fit.
    """
    epsilon = _epsilon(state, stored, index=index, fixed_point=fixed_point, beta=beta)
    return 2 * beta * len(stored) * largest_norm(stored) ** 2 * epsilon


def one_update_bound(state: Tensor, stored: Tensor, *, index: int, fixed_point: Tensor, beta: float) -> Tensor:
    """Bound the distance from the fixed point after one update, ‖f(ξ) - x_i*‖; return a scalar.

    The bound is `jacobian_bound` times ‖ξ - x_i*‖, which is exponentially small in Δ_i (theorem `th:oneUpdate`, lines
    583-599 and 5014-5031). Parameters and errors are those of `jacobian_bound`.
    """
    bound = jacobian_bound(state, stored, index=index, fixed_point=fixed_point, beta=beta)
    distance: Tensor = torch.linalg.vector_norm(state - fixed_point)
    return bound * distance


def retrieval_error_bound(state: Tensor, stored: Tensor, *, index: int, fixed_point: Tensor, beta: float) -> Tensor:
    """Bound the retrieval error after one update, ‖f(ξ) - x_i‖; return a scalar.

    The bound is 2 (N - 1) M exp(-β (Δ_i - 2 m M)), where m is the larger of ‖ξ - x_i‖ and ‖x_i* - x_i‖ (theorem
    `th:retrievalError`, first inequality, lines 604-610 and 5099-5115). It needs no assumption. Parameters and errors
    are those of `jacobian_bound`.
    """
    epsilon = _epsilon(state, stored, index=index, fixed_point=fixed_point, beta=beta)
    return 2 * epsilon * largest_norm(stored)


def fixed_point_error_bound(stored: Tensor, *, beta: float) -> Tensor:
    """Bound the distance of each pattern from its fixed point, ‖x_i - x_i*‖: (N, d) gives (N,).

    The bound is 2 e (N - 1) M exp(-β Δ_i), if ‖x_i - x_i*‖ ≤ 1 / (2 β M) (theorem `th:retrievalError`, second
    inequality, lines 611-619 and 5099-5115). The theorem also requires ‖x_i - ξ‖ ≤ 1 / (2 β M), but the inequality does
    not contain the state ξ. If `well_separated` is true and N > 1, the fixed point of the sphere S_i fulfils the
    condition. ValueError as in `well_separated`.
    """
    _check_positive("beta", beta)
    return 2 * math.e * (len(stored) - 1) * largest_norm(stored) * torch.exp(-beta * separation(stored))


def metastable_sphere(stored: Tensor, members: Tensor, *, beta: float) -> MetastableSphere:
    """Test whether similar patterns share a metastable state, which is a fixed point near their mean.

    This is lemma `th:banachM`, line 3879, with the definitions of lines 3441, 3535 and 3560, for l members. Its
    assumptions are A1, Δ_m ≥ 2 M / (β m_max) - ln((1 - β m_max²) / (2 β (N - l) M max{m_max, 2 M})) / β, and A2,
    β m_max² ≤ 1. Δ_m is at most 2 M², so A1 implies that the members differ: m_max ≥ 1 / (β M). For one pattern, or for
    several equal ones (m_max = 0), the lemma says nothing unless there are no other patterns. For a single pattern see
    `well_separated`.

    Parameters
    ----------
    stored
        Stored patterns, (N, d).
    members
        Which patterns are the similar ones, (N,) bool.
    beta
        Inverse temperature.

    Raises
    ------
    ValueError
        If `beta` is not positive, or if `members` is not a mask of the patterns that selects at least one.
    """
    _check_positive("beta", beta)
    norm = largest_norm(stored)
    if members.dtype != torch.bool or members.shape != stored.shape[:1] or not members.any():
        found = f"{members.dtype} {tuple(members.shape)}, {int(members.count_nonzero())} true"
        raise ValueError(f"members: expected torch.bool ({len(stored)},), at least one true, found {found}")
    centre = stored[members].mean(dim=0)
    distance = torch.linalg.vector_norm(stored[members] - centre, dim=1).max()
    others = stored[~members]  # (N - l, d)
    nearest = (others @ centre).max() if len(others) else centre.new_tensor(-torch.inf)
    separation_of_centre = centre @ centre - nearest
    spread = beta * distance**2
    if len(others) == 0:  # no other patterns to be separated from
        needed = centre.new_tensor(-torch.inf)
    elif distance == 0:
        needed = centre.new_tensor(torch.inf)
    else:
        ratio = (1 - spread).clamp(min=0) / (2 * beta * len(others) * norm * torch.maximum(distance, 2 * norm))
        needed = 2 * norm / (beta * distance) - torch.log(ratio) / beta
    proven = bool(separation_of_centre >= needed) and bool(spread <= 1)
    return MetastableSphere(centre, distance, 1 / (beta * distance), separation_of_centre, needed, proven)


def storage_capacity(d: float, *, beta: float, K: float, p: float) -> StorageCapacity:
    """Return how many random patterns on the sphere of radius M = K √(d - 1) can be stored with probability 1 - p.

    This is theorem `th:storage`, lines 542-561, and `th:mainStorage`, lines 4466-4493. The function computes its
    W_0(exp(a + ln b)) as `scipy.special.wrightomega(a + ln b)`, which does not overflow.

    `proven` requires two conditions. The first, c ≥ (2 / √p)^(4 / (d - 1)), is in the theorem. The second, 4 β M² > 1,
    is not in its text, but its proof uses it for two or more patterns (`eq:assumeA`, line 4141). Without the second
    condition the theorem is false: the norm of the Jacobian is below 1 everywhere, so there is one global fixed point,
    and no two patterns can be stored.

    Parameters
    ----------
    d
        Dimension, at least 2. A fraction has no sphere, but is allowed because `storage_dimension` returns one.
    beta
        Inverse temperature.
    K
        Radius of the sphere divided by √(d - 1).
    p
        Probability of failure, in (0, 1].

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    _check_probability_and_positive(beta=beta, K=K, p=p)
    if not d >= 2:
        raise ValueError(f"d: expected at least 2, found {d}")
    a = 2 / (d - 1) * (1 + math.log(2 * beta * K**2 * p * (d - 1)))
    b = 2 * K**2 * beta / 5
    log_c = float(wrightomega(a + math.log(b))) - a  # b / W(z) = exp(W(z) - a), since W(z) exp(W(z)) = z = b exp(a)
    log_smallest = 4 / (d - 1) * math.log(2 / math.sqrt(p))
    return StorageCapacity(
        a=a,
        b=b,
        c=_exp(log_c),
        smallest_c=_exp(log_smallest),
        n_patterns=_exp(math.log(p) / 2 + (d - 1) / 4 * log_c),
        proven=log_c >= log_smallest and 4 * beta * K**2 * (d - 1) > 1,
    )


def storage_dimension(c: float, *, beta: float, K: float, p: float) -> float:
    """Return the dimension, not rounded, in which `storage_capacity` has the base c.

    Theorem `th:capacityD`, lines 4715-4744: d = 1 + W(a exp(-b)) / a with a = ln(c) / 2 - K² β / (5 c) and
    b = 1 + ln(2 p β K²). W is the branch W_0 of Lambert's function for a > 0, and W_{-1} for a < 0. For a = 0,
    d = 1 + exp(-b).

    If a < 0, d is the dimension that is needed for c: in all larger dimensions the base is c or more. If a ≥ 0, d is
    the largest dimension with a base of c or more. The reason: bases fall with the dimension up to 1 + exp(1 - b), and
    then rise towards b / W_0(b), where this b is that of `storage_capacity`, without reaching it. Whether the condition
    of the theorem on c holds is `proven` of `storage_capacity` in this dimension. Below 2 there is no sphere.

    Parameters
    ----------
    c
        Base, more than 1.
    beta, K, p
        As in `storage_capacity`.

    Raises
    ------
    ValueError
        If an argument is out of its range, or if a exp(-b) < -1 / e: then bases are larger than c in every dimension.
    """
    _check_probability_and_positive(beta=beta, K=K, p=p)
    if not c > 1:
        raise ValueError(f"c: expected more than 1, found {c}")
    a = math.log(c) / 2 - K**2 * beta / (5 * c)
    b = 1 + math.log(2 * p * beta * K**2)
    if a < 0 and math.log(-a) - b > -1:
        found = a * _exp(-b)
        raise ValueError(f"c: expected a exp(-b) of at least -1 / e, found {found:.6g}: every base is larger than {c}")
    w = 0.0
    if a > 0:
        w = float(wrightomega(math.log(a) - b))
    elif a < 0:
        w = float(lambertw(a * math.exp(-b), -1).real)
    return 1 + _exp(-b - w)  # W(z) / a = exp(-b - W(z)), also for a = 0, since W(z) exp(W(z)) = z = a exp(-b)


def _separation_of_rows(stored: Tensor, start: int, stop: int) -> Tensor:
    """Return the separation of the patterns start to stop - 1, (stop - start,)."""
    products = stored[start:stop] @ stored.T  # (stop - start, N)
    squared_norms = products.diagonal(start).clone()
    products.diagonal(start).fill_(-torch.inf)
    return squared_norms - products.max(dim=1).values


def _epsilon(state: Tensor, stored: Tensor, *, index: int, fixed_point: Tensor, beta: float) -> Tensor:
    """Bound the softmax weight of all other patterns between the state and the fixed point (`eq:epsA`, line 2995)."""
    _check_positive("beta", beta)
    _check_stored(stored)
    _check_vector("state", state, stored)
    _check_vector("fixed_point", fixed_point, stored)
    n = len(stored)
    if not 0 <= index < n:
        raise ValueError(f"index: expected 0 to {n - 1}, found {index}")
    distances = torch.linalg.vector_norm(torch.stack([state, fixed_point]) - stored[index], dim=1)  # (2,)
    separation_of_index = _separation_of_rows(stored, index, index + 1)[0]
    return (n - 1) * torch.exp(-beta * (separation_of_index - 2 * distances.max() * largest_norm(stored)))


def _exp(x: float) -> float:
    """Return exp(x), or inf if it overflows."""
    return math.exp(x) if x < 709 else math.inf


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{name}: expected a positive number, found {value}")


def _check_probability_and_positive(*, beta: float, K: float, p: float) -> None:
    _check_positive("beta", beta)
    _check_positive("K", K)
    if not 0 < p <= 1:
        raise ValueError(f"p: expected a probability in (0, 1], found {p}")


def _check_stored(stored: Tensor) -> None:
    if stored.ndim != 2 or len(stored) == 0 or not stored.is_floating_point():
        found = f"{stored.dtype} {tuple(stored.shape)}"
        raise ValueError(f"stored: expected floating-point (N, d) with at least one pattern, found {found}")


def _check_vector(name: str, vector: Tensor, stored: Tensor) -> None:
    if vector.shape != stored.shape[1:]:
        raise ValueError(f"{name}: expected ({stored.shape[1]},), found {tuple(vector.shape)}")
