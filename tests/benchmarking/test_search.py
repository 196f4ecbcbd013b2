import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy.stats import kstest
from sklearn.base import BaseEstimator

from deeprc.benchmarking.search import SearchSpace, apply_setting, parse_search
from deeprc.config import load_config
from deeprc.errors import InputError

CONFIGS = Path(__file__).parents[2] / "configs" / "benchmark"


def parsed(text: str, trials: object = 1) -> SearchSpace:
    return parse_search(yaml.safe_load(text), trials=trials, source="mine.yaml: svm.search")


def test_a_grid_is_tried_in_the_order_in_which_it_is_written() -> None:
    found = parsed("{b: [2, 1], a: [x, null, true]}").list_settings([0])
    assert found == [
        {"b": 2, "a": "x"},
        {"b": 2, "a": None},
        {"b": 2, "a": True},
        {"b": 1, "a": "x"},
        {"b": 1, "a": None},
        {"b": 1, "a": True},
    ]


def test_without_a_search_there_is_one_setting() -> None:
    assert SearchSpace().list_settings([0]) == [{}]
    assert parsed("{}").list_settings([3, 4]) == [{}]


def test_from_and_to_are_both_included() -> None:
    assert [each["k"] for each in parsed("k: {from: 3, to: 6}").list_settings([0])] == [3, 4, 5, 6]
    assert parsed("k: {from: 3, to: 3}").list_settings([0]) == [{"k": 3}]
    assert parsed("k: {from: -1, to: 1.0}").list_settings([0]) == [{"k": -1}, {"k": 0}, {"k": 1}]


def test_each_value_and_both_ends_of_each_range_are_among_the_extremes() -> None:
    search = parsed("{a: [x, [y]], k: {from: 1, to: 9}, C: {log10: [-1, 1]}, n: {integer: [-2, 4]}}")
    first = {"a": "x", "k": 1, "C": 0.1, "n": -2}
    found = [first, {**first, "a": ["y"]}, {**first, "k": 9}, {**first, "C": 10.0}, {**first, "n": 4}]
    assert search.list_extremes(10) == found
    assert search.list_extremes(2) == found[:2]
    assert SearchSpace().list_extremes(10) == [{}]


def test_equal_settings_are_tried_once() -> None:
    assert parsed("C: [1e-3, 1.0e-3, 1, 1.0, true]").list_settings([0]) == [
        {"C": 0.001},
        {"C": 1},
        {"C": 1.0},
        {"C": True},
    ]
    settings = parsed("{size: {integer: [1, 3]}, a: [x, y]}", trials=100).list_settings([0])
    assert sorted((setting["a"], setting["size"]) for setting in settings) == list(itertools.product("xy", [1, 2, 3]))


def test_exponents_without_a_point_are_read_as_numbers() -> None:
    found = [each["C"] for each in parsed("C: [1e-3, 2.0e-3, 2E5, -.5e3, 1e, e3, 4mer, 1e-3x, '7']").list_settings([0])]
    assert found == [0.001, 0.002, 200000.0, -500.0, "1e", "e3", "4mer", "1e-3x", "7"]
    assert parsed("C: {integer: [1, 1e1]}").ranges["C"] == ("integer", 1, 10.0)


def test_draws_are_uniform_within_their_limits() -> None:
    search = parsed("{C: {log10: [-6, 6]}, size: {integer: [1, 4]}}", trials=4000)
    settings = search.list_settings([0])
    exponent = np.log10([each["C"] for each in settings])
    assert kstest((exponent + 6) / 12, "uniform").pvalue > 0.001
    assert exponent.min() < -5.9
    assert exponent.max() > 5.9
    sizes = np.bincount([each["size"] for each in settings], minlength=6)
    assert sizes[0] == sizes[5] == 0
    assert (abs(sizes[1:5] - 1000) < 150).all()  # five standard deviations
    assert all(type(each["C"]) is float and type(each["size"]) is int for each in settings)
    assert abs(np.corrcoef(exponent, [each["size"] for each in settings])[0, 1]) < 0.08


