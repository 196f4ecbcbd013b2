import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import yaml
from sklearn.base import BaseEstimator

from deeprc.benchmarking import import_paths, methods
from deeprc.benchmarking.import_paths import import_estimator_class
from deeprc.benchmarking.methods import Method, choose_methods, list_search_presets
from deeprc.benchmarking.registry import METHODS, RegisteredMethod
from deeprc.benchmarking.search import SearchSpace
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.documents import to_plain
from deeprc.errors import InputError
from deeprc.tasks import Task

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, toys: ModuleType) -> None:
    """As if deeprc had three methods: one whose parameter is fixed, a control, and one that no cohort can serve."""
    known = {
        "noise": RegisteredMethod("Noise", "toy_methods:Noise", {"salt": 3}),
        "motif": RegisteredMethod("Motif", "toy_methods:Motif", kind="control"),
        "moon": RegisteredMethod("Moon", "toy_methods:NeedsMore"),
    }
    for module in (methods, import_paths):
        monkeypatch.setattr(module, "METHODS", known)


@pytest.fixture
def choose(cohort: RepertoireDataset, tmp_path: Path) -> Callable[..., tuple[list[Method], dict[str, str]]]:
    """Choose methods with a preset of this text or mapping."""

    def call(
        names: list[str], preset: object = None, own: dict[str, Any] | None = None
    ) -> tuple[list[Method], dict[str, str]]:
        path = tmp_path / "mine.yaml"
        path.write_text(preset if isinstance(preset, str) else yaml.safe_dump(preset or {}))
        return choose_methods(names, preset=path, dataset=cohort, estimators=own)

    return call


def test_the_docs_name_the_methods_and_their_kinds() -> None:
    section = (DOCS / "benchmark.md").read_text().split("## The methods")[1].split("\n\n")[1]
    kind_of = {}
    for names, meaning, _ in re.findall(r"^\| (`.*?) \| (.*) \| (yes|no) \|$", section, re.MULTILINE):
        kind = "control" if meaning.startswith("control method") else "method"
        kind = "truth" if meaning.startswith("only for simulated cohorts") else kind
        kind_of |= dict.fromkeys(re.findall(r"`([^`]+)`", names), kind)
    assert kind_of == {name: method.kind for name, method in METHODS.items()}


def test_the_presets_that_come_with_deeprc() -> None:
    assert list_search_presets() == ["paper", "quick"]


@pytest.mark.parametrize("preset", ["paper", "quick"])
def test_a_preset_names_known_methods_only(preset: str) -> None:
    assert set(methods._Preset.read(preset, Task("", "", "binary")).sections) <= set(METHODS)


def test_deeprc_gets_its_configuration_and_search(cohort: RepertoireDataset) -> None:
    for preset, config, n_settings in (("paper", "paper", 18), ("quick", "deeprc", 1)):
        (found,), skipped = choose_methods(["deeprc"], preset=preset, dataset=cohort)
        assert (found.name, found.label, found.kind, skipped) == ("deeprc", "DeepRC", "method", {})
        assert found.estimator.get_params()["config"] == config
        assert len(found.search.list_settings([0])) == n_settings


def test_all_methods_are_the_registered_ones_and_those_of_the_preset(few: None, choose: Callable[..., Any]) -> None:
    preset = {"mine": {"estimator": "toy_methods:Motif", "label": "My own"}, "noise": {"search": {"salt": [1, 2]}}}
    found, skipped = choose(["all"], preset)
    assert [(each.name, each.label, each.kind) for each in found] == [
        ("noise", "Noise", "method"),
        ("motif", "Motif", "control"),
        ("mine", "My own", "method"),
    ]
    assert skipped == {"moon": "needs the moon's phase"}
    assert found[0].search == SearchSpace({"salt": [1, 2]})
    assert found[0].estimator.salt == 3
    assert found[1].search == SearchSpace()


def test_methods_are_chosen_once_and_in_the_order_asked_for(few: None, choose: Callable[..., Any]) -> None:
    assert [each.name for each in choose(["motif", "noise", "motif"])[0]] == ["motif", "noise"]
    assert [each.name for each in choose(["motif", "all"])[0]] == ["motif", "noise"]


def test_a_named_method_that_the_cohort_does_not_allow_is_an_error(few: None, choose: Callable[..., Any]) -> None:
    for names in (["moon"], ["all", "moon"], ["moon", "all"], ["toy_methods:NeedsMore"]):
        with pytest.raises(InputError, match=rf"^`methods={names[-1] if names != ['moon', 'all'] else 'moon'}`: needs"):
            choose(names)


