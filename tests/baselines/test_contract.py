"""What all compared methods have in common, DeepRC among them; of one method alone its own tests tell."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from deeprc.baselines.knn import KNN
from deeprc.benchmarking.registry import METHODS
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import Repertoire, RepertoireDataset, open_dataset
from deeprc.datasets.relabelling import relabel
from deeprc.datasets.sequences import Sequences
from deeprc.datasets.simulation import Cohort, Counts, GermlineBackground, Motif, MotifSignal, Sizes, write_container
from deeprc.datasets.simulation.recipe import cohort_to_mapping
from deeprc.errors import InputError
from deeprc.estimators import BinaryClassifier, RepertoireClassifier
from tests.toys.saved_files import change_description

N_TRAIN = 16
EXACT = 1e-9


@dataclass(frozen=True)
class Case:
    """An estimator with settings that are quick, values of its path parameter, and how exactly scores are equal."""

    target: str
    settings: dict[str, Any] = field(default_factory=dict)
    path: tuple[Any, ...] = ()
    exact: float = EXACT

    @property
    def kind(self) -> type[RepertoireClassifier]:
        module, _, name = self.target.partition(":")
        found: type[RepertoireClassifier] = getattr(importlib.import_module(module), name)
        return found

    def model(self, **changes: Any) -> RepertoireClassifier:
        return self.kind(**{**self.settings, **changes})


_MIL = {"n_restarts": 3, "n_epochs": 4}
_DEEPRC = {"n_updates": 6, "evaluate_every": 3, "n_kernels": 8, "kernel_size": 4, "n_sequences": 100}
_CONTROLS, _LINEAR = "deeprc.baselines.controls", (10.0, 0.1)
CASES = {
    "svm-minmax": Case("deeprc.baselines.svm:SVM", {"kernel": "minmax"}, (1.0, 0.01)),
    "svm-jaccard": Case("deeprc.baselines.svm:SVM", {"kernel": "jaccard"}, (1.0, 0.01)),
    "knn-minmax": Case("deeprc.baselines.knn:KNN", {"kernel": "minmax"}, (5, 1, 16, 17)),
    "knn-jaccard": Case("deeprc.baselines.knn:KNN", {"kernel": "jaccard"}, (5, 1, 16, 17)),
    "logistic": Case("deeprc.baselines.logistic:LogisticRegression", {}, _LINEAR),
    "logistic-adam": Case("deeprc.baselines.logistic:AdamLogisticRegression", {"n_updates": 20}, (20, 5, 12)),
    "gapped-logistic": Case("deeprc.baselines.gapped:GappedKmerLogisticRegression", {"k": 3}, _LINEAR),
    "boosted": Case("deeprc.baselines.boosted:BoostedTrees", {"max_gap": 0, "max_iter": 20}),
    "burden-4mer": Case("deeprc.baselines.burden:BurdenTest", {"feature": "4mer"}, (50, 5)),
    "burden-sequence": Case("deeprc.baselines.burden:BurdenTest", {"feature": "sequence"}, (50, 5)),
    "public-clones": Case("deeprc.baselines.public_clones:PublicClones"),
    "logistic-mil-4mer": Case("deeprc.baselines.logistic_mil:LogisticMIL", {"abundance": "4mer", **_MIL}, (4, 1, 9)),
    "logistic-mil-tcrb": Case("deeprc.baselines.logistic_mil:LogisticMIL", {"abundance": "tcrb", **_MIL}, (4, 1, 9)),
    "known-recipe": Case("deeprc.baselines.known_recipe:KnownRecipe"),
    "known-motif-binary": Case("deeprc.baselines.known_motif:KnownMotif", {"overlap": "binary"}),
    "known-motif-continuous": Case("deeprc.baselines.known_motif:KnownMotif", {"overlap": "continuous"}),
    "repertoire-size": Case(f"{_CONTROLS}:RepertoireSize", {}, _LINEAR),
    "diversity": Case("deeprc.baselines.diversity:Diversity", {}, _LINEAR),
    "v-gene-usage": Case(f"{_CONTROLS}:VGeneUsage", {}, _LINEAR),
    "sheet-columns": Case("deeprc.baselines.sheet:SheetColumns", {"columns": ["age"]}, _LINEAR),
    "stack": Case("deeprc.stacking.stack:Stack", {"members": ["logistic", "v-gene-usage"], "n_folds": 3}),
    # Single precision, and its sums depend on the batch's place in memory.
    "deeprc": Case("deeprc.training.estimator:DeepRCClassifier", {"overrides": _DEEPRC, "device": "cpu"}, (), 1e-5),
}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """A simulated cohort with genes, counts and a recipe: SFEN in every fifth sequence of the positive class."""
    signals = (MotifSignal((Motif("SFEN"),), witness_rate=0.2),)
    cohort = Cohort(24, Sizes(150, 20), GermlineBackground(), signals, Counts(exponent=2.0), seed=3)
    path = tmp_path_factory.mktemp("contract") / "first.h5"
    write_container(cohort, path, recipe=cohort_to_mapping(cohort))
    ids = open_dataset(path).repertoire_ids
    sheet = pd.DataFrame({"repertoire_id": ids, "age": 40 + 5 * (np.arange(len(ids)) % 7)})
    sheet.to_csv(path.with_name("ages.tsv"), sep="\t", index=False)
    relabel(path, path.with_name("ages.tsv"), keep_columns=True)
    return open_dataset(path)


@pytest.fixture(scope="module")
def second(first: RepertoireDataset, tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """The first 16 repertoires of the other cohort, backwards, genes renumbered; before them one of 0 and one of 1."""
    table = _table(first[20])
    rows = [_some(table, 0), _some(table, 1), *(_table(first[row]) for row in reversed(range(N_TRAIN)))]
    path = tmp_path_factory.mktemp("contract") / "second.h5"
    status = ["negative", "positive", *first.metadata["status"][:N_TRAIN][::-1]]
    with ContainerWriter(path) as writer:
        for number, row in enumerate(rows):
            writer.append(f"other_{number}", row)
        ages = [20, 60, *first.metadata["age"][:N_TRAIN][::-1]]
        metadata = pd.DataFrame({"status": status, "age": ages})
        writer.finish(metadata, source="a test", simulation=first.container.simulation)
    return open_dataset(path)


def _table(repertoire: Repertoire) -> Sequences:
    genes = {}
    for name, calls in repertoire.genes.items():
        codes = (len(calls.vocabulary) - 1 - calls.codes.astype(np.int64)).astype(np.uint16)
        genes[name] = Categorical(codes, calls.vocabulary[::-1])
    assert list(genes) == ["v_call", "j_call"]
    return repertoire.sequences.with_genes(genes)


def _some(table: Sequences, n: int) -> Sequences:
    return table.slice(0, n)


def labels(dataset: RepertoireDataset) -> NDArray[Any]:
    found: NDArray[Any] = dataset.metadata["status"].to_numpy()
    return found


_SLOW = {
    *("boosted", "burden-sequence", "deeprc", "known-recipe", "logistic", "logistic-adam", "logistic-mil-4mer"),
    *("public-clones", "repertoire-size", "stack", "svm-minmax"),
}  # fits that take more than a second with what they compile


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.slow] * (name in _SLOW)) for name in CASES])
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture(scope="module")
def fitted(first: RepertoireDataset) -> Callable[[Case], Any]:
    """A function that fits a case to the first 16 repertoires, once."""
    known: dict[str, RepertoireClassifier] = {}

    def fit(case: Case) -> RepertoireClassifier:
        name = next(name for name, each in CASES.items() if each is case)
        if name not in known:
            known[name] = case.model().fit(first[:N_TRAIN], labels(first)[:N_TRAIN])
        return known[name]

    return fit


def same(case: Case, found: NDArray[np.float64], expected: NDArray[np.float64]) -> None:
    np.testing.assert_allclose(found, expected, rtol=case.exact, atol=case.exact)


def test_all_methods_of_the_benchmark_are_here() -> None:
    named = {(known.estimator, json.dumps(dict(known.fixed))) for known in METHODS.values()}
    for target, fixed in named:
        settings = [case.settings for case in CASES.values() if case.target == target]
        assert any(json.loads(fixed).items() <= each.items() for each in settings), f"{target} {fixed}"


def test_parameters_are_scikit_learns(case: Case) -> None:
    model = case.model()
    parameters = model.get_params()
    assert json.loads(json.dumps(parameters)) == parameters
    assert clone(model).get_params() == parameters
    assert case.kind().set_params(**parameters).get_params() == parameters
    assert vars(model).keys() == parameters.keys()  # `__init__` stores, and nothing else
    assert all(parameters[name] is value for name, value in case.settings.items())


def test_fit_returns_the_model_and_probabilities_follow_the_scores(case: Case, first: RepertoireDataset) -> None:
    model = case.model()
    assert model.fit(first[:N_TRAIN], labels(first)[:N_TRAIN]) is model
    assert model.classes_.tolist() == ["negative", "positive"]
    assert model.get_params() == case.model().get_params()
    assert all(name.startswith("_") or name.endswith("_") for name in vars(model).keys() - model.get_params().keys())
    probability, scores = model.predict_proba(first), model.decision_function(first)
    assert probability.shape == (24, 2)
    assert scores.shape == (24,)
    assert probability.dtype == scores.dtype == np.float64
    np.testing.assert_allclose(probability.sum(axis=1), 1, rtol=1e-12)
    assert np.isfinite(scores).all()
    assert ((probability >= 0) & (probability <= 1)).all()
    by_score = probability[np.argsort(scores, kind="stable"), 1]
    assert (np.diff(by_score) >= -1e-12).all()  # the same rank, be it with ties
    assert (
        model.predict(first).tolist() == model.classes_[(probability[:, 1] >= probability[:, 0]).astype(int)].tolist()
    )


@pytest.mark.parametrize("form", ["bool", "int", "object", "list"])
def test_labels_may_be_of_any_type(
    case: Case, form: str, first: RepertoireDataset, fitted: Callable[[Case], Any]
) -> None:
    positive = labels(first)[:N_TRAIN] == "positive"
    y: Any = {
        "bool": positive,
        "int": np.where(positive, 7, -1),
        "object": np.where(positive, "positive", "negative").astype(object),
        "list": [str(label) for label in labels(first)[:N_TRAIN]],
    }[form]
    model = case.model().fit(first[:N_TRAIN], y)
    expected = {"bool": [False, True], "int": [-1, 7]}.get(form, ["negative", "positive"])
    assert model.classes_.tolist() == expected
    same(case, model.decision_function(first), fitted(case).decision_function(first))
    assert set(model.predict(first).tolist()) <= set(expected)


def test_the_same_seed_gives_the_same(case: Case, first: RepertoireDataset, fitted: Callable[[Case], Any]) -> None:
    again = case.model().fit(first[:N_TRAIN], labels(first)[:N_TRAIN])
    np.testing.assert_array_equal(again.predict_proba(first), fitted(case).predict_proba(first))


def test_the_order_of_repertoires_does_not_matter(
    case: Case, first: RepertoireDataset, fitted: Callable[[Case], Any]
) -> None:
    order = np.random.default_rng(5).permutation(N_TRAIN)
    again = case.model().fit(first[order], labels(first)[order])
    same(case, again.predict_proba(first), fitted(case).predict_proba(first))
    same(case, again.decision_function(first), fitted(case).decision_function(first))


def test_a_score_depends_on_its_repertoire_alone(
    case: Case, first: RepertoireDataset, fitted: Callable[[Case], Any]
) -> None:
    model = fitted(case)
    scores, probability = model.decision_function(first), model.predict_proba(first)
    order = np.random.default_rng(6).permutation(24)
    same(case, model.decision_function(first[order]), scores[order])
    same(case, model.predict_proba(first[order]), probability[order])
    for row in (0, 23):
        same(case, model.decision_function(first[[row]]), scores[[row]])
        same(case, model.decision_function(first[[row, 3, row]])[::2], scores[[row, row]])


def test_model_gives_the_same_scores_for_copies_of_its_repertoires_in_another_container(
    case: Case, first: RepertoireDataset, second: RepertoireDataset, fitted: Callable[[Case], Any]
) -> None:
    """The copies have the same sequences, but other codes for their genes."""
    model = fitted(case)
    copies = second[: -N_TRAIN - 1 : -1]
    assert [each.sequences.decode() for each in copies] == [each.sequences.decode() for each in first[:N_TRAIN]]
    assert copies.container.sequences.v_call.vocabulary != first.container.sequences.v_call.vocabulary
    same(case, model.decision_function(copies), model.decision_function(first[:N_TRAIN]))
    same(case, model.predict_proba(copies), model.predict_proba(first[:N_TRAIN]))


def test_only_the_training_repertoires_teach(
    case: Case, first: RepertoireDataset, second: RepertoireDataset, fitted: Callable[[Case], Any]
) -> None:
    """In the other container the repertoires that are not for training are others, and so are their labels."""
    copies = second[: -N_TRAIN - 1 : -1]
    model = case.model().fit(copies, labels(copies))
    same(case, model.predict_proba(first), fitted(case).predict_proba(first))
    same(case, model.decision_function(first), fitted(case).decision_function(first))


def test_few_sequences_are_no_trouble(case: Case, second: RepertoireDataset, fitted: Callable[[Case], Any]) -> None:
    assert second.n_sequences[:2].tolist() == [0, 1]
    for model in (fitted(case), case.model().fit(second, labels(second))):
        assert np.isfinite(model.decision_function(second)).all()
        probability = model.predict_proba(second)
        assert np.isfinite(probability).all()
        same(case, model.predict_proba(second[[0]]), probability[[0]])
        same(case, model.predict_proba(second[[1]]), probability[[1]])


def test_no_repertoires_give_no_predictions(
    case: Case, first: RepertoireDataset, fitted: Callable[[Case], Any]
) -> None:
    model = fitted(case)
    assert model.predict_proba(first[:0]).shape == (0, 2)
    assert model.decision_function(first[:0]).shape == (0,)
    assert model.predict(first[:0]).shape == (0,)


def test_fit_refuses_labels_from_which_it_cannot_learn(case: Case, first: RepertoireDataset) -> None:
    y = labels(first)
    three = np.array(["a", "b", "c"])[np.arange(24) % 3]
    for bad, message in (
        (np.full(24, "positive"), r"one class only: \['positive'\]"),
        (np.where(np.arange(24) == 3, None, y), "missing labels"),
        (np.where(np.arange(24) == 3, np.nan, (y == "positive").astype(float)), "missing labels"),
        (y[:23], "23 labels for 24 repertoires"),
        *([(three, "expected two classes, found 3")] if issubclass(case.kind, BinaryClassifier) else []),
    ):
        with pytest.raises(ValueError, match=message) as raised:
            case.model().fit(first, bad)
        assert "\n" not in str(raised.value)


def test_anything_but_a_dataset_is_refused(case: Case, first: RepertoireDataset, fitted: Callable[[Case], Any]) -> None:
    message = "X: expected a RepertoireDataset"
    with pytest.raises(TypeError, match=message):
        case.model().fit(np.zeros((24, 3)), labels(first))
    with pytest.raises(TypeError, match=message):
        fitted(case).predict_proba([1, 2])
    with pytest.raises(TypeError, match=message):
        fitted(case).decision_function(np.zeros((2, 3)))


def test_an_unfitted_model_neither_predicts_nor_saves(case: Case, first: RepertoireDataset, tmp_path: Path) -> None:
    for act in (
        lambda model: model.predict_proba(first),
        lambda model: model.predict(first),
        lambda model: model.decision_function(first),
        lambda model: model.save(tmp_path / "model.safetensors"),
    ):
        with pytest.raises(NotFittedError):
            act(case.model())
    assert not list(tmp_path.iterdir())


def test_saved_model_predicts_the_same(
    case: Case, first: RepertoireDataset, second: RepertoireDataset, fitted: Callable[[Case], Any], tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    model = fitted(case)
    model.save(path)
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])  # safetensors, and no pickle in it
    assert {value["dtype"] for name, value in header.items() if name != "__metadata__"} <= set(_DTYPES)
    assert header["__metadata__"].keys() == {"deeprc", "digest"}
    loaded = case.kind.load(path)
    assert loaded.get_params() == model.get_params()
    assert loaded.classes_.tolist() == model.classes_.tolist()
    for dataset in (first, second):
        np.testing.assert_array_equal(loaded.predict_proba(dataset), model.predict_proba(dataset))
        np.testing.assert_array_equal(loaded.decision_function(dataset), model.decision_function(dataset))
    loaded.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").stat().st_size == path.stat().st_size
    other = CASES["knn-minmax" if "KNN" not in case.target else "svm-minmax"].kind
    name = case.kind.__name__
    with pytest.raises(InputError, match=re.escape(f"{path}: expected a {other.__name__} of version 1, found {name}")):
        other.load(path)


_DTYPES = ("BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "F16", "F32", "F64")


def test_a_file_from_before_a_parameter_was_renamed(first: RepertoireDataset, tmp_path: Path) -> None:
    model = KNN(kmer_offsets=(0, 2)).fit(first, first.metadata["status"])
    model.save(tmp_path / "new.safetensors")
    old = change_description(
        tmp_path / "new.safetensors",
        lambda body: body["parameters"].update(places=body["parameters"].pop("kmer_offsets")),
    )
    loaded = KNN.load(old)
    assert loaded.kmer_offsets == [0, 2]
    np.testing.assert_array_equal(loaded.predict_proba(first), model.predict_proba(first))


def test_load_refuses_a_missing_or_damaged_file(case: Case, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        case.kind.load(tmp_path / "nowhere.safetensors")
    (tmp_path / "damaged.safetensors").write_bytes(b"\x80\x04N.")
    with pytest.raises(InputError, match=r"damaged\.safetensors: is damaged"):
        case.kind.load(tmp_path / "damaged.safetensors")


def test_a_path_is_one_fit_per_value(case: Case, first: RepertoireDataset) -> None:
    parameter = case.kind.path_parameter
    assert (parameter is None) == (case.path == ())
    if parameter is None:
        return
    model = case.model()
    assert isinstance(model, BinaryClassifier)
    train, y = first[:N_TRAIN], labels(first)[:N_TRAIN]
    path = model.decision_path(train, y, first, case.path)
    assert path.shape == (len(case.path), 24)
    assert vars(model).keys() == model.get_params().keys()
    assert model.get_params() == case.model().get_params()
    for value, scores in zip(case.path, path, strict=True):
        same(case, scores, case.model(**{parameter: value}).fit(train, y).decision_function(first))
    assert model.decision_path(train, y, first[:0], case.path).shape == (len(case.path), 0)
    assert model.decision_path(train, y, first, []).shape == (0, 24)
    with pytest.raises(ValueError, match="one class only"):
        model.decision_path(train, np.full(N_TRAIN, "positive"), first, case.path)
