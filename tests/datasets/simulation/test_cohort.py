from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from deeprc.datasets.sequences import Sequences
from deeprc.datasets.simulation.background import Background, IndependentBackground
from deeprc.datasets.simulation.cohort import Batch, Cohort, Counts, GeneShift, Sizes
from deeprc.datasets.simulation.germline import GermlineBackground
from deeprc.datasets.simulation.motif import Motif
from deeprc.datasets.simulation.motif_signal import MotifSignal
from deeprc.errors import InputError

WHW = (MotifSignal((Motif("WHW"),), 0.1),)
RICH = Cohort(
    16,
    Sizes(60, 10, 40),
    GermlineBackground(),
    WHW,
    Counts(2.0),
    Batch(0.5, 1.5, GeneShift(("TRBV28",), 0.5)),
    GeneShift(("TRBV19",), 0.3),
    label_noise=0.2,
    seed=5,
)


def texts(table: Sequences) -> list[str]:
    return table.decode()


def v_genes(table: Sequences) -> list[str]:
    assert table.v_call is not None
    return list(table.v_call.names())


def repertoire(cohort: Cohort, number: int, rows: np.ndarray | None = None) -> tuple[list[object], ...]:
    """Return all that there is of a repertoire, as values."""
    table, implants = cohort.draw(number, rows)
    assert table.j_call is not None
    assert table.witness is not None
    columns = (table.counts, table.witness, implants.motif, implants.start)
    return texts(table), v_genes(table), list(table.j_call.names()), *(column.tolist() for column in columns)


def assert_share(successes: int, n: int, probability: float) -> None:
    assert stats.binomtest(successes, n, probability).pvalue > 1e-6


def test_one_of_each_pair_is_positive() -> None:
    cohort = Cohort(3000)
    positive = np.array([cohort.is_positive(number) for number in range(3000)]).reshape(-1, 2)
    assert (positive.sum(axis=1) == 1).all()
    assert_share(int(positive[:, 0].sum()), 1500, 0.5)
    runs = 1 + int((positive[1:, 0] != positive[:-1, 0]).sum())
    assert_share(runs - 1, 1499, 0.5)  # one pair says nothing about the next


@pytest.mark.parametrize(("share", "within"), [(0.2, 5), (0.25, 4), (0.3, 10), (0.8, 5), (0.95, 20)])
def test_a_share_of_the_repertoires_is_positive(share: float, within: int) -> None:
    cohort = Cohort(2000, positive_share=share)
    positive = np.array([cohort.is_positive(number) for number in range(2000)])
    blocks = positive.reshape(-1, within).sum(axis=1)
    assert set(blocks) == {round(share * within)}  # a whole number of them


def test_positive_repertoires_have_no_pattern() -> None:
    cohort = Cohort(4000, positive_share=0.25)
    positive = np.array([cohort.is_positive(number) for number in range(4000)]).reshape(-1, 4)
    for column in range(4):
        assert_share(int(positive[:, column].sum()), 1000, 0.25)


def test_all_or_none_are_positive() -> None:
    assert [Cohort(3, positive_share=share).is_positive(2) for share in (0.0, 1.0)] == [False, True]


def test_a_test_part_has_the_share_of_each_class() -> None:
    cohort = Cohort(400, positive_share=0.2, test_share=0.25)
    sheet = cohort.metadata()
    assert list(sheet) == ["repertoire_id", "status", "part"]
    counts = sheet.groupby(["part", "status"]).size().to_dict()
    assert counts == {
        ("test", "negative"): 80,
        ("test", "positive"): 20,
        ("train", "negative"): 240,
        ("train", "positive"): 60,
    }
    positive = sheet[sheet["status"] == "positive"]["part"].tolist()
    assert positive[:8] == ["train", "train", "train", "test"] * 2  # the fourth, the eighth, ...
    first = replace(cohort, n_repertoires=150).metadata()
    assert first.equals(sheet[:150])


def test_without_a_test_part_no_column_names_it() -> None:
    assert "part" not in Cohort(4).metadata()


