from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from deeprc.datasets.dataset import RepertoireDataset, open_dataset

Call = Callable[..., tuple[int, str, str]]


@pytest.mark.slow
def test_relabel_and_train_on_a_threshold(
    cohort_factory: Callable[..., RepertoireDataset], tmp_path: Path, deeprc: Call
) -> None:
    cohort = cohort_factory(20, 20).container.path
    ids = [f"rep.{i}" for i in range(20)]
    sheet = pd.DataFrame({"repertoire_id": ids, "donor_age": [30 + 2 * i for i in range(20)]})
    sheet.to_csv(tmp_path / "ages.csv", index=False)
    new = tmp_path / "new.h5"
    code, out, _ = deeprc("relabel", cohort, "--metadata", tmp_path / "ages.csv", "-o", new, "--keep-columns")
    assert code == 0
    assert out == (
        "labels for 20 of 20 repertoires\n"
        "columns: repertoire_id, donor_age, status, grade, age, patient_id\n"
        f"Wrote {new}\n"
    )
    assert "relabelled with the metadata sheet ages.csv" in deeprc("info", new)[1]
    code, out, _ = deeprc(
        "train", new, "--target", "donor_age>=50", "--folds", "3", "--output", tmp_path / "run",
        "n_updates=2", "evaluate_every=1", "n_sequences=10",
    )  # fmt: skip
    assert code == 0
    assert out.splitlines()[0].split()[:4] == ["split", "target", "positive", "n"]
    assert out.splitlines()[1].split()[:3] == ["train", "donor_age>=50", ">=50"]
    table = pd.read_csv(tmp_path / "run" / "predictions.tsv", sep="\t").set_index("repertoire_id")
    assert table["label"].to_dict() == {name: int(30 + 2 * i >= 50) for i, name in enumerate(ids)}
    assert set(table["positive_class"]) == {">=50"}


def test_a_sheet_that_does_not_fit_gets_one_line(
    cohort_factory: Callable[..., RepertoireDataset], tmp_path: Path, deeprc: Call
) -> None:
    cohort = cohort_factory(6, 20).container.path
    (tmp_path / "new.tsv").write_text("repertoire_id\tx\nrep.0\ta\nrep.1\tb\n")
    code, out, err = deeprc("relabel", cohort, "--metadata", tmp_path / "new.tsv")
    assert (code, out) == (2, "")
    assert err == (
        f"Error: {tmp_path}/new.tsv: no row for 4 repertoires: rep.2, rep.3, rep.4, rep.5. "
        "Give what is missing, or go on without with --allow-missing\n"
    )
    assert "status" in open_dataset(cohort).metadata


def test_columns_are_lost_only_if_this_is_asked_for(
    cohort_factory: Callable[..., RepertoireDataset], tmp_path: Path, deeprc: Call
) -> None:
    cohort = tmp_path / "cohort.h5"
    cohort.write_bytes(cohort_factory(2, 20).container.path.read_bytes())
    (tmp_path / "new.tsv").write_text("repertoire_id\tstatus\tgrade\tage\nrep.0\ta\tb\t1\nrep.1\tb\tc\t2\n")
    code, out, err = deeprc("relabel", cohort, "--metadata", tmp_path / "new.tsv")
    assert (code, out) == (2, "")
    assert err == (
        f"Error: {cohort}: would lose the column 'patient_id', which {tmp_path}/new.tsv does not have; "
        "choose --keep-columns or --drop-columns, or another --output\n"
    )
    code, out, _ = deeprc("relabel", cohort, "--metadata", tmp_path / "new.tsv", "--drop-columns")
    assert code == 0
    assert out.splitlines()[-2:] == ["columns that are gone: patient_id (--keep-columns keeps them)", f"Wrote {cohort}"]
