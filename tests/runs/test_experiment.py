import json
import logging
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from torch import Tensor

import deeprc
from deeprc.config import TrainingConfig, load_config
from deeprc.datasets.container_file import update_checksum
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.known_repertoires import identify_repertoire
from deeprc.datasets.relabelling import relabel
from deeprc.errors import InputError
from deeprc.evaluation.splits import Split, SplitOptions
from deeprc.interpretation.attention import attention_table, compute_attention
from deeprc.interpretation.ranking import Ranking
from deeprc.runs import run_start
from deeprc.runs.experiment import describe_end, resume_run, train_run
from deeprc.runs.run import Run, load_run, write_splits
from deeprc.runs.run_start import check_output
from deeprc.runs.several_runs import RunOptions, RunPlan, train_runs
from deeprc.training import motif_start
from deeprc.training.state import TrainingState
from tests.conftest import Killed, killing
from tests.toys.repertoires import make_sequences, write_repertoires

SETTINGS = ["n_updates=30", "evaluate_every=10", "n_kernels=8", "kernel_size=4", "n_sequences=40", "n_heads=2"]
SMALL = load_config("deeprc", [*SETTINGS, "composition=false", "clones=false"])  # `test_branch_runs.py` has branches
TARGETS = ("status=case", "grade:multiclass@0.5", "age:regression@0.1")


@pytest.fixture(scope="module")
def run(cohort: RepertoireDataset, tmp_path_factory: pytest.TempPathFactory) -> Run:
    output = tmp_path_factory.mktemp("runs") / "a"
    return train_run(
        cohort.container.path, output, targets=TARGETS, config=SMALL, split=SplitOptions(folds=3), device="cpu"
    )


def test_the_run_directory_is_complete(run: Run, cohort: RepertoireDataset) -> None:
    assert sorted(path.name for path in run.path.iterdir()) == [
        "checks.json", "clones.tsv", "composition.tsv", "config.yaml", "environment.json", "files.json", "history.tsv",
        "metrics.json", "model.safetensors", "predictions.tsv", "seeds.tsv", "shift.json", "sketches.safetensors",
        "splits.json", "warnings.json",
    ]  # fmt: skip
    config = yaml.safe_load((run.path / "config.yaml").read_text())
    assert config["network"]["n_kernels"] == 8
    assert config["targets"] == list(TARGETS)
    assert [task["kind"] for task in config["tasks"]] == ["binary", "multiclass", "regression"]
    history = pd.read_csv(run.path / "history.tsv", sep="\t")
    assert history["update"].tolist() == [10, 20, 30]
    assert {"train_loss", "validation_loss", "validation_auc"} <= set(history.columns)
    packages = json.loads((run.path / "environment.json").read_text())["packages"]
    assert packages["torch"] == torch.__version__.partition("+")[0] or packages["torch"] == torch.__version__


def test_only_repertoires_that_the_run_has_not_used_have_intervals(run: Run, cohort: RepertoireDataset) -> None:
    """The run was fitted to the training repertoires, and chosen by the validation repertoires."""
    stored = json.loads((run.path / "metrics.json").read_text())
    for metrics in (stored, run.evaluate(cohort)):
        for split in ("train", "validation"):
            assert set(metrics[split]) == {"status=case", "grade", "age"}
            assert "_ci" not in json.dumps(metrics[split])
        test = metrics["test"]
        assert {len(test[name]["auc_ci"]) for name in ("status=case", "grade")} | {len(test["age"]["mae_ci"])} == {2}