def test_the_seed_decides_the_draws() -> None:
    search = parsed("{C: {log10: [-6, 6]}, size: {integer: [1, 32]}}", trials=5)
    assert search.list_settings([1, 2]) == search.list_settings([1, 2])
    drawn = {tuple(each["C"] for each in search.list_settings(seed)) for seed in ([1, 2], [2, 1], [1, 3], [0, 0])}
    assert len(drawn) == 4


def test_a_range_of_equal_limits_gives_one_setting() -> None:
    assert parsed("{C: {log10: [-2, -2]}, n: {integer: [5, 5]}}").list_settings([0]) == [{"C": 0.01, "n": 5}]


def test_draws_are_crossed_with_lists() -> None:
    settings = parsed("{n: [1, 2, 3], C: {log10: [0, 1]}, kind: [a, b]}", trials=2).list_settings([7])
    assert [(each["n"], each["kind"]) for each in settings] == [
        pair for pair in itertools.product([1, 2, 3], "ab") for _ in range(2)
    ]
    assert {each["C"] for each in settings[::2]} == {settings[0]["C"]}  # the same two draws for each combination
    assert {each["C"] for each in settings[1::2]} == {settings[1]["C"]}
    assert settings[0]["C"] != settings[1]["C"]


LIMITS = r"expected a list of values, \{from: 1, to: 9\}, \{log10: \[-6, 6\]\} or \{integer: \[1, 32\]\}, found"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[C]", r"expected names of parameters with values, found \['C'\]"),
        ("C", "expected names of parameters with values, found 'C'"),
        ("", "expected names of parameters with values, found None"),
        ("C: 3", f"C: {LIMITS} 3"),
        ("C: abc", f"C: {LIMITS} 'abc'"),
        ('C: "a\\nb"', LIMITS),
        ("C: []", rf"C: {LIMITS} \[\]"),
        ("C: {}", LIMITS),
        ("C: null", f"{LIMITS} None"),
        ("C: {from: 1}", LIMITS),
        ("C: {from: 1, to: 3, step: 2}", LIMITS),
        ("C: {from: 3, to: 1}", LIMITS),
        ("C: {from: 0.5, to: 1}", LIMITS),
        ("C: {from: a, to: b}", LIMITS),
        ("C: {from: [1], to: 2}", LIMITS),
        ("C: {from: true, to: 2}", LIMITS),
        ("C: {log10: 3}", LIMITS),
        ("C: {log10: [1]}", LIMITS),
        ("C: {log10: [1, 2, 3]}", LIMITS),
        ("C: {log10: [2, 1]}", LIMITS),
        ("C: {log10: [a, b]}", LIMITS),
        ("C: {log10: [0, .inf]}", LIMITS),
        ("C: {log10: [.nan, 1]}", LIMITS),
        ("C: {log10: [0, 400]}", LIMITS),
        ("C: {integer: [1, 2.5]}", LIMITS),
        ("C: {integer: {1: 2}}", LIMITS),
        ("C: {log10: [0, 1], integer: [0, 1]}", LIMITS),
        ("C: {log2: [0, 1]}", LIMITS),
        (f"C: {{from: 1, to: {10**400}}}", LIMITS),
        (f"C: {{log10: [0, {10**400}]}}", LIMITS),
        (f"C: {{integer: [1, {2**63}]}}", LIMITS),
        (f"C: {{integer: [-{10**400}, 1]}}", LIMITS),
        ("C: {1: 2, a: 3}", LIMITS),
        (f"[{'C, ' * 10_000}]", "expected names of parameters with values, found"),
        (f"C: {'x' * 10_000}", f"C: {LIMITS} 'x"),
        (f"C: {{{', '.join(f'k{i}: 1' for i in range(1000))}}}", LIMITS),
        ("{a: {from: 1, to: 400}, b: {from: 1, to: 400}}", "expected at most 100,000 settings, found 160000"),
    ],
)
def test_an_invalid_search_is_refused_with_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        parsed(text)
    assert str(error.value).startswith("mine.yaml: svm.search: ")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("trials", [100_001, 10**10, 10**400])