def test_only_positive_repertoires_have_witnesses() -> None:
    cohort = Cohort(20, Sizes(500), signals=WHW)
    for number in range(20):
        assert cohort.draw(number)[1].signal.any() == cohort.is_positive(number)


@pytest.mark.parametrize("n", [1, 7, 120])
def test_a_repertoire_does_not_depend_on_the_cohorts_size(n: int) -> None:
    other = replace(RICH, n_repertoires=n)
    for number in (0, 3, 6)[: min(n, 3)]:
        assert repertoire(other, number) == repertoire(RICH, number)
    sheet, whole = other.metadata(), RICH.metadata()
    both = min(n, 16)
    assert sheet[:both].to_dict() == whole[:both].to_dict()
    assert other.all_sizes[:both].tolist() == RICH.all_sizes[:both].tolist()


def test_repertoires_do_not_depend_on_the_order_they_are_made_in() -> None:
    forwards = [repertoire(RICH, number) for number in range(16)]
    backwards = [repertoire(replace(RICH), number) for number in reversed(range(16))]
    assert forwards == backwards[::-1]


def test_some_sequences_are_those_of_the_whole_repertoire() -> None:
    for number in (0, 1, 2, 3):
        whole = repertoire(RICH, number)
        rows = np.random.default_rng(number).permutation(RICH.size(number))[:20]
        some = repertoire(RICH, number, rows)
        assert some == tuple([column[row] for row in rows] for column in whole)
        assert repertoire(RICH, number, rows[:0]) == ([],) * 7


def test_repertoires_and_seeds_differ_from_each_other() -> None:
    firsts = [tuple(texts(RICH.draw(number, np.arange(20))[0])) for number in range(16)]
    assert len(set(firsts)) == 16
    assert firsts != [tuple(texts(replace(RICH, seed=6).draw(number, np.arange(20))[0])) for number in range(16)]


def test_sizes_are_normal_and_drawn_again_below_the_minimum() -> None:
    sizes = Cohort(4000, Sizes(100_000, 60_000, 50_000)).all_sizes
    assert sizes.min() >= 50_000
    share_below = stats.norm.cdf(49_999.5, 100_000, 60_000)
    expected = stats.norm(100_000, 60_000)
    assert (
        stats.kstest(sizes, lambda x: np.clip((expected.cdf(x) - share_below) / (1 - share_below), 0, 1)).pvalue > 1e-6
    )


def test_small_sizes_have_the_rounded_normals_probabilities() -> None:
    sizes = Cohort(4000, Sizes(3, 2, 1)).all_sizes
    probabilities = np.array([stats.norm.cdf(n + 0.5, 3, 2) - stats.norm.cdf(n - 0.5, 3, 2) for n in range(1, 9)])
    probabilities = np.append(probabilities, stats.norm.sf(8.5, 3, 2)) / stats.norm.sf(0.5, 3, 2)
    counts = np.bincount(np.minimum(sizes, 9), minlength=10)
    assert counts[0] == 0
    assert stats.chisquare(counts[1:], 4000 * probabilities).pvalue > 1e-6


def test_without_a_deviation_all_sizes_are_the_mean() -> None:
    assert set(Cohort(50, Sizes(123)).all_sizes.tolist()) == {123}


def test_a_minimum_far_above_the_mean_size_is_refused() -> None:
    assert Cohort(1, Sizes(100, 1, 101)).size(0) >= 101
    with pytest.raises(InputError, match="minimum of 1 to mean"):
        Sizes(100, 1, 102)


def test_the_recorded_status_is_wrong_as_often_as_asked_for() -> None:
    sheet = Cohort(4000, label_noise=0.15).metadata()
    wrong = sheet["status"] != sheet["true_status"]
    assert set(sheet["status"]) == {"positive", "negative"}
    for status in ("positive", "negative"):
        of_class = sheet["true_status"] == status
        assert of_class.sum() == 2000
        assert_share(int(wrong[of_class].sum()), 2000, 0.15)


