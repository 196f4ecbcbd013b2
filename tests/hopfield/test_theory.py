import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import lambertw
from torch import Tensor

from deeprc.hopfield.theory import (
    MetastableSphere,
    fixed_point_error_bound,
    jacobian,
    jacobian_bound,
    largest_norm,
    metastable_sphere,
    one_update_bound,
    retrieval_error_bound,
    separation,
    sphere_radius,
    storage_capacity,
    storage_dimension,
    well_separated,
)

ROUNDING = 1e-12  # of M: how far an update may be off in float64


def update(state: Tensor, stored: Tensor, beta: float) -> Tensor:
    return torch.softmax(beta * (stored @ state), dim=0) @ stored


def iterate(state: Tensor, stored: Tensor, beta: float) -> Tensor:
    """Update until nothing changes; rounding may let the last bits alternate, so the number is limited."""
    for _ in range(2000):
        previous, state = state, update(state, stored, beta)
        if torch.equal(state, previous):
            break
    return state


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def patterns(n: int, d: int, norm: float, seed: int) -> Tensor:
    stored = normal(n, d, seed=seed)
    return stored * (norm / float(torch.linalg.vector_norm(stored, dim=1).max()))


def point_of_ball(centre: Tensor, radius: Tensor, share: float, seed: int) -> Tensor:
    direction = normal(len(centre), seed=seed)
    return centre + share * radius * direction / float(torch.linalg.vector_norm(direction))


def distance(a: Tensor, b: Tensor) -> float:
    return float(torch.linalg.vector_norm(a - b))


def rotation(d: int, seed: int) -> Tensor:
    q: Tensor = torch.linalg.qr(normal(d, d, seed=seed)).Q
    return q


@st.composite
def retrievals(draw: st.DrawFn) -> tuple[Tensor, int, float, int]:
    """Patterns, the one to be retrieved, β and a seed; β M² is so large that most draws are well separated."""
    seed = draw(st.integers(0, 100_000))
    beta = draw(st.floats(0.1, 10.0))
    norm = math.sqrt(draw(st.floats(5.0, 60.0)) / beta)
    stored = patterns(draw(st.integers(2, 12)), draw(st.integers(2, 12)), norm, seed)
    return stored, int(separation(stored).argmax()), beta, seed + 1


def cluster(beta: float, *, seed: int, n_others: int, n_members: int, d: int, spread: float) -> tuple[Tensor, Tensor]:
    """Some patterns and, after them, similar ones, whose distances from their mean are about spread / √β."""
    direction = normal(d, seed=seed)
    centre = 12 * direction / torch.linalg.vector_norm(direction)
    members = centre + spread / math.sqrt(d) * normal(n_members, d, seed=seed + 1)
    stored = torch.cat([patterns(n_others, d, 12.0, seed + 2), members]) / math.sqrt(beta)
    return stored, torch.arange(n_others + n_members) >= n_others


def test_separation_by_hand() -> None:
    stored = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert separation(stored).tolist() == [2.0, 0.0, 0.0]  # 4 - 2, 1 - 1, 2 - 2
    assert largest_norm(stored).item() == 2.0


def test_a_single_pattern_is_infinitely_separated_and_its_bounds_are_zero() -> None:
    stored = torch.tensor([[3.0, 4.0]])
    state = torch.tensor([0.0, 1.0])
    assert separation(stored).tolist() == [math.inf]
    assert well_separated(stored, beta=1.0).tolist() == [True]
    assert fixed_point_error_bound(stored, beta=1.0).tolist() == [0.0]
    assert retrieval_error_bound(state, stored, index=0, fixed_point=stored[0], beta=1.0).item() == 0.0


def test_separation_of_more_patterns_than_are_multiplied_at_once() -> None:
    stored = normal(2050, 3, seed=0)
    products = stored @ stored.T
    expected = products.diagonal() - products.masked_fill(torch.eye(2050, dtype=torch.bool), -math.inf).amax(dim=1)
    torch.testing.assert_close(separation(stored), expected)