def test_more_trials_than_any_search_needs_are_refused(trials: int) -> None:
    with pytest.raises(InputError, match=r"^mine.yaml: svm.search: expected at most 100,000 settings, found ") as error:
        parsed("C: {log10: [0, 1]}", trials)
    assert len(str(error.value)) < 200
    assert parsed("C: [1, 2]", trials).list_settings([0]) == [{"C": 1}, {"C": 2}]  # nothing is drawn


@pytest.mark.parametrize("trials", [0, -1, 1.5, "3", None, True])
def test_trials_other_than_a_positive_whole_number_are_refused(trials: object) -> None:
    with pytest.raises(InputError, match=r"mine.yaml: svm.search: trials: expected a whole number of at least 1"):
        parsed("C: [1]", trials)


class Thing(BaseEstimator):  # type: ignore[misc]
    def __init__(self, C: float = 1.0, extra: dict[str, Any] | None = None, inner: BaseEstimator | None = None) -> None:
        self.C, self.extra, self.inner = C, extra, inner


def test_a_setting_makes_a_new_estimator() -> None:
    thing = Thing(2.0)
    thing.fitted_ = True
    other = apply_setting(thing, {"C": 5})
    assert (other.C, thing.C, hasattr(other, "fitted_")) == (5, 2.0, False)
    assert apply_setting(thing, {}).get_params() == {"C": 2.0, "extra": None, "inner": None}


def test_dotted_names_set_keys() -> None:
    thing = Thing(extra={"a": 1, "b": 2})
    other = apply_setting(thing, {"extra.b": 3, "extra.c": 4, "C": 9})
    assert (other.C, other.extra) == (9, {"a": 1, "b": 3, "c": 4})
    assert thing.extra == {"a": 1, "b": 2}
    assert apply_setting(Thing(), {"extra.b": 3}).extra == {"b": 3}
    assert apply_setting(thing, {"extra": {"z": 0}, "extra.b": 3}).extra == {"z": 0, "b": 3}
    assert apply_setting(thing, {"extra": {}, "extra.b": 3}).extra == {"b": 3}


