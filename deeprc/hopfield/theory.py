"""What the paper's theorems promise of stored patterns: separation, bounds on errors, storage capacity.

Letters: N stored patterns, d their dimension, M the largest norm, β the inverse temperature, Δ_i the separation of
pattern i, f(ξ) = softmax(β ξᵀ Xᵀ) X the update rule. `stored` is X, (N, d): one pattern per row (the paper's X has one
per column). Results keep the dtype of the patterns; float64 is recommended, since the bounds soon fall below float32.
Labels and lines are those of the paper's LaTeX.
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

_ROWS = 1024  # patterns whose products with all others are held at once


class StorageCapacity(NamedTuple):
    """How many random patterns on a sphere can be stored, from `storage_capacity`.

    Attributes
    ----------
    a, b
        The constants of the theorem.
    c
        The base: capacity grows as c^((d - 1) / 4). inf beyond float64, as the next two.
    smallest_c
        The theorem speaks of c from here only; below, it would promise less than two patterns.
    n_patterns
        √p c^((d - 1) / 4), not rounded.
    proven
        Whether the assumptions hold; otherwise n_patterns promises nothing.
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
        m_x, the mean of the members, (d,).
    largest_distance
        m_max, of a member from the centre, a scalar.
    radius
        1 / (β m_max), a scalar.
    separation
        Δ_m, of the centre from the other patterns, a scalar; inf without others.
    needed_separation
        The smallest Δ_m that the lemma allows, a scalar; inf where none is enough, -inf without others.
    proven
        Whether A1 and A2 hold: f maps the sphere into itself and has a fixed point in it.
    """

    centre: Tensor
    largest_distance: Tensor
    radius: Tensor
    separation: Tensor
    needed_separation: Tensor
    proven: bool


def largest_norm(stored: Tensor) -> Tensor:
    """Return M, the largest norm of the stored patterns (N, d); ValueError unless there is one at least."""
    _check_stored(stored)
    norms: Tensor = torch.linalg.vector_norm(stored, dim=1)
    return norms.max()


def separation(stored: Tensor) -> Tensor:
    """Return each pattern's separation Δ_i = x_iᵀx_i - max x_iᵀx_j over j ≠ i: (N, d) gives (N,).

    inf for a single pattern (definition of line 573). ValueError as `largest_norm`.
    """
    _check_stored(stored)
    n = len(stored)
    return torch.cat([_separation_of_rows(stored, start, min(start + _ROWS, n)) for start in range(0, n, _ROWS)])


def well_separated(stored: Tensor, *, beta: float) -> Tensor:
    """Tell of each pattern whether f has a fixed point in its sphere: (N, d) gives (N,) bool.

    Assumption A1 of lemma `th:banach`, line 2863: Δ_i ≥ 2 / (β N) + ln(2 (N - 1) N β M²) / β. Then f maps the sphere
    of `sphere_radius` into itself and every state of the sphere converges to its fixed point x_i*. Spheres of several
    patterns, and hence their fixed points, are known to differ only if also 1 < 2 (N - 1) N β M² (`eq:assumeA`, line
    4141): at a small β M² all spheres may hold one global fixed point.

    Raises
    ------
    ValueError
        If `beta` is not positive, or as `largest_norm`.
    """
    _check_positive("beta", beta)
    n = len(stored)
    logarithm = torch.log(2 * (n - 1) * n * beta * largest_norm(stored) ** 2)
    return separation(stored) >= 2 / (beta * n) + logarithm / beta


def sphere_radius(stored: Tensor, *, beta: float) -> Tensor:
    """Return 1 / (β N M), the radius of the sphere S_i around each pattern (definition `th:DefSphere`, line 2600).

    A scalar; inf if all patterns are 0. ValueError as `well_separated`.
    """
    _check_positive("beta", beta)
    return 1 / (beta * len(stored) * largest_norm(stored))


def jacobian(state: Tensor, stored: Tensor, *, beta: float) -> Tensor:
    """Return the Jacobian of the update rule at a state: (d,) and (N, d) give (d, d).

    J = β X (diag(p) - p pᵀ) Xᵀ with the paper's X (lemma `th:boundJ`, line 1906), computed as β times the covariance
    of the patterns drawn with probabilities p (`eq:jacVar`, line 2057), which does not cancel. ValueError as
    `jacobian_bound`.
    """
    _check_positive("beta", beta)
    _check_stored(stored)
    _check_vector("state", state, stored)
    p = torch.softmax(beta * (stored @ state), dim=0)  # (N,)
    centred = stored - p @ stored  # (N, d)
    return beta * centred.T @ (p[:, None] * centred)  # (d, N) @ (N, d) -> (d, d)


def jacobian_bound(state: Tensor, stored: Tensor, *, index: int, fixed_point: Tensor, beta: float) -> Tensor:
    """Bound the norm of the Jacobian between a state and the fixed point near a pattern.

    Theorem `th:oneUpdate`, lines 583-599 and 5014-5031: with m the larger of ‖ξ - x_i‖ and ‖x_i* - x_i‖,
    ‖J^m‖₂ ≤ 2 β N M² (N - 1) exp(-β (Δ_i - 2 m M)). It bounds ‖J‖₂ at every point from ξ to x_i*, and hence of the mean
    J^m, and needs no assumption; it says something only where it is less than β times a squared distance of patterns.

    Parameters
    ----------
    state
        ξ, (d,).
    stored
        (N, d).
    index
        i, of the pattern to be retrieved, from 0.
    fixed_point
        x_i*, (d,): where the update rule leads from the pattern itself.
    beta
        The inverse temperature.

    Returns
    -------
    A scalar.

    Raises
    ------
    ValueError
        If `beta` is not positive, there is no pattern `index`, or the shapes do not fit.
    """
    epsilon = _epsilon(state, stored, index=index, fixed_point=fixed_point, beta=beta)
    return 2 * beta * len(stored) * largest_norm(stored) ** 2 * epsilon


def one_update_bound(state: Tensor, stored: Tensor, *, index: int, fixed_point: Tensor, beta: float) -> Tensor:
    """Bound the distance ‖f(ξ) - x_i*‖ from the fixed point after one update: a scalar.

    Theorem `th:oneUpdate`, lines 583-599 and 5014-5031: `jacobian_bound` times ‖ξ - x_i*‖, exponentially small in Δ_i.
    Parameters and errors are those of `jacobian_bound`.
    """
    bound = jacobian_bound(state, stored, index=index, fixed_point=fixed_point, beta=beta)
    distance: Tensor = torch.linalg.vector_norm(state - fixed_point)
    return bound * distance


def retrieval_error_bound(state: Tensor, stored: Tensor, *, index: int, fixed_point: Tensor, beta: float) -> Tensor:
    """Bound the retrieval error ‖f(ξ) - x_i‖ after one update: a scalar.

    Theorem `th:retrievalError`, first inequality, lines 604-610 and 5099-5115: with m the larger of ‖ξ - x_i‖ and
    ‖x_i* - x_i‖, at most 2 (N - 1) M exp(-β (Δ_i - 2 m M)). It needs no assumption. Parameters and errors are those of
    `jacobian_bound`.
    """
    epsilon = _epsilon(state, stored, index=index, fixed_point=fixed_point, beta=beta)
    return 2 * epsilon * largest_norm(stored)


def fixed_point_error_bound(stored: Tensor, *, beta: float) -> Tensor:
    """Bound the distance ‖x_i - x_i*‖ of each pattern from its fixed point: (N, d) gives (N,).

    Theorem `th:retrievalError`, second inequality, lines 611-619 and 5099-5115: 2 e (N - 1) M exp(-β Δ_i), under the
    condition ‖x_i - x_i*‖ ≤ 1 / (2 β M). The theorem asks the same of the state, ‖x_i - ξ‖ ≤ 1 / (2 β M), which the
    inequality does not contain. Where `well_separated` is true and N > 1, the fixed point of the sphere S_i meets the
    condition. ValueError as `well_separated`.
    """
    _check_positive("beta", beta)
    return 2 * math.e * (len(stored) - 1) * largest_norm(stored) * torch.exp(-beta * separation(stored))


def metastable_sphere(stored: Tensor, members: Tensor, *, beta: float) -> MetastableSphere:
    """Say whether similar patterns share a metastable state, a fixed point near their mean.

    Lemma `th:banachM`, line 3879, with the definitions of lines 3441, 3535 and 3560, for l members:
    A1 is Δ_m ≥ 2 M / (β m_max) - ln((1 - β m_max²) / (2 β (N - l) M max{m_max, 2 M})) / β, A2 is β m_max² ≤ 1.
    As Δ_m is at most 2 M², A1 asks the members to differ: m_max ≥ 1 / (β M). Of one pattern, or of several equal ones,
    the lemma says nothing (m_max = 0) unless there are no others; a single one is the subject of `well_separated`.

    Parameters
    ----------
    stored
        (N, d).
    members
        Which patterns are the similar ones, (N,) bool.
    beta
        The inverse temperature.

    Raises
    ------
    ValueError
        If `beta` is not positive, or `members` is not a mask of the patterns that chooses one at least.
    """
    _check_positive("beta", beta)
    norm = largest_norm(stored)
    if members.dtype != torch.bool or members.shape != stored.shape[:1] or not members.any():
        found = f"{members.dtype} {tuple(members.shape)}, {int(members.count_nonzero())} true"
        raise ValueError(f"members: expected torch.bool ({len(stored)},), one true at least, found {found}")
    centre = stored[members].mean(dim=0)
    distance = torch.linalg.vector_norm(stored[members] - centre, dim=1).max()
    others = stored[~members]  # (N - l, d)
    nearest = (others @ centre).max() if len(others) else centre.new_tensor(-torch.inf)
    separation_of_centre = centre @ centre - nearest
    spread = beta * distance**2
    if len(others) == 0:  # nothing to be separated from
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

    Theorem `th:storage`, lines 542-561, or `th:mainStorage`, lines 4466-4493. Its W_0(exp(a + ln b)) is
    `scipy.special.wrightomega(a + ln b)`, which does not overflow.

    `proven` asks for c ≥ (2 / √p)^(4 / (d - 1)), as the theorem, and for 4 β M² > 1, which its proof uses for two or
    more patterns (`eq:assumeA`, line 4141) but its text leaves out. Without it the promise is false: the norm of the
    Jacobian is then below 1 everywhere, so there is one global fixed point and no two patterns can be stored.

    Parameters
    ----------
    d
        The dimension, at least 2. A number that is not whole has no sphere, but serves as the inverse of
        `storage_dimension`.
    beta
        The inverse temperature.
    K
        The radius, divided by √(d - 1).
    p
        The probability of failure, in (0, 1].

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
    b = 1 + ln(2 p β K²), W the branch W_0 for a > 0 and W_{-1} for a < 0; 1 + exp(-b) for a = 0.

    It is the dimension needed for c only where a < 0: from there upwards the base is c or more. Where a ≥ 0 it is the
    largest dimension with a base of c or more, since bases fall with the dimension up to 1 + exp(1 - b) and rise from
    there to b / W_0(b), `storage_capacity`'s b, without reaching it. The theorem's condition on c is `proven` of
    `storage_capacity` in this dimension; below 2 there is no sphere.

    Parameters
    ----------
    c
        The base, more than 1.
    beta, K, p
        As for `storage_capacity`.

    Raises
    ------
    ValueError
        If an argument is outside its range, or a exp(-b) < -1 / e: then bases are larger than c in every dimension.
    """
    _check_probability_and_positive(beta=beta, K=K, p=p)
    if not c > 1:
        raise ValueError(f"c: expected more than 1, found {c}")
    a = math.log(c) / 2 - K**2 * beta / (5 * c)
    b = 1 + math.log(2 * p * beta * K**2)
    if a < 0 and math.log(-a) - b > -1:
        found = a * _exp(-b)
        raise ValueError(f"c: expected a exp(-b) of -1 / e at least, found {found:.6g}: every base is larger than {c}")
    w = 0.0
    if a > 0:
        w = float(wrightomega(math.log(a) - b))
    elif a < 0:
        w = float(lambertw(a * math.exp(-b), -1).real)
    return 1 + _exp(-b - w)  # W(z) / a = exp(-b - W(z)), also for a = 0, since W(z) exp(W(z)) = z = a exp(-b)


def _separation_of_rows(stored: Tensor, start: int, stop: int) -> Tensor:
    products = stored[start:stop] @ stored.T  # (stop - start, N)
    own = products.diagonal(start).clone()
    products.diagonal(start).fill_(-torch.inf)
    return own - products.max(dim=1).values


def _epsilon(state: Tensor, stored: Tensor, *, index: int, fixed_point: Tensor, beta: float) -> Tensor:
    """Bound the probability of all patterns but one, from the state to the fixed point (`eq:epsA`, line 2995)."""
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
    """exp, but inf where it overflows."""
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
        raise ValueError(f"stored: expected floating-point (N, d), one pattern at least, found {found}")


def _check_vector(name: str, vector: Tensor, stored: Tensor) -> None:
    if vector.shape != stored.shape[1:]:
        raise ValueError(f"{name}: expected ({stored.shape[1]},), found {tuple(vector.shape)}")