@settings(deadline=None, max_examples=50)
@given(retrieval=retrievals())
def test_a_rotation_changes_nothing_and_a_permutation_only_the_order(
    retrieval: tuple[Tensor, int, float, int],
) -> None:
    stored, index, beta, seed = retrieval
    order = torch.randperm(len(stored), generator=torch.Generator().manual_seed(seed))
    turn = rotation(stored.shape[1], seed)
    torch.testing.assert_close(separation(stored[order]), separation(stored)[order])
    torch.testing.assert_close(separation(stored @ turn), separation(stored), atol=1e-9, rtol=0.0)
    state, point = stored[index] + 0.01, stored[index] - 0.01
    expected = one_update_bound(state, stored, index=index, fixed_point=point, beta=beta)
    found = one_update_bound(state @ turn, stored @ turn, index=index, fixed_point=point @ turn, beta=beta)
    torch.testing.assert_close(found, expected, atol=0.0, rtol=1e-6)
    moved = int((order == index).nonzero())
    torch.testing.assert_close(
        one_update_bound(state, stored[order], index=moved, fixed_point=point, beta=beta), expected
    )


def test_well_separated_and_its_sphere_by_hand() -> None:
    stored = torch.tensor([[3.0, 0.0], [0.0, 3.0]])  # Δ = 9 for both
    assert well_separated(stored, beta=1.0).tolist() == [True, True]  # 9 ≥ 1 + ln 36 = 4.58
    assert well_separated(stored, beta=0.3).tolist() == [False, False]  # 9 < 3.33 + ln(10.8) / 0.3 = 11.26
    assert sphere_radius(stored, beta=1.0).item() == pytest.approx(1 / 6)


def test_bounds_by_hand() -> None:
    stored = torch.tensor([[3.0, 0.0], [0.0, 3.0]], dtype=torch.float64)
    state = torch.tensor([3.0, 0.5], dtype=torch.float64)  # 0.5 from the pattern: 9 - 2 * 0.5 * 3 = 6
    values = (
        jacobian_bound(state, stored, index=0, fixed_point=stored[0], beta=1.0),
        one_update_bound(state, stored, index=0, fixed_point=stored[0], beta=1.0),
        retrieval_error_bound(state, stored, index=0, fixed_point=stored[0], beta=1.0),
        retrieval_error_bound(stored[0], stored, index=0, fixed_point=state, beta=1.0),
    )
    expected = (36 * math.exp(-6), 18 * math.exp(-6), 6 * math.exp(-6), 6 * math.exp(-6))
    assert [value.item() for value in values] == pytest.approx(expected)
    assert fixed_point_error_bound(stored, beta=1.0).tolist() == pytest.approx([6 * math.exp(-8)] * 2)


def test_results_keep_the_dtype() -> None:
    for dtype in (torch.float32, torch.float64):
        stored = patterns(4, 3, 5.0, 0).to(dtype)
        state = stored[0]
        sphere = metastable_sphere(stored, torch.tensor([True, True, False, False]), beta=1.0)
        results = [
            largest_norm(stored),
            separation(stored),
            sphere_radius(stored, beta=1.0),
            jacobian(state, stored, beta=1.0),
            one_update_bound(state, stored, index=0, fixed_point=state, beta=1.0),
            retrieval_error_bound(state, stored, index=0, fixed_point=state, beta=1.0),
            fixed_point_error_bound(stored, beta=1.0),
            *(field for field in sphere if isinstance(field, Tensor)),
        ]
        assert {result.dtype for result in results} == {dtype}
        assert len(results) == 7 + 5


@settings(deadline=None, max_examples=50)
@given(n=st.integers(1, 8), d=st.integers(1, 8), beta=st.floats(0.1, 3.0), seed=st.integers(0, 10_000))
def test_jacobian_equals_that_of_autograd(n: int, d: int, beta: float, seed: int) -> None:
    stored, state = normal(n, d, seed=seed), normal(d, seed=seed + 1)
    expected = torch.autograd.functional.jacobian(lambda x: update(x, stored, beta), state)
    torch.testing.assert_close(jacobian(state, stored, beta=beta), expected, atol=1e-12, rtol=1e-9)


