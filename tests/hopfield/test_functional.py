"""The energy never rises, retrieval finds what theory says, and association is attention."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from deeprc.hopfield.functional import associate, association_weights, energy, retrieve, update


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_energy_by_hand() -> None:
    stored = torch.tensor([[1.0, 0.0], [0.0, 2.0]], dtype=torch.float64)  # M = 2
    state = torch.tensor([1.0, 1.0], dtype=torch.float64)  # Xᵀξ = (1, 2), ξᵀξ = 2
    lse = math.log(math.exp(0.5) + math.exp(1.0)) / 0.5
    assert energy(state, stored, 0.5).item() == pytest.approx(-lse + 1 + math.log(2) / 0.5 + 2)


def test_energy_of_the_only_pattern_is_zero() -> None:
    pattern = draw(0, 1, 5)
    assert energy(pattern, pattern, 3.0).item() == pytest.approx(0, abs=1e-12)


def test_energy_is_that_of_each_head() -> None:
    state, stored, beta = draw(0, 2, 3, 4, 6), draw(1, 2, 3, 5, 6), torch.tensor([0.5, 1.0, 4.0], dtype=torch.float64)
    together = energy(state, stored, beta)
    assert together.shape == (2, 3, 4)
    for b in range(2):
        for h in range(3):
            for s in range(4):
                alone = energy(state[b, h, s], stored[b, h], beta[h].item())
                assert together[b, h, s].item() == pytest.approx(alone.item())


def test_the_gradient_of_the_energy_is_the_state_less_its_update() -> None:
    stored, state = draw(0, 6, 4), draw(1, 4).requires_grad_()
    (slope,) = torch.autograd.grad(energy(state, stored, 1.5), state)
    torch.testing.assert_close(slope, state.detach() - update(state.detach(), stored, 1.5))


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(1, 12),
    d=st.integers(1, 8),
    beta=st.floats(0.01, 50),
    scale=st.floats(0.1, 5),
    seed=st.integers(0, 10_000),
)
def test_the_energy_never_rises_and_stays_in_its_bounds(n: int, d: int, beta: float, scale: float, seed: int) -> None:
    stored = scale * draw(seed, n, d)
    largest = stored.norm(dim=1).max()
    state = draw(seed + 1, d)
    state = state / state.norm() * largest * torch.rand((), generator=torch.Generator().manual_seed(seed))
    before = energy(state, stored, beta)
    for _ in range(20):
        assert -1e-9 <= before.item() <= 2 * largest.item() ** 2 + 1e-9
        state = update(state, stored, beta)
        after = energy(state, stored, beta)
        assert after.item() <= before.item() + 1e-9 * max(1.0, largest.item() ** 2)
        before = after
    assert before.item() <= math.log(n) / beta + largest.item() ** 2 / 2 + 1e-9  # in the simplex, lemma `th:energy`


def test_update_by_hand() -> None:
    stored = torch.tensor([[0.0], [math.log(3.0)]], dtype=torch.float64)
    new = update(torch.tensor([0.5], dtype=torch.float64), stored, 2.0)  # weights 1/4 and 3/4
    assert new.item() == pytest.approx(0.75 * math.log(3.0))


def test_a_separated_pattern_is_retrieved_in_one_update() -> None:
    stored = 4 * torch.nn.functional.normalize(draw(0, 10, 64), dim=1)
    found = retrieve(stored[3] + 0.1 * draw(1, 64) / 8, stored, 4.0, tolerance=1e-6)
    assert found.converged
    assert found.n_updates.item() == 2  # the second shows that the first had arrived
    torch.testing.assert_close(found.state, stored[3], atol=1e-6, rtol=0)


def test_three_kinds_of_fixed_point_as_beta_grows() -> None:
    centre = torch.nn.functional.normalize(draw(0, 3, 16), dim=1)
    cluster = torch.nn.functional.normalize(centre[0] + 0.1 * draw(1, 4, 16), dim=1)
    stored = torch.cat([cluster, centre[1:]])
    start = cluster[0]
    of_all = retrieve(start, stored, 0.1, max_updates=1000, tolerance=1e-12).state
    of_cluster = retrieve(start, stored, 10.0, max_updates=1000, tolerance=1e-12).state
    of_one = retrieve(start, stored, 500.0, max_updates=1000, tolerance=1e-12).state
    other = retrieve(stored[5], stored, 0.1, max_updates=1000, tolerance=1e-12).state
    torch.testing.assert_close(of_all, other)  # one fixed point for all starts ...
    torch.testing.assert_close(of_all, stored.mean(dim=0), atol=0.1, rtol=0)  # ... near the mean of all patterns
    torch.testing.assert_close(of_cluster, cluster.mean(dim=0), atol=0.05, rtol=0)
    for near in cluster:  # the whole cluster has it
        same = retrieve(near, stored, 10.0, max_updates=1000, tolerance=1e-12).state
        torch.testing.assert_close(same, of_cluster, atol=1e-6, rtol=0)
    torch.testing.assert_close(of_one, start, atol=1e-3, rtol=0)
    assert (of_cluster - start).norm() > 0.1


def test_heads_stop_by_their_own_limit_and_tolerance() -> None:
    stored, state = draw(0, 3, 20, 8), draw(1, 3, 5, 8)
    beta = torch.tensor([1.0, 1.0, 0.01], dtype=torch.float64)
    found = retrieve(state, stored, beta, max_updates=[2, 50, 50], tolerance=1e-3)
    assert found.n_updates[0] == 2
    assert not found.converged[0]
    assert found.converged[1:].all()
    assert found.n_updates[2] < found.n_updates[1] < 50  # nearly no β: the mean at once
    for h in range(3):
        expected = state[h]
        for step in range(int(found.n_updates[h])):
            new = update(expected, stored[h], beta[h].item())
            change = (new - expected).norm(dim=1).max().item()
            assert change > 1e-3 or step + 1 == found.n_updates[h]  # the most restless state decides
            expected = new
        torch.testing.assert_close(found.state[h], expected)


def test_sets_of_a_batch_stop_independently() -> None:
    stored, state = draw(0, 4, 2, 9, 6), draw(1, 4, 2, 3, 6)
    together = retrieve(state, stored, 2.0, tolerance=1e-3)
    assert len(together.n_updates.unique()) > 1
    for b in range(4):
        alone = retrieve(state[b], stored[b], 2.0, tolerance=1e-3)
        assert torch.equal(together.n_updates[b], alone.n_updates)
        torch.testing.assert_close(together.state[b], alone.state)


def test_no_updates_leave_the_state() -> None:
    found = retrieve(draw(0, 2, 3, 4), draw(1, 2, 5, 4), 1.0, max_updates=0)
    assert torch.equal(found.state, draw(0, 2, 3, 4))
    assert not found.converged.any()


def test_several_updates_are_the_last_of_a_retrieval() -> None:
    state, stored, values = draw(0, 2, 3, 4), draw(1, 2, 6, 4), draw(2, 2, 6, 5)
    found = associate(state, stored, values, beta=1.5, max_updates=[1, 4], tolerance=0.0)
    torch.testing.assert_close(found[0], torch.softmax(1.5 * state[0] @ stored[0].T, dim=1) @ values[0])
    moved = state[1]
    for _ in range(3):
        moved = update(moved, stored[1], 1.5)
    expected = torch.softmax(1.5 * moved @ stored[1].T, dim=1)
    torch.testing.assert_close(found[1], expected @ values[1])
    weights = association_weights(state, stored, 1.5, max_updates=[1, 4], tolerance=0.0)
    torch.testing.assert_close(weights[1], expected)


@pytest.mark.parametrize("kind", ["boolean", "numbers"])
def test_masked_patterns_are_as_if_absent(kind: str) -> None:
    state, stored = draw(0, 2, 3, 4), draw(1, 2, 6, 4)
    left_out = torch.tensor([False, True, False, False, True, False])
    mask = left_out if kind == "boolean" else torch.zeros(6).masked_fill(left_out, -math.inf)
    found = associate(state, stored, beta=1.0, mask=mask, max_updates=3)
    torch.testing.assert_close(found, associate(state, stored[:, ~left_out], beta=1.0, max_updates=3))
    weights = association_weights(state, stored, 1.0, mask=mask)
    assert (weights[..., left_out] == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, dtype=torch.float64))


def test_numbers_of_a_mask_are_added_to_the_logits() -> None:
    state, stored, mask = draw(0, 2, 3, 4), draw(1, 2, 6, 4), draw(2, 3, 6)
    expected = torch.softmax(2.0 * state @ stored.mT + mask, dim=-1) @ stored
    torch.testing.assert_close(associate(state, stored, beta=2.0, mask=mask), expected)


def test_a_state_without_stored_patterns_becomes_zero() -> None:
    state, stored = draw(0, 2, 3, 4).requires_grad_(), draw(1, 2, 6, 4)
    mask = torch.zeros(3, 6, dtype=torch.bool)
    mask[1] = True
    found = associate(state, stored, beta=1.0, mask=mask)
    assert (found[:, 1] == 0).all()
    assert found[:, [0, 2]].abs().min() > 0
    assert torch.autograd.grad(found.sum(), state)[0].isfinite().all()
    assert (association_weights(state, stored, 1.0, mask=mask)[:, 1] == 0).all()
    assert (associate(state, stored[:, :0], beta=1.0) == 0).all()


def test_short_numbers_take_a_long_beta() -> None:
    state, stored = draw(0, 2, 3, 8).bfloat16(), draw(1, 2, 5, 8).bfloat16()
    found = associate(state, stored, beta=torch.tensor([0.5, 1.0]))
    assert found.dtype == torch.bfloat16
    expected = associate(state.double(), stored.double(), beta=torch.tensor([0.5, 1.0]).double())
    torch.testing.assert_close(found.double(), expected, atol=0.03, rtol=0.03)


def test_dropout_keeps_the_mean() -> None:
    torch.manual_seed(0)
    state, stored = torch.zeros(1, 4000, 2), torch.ones(1, 10, 2)
    found = associate(state, stored, beta=1.0, dropout=0.5)
    assert found.mean().item() == pytest.approx(1.0, abs=0.03)
    assert len(found.unique()) > 5


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(
    sizes=st.lists(st.integers(0, 6), min_size=1, max_size=4),
    heads=st.integers(1, 3),
    shared_stored=st.booleans(),
    shared_values=st.booleans(),
    own_states=st.booleans(),
    updates=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_ragged_sets_are_one_set_at_a_time(
    sizes: list[int],
    heads: int,
    shared_stored: bool,
    shared_values: bool,
    own_states: bool,
    updates: int,
    seed: int,
) -> None:
    offsets = torch.tensor([0, *torch.tensor(sizes).cumsum(0).tolist()])
    n = int(offsets[-1])
    stored = draw(seed, 1 if shared_stored else heads, n, 4)
    values = draw(seed + 1, 1 if shared_values else heads, n, 3)
    beta = torch.linspace(0.5, 2.0, heads, dtype=torch.float64)
    state_sizes = [(size + seed) % 4 for size in sizes]
    state_offsets = torch.tensor([0, *torch.tensor(state_sizes).cumsum(0).tolist()])
    state = draw(seed + 2, heads, int(state_offsets[-1]) if own_states else 2, 4)
    found = associate(
        state,
        stored,
        values,
        beta=beta,
        offsets=offsets,
        state_offsets=state_offsets if own_states else None,
        max_updates=updates,
    )
    for b in range(len(sizes)):
        rows = slice(int(offsets[b]), int(offsets[b + 1]))
        own = slice(int(state_offsets[b]), int(state_offsets[b + 1]))
        expected = associate(
            state[:, own] if own_states else state, stored[:, rows], values[:, rows], beta=beta, max_updates=updates
        )
        torch.testing.assert_close(found[:, own] if own_states else found[b], expected, check_stride=False)


def test_wrong_use_of_offsets_is_named() -> None:
    patterns, offsets = draw(0, 1, 4, 3), torch.tensor([0, 4])
    with pytest.raises(ValueError, match="mask: expected None with offsets"):
        associate(patterns, patterns, beta=1.0, offsets=offsets, mask=torch.zeros(4, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"\(H, N, d\), found \[\(1, 1, 4, 3\), \(1, 4, 3\)"):
        associate(patterns[None], patterns, beta=1.0, offsets=offsets)


@pytest.mark.slow
@pytest.mark.parametrize("max_updates", [1, 3])
def test_gradcheck(max_updates: int) -> None:
    inputs = tuple(x.requires_grad_() for x in (draw(0, 2, 3, 4), draw(1, 2, 5, 4), draw(2, 2, 5, 3)))
    beta = torch.tensor([0.5, 1.5], dtype=torch.float64, requires_grad=True)
    offsets = torch.tensor([0, 2, 2, 5])

    def dense(*t: Tensor) -> Tensor:
        return associate(*t[:3], beta=t[3], max_updates=max_updates, tolerance=0.0)

    def ragged(*t: Tensor) -> Tensor:
        return associate(*t[:3], beta=t[3], max_updates=max_updates, tolerance=0.0, offsets=offsets)

    assert torch.autograd.gradcheck(dense, (*inputs, beta))
    assert torch.autograd.gradcheck(ragged, (*inputs, beta))
    assert torch.autograd.gradcheck(lambda a, b: energy(a, b, 0.7), inputs[:2])


def test_energy_of_one_state_has_one_value_per_head() -> None:
    stored, state, beta = draw(0, 3, 7, 4), draw(1, 4), torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    found = energy(state, stored, beta)
    assert found.shape == (3,)
    for h in range(3):
        assert found[h].item() == pytest.approx(energy(state, stored[h], beta[h].item()).item())


def test_a_state_that_is_no_number_does_not_rest() -> None:
    found = retrieve(torch.full((1, 2, 4), math.nan), draw(0, 1, 5, 4).float(), 1.0, max_updates=3)
    assert not found.converged.any() or found.state.isfinite().all()
    far = retrieve(draw(0, 1, 2, 4), torch.full((1, 5, 4), math.nan, dtype=torch.float64), 1.0, max_updates=3)
    assert not far.converged.any()
    assert far.n_updates.item() == 3


def test_no_sets_at_all() -> None:
    state, stored = draw(0, 2, 3, 4), draw(1, 2, 0, 4)
    none = torch.tensor([0])
    for max_updates in (1, 2):
        found = associate(state, stored, draw(2, 2, 0, 5), beta=1.0, offsets=none, max_updates=max_updates)
        assert found.shape == (0, 2, 3, 5)
    both = associate(state[:, :0], stored, beta=1.0, offsets=none, state_offsets=none)
    assert both.shape == (2, 0, 4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_everything_takes_short_numbers_and_a_long_beta(dtype: torch.dtype) -> None:
    beta = torch.tensor([0.5, 1.0])
    state, stored = draw(0, 2, 3, 8), draw(1, 2, 5, 8)
    short = (state.to(dtype), stored.to(dtype))
    offsets = torch.tensor([0, 2, 5])
    for function in (
        lambda a, b, beta: energy(a, b, beta),
        lambda a, b, beta: association_weights(a, b, beta),
        lambda a, b, beta: associate(a, b, beta=beta, offsets=offsets),
    ):
        expected = function(state, stored, beta.double())
        torch.testing.assert_close(function(*short, beta).double(), expected, atol=0.1, rtol=0.05)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"state_offsets": torch.tensor([0, 3])}, "state_offsets: expected only with offsets"),
        ({"offsets": torch.tensor([0, 7])}, "offsets: expected to rise from 0 to 6 at most, found from 0 to 7"),
        ({"offsets": torch.tensor([2, 6])}, "found from 2 to 6"),
        ({"offsets": torch.tensor([0, 4, 2, 6])}, "found from 0 to 6, falling"),
        ({"offsets": torch.tensor([0, 6], dtype=torch.int32)}, r"expected \(B \+ 1,\) int64, found \(2,\) torch.int32"),
        ({"offsets": torch.tensor([0, 6]), "state_offsets": torch.tensor([0, 4])}, "state_offsets: expected to rise"),
        ({"offsets": torch.tensor([0, 2, 6]), "state_offsets": torch.tensor([0, 3])}, "those of 2 sets, .* found 1"),
        (
            {"mask": torch.zeros(6, dtype=torch.int64)},
            "mask: expected bool or floating-point numbers, found torch.int64",
        ),
        ({"beta": -1.0}, "beta: expected a positive number, found -1.0"),
        ({"max_updates": 0}, "max_updates: expected a whole number of at least 1, found 0"),
    ],
)
def test_invalid_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        associate(draw(0, 2, 3, 4), draw(1, 2, 6, 4), **{"beta": 1.0, **options})