def test_label_noise_changes_nothing_but_the_recorded_status() -> None:
    clean = replace(RICH, label_noise=0.0)
    assert "true_status" not in clean.metadata()
    assert clean.metadata()["status"].tolist() == RICH.metadata()["true_status"].tolist()
    assert [repertoire(clean, number) for number in range(6)] == [repertoire(RICH, number) for number in range(6)]
    always = replace(RICH, label_noise=1.0).metadata()
    assert (always["status"] != always["true_status"]).all()


def test_a_signal_that_a_share_of_the_positives_carries() -> None:
    cohort = Cohort(2000, Sizes(50), signals=(replace(WHW[0], witness_rate=0.5, prevalence=0.3),))
    sheet = cohort.metadata()
    assert list(sheet) == ["repertoire_id", "status", "carries_signal"]
    carries, positive = sheet["carries_signal"] == 1, sheet["status"] == "positive"
    assert not carries[~positive].any()
    assert_share(int(carries.sum()), 1000, 0.3)
    for number in range(60):
        assert cohort.draw(number)[1].signal.any() == carries[number]


def test_signals_of_both_classes() -> None:
    signals = (
        MotifSignal((Motif("WHW"),), 0.2, name="of_positives"),
        MotifSignal((Motif("CCC"),), 0.3, status="negative", name="of_negatives"),
        MotifSignal((Motif("MMM"),), 0.1, prevalence=0.5, name="of_some"),
    )
    cohort = Cohort(30, Sizes(1000), IndependentBackground(14.5, 1.8, {"A": 65_536}), signals)
    sheet = cohort.metadata().set_index("repertoire_id")
    for number in range(30):
        table, implants = cohort.draw(number)
        found = sorted({text.strip("A") for text in texts(table)} - {""})
        row = sheet.loc[cohort.repertoire_id(number)]
        carried = ["of_positives", "of_negatives", "of_some"]
        assert found == sorted(
            m for m, name in zip(("WHW", "CCC", "MMM"), carried, strict=True) if row[f"carries_{name}"]
        )
        assert row["carries_of_positives"] == cohort.is_positive(number)
        assert row["carries_of_negatives"] == (not cohort.is_positive(number))
        for place, name in enumerate(carried):
            n = int((implants.signal == place + 1).sum())
            assert_share(n, 1000, signals[place].witness_rate) if row[f"carries_{name}"] else None
            assert row[f"carries_{name}"] or n == 0


def test_a_single_signal_that_all_positives_carry_has_no_column() -> None:
    assert list(Cohort(2, signals=WHW).metadata()) == ["repertoire_id", "status"]


@pytest.mark.parametrize("association", [-1.0, 0.0, 0.6, 1.0])
def test_the_second_batch_goes_with_the_class(association: float) -> None:
    sheet = Cohort(2000, batch=Batch(association)).metadata()
    for status, sign in (("positive", 1), ("negative", -1)):
        second = (sheet["batch"][sheet["status"] == status] == 2).sum()
        share = (1 + sign * association) / 2
        assert second == 1000 * share if share in (0, 1) else stats.binomtest(int(second), 1000, share).pvalue > 1e-6


def test_the_second_batchs_sizes_are_multiplied() -> None:
    plain = Cohort(60, Sizes(1000, 100, 500))
    cohort = replace(plain, batch=Batch(size_factor=0.25))
    second = cohort.metadata()["batch"] == 2
    assert 0 < second.sum() < 60
    assert cohort.all_sizes.tolist() == [
        round(0.25 * size) if is_second else size for size, is_second in zip(plain.all_sizes, second, strict=True)
    ]
    assert set(Cohort(20, Sizes(3), batch=Batch(size_factor=0.01)).all_sizes.tolist()) == {1, 3}  # never empty


