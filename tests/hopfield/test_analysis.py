import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deeprc.hopfield.analysis import (
    HeadSummary,
    metastable_sizes,
    operating_class,
    segment_metastable_sizes,
    summarise_heads,
)


def test_ten_equal_weights_need_nine_for_a_mass_of_0_9() -> None:
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        assert metastable_sizes(torch.full((10,), 0.1, dtype=dtype)).item() == 9
    assert metastable_sizes(torch.full((10,), 0.1), mass=0.91).item() == 10


def test_metastable_sizes_by_hand() -> None:
    weights = torch.tensor([[0.05, 0.6, 0.35, 0.0], [1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]])
    assert metastable_sizes(weights).tolist() == [2, 1, 4]
    assert metastable_sizes(weights, mass=0.5).tolist() == [1, 1, 2]
    assert metastable_sizes(weights, mass=1.0).tolist() == [3, 1, 4]  # zeros are never needed
    assert metastable_sizes(weights.T, dim=0).tolist() == [2, 1, 4]


def test_sizes_are_int64_and_lose_the_dimension_of_the_patterns() -> None:
    sizes = metastable_sizes(torch.softmax(torch.randn(3, 7, 2), dim=1), dim=1)
    assert sizes.dtype == torch.int64
    assert sizes.shape == (3, 2)


def test_weights_are_kept_unless_they_may_be_overwritten() -> None:
    for n_heads in (1, 2):
        weights = torch.softmax(4 * torch.randn(1000, n_heads, dtype=torch.float64), dim=0)
        before = weights.clone()
        sizes = metastable_sizes(weights, dim=0)
        assert torch.equal(weights, before)
        by_sort = before.sort(dim=0, descending=True).values.cumsum(0)
        assert sizes.tolist() == ((by_sort < 0.9 * (1 - 1e-6)).sum(0) + 1).tolist()
        assert metastable_sizes(weights, dim=0, overwrite=True).tolist() == sizes.tolist()


def test_equal_weights_count_exactly_in_spite_of_rounding() -> None:
    for n in range(1, 60):
        for dtype in (torch.float64, torch.float32):
            weights = torch.full((n,), 1 / n, dtype=dtype)
            assert [metastable_sizes(weights, mass=k / n).item() for k in range(1, n + 1)] == list(range(1, n + 1))


def test_weights_of_low_precision_are_not_summed_in_it() -> None:
    weights = torch.full((1024,), 1 / 1024, dtype=torch.bfloat16)  # exact, but most sums of them are not
    assert metastable_sizes(weights, mass=0.7).item() == 717


@settings(deadline=None, max_examples=50)
@given(
    n=st.integers(1, 40),
    sharpness=st.floats(0.0, 20.0),
    mass=st.floats(0.01, 0.99),
    seed=st.integers(0, 10_000),
)
def test_equals_a_search_and_ignores_the_order(n: int, sharpness: float, mass: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.softmax(sharpness * torch.randn(n, generator=generator, dtype=torch.float64), dim=0)
    largest_first = sorted(weights.tolist(), reverse=True)
    expected = next(k for k in range(1, n + 1) if sum(largest_first[:k]) >= mass * (1 - 1e-6))
    assert metastable_sizes(weights, mass=mass).item() == expected
    assert metastable_sizes(weights[torch.randperm(n, generator=generator)], mass=mass).item() == expected


def test_weights_that_are_no_softmax_are_refused() -> None:
    with pytest.raises(ValueError, match=r"sums of 1 along dimension 0, found sums from 0\.5"):
        metastable_sizes(torch.tensor([0.25, 0.25]), dim=0)
    with pytest.raises(ValueError, match=r"a minimum of -0\.5"):
        metastable_sizes(torch.tensor([-0.5, 1.5]))
    with pytest.raises(ValueError, match="found sums from nan"):
        metastable_sizes(torch.tensor([0.5, torch.nan]))


@pytest.mark.parametrize("mass", [0.0, -0.1, 1.1, float("nan")])
def test_mass_must_be_a_share(mass: float) -> None:
    with pytest.raises(ValueError, match=r"mass: expected a number in \(0, 1\], found"):
        metastable_sizes(torch.ones(1), mass=mass)


def test_sizes_of_ragged_sets_equal_those_of_each_set() -> None:
    generator = torch.Generator().manual_seed(0)
    blocks = [torch.softmax(3 * torch.randn(n, 2, generator=generator), dim=0) for n in (4, 1, 6)]
    tail = torch.full((2, 2), torch.nan)  # patterns beyond the last offset belong to no set
    sizes = segment_metastable_sizes(torch.cat([*blocks, tail]), torch.tensor([0, 4, 4, 5, 11]))
    expected = [metastable_sizes(block, dim=0).tolist() for block in blocks]
    assert sizes.dtype == torch.int64
    assert sizes.tolist() == [expected[0], [0, 0], expected[1], expected[2]]


def test_no_sets_and_no_patterns() -> None:
    weights = torch.zeros(0, 3)
    assert segment_metastable_sizes(weights, torch.tensor([0])).shape == (0, 3)
    assert segment_metastable_sizes(weights, torch.tensor([0, 0])).tolist() == [[0, 0, 0]]
    assert metastable_sizes(torch.zeros(2, 0)).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("offsets", "found"), [([0, 3], "0, 3"), ([1, 2], "1, 2"), ([0, 2, 1], "0, 1, with a fall"), ([], "none")]
)
def test_offsets_must_rise_from_zero(offsets: list[int], found: str) -> None:
    with pytest.raises(ValueError, match=f"expected to rise from 0 to 2 at most, found {found}"):
        segment_metastable_sizes(torch.full((2, 1), 0.5), torch.tensor(offsets, dtype=torch.int64))


