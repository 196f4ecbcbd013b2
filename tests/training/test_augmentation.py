import numpy as np
import torch

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.nn import Collator, RepertoireBatch
from deeprc.training.batches import permute_residues, shuffle_negatives


def residues_of(batch: RepertoireBatch, n: int) -> list[int]:
    residues, starts, lengths, *_ = batch.sequences
    start, length = int(starts[n]), int(lengths[n])
    residues_of_n: list[int] = residues[start : start + length].tolist()
    return residues_of_n


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
    new, old = mixed.sequences, batch.sequences
    assert torch.equal(new.starts[40:80], old.starts[40:80])
    negatives = torch.cat([new.starts[:40], new.starts[80:]])
    assert sorted(negatives.tolist()) == sorted(torch.cat([old.starts[:40], old.starts[80:]]).tolist())
    from_other = torch.isin(new.starts[:40], old.starts[80:]).sum()
    assert 5 < int(from_other) < 35
    scale_of = dict(zip(old.starts.tolist(), old.position_scale.tolist(), strict=True))
    assert [scale_of[s] for s in new.starts.tolist()] == new.position_scale.tolist()
