"""Saved estimators whose arrays were changed: compiled code would read beyond their ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import deeprc
from deeprc.baselines.burden import BurdenTest
from deeprc.baselines.gapped import GappedKmerLogisticRegression
from deeprc.baselines.knn import KNN, KNNRegressor
from deeprc.baselines.logistic import LogisticRegression
from deeprc.baselines.logistic_mil import LogisticMIL
from deeprc.baselines.public_clones import PublicClones
from deeprc.baselines.svm import SVM, SVMRegressor
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from tests.toys.saved_files import change_description

MODELS: dict[str, Callable[[], Any]] = {
    "gapped": lambda: GappedKmerLogisticRegression(k=2, max_gap=0),
    "logistic": lambda: LogisticRegression(kmer_offsets=(0, 1)),
    "svm": lambda: SVM(kmer_offsets=(0, 1)),
    "regressor": lambda: SVMRegressor(kmer_offsets=(0, 1)),
    "neighbours": lambda: KNNRegressor(kmer_offsets=(0, 1)),
    "sparse": lambda: KNN(kmer_offsets=(0, 1, 2, 3, 4)),
    "clones": lambda: PublicClones(p_value=0.5),
    "kmers": lambda: BurdenTest(n_features=4),
    "sequences": lambda: BurdenTest(feature="sequence", n_features=4),
    "mil": lambda: LogisticMIL(n_epochs=1, n_restarts=1),
}


@pytest.fixture(scope="module")
def cohort() -> RepertoireDataset:
    """Twelve repertoires, of which the six sick ones share three clones."""
    rng = np.random.default_rng(0)
    rows = []
    for repertoire in range(12):
        own = ["CASS" + "".join(rng.choice(list("ACDEFGHIKLMNPQRSTVWY"), 6)) + "EQYF" for _ in range(20)]
        shared = ["CASSPLICEEQYF", "CASSWWHMYEQYF", "CASSDDDDDEQYF"] if repertoire % 2 else []
        rows += [(f"r{repertoire}", junction, "TRBV6-1", "TRBJ2-7") for junction in own + shared]
    frame = pd.DataFrame(rows, columns=["repertoire_id", "junction_aa", "v_call", "j_call"])
    status = ["sick" if repertoire % 2 else "control" for repertoire in range(12)]
    return deeprc.from_frame(frame, metadata={"repertoire_id": [f"r{i}" for i in range(12)], "status": status})


@pytest.fixture(scope="module")
def saved(cohort: RepertoireDataset, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[type, Path]]:
    """Save a fitted model of a name once, and return its class and its file."""
    folder, kinds = tmp_path_factory.mktemp("saved"), {}

    def save(name: str) -> tuple[type, Path]:
        path = folder / f"{name}.safetensors"
        if name not in kinds:
            model = MODELS[name]()
            if isinstance(model, SVMRegressor | KNNRegressor):
                model.fit(cohort, np.arange(12.0))
            else:
                model.fit_uncalibrated(cohort, cohort.metadata["status"])
            model.save(path)
            kinds[name] = type(model)
        return kinds[name], path

    return save


def write_changed(path: Path, target: Path, name: str, change: Callable[[Any], Any] | None) -> Path:
    """Write a copy of a saved model in which one array, or fitted value of the header, is changed, or removed."""
    with safe_open(path, framework="np") as file:
        arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no mapping)
        header = json.loads(file.metadata()["deeprc"])
    holder = arrays if name in arrays else header["values"][name]
    key = name if name in arrays else "text" if "text" in holder else "value"
    if change is None:
        del holder[key]
    else:
        holder[key] = change(holder[key])
    save_file(
        {key: np.ascontiguousarray(array) for key, array in arrays.items()}, target, {"deeprc": json.dumps(header)}
    )
    return target


def put(at: int, value: float) -> Callable[[Any], Any]:
    """Return a change that sets one value of an array, whatever its dimensions."""

    def change(array: Any) -> Any:
        array = array.copy()
        array.flat[at] = value
        return array

    return change


@pytest.mark.parametrize(
    ("model", "array", "change", "message"),
    [
        ("gapped", "features_", put(0, -5), "features: expected indices from 0 in rising order"),
        ("gapped", "features_", lambda a: a[::-1], "features: expected indices from 0 in rising order"),
        (
            "gapped",
            "features_",
            lambda a: a.astype(np.float64),
            r"features: expected 1 dimension of int64, found float64",
        ),
        ("gapped", "coef_", lambda a: a[:-1], r"coef: expected \d+ numbers, found \(\d+,\)"),
        ("gapped", "coef_", put(0, np.nan), "coef: expected finite numbers"),
        ("gapped", "v_names_", lambda _: 7, "v_names_: expected a list, found 7"),
        ("gapped", "v_names_", lambda names: [names], "v_names_: expected a list of texts, found"),
        ("svm", "support_", lambda a: a[:, :-1], "support_: expected rows of 400 numbers, found 399"),
        ("svm", "support_", put(3, np.nan), "support_: expected finite numbers of at least 0"),
        ("svm", "dual_coef_", lambda a: a[:-1], r"dual_coef_: expected \d+ finite numbers, found float64"),
        ("svm", "dual_coef_", None, "dual_coef_: expected \\d+ finite numbers, found None"),
        ("svm", "intercept_", put(0, np.nan), r"intercept_: expected 1 finite number, found float64 \(1,\)"),
        ("regressor", "dual_coef_", put(0, np.inf), r"dual_coef_: expected \d+ finite numbers"),
        (
            "neighbours",
            "numbers_",
            lambda a: a[:, None],
            r"numbers_: expected 12 finite numbers, found float64",
        ),
        ("sparse", "support_.indices", put(0, 2**30), r"indices must be < 3200000"),
        ("sparse", "support_.indptr", put(1, -(2**30)), r"indices must be|indptr|index pointer"),
        ("sparse", "positive_", lambda a: a[:-1], r"positive_: expected \d+ finite numbers, found bool"),
        ("clones", "offsets_", put(1, 10**12), r"offsets: expected to rise from 0 to [\d,]+ by 1 to 255 residues"),
        ("clones", "offsets_", put(-1, 10**12), r"offsets: expected to rise from 0"),
        ("clones", "residues_", put(0, 200), "residues: expected values of at most 19, found 200"),
        ("clones", "distributions_", put(0, -1), "distributions: expected alpha and beta of two classes, above 0"),
        ("clones", "fields_", lambda _: ["c_call"], "fields: expected some of v_call, j_call, found 'c_call'"),
        ("clones", "prior_", lambda _: "half", "prior: expected a finite number, found 'half'"),
        ("kmers", "kmers_", put(0, -1), "kmers: expected numbers from 0 to 159,999"),
        ("kmers", "kmers_", put(0, 160_000), "kmers: expected numbers from 0 to 159,999"),
        ("kmers", "phi_", lambda a: a[:-1], "phi: expected 4 numbers, found"),
        ("sequences", "offsets_", put(1, -1), "offsets: expected to rise from 0"),
        ("mil", "weights_", lambda a: a[:-1], "weights: expected 21 finite numbers"),
        ("mil", "bias_", lambda _: [1.0], "bias: expected a finite number, found"),
        ("mil", "carrier_", lambda _: 2, "carrier: expected 0 or 1, found 2"),
    ],
)
def test_changed_arrays_are_refused(
    saved: Callable[[str], tuple[type, Path]],
    tmp_path: Path,
    model: str,
    array: str,
    change: Callable[[Any], Any] | None,
    message: str,
) -> None:
    kind, path = saved(model)
    target = write_changed(path, tmp_path / "changed.safetensors", array, change)
    with pytest.raises(InputError, match=rf"changed\.safetensors: is damaged: .*({message})"):
        kind.load(target)  # type: ignore[attr-defined]


def test_features_beyond_the_last_are_refused(
    saved: Callable[[str], tuple[type, Path]], cohort: RepertoireDataset, tmp_path: Path
) -> None:
    """How many features there are is known only when a cohort is read, because genes are among them."""
    kind, path = saved("gapped")
    target = write_changed(path, tmp_path / "changed.safetensors", "features_", put(-1, 10**15))
    changed = kind.load(target)  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"features: expected indices below \d+, found 1,000,000,000,000,000"):
        changed.decision_function(cohort)


def test_a_damaged_number_is_seen(saved: Callable[[str], tuple[type, Path]], tmp_path: Path) -> None:
    kind, path = saved("svm")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    (tmp_path / "changed.safetensors").write_bytes(content)
    with pytest.raises(
        InputError, match=r"changed\.safetensors: is damaged: its numbers are not those that were written$"
    ):
        kind.load(tmp_path / "changed.safetensors")  # type: ignore[attr-defined]


def test_a_parameter_out_of_range_is_refused(saved: Callable[[str], tuple[type, Path]]) -> None:
    kind, path = saved("gapped")
    changed = change_description(path, lambda header: header["parameters"].update(max_gap=-1))
    message = r"changed\.safetensors: is damaged: max_gap: expected a whole number from 0 to 4, found -1$"
    with pytest.raises(InputError, match=message):
        kind.load(changed)  # type: ignore[attr-defined]


@pytest.mark.parametrize("n_neighbors", ["abc", ["x"], 0, None, 1.5])
def test_a_damaged_number_of_neighbours_is_refused(
    saved: Callable[[str], tuple[type, Path]], n_neighbors: object
) -> None:
    kind, path = saved("neighbours")
    changed = change_description(path, lambda header: header["parameters"].update(n_neighbors=n_neighbors))
    with pytest.raises(InputError, match="is damaged: n_neighbors: expected a whole number of at least 1"):
        kind.load(changed)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["v_names_", "j_names_"])
def test_missing_names_of_genes_are_refused(saved: Callable[[str], tuple[type, Path]], name: str) -> None:
    kind, path = saved("gapped")
    changed = change_description(path, lambda header: header["values"].pop(name))
    with pytest.raises(InputError, match=f"is damaged: {name}: expected texts, found None"):
        kind.load(changed)  # type: ignore[attr-defined]


@pytest.mark.parametrize("offsets", ["abc", 7, [], [0, 10**20], [0, None], {"a": 1}, [list(range(7))]])
@pytest.mark.parametrize("model", ["logistic", "svm", "neighbours"])
def test_a_damaged_spacing_is_refused(saved: Callable[[str], tuple[type, Path]], model: str, offsets: object) -> None:
    kind, path = saved(model)
    changed = change_description(path, lambda header: header["parameters"].update(kmer_offsets=offsets))
    with pytest.raises(InputError, match="is damaged: kmer_offsets: expected 1 to 6 whole numbers that rise from 0"):
        kind.load(changed)  # type: ignore[attr-defined]