@pytest.mark.parametrize("strength", [0.3, 1.0])
def test_a_gene_shift_raises_the_share_of_the_favoured_genes(strength: float) -> None:
    usage = {"TRBV5-1": 5.0, "TRBV19": 2.0, "TRBV28": 1.0, "TRBV20-1": 2.0}
    cohort = Cohort(20, Sizes(4000), GermlineBackground(v_genes=usage))
    shifted = replace(cohort, gene_shift=GeneShift(("TRBV19", "TRBV28"), strength))
    p, n = 0.3, {True: 0, False: 0}
    genes: list[str] = []
    for number in range(20):
        found = v_genes(shifted.draw(number)[0])
        positive = shifted.is_positive(number)
        n[positive] += sum(gene in ("TRBV19", "TRBV28") for gene in found)
        genes += found if positive else []
        if not positive:
            assert repertoire(shifted, number) == repertoire(cohort, number)
    assert_share(n[False], 40_000, p)
    assert_share(n[True], 40_000, p + (1 - p) * strength * p)
    # those that are drawn again keep their proportions
    assert_share(genes.count("TRBV28"), n[True], 1 / 3)
    assert_share(genes.count("TRBV5-1"), 40_000 - n[True], 5 / 7)


def test_a_shifted_sequence_is_one_of_its_gene() -> None:
    starts = {"TRBV5-1": "CASSL", "TRBV7-9": "CASSL", "TRBV19": "CASSI", "TRBV20-1": "CSAR", "TRBV28": "CASS"}
    plain = replace(RICH, signals=(), gene_shift=None, batch=None)
    shifted = replace(plain, gene_shift=GeneShift(("TRBV28",), 0.7))
    number = 0 if RICH.is_positive(0) else 1
    before, after = plain.draw(number)[0], shifted.draw(number)[0]
    assert all(text.startswith(starts[gene]) for text, gene in zip(texts(after), v_genes(after), strict=True))
    same = [a == b for a, b in zip(texts(before), texts(after), strict=True)]
    assert 0 < sum(same) < len(same)
    kept = [gene == "TRBV28" for gene in v_genes(before)]
    assert all(s for s, k in zip(same, kept, strict=True) if k)


def test_batch_and_class_shift_genes_one_after_the_other() -> None:
    p, s = 0.2, 0.5
    shift = GeneShift(("TRBV28",), s)
    cohort = Cohort(4, Sizes(20_000), GermlineBackground(), batch=Batch(1.0, gene_shift=shift), gene_shift=shift)
    once = p + (1 - p) * s * p
    for number in range(4):
        n = v_genes(cohort.draw(number)[0]).count("TRBV28")
        assert_share(n, 20_000, once + (1 - once) * s * p if cohort.is_positive(number) else p)


def test_a_gene_shift_needs_genes() -> None:
    with pytest.raises(InputError, match="gene_shift: the background has no V genes"):
        [Cohort(2, Sizes(5), gene_shift=GeneShift(("TRBV28",), 1.0)).draw(number) for number in (0, 1)]


@pytest.mark.parametrize("exponent", [1.5, 2.0, 3.5])
def test_counts_follow_the_power_law(exponent: float) -> None:
    cohort = Cohort(1, Sizes(50_000), counts=Counts(exponent, 1000))
    counts = cohort.draw(0)[0].counts
    assert counts.dtype == np.uint32
    assert counts.min() == 1
    for c in (2, 3, 5, 10, 100, 1000):
        assert_share(int((counts >= c).sum()), 50_000, c ** (1 - exponent))
    assert counts.max() <= 1000


def test_counts_are_1_without_a_law_and_never_above_the_maximum() -> None:
    assert set(Cohort(1, Sizes(100)).draw(0)[0].counts.tolist()) == {1}
    assert set(Cohort(1, Sizes(100), counts=Counts(1.5, 1)).draw(0)[0].counts.tolist()) == {1}
    steep = Cohort(1, Sizes(5000), counts=Counts(1.1, 4_294_967_295)).draw(0)[0].counts
    assert steep.max() == 4_294_967_295
    assert_share(int((steep == 4_294_967_295).sum()), 5000, 4_294_967_295 ** (-0.1))


def test_a_law_of_almost_endless_counts() -> None:
    counts = Cohort(1, Sizes(5000), counts=Counts(1.01, 1000)).draw(0)[0].counts
    assert_share(int((counts == 1000).sum()), 5000, 1000 ** (-0.01))