def test_dotted_names_set_parameters_of_an_estimator_inside_another() -> None:
    assert apply_setting(Thing(inner=Thing()), {"inner__C": 4}).inner.C == 4


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"D": 1}, "^Thing: has no parameter 'D'; it has C, extra, inner$"),
        ({"other.b": 1}, "^Thing: has no parameter 'other'; it has C, extra, inner$"),
        ({"C.b": 1}, r"^Thing: C.b: the parameter 'C' has no keys, it is 1.0$"),
    ],
)
def test_unknown_parameters_are_refused(setting: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        apply_setting(Thing(), setting)


def paper_search(preset: str, name: str) -> tuple[SearchSpace, dict[str, Any]]:
    entry = yaml.safe_load((CONFIGS / f"{preset}.yaml").read_text())[name]
    return parse_search(entry["search"], trials=entry.get("trials", 1), source=name), entry.get("fixed", {})


def test_the_papers_search_of_deeprc() -> None:
    search, fixed = paper_search("paper", "deeprc")
    expected = set(itertools.product([8, 16, 32, 64, 128, 256], [5, 7, 9]))
    found = [(each["overrides.n_kernels"], each["overrides.kernel_size"]) for each in search.list_settings([0])]
    assert set(found) == expected
    assert len(found) == 18
    assert fixed == {"config": "paper", "overrides.calibrate": True}
    config = load_config("paper", {"n_kernels": 256, "kernel_size": 7})
    assert (config.network.n_kernels, config.network.kernel_size) == (256, 7)
    assert (config.network.n_key_layers, config.network.key_units) == (2, 32)
    training = config.training
    assert (training.learning_rate, training.n_sequences, training.batch_size) == (1e-4, 10_000, 4)
    assert (training.n_updates, training.evaluate_every, training.patience) == (100_000, 5000, None)


@pytest.mark.parametrize("name", ["svm-minmax", "svm-jaccard"])
def test_the_papers_search_of_the_svm(name: str) -> None:
    search, _ = paper_search("paper", name)
    assert (dict(search.lists), dict(search.ranges), search.trials) == ({}, {"C": ("log10", -6, 6)}, 1000)
    drawn = [each["C"] for each in search.list_settings([0, 0])]
    assert len(set(drawn)) == 1000
    assert 1e-6 <= min(drawn) < max(drawn) < 1e6


@pytest.mark.parametrize("name", ["knn-minmax", "knn-jaccard"])
def test_the_papers_search_of_the_nearest_neighbours(name: str) -> None:
    settings = paper_search("paper", name)[0].list_settings([0])
    assert settings == [{"n_neighbors": number} for number in range(1, 1001)]


def test_the_papers_search_of_logistic_regression() -> None:
    search, fixed = paper_search("paper", "logistic-adam")
    settings = search.list_settings([0])
    found = {(each["learning_rate"], each.get("l1", fixed.get("l1")), each["l2"]) for each in settings}
    assert found == {(rate, 1e-7, l2) for rate in (1e-2, 1e-3, 1e-4) for l2 in (1e-3, 1e-5)}
    assert fixed["batch_size"] == 4
    assert max(each["n_updates"] for each in settings) == 100_000


def test_the_papers_search_of_the_burden_test() -> None:
    settings = paper_search("paper", "burden-test")[0].list_settings([0])
    assert {(each["feature"], each["n_features"]) for each in settings} == set(
        itertools.product(["4mer", "sequence"], [50, 100, 150, 250])
    )
    assert len(settings) == 8


@pytest.mark.parametrize("name", ["logistic-mil-4mer", "logistic-mil-tcrb"])
def test_the_papers_search_of_logistic_mil(name: str) -> None:
    search, _ = paper_search("paper", name)
    assert search.trials == 25
    assert dict(search.ranges) == {"learning_rate": ("log10", -4.5, -1.5), "batch_size": ("integer", 1, 32)}
    settings = search.list_settings([0, 0])
    pairs = {(each["learning_rate"], each["batch_size"]) for each in settings}
    assert len(pairs) == 25
    assert all(10**-4.5 <= rate < 10**-1.5 and 1 <= size <= 32 for rate, size in pairs)
    assert {each["n_epochs"] for each in settings} == set(range(1, 101))
    assert len(settings) == 2500


@pytest.mark.parametrize("preset", ["paper", "quick"])
def test_every_section_of_a_preset_is_a_search(preset: str) -> None:
    body = yaml.safe_load((CONFIGS / f"{preset}.yaml").read_text())
    for name, entry in body.items():
        search = parse_search(entry.get("search", {}), trials=entry.get("trials", 1), source=name)
        values = [value for setting in search.list_settings([0, 0]) for value in setting.values()]
        assert not any(isinstance(value, str) and "e-" in value for value in values), name  # numbers, not text
        assert all(not isinstance(value, float) or math.isfinite(value) for value in values)


def test_the_quick_preset_tries_less_of_the_same() -> None:
    paper, quick = (yaml.safe_load((CONFIGS / f"{preset}.yaml").read_text()) for preset in ("paper", "quick"))
    assert sorted(paper) == sorted(quick)
    for name in paper:
        searches = [
            parse_search(each[name].get("search", {}), trials=each[name].get("trials", 1), source=name)
            for each in (paper, quick)
        ]
        n_paper, n_quick = (len(search.list_settings([0])) for search in searches)
        assert n_quick <= n_paper
