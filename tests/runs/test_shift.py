"""Runs say how far repertoires are from those that they were trained with."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from deeprc.cli.predict import predict
from deeprc.config import load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.known_repertoires import identify_repertoires
from deeprc.datasets.sequences import Sequences
from deeprc.evaluation.splits import SplitOptions
from deeprc.runs.assess import assess_predictor
from deeprc.runs.ensemble import load_ensemble
from deeprc.runs.experiment import train_run
from deeprc.runs.fitted import FittedModel
from deeprc.runs.run import Run, load_run
from deeprc.runs.shift import Shift, measure_shift
from deeprc.runs.shift_cautions import find_shift_cautions
from deeprc.shift.summary import summarise_training
from deeprc.training.estimator import DeepRCClassifier
from tests.toys.gene_repertoires import write_genes
from tests.toys.shift_cohorts import Recipe, draw_cohort, draw_repertoire, write_repertoires

SETTINGS = ["n_updates=4", "evaluate_every=4", "n_kernels=8", "n_sequences=40", "composition=false", "clones=false"]
TINY = load_config("deeprc", [*SETTINGS, "seeded_start=0"])


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    return draw_cohort(tmp_path_factory.mktemp("training") / "cohort.h5", 60, seed=1)


def train(cohort: RepertoireDataset, output: Path, **options: object) -> Run:
    keep = bool(options.pop("keep_sketches", True))
    seed = int(options.pop("seed", 0))  # type: ignore[call-overload]
    split = SplitOptions(folds=5, **options)  # type: ignore[arg-type]
    common = {"targets": "status=sick", "config": TINY, "device": "cpu", "keep_sketches": keep}
    return train_run(cohort.container.path, output, split=split, seed=seed, **common)


@pytest.fixture(scope="module")
def run(training: RepertoireDataset, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(training, tmp_path_factory.mktemp("runs") / "a")


@pytest.fixture
def old(run: Run, tmp_path: Path) -> Run:
    """The run as an earlier version would have written it."""
    shutil.copytree(run.path, tmp_path / "old")
    for name in ("shift.json", "sketches.safetensors"):
        (tmp_path / "old" / name).unlink()
    return load_run(tmp_path / "old", device="cpu")


def logged(caplog: pytest.LogCaptureFixture, call: Callable[[], pd.DataFrame]) -> tuple[pd.DataFrame, list[str]]:
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="deeprc.runs.predictor"):
        table = call()
    return table, [record.message for record in caplog.records if record.name == "deeprc.runs.predictor"]


@pytest.mark.slow
def test_test_repertoires_of_the_same_cohort_are_near(run: Run, training: RepertoireDataset) -> None:
    table = run.predict(training)
    assert table.columns.tolist()[-3:] == ["shift", "shift_reason", "resembles"]
    assert (table["shift"].notna() == (table["split"] == "test")).all()
    assert (table["shift"].dropna() > 1).sum() <= 2
    assert table["resembles"].isna().all()
    assert "shift" not in {each.name for each in assess_predictor(run, training).cautions if each.level == "warning"}


def test_a_cohort_of_less_depth_is_far(run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    new = draw_cohort(tmp_path / "new.h5", 6, seed=2, recipe=Recipe(depth=10), name="new")
    table, told = logged(caplog, lambda: run.predict(new))
    assert (table["shift"] > 1).all()
    assert table["shift_reason"].str.match(r"depth \d+ times lower \(3\d sequences, trained on 2\d\d to \d\d\d\)").all()
    assert table["probability"].notna().all()
    assert len(told) == 1
    assert told[0].startswith(
        "6 of the 6 new repertoires are unlike the training repertoires: their shift, the distance from these, is "
        "above 1. Of repertoires of the same kind, 1 in 20 is above 1 (expected here: 0.3). Reasons: depth in 6 "
        "repertoires, for example new."
    )
    assert run.predict(new, abstain=True)["probability"].isna().all()
    caution = next(each for each in assess_predictor(run, new).cautions if each.name == "shift")
    assert (caution.level, caution.text) == ("warning", told[0])
    assert caution.details["names"] == [f"new.{i}" for i in range(6)]


@pytest.mark.slow
def test_files_of_another_run_are_told_when_a_run_is_opened(
    run: Run, training: RepertoireDataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = train(training, tmp_path / "other", seed=1)

    def open_copy(*copied: str, missing: str | None = None) -> list[str]:
        folder = tmp_path / "copy"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(run.path, folder)
        for name in copied:
            shutil.copy(other.path / name, folder / name)
        if missing is not None:
            (folder / missing).unlink()
        caplog.clear()
        load_run(folder, device="cpu")
        return [message.replace(str(folder), "copy") for message in caplog.messages]

    told = "copy: these files are not as this run wrote them (changed, or of another run): "
    assert open_copy() == []
    assert open_copy("model.safetensors") == [f"{told}model.safetensors"]
    assert open_copy("predictions.tsv", "metrics.json") == [f"{told}predictions.tsv, metrics.json"]
    known = ("splits.json", "shift.json", "sketches.safetensors")
    assert open_copy(*known) == [f"{told}{', '.join(known)}"]
    assert open_copy("config.yaml") == []  # which a user may edit, such as the path of a cohort that has moved
    assert open_copy("model.safetensors", missing="files.json") == []  # as a run of an earlier version
    assert open_copy(missing="sketches.safetensors") == []
    (run.path / "files.json").rename(tmp_path / "files.json")
    text = (tmp_path / "files.json").read_text()
    for damaged, message in (("{", "is not JSON"), (text.replace("deeprc-files", "x"), "deeprc-files")):
        (run.path / "files.json").write_text(damaged)
        caplog.clear()
        load_run(run.path, device="cpu")
        (warning,) = caplog.messages
        assert message in warning
        assert warning.endswith("so it is not known whether results of this run were changed")
    (tmp_path / "files.json").replace(run.path / "files.json")


def test_another_chain_is_told_plainly(run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(4)
    repertoires = {
        f"{chain}.{i}": draw_repertoire(rng, Recipe(chain=chain)) for chain in ("TRA", "IGH") for i in (0, 1)
    }
    repertoires["TRB"] = draw_repertoire(rng, Recipe())
    mixed = write_repertoires(tmp_path / "mixed.h5", repertoires, status=["well", "sick", "well", "sick", "well"])
    told = logged(caplog, lambda: run.predict(mixed))[1][0]
    assert told == (
        "4 of the 5 new repertoires are of another chain than the training repertoires: TRA, trained on TRB (2); IGH, "
        "trained on TRB (2). The model has learned almost nothing about this chain, so do not use these predictions."
    )
    caution = next(each for each in assess_predictor(run, mixed).cautions if each.name == "another-chain")
    assert caution.details["names"] == list(repertoires)[:4]
    alone = logged(caplog, lambda: run.predict(mixed[[0]]))[1][0]
    assert alone.startswith(
        "The new repertoire is of another chain than the training repertoires: TRA, trained on TRB. "
    )


def test_repertoires_without_genes_are_of_no_other_chain(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sequences = replace(draw_repertoire(np.random.default_rng(4), Recipe()), v_call=None, j_call=None)
    new = write_repertoires(tmp_path / "new.h5", {"r": sequences})
    assert "another chain" not in " ".join(logged(caplog, lambda: run.predict(new))[1])


@pytest.mark.parametrize(
    ("beyond", "level", "told"),
    [
        ([1.5, 1.2], "note", "(expected here: 2). Reasons: depth in 2 repertoires, for example r0: less."),
        ([1.5], "note", "(expected here: 2). Reasons: depth in 1 repertoire, r0: less."),
        (
            [1.5, 2.5],
            "warning",
            "(expected here: 2). This number may be chance, but the shift is above 2 in 1 repertoire: r1. Reasons: "
            "depth in 2 repertoires, for example r1: less. Their predictions may be wrong, and the metrics of the "
            "training cohort do not hold for them.",
        ),
        (
            [1.5] * 12 + [2.5],
            "warning",
            "(expected here: 2). Reasons: depth in 13 repertoires, for example r4: less. Their",
        ),
    ],
)
def test_a_few_are_expected_beyond_the_level_but_not_far_beyond(beyond: list[float], level: str, told: str) -> None:
    distance = np.array(beyond + [0.5] * (40 - len(beyond)))
    reasons = [[("depth", "less")] if each > 1 else [] for each in distance]
    ids = np.array([f"r{i}" for i in range(40)], object)
    shift = Shift(ids, np.ones(40, np.bool_), distance, reasons, [None] * 40, 400, 0, 1, [])
    (caution,) = find_shift_cautions(shift)
    assert caution.level == level
    assert told in caution.text


def test_only_repertoires_beyond_the_level_are_left_empty(
    run: Run, training: RepertoireDataset, tmp_path: Path
) -> None:
    mixed = {f"new.{i}": training[i].sequences.take(np.arange(len(training[i]))) for i in range(3)}
    mixed["few"] = training[0].sequences.take(np.arange(8))
    new = write_repertoires(tmp_path / "new.h5", mixed)
    given = [run.path, new.container.path, "-o", tmp_path / "out.tsv", "--abstain", "--device", "cpu"]
    result = CliRunner().invoke(predict, list(map(str, given)))
    assert result.exit_code == 0, result.output
    assert "Wrote 4 predictions for 4 repertoires to" in result.output
    table = pd.read_csv(tmp_path / "out.tsv", sep="\t").set_index("repertoire_id")
    beyond = table["shift"] > 1
    assert beyond["few"]
    assert (table["probability"].isna() == beyond).all()
    assert (table["called_class"].isna() == beyond).all()
    assert f", {beyond.sum()} of them left empty" in result.output


@pytest.mark.slow
@pytest.mark.parametrize("keep_sketches", [True, False])
def test_a_training_repertoire_under_another_name_is_recognised(
    training: RepertoireDataset, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, keep_sketches: bool
) -> None:
    run = train(training, tmp_path / "run", keep_sketches=keep_sketches)
    assert (run.path / "sketches.safetensors").exists() == keep_sketches
    learned, tested = (training.select([run.splits[part][0]])[0] for part in ("train", "test"))
    own = learned.sequences.take(np.arange(len(learned)))
    shuffled = own.take(np.random.default_rng(0).permutation(len(own)))
    other = tested.sequences.take(np.arange(len(tested)))
    new = write_repertoires(tmp_path / "new.h5", {"same": own, "shuffled": shuffled, "other": other})
    table, told = logged(caplog, lambda: run.predict(new))
    known = f"{learned.repertoire_id} (100%)"
    assert table["resembles"].fillna("").tolist() == [known, known if keep_sketches else "", ""]
    (text,) = [text for text in told if "share" in text]
    n = 2 if keep_sketches else 1
    assert f"{n} of the 3 new repertoires share{'s' * (n == 1)} far more junctions" in text
    assert re.search(rf"same is like {learned.repertoire_id} \(100% of the junctions, usual \d\.\d%\)", text)


def test_genes_tell_copies_if_all_repertoires_have_the_same_junctions(tmp_path: Path) -> None:
    genes = [[f"TRBV{number}", f"TRBV{number + 1}"] for number in range(1, 21)]
    training = write_genes(tmp_path / "training.h5", [["CASSF", "CASSW"]] * 10, genes[:10])
    new = write_genes(tmp_path / "new.h5", [["CASSF", "CASSW"]] * 10, genes[10:])
    identities = dict(zip(training.repertoire_ids, identify_repertoires(training), strict=True))
    summary = replace(summarise_training(training, None), identities=identities)
    assert measure_shift([summary], new, ["new"] * 10).copies == [None] * 10
    copies = measure_shift([summary], training, ["new"] * 10).copies
    assert [each and each.repertoire_id for each in copies] == list(training.repertoire_ids)


def test_an_old_run_predicts_and_says_that_shift_is_unknown(
    old: Run, run: Run, training: RepertoireDataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    new = draw_cohort(tmp_path / "new.h5", 4, seed=2, name="new")
    table, told = logged(caplog, lambda: old.predict(new, abstain=True))
    assert told == [
        "It is not known how far new repertoires are from the training repertoires: the model has no summary of these "
        "(an earlier version trained it, it had fewer than 8 donors, or it was fitted in Python)."
    ]
    assert table["shift"].isna().all()
    assert table["probability"].tolist() == run.predict(new)["probability"].tolist()
    assert logged(caplog, lambda: old.predict(training[[0]]))[0]["split"].tolist() == [run.split_of(training[[0]])[0]]


@pytest.mark.slow
def test_runs_together_are_as_far_as_the_median_one(run: Run, training: RepertoireDataset, tmp_path: Path) -> None:
    """Of two runs, as the one that knows a repertoire less; of three, at least two must find it unusual."""
    deep, usual = (
        draw_cohort(tmp_path / f"{depth}.h5", 60, seed=5, recipe=Recipe(depth=depth)) for depth in (4000, 380)
    )
    others = [train(deep, tmp_path / "deep"), train(usual, tmp_path / "usual")]
    new = draw_cohort(tmp_path / "new.h5", 5, seed=6, name="new")
    alone = np.array([each.predict(new)["shift"] for each in (run, *others)])
    two = load_ensemble([run.path, others[0].path], device="cpu").predict(new)
    assert two["shift"].tolist() == alone[:2].max(axis=0).tolist()
    assert two["shift_reason"].str.startswith("depth ").all()
    three = load_ensemble([run.path, *(each.path for each in others)], device="cpu").predict(new)
    assert three["shift"].tolist() == np.median(alone, axis=0).tolist()
    assert (alone.max(axis=0) > 1).all()
    assert not three["shift_reason"].fillna("").str.startswith("depth ").any()


def test_runs_of_one_test_fold_have_one_summary(run: Run, training: RepertoireDataset, tmp_path: Path) -> None:
    second = train(training, tmp_path / "second", validation_fold=2)
    assert (second.path / "shift.json").read_bytes() == (run.path / "shift.json").read_bytes()
    assert "status" not in json.loads((run.path / "shift.json").read_text())


def test_a_fitted_model_with_its_cohort_knows_shift(training: RepertoireDataset, tmp_path: Path) -> None:
    labels = training.metadata["status"].to_numpy()
    estimator = DeepRCClassifier(overrides=[*SETTINGS, "seeded_start=0"], device="cpu").fit(training[:40], labels[:40])
    new = draw_cohort(tmp_path / "new.h5", 4, seed=2, recipe=Recipe(depth=10), name="new")
    cautions = {
        each.name: each for each in assess_predictor(FittedModel.of(estimator, "status", training), new).cautions
    }
    assert cautions["shift"].details["beyond"] == 4
    names = {each.name for each in assess_predictor(FittedModel.of(estimator, "status"), new).cautions}
    assert "shift" not in names
    assert "shift-unknown" in names


def test_sequences_without_genes_are_far_from_those_with_genes(
    run: Run, training: RepertoireDataset, tmp_path: Path
) -> None:
    whole = training[0].sequences
    bare = Sequences(np.array(whole.residues), np.array(training[0].offsets), np.array(whole.counts))
    table = run.predict(write_repertoires(tmp_path / "bare.h5", {"bare": bare}))
    assert table["shift_reason"][0].startswith("no V gene in 100%, trained on 0%; no J gene in 100%, trained on 0%")