def parts(cohort: Cohort) -> dict[str, object]:
    """Return what each stream decides, separated from what the others do."""
    first = [cohort.draw(number, np.arange(30)) for number in range(cohort.n_repertoires)]
    plain = replace(cohort, signals=(), gene_shift=None, batch=None)
    return {
        "sizes": plain.all_sizes.tolist(),
        "status": [cohort.is_positive(number) for number in range(cohort.n_repertoires)],
        "background": [texts(plain.draw(number, np.arange(30))[0]) for number in range(cohort.n_repertoires)],
        "counts": [table.counts.tolist() for table, _ in first],
        "label_noise": (cohort.metadata()["status"] != cohort.metadata()["true_status"]).tolist(),
    }


@pytest.mark.parametrize("stream", ["sizes", "status", "background", "counts", "label_noise"])
def test_a_seed_of_its_own_changes_one_stream_only(stream: str) -> None:
    before, after = parts(RICH), parts(replace(RICH, seeds={stream: 1}))
    assert [name for name in before if before[name] != after[name]] == [stream]


def test_another_signal_seed_leaves_all_but_the_witnesses() -> None:
    cohort = Cohort(10, Sizes(300, 50, 100), GermlineBackground(), WHW, Counts(2.0))
    other = replace(cohort, seeds={"signal": 1})
    assert other.metadata().equals(cohort.metadata())
    assert other.all_sizes.tolist() == cohort.all_sizes.tolist()
    n = both = 0
    for number in range(10):
        (a, a_implants), (b, b_implants) = cohort.draw(number), other.draw(number)
        neither = (a_implants.signal == 0) & (b_implants.signal == 0)
        unequal = [x != y for x, y in zip(texts(a), texts(b), strict=True)]
        assert not np.array(unequal)[neither].any()
        assert a.counts.tolist() == b.counts.tolist()
        assert v_genes(a) == v_genes(b)
        n += len(neither) * cohort.is_positive(number)
        both += int((a_implants.signal & b_implants.signal).sum())
    assert_share(both, n, 0.01)


def test_other_sizes_leave_the_first_sequences() -> None:
    other = replace(RICH, seeds={"sizes": 1})
    assert other.all_sizes.tolist() != RICH.all_sizes.tolist()
    assert other.metadata().equals(RICH.metadata())
    for number in range(10):
        rows = np.arange(min(RICH.size(number), other.size(number)))
        assert repertoire(other, number, rows) == repertoire(RICH, number, rows)


def test_batch_prevalence_and_gene_shift_have_seeds_too() -> None:
    cohort = replace(RICH, signals=(replace(WHW[0], prevalence=0.5),))
    sheet = cohort.metadata()
    for stream, column in (("batch", "batch"), ("prevalence", "carries_signal")):
        other = replace(cohort, seeds={stream: 1}).metadata()
        assert [name for name in sheet if not other[name].equals(sheet[name])] == [column]
    other = replace(cohort, seeds={"gene_shift": 1})
    assert other.metadata().equals(sheet)
    assert any(repertoire(other, number) != repertoire(cohort, number) for number in range(4))


def test_naming_the_seed_for_every_stream_changes_nothing() -> None:
    other = replace(
        RICH,
        seed=99,
        seeds=dict.fromkeys(
            [
                "sizes",
                "status",
                "background",
                "signal",
                "counts",
                "batch",
                "label_noise",
                "prevalence",
                "gene_shift",
            ],
            RICH.seed,
        ),
    )
    assert other.metadata().equals(RICH.metadata())
    assert [repertoire(other, number) for number in range(5)] == [repertoire(RICH, number) for number in range(5)]


