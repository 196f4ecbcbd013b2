"""Copies and samples of one person are grouped, and a comparison or a training says if it separates them."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from deeprc.benchmarking.harness import benchmark
from deeprc.benchmarking.options import BenchmarkOptions
from deeprc.checks.cautions import find_duplicate_cautions
from deeprc.checks.container import check_dataset
from deeprc.checks.findings import Finding
from deeprc.checks.joined_donors import name_joined_donors
from deeprc.cli.check import check
from deeprc.config import load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.evaluation.caution import read_cautions
from deeprc.evaluation.splits import SplitOptions
from deeprc.runs.experiment import train_run
from tests.toys.shift_cohorts import Recipe, draw_repertoire, write_repertoires

N = 30
SETTINGS = ["n_updates=2", "evaluate_every=2", "n_kernels=8", "n_sequences=20", "composition=false", "clones=false"]


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """The repertoires r0 to r29. The last three are copies: r27 of r0 in another order and without counts, r28 and r29
    of a half and the whole of r1. The batch follows the label in 27 of 30.
    """
    rng = np.random.default_rng(4)
    drawn = {f"r{i}": draw_repertoire(rng, Recipe(depth=100)) for i in range(N)}
    order = rng.permutation(len(drawn["r0"]))
    drawn["r27"] = drawn["r0"].take(order)
    drawn["r28"] = drawn["r1"].take(np.arange(len(drawn["r1"]) // 2))
    drawn["r29"] = drawn["r1"].take(np.arange(len(drawn["r1"])))
    status = np.array(["well", "sick"] * (N // 2))
    batch = np.where(np.isin(np.arange(N), [4, 9, 14]), status == "well", status == "sick")
    return write_repertoires(
        tmp_path_factory.mktemp("duplicates") / "cohort.h5", drawn, status=status, batch=np.where(batch, "B1", "B2")
    )


def test_repertoires_that_share_too_much_are_of_one_subject(cohort: RepertoireDataset) -> None:
    names = name_joined_donors(check_dataset(cohort, targets=["status=sick"]))
    of = dict(zip(cohort.repertoire_ids.tolist(), names, strict=True))
    assert of["r0"] == of["r27"] == "r0"
    assert of["r1"] == of["r28"] == of["r29"] == "r1"
    assert len(set(names)) == N - 3


@pytest.mark.slow
def test_known_subjects_are_joined(cohort: RepertoireDataset, tmp_path: Path) -> None:
    drawn = {str(name): repertoire.sequences.take(np.arange(len(repertoire))) for name, repertoire in
             zip(cohort.repertoire_ids, cohort, strict=True)}  # fmt: skip
    donors: list[str | None] = [None] * N
    donors[27], donors[5], donors[6] = "anna", "anna", "r9"
    known = write_repertoires(tmp_path / "known.h5", drawn, status=["well", "sick"] * (N // 2), subject_id=donors)
    names = name_joined_donors(check_dataset(known, targets=["status=sick"]))
    assert names[0] == names[27] == names[5]
    assert (names[6], names[9]) == ("r9", "r9 (repertoire)")


@pytest.mark.slow
def test_the_sheet_with_subjects_is_written(cohort: RepertoireDataset, tmp_path: Path) -> None:
    out = tmp_path / "sheet.tsv"
    given = [str(cohort.container.path), "--target", "status=sick", "--write-subjects", str(out)]
    result = CliRunner().invoke(check, given)
    assert f"Wrote {out}: 27 different values of joined_subject_id" in result.output
    table = pd.read_csv(out, sep="\t")
    assert table.columns.tolist() == ["sample", "status", "batch", "joined_subject_id"]
    assert table.set_index("sample").loc[["r0", "r27"], "joined_subject_id"].tolist() == ["r0", "r0"]
    assert "27 different values" in CliRunner().invoke(check, given).output  # replaces its own table
    (tmp_path / "mine.tsv").write_text("precious\n")
    refused = CliRunner().invoke(check, [*given[:-1], str(tmp_path / "mine.tsv")])
    assert refused.exit_code != 0
    assert (tmp_path / "mine.tsv").read_text() == "precious\n"


def test_groups_in_one_part_are_no_reason_for_a_warning() -> None:
    finding = Finding("error", "same-content", "", "", groups=(("a", "b"), ("c", "d", "e")))
    assert not list(find_duplicate_cautions([finding], {"a": 0, "b": 0, "c": 1, "d": 1}, apart="folds"))
    (told,) = find_duplicate_cautions([finding], {"a": 0, "b": 0, "c": 1, "e": 2}, apart="folds")
    assert told.details == {"groups": [["c", "d", "e"]], "apart": "folds"}
    assert "are in more than one fold (1 group: c + d + e)" in told.text


@pytest.mark.slow
def test_a_benchmark_says_what_a_check_found(cohort: RepertoireDataset, tmp_path: Path) -> None:
    found = benchmark(cohort, target="status=sick", methods=["repertoire-size"], options=BenchmarkOptions(folds=3))
    by_name = {each.name: each for each in found.cautions}
    assert by_name["duplicates-apart"].details["apart"] == "folds"
    assert by_name["label-from-column"].details["column"] == "batch"
    predicts = "column 'batch' (technical) predicts 'sick' against 'well' with a Cramer's V of 0.79"
    assert predicts in by_name["label-from-column"].text
    assert "Cramer's V of 0.79" in found.table
    within = by_name["auc-within"].details["repertoire-size"]
    assert (within["column"], within["n_strata"] > 0) == ("batch", True)
    assert "AUC among repertoires with the same 'batch', in the same fold: " in by_name["auc-within"].text


@pytest.mark.slow
def test_a_training_says_that_it_separates_copies(
    cohort: RepertoireDataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = load_config("deeprc", [*SETTINGS, "seeded_start=0"])
    with caplog.at_level(logging.WARNING):
        run = train_run(
            cohort.container.path,
            tmp_path / "run",
            targets="status=sick",
            config=config,
            split=SplitOptions(folds=3),
            device="cpu",
        )
    side = {name: part for part, names in run.splits.items() for name in names}
    groups = [group for group in (["r0", "r27"], ["r1", "r28", "r29"]) if len({side[name] for name in group}) > 1]
    assert groups
    (told,) = [each for each in read_cautions(run.path) if each.name == "duplicates-apart"]
    assert sorted(map(sorted, told.details["groups"])) == sorted(groups)
    assert "label-from-column: target 'status=sick': column 'batch'" in caplog.text
