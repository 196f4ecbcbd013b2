"""The AIRR-ML-25 challenge's interface, on folders as the challenge gives them."""

import logging
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import roc_auc_score

from deeprc.airr_ml import COLUMNS, ImmuneStatePredictor, predict_immune_states, ranking
from deeprc.airr_ml import predictor as predictor_module
from deeprc.airr_ml.best_sequences import BestSequences
from deeprc.airr_ml.folders import convert, read_folder
from deeprc.airr_ml.ranked_cohort import RankedCohort, make_ranking
from deeprc.airr_ml.ranking import rank_sequences
from deeprc.airr_ml.sequence_scores import compute_sequence_scores
from deeprc.baselines.association_tests import compute_fisher_p_values
from deeprc.baselines.gapped import GappedKmerLogisticRegression, list_gapped_offsets
from deeprc.baselines.logistic import LogisticRegression
from deeprc.baselines.public_clones import PublicClones
from deeprc.benchmarking.cross_fitting import cross_fit
from deeprc.branches.composition import CompositionBranch
from deeprc.datasets.clones.clone_set import CloneSet
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.kmers import list_kmers
from deeprc.datasets.known_repertoires import identify_repertoires
from deeprc.errors import InputError, UnusableFiles
from deeprc.evaluation.excess import compute_excess_shares
from deeprc.nn.batch import Collator
from deeprc.nn.branches import Branches
from deeprc.nn.contributions import score_sequences
from deeprc.nn.inference import Inference
from deeprc.stacking import Stack
from deeprc.stacking.stack import MEMBERS
from deeprc.threads import count_cores
from deeprc.training.estimator import DeepRCClassifier
from tests.conftest import random_sequences
from tests.toys.clone_cohorts import Clone, write_repertoires
from tests.toys.toy_branches import Clones, with_branches

MOTIF = "WWHW"
KEY = ["junction_aa", "v_call", "j_call"]
SMALL = {"n_updates": 20, "evaluate_every": 10, "n_kernels": 8, "kernel_size": 4, "n_sequences": 40}
ATTENTION_ALONE = {**SMALL, "composition": False, "clones": False}
V_GENES, J_GENES = ["TRBV5-1*01", "TRBV6-2*01", "TRBV20-1*02"], ["TRBJ1-1*01", "TRBJ2-7*01"]