@settings(deadline=None, max_examples=50)
@given(retrieval=retrievals(), share=st.floats(0.0, 1.0))
def test_well_separated_patterns_are_retrieved_within_the_bounds(
    retrieval: tuple[Tensor, int, float, int], share: float
) -> None:
    stored, index, beta, seed = retrieval
    assume(bool(well_separated(stored, beta=beta)[index]))
    pattern, radius, allowance = stored[index], sphere_radius(stored, beta=beta), ROUNDING * largest_norm(stored).item()
    fixed_point = iterate(pattern, stored, beta)
    assert distance(fixed_point, pattern) <= radius + allowance
    assert distance(fixed_point, pattern) <= fixed_point_error_bound(stored, beta=beta)[index] + allowance
    state = point_of_ball(pattern, radius, share, seed)
    after = update(state, stored, beta)
    assert distance(after, pattern) <= radius + allowance
    one_update = one_update_bound(state, stored, index=index, fixed_point=fixed_point, beta=beta)
    assert distance(after, fixed_point) <= one_update + allowance
    error = retrieval_error_bound(state, stored, index=index, fixed_point=fixed_point, beta=beta)
    assert distance(after, pattern) <= error + allowance
    assert distance(iterate(state, stored, beta), fixed_point) <= 100 * allowance  # no other fixed point


@settings(deadline=None, max_examples=50)
@given(retrieval=retrievals(), share=st.floats(0.0, 1.0), softness=st.floats(0.01, 1.0))
def test_bounds_of_one_update_hold_for_any_two_points(
    retrieval: tuple[Tensor, int, float, int], share: float, softness: float
) -> None:
    stored, index, beta, seed = retrieval
    beta = softness * beta  # also where patterns are not well separated
    half = largest_norm(stored) / 2
    state, other = (point_of_ball(stored[index], half, share, s) for s in (seed, seed + 1))
    bound = jacobian_bound(state, stored, index=index, fixed_point=other, beta=beta).item()
    for part in torch.linspace(0, 1, 7, dtype=torch.float64):
        between = part * state + (1 - part) * other
        norm = float(torch.linalg.matrix_norm(jacobian(between, stored, beta=beta), ord=2))
        assert norm <= bound * (1 + 1e-9)
    one_update = one_update_bound(state, stored, index=index, fixed_point=other, beta=beta).item()
    allowance = ROUNDING * largest_norm(stored).item()
    assert distance(update(state, stored, beta), update(other, stored, beta)) <= one_update + allowance
    error = retrieval_error_bound(state, stored, index=index, fixed_point=other, beta=beta).item()
    assert distance(update(state, stored, beta), stored[index]) <= error * (1 + 1e-9) + allowance


def test_most_random_patterns_are_well_separated_so_the_properties_are_not_empty() -> None:
    n_separated = n_visible = 0
    for seed in range(200):
        stored = patterns(2 + seed % 11, 2 + seed % 10, math.sqrt(5 + seed * 55 / 200), seed)
        index = int(separation(stored).argmax())
        n_separated += bool(well_separated(stored, beta=1.0)[index])
        n_visible += bool(1e-10 < fixed_point_error_bound(stored, beta=1.0)[index] < sphere_radius(stored, beta=1.0))
    assert n_separated > 150
    assert n_visible > 50  # the bound is far above rounding, and less than what the sphere says already


@pytest.mark.parametrize("norm", [2.0, 2.25, 2.5])
def test_opposite_patterns_reach_the_bounds_so_a_smaller_bound_would_fail(norm: float) -> None:
    stored = torch.tensor([[norm, 0.0], [-norm, 0.0]], dtype=torch.float64)
    fixed_point = iterate(stored[0], stored, 1.0)
    error = distance(update(stored[0], stored, 1.0), stored[0])
    bound = retrieval_error_bound(stored[0], stored, index=0, fixed_point=fixed_point, beta=1.0).item()
    assert 0.9 * bound < error <= bound
    moved = distance(update(stored[0], stored, 1.0), fixed_point)
    bound = one_update_bound(stored[0], stored, index=0, fixed_point=fixed_point, beta=1.0).item()
    assert 0.9 * bound < moved <= bound
    bound = fixed_point_error_bound(stored, beta=1.0)[0].item()
    assert 0.9 * bound / math.e < distance(fixed_point, stored[0]) <= bound