def test_ragged_weights_need_two_dimensions() -> None:
    with pytest.raises(ValueError, match=r"weights: expected \(N, H\), found \(2,\)"):
        segment_metastable_sizes(torch.full((2,), 0.5), torch.tensor([0, 2]))


@pytest.mark.parametrize(
    ("size", "expected"),
    [(64, "I"), (33, "I"), (32.5, "I"), (32, "II"), (9, "II"), (8, "III"), (3, "III"), (2, "IV"), (1, "IV")],
)
def test_classes_of_64_patterns(size: float, expected: str) -> None:
    assert operating_class(size, 64) == expected


@pytest.mark.parametrize(("size", "n"), [(5, 4), (-1, 4), (0, 0), (float("nan"), 4)])
def test_a_size_is_not_larger_than_the_set(size: float, n: float) -> None:
    with pytest.raises(ValueError, match="size: expected 0 to n, with n above 0, found"):
        operating_class(size, n)


def test_summary_by_hand() -> None:
    sizes = torch.tensor([[8, 1], [0, 0], [10, 2], [6, 2], [4, 1]])
    n_patterns = torch.tensor([10, 0, 20, 6, 40])  # k / N of head 1: 0.8, 0.5, 1, 0.1; of head 2: 0.1, 0.1, 1/3, 0.025
    assert summarise_heads(sizes, n_patterns) == [
        HeadSummary(1, 7.0, 5.5, 8.5, 0.65, "I"),
        HeadSummary(2, 1.5, 1.0, 2.0, 0.1, "III"),
    ]


@settings(deadline=None, max_examples=50)
@given(n=st.integers(1, 100), data=st.data())
def test_class_of_sets_of_one_size_is_by_the_median_size(n: int, data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, n), min_size=1, max_size=6))
    (summary,) = summarise_heads(torch.tensor(sizes)[:, None], torch.full((len(sizes),), n))
    assert summary.operating_class == operating_class(summary.median_size, n)
    assert summary.median_fraction == pytest.approx(summary.median_size / n)


@pytest.mark.slow
def test_a_median_on_the_limit_is_not_rounded_over_it() -> None:
    found = {
        summarise_heads(torch.tensor([[low], [n // 4 - low]]), torch.tensor([n, n]))[0].operating_class
        for n in range(8, 400, 8)
        for low in range(1, n // 8 + 1)
    }
    assert found == {"III"}  # all medians are n / 8


def test_summaries_need_sets_and_shapes_that_fit() -> None:
    with pytest.raises(ValueError, match="expected a set that is not empty, found none among 2"):
        summarise_heads(torch.zeros(2, 3, dtype=torch.int64), torch.tensor([0, 0]))
    with pytest.raises(ValueError, match=r"expected \(B, H\) and \(B,\), found \(2, 3\) and \(3,\)"):
        summarise_heads(torch.ones(2, 3, dtype=torch.int64), torch.tensor([1, 1, 1]))
    for size in (0, 5):
        with pytest.raises(
            ValueError, match=f"expected 1 to the number of patterns of the set, found {size} to {size}"
        ):
            summarise_heads(torch.tensor([[size]]), torch.tensor([4]))


def test_a_state_whose_patterns_are_all_left_out_averages_over_none() -> None:
    weights = torch.tensor([[0.0, 0.0], [0.95, 0.05]], requires_grad=True)
    assert metastable_sizes(weights).tolist() == [0, 1]
