"""`benchmarks/accuracy.py`: what it measures is true, and what has been measured is not measured again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from deeprc.airr_ml.ranking import rank_sequences
from deeprc.config import load_config
from deeprc.datasets.dataset import open_dataset
from deeprc.datasets.simulation import load_recipe
from deeprc.datasets.simulation.write import write_container
from deeprc.evaluation.auc_intervals import compute_auc_interval, compute_fold_aucs_interval
from deeprc.evaluation.splits import SplitOptions, make_split
from deeprc.runs.ensemble import RunEnsemble
from deeprc.runs.experiment import train_run
from deeprc.tasks import parse_tasks
from deeprc.training.estimator import DeepRCClassifier
from deeprc.training.trainer import Trainer
from tests.conftest import random_sequences, write_cohort

SMALL = ["n_repertoires=40", "sizes.mean=100", "sizes.sd=15", "sizes.minimum=1"]
BRIEF = ["n_updates=4", "evaluate_every=2", "n_sequences=50"]
LIGHT = [*BRIEF, "composition=false", "clones=false"]
FAST = ["--methods", "known-motif,svm,burden"]
Call = Callable[..., Any]


@pytest.fixture
def call(accuracy: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """Call the script; `ran` are the jobs that were run, `rows` those of its first table, `jobs` of `results.tsv`."""

    def run(*arguments: str, recipe: str | None = "simulated-0", overrides: list[str] = SMALL) -> Any:
        ran: list[tuple[str, int, int]] = []

        def measured(entry: Any, source: Any, dataset: Any, fold: int, *others: Any) -> Any:
            ran.append((entry.name, source.seed, fold))
            return inner(entry, source, dataset, fold, *others)

        inner = sys.modules["accuracy_jobs"].measure
        monkeypatch.setattr(accuracy, "measure", measured)
        options = ["--scale", "1", "--device", "cpu", "--output", str(tmp_path / "out")]
        options += [] if recipe is None else ["--recipes", recipe]
        result: Any = CliRunner().invoke(accuracy.main, [*options, *arguments, *overrides])
        result.ran = ran
        result.tables = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
        result.rows = result.tables[0]["rows"] if result.tables else []
        table = tmp_path / "out" / "results.tsv"
        result.jobs = pd.read_csv(table, sep="\t") if table.exists() else None
        return result

    return run


def auc_by_pairs(positive: list[float], negative: list[float]) -> float:
    pairs = [1.0 if p > n else 0.5 if p == n else 0.0 for p in positive for n in negative]
    return sum(pairs) / len(pairs)


@pytest.mark.slow
def test_known_motif_is_the_share_of_sequences_that_hold_it(call: Call, tmp_path: Path) -> None:
    rate = ["witness_rate=0.006"]
    result = call("--methods", "known-motif", "--seeds", "3,", "--folds", "0,2", overrides=[*SMALL, *rate])
    assert result.exit_code == 0, result.output

    cohort, mapping = load_recipe("simulated-0", [*SMALL, *rate], seed=3)
    write_container(cohort, tmp_path / "own.h5", recipe=mapping)
    dataset = open_dataset(tmp_path / "own.h5")
    expected = []
    for fold in (0, 2):
        split = make_split(dataset.metadata, parse_tasks(["status"], dataset.metadata), SplitOptions(fold=fold), seed=3)
        shares: dict[str, list[float]] = {"positive": [], "negative": []}
        for repertoire in dataset[split.test]:
            texts = repertoire.sequences.decode()
            shares[repertoire.metadata["status"]].append(sum("SFEN" in text for text in texts) / len(texts))
        expected.append(auc_by_pairs(shares["positive"], shares["negative"]))
    assert 0.5 < min(expected) < 1
    assert result.jobs["auc"].tolist() == pytest.approx(expected, abs=1e-12)
    (row,) = result.rows
    assert (row["jobs"], row["to_known_motif"]) == (2, 0.0)
    assert row["auc"] == pytest.approx(np.mean(expected))
    assert row["sd"] == pytest.approx(np.std(expected, ddof=1))


@pytest.mark.slow
def test_deeprc_is_trained_as_by_deeprc_train(call: Call, tmp_path: Path) -> None:
    frequent = [*SMALL, "witness_rate=0.3", "signals.0.motifs.0.noise=0.2"]
    alone = [*BRIEF, "composition=false"]  # so that the responses alone rank
    result = call("--methods", "deeprc", "--seeds", "1,", "--folds", "1", overrides=[*frequent, *alone])
    assert result.exit_code == 0, result.output
    (job,) = result.jobs.to_dict("records")

    cohort, mapping = load_recipe("simulated-0", frequent, seed=1)
    write_container(cohort, tmp_path / "own.h5", recipe=mapping)
    config = load_config("deeprc", alone)
    run = train_run(
        tmp_path / "own.h5", tmp_path / "run", targets=["status"], config=config, split=SplitOptions(fold=1), seed=1
    )
    test = json.loads((run.path / "metrics.json").read_text())["test"]["status"]
    assert job["auc"] == pytest.approx(test["auc"], abs=1e-12)
    assert [job["ci_low"], job["ci_high"]] == pytest.approx(test["auc_ci"])
    assert job["brier"] == pytest.approx(test["brier"], abs=1e-6)
    assert test["calibration_error"] is None  # of six repertoires
    assert np.isnan(job["calibration_error"])
    history = pd.read_csv(run.path / "history.tsv", sep="\t")
    best = history[history["update"] == history["best_update"].iloc[-1]].iloc[0]
    assert job["validation_loss"] == pytest.approx(best["validation_loss"])
    assert job["validation_auc"] == pytest.approx(best["validation_auc"])
    assert (job["updates"], job["best_update"]) == (4, best["update"])
    learned = open_dataset(tmp_path / "own.h5").select([*run.splits["train"], *run.splits["validation"]])
    classifier = DeepRCClassifier()
    classifier.model_ = run.model
    is_positive = (learned.metadata["status"] == "positive").to_numpy()
    truth = set()
    for repertoire in learned[np.flatnonzero(is_positive)]:
        truth |= {
            text for text, witness in zip(repertoire.sequences.decode(), repertoire.witness, strict=True) if witness
        }
    table = rank_sequences(classifier, learned, is_positive, 50_000)
    ranked = [text in truth for text in table["junction_aa"]]
    n = len(truth)
    assert job["true_sequences"] == n > 100
    shared = sum(ranked[:n])
    assert job["precision_at_true"] == pytest.approx(shared / n)
    assert job["jaccard"] == pytest.approx(shared / (2 * n - shared))
    precisions = [sum(ranked[: place + 1]) / (place + 1) for place in np.flatnonzero(ranked)]
    assert job["average_precision"] == pytest.approx(sum(precisions) / n)
    assert 0.2 < job["precision_at_true"] < 1
    holds = ["SFEN" in text for text in table["junction_aa"][:n]]
    assert 0.1 < job["motif_at_true"] == pytest.approx(sum(holds) / n)


@pytest.mark.long
def test_every_method_that_ranks_sequences_is_measured(call: Call) -> None:
    frequent = ["background={kind: germline}", "n_repertoires=60", "sizes.mean=200", "sizes.sd=0", "sizes.minimum=1"]
    methods = ["logistic", "gapped", "public-clones", "v-genes"]
    result = call("--methods", ",".join(methods), overrides=[*frequent, "witness_rate=0.1"])
    assert result.exit_code == 0, result.output
    jobs = result.jobs.set_index("method")
    ranked = ["Log. regr. (converged)", "Log. regr. (gapped k-mers)", "Public clones (Emerson)"]
    assert jobs.loc["V gene usage", "precision_at_true":"jaccard"].isna().all()
    assert (jobs.loc[ranked, "true_sequences"] == jobs.loc[ranked[0], "true_sequences"]).all()
    assert jobs.loc[ranked[0], "true_sequences"] == pytest.approx(24 * 20, rel=0.2)
    precision = jobs.loc[ranked, "precision_at_true"]
    assert precision.iloc[:2].min() > 0.5  # both read the motif
    assert precision.iloc[2] < 0.2  # no clone is shared
    for measure in ("average_precision", "jaccard"):
        assert jobs.loc[ranked, measure].between(0, 1).all()


def test_the_members_of_a_stack_have_rows_of_their_own(accuracy: Any) -> None:
    place = {"cohort": "one", "seed": 3, "fold": 2, "n_train": 60, "n_positive": 9, "n_negative": 11}
    found = {"auc": 0.8, "weight": 0.5, "share": 0.75, "test_auc": 0.7, "precision_at_true": 0.25}
    row = {**place, "entry": "stack", "method": "Stack", "auc": 0.9, "members": {"boosted": found}}
    whole, member = accuracy._add_member_rows(row)
    assert whole == row
    assert {name: member[name] for name in place} == place
    assert (member["entry"], member["method"]) == ("stack/boosted", "Stack: boosted")
    assert (member["auc"], member["validation_auc"]) == (0.7, 0.8)
    assert (member["weight"], member["share"], member["precision_at_true"]) == (0.5, 0.75, 0.25)
    assert accuracy._add_member_rows({**place, "entry": "svm", "auc": 0.6}) == [{**place, "entry": "svm", "auc": 0.6}]


@pytest.mark.long
def test_the_true_sequences_are_those_of_the_positive_class(call: Call, tmp_path: Path) -> None:
    signals = (
        "signals=[{name: own, motifs: [WHWH], witness_rate: 0.1}, "
        "{name: other, motifs: [MCMC], witness_rate: 0.1, status: negative}]"
    )
    overrides = [*SMALL, signals, "label_noise=0.3"]
    result = call("--methods", "logistic", "--seeds", "2,", overrides=overrides)
    assert result.exit_code == 0, result.output
    cohort, mapping = load_recipe("simulated-0", overrides, seed=2)
    write_container(cohort, tmp_path / "own.h5", recipe=mapping)
    dataset = open_dataset(tmp_path / "own.h5")
    split = make_split(dataset.metadata, parse_tasks(["status"], dataset.metadata), SplitOptions(), seed=2)
    expected = set()
    for repertoire in dataset[np.concatenate([split.train, split.validation])]:
        if repertoire.metadata["status"] == "positive":  # as it is recorded
            texts = repertoire.sequences.decode()
            expected |= {text for text, witness in zip(texts, repertoire.witness, strict=True) if witness == 1}
    assert result.jobs["true_sequences"].tolist() == [len(expected)]


@pytest.mark.long
def test_without_implanted_sequences_there_is_no_precision(call: Call) -> None:
    result = call("--methods", "logistic", overrides=[*SMALL, "signals=[]"])
    assert result.jobs["true_sequences"].tolist() == [0]
    assert result.jobs["precision_at_true"].isna().all()


@pytest.mark.long
def test_a_frequent_signal_is_not_ranked(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["accuracy_ranking"], "_MAX_TRUE", 50)
    result = call("--methods", "logistic", overrides=[*SMALL, "witness_rate=0.1"])
    (job,) = result.jobs.to_dict("records")
    assert job["true_sequences"] > 50
    assert np.isnan(job["precision_at_true"])


@pytest.mark.long
def test_a_test_part_is_tested(call: Call) -> None:
    shift = ["background={kind: germline}", "n_repertoires=80", "sizes.mean=200", "label_noise=0", "test_share=0.25"]
    shift += ["signals.0={kind: clones, n_clones: 20, burden: 8, test_burden: 0}"]
    result = call("--methods", "public-clones", recipe="clones-40-5", overrides=shift)
    assert result.exit_code == 0, result.output
    (job,) = result.jobs.to_dict("records")
    assert (job["n_train"], job["n_positive"], job["n_negative"]) == (48, 10, 10)
    assert job["auc"] == 0.5  # no test repertoire has a clone
    assert job["precision_at_true"] > 0.8
    assert np.isnan(job["motif_at_true"])  # its signal has none
    same = call("--methods", "public-clones", recipe="clones-40-5", overrides=[*shift, "signals.0.test_burden=8"])
    assert same.jobs["auc"].tolist() == [1.0]


@pytest.mark.long
def test_an_ensemble_is_four_trainings_with_another_fold_to_validate_on(call: Call, tmp_path: Path) -> None:
    frequent = [*SMALL, "witness_rate=0.3"]
    result = call("--methods", "deeprc,ensemble", "--seeds", "1,", "--folds", "1", overrides=[*frequent, *LIGHT])
    assert result.exit_code == 0, result.output
    alone, together = result.jobs.to_dict("records")
    assert together["method"] == "4 x DeepRC (deeprc)"

    cohort, mapping = load_recipe("simulated-0", frequent, seed=1)
    write_container(cohort, tmp_path / "own.h5", recipe=mapping)
    runs = [
        train_run(
            tmp_path / "own.h5",
            tmp_path / f"run-{other}",
            targets=["status"],
            config=load_config("deeprc", LIGHT),
            split=SplitOptions(fold=1, validation_fold=other),
            seed=1,
        )
        for other in (0, 2, 3, 4)
    ]
    aucs = [json.loads((run.path / "metrics.json").read_text())["test"]["status"]["auc"] for run in runs]
    assert json.loads(together["member_aucs"]) == pytest.approx(aucs, abs=1e-12)
    assert alone["auc"] == pytest.approx(aucs[1], abs=1e-12)  # fold 2 is the next one
    found = RunEnsemble(tuple(runs)).evaluate(open_dataset(tmp_path / "own.h5"))["test"]["status"]
    assert together["auc"] == pytest.approx(found["auc"], abs=1e-12)


@pytest.mark.long
def test_finished_jobs_are_not_computed_again(call: Call, tmp_path: Path) -> None:
    first = call(*FAST, "--seeds", "2")
    assert first.exit_code == 0, first.output
    names = ["known-motif", "svm", "burden"]
    assert first.ran == [(name, seed, 0) for seed in (0, 1) for name in names]
    table = (tmp_path / "out" / "table.md").read_text()

    second = call(*FAST, "--seeds", "2")
    assert second.ran == []
    assert second.stdout == first.stdout
    assert (tmp_path / "out" / "table.md").read_text() == table
    assert not (tmp_path / "out" / "cohort").exists()

    wider = call(*FAST, "--seeds", "2", "--folds", "0,1")
    assert wider.ran == [(name, seed, 1) for seed in (0, 1) for name in names]


@pytest.mark.long
def test_a_changed_setting_is_computed_anew(call: Call) -> None:
    overrides = [*SMALL, *LIGHT]
    both = ("--methods", "deeprc,known-motif")
    assert len(call(*both, overrides=overrides).ran) == 2
    assert call(*both, overrides=[*overrides, "learning_rate=0.01"]).ran == [("deeprc-deeprc", 0, 0)]
    assert len(call(*both, overrides=[*overrides, "witness_rate=0.5"]).ran) == 2
    assert len(call(*both, "--scale", "0.9", overrides=overrides).ran) == 2
    assert call(*both, overrides=overrides).ran == []


@pytest.mark.slow
def test_jobs_with_damaged_files_are_computed_again(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = call(*FAST)
    (whole,) = (tmp_path / "out" / "jobs").rglob("svm-*.json")
    whole.write_text(whole.read_text()[:-40])
    (other,) = (tmp_path / "out" / "jobs").rglob("burden-*.json")
    other.rename(other.with_name(f".{other.name}.partial"))
    second = call(*FAST)
    assert second.ran == [("svm", 0, 0), ("burden", 0, 0)]
    assert [row["auc"] for row in second.rows] == [row["auc"] for row in first.rows]

    inner = sys.modules["accuracy_jobs"]._choose_setting

    def killed(method: Any, *arguments: Any) -> Any:
        if method.name == "svm-minmax":
            raise KeyboardInterrupt
        return inner(method, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["accuracy_jobs"], "_choose_setting", killed)
        assert len(call(*FAST, "--seeds", "5,").ran) == 2
    (cohort,) = (tmp_path / "out" / "cohort").glob("*.h5")
    stamp = cohort.stat().st_mtime_ns
    assert call(*FAST, "--seeds", "5,", "--keep").ran == [("svm", 5, 0), ("burden", 5, 0)]
    assert cohort.stat().st_mtime_ns == stamp  # not written again
    call(*FAST, "--seeds", "6,")
    assert not (tmp_path / "out" / "cohort").exists()


@pytest.mark.long
def test_a_training_that_was_cut_off_goes_on(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments, overrides = ("--methods", "deeprc"), [*SMALL, *LIGHT]
    whole = call(*arguments, "--output", str(tmp_path / "whole"), overrides=overrides)
    assert whole.exit_code == 0, whole.output
    updates: list[int] = []
    inner = Trainer._evaluate_if_due

    def killed(trainer: Trainer) -> None:
        updates.append(trainer.state.update)
        if updates == [1, 2, 3]:
            raise KeyboardInterrupt
        inner(trainer)

    monkeypatch.setattr(Trainer, "_evaluate_if_due", killed)
    call(*arguments, overrides=overrides)
    jobs = tmp_path / "out" / "jobs"
    assert [path.name for path in jobs.rglob("*.checkpoints/*")] == ["0.safetensors"]
    result = call(*arguments, overrides=overrides)
    assert updates == [1, 2, 3, 3, 4]  # it goes on after update 2, which was evaluated
    assert [row["auc"] for row in result.rows] == [row["auc"] for row in whole.rows]
    assert [path.suffix for path in jobs.rglob("*") if path.is_file()] == [".json"]
    assert not [*jobs.rglob("*.checkpoints")]


@pytest.mark.long
def test_a_method_that_fails_does_not_stop_the_others(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = sys.modules["accuracy_jobs"]._choose_setting

    def failing(method: Any, *arguments: Any) -> Any:
        if method.name == "svm-minmax":
            raise ValueError("out of\nluck")
        return inner(method, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["accuracy_jobs"], "_choose_setting", failing)
        result = call(*FAST)
    assert result.exit_code == 1
    assert [row["method"] for row in result.rows] == ["Known motif (binary)", "Burden test"]
    assert "SVM (MinMax): failed: ValueError: out of luck\n" in result.stderr
    again = call(*FAST)
    assert (again.exit_code, again.ran) == (0, [("svm", 0, 0)])


@pytest.mark.long
def test_a_virtual_cohort_gives_the_same(call: Call, tmp_path: Path) -> None:
    every = ["--methods", "deeprc,known-motif,logistic,svm,burden"]
    overrides = [*SMALL, *BRIEF, "witness_rate=0.1"]
    stored = call(*every, overrides=overrides)
    virtual = call(*every, "--virtual", "--output", str(tmp_path / "virtual"), overrides=overrides)
    assert len(virtual.ran) == 5
    assert not (tmp_path / "virtual" / "cohort").exists()
    for one, other in zip(stored.rows, virtual.rows, strict=True):
        assert one["auc"] == other["auc"]
        assert other["true_sequences"] is None  # sequences are ranked in a container only
    assert stored.rows[0]["true_sequences"] > 50
    assert [row["method"] for row in stored.rows[:2]] == ["DeepRC (deeprc)", "Known motif (binary)"]


def test_looks_at_kept_seeds_are_listed(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["accuracy_looks"], "LOOKS", tmp_path / "looks.tsv")
    refused = call("--methods", "known-motif", "--seeds", "2,101")
    assert refused.exit_code == 2
    assert "--seeds 101: 100 to 105 are reserved for reports; say with --look for which one" in refused.stderr
    without = call("--methods", "known-motif", "--look", "a report")
    assert without.exit_code == 2
    assert "expected some of the seeds 100 to 105" in without.stderr
    assert not (tmp_path / "looks.tsv").exists()
    for reason in ("a report", "another\treport"):
        found = call("--methods", "known-motif", "--seeds", "101,", "--look", reason)
        assert found.exit_code == 0, found.output
    looks = pd.read_csv(tmp_path / "looks.tsv", sep="\t", dtype=str)
    assert looks["reason"].tolist() == ["a report", "another report"]
    assert looks.iloc[0][["cohorts", "seeds", "methods"]].tolist() == ["simulated-0", "101", "known-motif"]
    assert looks["options"][0] == f"deeprc {' '.join(SMALL)}"


def test_a_container_takes_the_place_of_recipes(call: Call, cohort_factory: Callable[..., Any]) -> None:
    dataset = cohort_factory()
    container, columns = dataset.container, list(dataset.metadata.columns)
    target = next(name for name in columns if dataset.metadata[name].nunique() == 2)
    options = ["--container", str(container.path), "--target", target]
    result = call(*options, *FAST, recipe=None, overrides=[])
    assert result.exit_code == 0, result.output
    assert [name for name, _, _ in result.ran] == ["svm", "burden"]
    assert "known-motif is left out" in result.stderr
    assert all(row["to_known_motif"] is None for row in result.rows)


@pytest.mark.long
def test_intervals_know_donors_and_common_training_repertoires(call: Call, tmp_path: Path) -> None:
    sheet = pd.DataFrame({"status": ["a", "a", "b", "b"] * 15, "subject_id": np.arange(60) // 2})
    rng = np.random.default_rng(0)
    write_cohort(tmp_path / "donors.h5", [random_sequences(rng, 20) for _ in range(60)], sheet)
    path = str(tmp_path / "donors.h5")
    method = ["--methods", "v-genes", "--folds", "all", "--seeds", "2"]
    result = call("--container", path, "--target", "status=b", *method, recipe=None, overrides=[])
    assert result.exit_code == 0, result.output
    (row,) = result.rows
    jobs = [json.loads(each.read_text())["outcome"] for each in sorted((tmp_path / "out").rglob("*-seed-*.json"))]
    tested = [{name: np.array(values) for name, values in job["tested"].items()} for job in jobs]
    arrays = [[each[name] for each in tested] for name in ("label", "score", "donor")]
    found = compute_fold_aucs_interval(*arrays, repeats=[0] * 5 + [1] * 5)
    assert [row["ci_low"], row["ci_high"]] == pytest.approx([found.low, found.high])
    sizes = [[job[name] for job in jobs] for name in ("n_positive", "n_negative")]
    low, high = compute_auc_interval(row["auc"], *sizes)
    assert found.high - found.low > 1.3 * (high - low)
    assert {donor for each in tested for donor in each["donor"]} == set(range(30))
    simulated = pd.DataFrame({"seed": [0, 0, 1, 1], "auc": 0.8, "n_positive": 10, "n_negative": 12})
    expected = compute_auc_interval(
        0.8, [10] * 4, [12] * 4, variance_factor=3
    )  # 1 + 2 / (2 - 1) for two folds of each cohort
    assert sys.modules["accuracy_intervals"].compute_mean_interval(simulated) == pytest.approx(expected)


@pytest.mark.slow
def test_means_over_cohorts(call: Call) -> None:
    result = call(
        "--methods", "known-motif,burden", "--recipes", "simulated-1", overrides=[*SMALL, "witness_rate=0.02"]
    )
    means = {row["method"]: row for row in result.tables[1]["rows"]}
    burden = [row for row in result.rows if row["method"] == "Burden test"]
    assert [row["cohort"] for row in burden] == ["simulated-0", "simulated-1"]
    differences = [row["to_known_motif"] for row in burden]
    assert means["Burden test"]["cohorts"] == 2
    assert means["Burden test"]["auc"] == pytest.approx(np.mean([row["auc"] for row in burden]))
    assert means["Burden test"]["worst_to_known_motif"] == min(differences)
    assert means["Burden test"]["worst_cohort"] == burden[int(np.argmin(differences))]["cohort"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--recipes", "simulated-99"], "no recipe 'simulated-99'; did you mean"),
        (["--recipes", "nothing-*"], "--recipes nothing-*: there is none"),
        (["--recipes", "implanted-om-1"], "--background FILE"),
        (["--preset", "papers"], "--config papers"),
        (["--methods", "knn"], "--methods knn: expected some of deeprc, ensemble, known-motif"),
        (["--seeds", "x"], "--seeds x: expected whole numbers"),
        (["--folds", "5"], "--folds 5: expected 0 to 4"),
        (["witness_rates=1"], "witness_rates: a key neither of recipes"),
        (["seed=1"], "seed: --seeds says it"),
        (["simulated-3"], "'simulated-3': expected KEY=VALUE"),
        (["n_updates=0"], "training.n_updates: expected at least 1"),
        (["--target", "status"], "--target, --group and --test are for a --container"),
        (["--container", "x.h5", "--target", "status"], "--container: takes the place of --recipes"),
    ],
)
def test_bad_options_are_refused_in_one_line(call: Call, arguments: list[str], message: str, tmp_path: Path) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert message in line
    assert not (tmp_path / "out").exists()
