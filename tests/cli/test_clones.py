"""`deeprc clones`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tests.toys.donor_clones import write_donor_cohort


@pytest.mark.slow
def test_the_command_writes_the_table_and_the_figure(
    tmp_path: Path, deeprc: Callable[..., tuple[int, str, str]]
) -> None:
    cohort = write_donor_cohort(tmp_path / "cohort.h5")
    table, plot = tmp_path / "clones.tsv", tmp_path / "volcano.png"
    arguments = ["clones", cohort.container.path, "--target", "status=ill", "-o", table, "--plot", plot]
    code, out, _ = deeprc(*arguments, "--group-by", "subject")
    assert code == 0
    assert "donors: 21 of class healthy, 21 of class ill\nleft out: 1 donor with a label but no sequences\n" in out
    assert "at a false discovery rate of 5%: 1 by permutations of donors, 1 by Benjamini and Hochberg\n" in out
    written = pd.read_csv(table, sep="\t")
    assert written["carriers:ill"].tolist() == [16]
    assert plot.read_bytes().startswith(b"\x89PNG")
    code, out, _ = deeprc(*arguments)
    assert code == 0  # a table of this kind is replaced
    assert "use --group-by to count donors" in out
    (tmp_path / "notes.tsv").write_text("mine\n")
    code, _, err = deeprc("clones", cohort.container.path, "--target", "status", "-o", tmp_path / "notes.tsv")
    assert code == 2
    assert "exists and is not a table of this kind" in err
