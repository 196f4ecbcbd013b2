from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.nn import Collator, DeepRC, inference
from deeprc.nn.inference import Inference
from deeprc.nn.motif_convolution import motif_convolution
from deeprc.nn.sampling import select_top_rows
from deeprc.nn.standardisation import RunningStandardisation


@pytest.fixture
def network() -> DeepRC:
    torch.manual_seed(0)
    return DeepRC(n_kernels=8, kernel_size=5, n_heads=2, n_outputs=3).eval()


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_forward_equals_its_formula(cohort: RepertoireDataset) -> None:
    torch.manual_seed(1)
    network = DeepRC(n_kernels=8, kernel_size=5).eval()
    batch = Collator(cohort, "log1p").sample(np.array([0, 3]), 1000, rng())
    embedding = network.embedding
    maximum = motif_convolution(batch.sequences, embedding.weight, embedding.bias, implementation="reference")
    z = torch.nn.functional.selu(maximum)
    keys = z
    for layer in (network.key_network[0], network.key_network[2]):
        keys = torch.nn.functional.selu(keys @ layer.weight.T + layer.bias)
    key_units = 32  # the default; beta is 1 / sqrt(key_units)
    logits = keys @ network.pooling.queries[0, 0] / key_units**0.5
    expected = [
        network.output_network[0](torch.softmax(logits[first:stop], 0) @ z[first:stop])
        for first, stop in pairwise(batch.offsets.tolist())
    ]
    torch.testing.assert_close(network(batch), torch.stack(expected))


def test_a_prediction_does_not_depend_on_the_batch(cohort: RepertoireDataset, network: DeepRC) -> None:
    collator = Collator(cohort, "log1p")
    alone = network(collator.sample(np.array([4]), 1000, rng()), top_fraction=0.3)
    among = network(collator.sample(np.array([1, 4, 2, 9]), 1000, rng()), top_fraction=0.3)
    torch.testing.assert_close(among[1], alone[0])


def test_a_prediction_does_not_depend_on_the_order_of_sequences(cohort: RepertoireDataset, network: DeepRC) -> None:
    collator = Collator(cohort, "log1p")
    n = len(cohort[5])
    forwards = network(collator.take(5, np.arange(n)))
    backwards = network(collator.take(5, np.arange(n)[::-1].copy()))
    torch.testing.assert_close(forwards, backwards)