def test_predictions_belong_to_their_ids(run: Run, cohort: RepertoireDataset) -> None:
    table = pd.read_csv(run.path / "predictions.tsv", sep="\t")
    columns = ["repertoire_id", "split", "target", "label", "probability", "positive_class", "called_class"]
    assert table.columns.tolist() == [*columns, "prediction", "shift", "shift_reason", "resembles", "donor"]
    named = table.dropna(subset="positive_class")[["target", "positive_class"]].drop_duplicates()
    assert dict(named.to_numpy()) == {
        "status=case": "case", "grade=high": "high", "grade=low": "low", "grade=mid": "mid",
    }  # fmt: skip
    assert table["repertoire_id"].drop_duplicates().tolist() == cohort.repertoire_ids.tolist()
    binary = table[table["target"] == "status=case"].reset_index(drop=True)
    assert (binary["label"] == (cohort.metadata["status"] == "case")).all()
    cutoff = json.loads((run.path / "metrics.json").read_text())["test"]["status=case"]["cutoff"]
    called = np.where(binary["probability"].astype(float) >= cutoff, "case", "healthy")
    assert binary["called_class"].tolist() == called.tolist()
    grades = table[table["target"].str.startswith("grade=")]
    likeliest = grades.loc[grades.groupby("repertoire_id")["probability"].idxmax()].set_index("repertoire_id")
    assert (grades["called_class"] == grades["repertoire_id"].map(likeliest["positive_class"])).all()
    assert table.loc[table["target"] == "age", "called_class"].isna().all()
    splits = json.loads((run.path / "splits.json").read_text())
    for side in ("train", "validation", "test"):
        assert set(binary.loc[binary["split"] == side, "repertoire_id"]) == set(splits[side])
    assert splits["digests"]["rep.3"] == identify_repertoire(cohort[3])
    classes = table[table["target"].str.startswith("grade=")]
    np.testing.assert_allclose(classes.groupby("repertoire_id")["probability"].sum(), 1, rtol=1e-6)
    age = table[table["target"] == "age"]
    assert age["probability"].isna().all()
    assert age["label"].isna().sum() == cohort.metadata["age"].isna().sum()


def test_predicting_in_another_order_gives_the_same_numbers(run: Run, cohort: RepertoireDataset) -> None:
    order = np.random.default_rng(0).permutation(len(cohort))
    table, shuffled = run.predict(cohort), run.predict(cohort[order])
    key = ["repertoire_id", "target"]
    merged = table.merge(shuffled, on=key, validate="one_to_one")
    np.testing.assert_allclose(merged["probability_x"].astype(float), merged["probability_y"].astype(float), rtol=1e-6)
    assert shuffled["repertoire_id"].drop_duplicates().tolist() == cohort.repertoire_ids[order].tolist()


def test_metrics_json_equals_evaluate(run: Run, cohort: RepertoireDataset) -> None:
    stored = json.loads((run.path / "metrics.json").read_text())
    assert list(stored) == ["train", "validation", "test"]
    again = load_run(run.path).evaluate(cohort)
    assert again["test"]["status=case"]["auc"] == stored["test"]["status=case"]["auc"]
    binary = stored["test"]["status=case"]
    assert binary["positive_class"] == "case"
    assert {"auc", "auc_ci", "f1", "balanced_accuracy", "accuracy", "loss", "n"} <= set(binary)
    assert binary["auc_ci"][0] <= binary["auc"] <= binary["auc_ci"][1]
    assert {"r2", "mae", "loss", "n"} <= set(stored["test"]["age"])
    assert sum(stored[side]["status=case"]["n"] for side in stored) == len(cohort)


def test_attention_sums_to_one_and_ranks(run: Run, cohort: RepertoireDataset) -> None:
    table = attention_table(run.model, cohort, 3)
    assert table.columns.tolist()[:5] == ["repertoire_id", "sequence_id", "junction_aa", "duplicate_count", "v_call"]
    assert len(table) == len(cohort[3])
    assert table["junction_aa"].tolist() == cohort[3].sequences.decode()
    for name in ("attention_weight", "attention_weight_1", "attention_weight_2"):
        assert table[name].sum() == pytest.approx(1, abs=1e-9)
    by_rank = table.sort_values("attention_rank")
    assert by_rank["attention_rank"].tolist() == list(range(1, len(table) + 1))
    assert by_rank["attention_weight"].is_monotonic_decreasing
    top = attention_table(run.model, cohort, 3, top=5, ranking=Ranking("attention"))
    pd.testing.assert_frame_equal(top, by_rank.head(5).reset_index(drop=True))
    heads = compute_attention(run.model, cohort, 3, top=5).heads
    assert heads["head"].tolist() == [1, 2]
    for head, size in zip(heads["head"], heads["metastable_size"], strict=True):
        largest = table[f"attention_weight_{head}"].sort_values(ascending=False).cumsum()
        assert size == (largest < 0.9).sum() + 1


