import logging
import math

import numpy as np
import pandas as pd
import pytest
import torch

from deeprc.errors import InputError
from deeprc.outputs import activate, compute_multitask_loss, compute_repertoire_losses
from deeprc.task_labels import describe_classes, encode_labels, set_label_scale
from deeprc.tasks import Task, parse_tasks

METADATA = pd.DataFrame(
    {
        "T-cell_type": ["cd4", "cd8", "cd4", None],
        "CMV": [1.0, 0.0, np.nan, 1.0],
        "sign": ["+", "-", "+", "-"],
        "status": ["healthy", "sepsis", "sepsis", "healthy"],
        "severity": ["mild", "severe", "none", "mild"],
        "age": [30.0, np.nan, 50.0, 40.0],
        "batch": ["a", "a", "a", "a"],
        "key=value": ["x", "y", "x", "y"],
        "day@7": ["x", "y", "x", "y"],
        "x:binary": ["x", "y", "x", "y"],
    }
)


@pytest.mark.parametrize(
    ("target", "name", "kind", "classes", "weight"),
    [
        ("T-cell_type=cd4", "T-cell_type=cd4", "binary", ("cd8", "cd4"), 1.0),
        ("T-cell_type", "T-cell_type", "binary", ("cd4", "cd8"), 1.0),
        ("CMV", "CMV", "binary", ("0", "1"), 1.0),
        ("sign@0.5", "sign", "binary", ("-", "+"), 0.5),
        ("status", "status", "binary", ("healthy", "sepsis"), 1.0),
        ("severity=severe", "severity=severe", "binary", ("mild", "none", "severe"), 1.0),
        ("severity:multiclass", "severity", "multiclass", ("mild", "none", "severe"), 1.0),
        ("age:regression@0.1", "age", "regression", (), 0.1),
        ("key=value", "key=value", "binary", ("x", "y"), 1.0),
        ("day@7", "day@7", "binary", ("x", "y"), 1.0),
        ("day@7@2", "day@7", "binary", ("x", "y"), 2.0),
        ("x:binary", "x:binary", "binary", ("x", "y"), 1.0),
    ],
)
def test_targets(target: str, name: str, kind: str, classes: tuple[str, ...], weight: float) -> None:
    (task,) = parse_tasks([target], METADATA)
    assert (task.name, task.kind, task.classes, task.weight) == (name, kind, classes, weight)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("cmv", "no metadata column 'cmv' .* did you mean 'CMV'"),
        ("batch", r"target 'batch' has 1 class \(a\); expected at least 2"),
        ("severity", "has 3 classes .* 'severity=CLASS vs CLASS' or 'severity:multiclass', in quotes$"),
        ("age", "'age=CLASS vs CLASS', 'age>NUMBER', 'age:multiclass' or 'age:regression', in quotes$"),
        ("severity=bad", r"no class 'bad'; its classes: mild \(2\), none \(1\), severe \(1\)"),
        ("status:regression", "regression needs numbers, found for example 'healthy'"),
        ("CMV@x", "expected a weight of at least 0 after '@', found 'x'"),
        ("CMV@-1", "expected a weight of at least 0"),
        ("CMV@1e31", r"expected a weight of at most 1e\+30, found 1e\+31"),
    ],
)
def test_targets_that_cannot_be_used(target: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_tasks([target], METADATA)


def test_a_column_of_many_numbers_is_to_be_predicted_as_a_number() -> None:
    message = (
        "^the cohort: target 'titre' has 11 different numbers, from 0.5 to 10.5; "
        "say 'titre:regression' to predict the number, or 'titre>NUMBER' for two classes, in quotes$"
    )
    with pytest.raises(InputError, match=message):
        parse_tasks(["titre"], pd.DataFrame({"titre": np.arange(11) + 0.5}))
    with pytest.raises(InputError, match="has 10 classes"):
        parse_tasks(["titre"], pd.DataFrame({"titre": np.arange(10) + 0.5}))


def test_tables_of_predictions_name_each_class_of_several() -> None:
    tasks = parse_tasks(["severity=mild vs severe", "severity:multiclass"], METADATA)
    assert [task.predicted_names for task in tasks] == [
        ("severity=mild vs severe",),
        ("severity=mild", "severity=none", "severity=severe"),
    ]


@pytest.mark.parametrize("target", ["severity:multiclass", "age:regression"])
def test_only_two_classes_have_a_positive_one(target: str) -> None:
    assert parse_tasks([target], METADATA)[0].positive == ""


def test_no_target_lists_the_columns() -> None:
    metadata = METADATA[["T-cell_type", "CMV", "batch", "age"]].assign(name=list("abcd"), day=range(4))
    metadata = pd.concat([metadata, metadata]).assign(day=range(8), name=list("abcdefgh"))
    with pytest.raises(InputError) as error:
        parse_tasks([], metadata)
    assert str(error.value) == (
        "no target was given; expected `target=COLUMN`, one of: T-cell_type: cd4 (4), cd8 (2); CMV: 0 (2), 1 (4); "
        "age: 30 (2), 40 (2), 50 (2); day: 8 different values"
    )
    with pytest.raises(InputError, match="one of: name, batch"):
        parse_tasks([], metadata[["name", "batch"]])


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (["kind:multiclass", "kind=b"], "targets 'kind' and 'kind=b': tables would call an output of each 'kind=b'"),
        (["kind:a", "kind:multiclass"], "targets 'kind:a' and 'kind': tables would call an output of each 'kind:a'"),
        (
            ["kind:multiclass", "kind=x:multiclass"],
            "targets 'kind' and 'kind=x': tables would call an output of each 'kind=x=y'",
        ),
    ],
)
def test_targets_whose_outputs_have_the_same_name_are_refused(targets: list[str], message: str) -> None:
    sheet = pd.DataFrame({"kind": ["a", "b", "x=y"], "kind:a": [0, 1, 0], "kind=x": ["y", "z", "w"]})
    with pytest.raises(InputError) as error:
        parse_tasks(targets, sheet)
    assert str(error.value) == f"{message}; leave out one of the two"
    assert len(parse_tasks(["kind:multiclass", "kind:a=1"], sheet)) == 2


