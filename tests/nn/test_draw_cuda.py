"""The draw compiled for CUDA against that of the CPU; without a CUDA device it runs in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
import torch

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.nn.batch import Collator
from deeprc.nn.features import ABUNDANCE_MODES, AbundanceMode
from deeprc.nn.sequence_tensors import RepertoireTable, copy_columns
from tests.conftest import random_sequences, write_cohort
from tests.triton_kernels import DEVICE, import_kernels, use_interpreter

draw_cuda = import_kernels("deeprc.nn.draw_cuda")


@pytest.fixture(autouse=True, scope="module")
def _interpreter() -> Iterator[None]:
    with use_interpreter():
        yield


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """Repertoires of very different sizes, one of them without sequences."""
    rng = np.random.default_rng(0)
    sizes = [150, 1, 0, 40, 700, 41]
    metadata = pd.DataFrame({"status": ["case", "control"] * 3})
    repertoires = [random_sequences(rng, size) for size in sizes]
    return write_cohort(tmp_path_factory.mktemp("uneven") / "cohort.h5", repertoires, metadata)


def assert_draws_as_the_cpu(
    dataset: RepertoireDataset, positions: list[int], max_rows: int, abundance: AbundanceMode, extra: int = 0
) -> None:
    generator = np.random.default_rng(len(positions) + max_rows)
    where = torch.tensor(positions)
    keys = torch.from_numpy(generator.integers(-(2**63), 2**63 - 1, size=len(positions)))
    collator = Collator(dataset, abundance)
    expected = collator.draw(where, max_rows, keys)
    n = expected.sequences.n_sequences
    columns = copy_columns(dataset.container, DEVICE)
    sequences, offsets, at = draw_cuda.draw_sequences(
        columns,
        RepertoireTable(*(column.to(DEVICE) for column in collator._table)),
        where.to(DEVICE),
        keys.to(DEVICE),
        max_rows=max_rows,
        total=n + extra,
        abundance=abundance,
        max_length=24,
    )
    assert offsets.tolist() == expected.offsets.tolist()
    assert sequences.max_length == 24
    for name in ("starts", "lengths"):
        found = getattr(sequences, name)
        assert len(found) == n + extra
        assert found[:n].tolist() == getattr(expected.sequences, name).tolist(), name
    assert sequences.starts.equal(columns.offsets[at])
    ends = sequences.starts + sequences.lengths
    assert ends.max() <= len(columns.residues)  # also of those that only fill the batch
    for name in ("residue_scale", "position_scale"):
        found, right = (getattr(each, name).cpu()[:n] for each in (sequences, expected.sequences))
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, right, atol=0, rtol=3e-7)


@pytest.mark.parametrize("abundance", ABUNDANCE_MODES)
def test_sequences_and_scales_are_those_of_the_cpu(uneven: RepertoireDataset, abundance: AbundanceMode) -> None:
    assert_draws_as_the_cpu(uneven, [4, 0, 3], 60, abundance, extra=140)


@pytest.mark.parametrize(
    ("positions", "max_rows"),
    [([2, 1, 5, 2], 41), ([1], 5), ([0, 2], 7), ([4, 4, 4, 0, 1, 2, 3, 5], 699)],
    ids=["empty ones", "one sequence", "empty at the end", "one repertoire several times"],
)
def test_small_empty_and_repeated_repertoires(uneven: RepertoireDataset, positions: list[int], max_rows: int) -> None:
    for extra in (0, 3):
        assert_draws_as_the_cpu(uneven, positions, max_rows, "log1p", extra)


def test_empty_repertoires_give_an_empty_batch(uneven: RepertoireDataset) -> None:
    columns = copy_columns(uneven.container, DEVICE)
    nothing = torch.zeros(6, dtype=torch.int64, device=DEVICE)
    sequences, offsets, _ = draw_cuda.draw_sequences(
        columns,
        RepertoireTable(nothing, nothing, torch.ones(6, device=DEVICE)),
        nothing[:2],
        nothing[:2],
        max_rows=10,
        total=0,
        abundance="none",
        max_length=8,
    )
    assert sequences.n_sequences == 0
    assert offsets.tolist() == [0, 0, 0]


@pytest.mark.skipif(DEVICE.type == "cpu", reason="needs a CUDA device")
def test_the_collator_draws_so_on_cuda(uneven: RepertoireDataset) -> None:
    on_cuda, on_cpu = (Collator(uneven, "log1p", device=device) for device in (DEVICE, torch.device("cpu")))
    positions, keys = torch.tensor([3, 0, 4]), torch.tensor([5, -6, 7])
    found = on_cuda.draw(positions.to(DEVICE), 50, keys.to(DEVICE), total=150)
    expected = on_cpu.draw(positions, 50, keys)
    n = expected.sequences.n_sequences
    assert found.offsets.tolist() == expected.offsets.tolist()
    assert found.sequences.starts[:n].tolist() == expected.sequences.starts.tolist()
    assert found.sequences.max_length >= expected.sequences.max_length