@pytest.mark.parametrize("top_fraction", [1.0, 0.25])
@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_inference_in_chunks_equals_forward(
    cohort: RepertoireDataset, network: DeepRC, top_fraction: float, chunk: int
) -> None:
    collator = Collator(cohort, "log1p")
    batch = collator.sample(np.arange(6), 10_000, rng())
    expected = network(batch, top_fraction=top_fraction)
    found = [Inference(network, collator, top_fraction, chunk).compute_outputs([i])[0] for i in range(6)]
    torch.testing.assert_close(torch.stack(found), expected.detach(), atol=1e-5, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("top_fraction", [1.0, 0.25])
@pytest.mark.parametrize("chunk", [1, 150, 65_536])
def test_small_repertoires_together_have_the_numbers_that_they_have_alone(
    cohort: RepertoireDataset, network: DeepRC, monkeypatch: pytest.MonkeyPatch, top_fraction: float, chunk: int
) -> None:
    monkeypatch.setattr(inference, "choose_chunk_size", lambda device: chunk)
    n = 30 if chunk > 1 else 8  # each sequence is read alone
    alone = [Inference(network, Collator(cohort, "log1p"), top_fraction).compute_outputs([i])[0] for i in range(n)]
    collator = Collator(cohort, "log1p")
    together = Inference(network, collator, top_fraction)
    for positions in (list(range(n)), [n // 2, 3, n - 1]):  # one after the other, and then not
        found = together.compute_outputs(positions)
        torch.testing.assert_close(found, torch.stack([alone[i] for i in positions]), rtol=0, atol=0)
    positions = [n - 2, 0, 1, 2, 7]
    expected = [next(together.iterate_pooled_with_logits([i])) for i in positions]
    found = list(together.iterate_pooled_with_logits(positions))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_the_next_repertoires_are_read_ahead_while_some_are_worked_on(
    cohort: RepertoireDataset, network: DeepRC, monkeypatch: pytest.MonkeyPatch
) -> None:
    collator = Collator(cohort, "log1p")
    reader = Inference(network, collator, chunk=int(cohort.n_sequences[:3].sum()))
    expected: list[list[int]] = []
    monkeypatch.setattr(collator, "prefetch", lambda positions: expected.append([*positions]))
    groups = reader.iterate_groups(range(9))
    seen = [next(groups)]
    assert seen[0] == [0, 1, 2]
    assert len(expected) == 1
    seen += list(groups)
    assert expected == [*seen[1:], []]
    assert [position for group in seen for position in group] == list(range(9))


def test_outputs_of_chosen_rows_are_the_same_alone_and_together(cohort: RepertoireDataset, network: DeepRC) -> None:
    collator = Collator(cohort, "log1p")
    rows = [np.arange(i % 5) * 2 for i in range(len(cohort))]  # of some none
    found = [*Inference(network, collator, 0.5).iterate_outputs(rows=rows)]
    for i in range(len(rows)):
        (alone,) = Inference(network, collator, 0.5).iterate_outputs([i], rows=[rows[i]])
        torch.testing.assert_close(found[i], alone, rtol=0, atol=0)


def test_logits_in_chunks_equal_those_of_attend(cohort: RepertoireDataset, network: DeepRC) -> None:
    collator = Collator(cohort, "log1p")
    logits = Inference(network, collator, chunk=10).compute_logits(3)
    torch.testing.assert_close(logits, network.attend(collator.take(3, np.arange(len(cohort[3]))))[1].detach())


def test_outputs_come_in_the_order_of_the_dataset(cohort: RepertoireDataset, network: DeepRC) -> None:
    order = np.array([7, 0, 21])
    whole = Inference(network, Collator(cohort, "log1p"), 0.5).compute_outputs()
    part = Inference(network, Collator(cohort[order], "log1p"), 0.5).compute_outputs()
    torch.testing.assert_close(part, whole[order])


def test_distinct_repertoires_give_distinct_outputs(cohort: RepertoireDataset, network: DeepRC) -> None:
    outputs = Inference(network, Collator(cohort, "log1p")).compute_outputs()
    assert len({tuple(row) for row in outputs.tolist()}) == len(cohort)


def test_training_gradient_flows_through_the_kept_rows_only(cohort: RepertoireDataset, network: DeepRC) -> None:
    collator = Collator(cohort, "log1p")
    batch = collator.sample(np.array([0, 1]), 1000, rng())
    logits = network.attend(batch)[1]
    kept = batch.take(*select_top_rows(logits, batch.offsets, 0.2))
    direct = torch.autograd.grad(network(kept).sum(), list(network.parameters()))
    reduced = torch.autograd.grad(network(batch, top_fraction=0.2).sum(), list(network.parameters()))
    for found, expected in zip(reduced, direct, strict=True):
        torch.testing.assert_close(found, expected)


def test_an_lstm_encodes_a_repertoire_alone_as_among_others_and_has_gradients(cohort: RepertoireDataset) -> None:
    torch.manual_seed(0)
    network = DeepRC(embedding="lstm", n_kernels=6)
    collator = Collator(cohort, "log1p")
    among = network(collator.sample(np.array([2, 5]), 1000, rng()))
    alone = network(collator.sample(np.array([5]), 1000, rng()))
    torch.testing.assert_close(among[1], alone[0])
    among.sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in network.parameters())


def test_outputs_with_bfloat16_weights_are_near_those_with_float32(cohort: RepertoireDataset) -> None:
    outputs = []
    for precision in ("float32", "bfloat16"):
        torch.manual_seed(0)
        network = DeepRC(n_kernels=8, kernel_size=5, precision=precision)  # type: ignore[arg-type]
        output = network(Collator(cohort, "log1p").sample(np.array([0, 1]), 1000, rng()))
        assert output.dtype == torch.float32
        output.sum().backward()
        outputs.append(output.detach())
    torch.testing.assert_close(outputs[1], outputs[0], atol=0.05, rtol=0.05)


def test_initial_weights_have_variance_1_by_fan_in(cohort: RepertoireDataset) -> None:
    torch.manual_seed(0)
    network = DeepRC(n_kernels=256, kernel_size=9)
    assert network.embedding.weight.std().item() == pytest.approx((23 * 9) ** -0.5, rel=0.05)
    assert network.key_network[0].weight.std().item() == pytest.approx(256**-0.5, rel=0.05)


def test_running_standardisation_by_hand() -> None:
    layer = RunningStandardisation(1).train()
    first = layer(torch.tensor([[1.0], [3.0]]))  # mean 2, variance 1
    assert first.flatten().tolist() == pytest.approx([-1.0, 1.0])
    second = layer(torch.tensor([[4.0]]))  # mean (2 + 4) / 2, variance (1 + (4 - 2)(4 - 3)) / 2
    assert second.item() == pytest.approx((4 - 3) / 1.5**0.5)
    assert layer.eval()(torch.tensor([[3.0], [100.0]]))[0].item() == 0.0
    assert layer.mean.item() == 3.0


def test_running_standardisation_approaches_the_moments() -> None:
    generator = torch.Generator().manual_seed(0)
    layer = RunningStandardisation(2).train()
    for _ in range(400):
        layer(torch.randn(4, 2, generator=generator) * torch.tensor([0.01, 5.0]) + torch.tensor([3.0, -1.0]))
    assert layer.mean.tolist() == pytest.approx([3.0, -1.0], abs=1.0)
    assert layer.variance.sqrt().tolist() == pytest.approx([0.01, 5.0], rel=0.2)


def test_standardised_predictions_do_not_depend_on_the_batch_in_inference(cohort: RepertoireDataset) -> None:
    torch.manual_seed(0)
    network = DeepRC(n_kernels=8, standardise=True).train()
    collator = Collator(cohort, "log1p")
    network(collator.sample(np.array([0, 1, 2, 3]), 1000, rng()))
    network.eval()
    alone = network(collator.sample(np.array([4]), 1000, rng()))
    among = network(collator.sample(np.array([1, 4]), 1000, rng()))
    torch.testing.assert_close(among[1], alone[0])


def test_sampling_is_without_replacement_and_seeded(cohort: RepertoireDataset) -> None:
    collator = Collator(cohort, "log1p")
    first = collator.sample(np.array([0, 8]), 20, np.random.default_rng(5))
    again = collator.sample(np.array([0, 8]), 20, np.random.default_rng(5))
    other = collator.sample(np.array([0, 8]), 20, np.random.default_rng(6))
    assert first.offsets.tolist() == [0, 20, 40]
    assert len(set(first.sequences.starts.tolist())) == 40
    assert torch.equal(first.sequences.starts, again.sequences.starts)
    assert not torch.equal(first.sequences.starts, other.sequences.starts)
    container = cohort.container
    for row, repertoire in ((slice(0, 20), cohort[0]), (slice(20, 40), cohort[8])):
        low, high = container.sequences.offsets[[repertoire.start, repertoire.stop]]
        assert ((first.sequences.starts[row] >= low) & (first.sequences.starts[row] < high)).all()


def test_the_standard_deviation_is_the_whole_repertoires(cohort: RepertoireDataset) -> None:
    collator = Collator(cohort, "log1p")
    few = collator.sample(np.array([3]), 5, rng())
    assert set(few.sequences.position_scale.tolist()) == {np.float32(collator.get_inverse_std(3))}


def test_compact_keeps_every_sequence(cohort: RepertoireDataset) -> None:
    batch = Collator(cohort, "none").sample(np.array([1, 6]), 10, rng()).sequences
    compact = batch.compact()
    assert len(compact.residues) == int(batch.lengths.sum())
    for n in range(20):
        a, b, length = int(batch.starts[n]), int(compact.starts[n]), int(batch.lengths[n])
        assert torch.equal(batch.residues[a : a + length], compact.residues[b : b + length])


def test_compact_of_neighbours_is_a_copy_of_their_residues(cohort: RepertoireDataset) -> None:
    batch = Collator(cohort, "none").take(4, slice(3, 9)).sequences
    compact = batch.compact()
    assert compact.starts.tolist() == (batch.starts - batch.starts[0]).tolist()
    low, high = int(batch.starts[0]), int(batch.starts[-1] + batch.lengths[-1])
    assert torch.equal(compact.residues, batch.residues[low:high])
    compact.residues[0] = 19 - compact.residues[0]
    assert not torch.equal(compact.residues, batch.residues[low:high])


def test_a_slice_and_its_rows_are_the_same_sequences(cohort: RepertoireDataset) -> None:
    collator = Collator(cohort, "log1p")
    by_slice, by_rows = collator.take(2, slice(5, 11)), collator.take(2, np.arange(5, 11))
    for one, other in zip(by_slice.tensors(), by_rows.tensors(), strict=True):
        assert torch.equal(one, other)
    scale = torch.log1p(torch.tensor(float(cohort[2].counts[5]))) * collator.get_inverse_std(2)
    assert by_slice.sequences.residue_scale[0] == scale


def test_a_feature_that_is_constant_but_for_rounding_has_a_variance_of_at_least_0() -> None:
    standardise = RunningStandardisation(1000)
    constant = -1.7580993 + 1.2e-7 * torch.randint(0, 2, (4, 1000), generator=torch.Generator().manual_seed(0))
    assert bool(standardise(constant).isfinite().all())
    assert bool((standardise.variance >= 0).all())


def test_noise_needs_a_generator_for_each_repertoire(cohort: RepertoireDataset, network: DeepRC) -> None:
    batch = Collator(cohort, "log1p").sample(np.arange(3), 10, rng())
    for generators in ([], [torch.Generator()] * 2):
        with pytest.raises(ValueError, match=f"generators: expected one per repertoire, 3, found {len(generators)}"):
            network(batch, logit_noise=0.1, generators=generators)
    network(batch, logit_noise=0.1, generators=[torch.Generator()] * 3)
    network(batch)  # no noise, no generators


def test_chunks_of_a_batch_have_no_branch_scores(cohort: RepertoireDataset) -> None:
    batch = replace(Collator(cohort, "log1p").sample(np.arange(3), 10, rng()), branch_scores=torch.zeros(3, 1, 1))
    chunks = list(batch.iterate_chunks(7))
    assert sum(chunk.sequences.n_sequences for chunk in chunks) == batch.sequences.n_sequences
    assert [(len(chunk.offsets), chunk.branch_scores) for chunk in chunks] == [(2, None)] * len(chunks)