def test_a_preset_changes_parameters_label_and_search(few: None, choose: Callable[..., Any]) -> None:
    preset = "noise: {label: Louder, fixed: {salt: 1e-3}, search: {seconds: {log10: [0, 1]}}, trials: 4}"
    (found,), _ = choose(["noise"], preset)
    assert (found.name, found.label, found.estimator.salt) == ("noise", "Louder", 0.001)
    assert found.search == SearchSpace({}, {"seconds": ("log10", 0, 1)}, 4)


def test_classes_of_a_user_are_chosen_by_their_path(toys: ModuleType, choose: Callable[..., Any]) -> None:
    preset = {"toy_methods:Noise": {"search": {"salt": [5]}}}
    (found, other), _ = choose(["toy_methods:Noise", "toy_methods:Memory"], preset)
    assert (found.name, found.label, type(found.estimator)) == ("Noise", "Noise", toys.Noise)
    assert found.search == SearchSpace({"salt": [5]})
    assert (other.name, other.search) == ("Memory", SearchSpace())


def test_a_class_of_a_user_can_be_given_a_name(toys: ModuleType, choose: Callable[..., Any]) -> None:
    preset = {
        "a": {"search": {"salt": [5]}},
        "b": {"label": "B", "estimator": "toy_methods:Noise", "fixed": {"salt": 2}},
    }
    (first, second), _ = choose(["a=toy_methods:Noise", "b=toy_methods:Noise"], preset)
    assert (first.name, first.label, first.search, first.estimator.salt) == ("a", "a", SearchSpace({"salt": [5]}), 0)
    assert (second.name, second.label, type(second.estimator), second.estimator.salt) == ("b", "B", toys.Noise, 2)


def test_code_that_only_a_preset_file_names_is_not_run(
    toys: ModuleType, choose: Callable[..., Any], tmp_path: Path
) -> None:
    """Nothing of a module that a preset's file names is run, unless the command names it as well."""
    (tmp_path / "hostile.py").write_text("from pathlib import Path\nPath(__file__).with_name('ran').touch()\n")
    sys.path.append(str(tmp_path))
    try:
        for names in (["a"], ["all"], ["deeprc", "a"], ["a=toy_methods:Noise"]):
            with pytest.raises(InputError) as error:
                choose(names, {"a": {"estimator": "hostile:A"}})
            assert "mine.yaml: a.estimator: " in str(error.value)
        with pytest.raises(InputError, match="code is run only where the call names it: `methods=a=hostile:A`"):
            choose(["a"], {"a": {"estimator": "hostile:A"}})
    finally:
        sys.path.remove(str(tmp_path))
    assert not (tmp_path / "ran").exists()
    assert "hostile" not in sys.modules


def test_two_classes_of_the_same_name_are_told_apart(
    toys: ModuleType, choose: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "second_version.py").write_text("from toy_methods import Motif\n\nclass Noise(Motif):\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found, _ = choose(["toy_methods:Noise", "second_version:Noise"])
    assert [(each.name, each.label) for each in found] == [
        ("Noise", "Noise"),
        ("second_version:Noise", "second_version:Noise"),
    ]
    assert issubclass(type(found[1].estimator), toys.Motif)


def test_estimator_objects_of_a_user_are_methods(toys: ModuleType, choose: Callable[..., Any]) -> None:
    mine = toys.Noise(salt=9)
    (found,), _ = choose([], {"mine": {"search": {"salt": [1]}, "label": "Mine"}}, {"mine": mine})
    assert (found.name, found.label, found.kind, found.estimator.salt) == ("mine", "Mine", "method", 9)
    assert found.search == SearchSpace({"salt": [1]})


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        ("Noise", "found the class Noise"),
        (3, "found int"),
        ("no_class", "found function"),
    ],
)
def test_an_object_that_is_no_estimator_is_refused(
    estimator: object, message: str, toys: ModuleType, choose: Callable[..., Any]
) -> None:
    given = getattr(toys, estimator) if isinstance(estimator, str) else estimator
    with pytest.raises(InputError, match=f"^method 'mine': expected an object with fit, .*, {message}$"):
        choose([], None, {"mine": given})


