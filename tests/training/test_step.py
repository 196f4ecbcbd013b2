"""The update as CUDA makes it, shown on the CPU: the tensor forms, filled-up batches and `CapturedStep` unrecorded."""

import threading

import numpy as np
import pytest
import torch
from torch import Tensor

from deeprc.config import Config, NetworkConfig, TrainingConfig
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.hopfield.segments import _attention_in_torch
from deeprc.nn import batch as batch_module
from deeprc.nn import network as network_module
from deeprc.nn.batch import Collator, RepertoireBatch
from deeprc.nn.branches import BranchScores
from deeprc.nn.sampling import RowDraw, _draw_rows_by_tensors, _select_top_rows_by_tensors
from deeprc.outputs import compute_multitask_loss
from deeprc.tasks import Task
from deeprc.training.building import build_network
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.step import CapturedStep, Prefetcher, TrainingStep
from deeprc.training.trainer import Trainer
from tests.nn.share_branch import ShareBranch
from tests.toys.trainings import assert_same_weights

CPU = torch.device("cpu")
TASKS = [Task("status", "status", "binary", ("healthy", "case")), Task("age", "age", "regression", ())]
TRAINING = TrainingConfig(
    n_sequences=62,
    top_fraction=0.3,
    batch_size=3,
    n_updates=6,
    evaluate_every=6,
    l2=1e-3,
    adam_epsilon=1e-3,  # rounding is not blown up where a gradient is nearly 0
)
SHAPE = NetworkConfig(n_kernels=8, kernel_size=4, abundance="log1p", n_heads=2, composition=False, clones=False)
CONFIG = Config(SHAPE, TRAINING)


def labels(dataset: RepertoireDataset) -> np.ndarray:
    metadata = dataset.metadata
    return np.stack([(metadata["status"] == "case").to_numpy(float), metadata["age"].to_numpy(float) / 50], axis=1)


def make_step() -> TrainingStep:
    network = build_network(CONFIG, TASKS, seed=3, device=CPU)
    network.attach_branches([ShareBranch("W", [0.1, 0.2, 0.3, 0.4][: network.n_outputs])])
    return TrainingStep(network.train(), TASKS, TRAINING)


def make_collator(step: TrainingStep, cohort: RepertoireDataset) -> Collator:
    assert step.network.branches is not None
    return Collator(cohort, "log1p", branches=BranchScores(step.network.branches, cohort))


def weights(step: TrainingStep) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in step.network.state_dict().items()}


def make_six_updates(cohort: RepertoireDataset) -> tuple[list[float], dict[str, Tensor]]:
    step = make_step()
    captured = CapturedStep(step, make_collator(step, cohort), labels(cohort), TRAINING.batch_size)
    rng = np.random.default_rng(0)
    losses = [float(captured(rng.permutation(len(cohort))[:3], rng.integers(2**63, size=3))) for _ in range(6)]
    return losses, weights(step)


def test_updates_with_the_tensor_forms_and_filled_batches_are_those_of_the_compiled_forms(
    cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected_losses, expected = make_six_updates(cohort)
    totals = []

    def draw(sizes: Tensor, max_rows: int, keys: Tensor, *, total: int) -> RowDraw:
        drawn = sizes.clamp(max=max_rows)
        offsets = torch.cat([drawn.new_zeros(1), drawn.cumsum(0)])
        totals.append((total, int(offsets[-1])))
        return RowDraw(*_draw_rows_by_tensors(sizes, offsets, keys, total), offsets)

    monkeypatch.setattr(batch_module, "draw_rows", draw)
    monkeypatch.setattr(network_module, "select_top_rows", _select_top_rows_by_tensors)
    monkeypatch.setattr(network_module, "segment_attention", _attention_in_torch)
    losses, found = make_six_updates(cohort)
    assert any(total > drawn for total, drawn in totals)  # some batches were filled up
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-4)
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, atol=2e-4, rtol=2e-3)


