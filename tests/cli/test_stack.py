"""`deeprc stack`: a model from a container, and predictions from both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.stacking import Stack
from deeprc.stacking import cohort as cohort_of_stack

pytestmark = pytest.mark.slow  # what its tests share takes seconds to train

Command = Callable[..., tuple[int, str, str]]
MEMBERS = "gapped-logistic,v-gene-usage"


@pytest.fixture
def fitted(cohort: RepertoireDataset, tmp_path: Path, deeprc: Command) -> Path:
    path = tmp_path / "status.safetensors"
    arguments = ("--target", "status", "--methods", MEMBERS, "--group-by", "patient_id", "--folds", 3, "-o", path)
    code, out, _ = deeprc("stack", "fit", cohort.container.path, *arguments)
    assert code == 0
    assert out.split()[:6] == ["member", "auc", "weight", "share", "gapped-logistic", "1.000"]
    assert out.endswith(f"AUC of the stack in cross-validation: 1.000\nWrote {path}\n")
    return path


@pytest.mark.parametrize(("auc", "is_told"), [(0.85, True), (0.95, False)])
def test_a_stack_below_its_best_member_is_told(
    tmp_path: Path, deeprc: Command, monkeypatch: pytest.MonkeyPatch, auc: float, *, is_told: bool
) -> None:
    index = pd.Index(["boosted", "logistic"], name="member")
    table = pd.DataFrame({"auc": [0.8, 0.9], "weight": [1.0, 0.5], "share": [0.7, 0.3]}, index=index)
    fitted = SimpleNamespace(member_table=lambda: table, auc_=auc)
    monkeypatch.setattr(cohort_of_stack, "fit_stack", lambda *_, **__: fitted)
    _, out, _ = deeprc("stack", "fit", "cohort.h5", "--target", "status", "-o", tmp_path / "a.safetensors")
    note = (
        "Note: logistic alone has a higher AUC (0.900). With few repertoires this may be chance. `deeprc benchmark` "
        "compares both on test folds."
    )
    assert (note in out) == is_told
    assert out.count("AUC of the stack") == 1
    assert out.splitlines()[0].split() == ["member", "auc", "weight", "share"]


def test_predictions_are_those_of_the_stack(
    fitted: Path, cohort: RepertoireDataset, tmp_path: Path, deeprc: Command
) -> None:
    code, out, err = deeprc("stack", "predict", fitted, cohort.container.path, "-o", tmp_path / "p.tsv")
    assert (
        "30 of 30 repertoires are training repertoires of the stack (split 'train'): their predictions are too good. "
        "Judge the stack by the others." in " ".join(err.split())
    )
    assert (code, out) == (0, f"Wrote predictions of status=case for 30 repertoires to {tmp_path / 'p.tsv'}\n")
    table = pd.read_csv(tmp_path / "p.tsv", sep="\t")
    stack = Stack.load(fitted)
    assert table["repertoire_id"].tolist() == list(cohort.repertoire_ids)
    assert (set(table["split"]), set(table["positive_class"])) == ({"train"}, {"case"})
    assert list(table)[:5] == ["repertoire_id", "split", "target", "label", "probability"]
    assert set(table["target"]) == {"status=case"}
    np.testing.assert_allclose(table["log_odds"], stack.decision_function(cohort), atol=1e-9)
    np.testing.assert_allclose(table["probability"], expit(table["log_odds"]), atol=1e-9)
    added = table[[f"contribution={name}" for name in MEMBERS.split(",")]].sum(axis=1)
    np.testing.assert_allclose(added + stack.combination_.intercept, table["log_odds"], atol=1e-9)
    is_case = cohort.metadata["status"] == "case"
    assert ((table["probability"] > 0.5).to_numpy() == is_case.to_numpy()).all()
    assert table["label"].tolist() == is_case.astype(int).tolist()


def test_labels_that_the_cohort_does_not_have_are_empty(
    fitted: Path, cohort: RepertoireDataset, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    stack, metadata = Stack.load(fitted), cohort.metadata
    unlabelled = metadata["status"].astype(object).where(np.arange(len(metadata)) >= 3, None)
    table = cohort_of_stack.predict_with_stack(stack, cohort.with_metadata(metadata.assign(status=unlabelled)))
    assert table["label"].isna().tolist() == [True] * 3 + [False] * (len(metadata) - 3)
    table = cohort_of_stack.predict_with_stack(stack, cohort.with_metadata(metadata.drop(columns="status")))
    assert table["label"].isna().all()
    assert any("The column 'label' stays empty: " in message for message in caplog.messages)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--target", "nothing"], "nothing"),
        (["--target", "grade:multiclass"], "a stack predicts two classes, found a multiclass target"),
        (["--members", "svm"], "expected different ones of"),
        (["--group-by", "nothing"], "no column 'nothing'"),
        (["-o", "{folder}/missing/a.safetensors"], "does not exist"),
        (["-o", "{folder}/taken"], "exists; choose another"),
    ],
)
def test_stack_fit_refuses_bad_options_in_one_line(
    cohort: RepertoireDataset, tmp_path: Path, deeprc: Command, changes: list[str], message: str
) -> None:
    (tmp_path / "taken").write_text("mine")
    options = ["--target", "status", "--members", MEMBERS, "-o", str(tmp_path / "a.safetensors")]
    code, _, err = deeprc(
        "stack", "fit", cohort.container.path, *options, *(each.format(folder=tmp_path) for each in changes)
    )
    assert code == 2
    assert err.startswith("Error: ")
    assert message in err
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
    assert (tmp_path / "taken").read_text() == "mine"


def test_a_model_of_another_kind_is_refused(
    fitted: Path, cohort: RepertoireDataset, tmp_path: Path, deeprc: Command
) -> None:
    (tmp_path / "no.safetensors").write_bytes(fitted.read_bytes()[:100])
    code, _, err = deeprc(
        "stack", "predict", tmp_path / "no.safetensors", cohort.container.path, "-o", tmp_path / "p.tsv"
    )
    assert code == 2
    assert "is damaged" in err
    (tmp_path / "p.tsv").write_text("mine\n")
    code, _, err = deeprc("stack", "predict", fitted, cohort.container.path, "-o", tmp_path / "p.tsv")
    assert code == 2
    assert "is not a table of this kind" in err
    assert (tmp_path / "p.tsv").read_text() == "mine\n"