def test_spheres_at_a_small_beta_may_hold_one_global_fixed_point() -> None:
    stored = patterns(4, 10, 3.0, 0)
    assert well_separated(stored, beta=0.001).all()
    fixed_points = torch.stack([iterate(pattern, stored, 0.001) for pattern in stored])
    torch.testing.assert_close(fixed_points, fixed_points[:1].expand_as(fixed_points))


def test_worked_constants_of_the_storage_theorem() -> None:
    large = storage_capacity(20, beta=1.0, K=3.0, p=0.001)
    assert large.c == pytest.approx(3.1546, abs=5e-5)
    assert large.a + math.log(large.b) > 1.27
    assert large.n_patterns == pytest.approx(math.sqrt(0.001) * 3.1546 ** (19 / 4), rel=1e-4)
    small = storage_capacity(75, beta=1.0, K=1.0, p=0.001)
    assert 1.3718 < small.c < 1.3719
    assert small.a + math.log(small.b) < -0.94
    assert large.proven
    assert small.proven
    assert large.smallest_c == pytest.approx((2 / math.sqrt(0.001)) ** (4 / 19))


@settings(deadline=None, max_examples=50)
@given(d=st.integers(2, 500), beta=st.floats(0.01, 10.0), K=st.floats(0.1, 10.0), p=st.floats(1e-3, 1.0))
def test_the_base_solves_the_equation_of_the_proof(d: int, beta: float, K: float, p: float) -> None:
    a, b, c, smallest_c, n_patterns, _ = storage_capacity(d, beta=beta, K=K, p=p)
    assert c == pytest.approx(b / lambertw(math.exp(a + math.log(b))).real, rel=1e-9)
    assert a + math.log(c) == pytest.approx(b / c, rel=1e-9, abs=1e-12 * abs(a))
    assert (c >= smallest_c * (1 + 1e-9)) <= (n_patterns >= 2)  # what the condition on c is for
    assert n_patterns == pytest.approx(math.sqrt(p) * c ** ((d - 1) / 4), rel=1e-9)


def test_capacity_does_not_overflow() -> None:
    assert storage_capacity(10_000, beta=1.0, K=3.0, p=0.001).n_patterns == math.inf
    assert storage_capacity(2, beta=1e200, K=1.0, p=0.5).c > 1e190
    tiny = storage_capacity(2, beta=1.0, K=1.0, p=1e-300)
    assert (tiny.smallest_c, tiny.proven) == (math.inf, False)


def test_as_many_random_patterns_as_proven_are_well_separated() -> None:
    capacity = storage_capacity(20, beta=1.0, K=3.0, p=0.001)
    n = int(capacity.n_patterns)
    assert (n, capacity.proven) == (7, True)
    for seed in range(100):
        stored = torch.nn.functional.normalize(normal(n, 20, seed=seed)) * 3 * math.sqrt(19)
        assert well_separated(stored, beta=1.0).all()


def test_capacity_is_not_proven_where_all_states_have_one_fixed_point() -> None:
    capacity = storage_capacity(10, beta=0.001, K=1.0, p=0.5)
    assert capacity.c > capacity.smallest_c  # all that the theorem's text asks for
    assert int(capacity.n_patterns) == 4
    assert not capacity.proven
    stored = torch.nn.functional.normalize(normal(4, 10, seed=0)) * 3  # K √(d - 1) = 3
    fixed_points = torch.stack([iterate(pattern, stored, 0.001) for pattern in stored])
    torch.testing.assert_close(fixed_points, fixed_points[:1].expand_as(fixed_points))


@settings(deadline=None, max_examples=50)
@given(c=st.floats(1.01, 20.0), beta=st.floats(0.1, 10.0), K=st.floats(0.3, 5.0), p=st.floats(1e-6, 1.0))
def test_the_storage_dimension_is_the_inverse_of_the_capacity(c: float, beta: float, K: float, p: float) -> None:
    try:
        d = storage_dimension(c, beta=beta, K=K, p=p)
    except ValueError:
        for other in (2, 3, 10, 100, 10_000):
            assert storage_capacity(other, beta=beta, K=K, p=p).c > c
        return
    assume(2 <= d < 1e6)
    assert storage_capacity(d, beta=beta, K=K, p=p).c == pytest.approx(c, rel=1e-9)


