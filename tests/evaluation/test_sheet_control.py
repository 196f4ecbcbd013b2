"""Columns that a control of the sheet reads, and those that it leaves out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from deeprc.evaluation.sheet_control import find_target_like_cautions, select_control_columns
from deeprc.tasks import parse_tasks

N = 20
TABLE = pd.DataFrame(
    {
        "status": ["case", "healthy"] * (N // 2),
        "score": [0.9, 0.1] * (N // 2),  # a threshold says the status
        "ward": ["A", "B"] * (N // 2),  # so does each of its values
        "site": ["x"] * 7 + ["y"] * 13,
        "number": np.arange(N) + 100,  # each repertoire has its own
        "weight": np.linspace(50.5, 90.2, N),  # so has a measurement
        "donor": [f"d{i // 4}" for i in range(N)],
        "kit_code": [7 * (i // 4) for i in range(N)],  # each donor has its own
        "age": [30 + 3 * (i // 4) for i in range(N)],  # so has an age
        "batch": [i // 4 % 2 for i in range(N)],
    }
)


def test_columns_that_determine_the_target_or_identify_repertoires_are_left_out() -> None:
    columns = select_control_columns(TABLE, parse_tasks(["status"], TABLE))
    assert columns.read == ["site", "weight", "age", "batch"]
    assert columns.target_like == ["score", "ward"]
    assert columns.identifying == ["number", "kit_code"]
    (warning,) = find_target_like_cautions(columns)
    assert warning.level == "warning"
    assert warning.text.startswith("Columns score, ward each determine the target, so no control method uses them.")
    assert find_target_like_cautions(columns._replace(target_like=[])) == []


@pytest.mark.parametrize(("row", "value"), [(0, "B"), (3, "A")])
def test_one_exception_is_enough_to_be_a_control(row: int, value: str) -> None:
    table = TABLE.copy()
    table.loc[row, "ward"] = value
    assert "ward" in select_control_columns(table, parse_tasks(["status"], table)).read


def test_several_values_of_one_class_say_the_target_unless_they_may_be_families() -> None:
    site = [f"{'ab'[i // 4 % 2]}{i % 2}" for i in range(N)]  # a0 and b0 have cases only, a1 and b1 healthy ones
    family = [f"f{i // 4}{i % 2}" for i in range(N)]  # ten families of two
    table = TABLE.drop(columns=["donor", "kit_code"]).assign(site=site, family=family)
    columns = select_control_columns(table, parse_tasks(["status"], table))
    assert columns.target_like == ["score", "ward", "site"]
    assert "family" in columns.read
    table.loc[0, "site"] = "a1"
    assert "site" in select_control_columns(table, parse_tasks(["status"], table)).read


def test_numbers_without_a_relation_are_controls() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"titre": rng.normal(size=60), "bmi": rng.normal(size=60), "crp": rng.normal(size=60)})
    table["log"] = np.exp(table["titre"])
    table.loc[3, "log"] = np.nan
    columns = select_control_columns(table, parse_tasks(["titre:regression"], table))
    assert columns.read == ["bmi", "crp"]
    assert columns.target_like == ["log"]


def test_a_trait_of_donors_with_many_repertoires_is_a_control() -> None:
    rng = np.random.default_rng(0)
    donor = np.repeat(np.arange(20), 8)
    status = rng.permutation(np.repeat(["sick", "healthy"], 10))
    table = pd.DataFrame({"subject_id": [f"d{i}" for i in donor], "status": status[donor]})
    table["age"] = (1.5 * rng.permutation(np.arange(20, 40)))[donor]
    assert select_control_columns(table, parse_tasks(["status=sick"], table)).read == ["age"]


def test_a_column_is_left_out_if_the_target_is_its_multiple() -> None:
    table = TABLE.assign(months=12.0 * TABLE["batch"])
    assert "batch" in select_control_columns(table, parse_tasks(["months:regression"], table)).target_like


@pytest.mark.parametrize("dtype", ["Int64", "float64", object])
def test_repertoires_without_a_value_or_a_label_do_not_count(dtype: object) -> None:
    """Of 20 repertoires, one has no label and one no value; the others say the status, except in `mixed`."""
    numbers = pd.Series([2, 1] * (N // 2)).astype(dtype)
    numbers[0] = pd.NA if dtype == "Int64" else np.nan
    table = pd.DataFrame({"status": ["case", "healthy"] * (N // 2), "ward": numbers, "mixed": numbers})
    table.loc[5, "status"] = None
    table.loc[5, "ward"] = 2  # does not count, as its repertoire has no label
    table.loc[7, "mixed"] = 2
    columns = select_control_columns(table, parse_tasks(["status=case"], table))
    assert (columns.target_like, columns.read) == (["ward"], ["mixed"])