def write_folder(
    folder: Path, numbers: Sequence[int], *, sheet: str = "labels", n_sequences: int = 60, template: str = "templates"
) -> Path:
    """Write repertoires, each from its number alone; odd ones are positive, with the motif in a tenth."""
    folder.mkdir()
    rows = []
    for number in numbers:
        rng = np.random.default_rng(number)
        sequences = random_sequences(rng, n_sequences)
        if number % 2:
            sequences[::10] = [text[:2] + MOTIF + text[2:] for text in sequences[::10]]
        sequences += ["CASSPVWLICF", sequences[3]]
        table = pd.DataFrame({"junction_aa": sequences})
        table["v_call"] = rng.choice(V_GENES, len(table))
        table["j_call"] = rng.choice(J_GENES, len(table))
        table.loc[len(table) - 2 :, ["v_call", "j_call"]] = [V_GENES[0], J_GENES[0]]
        if template:
            table[template] = rng.geometric(0.4, len(table))
        table.to_csv(folder / f"rep-{number:02d}.tsv", sep="\t", index=False)
        rows.append((f"id{number}", f"rep-{number:02d}.tsv", number % 2 == 1, "a study"))
    table = pd.DataFrame(rows, columns=["repertoire_id", "filename", "label_positive", "study_group_description"])
    if sheet:
        table.drop(columns=[] if sheet == "labels" else ["label_positive"]).to_csv(folder / "metadata.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("challenge")
    write_folder(place / "train_1", range(30))
    write_folder(place / "test_1", range(100, 116), sheet="")
    write_folder(place / "test_2", [203, 201, 202, 200], sheet="ids")
    return place


@pytest.fixture(scope="module")
def predictor(folders: Path) -> ImmuneStatePredictor:
    return ImmuneStatePredictor(method="logistic").fit(folders / "train_1")


@pytest.fixture(scope="module")
def training(folders: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[RepertoireDataset, np.ndarray]:
    """The training folder as a container, and which repertoires are positive."""
    folder = read_folder(folders / "train_1", labelled=True)
    X, _ = convert(folder, tmp_path_factory.mktemp("container"), locus=None, jobs=1)
    return X, np.array([folder.labels[name] for name in X.repertoire_ids])


def rows_of(folder: Path) -> set[tuple[str, str, str]]:
    tables = [pd.read_csv(path, sep="\t") for path in folder.glob("*.tsv")]
    return {row for table in tables for row in zip(table.junction_aa, table.v_call, table.j_call, strict=True)}


def test_predictions_have_the_form_of_the_challenge(predictor: ImmuneStatePredictor, folders: Path) -> None:
    found = predictor.predict_proba(f"{folders}/test_1/")
    assert tuple(found.columns) == COLUMNS
    assert found["ID"].tolist() == [f"rep-{number}" for number in range(100, 116)]
    assert found["dataset"].unique().tolist() == ["test_1"]
    assert (found[["junction_aa", "v_call", "j_call"]] == -999.0).all(axis=None)
    assert found["label_positive_probability"].between(0, 1).all()
    assert roc_auc_score([number % 2 for number in range(100, 116)], found["label_positive_probability"]) == 1.0


def test_ids_are_the_sheets_in_its_order(predictor: ImmuneStatePredictor, folders: Path) -> None:
    found = predictor.predict_proba(folders / "test_2")
    assert found["ID"].tolist() == ["id203", "id201", "id202", "id200"]
    assert (found["label_positive_probability"] > 0.5).tolist() == [True, True, False, False]


def test_important_sequences_are_all_there_once_as_in_the_files(predictor: ImmuneStatePredictor, folders: Path) -> None:
    found = predictor.important_sequences_
    assert found is not None
    assert tuple(found.columns) == COLUMNS
    triples = list(zip(found.junction_aa, found.v_call, found.j_call, strict=True))
    assert len(triples) == len(set(triples))
    assert set(triples) == rows_of(folders / "train_1")
    assert found["ID"].tolist() == [f"train_1_seq_top_{i + 1}" for i in range(len(found))]
    assert found["dataset"].unique().tolist() == ["train_1"]
    assert (found["label_positive_probability"] == -999.0).all()
    assert found["junction_aa"][:90].str.contains(MOTIF).all()


def test_top_k_is_the_beginning_of_the_whole(predictor: ImmuneStatePredictor) -> None:
    few = predictor.identify_associated_sequences("other", 7)
    assert few["ID"].tolist() == [f"other_seq_top_{i}" for i in range(1, 8)]
    whole = predictor.important_sequences_
    assert whole is not None
    pd.testing.assert_frame_equal(few[list(COLUMNS[3:])], whole[list(COLUMNS[3:])].head(7))
    with pytest.raises(InputError, match="top_k: expected at least 1, found 0"):
        predictor.identify_associated_sequences("other", top_k=0)


@pytest.mark.slow
def test_a_second_fit_gives_the_same_sequences_and_probabilities(
    predictor: ImmuneStatePredictor, folders: Path
) -> None:
    again = ImmuneStatePredictor(method="logistic").fit(str(folders / "train_1"))
    pd.testing.assert_frame_equal(again.important_sequences_, predictor.important_sequences_)
    first, second = (one.predict_proba(folders / "test_1") for one in (again, predictor))
    pd.testing.assert_frame_equal(first, second)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["logistic", "gapped-logistic", "public-clones", "deeprc"])
def test_a_prediction_does_not_depend_on_the_other_repertoires(folders: Path, tmp_path: Path, method: str) -> None:
    predictor = ImmuneStatePredictor(method=method, **SMALL).fit(folders / "train_1")
    assert predictor.method_ == method
    whole = predictor.predict_proba(folders / "test_1").set_index("ID")["label_positive_probability"]
    write_folder(tmp_path / "some", [107, 103], sheet="")
    some = predictor.predict_proba(tmp_path / "some").set_index("ID")["label_positive_probability"]
    pd.testing.assert_series_equal(some, whole[["rep-103", "rep-107"]])
    assert len(predictor.identify_associated_sequences("x", 40)) == 40


@pytest.mark.slow
def test_auto_is_the_stack(folders: Path) -> None:
    predictor = ImmuneStatePredictor(**SMALL, n_folds=2).fit(folders / "train_1")
    assert predictor.method_ == "stack"
    found = predictor.cross_validated_auc_
    assert list(found) == ["stack", *MEMBERS]
    assert found["stack"] == found["logistic"] == 1.0
    assert found["public-clones"] == 0.5
    assert found["v-gene-usage"] < 0.9
    numbers = range(100, 116)
    probability = predictor.predict_proba(folders / "test_1")["label_positive_probability"]
    assert roc_auc_score([number % 2 for number in numbers], probability) == 1.0
    assert predictor.important_sequences_ is not None
    assert predictor.important_sequences_["junction_aa"][:60].str.contains(MOTIF).all()


def test_with_few_repertoires_nothing_is_compared(folders: Path) -> None:
    few = ImmuneStatePredictor()
    write_folder(folders / "few", range(6))
    assert few.fit(folders / "few").method_ == "gapped-logistic"
    assert few.cross_validated_auc_ == {}


def test_every_repertoire_gets_a_prediction(
    predictor: ImmuneStatePredictor, folders: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_folder(tmp_path / "odd", [100, 101], sheet="")
    header = "junction_aa\tv_call\tj_call\n"
    (tmp_path / "odd" / "a.tsv").write_text(header)
    (tmp_path / "odd" / "b.tsv").write_text("")
    (tmp_path / "odd" / "c.tsv").write_text(header + "CA*F\tTRBV2\tTRBJ1-1\nCXF\tTRBV2\tTRBJ1-1\n")
    (tmp_path / "odd" / "d.tsv").write_text(header + "CASF\tTRAV2\tTRAJ1\n")
    with caplog.at_level(logging.WARNING):
        found = predictor.predict_proba(tmp_path / "odd").set_index("ID")["label_positive_probability"]
    assert found.index.tolist() == ["a", "b", "c", "d", "rep-100", "rep-101"]
    assert found[["a", "b", "c", "d"]].tolist() == [0.5] * 4
    known = predictor.predict_proba(folders / "test_1").set_index("ID")["label_positive_probability"]
    assert found[["rep-100", "rep-101"]].tolist() == known[["rep-100", "rep-101"]].tolist()
    assert "4 repertoires without a sequence get the share of positive training repertoires, 0.500: a, b, c" in (
        caplog.text
    )


def test_a_folder_without_any_sequence_is_predicted(predictor: ImmuneStatePredictor, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("junction_aa\tv_call\tj_call\n")
    assert predictor.predict_proba(tmp_path)["label_positive_probability"].tolist() == [0.5]


def test_a_folder_without_genes_is_named_and_not_its_temporary_container(folders: Path, tmp_path: Path) -> None:
    predictor = ImmuneStatePredictor(method="public-clones").fit(folders / "train_1")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "a.tsv").write_text("junction_aa\nCASSPVWLICF\n")
    with pytest.raises(InputError) as error:
        predictor.predict_proba(tmp_path / "bare")
    assert str(error.value) == f"{tmp_path / 'bare'}: has no v_call, with which the clones were learned"


@pytest.mark.parametrize("rows", [["CASSLF", "CASSPF", "CAS*F"], []])
def test_the_sequences_of_a_test_folder_are_counted_alone(
    tmp_path: Path, rows: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "test").mkdir()
    (tmp_path / "place").mkdir()
    (tmp_path / "test" / "a.tsv").write_text("\n".join(["junction_aa", *rows]) + "\n")
    with caplog.at_level(logging.INFO):
        X, report = convert(read_folder(tmp_path / "test", labelled=False), tmp_path / "place", locus=None, jobs=1)
    n = len(rows[:2])
    assert (report.kept, report.rows_read, len(X)) == (n, len(rows), 1 if rows else 0)
    assert f"test: {n} sequences kept" in caplog.text


@pytest.mark.slow
def test_missing_files_are_left_out_of_training_and_predicted(
    folders: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, sheet in (("train", "labels"), ("test", "ids")):
        write_folder(tmp_path / name, range(12), sheet=sheet)
        (tmp_path / name / "rep-01.tsv").unlink()
    with caplog.at_level(logging.WARNING):
        predictor = ImmuneStatePredictor(method="logistic").fit(tmp_path / "train")
        found = predictor.predict_proba(tmp_path / "test").set_index("ID")["label_positive_probability"]
    assert caplog.text.count("1 of its files do not exist: rep-01.tsv") == 2
    assert found["id1"] == pytest.approx(5 / 11)
    assert len(found) == 12


@pytest.mark.parametrize("words", [("True", "False"), ("1", "0"), ("true", "FALSE"), ("1.0", "0.0")])
def test_labels(tmp_path: Path, words: tuple[str, str], caplog: pytest.LogCaptureFixture) -> None:
    folder = write_folder(tmp_path / "train", range(5))
    lines = [f"id{i},rep-{i:02d}.tsv,{words[0] if i % 2 else words[1]}" for i in range(4)]
    text = "\n".join(["repertoire_id,filename,label_positive", *lines, "id4,rep-04.tsv,\n"])
    (folder / "metadata.csv").write_text(text)
    with caplog.at_level(logging.WARNING):
        found = read_folder(folder, labelled=True)
    assert found.labels == {"id0": False, "id1": True, "id2": False, "id3": True}
    assert found.repertoire_ids == ("id0", "id1", "id2", "id3")
    assert caplog.messages[-1] == f"{folder / 'metadata.csv'}: 1 of its repertoires have no label and are left out: id4"


@pytest.mark.parametrize(("column", "counted"), [("templates", True), ("duplicate_count", True), ("", False)])
def test_counts(tmp_path: Path, column: str, counted: bool) -> None:
    folder = read_folder(write_folder(tmp_path / "train", range(2), template=column), labelled=True)
    (tmp_path / "place").mkdir()
    X, _ = convert(folder, tmp_path / "place", locus=None, jobs=1)
    table = pd.read_csv(tmp_path / "train" / "rep-01.tsv", sep="\t")
    assert X[1].counts.sum() == (table[column].sum() if counted else len(table))


def test_what_cannot_be_used_is_named(folders: Path, tmp_path: Path) -> None:
    bad: list[tuple[Callable[[], object], str]] = [
        (lambda: ImmuneStatePredictor(n_jobs=0), "n_jobs: expected at least 1, or -1 for all cores, found 0"),
        (lambda: ImmuneStatePredictor(method="svm"), "method: expected auto, stack, gapped-logistic, .* found 'svm'"),
        (lambda: ImmuneStatePredictor(n_folds=1), "n_folds: expected a whole number of at least 2, found 1"),
        (lambda: ImmuneStatePredictor(n_update=3), "unknown key 'n_update'; did you mean 'n_updates'"),
        (lambda: ImmuneStatePredictor(device="nowhere"), "`device=nowhere`: not available here"),
        (lambda: ImmuneStatePredictor().fit(tmp_path / "none"), "none: no such folder"),
        (lambda: ImmuneStatePredictor().fit(folders / "test_1"), r"test_1: has no metadata\.csv"),
        (lambda: ImmuneStatePredictor().fit(folders / "test_2"), "no column 'label_positive'; columns:"),
    ]
    for call, message in bad:
        with pytest.raises(InputError, match=message):
            call()
    with pytest.raises(RuntimeError, match="not been fitted"):
        ImmuneStatePredictor().predict_proba(folders / "test_1")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["a,rep-00.tsv,maybe", "b,rep-01.tsv,1"],
            "repertoire 'a': column 'label_positive': .* found 'maybe'",
        ),
        (["a,rep-00.tsv,1", "b,rep-01.tsv,1"], "expected both classes, found one or none"),
        (["a,rep-00.tsv,", "b,rep-01.tsv,"], "expected both classes, found one or none"),
        (["a,rep-00.tsv,1", "b,rep-00.tsv,0"], r"rep-00\.tsv belongs to two repertoires, 'a' and 'b'"),
        (["a,x.tsv,1", "b,y.tsv,0"], r"none of its 2 files exists, for example x\.tsv"),
        (["a,rep-00.tsv,1", "a,rep-01.tsv,0"], "same repertoire_id 'a'"),
        (["a,rep-00.tsv,1", "b,./rep-00.tsv,0"], r"rep-00\.tsv belongs to two repertoires, 'a' and 'b'"),
        (["a,/etc/passwd,1", "b,rep-01.tsv,0"], "repertoire 'a': expected a file of this folder, found '/etc/passwd'"),
        (["a,../x.tsv,1", "b,rep-01.tsv,0"], r"repertoire 'a': expected a file of this folder, found '\.\./x\.tsv'"),
        (["../a,,1", "b,rep-01.tsv,0"], r"repertoire '\.\./a': expected a file of this folder, found '\.\./a\.tsv'"),
    ],
)
def test_a_sheet_that_cannot_be_used_is_named(tmp_path: Path, lines: list[str], message: str) -> None:
    folder = write_folder(tmp_path / "train", range(2))
    (folder / "metadata.csv").write_text("\n".join(["repertoire_id,filename,label_positive", *lines]))
    with pytest.raises(InputError, match=rf"metadata\.csv: .*{message}"):
        ImmuneStatePredictor().fit(folder)


