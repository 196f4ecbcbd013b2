"""The texts of --target: classes that are merged or dropped, thresholds, names that look like syntax, typos."""

import logging

import numpy as np
import pandas as pd
import pytest

from deeprc.errors import InputError
from deeprc.task_labels import describe_classes, encode_labels
from deeprc.tasks import parse_tasks

NAN = float("nan")
METADATA = pd.DataFrame(
    {
        "severity": ["mild", "moderate", "severe", "critical", None, "mild"],
        "age": [30.0, 50.0, NAN, 70.0, 51.0, 20.0],
        "stage": [1, 2, 3, 1, 2, 3],
        "age_group": ["old", "young", "old", "young", "old", "old"],
        "list": ["a,b", "a", "b", "x vs y", "x", "y"],
        "odd": ["a=b", "c>5", "d@2", "e:multiclass", 'f "g"', "h i"],
        "my col=x": ["p", "q", "p", "q", "p", "q"],
        "dose>5": ["p", "q", "p", "q", "p", "q"],
    }
)


@pytest.mark.parametrize(
    ("target", "name", "class_names", "expected"),
    [
        ("severity=severe,critical", "severity=severe,critical", ("none of severe, critical", "severe or critical"),
         [0, 0, 1, 1, NAN, 0]),
        ("severity=mild,moderate vs severe", "severity=mild,moderate vs severe", ("severe", "mild or moderate"),
         [1, 1, 0, NAN, NAN, 1]),
        (" severity = mild , moderate VS. severe,critical", "severity=mild,moderate vs severe,critical",
         ("severe or critical", "mild or moderate"), [1, 1, 0, 0, NAN, 1]),
        ("severity=mild", "severity=mild", ("not mild", "mild"), [1, 0, 0, 0, NAN, 1]),
        ("stage=1 vs 3", "stage=1 vs 3", ("3", "1"), [1, NAN, 0, 1, NAN, 0]),
        ("age>50", "age>50", ("<=50", ">50"), [0, 0, NAN, 1, 1, 0]),
        ("age >= 50", "age>=50", ("<50", ">=50"), [0, 1, NAN, 1, 1, 0]),
        ("age<50", "age<50", (">=50", "<50"), [1, 0, NAN, 0, 0, 1]),
        ("age<=50.5:binary", "age<=50.5", (">50.5", "<=50.5"), [1, 1, NAN, 0, 0, 1]),
        ("stage>1", "stage>1", ("<=1", ">1"), [0, 1, 1, 0, 1, 1]),
        ("list=a,b", "list=a,b", ("not a,b", "a,b"), [1, 0, 0, 0, 0, 0]),
        ('list="a","b"', 'list="a","b"', ("none of a, b", "a or b"), [0, 1, 1, 0, 0, 0]),
        ("list=a,b,x", "list=a,b,x", ("none of a,b, x", "a,b or x"), [1, 0, 0, 0, 1, 0]),
        ("list=x vs y", "list=x vs y", ("not x vs y", "x vs y"), [0, 0, 0, 1, 0, 0]),
        ('list="x" vs y', 'list="x" vs "y"', ("y", "x"), [NAN, NAN, NAN, NAN, 1, 0]),
        ("odd=a=b", "odd=a=b", ("not a=b", "a=b"), [1, 0, 0, 0, 0, 0]),
        ("odd=c>5", "odd=c>5", ("not c>5", "c>5"), [0, 1, 0, 0, 0, 0]),
        ("odd=d@2", "odd=d@2", ("not d@2", "d@2"), [0, 0, 1, 0, 0, 0]),
        ("odd=e:multiclass", "odd=e:multiclass", ("not e:multiclass", "e:multiclass"), [0, 0, 0, 1, 0, 0]),
        ('odd="f ""g""","h i"', 'odd=f "g",h i', ('none of f "g", h i', 'f "g" or h i'), [0, 0, 0, 0, 1, 1]),
        ("my col=x=p", "my col=x=p", ("q", "p"), [1, 0, 1, 0, 1, 0]),
        ('"my col=x"=q', "my col=x=q", ("p", "q"), [0, 1, 0, 1, 0, 1]),
        ("dose>5", "dose>5", ("p", "q"), [0, 1, 0, 1, 0, 1]),
    ],
)  # fmt: skip
def test_targets_have_these_names_classes_and_labels(
    target: str, name: str, class_names: tuple[str, str], expected: list[float]
) -> None:
    (task,) = parse_tasks([target], METADATA)
    assert (task.name, task.kind, task.class_names) == (name, "binary", class_names)
    np.testing.assert_array_equal(encode_labels([task], METADATA)[:, 0], expected)


