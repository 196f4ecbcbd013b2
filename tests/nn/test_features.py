import numpy as np
import pytest
import torch

from deeprc.nn.features import compute_abundance_scale, compute_inverse_std, compute_positional_features
from deeprc.nn.motif_convolution.reference import make_dense_features
from deeprc.nn.sequences import SequenceBatch


def test_positional_features_by_hand() -> None:
    features = compute_positional_features(5)
    np.testing.assert_allclose(features[1, 0], [1, 0, 0])
    np.testing.assert_allclose(features[2, :2], [[1, 0, 0], [0, 0, 1]])
    np.testing.assert_allclose(features[5], [[1, 0, 0], [0.5, 0.5, 0], [0, 1, 0], [0, 0.5, 0.5], [0, 0, 1]], atol=1e-12)
    assert (features[3, 3:] == 0).all()


def test_positional_features_sum_to_one_inside_and_zero_outside() -> None:
    features = compute_positional_features(30)
    inside = np.arange(30) < np.arange(31)[:, None]
    np.testing.assert_allclose(features.sum(axis=2), inside.astype(float))
    assert features.min() >= 0
    assert features.max() <= 1


def test_the_abundance_scale_of_each_mode() -> None:
    counts = torch.tensor([0, 1, 2, 100])
    np.testing.assert_allclose(compute_abundance_scale(counts, "log"), [0, 0, np.log(2), np.log(100)], rtol=1e-6)
    np.testing.assert_allclose(
        compute_abundance_scale(counts, "log1p"), [np.log(2), np.log(2), np.log(3), np.log(101)], rtol=1e-6
    )
    np.testing.assert_allclose(compute_abundance_scale(counts, "none"), 1)


@pytest.mark.parametrize("mode", ["log", "log1p", "none"])
def test_standard_deviation_equals_that_of_the_dense_features(mode: str) -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 20, 40)
    counts = rng.integers(1, 50, 40).astype(np.uint32)
    scale = compute_abundance_scale(torch.from_numpy(counts.astype(np.int64)), mode).double()  # type: ignore[arg-type]
    starts = torch.from_numpy(np.cumsum(lengths) - lengths)
    residues = torch.from_numpy(rng.integers(0, 20, lengths.sum()).astype(np.uint8))
    ones = torch.ones(40).double()
    dense = make_dense_features(SequenceBatch(residues, starts, torch.from_numpy(lengths), scale, ones, max_length=20))
    real = torch.cat([dense[i, :length] for i, length in enumerate(lengths)])
    expected = 1 / float(real.std(correction=0))
    assert compute_inverse_std(lengths, counts, mode) == pytest.approx(expected, rel=1e-6)  # type: ignore[arg-type]


def test_standard_deviation_of_no_sequences_is_one() -> None:
    nothing = np.zeros(0, np.int64)
    assert compute_inverse_std(nothing, nothing, "none") == 1.0