def test_files_are_named_by_paths_below_their_folder(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "train", range(2))
    (folder / "deep").mkdir()
    (folder / "rep-00.tsv").rename(folder / "deep" / "rep-00.tsv")
    lines = ["repertoire_id,filename,label_positive", "a,deep/rep-00.tsv,1", f"b,{folder / 'rep-01.tsv'},0"]
    (folder / "metadata.csv").write_text("\n".join(lines))
    expected = (folder / "deep" / "rep-00.tsv", folder / "rep-01.tsv")
    assert read_folder(folder, labelled=True).files == expected
    assert read_folder(folder / "deep" / "..", labelled=True).repertoire_ids == ("a", "b")


def test_what_is_missing_is_said_once(folders: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_folder(tmp_path / "train", range(12))
    text = (folder / "metadata.csv").read_text()
    (folder / "metadata.csv").write_text(text.replace("rep-00.tsv,False", "rep-00.tsv,").replace("rep-01", "none"))
    with caplog.at_level(logging.WARNING, "deeprc.airr_ml.folders"):
        predict_immune_states(folder, [folders / "test_1"], tmp_path / "out", method="logistic")
    sheet = folder / "metadata.csv"
    assert [record.getMessage() for record in caplog.records if record.name == "deeprc.airr_ml.folders"] == [
        f"{sheet}: 1 of its files do not exist: none.tsv",
        f"{sheet}: 1 of its repertoires have no label and are left out: id0",
    ]


def test_test_folders_need_different_names_and_another_folder_for_tables(folders: Path, tmp_path: Path) -> None:
    shutil.copytree(folders / "test_1", tmp_path / "test_1")
    for other in (folders / "test_1", folders / "." / "test_1", tmp_path / "test_1"):
        with pytest.raises(InputError, match=r"test_1: has the name of .*test_1; the column 'dataset' tells"):
            predict_immune_states(folders / "train_1", [folders / "test_1", other], tmp_path / "out")
    with pytest.raises(InputError, match="is a test folder, where tables would be taken for repertoires"):
        predict_immune_states(folders / "train_1", [tmp_path / "test_1"], tmp_path / "out" / ".." / "test_1")
    assert not (tmp_path / "out").exists()


def test_all_folders_are_looked_at_before_training(folders: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere: no such folder"):
        predict_immune_states(folders / "train_1", [folders / "test_1", "nowhere"], tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty: has neither \*\.tsv files nor metadata\.csv"):
        predict_immune_states(folders / "train_1", [tmp_path / "empty"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file: cannot be written to"):
        predict_immune_states(folders / "train_1", [folders / "test_1"], tmp_path / "file")


def test_a_folder_for_tables_is_deleted_if_training_fails(folders: Path, tmp_path: Path) -> None:
    train = tmp_path / "train"
    shutil.copytree(folders / "train_1", train)
    with (train / "rep-03.tsv").open("a") as file:
        file.write("cut\n")
    (tmp_path / "mine").mkdir()
    for out in (tmp_path / "a" / "b", tmp_path / "mine" / "b"):
        with pytest.raises(UnusableFiles) as raised:
            predict_immune_states(train, [folders / "test_1"], out, method="logistic")
        assert str(raised.value).endswith("Repair files with faults, or delete their rows in metadata.csv")
        assert "skip_bad_files" not in str(raised.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "train"]
    assert not any((tmp_path / "mine").iterdir())


@pytest.mark.parametrize("kind", ["pipe", "link to nothing", "link to itself"])
def test_a_repertoire_that_is_no_regular_file_is_predicted_and_named(
    predictor: ImmuneStatePredictor, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    write_folder(tmp_path / "test", [1], sheet="")
    _make_special(tmp_path / "test" / "odd.tsv", kind)
    (tmp_path / "test" / "folder.tsv").mkdir()
    found = predictor.predict_proba(tmp_path / "test").set_index("ID")["label_positive_probability"]
    assert found.index.tolist() == ["odd", "rep-01"]
    assert found["odd"] == 0.5
    assert "1 repertoires without a sequence get the share of positive training repertoires, 0.500: odd" in caplog.text


@pytest.mark.parametrize("kind", ["pipe", "link to nothing", "link to itself"])
@pytest.mark.parametrize("labelled", [True, False])
def test_a_sheet_that_is_no_regular_file_is_an_error(tmp_path: Path, kind: str, labelled: bool) -> None:
    folder = write_folder(tmp_path / "test", [1, 2], sheet="")
    _make_special(folder / "metadata.csv", kind)
    with pytest.raises(InputError, match=r"metadata\.csv: (is a pipe|no such file|cannot be read)"):
        read_folder(folder, labelled=labelled)


def test_a_folder_that_may_not_be_read_is_not_said_to_lack_its_sheet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    folder = write_folder(tmp_path / "train", [1, 2])
    monkeypatch.setattr(Path, "lstat", refuse)
    monkeypatch.setattr("deeprc.files.Path.stat", refuse)
    monkeypatch.setattr(Path, "is_dir", lambda _: True)
    with pytest.raises(InputError, match=r"metadata\.csv: cannot be read: Permission denied"):
        read_folder(folder, labelled=True)


def _make_special(path: Path, kind: str) -> None:
    if kind == "pipe":
        if not hasattr(os, "mkfifo"):
            pytest.skip("the system has no pipes with names")
        os.mkfifo(path)
    else:
        path.symlink_to("nothing" if kind == "link to nothing" else path.name)


def test_more_cores_than_there_are_change_nothing(folders: Path) -> None:
    assert ImmuneStatePredictor(n_jobs=10**20)._n_cores == count_cores()
    assert ImmuneStatePredictor(n_jobs=1)._n_cores == 1


def test_repertoires_without_a_sequence_are_named_by_their_folder(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "train", range(2))
    for path in folder.glob("*.tsv"):
        path.write_text("junction_aa\tv_call\tj_call\nC1F\t\t\n")
    with pytest.raises(InputError, match=f"^{re.escape(str(folder))}: none of its repertoires has a sequence"):
        ImmuneStatePredictor(method="logistic").fit(folder)


def kmer_sum(text: str, weights: dict[tuple[tuple[int, ...], str], float]) -> float:
    total = 0.0
    for places in {key[0] for key in weights}:
        for start in range(len(text) - places[-1]):
            total += weights.get((places, "".join(text[start + place] for place in places)), 0.0)
    return total


@pytest.mark.parametrize("gapped", [False, True])
def test_scores_of_logistic_regression_are_its_coefficients(
    training: tuple[RepertoireDataset, np.ndarray], gapped: bool
) -> None:
    X, y = training
    model = GappedKmerLogisticRegression(k=3, C=10.0) if gapped else LogisticRegression(C=10.0)
    model.fit(X, y)
    patterns = list_gapped_offsets(3, 1) if gapped else [(0, 1, 2, 3)]
    names = list_kmers(len(patterns[0]))
    every = [(places, name) for places in patterns for name in names]
    genes = [*model.v_names_, *model.j_names_] if gapped else []
    weights, of_gene = {}, dict.fromkeys(genes, 0.0)
    for feature, value in zip(model.features_.tolist(), model.coef_.tolist(), strict=True):
        if feature < len(every):
            weights[every[feature]] = value
        else:
            of_gene[genes[feature - len(every)]] = value
    assert len({places for places, _ in weights}) > gapped
    frame = X[3].to_frame()
    expected = [kmer_sum(text, weights) for text in frame["junction_aa"]]
    if gapped:
        expected += frame["v_call"].map(of_gene) + frame["j_call"].map(of_gene)
    np.testing.assert_allclose(compute_sequence_scores(model, X, 3)["coefficients"], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_scores_of_logistic_regression_add_up_to_a_decision(
    training: tuple[RepertoireDataset, np.ndarray],
) -> None:
    X, y = training
    model = GappedKmerLogisticRegression(C=1.0).fit(X, y)
    means = [compute_sequence_scores(model, X, i)["coefficients"].mean() for i in range(len(X))]
    np.testing.assert_allclose(model.intercept_ + np.array(means), model.decision_function(X), rtol=1e-5, atol=1e-5)


def test_scores_of_deeprc_without_branches_are_its_responses(training: tuple[RepertoireDataset, np.ndarray]) -> None:
    X, y = training
    model = DeepRCClassifier(overrides=ATTENTION_ALONE, device="cpu").fit(X, y)
    expected = score_sequences(Inference(model.model_.network, Collator(X, "none")), 2).responses[:, 0]
    found = compute_sequence_scores(model, X, 2)
    assert list(found) == ["attention"]
    assert found["attention"].tolist() == expected.tolist()


@pytest.fixture
def reads_composition(training: tuple[RepertoireDataset, np.ndarray]) -> DeepRCClassifier:
    """DeepRC with a branch of WWHW, for the positive class, and of AAAA, against it."""
    X, y = training
    model = DeepRCClassifier(overrides=ATTENTION_ALONE, device="cpu").fit(X, y)
    composition = CompositionBranch(1)
    weight = dict(zip(list_kmers(4), range(20**4), strict=True))
    composition.kmer_weights[0, weight[MOTIF]] = 2.0
    composition.kmer_weights[0, weight["AAAA"]] = -1.0
    branches = Branches([composition], 1)
    branches.gains.data.fill_(0.5)
    model.model_.network.branches = branches
    return model


def test_scores_of_deeprc_have_the_weights_of_the_composition(
    training: tuple[RepertoireDataset, np.ndarray], reads_composition: DeepRCClassifier
) -> None:
    X, y = training
    at = int(np.flatnonzero(y)[0])
    texts = X[at].to_frame()["junction_aa"]
    motifs = texts.map(lambda text: sum(text.startswith(MOTIF, i) for i in range(len(text))))
    alanines = texts.map(lambda text: sum(text.startswith("AAAA", i) for i in range(len(text))))
    assert motifs.sum() > 0
    found = compute_sequence_scores(reads_composition, X, at)
    assert list(found) == ["attention", "composition"]
    np.testing.assert_allclose(found["composition"], 2 * motifs - alanines, rtol=1e-6, atol=1e-6)
    reads_composition.model_.network.branches.gains.data.fill_(-0.5)
    assert list(compute_sequence_scores(reads_composition, X, at)) == ["attention"]  # it contributes to the other class


def best_rows(
    model: DeepRCClassifier, X: RepertoireDataset, positions: np.ndarray
) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the highest score of each sequence by each list, the first sequence first among equals."""
    best: dict[str, dict[tuple[str, ...], float]] = {}
    for at in positions.tolist():
        rows = list(X[at].to_frame()[KEY].itertuples(index=False, name=None))
        for name, scores in compute_sequence_scores(model, X, at).items():
            of_name = best.setdefault(name, {})
            for row, score in zip(rows, scores.tolist(), strict=True):
                of_name[row] = max(of_name.get(row, -np.inf), score)
    return best


def representations(model: DeepRCClassifier, X: RepertoireDataset) -> dict[tuple[str, ...], np.ndarray]:
    """Return what the network's kernels find in each sequence."""
    found = {}
    for at in range(len(X)):
        rows = X[at].to_frame()[KEY].itertuples(index=False, name=None)
        values = [model.model_.network.attend(batch)[0] for batch in model.model_.make_inference(X).iterate_batches(at)]
        found |= dict(zip(rows, torch.cat(values).double().detach().numpy(), strict=True))
    return found


def strongest_kernels(
    model: DeepRCClassifier, X: RepertoireDataset, *lists: Sequence[tuple[str, ...]]
) -> list[np.ndarray]:
    """Return the kernel that adds most to the linear output for each sequence, beside the mean of the last list."""
    output = model.model_.network.output_network
    gains = (output[-1].weight[0] * output[0].scale).double().detach().numpy()
    of_row = representations(model, X)
    values = [np.stack([of_row[row] for row in each]) for each in lists]
    return [((each - values[-1].mean(0)) * gains).argmax(1) for each in values]


@pytest.mark.slow
def test_lists_of_deeprc_are_merged_by_excess(
    training: tuple[RepertoireDataset, np.ndarray], reads_composition: DeepRCClassifier
) -> None:
    """Of its lists, that counts for a sequence in which positive repertoires exceed negative ones most.

    Sequences of the attention list are compared with those for which the same kernel responds most.
    """
    X, y = training
    positive, negative = (best_rows(reads_composition, X, np.flatnonzero(side)) for side in (y, ~y))
    weight = X.n_sequences[y].sum() / X.n_sequences[~y].sum()
    expected: dict[tuple[str, ...], float] = {}
    for name, of_row in positive.items():
        rows = sorted(of_row, key=lambda row: -of_row[row])
        scores, null = np.array([of_row[row] for row in rows]), np.array(list(negative[name].values()))
        kernels, of_null = np.zeros(len(rows)), np.zeros(len(null))
        if name == "attention":
            kernels, of_null = strongest_kernels(reads_composition, X, rows, list(negative[name]))
            assert len(np.unique(kernels)) > 1
        excess = np.zeros(len(rows))
        for kernel in np.unique(kernels):
            own, chance = kernels == kernel, null[of_null == kernel]
            excess[own] = compute_excess_shares(scores[own], chance, np.full(len(chance), weight))
        for row, share in zip(rows, excess.tolist(), strict=True):
            expected[row] = max(expected.get(row, 0.0), share)
    found = list(rank_sequences(reads_composition, X, y, 10**6)[KEY].itertuples(index=False, name=None))
    assert set(found[: len(expected)]) == set(expected)  # those of positive repertoires
    assert set(found[len(expected) :]).isdisjoint(expected)
    shares = [expected[row] for row in found[: len(expected)]]
    assert shares[0] > 0.5
    table = rank_sequences(reads_composition, X, y, 10**6)
    np.testing.assert_allclose(table["excess"][: len(expected)], shares, atol=1e-12)
    top = max(positive["composition"], key=lambda row: positive["composition"][row])
    assert found.index(top) < 100
    assert set(table["evidence"]) == {"attention", "composition"}
    assert all(a >= b - 1e-12 for a, b in pairwise(shares))
    assert all(MOTIF in row[0] for row in found[:10])


@pytest.mark.slow
def test_sequences_of_stored_clones_are_ranked_by_their_excess(
    training: tuple[RepertoireDataset, np.ndarray],
) -> None:
    """The motif is in positive repertoires, so it comes first; what is in both comes nowhere."""
    X, y = training
    model = DeepRCClassifier(overrides=ATTENTION_ALONE, device="cpu").fit(X, y)
    original = model.model_
    frames = pd.concat([one.to_frame() for one, label in zip(X, y, strict=True) if label])
    with_motif = frames.junction_aa.str.contains(MOTIF)
    n_motif = len(frames[with_motif].drop_duplicates(KEY))
    assert n_motif > 30
    model.model_ = with_branches(original, Clones(MOTIF, [0.1]))
    first = rank_sequences(model, X, y, 10**6).head(n_motif // 2)
    assert first.junction_aa.str.contains(MOTIF).all()
    model.model_ = with_branches(original, Clones("KK", [0.1]))
    first = rank_sequences(model, X, y, 10**6).head(100)
    assert first.junction_aa.str.contains("KK").mean() < 0.2
    without = rank_sequences(model, X, y, 10**6)
    model.model_ = with_branches(original, Clones("KK", [-0.1]))  # for the other class
    assert (compute_sequence_scores(model, X, 0)["clones"] == -np.inf).all()
    assert len(rank_sequences(model, X, y, 10**6)) == len(without)


@pytest.mark.slow
def test_a_list_that_other_repertoires_do_not_confirm_has_no_excess(
    training: tuple[RepertoireDataset, np.ndarray],
) -> None:
    """With the labels of the repertoires outside training exchanged, a list that finds the motif has no excess."""
    X, y = training
    model = DeepRCClassifier(overrides=ATTENTION_ALONE, device="cpu").fit(X, y)
    model.model_ = with_branches(model.model_, Clones(MOTIF, [0.1]))
    digests = np.array(identify_repertoires(X))
    held_out = np.zeros(len(X), bool)
    for label in (True, False):
        held_out[np.flatnonzero(y == label)[-6:]] = True
    model.train_digests_, model.validation_digests_ = digests[~held_out], digests[:0]
    known = rank_sequences(model, X, y, 10**6)
    turned = np.where(held_out, ~y, y)
    model.train_digests_ = digests
    every = rank_sequences(model, X, turned, 10**6)
    model.train_digests_ = digests[~held_out]
    refuted = rank_sequences(model, X, turned, 10**6)
    first = known.head(20)
    assert first.junction_aa.str.contains(MOTIF).all()
    assert first.excess.min() > 0.5
    assert every.excess.max() > 0.1  # most positive repertoires have the motif
    assert refuted.excess.max() == 0
    assert set(refuted["junction_aa"]) == set(every["junction_aa"])
    model.validation_digests_ = digests[held_out]  # those that early stopping watched, if there are no others
    assert rank_sequences(model, X, turned, 10**6).excess.max() == 0


@pytest.mark.slow
@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("public", [False, True])
def test_public_clones_confirm_no_others_with_their_motif(tmp_path: Path, public: bool, memory: bool) -> None:
    """In training, positive donors have the motif in sequences of their own; outside it, maybe in public clones only.

    Each donor has two repertoires with the same sequences. Without a memory, public clones are in no list but this one.
    """
    rng = np.random.default_rng(0)
    donors = np.repeat(np.arange(40), 2)
    y = donors % 2 == 1
    shared = ["CAS" + text + MOTIF + "F" for text in random_sequences(rng, 8)]
    of_donor: list[list[str]] = []
    for donor in range(40):
        texts = random_sequences(rng, 30)
        if donor % 2:
            texts += shared if donor >= 24 and public else [text + MOTIF for text in random_sequences(rng, 8)]
        of_donor.append(texts)
    repertoires = [[(text, V_GENES[0], J_GENES[0]) for text in of_donor[donor]] for donor in donors]
    X = write_repertoires(tmp_path / "c.h5", repertoires)
    overrides = {**ATTENTION_ALONE, "seeded_start": 0.0}  # so the attention has not learned the motif
    model = DeepRCClassifier(overrides=overrides, device="cpu").fit(X, y, groups=donors)
    composition = CompositionBranch(1)
    composition.kmer_weights[0, list_kmers(4).index(MOTIF)] = 2.0
    members = [composition, *([Clones("KKKK", [0.1])] if memory else [])]
    model.model_.network.branches = Branches(members, 1)
    model.model_.network.branches.gains.data.fill_(0.5)
    digests = np.array(identify_repertoires(X))
    model.train_digests_, model.validation_digests_ = digests[:48], digests[:0]
    found = rank_sequences(model, X, y, 10**6, groups=donors).set_index("junction_aa")
    own = of_donor[1][-8:]
    if public and memory:
        assert found.excess[own].max() == 0
        assert set(found.evidence[shared]) == {"association"}
        assert found.excess[shared].min() > 0.5
    else:
        assert found.excess[own].min() > 0.5
        assert set(found.evidence[own]) == {"composition"}


def test_a_memory_of_clones_scores_what_it_retrieves(training: tuple[RepertoireDataset, np.ndarray]) -> None:
    X, y = training
    model = DeepRCClassifier(overrides=ATTENTION_ALONE, device="cpu").fit(X, y)
    model.model_ = with_branches(model.model_, Clones("KK", [0.1]))
    texts = X[2].to_frame().junction_aa
    expected = np.where(texts.str.contains("KK"), 0.1, -np.inf)
    np.testing.assert_allclose(compute_sequence_scores(model, X, 2)["clones"], expected, rtol=1e-6)


def test_clones_beyond_the_memory_are_a_list_of_their_own(
    training: tuple[RepertoireDataset, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = training
    model = DeepRCClassifier(overrides=ATTENTION_ALONE, device="cpu").fit(X, y)
    responses = rank_sequences(model, X, y, 10**6)[KEY]
    row_of = {}
    for one in X:
        rows = one.to_frame()[KEY].itertuples(index=False, name=None)
        row_of |= {row: one.start + i for i, row in enumerate(rows)}
    clones = list(responses.iloc[200:203].itertuples(index=False, name=None))
    best = BestSequences(X, ["v_call", "j_call"], 10**6)
    best.add_candidates(np.array([row_of[row] for row in clones]), np.array([3.0, 2.0, 1.0]))
    found = make_ranking("association", best, np.array([1.0, 0.999, 0.998]))
    monkeypatch.setattr(RankedCohort, "_rank_clones", lambda *_: found)
    model.model_ = with_branches(model.model_, Clones("KK", [0.1]))
    merged = list(rank_sequences(model, X, y, 10**6)[KEY].itertuples(index=False, name=None))
    assert merged[:3] == clones
    assert len(merged) == len(set(merged)) == len(responses)


def test_public_clones_are_ranked_by_p_value(training: tuple[RepertoireDataset, np.ndarray]) -> None:
    X, y = training
    y = y.copy()
    model = PublicClones().fit(X, y)
    found = rank_sequences(model, X, y, 10**6)
    frames = pd.concat([one.to_frame().assign(positive=label) for one, label in zip(X, y, strict=True)])
    clones = frames.groupby(["junction_aa", "v_call", "j_call"])["positive"].agg(["sum", "size"])
    p = compute_fisher_p_values(clones["sum"], clones["size"], int(y.sum()), len(y))
    of = dict(zip(clones.index, p, strict=True))
    values = [of[key] for key in zip(found.junction_aa, found.v_call, found.j_call, strict=True)]
    assert len(values) == len(of)
    n = int((p < 0.5 - 1e-9).sum())
    assert all(a <= b for a, b in pairwise(values[:n]))
    assert max(values[:n], default=0.0) < 0.5 <= min(values[n:]) + 1e-9


def stack_votes(stack: Stack, X: RepertoireDataset, y: np.ndarray) -> Counter[tuple[str, ...]]:
    """Return share * excess / (60 + rank) of each sequence, summed over the lists of all members."""
    votes: Counter[tuple[str, ...]] = Counter()
    for member, share in stack.shares():
        for model in member.models:
            found = ranking._rank_by_clones_or_estimator(model, RankedCohort(X, y, 10**6))
            rows = CloneSet(X.take_clones(found.best.indices, ["v_call", "j_call"])).to_frame()
            places = rows[KEY].itertuples(index=False, name=None)
            for rank, (row, excess) in enumerate(zip(places, found.excess.tolist(), strict=True), 1):
                votes[row] += share / len(member.models) * max(excess, 1e-6) / (60 + rank)
    return votes


@pytest.mark.slow
def test_a_stack_adds_up_reciprocal_ranks(training: tuple[RepertoireDataset, np.ndarray]) -> None:
    """Each member's list counts by its share; public clones rank nothing but the clones that go with the label."""
    X, y = training
    stack = Stack(members=["gapped-logistic", "logistic", "public-clones"], n_folds=2).fit(X, y)
    stack.importance_ = np.array([0.25, 0.45, 0.3])
    frames = pd.concat([one.to_frame().assign(positive=label) for one, label in zip(X, y, strict=True)])
    clones = frames.groupby(KEY)["positive"].agg(["sum", "size"])
    p = compute_fisher_p_values(clones["sum"], clones["size"], int(y.sum()), len(y))
    cohort = RankedCohort(X, y, 10**6)
    public = ranking._rank_by_clones_or_estimator(stack.shares()[2][0].models[0], cohort)
    assert len(public.best) == (p < 0.5 - 1e-9).sum() < len(p)
    single = ranking._rank_by_estimator(stack.shares()[0][0].models[0], cohort)
    n_positive = len(frames[frames.positive].drop_duplicates(KEY))
    assert (single.excess[:n_positive] == 1).all()  # one list needs none
    assert (single.excess[n_positive:] == 0).all()
    expected = stack_votes(stack, X, y)
    merged = list(rank_sequences(stack, X, y, 10**6)[KEY].itertuples(index=False, name=None))
    assert len(merged) == len(set(merged)) == len(expected)
    scores = [expected[row] for row in merged]
    assert all(a >= b - 1e-12 for a, b in pairwise(scores))
    table = rank_sequences(stack, X, y, 10**6)
    assert set(table["method"]) <= {"gapped-logistic", "logistic", "public-clones"}
    assert ((table["method"] == "public-clones") == (table["evidence"] == "association")).all()
    few = list(rank_sequences(stack, X, y, 50)[KEY].itertuples(index=False, name=None))
    assert few[:20] == merged[:20]


@pytest.mark.long
def test_each_network_of_a_stack_has_its_own_list(training: tuple[RepertoireDataset, np.ndarray]) -> None:
    X, y = training
    stack = Stack(members=["deeprc", "logistic"], n_folds=2, overrides=ATTENTION_ALONE, device="cpu").fit(X, y)
    stack.importance_ = np.array([0.8, 0.2])
    expected = stack_votes(stack, X, y)
    scores = [expected[row] for row in rank_sequences(stack, X, y, 10**6)[KEY].itertuples(index=False, name=None)]
    assert len(scores) == len(expected)
    assert all(a >= b - 1e-12 for a, b in pairwise(scores))
    stack.importance_ = np.array([1.0, 0.0])
    together = rank_sequences(list(stack.shares()[0][0].models), X, y, 10**6)
    pd.testing.assert_frame_equal(
        together[[*KEY, "evidence", "excess"]], rank_sequences(stack, X, y, 10**6)[[*KEY, "evidence", "excess"]]
    )
    assert set(together["method"]) == {""}


def test_the_list_is_full_if_only_public_clones_count(training: tuple[RepertoireDataset, np.ndarray]) -> None:
    """What they know nothing about follows as another member ranks it."""
    X, y = training
    stack = Stack(members=["public-clones", "logistic"], n_folds=2).fit(X, y)
    stack.importance_ = np.array([0.7, -0.1])
    found = rank_sequences(stack, X, y, 50)
    alone = rank_sequences(stack.shares()[1][0].models[0], X, y, 50)
    pd.testing.assert_frame_equal(found[KEY], alone[KEY])  # no clone is shared
    assert found["method"].unique().tolist() == ["logistic"]
    assert found["evidence"].unique().tolist() == ["coefficients"]


def test_a_stack_whose_members_rank_nothing(training: tuple[RepertoireDataset, np.ndarray]) -> None:
    X, y = training
    stack = Stack(members=["v-gene-usage"], n_folds=2).fit(X, y)
    with pytest.raises(InputError, match="expected one that ranks sequences, found v-gene-usage"):
        rank_sequences(stack, X, y, 10)


def test_what_no_positive_repertoire_has_comes_last(training: tuple[RepertoireDataset, np.ndarray]) -> None:
    X, y = training
    found = rank_sequences(LogisticRegression().fit(X, y), X, y, 10**6)
    frames = pd.concat([one.to_frame() for one, label in zip(X, y, strict=True) if label])
    positive = set(zip(frames.junction_aa, frames.v_call, frames.j_call, strict=True))
    there = [key in positive for key in zip(found.junction_aa, found.v_call, found.j_call, strict=True)]
    assert there == sorted(there, reverse=True)
    assert sum(there) == len(positive) < len(there)


@pytest.mark.parametrize("most", [1, 5, 100, 10**6])
@pytest.mark.parametrize("piece", [7, 200])
def test_the_best_are_those_of_a_sort(training: tuple[RepertoireDataset, np.ndarray], most: int, piece: int) -> None:
    """Whatever the pieces; of a sequence that is offered often, the highest score counts."""
    X, _ = training
    rng = np.random.default_rng(0)
    numbers = rng.permutation(int(X.n_sequences.sum()))
    scores = rng.integers(0, 50, len(numbers)) + 0.0
    best = BestSequences(X, ["v_call", "j_call"], most)
    for start in range(0, len(numbers), piece):
        best.add_candidates(numbers[start : start + piece], scores[start : start + piece])
    frame = pd.concat([one.to_frame() for one in X], ignore_index=True).iloc[numbers].assign(score=scores)
    frame = frame.sort_values("score", ascending=False, kind="stable")
    expected = frame.drop_duplicates(["junction_aa", "v_call", "j_call"]).head(most)
    assert best.indices.tolist() == expected.index.tolist()


def test_donors_of_a_column_stay_together(
    folders: Path, tmp_path: Path, training: tuple[RepertoireDataset, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "train_1"
    shutil.copytree(folders / "train_1", folder)
    sheet = pd.read_csv(folder / "metadata.csv")
    sheet["donor"] = [None if i < 4 else f"d{i // 4}" for i in range(len(sheet))]
    sheet.to_csv(folder / "metadata.csv", index=False)
    seen = []

    def note(*args: object) -> object:
        seen.append(args[4:])
        return cross_fit(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(predictor_module, "cross_fit", note)
    ImmuneStatePredictor(method="logistic", group_by="donor").fit(folder)
    ((folds, groups),) = seen
    donors = dict(zip(sheet["repertoire_id"], sheet["donor"], strict=True))
    of_each = [donors[name] for name in training[0].repertoire_ids]
    assert len(set(groups.tolist())) == 4 + 7
    for donor in {f"d{number}" for number in range(1, 8)}:
        own = [other == donor for other in of_each]
        assert len(set(groups[own].tolist())) == len(set(folds[own].tolist())) == 1
    with pytest.raises(InputError, match=r"metadata\.csv: no column 'patient' for `group_by`; columns:"):
        ImmuneStatePredictor(group_by="patient").fit(folder)


def test_clones_of_one_donor_are_no_public_clones(tmp_path: Path) -> None:
    """Each donor has four repertoires with the same ten clones; those of positive donors go with nothing."""
    rng = np.random.default_rng(0)
    letters = list("ACDEFGHIKLMNPQRSTVWY")

    def draw(n: int) -> list[Clone]:
        return [("".join(rng.choice(letters, 11)), "TRBV1", "TRBJ1") for _ in range(n)]

    donors = np.repeat(np.arange(30), 4)
    y = donors % 2 == 1
    public, own = draw(1), [draw(10) for _ in range(30)]
    carries = y & (donors % 3 == 0)
    repertoires = [own[donor] + (public if here else []) + draw(5) for donor, here in zip(donors, carries, strict=True)]
    X = write_repertoires(tmp_path / "c.h5", repertoires)
    cohort, alone = RankedCohort(X, y, 200, donors), RankedCohort(X, y, 200)  # alone: each repertoire for itself
    assert X.take_clones(cohort.clones.best.indices).decode() == [public[0][0]]
    assert len(alone.clones.best) == 151
    texts = X.take_clones(np.arange(X.n_sequences.sum())).decode()
    of_donors = {clone[0] for clones in own for clone in clones}
    assert cohort.are_public(np.arange(len(texts))).tolist() == [text == public[0][0] for text in texts]
    assert alone.are_public(np.arange(len(texts))).tolist() == [
        text in of_donors or text == public[0][0] for text in texts
    ]
