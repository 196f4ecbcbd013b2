"""Samples of one subject under the wrong class: found by what they share, and nowhere else."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deeprc.checks.overlaps import Pair
from deeprc.checks.swaps import ClassComparison
from tests.checks.test_checks import Cohort, codes, only

CODE = "closer-to-other-class"


def paired(n_subjects: int = 8) -> Cohort:
    """Each subject has two samples of either class; those of one class share 20 to 30 of 110 sequences."""
    cohort = Cohort(n=4 * n_subjects)
    for subject in range(n_subjects):
        for kind in range(2):
            pool = cohort.repertoire(100)
            for day in range(2):
                mine = pool.sample(frac=0.5, random_state=day)
                cohort.tables[f"hd{4 * subject + 2 * kind + day}"] = pd.concat([mine, cohort.repertoire(60)])
    cohort.sheet["subject_id"] = [f"p{number // 4}" for number in range(4 * n_subjects)]
    cohort.sheet["status"] = ["case", "case", "control", "control"] * n_subjects
    return cohort


def sharing(cohort: Cohort, within: int, across: int, *, n_within: int = 100) -> None:
    """hd0 shares so many of its 100 sequences with hd1, of n_within, and with hd2 of the other class; hd3 with hd2."""
    fresh = {name: cohort.repertoire(100).assign(productive="T") for name in ("hd0", "hd1", "hd2", "hd3")}
    first = cohort.tables["hd0"] = fresh["hd0"]
    cohort.tables["hd1"] = pd.concat([first.iloc[:within], fresh["hd1"].iloc[within:n_within]])
    second = cohort.tables["hd2"] = pd.concat([first.iloc[100 - across :], fresh["hd2"].iloc[across:]])
    cohort.tables["hd3"] = pd.concat([second.iloc[100 - within :], fresh["hd3"].iloc[within:]])


def test_a_paired_design_without_swaps_has_no_finding(tmp_path: Path) -> None:
    assert CODE not in codes(paired().write(tmp_path).check())


def test_swapped_samples_of_one_subject_are_found(tmp_path: Path) -> None:
    cohort = paired()
    cohort.sheet.loc[[5, 7], "status"] = ["control", "case"]
    found = cohort.write(tmp_path).check()
    finding = only(found, CODE)
    assert finding.severity == "warning"
    assert finding.repertoires == ("hd4", "hd5", "hd6", "hd7")
    assert [Path(file).name for file in finding.files] == ["hd4.tsv", "hd5.tsv", "hd6.tsv", "hd7.tsv"]
    assert finding.column == "status"
    assert "target 'status': " in finding.message
    assert "than with their own class (1 donor: p1). Example: " in finding.message
    assert finding.target == "status"
    told = {each.names: each.classes for each in found.comparisons}
    assert told["hd4", "hd5"] == ("case", "control")
    assert told["hd6", "hd7"] == ("control", "case")
    assert re.search(
        r"Example: hd6 \(control\) shares \d+\.\d% with hd7 \(case\), but 0\.0% with the most similar one of its own ",
        finding.message,
    )
    assert only(cohort.check(targets=["age:regression", "status"]), CODE) == finding


def test_classes_are_called_as_the_target_has_them(tmp_path: Path) -> None:
    """With a third class, the positive is the last of three, and the others together are its opposite."""
    cohort = paired(9)
    cohort.sheet.loc[[5, 7], "status"] = ["control", "case"]
    cohort.sheet.loc[32:, "status"] = "zzz"
    cohort.write(tmp_path)
    for target, other in (("status=case", "not case"), ("status:multiclass", "control")):
        told = {each.names: each.classes for each in cohort.check(targets=[target]).comparisons}
        assert told["hd4", "hd5"] == ("case", other)


def test_labels_that_do_not_go_with_clones_name_nobody(tmp_path: Path) -> None:
    """The days of a design in order: each sample is like one of the other day."""
    cohort = paired()
    cohort.sheet["status"] = ["first", "second"] * 16
    assert CODE not in codes(cohort.write(tmp_path).check())


def test_few_subjects_cannot_tell_whether_labels_go_with_clones(tmp_path: Path) -> None:
    cohort = paired(3)
    cohort.sheet.loc[[5, 7], "status"] = ["control", "case"]
    assert CODE not in codes(cohort.write(tmp_path).check())


@pytest.mark.slow
def test_a_class_that_is_larger_in_everybody_names_nobody(tmp_path: Path) -> None:
    """One sample before, five after, of two kinds of cells each: the nearest one is "after", whatever clones do."""
    cohort = Cohort(n=96)
    for line in range(16):  # two of each subject
        pool = cohort.repertoire(40)
        for visit in range(6):
            cohort.tables[f"hd{6 * line + visit}"] = pd.concat([pool, cohort.repertoire(40)])
    cohort.sheet["subject_id"] = [f"p{number // 12}" for number in range(96)]
    cohort.sheet["status"] = ["after" if number % 6 else "before" for number in range(96)]
    assert CODE not in codes(cohort.write(tmp_path).check())


def comparison(within: tuple[int, int, int], across: tuple[int, int, int], n_across: int = 1) -> ClassComparison:
    """Each pair: how many are shared, and both sizes."""
    pairs = [Pair(0, 1, shared, (a, b)) for shared, a, b in (within, across)]
    return ClassComparison("target", "subject", ("a", "b"), ("x", "y"), *pairs, n_across)


def test_p_values_of_shared_sequences_by_hand() -> None:
    """Of 24 in common, 22 or more fall to one of two equal pairs with (276 + 24 + 1) / 2^24."""
    assert comparison((2, 100, 100), (22, 100, 100)).p_value == pytest.approx(301 / 2**24)
    assert comparison((2, 100, 100), (22, 100, 100), n_across=5).p_value == pytest.approx(5 * 301 / 2**24)
    # across: sqrt(100 * 400) = 200; within no more than the smaller one, 50, so that the chance of each is 4 / 5
    assert comparison((0, 50, 800), (11, 100, 400)).p_value == pytest.approx(0.8**11)


def test_three_times_as_many_shared_sequences_are_closer_to_the_other_class() -> None:
    much = comparison((100, 1000, 1000), (400, 1000, 1000))
    assert much.is_closer_to_other_class(0.01)
    assert not much.is_closer_to_other_class(much.p_value * 0.99)
    assert not comparison((134, 1000, 1000), (400, 1000, 1000)).is_closer_to_other_class(
        0.01
    )  # not three times as much
    assert not comparison((0, 1000, 1000), (9, 1000, 1000)).is_closer_to_other_class(0.01)  # too few


@pytest.mark.slow
def test_many_subjects_are_one_finding(tmp_path: Path) -> None:
    cohort = paired(48)
    for subject in range(12):
        cohort.sheet.loc[[4 * subject + 1, 4 * subject + 3], "status"] = ["control", "case"]
    finding = only(cohort.write(tmp_path).check(), CODE)
    assert "(12 donors: p0, p1, p2 and 9 more). Example: " in finding.message
    assert finding.numbers == {"subjects": 12, "repertoires": 48}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("within", "across", "flagged"),
    [(0, 9, False), (0, 30, True), (10, 30, False), (6, 45, True), (3, 11, False)],
    ids=["too few", "enough", "a third", "less than a third", "by chance"],
)
def test_a_swap_is_found_only_if_far_more_sequences_are_shared(
    tmp_path: Path, within: int, across: int, flagged: bool
) -> None:
    cohort = paired()
    sharing(cohort, within, across)
    found = cohort.write(tmp_path).check()
    assert (CODE in codes(found)) == flagged
    if flagged:
        within_text = f"{within / 100:.1%} with the most similar one of its own class"
        shares = f"hd0 (case) shares {across / 100:.1%} with hd2 (control), but {within_text}"
        assert shares in only(found, CODE).message


def test_a_sample_of_the_class_that_is_too_small_tells_nothing(tmp_path: Path) -> None:
    cohort = paired()
    sharing(cohort, 0, 30, n_within=5)
    cohort.sheet.loc[3, "subject_id"] = "another"
    assert CODE not in codes(cohort.write(tmp_path).check())


@pytest.mark.slow
def test_a_tiny_sample_of_the_other_class_does_not_hide_a_swap(tmp_path: Path) -> None:
    cohort = paired()
    sharing(cohort, 0, 50)
    cohort.tables["hd3"] = pd.concat([cohort.tables["hd0"].iloc[:6], cohort.repertoire(4)])
    assert only(cohort.write(tmp_path).check(), CODE).repertoires == ("hd0", "hd2")


def test_depth_is_no_likeness(tmp_path: Path) -> None:
    """Of one subject all samples are of one pool, and those of one class ten times as deep."""
    cohort = paired()
    pool = cohort.repertoire(3000)
    rate = 1 / np.arange(1, 3001) ** 0.8
    for number, n in enumerate((100, 100, 1000, 1000)):
        drawn = np.random.default_rng(number).choice(3000, n, replace=False, p=rate / rate.sum())
        cohort.tables[f"hd{number}"] = pool.iloc[drawn]
    assert CODE not in codes(cohort.write(tmp_path).check())


def test_a_copy_under_the_other_class_is_not_compared_with_what_it_copies(tmp_path: Path) -> None:
    """But it is nearer to the other sample of its true class."""
    cohort = paired()
    cohort.tables["hd2"] = cohort.tables["hd0"]
    found = cohort.write(tmp_path).check()
    assert only(found, "same-content").repertoires == ("hd0", "hd2")
    assert only(found, CODE).repertoires == ("hd2", "hd1")


def test_one_sample_of_each_class_has_nothing_to_compare_with(tmp_path: Path) -> None:
    cohort = Cohort()
    cohort.sheet["subject_id"] = [f"p{number // 2}" for number in range(12)]
    cohort.sheet["status"] = ["case", "control"] * 6
    for number in range(0, 12, 2):
        cohort.tables[f"hd{number + 1}"] = pd.concat([cohort.tables[f"hd{number}"].iloc[:40], cohort.repertoire(30)])
    assert CODE not in codes(cohort.write(tmp_path).check())
