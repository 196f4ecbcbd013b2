"""Adjustment for columns of the sheet: which repertoires are left to learn from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from deeprc.errors import InputError
from deeprc.evaluation.adjustment import choose_comparable_rows, find_adjustment_cautions
from deeprc.evaluation.splits import SplitOptions, make_split
from deeprc.tasks import parse_tasks


def choose(
    sheet: pd.DataFrame, strata: NDArray[Any], *columns: str, donors: NDArray[np.int64] | None = None, seed: int = 0
) -> NDArray[np.int64]:
    rows = np.arange(len(sheet))
    every = rows if donors is None else donors
    rng = np.random.default_rng(seed)
    given = {"rng": rng, "min_kept": {"training": 5}, "source": "a test"}
    return choose_comparable_rows({"training": rows}, sheet, strata, every, columns, **given)["training"]


def make_sheet(n: int = 400, *, share: float = 0.85, seed: int = 0) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Return a sheet whose site and age go with the label, and the labels."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, n)
    site = np.where(rng.random(n) < share, label, 1 - label)
    age = 50 + 8 * label + 10 * rng.standard_normal(n)
    return pd.DataFrame({"site": [f"s{each}" for each in site], "age": age}), label


def test_each_class_is_as_frequent_at_every_site_as_among_all() -> None:
    sheet, label = make_sheet()
    kept = choose(sheet, label, "site")
    before, after = (pd.crosstab(sheet["site"].iloc[rows], label[rows]) for rows in (np.arange(400), kept))
    share = label.mean()
    for site in ("s0", "s1"):
        n = min(before.loc[site, 1] / share, before.loc[site, 0] / (1 - share))  # the rarer class is kept whole
        assert after.loc[site, 1] == pytest.approx(n * share, abs=1.5)
        assert after.loc[site, 0] == pytest.approx(n * (1 - share), abs=1.5)
    assert sorted(set(kept)) == kept.tolist()


def test_nothing_is_left_out_without_an_association() -> None:
    label = np.tile([0, 0, 0, 1], 30)
    sheet = pd.DataFrame({"site": np.repeat(["a", "b", "c"], 40), "one": "x"})
    assert choose(sheet, label, "site", "one").tolist() == list(range(120))
    assert choose(sheet, label).tolist() == list(range(120))


def test_no_column_predicts_the_label_after_adjusting_for_several() -> None:
    sheet, label = make_sheet(1000, share=0.7)
    kept = choose(sheet, label, "age", "site")
    assert roc_auc_score(label, sheet["age"]) > 0.65
    assert roc_auc_score(label[kept], sheet["age"].iloc[kept]) == pytest.approx(0.5, abs=0.04)
    assert roc_auc_score(label[kept], sheet["site"].iloc[kept] == "s1") == pytest.approx(0.5, abs=0.04)
    assert label[kept].mean() == pytest.approx(label.mean(), abs=0.02)
    assert 300 < len(kept) < 600


def test_several_classes_are_independent_of_a_column_after_adjusting() -> None:
    rng = np.random.default_rng(1)
    strata = rng.integers(0, 4, 800)
    site = np.where(rng.random(800) < 0.5, strata, rng.integers(0, 4, 800))
    kept = choose(pd.DataFrame({"site": site}), strata, "site")
    table = pd.crosstab(site[kept], strata[kept]).to_numpy()
    expected = np.outer(table.sum(axis=1), np.bincount(strata)) / 800
    np.testing.assert_allclose(table, expected, atol=1.5)


def test_missing_values_are_compared_with_each_other() -> None:
    sheet, label = make_sheet()
    sheet.loc[::4, "site"] = None
    sheet.loc[::5, "age"] = np.nan
    kept = choose(sheet, label, "site", "age")
    for column in ("site", "age"):
        missing = sheet[column].isna().to_numpy()[kept]
        assert missing.any()
        assert label[kept][missing].mean() == pytest.approx(label[kept].mean(), abs=0.1)


def test_repertoires_of_one_donor_count_once_and_stay_together() -> None:
    sheet, label = make_sheet(200)
    donors = np.repeat(np.arange(200), 3)
    kept = choose(sheet.iloc[donors], label[donors], "site", donors=donors)
    assert kept.tolist() == [3 * i + k for i in choose(sheet, label, "site") for k in range(3)]


def test_which_are_left_out_follows_from_the_seed() -> None:
    sheet, label = make_sheet()
    assert choose(sheet, label, "site").tolist() == choose(sheet, label, "site").tolist()
    other = choose(sheet, label, "site", seed=1)
    assert len(other) == pytest.approx(len(choose(sheet, label, "site")), abs=2)
    assert set(other) != set(choose(sheet, label, "site"))


def test_a_column_that_says_the_label_is_refused() -> None:
    sheet, label = make_sheet(share=1.0)
    with pytest.raises(InputError, match=r"about 0 of 400 .* each class 5 must be left, but .* left 0 in one\. Give"):
        choose(sheet, label, "site")


@pytest.mark.parametrize("seed", range(6))
def test_both_classes_stay_in_every_part_of_a_small_cohort(seed: int) -> None:
    """60 donors of two repertoires each and a batch with V = 0.67: of the 12 donors of a fold, about four are kept."""
    status, is_batch_b = np.repeat(["sick", "well"], 30), np.repeat([True, False, True, False], [25, 5, 5, 25])
    sheet = pd.DataFrame({"donor": np.arange(60), "status": status, "batch": np.where(is_batch_b, "b", "a")})
    sheet = sheet.loc[np.repeat(np.arange(60), 2)].reset_index(drop=True)
    tasks = parse_tasks(["status=sick"], sheet, source="a test")
    for fold in range(5):
        options = SplitOptions(fold=fold, group_by="donor", adjust_for=("batch",))
        split = make_split(sheet, tasks, options, seed=seed)
        for rows, fewest in ((split.train, 5), (split.validation, 1)):
            assert sheet["status"].iloc[rows].value_counts().reindex(["sick", "well"], fill_value=0).min() >= fewest


def test_a_split_has_its_test_side_unchanged() -> None:
    sheet, label = make_sheet()
    sheet["status"] = np.where(label == 1, "sick", "well")
    sheet.loc[0, "status"] = None
    tasks = parse_tasks(["status=sick"], sheet, source="a test")
    plain = make_split(sheet, tasks)
    split = make_split(sheet, tasks, SplitOptions(adjust_for=("site",)))
    assert split.test.tolist() == plain.test.tolist()
    for side in ("train", "validation"):
        rows = getattr(split, side)
        assert set(rows) < set(getattr(plain, side))
        assert roc_auc_score(label[rows], sheet["site"].iloc[rows] == "s1") == pytest.approx(0.5, abs=0.06)
    assert 0 not in split.train
    other = make_split(sheet, tasks, SplitOptions(adjust_for=("site",), validation_fold=3))
    assert set(other.train) & set(plain.train) - set(split.train)  # another run leaves out others


@pytest.mark.parametrize("n", [60, 100])
@pytest.mark.parametrize("seed", range(4))
def test_a_small_side_keeps_most_repertoires_if_a_number_says_nothing(n: int, seed: int) -> None:
    """A validation fold of 12 to 20 has no more different ages than a category may have."""
    rng = np.random.default_rng(seed)
    sheet = pd.DataFrame({"age": rng.normal(50, 15, n), "status": rng.permutation(["sick", "well"] * (n // 2))})
    tasks = parse_tasks(["status=sick"], sheet, source="a test")
    split = make_split(sheet, tasks, SplitOptions(adjust_for=("age",)), seed=seed)
    assert len(split.train) > 0.5 * 0.6 * n
    assert len(split.validation) > 0.5 * 0.2 * n


@pytest.mark.parametrize(
    ("columns", "targets", "message"),
    [
        (("place",), ["status=sick"], "no column 'place' for `adjust_for`; columns: site, age, status, endless"),
        (("status",), ["status=sick"], "`adjust_for=status`: is the target"),
        (("endless",), ["status=sick"], "`adjust_for=endless`: expected finite numbers, found inf"),
        (("site",), ["status=sick", "age:regression"], "expected one target, found status=sick, age; train each"),
    ],
)
def test_columns_that_cannot_be_adjusted_for(columns: tuple[str, ...], targets: list[str], message: str) -> None:
    sheet, label = make_sheet(100)
    sheet["status"] = np.where(label == 1, "sick", "well")
    sheet["endless"] = np.where(label == 1, np.inf, sheet["age"])
    tasks = parse_tasks(targets, sheet, source="a test")
    with pytest.raises(InputError, match=message):
        make_split(sheet, tasks, SplitOptions(adjust_for=columns))


def test_few_repertoires_are_a_warning() -> None:
    sides = [np.repeat([0, 1], [20, 30]), np.repeat([0, 1], [25, 14])]
    (few,) = find_adjustment_cautions(["site", "age"], "binary", sides)
    assert (few.level, few.details) == ("warning", {"columns": ["site", "age"], "n_kept": 39, "n_smallest": 14})
    assert "At least 39 training repertoires are left, which are few to learn from." in few.text
    (note,) = find_adjustment_cautions(["site"], "binary", sides[:1])
    assert note.level == "note"
    assert note.text.startswith("Adjusted for site: ")
    assert find_adjustment_cautions([], "binary", []) == []
    (part,) = find_adjustment_cautions(
        ["site"], "binary", [side[::5] for side in sides], [50, 29]
    )  # of a part of the cohort
    assert (part.level, part.details["n_kept"], part.details["n_smallest"]) == ("warning", 29, None)
    assert "At least 29 training repertoires are left" in part.text


def test_numbers_of_which_nearly_all_are_equal_cannot_be_adjusted() -> None:
    table = pd.DataFrame({"load": np.r_[np.zeros(160), np.arange(1.0, 41)], "batch": ["a", "b"] * 100})
    with pytest.raises(InputError, match=r"`adjust_for=batch`: expected training repertoires of two classes"):
        make_split(table, parse_tasks(["load:regression"], table), SplitOptions(adjust_for=("batch",)))


def test_huge_numbers_are_adjusted_as_all_others() -> None:
    sheet, label = make_sheet(share=0.7)
    as_given = choose(sheet, label, "age").tolist()
    assert len(as_given) < 350
    assert choose(sheet.assign(age=sheet["age"] * 2.0**1000), label, "age").tolist() == as_given


def test_numbers_that_floats_cannot_distinguish_are_categories() -> None:
    """Ids of 19 digits differ as integers, but are all the same float."""
    sheet, label = make_sheet(100)
    ids = sheet.assign(age=2**62 + np.arange(100))
    with pytest.raises(InputError, match="repertoires can be compared with others of equal age"):
        choose(ids, label, "age")