def test_a_cohort_without_labels_is_predicted(run: Run, cohort_factory: object) -> None:
    new = cohort_factory(6, 20, seed=9)  # type: ignore[operator]
    new.container.metadata = new.container.metadata[["patient_id"]]
    new.container.repertoire_ids[:] = [f"new.{i}" for i in range(6)]
    table = run.predict(new)
    assert table["label"].isna().all()
    assert set(table["split"]) == {"new"}
    with pytest.raises(InputError, match="no repertoire has a label"):
        run.evaluate(new)


def test_a_new_repertoire_with_a_known_id_is_new(
    run: Run,
    cohort: RepertoireDataset,
    cohort_factory: Callable[..., RepertoireDataset],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert set(run.split_of(cohort_factory(30, 60, seed=5))) == {"new"}
    told = f"30 repertoires have the id of one that {run.path} was trained with, but other content: they count as new"
    assert told in caplog.text
    assert set(run.split_of(cohort)) == {"train", "validation", "test"}


def test_an_existing_folder_is_never_touched(run: Run, cohort: RepertoireDataset, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    for folder in (run.path, tmp_path):
        before = sorted(path.name for path in folder.iterdir())
        with pytest.raises(InputError, match="exists already"):
            train_run(cohort.container.path, folder, targets=TARGETS, config=SMALL)
        assert sorted(path.name for path in folder.iterdir()) == before


def test_a_bad_target_leaves_no_folder(cohort: RepertoireDataset, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no metadata column 'CMV'"):
        train_run(cohort.container.path, tmp_path / "run", targets=["CMV"])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["M\udcfcnchen.h5", "a\x85b.h5", "\u202ea.h5"])  # the first is not UTF-8
def test_a_path_that_a_run_could_not_note_is_refused_before_the_training(name: str, tmp_path: Path) -> None:
    cohort, output = tmp_path / name, tmp_path / "run"
    calls: list[Callable[[], object]] = [
        lambda: train_run(cohort, output, targets="status=case", device="cpu"),
        lambda: train_runs(cohort, output, {"a": RunPlan(SplitOptions())}, RunOptions(targets=("status=case",))),
    ]
    for call in calls:
        with pytest.raises(InputError, match="expected UTF-8 without control characters"):
            call()
    assert not output.exists()


@pytest.mark.slow
def test_straddling_subjects_are_warned_of(
    cohort: RepertoireDataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        train_run(cohort.container.path, tmp_path / "a", targets=["status"], config=SMALL, split=SplitOptions(folds=3))
        assert "'patient_id' have repertoires in more than one part" in caplog.text
        caplog.clear()
        train_run(
            cohort.container.path,
            tmp_path / "b",
            targets=["status"],
            config=SMALL,
            split=SplitOptions(folds=3, group_by="patient_id"),
        )
        assert "more than one part" not in caplog.text


def test_hidden_singletons_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sequences = make_sequences(["CASSF", "CATTF", "CAWWF"], [1, 1, 2])
    write_repertoires(tmp_path / "c.h5", [sequences] * 12, {"status": ["a", "b"] * 6})
    config = load_config("paper", ["n_updates=1"])
    with caplog.at_level(logging.WARNING):
        train_run(tmp_path / "c.h5", tmp_path / "run", targets="status", config=config, split=SplitOptions(folds=3))
    assert "abundance=log hides the residues of the 67% of sequences seen once" in caplog.text


def test_a_run_resumes_to_the_same_files(cohort: RepertoireDataset, tmp_path: Path) -> None:
    arguments = {"targets": ["status"], "config": SMALL, "split": SplitOptions(folds=3), "device": "cpu"}
    train_run(cohort.container.path, tmp_path / "whole", **arguments)  # type: ignore[arg-type]
    with pytest.raises(Killed):
        train_run(cohort.container.path, tmp_path / "cut", progress=killing(17), **arguments)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"training has not ended; continue it with `resume_run`"):
        load_run(tmp_path / "cut")
    (tmp_path / "mine.json").touch()
    (tmp_path / "cut" / "files.json").symlink_to(tmp_path / "mine.json")
    with pytest.raises(InputError, match=r"cut/files\.json: is a link that leads out of .*/cut;"):
        resume_run(tmp_path / "cut")
    (tmp_path / "cut" / "files.json").unlink()
    resume_run(tmp_path / "cut")
    for name in ("metrics.json", "predictions.tsv", "splits.json"):
        assert (tmp_path / "cut" / name).read_text() == (tmp_path / "whole" / name).read_text()
    history = [
        pd.read_csv(tmp_path / run / "history.tsv", sep="\t").drop(columns="seconds") for run in ("cut", "whole")
    ]
    pd.testing.assert_frame_equal(*history)
    with pytest.raises(InputError, match="nothing to resume"):
        resume_run(tmp_path / "cut")
    with pytest.raises(InputError, match=r"cut: exists already; it is a finished run; choose another `output`$"):
        check_output(tmp_path / "cut")


@pytest.mark.slow
def test_only_one_process_trains_a_run(cohort: RepertoireDataset, tmp_path: Path) -> None:
    arguments = {"targets": ["status"], "config": SMALL, "split": SplitOptions(folds=3), "device": "cpu"}
    refused = []

    def second(state: TrainingState, _: Tensor) -> None:
        if state.update == 5:
            for begin in (resume_run, lambda run: train_run(cohort.container.path, run, **arguments)):
                with pytest.raises(InputError) as error:
                    begin(tmp_path / "run")
                refused.append(str(error.value))
            raise Killed

    with pytest.raises(Killed):
        train_run(cohort.container.path, tmp_path / "run", progress=second, **arguments)  # type: ignore[arg-type]
    assert refused == [
        f"{tmp_path}/run: another process is training this run; wait until it has ended",
        f"{tmp_path}/run: exists already; continue it with `resume_run`, or choose another `output`",
    ]
    resume_run(tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoint").exists()


def test_a_run_that_another_process_has_begun_meanwhile_is_left_alone(
    cohort: RepertoireDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_as_another(folder: Path, split: Split, dataset: RepertoireDataset) -> None:
        write_splits(folder, split, dataset)
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "config.yaml").write_text("of another process")

    monkeypatch.setattr(run_start, "write_splits", write_as_another)
    with pytest.raises(InputError, match="run: another process has started a run; choose another `output`"):
        train_run(
            cohort.container.path, tmp_path / "run", targets=["status"], config=SMALL, split=SplitOptions(folds=3)
        )
    assert [path.name for path in tmp_path.rglob("*")] == ["run", "config.yaml"]


@pytest.mark.slow
def test_a_changed_column_of_the_split_is_not_resumed(cohort: RepertoireDataset, tmp_path: Path) -> None:
    """The donors decide what the branches learn, even if the parts of the split are the same."""
    ids = cohort.metadata[["status"]].assign(repertoire_id=cohort.repertoire_ids)
    site = np.where(np.arange(len(cohort)) < 6, "north", "south")
    sheet = ids.assign(donor=[f"d{i // 2}" for i in range(len(cohort))], site=site, day=1)
    options = SplitOptions(folds=3, group_by="donor", test="site=north")

    def write(name: str, **changes: object) -> Path:
        sheet.assign(**changes).to_csv(tmp_path / "sheet.tsv", sep="\t", index=False)
        relabel(cohort.container.path, tmp_path / "sheet.tsv", tmp_path / name)
        return tmp_path / name

    train_run(write("c.h5"), tmp_path / "run", targets=["status"], config=SMALL, split=options)
    settings = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert settings["split_columns"].keys() == {"donor", "site"}
    (tmp_path / "run" / "metrics.json").unlink()
    for name, values in {"donor": [f"x{i // 2}" for i in range(len(cohort))], "site": site[::-1]}.items():
        expected = rf"changed-{name}\.h5: its column '{name}', on which the split depends, has changed since .*run was"
        with pytest.raises(InputError, match=expected):
            resume_run(tmp_path / "run", cohort=write(f"changed-{name}.h5", **{name: values}))
    settings["split_columns"] = {}
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump(settings))  # as a run of an earlier version
    resume_run(tmp_path / "run", cohort=write("day.h5", day=2))


@pytest.mark.slow
def test_a_changed_container_is_not_resumed(
    cohort: RepertoireDataset, cohort_factory: Callable[..., RepertoireDataset], tmp_path: Path
) -> None:
    train_run(cohort.container.path, tmp_path / "run", targets=["status"], config=SMALL, split=SplitOptions(folds=3))
    (tmp_path / "run" / "metrics.json").unlink()
    other = tmp_path / "changed.h5"
    other.write_bytes(cohort.container.path.read_bytes())
    with h5py.File(other, "r+") as file:
        file["residues"][100] = (file["residues"][100] + 1) % 20
    update_checksum(other)
    with pytest.raises(InputError, match=r"its repertoires or labels have changed since .*run was started"):
        resume_run(tmp_path / "run", cohort=other)
    with pytest.raises(InputError, match=r"no repertoire 'rep\.\d+', which .*splits\.json names"):
        resume_run(tmp_path / "run", cohort=cohort_factory(6, 20).container.path)


def test_another_version_is_refused(run: Run, tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    text = (run.path / "config.yaml").read_text()
    (old / "config.yaml").write_text(text.replace("version: 2", "version: 7", 1))
    with pytest.raises(InputError, match=r"config\.yaml: expected format 'deeprc-run' version 2, found .* version 7"):
        load_run(old)
    (old / "config.yaml").write_text("format: deeprc-run\nversion: 2\n")
    with pytest.raises(InputError, match=r"config\.yaml: network: is missing"):
        load_run(old)
    (old / "config.yaml").write_text(text.replace("test: null", "test: batch", 1))
    with pytest.raises(InputError, match=r"config\.yaml: `test=batch`: expected COLUMN=VALUE"):
        load_run(old)
    with pytest.raises(InputError, match=r"is not a run directory"):
        load_run(tmp_path)


def test_no_pickle_is_written(run: Run) -> None:
    for path in run.path.iterdir():
        assert path.suffix in {".json", ".yaml", ".tsv", ".safetensors"}


def test_the_python_interface(run: Run, cohort: RepertoireDataset) -> None:
    dataset = deeprc.open(cohort.container.path)
    assert deeprc.load(run.path).predict(dataset[:2])["repertoire_id"].unique().tolist() == ["rep.0", "rep.1"]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        deeprc.nothing  # noqa: B018


@pytest.mark.parametrize(
    ("state", "settings", "text"),
    [
        ((750, 0.4, 500), {}, "stopped early at 750 of 1000 updates, best at 500: no better validation loss in the 5"),
        (
            (750, 0.0009, 700),
            {},
            "stopped early at 750 of 1000 updates, best at 700: the validation loss cannot fall by",
        ),
        ((1000, 0.4, 950), {}, "trained for all 1000 updates, best at 950"),
        ((1000, 0.4, 0), {}, "trained for all 1000 updates, best at the start"),
        ((1000, 0.4, 500), {"patience": None}, "trained for all 1000 updates, best at 500"),
    ],
)
def test_the_end_of_a_training_is_said(state: tuple[int, float, int], settings: dict[str, None], text: str) -> None:
    update, best_loss, best_update = state
    ended = TrainingState(update=update, best_loss=best_loss, best_update=best_update, finished=True)
    training = TrainingConfig(**{"n_updates": 1000, "patience": 5, **settings})  # type: ignore[arg-type]
    assert describe_end(ended, training).startswith(text)


@pytest.mark.slow
def test_a_run_says_how_its_training_began_and_ended(
    cohort: RepertoireDataset, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(motif_start, "MIN_DONORS", 20)
    config = load_config(
        "deeprc",
        ["n_updates=30", "evaluate_every=1", "patience=1", "n_kernels=4", "kernel_size=4", "composition=false"],
    )
    run = train_run(
        cohort.container.path,
        tmp_path / "run",
        targets="status",
        config=config,
        split=SplitOptions(folds=3),
        device="cpu",
    )
    history = pd.read_csv(run.path / "history.tsv", sep="\t").iloc[-1]
    last, best = int(history["update"]), int(history["best_update"])
    end = f"stopped early at {last} of 30 updates" if last < 30 else "trained for all 30 updates"
    assert f"{end}, best at {best or 'the start'}" in caplog.text
    assert "training repertoires, and the search needs at least 20." in caplog.text
