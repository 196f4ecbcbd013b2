"""What a report says of a check: groups, warnings, and which top sequences are shared within a group."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest

from deeprc.checks.findings import Finding
from deeprc.checks.run_checks import RunChecks, check_for_training, read_checks
from deeprc.checks.shortcuts import Shortcut
from deeprc.datasets.container_file import update_checksum
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.relabelling import relabel
from deeprc.interpretation.report import run_report
from deeprc.interpretation.report.findings import (
    SequenceCarriers,
    SimilarGroup,
    find_sequence_carriers,
    is_relabelled,
    list_flagged_groups,
    load_or_run_checks,
    make_check_cautions,
    make_group_table,
    make_shortcut_table,
)
from deeprc.interpretation.sequence_index import SequenceIndex
from deeprc.interpretation.survey import TopSequences
from deeprc.runs.run import Run
from deeprc.tasks import parse_tasks
from tests.conftest import random_sequences, write_cohort

CLONE = "CASSLDRWGYTF"


@pytest.fixture(scope="module")
def contaminated(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """rep.1, rep.3 and rep.5, cases, share a clone and thirty sequences; rep.1 and rep.11 are of one person."""
    rng = np.random.default_rng(3)
    repertoires = [random_sequences(rng, 80) for _ in range(24)]
    for number in (1, 3, 5):
        repertoires[number][:31] = [CLONE, *repertoires[1][1:31]]
    repertoires[0][0] = CLONE
    repertoires[11][0] = repertoires[1][50]
    who = [f"p{1 if number == 11 else number}" for number in range(24)]
    metadata = pd.DataFrame({"status": ["healthy", "case"] * 12, "donor": who})
    path = tmp_path_factory.mktemp("contaminated") / "c.h5"
    write_cohort(path, repertoires, metadata)
    with h5py.File(path, "r+") as file:
        file["v_call"][:] = 1  # the same clone has the same gene
    update_checksum(path)
    return open_dataset(path)


def test_carriers_of_a_sequence_are_counted_with_donors_and_similar_group(contaminated: RepertoireDataset) -> None:
    group = SimilarGroup("group 1", "similar-content", ("rep.1", "rep.3", "rep.5"))
    index = SequenceIndex(np.array([1, 1]), np.array([contaminated[1].sequences.decode().index(CLONE), 50]))
    top = {"case": TopSequences(index.frame(contaminated), index)}
    found = find_sequence_carriers(contaminated, top, [group], "donor")["case"]
    assert found == [
        SequenceCarriers(4, 4, group, 3),  # the fourth is no member
        SequenceCarriers(2, 1, None),  # two repertoires of one person
    ]
    assert [each.n_donors for each in find_sequence_carriers(contaminated, top, [group], None)["case"]] == [
        None,
        None,
    ]
    nothing = index.take(np.zeros(0, np.int64))
    empty = {"case": TopSequences(nothing.frame(contaminated), nothing)}
    assert find_sequence_carriers(contaminated, empty, [group], None) == {"case": []}


def test_half_of_the_carriers_is_not_most() -> None:
    group = SimilarGroup("group 1", "same-content", ("a", "b"))
    counts = [(3, group, 2), (4, None, 0), (2, group, 2)]
    carriers = {"case": [SequenceCarriers(n, None, of_group, n_in_group) for n, of_group, n_in_group in counts]}
    (caution,) = make_check_cautions(RunChecks(()), carriers)
    assert caution.text.startswith(
        "2 of the first 3 sequences that contribute to case are shared mainly within group 1 (a, b), repertoires that "
        "have "
    )
    assert (caution.level, caution.section) == ("warning", "sequences")


def test_cautions_are_the_warnings() -> None:
    findings = (
        Finding("error", "same-content", "one thing", "do this", groups=(("a", "b", "c"),)),
        Finding("warning", "similar-content", "another", "do that", groups=(("d", "e"), ("f", "g"))),
        Finding("warning", "repeated-subject", "which the split knows better", "nothing"),
        Finding("note", "missing-labels", "a note", "nothing"),
    )
    checks = RunChecks(findings)
    told = [caution.text for caution in make_check_cautions(checks, {})]
    assert told == ["One thing. Do this.", "Another. Do that."]
    assert [(group.name, group.code, group.members) for group in list_flagged_groups(checks)] == [
        ("group 1", "same-content", ("a", "b", "c")),
        ("group 2", "similar-content", ("d", "e")),
        ("group 3", "similar-content", ("f", "g")),
    ]


def test_tables_of_groups_and_shortcuts(contaminated: RepertoireDataset) -> None:
    performance: Any = SimpleNamespace(
        ids=contaminated.repertoire_ids, parts=np.array(["train"] * 23 + ["test"], dtype=object)
    )
    groups = [SimilarGroup("group 1", "similar-content", ("rep.1", "rep.23", "of another cohort"))]
    table = make_group_table(groups, contaminated, performance, "donor")
    assert table is not None
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["rep.1", "group 1", "3", "similar content", "p1", "train"],
        ["rep.23", "group 1", "3", "similar content", "p23", "test"],
    ]
    assert make_group_table([], contaminated, performance, None) is None
    shortcut = Shortcut("t", "a from b", "V-gene usage", None, "label-from-genes", "auc", 0.93, (0.8, 0.99), "note", "")
    told = make_shortcut_table(RunChecks((), (shortcut,)))
    assert told is not None
    assert [cell.text for cell in told.rows[0]] == ["V-gene usage", "a from b", "AUC", "0.93", "0.80 to 0.99", "yes"]
    assert make_shortcut_table(RunChecks(())) is None


def test_a_run_without_checks_is_checked_now(
    tmp_path: Path, contaminated: RepertoireDataset, motif_cohort: RepertoireDataset, trained: Run
) -> None:
    known: Any = SimpleNamespace(parts=np.array(["train", "test"], dtype=object))
    assert load_or_run_checks(trained, motif_cohort, known) == read_checks(trained.path)
    assert not is_relabelled(trained, motif_cohort)
    assert is_relabelled(trained, contaminated)
    new: Any = SimpleNamespace(parts=np.array(["train", "new"], dtype=object))
    now = check_for_training(contaminated, trained.tasks, None)
    assert load_or_run_checks(trained, contaminated, new) == now
    similar = next(each for each in now.findings if each.code == "similar-content")
    assert similar.groups == (("rep.1", "rep.3", "rep.5"),)
    older: Any = SimpleNamespace(runs=(SimpleNamespace(path=tmp_path),), model=trained.model, group_by=None)
    assert load_or_run_checks(older, contaminated, known) == now


def test_a_cohort_with_new_labels_is_checked_anew(
    tmp_path: Path, trained: Run, motif_cohort: RepertoireDataset
) -> None:
    """The sequences are those of training, and the patients, of whom the check has spoken, are gone."""
    metadata = motif_cohort.metadata[["status"]].assign(repertoire_id=motif_cohort.repertoire_ids)
    metadata.to_csv(tmp_path / "new.tsv", sep="\t", index=False)
    relabel(motif_cohort.container.path, tmp_path / "new.tsv", tmp_path / "relabelled.h5")
    dataset = open_dataset(tmp_path / "relabelled.h5")
    known: Any = SimpleNamespace(parts=np.array(trained.split_of(dataset), dtype=object))
    assert "new" not in known.parts
    kept = read_checks(trained.path)
    assert kept is not None
    assert "repeated-subject" in [each.code for each in kept.findings]
    assert "repeated-subject" not in [each.code for each in load_or_run_checks(trained, dataset, known).findings]
    assert is_relabelled(trained, dataset)


def test_a_new_cohort_without_the_column_of_a_target_is_checked(motif_cohort: RepertoireDataset) -> None:
    tasks = parse_tasks(["status=case", "age:regression"], motif_cohort.metadata)
    without = motif_cohort.with_metadata(motif_cohort.metadata.drop(columns="age"))
    assert check_for_training(without, tasks, None).findings == check_for_training(without, tasks[:1], None).findings
    unlabelled = motif_cohort.with_metadata(motif_cohort.metadata.drop(columns=["age", "status"]))
    assert check_for_training(unlabelled, tasks, None).findings == ()


@pytest.mark.slow
@pytest.mark.usefixtures("no_figures")
def test_labels_that_a_model_does_not_know_are_told_once(
    tmp_path: Path, trained: Run, motif_cohort: RepertoireDataset, caplog: pytest.LogCaptureFixture
) -> None:
    status = motif_cohort.metadata["status"].replace("healthy", "unclear")
    others = motif_cohort.with_metadata(motif_cohort.metadata.assign(status=status))[:8]
    run_report.write_report(trained, others, tmp_path / "report.html", top=10)
    messages = [record.getMessage() for record in caplog.records if record.name == "deeprc.task_labels"]
    assert messages == [
        "target 'status=case': the class 'unclear' is none of healthy, case; repertoires of such classes have no label"
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("no_figures")
def test_the_page_shows_groups_and_carriers(
    contaminated: RepertoireDataset, run_factory: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_factory(contaminated, "n_updates=10", "n_kernels=4", "kernel_size=4")
    assert json.loads((run.path / "checks.json").read_text())["subject_column"] == "donor"
    shown: dict[str, Any] = {}
    monkeypatch.setattr(run_report, "write_page", lambda path, template, **content: shown.update(content))
    run_report.write_report(run, contaminated, run.path / "report.html", top=60)
    texts = [caution.text for caution in shown["cautions"]]
    assert any(text.startswith("3 repertoires of different donors share far more") for text in texts)
    assert [row[0].text for row in shown["groups"].rows] == ["rep.1", "rep.3", "rep.5"]
    common = set(contaminated[1].sequences.decode()[1:31])
    n_marked = 0
    for page in shown["directions"]:
        labels = [column.label for column in page.table.columns]
        place = labels.index("Carried by")
        for row in page.table.rows:
            if row[0].value in common:
                assert (row[place].text, row[place + 1].text) == ("3 (3 donors)", "group 1: 3 of 3")
                n_marked += 1
            elif row[0].value != CLONE:
                assert row[place].text in ("1 (1 donor)", "2 (1 donor)")
    assert n_marked >= 1