def test_both_branches_of_the_storage_dimension() -> None:
    assert storage_dimension(3.1546107697946884, beta=1.0, K=3.0, p=0.001) == pytest.approx(20)  # a > 0
    assert storage_dimension(1.3718777692166488, beta=1.0, K=1.0, p=0.001) == pytest.approx(75)
    falling = [storage_capacity(d, beta=1.0, K=1.0, p=0.001).c for d in (74, 75, 76)]
    assert falling == sorted(falling, reverse=True)
    needed = storage_dimension(1.2, beta=1.0, K=1.0, p=1.0)  # a < 0: from there upwards the base is at least c
    assert needed == pytest.approx(81.5504, abs=1e-4)
    assert storage_capacity(81, beta=1.0, K=1.0, p=1.0).c < 1.2 < storage_capacity(82, beta=1.0, K=1.0, p=1.0).c
    beta = 5 * math.log(2)
    assert math.log(2) / 2 - beta / 10 == 0.0  # a = 0
    assert storage_dimension(2.0, beta=beta, K=1.0, p=0.001) == pytest.approx(1 + 1 / (0.002 * math.e * beta))


def test_every_dimension_has_a_larger_base_in_the_example_of_the_corollary() -> None:
    with pytest.raises(ValueError, match=r"expected a exp\(-b\) of at least -1 / e, found -11.3.*larger than 2"):
        storage_dimension(2.0, beta=1.0, K=3.0, p=0.001)
    assert min(storage_capacity(d, beta=1.0, K=3.0, p=0.001).c for d in range(2, 2000)) > 3


def test_metastable_sphere_by_hand() -> None:
    stored = torch.tensor([[8.0, 6.0], [8.0, -6.0], [-6.0, 8.0]], dtype=torch.float64)
    members = torch.tensor([True, True, False])
    sphere = metastable_sphere(stored, members, beta=1 / 72)  # β m_max² = 1 / 2
    assert sphere.centre.tolist() == [8.0, 0.0]
    assert sphere.largest_distance.item() == 6.0
    assert sphere.radius.item() == pytest.approx(12.0)
    assert sphere.separation.item() == 64 + 48
    assert sphere.needed_separation.item() == pytest.approx(2 * 10 * 72 / 6 - 72 * math.log(0.5 * 72 / (2 * 10 * 20)))
    assert not sphere.proven
    assert metastable_sphere(stored, members, beta=1.0).needed_separation.item() == math.inf  # β m_max² = 36


def test_metastable_sphere_of_two_close_patterns_is_proven() -> None:
    stored = torch.tensor([[10.0, 0.5], [10.0, -0.5], [-10.0, 0.0]], dtype=torch.float64)
    sphere = metastable_sphere(stored, torch.tensor([True, True, False]), beta=1.0)
    assert sphere.separation.item() == 200
    assert sphere.proven
    assert distance(iterate(stored[0], stored, 1.0), sphere.centre) < 1e-9  # by symmetry
    alone = metastable_sphere(stored, torch.tensor([True, False, False]), beta=1.0)
    assert (alone.needed_separation.item(), alone.proven) == (math.inf, False)


def test_all_patterns_share_a_global_fixed_point_if_they_are_close() -> None:
    stored = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    everyone = torch.tensor([True, True])
    sphere = metastable_sphere(stored, everyone, beta=0.9)
    assert (sphere.separation.item(), sphere.needed_separation.item()) == (math.inf, -math.inf)
    assert sphere.proven
    assert not metastable_sphere(stored, everyone, beta=1.1).proven


def check_metastable_state(stored: Tensor, sphere: MetastableSphere, beta: float, seed: int) -> None:
    starts = [point_of_ball(sphere.centre, sphere.radius, share, seed + i) for i, share in enumerate((0.0, 0.5, 1.0))]
    for start in starts:
        assert distance(update(start, stored, beta), sphere.centre) <= sphere.radius * (1 + ROUNDING)
        norm = float(torch.linalg.matrix_norm(jacobian(start, stored, beta=beta), ord=2))
        assert norm < 1  # a contraction
    ends = [iterate(start, stored, beta) for start in starts]
    assert max(distance(end, ends[0]) for end in ends) < 1e-9
    assert distance(ends[0], sphere.centre) <= sphere.radius


