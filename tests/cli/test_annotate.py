"""`deeprc annotate`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from deeprc.datasets.dataset import RepertoireDataset

OWN = "junction_aa\tv_call\tantigen_organism\nCASSF\t\tCMV\nCASSWF\t\tEBV\n"


def test_the_command_writes_both_tables(
    tmp_path: Path, deeprc: Callable[..., tuple[int, str, str]], cohort: RepertoireDataset
) -> None:
    (tmp_path / "own.tsv").write_text(OWN)
    (tmp_path / "table.tsv").write_text("junction_aa\tcount\tnote\nCASSF\t007\tNA\nCAWWWWF\t1\t\n")
    arguments = ["annotate", tmp_path / "table.tsv", "--database", tmp_path / "own.tsv", "-o", tmp_path / "out.tsv"]
    code, out, _ = deeprc(*arguments)
    assert code == 0
    assert "1 of 2 different sequences match a database" in out
    assert "No p-values" in out
    written = pd.read_csv(tmp_path / "out.tsv", sep="\t", dtype=str, keep_default_na=False)
    assert written[["count", "note"]].to_numpy().tolist() == [["007", "NA"], ["1", ""]]  # as they were
    assert written["antigen_organism"].tolist() == ["CMV", ""]
    assert list(pd.read_csv(tmp_path / "out.organisms.tsv", sep="\t")["antigen_organism"]) == ["CMV"]
    code, out, _ = deeprc(*arguments, "--cohort", cohort.container.path)  # tables of this kind are replaced
    assert code == 0
    assert "expected by chance, p = " in out


def test_bad_input_is_one_line_and_nothing_is_written(
    tmp_path: Path, deeprc: Callable[..., tuple[int, str, str]], cohort: RepertoireDataset
) -> None:
    (tmp_path / "own.tsv").write_text(OWN)
    path = cohort.container.path
    code, _, err = deeprc("annotate", path, "--database", tmp_path / "own.tsv", "-o", tmp_path / "out.tsv")
    message = f"Error: {path}: is a container; expected a table of sequences, as `deeprc attention` writes it\n"
    assert (code, err) == (2, message)
    (tmp_path / "table.tsv").write_text("sequence\nCASSF\n")
    arguments = ["annotate", tmp_path / "table.tsv", "--database", tmp_path / "own.tsv", "-o", tmp_path / "out.tsv"]
    code, _, err = deeprc(*arguments)
    assert (code, err) == (
        2,
        f"Error: {tmp_path}/table.tsv: expected the column junction_aa or cdr3_aa, found sequence\n",
    )
    code, _, err = deeprc(*arguments, "--cohort", tmp_path / "absent.h5")
    assert err.startswith(f"Error: {tmp_path}/absent.h5: no such file")
    (tmp_path / "out.tsv").write_text("mine\n")
    code, _, err = deeprc(*arguments)
    assert code == 2
    assert "exists and is not a table of this kind" in err
    assert not (tmp_path / "out.organisms.tsv").exists()


def test_a_packed_table_and_a_folder_as_output(tmp_path: Path, deeprc: Callable[..., tuple[int, str, str]]) -> None:
    (tmp_path / "own.tsv").write_text(OWN)
    (tmp_path / "table.tsv").write_text("junction_aa\nCASSF\nCASSWF\n")
    arguments = ["annotate", tmp_path / "table.tsv", "--database", tmp_path / "own.tsv", "-o"]
    for _ in range(2):  # the second call replaces both tables
        code, _, err = deeprc(*arguments, tmp_path / "out.tsv.gz")
        assert code == 0, err
    assert len(pd.read_csv(tmp_path / "out.tsv.gz", sep="\t")) == 2
    assert list(pd.read_csv(tmp_path / "out.organisms.tsv", sep="\t")["antigen_organism"]) == ["CMV", "EBV"]
    code, _, err = deeprc(*arguments, ".")
    assert (code, err) == (2, "Error: .: is a folder; expected the name of a file to write\n")