def test_labels_keep_missing_ones_missing() -> None:
    tasks = parse_tasks(["T-cell_type=cd4", "CMV", "severity:multiclass", "age:regression"], METADATA)
    np.testing.assert_array_equal(
        encode_labels(tasks, METADATA), [[1, 1, 0, 30], [0, 0, 2, np.nan], [1, np.nan, 1, 50], [np.nan, 1, 0, 40]]
    )


def test_a_class_the_task_was_not_made_with_is_no_label(caplog: pytest.LogCaptureFixture) -> None:
    tasks = parse_tasks(["status=sepsis", "severity:multiclass"], METADATA)
    new = pd.DataFrame({"status": ["sepsis", "flu", None], "severity": ["worst", "mild", "none"]})
    with caplog.at_level(logging.WARNING):
        np.testing.assert_array_equal(encode_labels(tasks, new), [[1, np.nan], [np.nan, 0], [np.nan, 1]])
    assert "the class 'flu' is none of healthy, sepsis" in caplog.text
    assert "the class 'worst' is none of mild, none, severe" in caplog.text


@pytest.mark.parametrize("classes", [[0.5, 1.0, 2.0], [1.0, 2.0, 3.0], [1, 2, 3]])
def test_a_class_that_is_a_number_is_known_whatever_numbers_are_beside_it(
    classes: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    (task,) = parse_tasks(["dose:multiclass"], pd.DataFrame({"dose": classes}))
    expected = [classes.index(1), classes.index(2), np.nan]
    for others in ([np.nan], [7.5]):
        with caplog.at_level("WARNING"):
            found = encode_labels([task], pd.DataFrame({"dose": [1, 2, *others]}))
        np.testing.assert_array_equal(found[:, 0], expected)
    assert [record.args[1] for record in caplog.records if record.args] == ["7.5"]  # the only unknown class


def test_text_is_no_number(caplog: pytest.LogCaptureFixture) -> None:
    (task,) = parse_tasks(["age:regression"], METADATA)
    with caplog.at_level(logging.WARNING):
        found = encode_labels([task], pd.DataFrame({"age": [">60", "41", None]}))
    np.testing.assert_array_equal(found, [[np.nan], [41], [np.nan]])
    assert "target 'age': '>60' is no number from -1e+30 to 1e+30; such" in caplog.text


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e308, "inf"])
def test_a_number_that_no_mean_can_hold_is_no_label(value: object, caplog: pytest.LogCaptureFixture) -> None:
    (task,) = parse_tasks(["age:regression"], METADATA)
    with caplog.at_level(logging.WARNING):
        found = encode_labels([task], pd.DataFrame({"age": [value, 41]}))
    np.testing.assert_array_equal(found, [[np.nan], [41]])
    assert f"target 'age': {value!r} is no number from -1e+30 to 1e+30; such" in caplog.text