@pytest.mark.parametrize(
    ("names", "preset", "message"),
    [
        (["nois"], {}, r"^no method 'nois'; did you mean 'noise'\? Methods: all, noise, motif, moon, or module:Class$"),
        (["xyz"], {}, r"^no method 'xyz'\. Methods: all, noise, motif, moon, or"),
        ([""], {}, "^no method ''"),
        ([], {}, "^no method was given; expected `methods` with some of: noise, motif, moon$"),
        (["noise"], {"noise": {"serch": {}}}, "mine.yaml: noise: unknown key 'serch'; expected some of estimator, fix"),
        (
            ["noise"],
            {"noise": {1: {}, "serch": {}}},
            "mine.yaml: noise: unknown key 1; expected some of estimator, fix",
        ),
        (["noise"], {"noise": {"x" * 9999: 1}}, r"mine.yaml: noise: unknown key 'x+\.\.\.x+'; expected some of"),
        (
            ["noise"],
            {"noise": {"label": "\x1b[31m"}},
            r"mine.yaml: noise.label: expected no control characters, found '\\x1b\[31m'",
        ),
        (["noise"], {"noise": {"label": "a\nb"}}, "mine.yaml: noise.label: expected no control characters"),
        (["noise"], {"noise": {"search": 3}}, "mine.yaml: noise.search: expected names of parameters with values"),
        (["noise"], {"noise": {"search": {"salt": 3}}}, "mine.yaml: noise.search: salt: expected a list of values"),
        (["noise"], {"noise": {"trials": 0}}, "mine.yaml: noise.search: trials: expected a whole number of at least 1"),
        (["noise"], {"noise": {"fixed": [1]}}, r"mine.yaml: noise.fixed: expected names and values .* found \[1\]"),
        (
            ["noise"],
            {"noise": {"fixed": {"C": 1}}},
            "mine.yaml: noise: Noise: has no parameter 'C'; it has log, salt, seconds$",
        ),
        (
            ["noise"],
            {"noise": {"search": {"C": [1]}}},
            "mine.yaml: noise: Noise: has no parameter 'C'; it has log, salt, seconds$",
        ),
        (["all"], {"nois": {"search": {}}}, r"mine.yaml: no method 'nois'; did you mean 'noise'\?"),
        (["a"], {"a": {"estimator": 3}}, "mine.yaml: a.estimator: expected module:Class, found 3"),
        (["a=no_such:A"], {"a": {}}, "^no_such:A: cannot be imported: ModuleNotFoundError: No"),
        (["noise", "noise=toy_methods:Memory"], {}, "there is a method 'noise' already; choose another name"),
        (["all"], "noise: [", "mine.yaml: is not YAML: while parsing"),
        (
            ["all"],
            "noise: 3",
            "mine.yaml: expected a section for each method, with estimator, fixed, label, re",
        ),
        (["all"], "- noise", "mine.yaml: expected a section for each method"),
        (["all"], "", "mine.yaml: expected a section for each method"),
    ],
)
def test_an_invalid_choice_of_methods_is_refused_with_one_line(
    names: list[str], preset: object, message: str, few: None, choose: Callable[..., Any]
) -> None:
    with pytest.raises(InputError, match=message) as error:
        choose(names, preset if isinstance(preset, str) else {**preset})  # type: ignore[dict-item]
    assert "\n" not in str(error.value)


_OF_WRONG_TYPE = {
    "deeprc": ({"config": [3], "validation_fraction": ["a", 2], "device": [[]], "overrides.kernel_size": ["a"]}, {}),
    "svm-minmax": ({"C": ["a", -1, True], "kernel": ["x", 3], "kmer_offsets": [3, ["a"], [1]]}, {"epsilon": [-1]}),
    "knn-minmax": ({"n_neighbors": ["a", 0, 1.5], "weighted": [3]}, {}),
    "logistic-adam": ({"learning_rate": ["a"], "batch_size": [0], "n_updates": [1.5], "l1": [-1], "scale": ["x"]}, {}),
    "logistic": ({"penalty": ["l3"], "scale": [[]], "C": [{}], "kmer_offsets": [[0] * 9]}, {"C": [0], "scale": ["x"]}),
    "gapped-logistic": ({"k": [9], "genes": ["x"], "C": ["a"], "weighted": ["yes"]}, {}),
    "boosted": ({"learning_rate": ["a"], "max_iter": [0], "seed": [-1]}, {"max_gap": ["a"]}),
    "stack": ({"members": ["deeprc", [3]], "n_folds": [1, "a"], "preset": [3]}, {}),
    "burden-test": ({"feature": ["x"], "n_features": [0, "a"]}, {}),
    "public-clones": ({"p_value": [2, "a"], "thresholds": [[], ["a"], 3], "n_inner_folds": [1], "genes": [3]}, {}),
    "logistic-mil-4mer": ({"carrier": ["x"], "n_epochs": [0], "n_restarts": ["a"], "trim": [-1]}, {}),
    "repertoire-size": ({"C": ["a"]}, {"C": ["a"]}),
    "diversity": ({"C": ["a"]}, {"C": [-1]}),
    "v-gene-usage": ({"C": ["a"], "genes": ["x", []]}, {"genes": ["x"]}),
    "sheet-columns": ({"C": ["a"], "columns": [3, [3]], "categories": ["a"]}, {"C": ["a"]}),
    "known-motif-binary": ({"overlap": ["x", 3]}, {}),
}


