import numpy as np
import torch

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.nn import Collator
from deeprc.training.augmentation import permute_residues, shuffle_negatives


def residues_of(batch: object, n: int) -> list[int]:
    start, length = int(batch.starts[n]), int(batch.lengths[n])  # type: ignore[attr-defined]
    return batch.residues[start : start + length].tolist()  # type: ignore[attr-defined,no-any-return]


def test_permuting_keeps_each_sequences_composition(cohort: RepertoireDataset) -> None:
    batch = Collator(cohort, "none").sample(np.array([0, 1]), 30, np.random.default_rng(0))
    before = np.asarray(cohort.container.sequences.residues).copy()
    permuted = permute_residues(batch, 0.5, np.random.default_rng(1))
    changed = 0
    for n in range(60):
        old, new = residues_of(batch, n), residues_of(permuted, n)
        assert sorted(old) == sorted(new)
        changed += old != new
    assert changed > 40
    np.testing.assert_array_equal(before, cohort.container.sequences.residues)


def test_permuting_no_residues_changes_nothing(cohort: RepertoireDataset) -> None:
    batch = Collator(cohort, "none").sample(np.array([0]), 30, np.random.default_rng(0))
    same = permute_residues(batch, 0.0, np.random.default_rng(1))
    assert all(residues_of(batch, n) == residues_of(same, n) for n in range(30))


def test_negatives_are_mixed_and_positives_are_not(cohort: RepertoireDataset) -> None:
    collator = Collator(cohort, "log1p")
    batch = collator.sample(np.array([0, 1, 2]), 40, np.random.default_rng(0))
    mixed = shuffle_negatives(batch, np.array([True, False, True]), np.random.default_rng(1))
    assert torch.equal(mixed.offsets, batch.offsets)
    assert torch.equal(mixed.starts[40:80], batch.starts[40:80])
    negatives = torch.cat([mixed.starts[:40], mixed.starts[80:]])
    assert sorted(negatives.tolist()) == sorted(torch.cat([batch.starts[:40], batch.starts[80:]]).tolist())
    from_other = torch.isin(mixed.starts[:40], batch.starts[80:]).sum()
    assert 5 < int(from_other) < 35
    scale_of = dict(zip(batch.starts.tolist(), batch.position_scale.tolist(), strict=True))
    assert [scale_of[s] for s in mixed.starts.tolist()] == mixed.position_scale.tolist()
