"""Motifs over the runs of a cross-validation: forms that are alike count once, and each run counts once."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from deeprc.errors import InputError
from deeprc.evaluation.motif_stability import count_motifs
from deeprc.evaluation.stored_tables import read_motif_counts


def seeds(*rows: tuple[str, str, float, float]) -> pd.DataFrame:
    """Return a `seeds.tsv` from motif, output, correlation and p-value of each row."""
    table = pd.DataFrame(rows, columns=["motif", "output", "correlation", "p_value"])
    return table.assign(kernel=range(1, len(rows) + 1))


FOUND = {
    (0, 0, 1): seeds(("LDR.F", "CMV", 0.6, 0.001), ("LDR", "CMV", 0.5, 0.004), ("SFEN", "CMV", 0.3, 0.2)),
    (0, 0, 2): seeds(("LDR.F", "CMV", 0.5, 0.002)),
    (0, 1, 0): seeds(("DR.F", "CMV", 0.4, 0.01), ("LDR.F", "age", -0.2, 0.3)),
    (0, 1, 2): seeds(),
    (1, 0, 1): seeds(("LDR.F", "CMV", 0.7, 0.001)),
    (1, 1, 0): seeds(("WWKK", "CMV", 0.2, 0.4)),
}


def test_motifs_by_hand() -> None:
    found = count_motifs(FOUND)
    assert found[["output", "motif"]].to_numpy().tolist() == [
        ["CMV", "LDR.F"],
        ["CMV", "SFEN"],
        ["age", "LDR.F"],
        ["CMV", "WWKK"],
    ]
    strongest = found.iloc[0]
    assert strongest["forms"] == "LDR.F DR.F LDR"
    assert strongest[["n_runs", "n_test_folds", "n_repeats"]].tolist() == [4, 3, 2]
    assert strongest[["n_all_runs", "n_all_test_folds", "n_all_repeats"]].tolist() == [6, 4, 2]
    assert strongest["correlation"] == pytest.approx(0.55)  # of 0.6, 0.5, 0.4, 0.7
    assert strongest["max_p_value"] == 0.01  # the weaker form of the first run does not count
    assert found.loc[found["output"] == "age", ["n_runs", "correlation"]].to_numpy().tolist() == [[1, -0.2]]


def test_motifs_of_opposite_signs_are_not_one() -> None:
    """LDR of positive repertoires and LDK of negative ones have two of three residues in common."""
    runs = {
        (0, 0, 1): seeds(("LDR", "CMV", 0.6, 0.001), ("LDK", "CMV", -0.4, 0.03)),
        (0, 1, 0): seeds(("LDK", "CMV", -0.2, 0.02)),
    }
    columns = ["motif", "forms", "n_runs", "correlation", "max_p_value"]
    found = count_motifs(runs)[columns].to_numpy().tolist()
    assert found == [["LDK", "LDK", 2, pytest.approx(-0.3), 0.03], ["LDR", "LDR", 1, 0.6, 0.001]]


def test_the_order_of_the_runs_is_irrelevant() -> None:
    pd.testing.assert_frame_equal(count_motifs(dict(reversed(FOUND.items()))), count_motifs(FOUND))


def test_without_motifs_the_table_is_empty_and_can_be_read(tmp_path: Path) -> None:
    for found in (count_motifs({(0, 0, 1): seeds(), (0, 1, 0): seeds()}), count_motifs({})):
        assert len(found) == 0
        file = tmp_path / "motifs.tsv"
        found.to_csv(file, sep="\t", index=False)
        assert list(read_motif_counts(file).columns) == list(found.columns)


def test_motif_counts_are_read_as_written_and_checked(tmp_path: Path) -> None:
    file = tmp_path / "motifs.tsv"
    found = count_motifs(FOUND)
    found.to_csv(file, sep="\t", index=False)
    pd.testing.assert_frame_equal(read_motif_counts(file), found, check_dtype=False)
    file.write_text(file.read_text().replace("\t0.01\n", "\t1.5\n"))
    with pytest.raises(InputError, match="max_p_value"):
        read_motif_counts(file)
