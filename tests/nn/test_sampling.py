from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deeprc.nn.sampling import _draw_rows_by_tensors, _select_top_rows_by_tensors, draw_rows, select_top_rows

SIZES = st.lists(st.integers(0, 300), min_size=1, max_size=6)


def keys(n: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, size=n))


@settings(deadline=None, max_examples=60)
@given(sizes=SIZES, max_rows=st.integers(1, 120), seed=st.integers(0, 1000))
def test_rows_are_drawn_without_replacement_from_their_repertoire(sizes: list[int], max_rows: int, seed: int) -> None:
    rows, segments, offsets = draw_rows(torch.tensor(sizes), max_rows, keys(len(sizes), seed))
    assert offsets.tolist() == np.concatenate([[0], np.cumsum(np.minimum(sizes, max_rows))]).tolist()
    for b, size in enumerate(sizes):
        own = rows[offsets[b] : offsets[b + 1]].tolist()
        assert len(set(own)) == len(own)
        assert all(0 <= row < size for row in own)
    assert segments.tolist() == np.repeat(np.arange(len(sizes)), offsets.diff()).tolist()


@settings(deadline=None, max_examples=60)
@given(sizes=SIZES, max_rows=st.integers(1, 120), seed=st.integers(0, 1000), extra=st.integers(0, 9))
def test_both_forms_draw_the_same_rows(sizes: list[int], max_rows: int, seed: int, extra: int) -> None:
    size, key = torch.tensor(sizes), keys(len(sizes), seed)
    rows, segments, offsets = draw_rows(size, max_rows, key)
    filled, filled_segments = _draw_rows_by_tensors(size, offsets, key, len(rows) + extra)
    assert len(filled) == len(rows) + extra
    assert torch.equal(filled[: len(rows)], rows)
    assert torch.equal(filled_segments[: len(rows)], segments)
    assert (filled_segments < len(sizes)).all()


def test_every_sequence_is_equally_likely_and_distant_ones_are_drawn_independently() -> None:
    n, max_rows, draws = 50, 20, 20_000
    rows, segments, _ = draw_rows(torch.full((draws,), n), max_rows, keys(draws))
    is_drawn = np.zeros((draws, n))
    is_drawn[segments, rows] = 1
    chance = max_rows / n
    z_scores = (is_drawn.mean(axis=0) - chance) / np.sqrt(chance * (1 - chance) / draws)
    assert np.abs(z_scores).max() < 4.5
    both_drawn = is_drawn[:, 0] * is_drawn[:, n // 2]  # far apart: as if drawn independently
    assert both_drawn.mean() == pytest.approx(chance**2, abs=0.02)


def test_a_draw_is_a_function_of_its_key() -> None:
    size, key = torch.tensor([1000, 1000, 1000]), torch.tensor([5, 6, 5])
    rows, _, _ = draw_rows(size, 100, key)
    assert torch.equal(rows[:100], rows[200:])
    assert not torch.equal(rows[:100], rows[100:200])
    assert torch.equal(draw_rows(size[:1], 100, key[:1])[0], rows[:100])


def test_a_large_repertoire_is_drawn_from_end_to_end() -> None:
    size = 2**33 + 5  # more than 32 bits count
    rows, _, _ = draw_rows(torch.tensor([size]), 10_000, keys(1))
    assert len(set(rows.tolist())) == 10_000
    assert rows.min() < size / 5000
    assert rows.max() > size - size / 5000


def test_top_rows_by_hand() -> None:
    logits = torch.tensor([[1.0], [3.0], [2.0], [0.0], [5.0], [4.0]])
    rows, offsets = select_top_rows(logits, torch.tensor([0, 4, 4, 6]), 0.5)
    assert rows.tolist() == [1, 2, 4]
    assert offsets.tolist() == [0, 2, 2, 3]


def test_the_first_of_equal_rows_is_kept() -> None:
    rows, _ = select_top_rows(torch.tensor([[0.0], [1.0], [1.0], [1.0], [0.0]]), torch.tensor([0, 5]), 0.4)
    assert rows.tolist() == [1, 2]


def test_logits_that_are_no_numbers_still_choose_rows() -> None:
    rows, offsets = select_top_rows(torch.tensor([[float("nan")], [1.0], [2.0], [0.0]]), torch.tensor([0, 4]), 0.5)
    assert offsets.tolist() == [0, 2]
    assert len(set(rows.tolist())) == 2
    assert set(rows.tolist()) <= set(range(4))


def test_top_rows_of_several_heads_keeps_each_heads_best() -> None:
    logits = torch.tensor([[9.0, 100.0], [8.0, 0.0], [0.0, 99.0], [0.0, 0.0]])
    rows, _ = select_top_rows(logits, torch.tensor([0, 4]), 0.75)
    assert rows.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("n", "fraction", "kept"),
    [(30, 0.1, 3), (31, 0.1, 4), (1, 0.1, 1), (10, 1.0, 10), (50, 0.3, 15), (100, 0.3, 30), (60, 0.15, 9)],
)
def test_top_rows_rounds_up(n: int, fraction: float, kept: int) -> None:
    assert len(select_top_rows(torch.rand(n, 1), torch.tensor([0, n]), fraction)[0]) == kept


@settings(deadline=None, max_examples=60)
@given(
    sizes=SIZES,
    heads=st.integers(1, 3),
    fraction=st.sampled_from([0.01, 0.1, 0.37, 1.0]),
    seed=st.integers(0, 1000),
    tail=st.integers(0, 5),
)
@example(sizes=[0], heads=2, fraction=0.1, seed=0, tail=0)
def test_both_forms_choose_the_same_top_rows(
    sizes: list[int], heads: int, fraction: float, seed: int, tail: int
) -> None:
    n = sum(sizes)
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randint(-20, 20, (n + tail, heads), generator=generator).float()  # many are equal
    offsets = torch.tensor([0, *np.cumsum(sizes).tolist()])
    rows, kept_offsets = select_top_rows(logits, offsets, fraction)
    by_score, same_offsets = _select_top_rows_by_tensors(logits, offsets, fraction)
    assert torch.equal(kept_offsets, same_offsets)
    for first, stop in pairwise(kept_offsets.tolist()):
        assert by_score[first:stop].sort().values.tolist() == rows[first:stop].tolist()
    assert len(by_score) >= len(rows)
    assert ((by_score >= 0) & (by_score < n + tail)).all()


@pytest.mark.parametrize("max_rows", [1, 3, 50])
def test_both_forms_keep_at_most_max_rows_of_each_repertoire(max_rows: int) -> None:
    generator = torch.Generator().manual_seed(max_rows)
    logits = torch.randn(40, 2, generator=generator)
    offsets = torch.tensor([0, 10, 10, 12, 40])
    rows, kept_offsets = select_top_rows(logits, offsets, 0.5, max_rows)
    assert kept_offsets.diff().tolist() == [min(5, max_rows), 0, 1, min(14, max_rows)]  # of 10, 0, 2 and 28 sequences
    by_score, same_offsets = _select_top_rows_by_tensors(logits, offsets, 0.5, max_rows)
    assert same_offsets.tolist() == kept_offsets.tolist()
    for first, stop in pairwise(kept_offsets.tolist()):
        assert sorted(by_score[first:stop].tolist()) == rows[first:stop].tolist()