@pytest.mark.parametrize("name", _OF_WRONG_TYPE)
def test_a_wrong_value_anywhere_in_a_preset_is_refused_before_any_fit(name: str, tmp_path: Path) -> None:
    good = METHODS[name]
    for kind, wrong in zip(("binary", "regression"), _OF_WRONG_TYPE[name], strict=True):
        path = good.estimator if kind == "binary" else good.regressor
        for parameter, value in [(parameter, value) for parameter, values in wrong.items() for value in values]:
            default = import_estimator_class(path)().get_params()[parameter.partition(".")[0]]
            listed = [value] if default is None or "." in parameter else [default, value]
            for section in ({"fixed": {parameter: value}}, {"search": {parameter: listed}}):
                (tmp_path / "mine.yaml").write_text(yaml.safe_dump({name: to_plain(section)}))
                preset = methods._Preset.read(tmp_path / "mine.yaml", Task("", "", kind))  # type: ignore[arg-type]
                with pytest.raises(InputError, match=rf"mine\.yaml: {name}: .*(expected|no file)") as error:
                    preset.make_method(name, [name])
                assert parameter.rpartition(".")[2] in str(error.value)
                assert "\n" not in str(error.value)


def test_an_unknown_preset_is_refused(cohort: RepertoireDataset, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^`preset=quik`: neither a file nor one of paper, quick$"):
        choose_methods(["deeprc"], preset="quik", dataset=cohort)
    with pytest.raises(InputError, match=r"neither a file nor one of paper, quick$"):
        choose_methods(["deeprc"], preset=tmp_path, dataset=cohort)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("no_such_module:A", "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"),
        ("toy_methods:Nothing", "the module toy_methods has no 'Nothing'"),
        ("toy_methods:", "the module toy_methods has no ''"),
        (":Noise", "cannot be imported: ValueError"),
        (".toy_methods:Noise", "cannot be imported: TypeError"),
        ("toy_methods:no_class", "expected a class with scikit-learn's fit and get_params"),
        ("toy_methods:Path", "expected a class with scikit-learn's fit and get_params"),
        ("toy_methods:Noise.fit", "the module toy_methods has no 'Noise.fit'"),
        ("bad_syntax:A", "cannot be imported: SyntaxError"),
        ("bad_import:A", "cannot be imported: AttributeError: two lines"),
    ],
)
def test_classes_that_cannot_be_imported_are_refused(
    where: str, message: str, toys: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad_syntax.py").write_text("def f(:\n")
    (tmp_path / "bad_import.py").write_text("raise AttributeError('two\\nlines')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError) as error:
        import_estimator_class(where)
    assert str(error.value).startswith(f"{where}: {message}")
    assert "\n" not in str(error.value)


def test_a_class_that_needs_arguments_is_refused(toys: ModuleType, choose: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match=r"^toy_methods:NeedsArguments: cannot be made without arguments: .*'motif'"):
        choose(["toy_methods:NeedsArguments"])


def test_modules_are_found_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lies_here.py").write_text("from sklearn.dummy import DummyClassifier as Mine\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    importlib.invalidate_caches()
    kind = import_estimator_class("lies_here:Mine")
    assert issubclass(kind, BaseEstimator)
    assert np.sum([str(tmp_path) == each for each in sys.path]) == 1
    import_estimator_class("lies_here:Mine")
    assert np.sum([str(tmp_path) == each for each in sys.path]) == 1