@pytest.mark.parametrize(
    ("target", "kind", "weight"),
    [
        ("age>50@0.5", "binary", 0.5),
        ("severity=mild vs severe:binary@2", "binary", 2.0),
        ("odd=d@2@3", "binary", 3.0),
        ('odd="d@2"@3', "binary", 3.0),
        ("odd:multiclass@0.1", "multiclass", 0.1),
        ('"my col=x":multiclass', "multiclass", 1.0),
        ("stage:regression@1e-1", "regression", 0.1),
    ],
)
def test_kind_and_weight_follow(target: str, kind: str, weight: float) -> None:
    (task,) = parse_tasks([target], METADATA)
    assert (task.kind, task.weight) == (kind, weight)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("severity:multiclas", "expected binary, multiclass or regression .* 'multiclas'; did you mean 'multiclass'"),
        ("severity:multiclas@0.5", "found 'multiclas'; did you mean 'multiclass'"),
        ("age:x", r"expected binary, multiclass or regression after ':', found 'x'$"),
        ("severty:multiclass", "no metadata column 'severty' .* did you mean 'severity'"),
        (
            "disease:multiclas",
            r"^the cohort: no metadata column 'disease' for `target='disease:multiclas'`\. 'multiclas' is not a kind "
            r"of target; did you mean 'multiclass'\? Columns: ",
        ),
        ("zzz:multiclass", r"column 'zzz' for `target='zzz:multiclass'`\. Columns"),
        ("severty:multiclas@2", r"did you mean 'severity'\? 'multiclas' is not a kind of target; did you mean"),
        ("aeg>50", "did you mean 'age'"),
        ("severity=Sever", r"no class 'Sever'; did you mean 'severe'\? its classes: critical \(1\), mild \(2\), "),
        ("severity=mild,moderat vs severe", "no class 'moderat'; did you mean 'moderate'"),
        ("severity=", "no class ''; its classes: critical"),
        ("severity=mild vs severe vs critical", "expected CLASS,... or CLASS,... vs CLASS,... after '='"),
        ("severity=mild,mild", "names the class 'mild' twice"),
        ("severity=mild vs mild", "names the class 'mild' twice"),
        ("severity=mild,moderate,severe,critical", "all its classes are positive; expected at least one other class"),
        ("severity=mild:multiclass", "'=' makes two classes; leave out ':multiclass'"),
        ("age>50:regression", "a threshold makes two classes; leave out ':regression'"),
        ("severity>5", "a threshold needs numbers, found for example 'mild'"),
        ("age>5o", "target 'age': expected a number after '>', found '5o'"),
        ("age>nan", "expected a number after '>', found 'nan'"),
        ("age>500", "none of the 5 known values, which are from 20 to 70, are >500; expected some on each side"),
        ("age>=20", "all of the 5 known values, which are from 20 to 70, are >=20; expected some on each side"),
        ("age>50@x", "expected a weight of at least 0 after '@', found 'x'"),
        ("age>50@1e999", "expected a weight of at least 0 after '@', found '1e999'"),
        ("age", r"has 5 classes \(20 \(1\), 30 .* 'age>NUMBER', 'age:multiclass' or 'age:regression'"),
    ],
)
def test_targets_that_cannot_be_used_get_one_line(target: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        parse_tasks([target], METADATA)
    assert "\n" not in str(caught.value)


def test_the_other_values_of_a_drawn_up_contrast_are_silently_missing(caplog: pytest.LogCaptureFixture) -> None:
    (task,) = parse_tasks(["severity=mild vs severe"], METADATA)
    with caplog.at_level(logging.WARNING):
        found = encode_labels([task], pd.DataFrame({"severity": ["severe", "unheard of", None, "mild"]}))
    np.testing.assert_array_equal(found[:, 0], [0, NAN, NAN, 1])
    assert caplog.text == ""


def test_a_threshold_reads_text_of_another_cohort(caplog: pytest.LogCaptureFixture) -> None:
    (task,) = parse_tasks(["age>50"], METADATA)
    with caplog.at_level(logging.WARNING):
        found = encode_labels([task], pd.DataFrame({"age": ["60", ">89", "50", None]}))
    np.testing.assert_array_equal(found[:, 0], [1, NAN, 0, NAN])
    assert "'>89' is no number; such" in caplog.text


def test_the_chosen_positive_class_is_named() -> None:
    chosen, named = (parse_tasks([text], METADATA)[0] for text in ("age_group", "age_group=old"))
    assert (chosen.title, named.title) == ("age_group=young", "age_group=old")
    assert describe_classes(chosen, METADATA) == (
        "target 'age_group': positive is 'young' (2 repertoires), negative 'old' (4); "
        "to exchange the two classes: `target=age_group=old`"
    )
    (contrast,) = parse_tasks(["severity=mild vs severe"], METADATA)
    assert describe_classes(contrast, METADATA) == (
        "target 'severity=mild vs severe': positive is 'mild' (2 repertoires), negative 'severe' (1); 3 have no label"
    )


def test_classes_that_the_negative_class_joins_are_listed() -> None:
    metadata = pd.DataFrame({"CMV": ["pos", "neg", "n.d.", "neg", None, "Pos"]})
    (task,) = parse_tasks(["CMV=pos,Pos"], metadata)
    assert describe_classes(task, metadata) == (
        "target 'CMV=pos,Pos': positive is 'pos or Pos' (2 repertoires), negative 'none of pos, Pos' (3): n.d. (1), "
        "neg (2); 1 have no label"
    )


@pytest.mark.parametrize("target", ["age>50", "age:regression"])
def test_the_example_of_a_value_that_is_no_number_is_none(target: str) -> None:
    metadata = pd.DataFrame({"age": ["61", None, ">89", "50"]})
    with pytest.raises(InputError, match="needs numbers, found for example '>89'"):
        parse_tasks([target], metadata)