def test_a_threshold_compares_numbers_of_any_size(caplog: pytest.LogCaptureFixture) -> None:
    metadata = pd.DataFrame({"titre": [50, 2e31, np.inf, -np.inf, np.nan]})
    (task,) = parse_tasks(["titre>100"], metadata)
    for values in (metadata["titre"], pd.Series(["50", "2e31", "inf", "-inf", None])):
        found = encode_labels([task], pd.DataFrame({"titre": values}))
        np.testing.assert_array_equal(found[:, 0], [0, 1, 1, 0, np.nan])
    assert caplog.text == ""


@pytest.mark.parametrize("target", ["sign", "age:regression"])
def test_a_long_value_is_cut_in_a_warning(target: str, caplog: pytest.LogCaptureFixture) -> None:
    (task,) = parse_tasks([target], METADATA)
    with caplog.at_level(logging.WARNING):
        encode_labels([task], pd.DataFrame({task.column: ["x" * 30_000]}))
    assert "xxx" in caplog.text
    assert len(caplog.text) < 500


def test_long_names_of_classes_are_cut(caplog: pytest.LogCaptureFixture) -> None:
    classes = ["x" * 30_000, "y" * 30_000]
    for column in ("status", "z" * 30_000):
        (task,) = parse_tasks([column], pd.DataFrame({column: classes}))
        encode_labels([task], pd.DataFrame({column: ["new"]}))
        line = describe_classes(task, pd.DataFrame({column: classes}))
        assert "positive is 'yyy" in line
        assert len(line) < 500
    assert "the class 'new' is none of xxx" in caplog.text
    assert len(caplog.text) < 1000
    (task,) = parse_tasks(["n:multiclass"], pd.DataFrame({"n": [f"class {i:02d}" for i in range(30)]}))
    encode_labels([task], pd.DataFrame({"n": ["new"]}))
    assert "class 19 and 10 more; repertoires" in caplog.text
    with pytest.raises(InputError, match=r"has 1 class \(x{60}\.\.\.\); expected at least 2$"):
        parse_tasks(["status"], pd.DataFrame({"status": classes[:1]}))


def test_multitask_loss_by_hand() -> None:
    tasks = [
        Task("a", "a", "binary", ("0", "1"), weight=2.0),
        Task("b", "b", "multiclass", ("x", "y", "z")),
        Task("c", "c", "regression", mean=10.0, scale=5.0),
    ]
    outputs = torch.tensor([[0.0, 0.0, 0.0, 0.0, 1.0], [9.0, 0.0, 0.0, 0.0, 0.0]])
    labels = torch.tensor([[1.0, 2.0, 20.0], [math.nan, math.nan, math.nan]])
    expected = 2.0 * math.log(2) + math.log(3) + 0.5 * (1.0 - 2.0) ** 2
    assert float(compute_multitask_loss(outputs, labels, tasks)) == pytest.approx(expected)
    assert compute_repertoire_losses(outputs, labels, tasks).tolist() == pytest.approx([expected, 0.0])


def test_the_parts_of_repertoires_sum_to_the_multitask_loss() -> None:
    """A label that few repertoires have counts more."""
    tasks = [Task("a", "a", "binary", ("0", "1"), weight=2.0), Task("c", "c", "regression", mean=10.0, scale=5.0)]
    outputs = torch.tensor([[0.0, 1.0], [0.0, 0.0], [2.0, 0.0]])
    labels = torch.tensor([[1.0, 10.0], [0.0, math.nan], [1.0, math.nan]])
    found = compute_repertoire_losses(outputs, labels, tasks)
    first, last = 2 * math.log(2) / 3, 2 * math.log(1 + math.exp(-2)) / 3
    assert found.tolist() == pytest.approx([first + 0.5, first, last])
    assert float(found.sum()) == pytest.approx(float(compute_multitask_loss(outputs, labels, tasks)))


def test_large_numbers_keep_their_differences() -> None:
    values = np.array([[1e9], [1e9 + 2]])
    tasks = set_label_scale([Task("c", "c", "regression")], values)
    loss = compute_multitask_loss(torch.zeros(2, 1), torch.from_numpy(values), tasks)
    assert float(loss) == pytest.approx(0.5)  # both lie one standard deviation from the mean