def test_sequences_beyond_the_last_offset_change_nothing(cohort: RepertoireDataset) -> None:
    collator = Collator(cohort, "log1p")
    rows = np.arange(40)
    plain = collator.take(2, rows)
    filled = collator.take(2, np.concatenate([rows, [50, 3, 3]]))
    filled = filled.take(torch.arange(43), torch.tensor([0, 40]))
    network = build_network(CONFIG, TASKS, seed=3, device=CPU).eval()
    for fraction in (1.0, 0.3):
        outputs = [network(batch, top_fraction=fraction) for batch in (plain, filled)]
        torch.testing.assert_close(outputs[1], outputs[0])


def test_captured_step_equals_the_trainers_updates(cohort: RepertoireDataset) -> None:
    train = LabelledRepertoires(cohort[:20], labels(cohort)[:20])
    trainer = Trainer(CONFIG, TASKS, train, LabelledRepertoires(cohort[20:], labels(cohort)[20:]), seed=5, device=CPU)
    again = Trainer(CONFIG, TASKS, train, LabelledRepertoires(cohort[20:], labels(cohort)[20:]), seed=5, device=CPU)
    state = trainer.fit()
    again.initialise_network()
    again.network.train()
    captured = CapturedStep(again.step, again._train_collator, again.train.labels, TRAINING.batch_size)
    losses = [
        float(captured(again.draws.choose_repertoires(number), again.draws.draw_sampling_keys(number)))
        for number in range(6)
    ]
    assert np.mean(losses) == pytest.approx(state.history[0]["train_loss"], rel=1e-6)
    assert_same_weights(again.step.average.network, trainer.network)


def test_the_loss_ignores_missing_labels() -> None:
    outputs = torch.tensor([[0.5, 1.0], [2.0, 3.0], [-1.0, 0.0]], requires_grad=True)
    nan = float("nan")
    both = compute_multitask_loss(
        outputs, torch.tensor([[1.0, nan], [nan, 1.0], [0.0, 2.0]], dtype=torch.float64), TASKS
    )
    binary = (np.log1p(np.exp(-0.5)) + np.log1p(np.exp(-1.0))) / 2
    assert float(both.detach()) == pytest.approx(binary + 0.5 * (4 + 4) / 2)
    both.backward()
    assert outputs.grad is not None
    assert outputs.grad[1, 0] == 0
    assert outputs.grad[0, 1] == 0


def test_prefetcher_on_the_cpu_makes_each_batch_when_it_is_asked_for(cohort: RepertoireDataset) -> None:
    collator, made = Collator(cohort, "none"), []

    def make(number: int) -> RepertoireBatch:
        made.append((number, threading.current_thread() is threading.main_thread()))
        return collator.take(number, np.arange(3))

    batches = Prefetcher(make, CPU)
    expected = collator.take(4, np.arange(3))
    assert torch.equal(batches(4).sequences.starts, expected.sequences.starts)
    expected = collator.take(7, np.arange(3))
    assert torch.equal(batches(7).sequences.starts, expected.sequences.starts)
    assert made == [(4, True), (7, True)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("device_cache", ["always", "never"])
def test_cuda_learns_what_the_cpu_learns(cohort: RepertoireDataset, device_cache: str) -> None:
    settings = {**vars(TRAINING), "n_updates": 12, "device_cache": device_cache}
    network = NetworkConfig(**{**vars(CONFIG.network), "precision": "float32"})
    config = Config(network, TrainingConfig(**settings))
    histories = []
    for device in (CPU, torch.device("cuda")):
        train, validation = (LabelledRepertoires(part, labels(part)) for part in (cohort[:20], cohort[20:]))
        histories.append(Trainer(config, TASKS, train, validation, seed=5, device=device).fit().history)
    for key in ("train_loss", "validation_loss"):
        found, expected = ([row[key] for row in history] for history in histories)
        np.testing.assert_allclose(found, expected, rtol=0.02)
