from __future__ import annotations

import numpy as np
import pytest
import torch

from deeprc.interpretation.explained_network import _sum_levels
from deeprc.interpretation.sequence_index import SequenceIndex


@pytest.mark.parametrize(("n_rest", "n"), [(0, 1), (0, 4), (5, 1), (3, 4)])
@pytest.mark.parametrize("highest", [0.0, 2000.0])
def test_the_level_of_all_others_by_a_loop(n_rest: int, n: int, highest: float) -> None:
    logits = torch.randn(n_rest + n, 2, generator=torch.Generator().manual_seed(0)) * 3
    logits[-1, 0] += highest
    rest, chosen = logits[:n_rest], logits[n_rest:].double()
    found = _sum_levels(rest, chosen)
    for row in range(n):
        others = torch.cat([rest.double(), chosen[:row], chosen[row + 1 :]])
        expected = torch.logsumexp(others, dim=0) if len(others) else torch.full((2,), -torch.inf)
        np.testing.assert_allclose(found[row], expected, rtol=1e-12)


def test_repeats_of_sequences_are_dropped() -> None:
    index = SequenceIndex(np.array([3, 0, 3, 0, 3]), np.array([1, 5, 1, 2, 0]))
    different, place = index.drop_repeats()
    assert list(zip(different.positions.tolist(), different.rows.tolist(), strict=True)) == [
        (0, 2),
        (0, 5),
        (3, 0),
        (3, 1),
    ]
    assert place.tolist() == [3, 1, 3, 0, 2]
