"""Every option of the three layers does what it says; off, a layer is attention as everybody knows it."""

import copy
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor, nn

from deeprc.hopfield import Hopfield, HopfieldLayer, HopfieldPooling
from deeprc.hopfield.functional import associate
from deeprc.hopfield.transformer import copy_attention

OFFSETS = torch.tensor([0, 5, 5, 12])
NORMALISATIONS = ["inputs", "projected", "none"]
VALUES = ["projected", "raw", "associated"]


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def shaken(layer: nn.Module) -> Any:
    """Move every parameter, so that no bias is 0."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return layer


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_without_normalisation_the_layer_is_multihead_attention(bias: bool, batch_first: bool) -> None:
    torch.manual_seed(0)
    attention = shaken(nn.MultiheadAttention(12, 3, bias=bias, batch_first=batch_first))
    layer = Hopfield(12, n_heads=3, normalisation="none", bias=bias, batch_first=batch_first)
    copy_attention(attention, layer)
    state, stored = draw(1, 2, 5, 12), draw(2, 2, 7, 12)
    if not batch_first:
        state, stored = state.transpose(0, 1).contiguous(), stored.transpose(0, 1).contiguous()
    state, stored = state.requires_grad_(), stored.requires_grad_()
    padding = torch.zeros(2, 7, dtype=torch.bool)
    padding[0, 5:] = True
    for mask in (None, draw(3, 5, 7) > 0.8, draw(3, 5, 7), draw(4, 6, 5, 7)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch: mismatched mask types
            expected = attention(state, stored, stored, key_padding_mask=padding, attn_mask=mask, need_weights=False)[0]
        found = layer(state, stored, stored_padding_mask=padding, association_mask=mask)
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
        direction = draw(6, *found.shape)
        for own, other in zip(
            torch.autograd.grad((found * direction).sum(), (state, stored)),
            torch.autograd.grad((expected * direction).sum(), (state, stored)),
            strict=True,
        ):
            torch.testing.assert_close(own, other, atol=1e-6, rtol=1e-5)
    weights = attention(state, stored, stored, key_padding_mask=padding, average_attn_weights=False)[1]
    torch.testing.assert_close(layer.association_weights(state, stored, stored_padding_mask=padding), weights)


def test_different_dimensions_are_those_of_multihead_attention() -> None:
    attention = shaken(nn.MultiheadAttention(12, 3, kdim=5, vdim=4, batch_first=True))
    layer = Hopfield(12, 5, 4, n_heads=3, normalisation="none")
    copy_attention(attention, layer)
    state, stored, values = draw(1, 2, 3, 12), draw(2, 2, 7, 5), draw(3, 2, 7, 4)
    torch.testing.assert_close(layer(state, stored, values), attention(state, stored, values)[0])
    with pytest.raises(ValueError, match="add_zero_attn"):
        copy_attention(nn.MultiheadAttention(12, 3, add_zero_attn=True), layer)


def test_dimensions_may_differ_and_those_that_do_not_fit_are_refused() -> None:
    layer = Hopfield(6, 5, n_heads=3, key_dim=7, value_dim=2, output_dim=9)
    assert layer(draw(0, 4, 6), draw(1, 8, 5)).shape == (4, 9)
    assert layer.association.beta.tolist() == pytest.approx([7**-0.5] * 3)
    assert layer.map_states.linear is not None
    assert layer.map_states.linear.weight.shape == (21, 6)
    assert Hopfield(6, n_heads=2, value_dim=5, project_output=False)(draw(0, 4, 6)).shape == (4, 10)
    with pytest.raises(ValueError, match="key_dim: 4 heads cannot share 6 dimensions"):
        Hopfield(6, n_heads=4)
    with pytest.raises(ValueError, match=r"expected patterns of 6 dimensions, \(..., N, 6\), found \(6,\)"):
        Hopfield(6)(draw(0, 6))
    with pytest.raises(ValueError, match="not projected keep their 6 dimensions; expected 3"):
        Hopfield(6, key_dim=3, project_states=False)


@pytest.mark.parametrize("values", ["projected", "raw"])
def test_stored_patterns_that_do_not_fit_the_map_of_the_values_are_refused(values: Any) -> None:
    pooling = HopfieldPooling(8, 5, values=values, normalisation="none", project_output=False)
    with pytest.raises(ValueError, match=r"expected patterns of 5 dimensions, \(..., N, 5\), found \(3, 8\)"):
        pooling(draw(0, 3, 8))  # they are also the values, which must have 5 dimensions


def test_associated_values_are_retrieved_states() -> None:
    layer = Hopfield(6, n_heads=2, key_dim=4, values="associated", project_output=False, max_updates=3, tolerance=0.0)
    state, stored = draw(0, 3, 6), draw(1, 8, 6)
    retrieved = associate(layer.map_states(state), layer.map_stored(stored), beta=0.5, max_updates=3, tolerance=0.0)
    torch.testing.assert_close(layer(state, stored), retrieved.transpose(0, 1).flatten(1))


def test_patterns_that_are_not_projected_are_shared_by_the_heads() -> None:
    layer = Hopfield(
        4,
        n_heads=2,
        project_states=False,
        project_stored=False,
        values="raw",
        project_output=False,
        normalisation="none",
        beta=[0.5, 3.0],
    )
    state, stored = draw(0, 3, 4), draw(1, 8, 4)
    expected = [torch.softmax(beta * state @ stored.T, dim=1) @ stored for beta in (0.5, 3.0)]
    torch.testing.assert_close(layer(state, stored), torch.cat(expected, dim=1))
    assert not list(layer.parameters())


def test_normalisation_of_inputs_and_of_projected_patterns() -> None:
    state, stored = draw(0, 3, 6), draw(1, 8, 6)
    inputs, none = (shaken(Hopfield(6, n_heads=2, normalisation=n)) for n in ("inputs", "none"))
    none.load_state_dict(inputs.state_dict())
    normalised = [nn.functional.layer_norm(x, (6,)) for x in (state, stored)]
    torch.testing.assert_close(inputs(state, stored), none(*normalised))
    torch.testing.assert_close(inputs(5 * state + 2, stored), inputs(state, stored), atol=1e-4, rtol=1e-4)
    projected = shaken(Hopfield(6, n_heads=2, key_dim=5, normalisation="projected"))
    for patterns in (projected.map_states(state), projected.map_stored(stored)):
        torch.testing.assert_close(patterns.mean(-1), torch.zeros(patterns.shape[:-1]), atol=1e-5, rtol=0)
        torch.testing.assert_close(patterns.norm(dim=-1), torch.full(patterns.shape[:-1], 5**0.5), atol=1e-3, rtol=0)


def test_updates_per_head_and_the_threshold() -> None:
    options: dict[str, Any] = {"n_heads": 2, "project_output": False, "values": "associated", "beta": 2.0}
    torch.manual_seed(0)
    once, thrice = Hopfield(8, **options), Hopfield(8, max_updates=[1, 3], tolerance=0.0, **options)
    thrice.load_state_dict(once.state_dict())
    state, stored = 3 * draw(0, 4, 8), 3 * draw(1, 9, 8)
    first, second = once(state, stored).split(4, dim=1)
    found = thrice(state, stored).split(4, dim=1)
    torch.testing.assert_close(found[0], first)
    assert (found[1] - second).abs().max() > 1e-2
    patient = Hopfield(8, max_updates=1000, tolerance=1e9, **options)  # any change is small enough: one, then the last
    patient.load_state_dict(once.state_dict())
    twice = Hopfield(8, max_updates=2, tolerance=0.0, **options)
    twice.load_state_dict(once.state_dict())
    torch.testing.assert_close(patient(state, stored), twice(state, stored))


def test_beta_is_fixed_per_head_or_learned_and_positive() -> None:
    fixed = HopfieldPooling(4, n_heads=2, beta=[0.5, 2.0])
    assert fixed.association.beta.tolist() == pytest.approx([0.5, 2.0])
    assert HopfieldPooling(4, n_heads=2, beta=torch.tensor(3.0)).association.beta.tolist() == pytest.approx([3.0, 3.0])
    assert dict(fixed.association.named_parameters()) == {}
    learned = HopfieldPooling(4, n_heads=2, learn_beta=True)
    assert learned.association.beta.tolist() == pytest.approx([2**-0.5] * 2)
    optimiser = torch.optim.SGD(learned.parameters(), lr=1e3)
    for _ in range(5):
        optimiser.zero_grad()
        learned(draw(0, 7, 4)).square().sum().backward()
        assert learned.association.log_beta.grad is not None
        nn.utils.clip_grad_norm_(learned.parameters(), 1e-2)
        optimiser.step()
    assert (learned.association.beta > 0).all()
    assert (learned.association.beta - 2**-0.5).abs().min() > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta": 0.0}, "beta: expected a positive number, found 0.0"),
        ({"beta": [1.0, -1.0]}, "beta: expected a positive number"),
        ({"beta": [1.0]}, "beta: expected one number, or one for each of 2 heads, found 1"),
        ({"max_updates": 0}, "max_updates: expected a whole number of at least 1, found 0"),
        ({"max_updates": 1.9}, "max_updates: expected a whole number of at least 1, found 1.9"),
        ({"max_updates": float("inf")}, "max_updates: expected a whole number of at least 1, found inf"),
        ({"max_updates": [1, 2, 3]}, "max_updates: expected one number, or one for each of 2 heads, found 3"),
        ({"dropout": 1.0}, "dropout: expected a number of at least 0 and less than 1, found 1.0"),
        ({"normalisation": "input"}, "normalisation: expected inputs, projected or none, found 'input'"),
        ({"values": "raws"}, "values: expected projected, raw or associated, found 'raws'"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HopfieldPooling(4, n_heads=2, **options)


def test_dropout_is_for_training_only() -> None:
    torch.manual_seed(0)
    for layer in (Hopfield(6, dropout=0.5), HopfieldPooling(6, dropout=0.5)):
        stored = draw(0, 20, 6)
        inputs = (draw(1, 2, 6), stored) if isinstance(layer, Hopfield) else (stored,)
        assert not torch.equal(layer(*inputs), layer(*inputs))
        if isinstance(layer, HopfieldPooling):
            offsets = torch.tensor([0, 20])
            assert not torch.equal(layer(stored, offsets=offsets), layer(stored, offsets=offsets))
        layer.eval()
        assert torch.equal(layer(*inputs), layer(*inputs))


@pytest.mark.slow
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("normalisation", NORMALISATIONS)
@pytest.mark.parametrize("max_updates", [1, 3])
def test_pooling_is_the_same_padded_ragged_or_alone(
    values: Any, normalisation: Any, max_updates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    layer = shaken(
        HopfieldPooling(
            6,
            n_queries=2,
            n_heads=3,
            key_dim=4,
            value_dim=5 if values == "projected" else None,
            output_dim=7,
            values=values,
            normalisation=normalisation,
            max_updates=max_updates,
            tolerance=0.0,
            beta=[0.3, 1.0, 3.0],
        )
    ).double()
    stored = draw(1, 12, 6).double().requires_grad_()
    padded = torch.stack([torch.cat([stored[:5], draw(2, 2, 6)]), draw(2, 7, 6).double(), stored[5:]])
    padding = torch.zeros(3, 7, dtype=torch.bool)
    padding[0, 5:], padding[1] = True, True
    direction = draw(3, 3, 2, 7)
    results = []
    for mapped_first in (False, True):
        if mapped_first:  # every stored pattern is mapped, as the formula says
            monkeypatch.setattr(layer, "_can_pool_raw_patterns", lambda: False)
        ragged, dense = layer(stored, offsets=OFFSETS), layer(padded, stored_padding_mask=padding)
        numbers = torch.zeros(3, 7).masked_fill(padding, -torch.inf)
        as_numbers = layer(padded, stored_padding_mask=numbers)
        sets = [stored[first:last] for first, last in ((0, 5), (5, 5), (5, 12))]
        alone = torch.stack([layer(one) for one in sets])
        for result in (ragged, dense, as_numbers, alone):
            layer.zero_grad()
            (of_stored,) = torch.autograd.grad((result * direction).sum(), stored, retain_graph=True)
            (result * direction).sum().backward()
            gradients = {
                name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in layer.named_parameters()
            }
            results.append((result, of_stored, gradients))
    assert results[0][0].shape == (3, 2, 7)
    for found, of_stored, gradients in results[1:]:
        torch.testing.assert_close(found, results[0][0], atol=1e-10, rtol=1e-8)
        torch.testing.assert_close(of_stored, results[0][1], atol=1e-10, rtol=1e-8)
        for name, gradient in gradients.items():
            torch.testing.assert_close(gradient, results[0][2][name], atol=1e-10, rtol=1e-8)


@settings(deadline=None, max_examples=25)
@given(
    n=st.integers(1, 20),
    queries=st.integers(1, 3),
    heads=st.integers(1, 3),
    updates=st.integers(1, 2),
    seed=st.integers(0, 1000),
)
def test_the_order_of_stored_patterns_does_not_matter(
    n: int, queries: int, heads: int, updates: int, seed: int
) -> None:
    torch.manual_seed(seed)
    layer = HopfieldPooling(6, n_queries=queries, n_heads=heads, key_dim=4, max_updates=updates).double()
    stored = draw(seed, n, 6).double()
    order = torch.randperm(n)
    expected = layer(stored)
    torch.testing.assert_close(layer(stored[order]), expected)
    offsets = torch.tensor([0, n])
    torch.testing.assert_close(layer(stored[order], offsets=offsets)[0], expected)


def test_pooling_of_other_values() -> None:
    layer = HopfieldPooling(4, 3, project_stored=False, values="raw", project_output=False, normalisation="none")
    keys, values = draw(0, 12, 4), draw(1, 12, 3)
    found = layer(keys, values, offsets=OFFSETS)
    for b in (0, 2):
        rows = slice(int(OFFSETS[b]), int(OFFSETS[b + 1]))
        weights = torch.softmax(layer.queries[0, 0] @ keys[rows].T / 2, dim=0)
        torch.testing.assert_close(found[b, 0], weights @ values[rows])
    assert (found[1] == 0).all()
    together = layer.association_weights(keys, offsets=OFFSETS)
    assert together.shape == (1, 1, 12)
    for b in (0, 2):
        rows = slice(int(OFFSETS[b]), int(OFFSETS[b + 1]))
        torch.testing.assert_close(together[..., rows], layer.association_weights(keys[rows]))
    weights = layer.association_weights(keys[:5])
    torch.testing.assert_close(weights[0] @ values[:5], found[0])


def test_ragged_association_is_one_pair_of_sets_at_a_time() -> None:
    torch.manual_seed(0)
    layer = shaken(Hopfield(6, n_heads=2, max_updates=2, beta=1.0))
    state, stored = draw(0, 8, 6), draw(1, 12, 6)
    state_offsets = torch.tensor([0, 3, 5, 8])
    found = layer(state, stored, offsets=OFFSETS, state_offsets=state_offsets)
    for b in range(3):
        own = slice(int(state_offsets[b]), int(state_offsets[b + 1]))
        rows = slice(int(OFFSETS[b]), int(OFFSETS[b + 1]))
        torch.testing.assert_close(found[own], layer(state[own], stored[rows]), atol=1e-6, rtol=1e-5)
    itself = layer(state, state_offsets=state_offsets)
    torch.testing.assert_close(itself[3:5], layer(state[3:5]), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(layer(state[:2], stored, offsets=OFFSETS)[2], layer(state[:2], stored[5:]))


def test_a_learned_memory_is_like_a_layer_of_softmax_neurons() -> None:
    torch.manual_seed(0)
    layer = shaken(HopfieldLayer(6, n_stored=9, n_heads=2, output_dim=3))
    state = draw(0, 2, 5, 6)
    found = layer(state)
    assert found.shape == (2, 5, 3)
    torch.testing.assert_close(found[1], layer.hopfield(state[1], layer.stored))
    torch.testing.assert_close(found[1], layer(state[1]))
    found.sum().backward()
    assert layer.stored.grad is not None
    second = HopfieldLayer(6, n_stored=9, n_heads=2, output_dim=3, batch_first=False)
    second.load_state_dict(layer.state_dict())
    torch.testing.assert_close(second(state.transpose(0, 1)), found.transpose(0, 1))
    assert layer.association_weights(state).shape == (2, 2, 5, 9)
    fixed = HopfieldLayer(6, n_stored=9, learn_stored=False)
    assert not fixed.stored.requires_grad


def wine() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    features, labels = load_wine(return_X_y=True)
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    parts = train_test_split(features, labels, test_size=0.4, random_state=0, stratify=labels)
    known, new, of_known, of_new = (torch.as_tensor(part) for part in parts)
    return known.float(), new.float(), of_known.long(), of_new.long()


def test_a_filled_memory_with_large_beta_is_the_nearest_neighbour() -> None:
    known, new, of_known, of_new = wine()
    layer = HopfieldLayer.filled(known, nn.functional.one_hot(of_known).float(), beta=1e4)
    found = layer(new)
    normalised = [nn.functional.layer_norm(x, x.shape[-1:]).numpy() for x in (known, new)]
    expected = KNeighborsClassifier(1).fit(normalised[0], of_known.numpy()).predict(normalised[1])
    assert (found.argmax(1).numpy() == expected).all()
    assert (found.argmax(1) == of_new).float().mean() > 0.9
    torch.testing.assert_close(found.sum(1), torch.ones(len(new)))
    assert not any(parameter.requires_grad for parameter in layer.parameters())


def test_a_smaller_beta_averages_over_the_neighbourhood() -> None:
    known, new, of_known, _ = wine()
    targets = nn.functional.one_hot(of_known).float()
    found = HopfieldLayer.filled(known, targets, beta=0.5, normalisation="none")(new)
    torch.testing.assert_close(found, torch.softmax(0.5 * new @ known.T, dim=1) @ targets)


def fit(layer: HopfieldLayer, known: Tensor, labels: Tensor) -> None:
    chosen = [parameter for parameter in layer.parameters() if parameter.requires_grad]
    optimiser = torch.optim.Adam(chosen, lr=0.05)
    for _ in range(100):
        optimiser.zero_grad()
        nn.functional.cross_entropy(layer(known), labels).backward()
        optimiser.step()


def test_learned_targets_are_a_kernel_machine() -> None:
    known, new, of_known, of_new = wine()
    layer = HopfieldLayer.filled(known, torch.zeros(len(known), 3), learn_targets=True, beta=0.5)
    assert (layer(new) == 0).all()
    fit(layer, known, of_known)
    assert torch.equal(layer.stored, known)
    assert (layer(new).argmax(1) == of_new).float().mean() > 0.9


def test_learned_prototypes_are_like_vector_quantisation() -> None:
    known, new, of_known, of_new = wine()
    generator = torch.Generator().manual_seed(0)
    prototypes = torch.stack([known[of_known == k][:2].mean(0) for k in range(3)])
    prototypes = prototypes + torch.randn(prototypes.shape, generator=generator)
    layer = HopfieldLayer.filled(prototypes, 10 * torch.eye(3), learn_stored=True, beta=1.0)
    before = nn.functional.cross_entropy(layer(known), of_known)
    fit(layer, known, of_known)
    assert nn.functional.cross_entropy(layer(known), of_known) < before / 2
    assert (layer(new).argmax(1) == of_new).float().mean() > 0.9
    assert torch.equal(layer.targets, 10 * torch.eye(3))


def test_a_projected_memory_starts_with_one_map_for_both() -> None:
    known, _, of_known, _ = wine()
    targets = nn.functional.one_hot(of_known).float()
    layer = HopfieldLayer.filled(known, targets, project=True, key_dim=8, beta=100.0, normalisation="projected")
    weights = layer.association_weights(known)[0]
    own = weights.diagonal()
    assert (own > 0.99 * weights.amax(dim=1)).all()  # every pattern finds itself
    with pytest.raises(ValueError, match=r"targets: expected one for each of 106 patterns, \(106, T\), found \(3, 3\)"):
        HopfieldLayer.filled(known, torch.eye(3))
    with pytest.raises(ValueError, match=r"found \(106,\)"):
        HopfieldLayer.filled(known, of_known)
    with pytest.raises(ValueError, match="key_dim: patterns have an associative space of their own only with project"):
        HopfieldLayer.filled(known, targets, key_dim=8)


def test_a_filled_memory_has_the_precision_of_its_patterns() -> None:
    known, new, of_known, _ = wine()
    layer = HopfieldLayer.filled(known.double(), nn.functional.one_hot(of_known), beta=2.0)
    found = layer(new.double())
    assert found.dtype == torch.float64
    assert torch.equal(layer.stored, known.double())


def test_a_mask_keeps_a_stored_pattern_from_finding_itself() -> None:
    known, _, of_known, _ = wine()
    layer = HopfieldLayer.filled(known, nn.functional.one_hot(of_known), beta=1e4)
    own = torch.eye(len(known), dtype=torch.bool)
    assert torch.equal(layer.association_weights(known)[0].argmax(1), torch.arange(len(known)))
    assert (layer.association_weights(known, association_mask=own)[0].diagonal() == 0).all()
    left_out = layer(known, association_mask=own)
    for row in (0, 17):
        others = HopfieldLayer.filled(known[~own[row]], nn.functional.one_hot(of_known[~own[row]]), beta=1e4)
        torch.testing.assert_close(left_out[row], others(known[row : row + 1])[0])


def layers() -> list[tuple[nn.Module, tuple[Tensor, ...]]]:
    torch.manual_seed(0)
    state, stored = draw(0, 2, 3, 6), draw(1, 2, 8, 6)
    return [
        (Hopfield(6, n_heads=2, learn_beta=True, max_updates=[1, 3], tolerance=1e-3), (state, stored)),
        (HopfieldPooling(6, n_queries=2, n_heads=3), (stored,)),
        (HopfieldLayer(6, n_stored=4, learn_stored=False, normalisation="projected"), (state,)),
        (HopfieldLayer.filled(draw(2, 5, 6), draw(3, 5, 2)), (state,)),
    ]


@pytest.mark.parametrize("kind", ["autocast", "converted"])
def test_layers_work_in_16_bits(kind: str) -> None:
    for layer, inputs in layers():
        expected = layer(*inputs)
        if kind == "autocast":
            with torch.autocast("cpu", torch.bfloat16):
                found = layer(*inputs)
        else:
            found = copy.deepcopy(layer).bfloat16()(*(x.bfloat16() for x in inputs))
        torch.testing.assert_close(found.float(), expected, atol=0.1, rtol=0.1)
    pooling, stored = HopfieldPooling(6, n_heads=2), draw(0, 12, 6)
    with torch.autocast("cpu", torch.bfloat16):
        found = pooling(stored, offsets=OFFSETS)
    torch.testing.assert_close(found.float(), pooling(stored, offsets=OFFSETS), atol=0.1, rtol=0.1)


def test_a_filled_memory_is_restored_without_its_data() -> None:
    filled = HopfieldLayer.filled(draw(2, 5, 6), draw(3, 5, 2), beta=2.0)
    plain: Any = {"project_states": False, "project_stored": False, "project_output": False}
    empty = HopfieldLayer(6, n_stored=5, target_dim=2, **plain)
    empty.load_state_dict(filled.state_dict())
    assert torch.equal(empty(draw(0, 4, 6)), filled(draw(0, 4, 6)))


def test_a_mask_per_head_for_one_set_is_that_of_multihead_attention() -> None:
    attention = shaken(nn.MultiheadAttention(12, 3, batch_first=True))
    layer = Hopfield(12, n_heads=3, normalisation="none")
    copy_attention(attention, layer)
    state, stored, mask = draw(1, 5, 12), draw(2, 7, 12), draw(3, 3, 5, 7)
    expected = attention(state, stored, stored, attn_mask=mask)[0]
    torch.testing.assert_close(layer(state, stored, association_mask=mask), expected)
    assert layer.association_weights(state, stored, association_mask=mask).shape == (3, 5, 7)


def test_pooling_takes_an_association_mask() -> None:
    torch.manual_seed(0)
    layer, stored = shaken(HopfieldPooling(6, n_queries=2, n_heads=2)), draw(0, 3, 7, 6)
    left_out = torch.zeros(2, 7, dtype=torch.bool)
    left_out[:, 4:] = True
    torch.testing.assert_close(layer(stored, association_mask=left_out), layer(stored[:, :4]))


def test_with_offsets_results_are_sets_first_whatever_the_batch() -> None:
    layer = HopfieldPooling(6, n_queries=3, batch_first=False)
    stored = draw(0, 12, 6)
    assert layer(stored, offsets=OFFSETS).shape == (3, 3, 6)
    assert layer(draw(1, 7, 2, 6)).shape == (3, 2, 6)
    assert HopfieldPooling(6)(stored[:0], offsets=torch.tensor([0])).shape == (0, 1, 6)


def test_self_association_of_ragged_sets_takes_either_name() -> None:
    layer, stored = Hopfield(6, n_heads=2), draw(0, 12, 6)
    found = layer(stored, offsets=OFFSETS)
    assert torch.equal(found, layer(stored, state_offsets=OFFSETS))
    torch.testing.assert_close(found[5:], layer(stored[5:]), atol=1e-6, rtol=1e-5)
    assert torch.equal(found, layer(stored, offsets=OFFSETS, state_offsets=OFFSETS.clone()))
    with pytest.raises(ValueError, match="state_offsets: expected those of offsets"):
        layer(stored, offsets=OFFSETS, state_offsets=torch.tensor([0, 4, 8, 12]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"values": "raw", "value_dim": 3}, "value_dim: expected None, since values='raw' have their own dimension"),
        ({"values": "associated", "raw_value_dim": 9}, "raw_value_dim: expected None with values='associated'"),
        ({"project_output": False, "output_dim": 3}, "output_dim: expected None with project_output=False"),
        ({"n_heads": 0}, "n_heads, key_dim: expected whole numbers of at least 1, found 0 and None"),
        ({"beta": float("inf")}, "beta: expected a positive number, found inf"),
        ({"tolerance": -1.0}, "tolerance: expected a number of at least 0, found -1.0"),
    ],
)
def test_options_that_would_do_nothing_are_refused(options: dict[str, Any], message: str) -> None:
    for layer in (Hopfield, HopfieldPooling):
        with pytest.raises(ValueError, match=message):
            layer(6, **options)


def test_values_and_masks_that_would_be_ignored_are_refused() -> None:
    stored, padding = draw(0, 12, 6), torch.zeros(12, dtype=torch.bool)
    for layer in (Hopfield(6, values="associated"), HopfieldPooling(6, values="associated")):
        with pytest.raises(ValueError, match="values: expected None with values='associated'"):
            layer(stored, values=stored)
    pooling = HopfieldPooling(6)
    for function in (pooling, pooling.association_weights):
        with pytest.raises(ValueError, match="masks: expected none with offsets"):
            function(stored, stored_padding_mask=padding, offsets=OFFSETS)
    with pytest.raises(ValueError, match=r"mask: expected bool or floating-point numbers, found torch\.int32"):
        pooling(stored, stored_padding_mask=padding.int())
    assert (pooling.association_weights(stored, offsets=torch.tensor([0, 5]))[..., 5:] == 0).all()


def test_beta_keeps_its_value_in_short_numbers() -> None:
    assert HopfieldPooling(4, beta=1e4).bfloat16().association.beta.item() == pytest.approx(1e4, rel=4e-3)
    assert HopfieldPooling(4, max_updates=np.int64(3)).association.max_updates == 3


def test_state_dicts_go_round() -> None:
    for layer, inputs in layers():
        other = shaken(copy.deepcopy(layer))
        other.load_state_dict(layer.state_dict())
        assert torch.equal(layer(*inputs), other(*inputs))


@pytest.mark.long
def test_layers_compile_into_one_graph() -> None:
    for layer, inputs in layers():
        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
        found = compiled(*inputs)
        torch.testing.assert_close(found, layer(*inputs))
        if any(parameter.requires_grad for parameter in layer.parameters()):
            found.sum().backward()


@pytest.mark.slow
def test_ragged_pooling_compiles() -> None:
    layer, stored = HopfieldPooling(6, n_heads=2), draw(0, 12, 6)
    compiled = torch.compile(layer, backend="aot_eager")
    torch.testing.assert_close(compiled(stored, offsets=OFFSETS), layer(stored, offsets=OFFSETS))
    compiled(stored, offsets=OFFSETS).sum().backward()
    assert layer.queries.grad is not None