@pytest.mark.slow
@settings(deadline=None, max_examples=50)
@given(
    n_others=st.integers(0, 6),
    n_members=st.integers(2, 5),
    d=st.integers(2, 10),
    spread=st.floats(0.3, 0.9),
    beta=st.floats(0.1, 10.0),
    seed=st.integers(0, 10_000),
)
def test_a_proven_sphere_holds_one_metastable_state(
    n_others: int, n_members: int, d: int, spread: float, beta: float, seed: int
) -> None:
    stored, members = cluster(beta, seed=seed, n_others=max(n_others, 1), n_members=n_members, d=d, spread=spread)
    if n_others == 0:
        stored, members = stored[members], members[members]
    sphere = metastable_sphere(stored, members, beta=beta)
    assume(sphere.proven)
    check_metastable_state(stored, sphere, beta, seed)
    order = torch.randperm(len(stored), generator=torch.Generator().manual_seed(seed))
    turned = metastable_sphere(stored[order] @ rotation(d, seed), members[order], beta=beta)
    torch.testing.assert_close(turned.separation, sphere.separation)
    torch.testing.assert_close(turned.needed_separation, sphere.needed_separation)


def test_most_clusters_are_proven_so_the_property_is_not_empty() -> None:
    n_proven = 0
    for seed in range(100):
        stored, members = cluster(1.0, seed=seed, n_others=3, n_members=3, d=6, spread=0.3 + 0.006 * seed)
        n_proven += metastable_sphere(stored, members, beta=1.0).proven
    assert n_proven > 50


@pytest.mark.parametrize(
    ("stored", "found"),
    [
        (torch.zeros(3), r"torch.float32 \(3,\)"),
        (torch.zeros(0, 3), r"torch.float32 \(0, 3\)"),
        (torch.zeros(2, 3, dtype=torch.int64), r"torch.int64 \(2, 3\)"),
    ],
)
def test_stored_patterns_are_rows_of_numbers(stored: Tensor, found: str) -> None:
    with pytest.raises(ValueError, match=f"stored: expected floating-point .*, found {found}"):
        separation(stored)


def test_arguments_that_do_not_fit_are_refused() -> None:
    stored, state, members = torch.eye(3), torch.zeros(3), torch.tensor([True, False, False])
    with pytest.raises(ValueError, match="beta: expected a positive number, found 0"):
        well_separated(stored, beta=0.0)
    with pytest.raises(ValueError, match=r"state: expected \(3,\), found \(2,\)"):
        jacobian(torch.zeros(2), stored, beta=1.0)
    with pytest.raises(ValueError, match=r"fixed_point: expected \(3,\), found \(4,\)"):
        one_update_bound(state, stored, index=0, fixed_point=torch.zeros(4), beta=1.0)
    for index in (-1, 3):
        with pytest.raises(ValueError, match=f"index: expected 0 to 2, found {index}"):
            retrieval_error_bound(state, stored, index=index, fixed_point=state, beta=1.0)
    for mask in (~members[:2], members.long(), torch.zeros(3, dtype=torch.bool)):
        with pytest.raises(ValueError, match=r"members: expected torch.bool \(3,\), at least one true, found"):
            metastable_sphere(stored, mask, beta=1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"d": 1.5}, "d: expected at least 2, found 1.5"),
        ({"beta": -1.0}, "beta: expected a positive number, found -1.0"),
        ({"K": math.nan}, "K: expected a positive number, found nan"),
        ({"p": 0.0}, r"p: expected a probability in \(0, 1\], found 0.0"),
    ],
)
def test_capacity_needs_a_sphere_and_a_probability(arguments: dict[str, float], message: str) -> None:
    valid = {"d": 20.0, "beta": 1.0, "K": 3.0, "p": 0.001}
    with pytest.raises(ValueError, match=message):
        storage_capacity(**{**valid, **arguments})
    if "d" not in arguments:
        with pytest.raises(ValueError, match=message):
            storage_dimension(2.0, **{name: value for name, value in {**valid, **arguments}.items() if name != "d"})


def test_the_base_of_a_storage_dimension_is_more_than_1() -> None:
    with pytest.raises(ValueError, match="c: expected more than 1, found 1"):
        storage_dimension(1.0, beta=1.0, K=1.0, p=0.1)