NAN = float("nan")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sizes(0.5), "sizes: expected a mean of 1 to 100,000,000"),
        (lambda: Sizes(10, -1), "found 10, -1 and 1"),
        (lambda: Sizes(10, 1, 0), "a minimum of 1 to mean"),
        (lambda: Sizes(NAN), "sizes: expected"),
        (lambda: Sizes(10, NAN), "sizes: expected"),
        (lambda: Sizes(float("inf")), "sizes: expected"),
        (lambda: Sizes(10, float("inf")), "sizes: expected"),
        (lambda: Counts(1.0), "counts: expected an exponent above 1"),
        (lambda: Counts(NAN), "counts: expected an exponent above 1"),
        (lambda: Counts(2.0, 0), "a maximum of 1 to 4294967295"),
        (lambda: Counts(2.0, 2**32), "a maximum of 1 to 4294967295"),
        (lambda: GeneShift((), 0.5), "gene shift: expected at least one of v_genes"),
        (lambda: GeneShift(("TRBV28",), 1.5), "a strength of 0 to 1"),
        (lambda: Batch(1.5), "batch: expected an association of -1 to 1"),
        (lambda: Batch(0, 0), "a size_factor above 0"),
        (lambda: Batch(0, NAN), "a size_factor above 0"),
        (lambda: Cohort(0), "n_repertoires: expected 1 to 1,000,000, found 0"),
        (lambda: Cohort(10**30), "n_repertoires: expected 1 to 1,000,000, found 1,000,000,000"),
        (lambda: Cohort(2, label_noise=2), "label_noise: expected 0 to 1, found 2"),
        (lambda: Cohort(2, positive_share=NAN), "positive_share: expected 0 to 1, found nan"),
        (lambda: Cohort(2, test_share=-0.1), "test_share: expected 0 to 1, found -0.1"),
        (lambda: Cohort(2, seeds={"signals": 1}), "seeds: expected some of background, .*found signals"),
        (lambda: Cohort(2, signals=WHW * 2), "signals: expected a different name for each"),
        (
            lambda: Cohort(2, signals=(replace(WHW[0], witness_rate=0.6), replace(WHW[0], witness_rate=0.6, name="b"))),
            "the witness rates of the positive class sum to more than 1",
        ),
    ],
)
def test_wrong_settings_of_a_cohort_are_refused(make: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()  # type: ignore[operator]


def test_rates_of_different_classes_are_not_added() -> None:
    negative = replace(WHW[0], witness_rate=0.6, status="negative", name="b")
    Cohort(2, signals=(replace(WHW[0], witness_rate=0.6), negative))


def test_rates_that_sum_to_more_than_1_by_rounding_alone_are_no_more() -> None:
    rates = (0.05, 0.55, 0.3, 0.1)
    assert np.cumsum(rates)[-1] > 1  # from Python 3.12 on `sum` rounds once, at the end
    signals = tuple(replace(WHW[0], witness_rate=rate, name=f"s{rate}") for rate in rates)
    cohort = Cohort(2, Sizes(500), signals=signals)
    _, implants = cohort.draw(0 if cohort.is_positive(0) else 1)
    assert implants.signal.all()


def test_a_shift_to_genes_that_the_background_lacks_is_refused() -> None:
    with pytest.raises(InputError, match="gene_shift: the background has none of TRBV2; it has TRBV19, TRBV20-1, "):
        Cohort(4, background=GermlineBackground(), gene_shift=GeneShift(("TRBV2",), 1.0))
    with pytest.raises(InputError, match="expected V genes by their IMGT names, found 'TRBV5'"):
        GeneShift(("TRBV5",), 1.0)


def test_there_are_no_more_signals_than_a_byte_tells_apart() -> None:
    signals = tuple(MotifSignal((Motif("SFEN"),), 0.001, name=f"{number}") for number in range(256))
    with pytest.raises(InputError, match="signals: expected at most 255, found 256"):
        Cohort(4, signals=signals)


@pytest.mark.parametrize("background", [IndependentBackground(), GermlineBackground()])
@pytest.mark.parametrize("shift", [None, GeneShift(("TRBV28",), 0.5)])
def test_lengths_and_counts_are_those_of_the_sequences(background: Background, shift: GeneShift | None) -> None:
    if shift is not None and isinstance(background, IndependentBackground):
        pytest.skip("it has no genes")
    signal = MotifSignal((Motif("SF(d)EN"),), 0.5)
    cohort = Cohort(4, Sizes(50, 10), background, (signal,), Counts(2.0), gene_shift=shift)
    for number in range(4):
        table, _ = cohort.draw(number)
        lengths, counts = cohort.draw_lengths_and_counts(number)
        assert lengths.tolist() == table.lengths.tolist()
        assert counts.tolist() == table.counts.tolist()