@pytest.mark.parametrize(
    ("target", "classes", "name"),
    [
        ('disease="RA","T1D","SLE"', ("RA,T1D", "none", "RA", "T1D", "SLE"), 'disease="RA","T1D","SLE"'),
        ('disease="RA,T1D","SLE"', ("RA", "T1D", "none", "RA,T1D", "SLE"), "disease=RA,T1D,SLE"),
        ('disease="RA,T1D" vs "RA","T1D"', ("RA", "T1D", "RA,T1D"), 'disease="RA,T1D" vs "RA","T1D"'),
        ('disease="RA" vs "none"', ("none", "RA"), "disease=RA vs none"),
        ('"key"="value"', ("other", "value"), 'key="value"'),
        ('"age">50', ("<=50", ">50"), '"age">50'),
        ('"year">50', ("<=50", ">50"), "year>50"),
        ("share>0.3", ("<=0.3", ">0.3"), "share>0.3"),
        ("share>0.1234567890123456", ("<=0.1234567890123456", ">0.1234567890123456"), "share>0.1234567890123456"),
    ],
)
def test_the_name_of_a_target_means_this_target(target: str, classes: tuple[str, ...], name: str) -> None:
    table = pd.DataFrame(
        {
            "disease": ["RA", "T1D", "RA,T1D", "SLE", "none"],
            "key": ["value", "other"] * 2 + [None],
            "key=value": ["x", "y", "x", "y", "x"],
            "age": [40.0, 60.0, 50.0, 30.0, 70.0],
            "age>50": ["no", "yes", "no", "no", "yes"],
            "year": [40, 60, 50, 30, 70],
            "share": [0.1, 0.1234567890123456, 0.2, 0.3, 0.4],
        }
    )
    (task,) = parse_tasks([target], table)
    assert (task.name, task.classes) == (name, classes)
    assert parse_tasks([task.name], table) == [task]


@pytest.mark.parametrize("n", [2, 3, 7, 100])
def test_equal_numbers_have_a_scale_of_one(n: int) -> None:
    assert np.full(3, 0.1).std() > 0  # a rounding error
    (task,) = set_label_scale([Task("c", "c", "regression")], np.append(np.full(n, 0.1), np.nan)[:, None])
    assert (task.mean, task.scale) == (0.1, 1.0)


def test_numbers_whose_squares_are_zero_have_a_scale_of_one() -> None:
    (task,) = set_label_scale([Task("c", "c", "regression")], np.array([[1e-170], [3e-170]]))
    assert (task.mean, task.scale) == (2e-170, 1.0)


def test_a_missing_label_has_no_gradient() -> None:
    tasks = [Task("a", "a", "binary", ("0", "1"))]
    outputs = torch.zeros(2, 1, requires_grad=True)
    compute_multitask_loss(outputs, torch.tensor([[1.0], [math.nan]]), tasks).backward()
    assert outputs.grad is not None
    assert outputs.grad.tolist() == [[-0.5], [0.0]]


def test_all_labels_missing_gives_zero_loss() -> None:
    tasks = [Task("a", "a", "binary", ("0", "1"))]
    assert float(compute_multitask_loss(torch.ones(2, 1), torch.full((2, 1), math.nan), tasks)) == 0.0


def test_activation_undoes_the_scaling() -> None:
    (task,) = set_label_scale([Task("c", "c", "regression")], np.array([[5.0], [15.0], [np.nan]]))
    assert (task.mean, task.scale) == (10.0, 5.0)
    np.testing.assert_allclose(activate(torch.tensor([[2.0]]), [task])[0], [20.0])


def test_the_negative_class_has_a_name() -> None:
    assert Task("CMV=+", "CMV", "binary", ("-", "+")).negative == "-"
    assert Task("CMV=+", "CMV", "binary", ("-", "?", "+")).negative == "not +"


def test_numbers_that_are_too_large_for_a_network() -> None:
    metadata = pd.DataFrame({"big": [1.0, -2e31]})
    expected = r"^c\.h5: target 'big': regression needs numbers from -1e\+30 to 1e\+30, found one of size 2e\+31$"
    with pytest.raises(InputError, match=expected):
        parse_tasks(["big:regression"], metadata, source="c.h5")
