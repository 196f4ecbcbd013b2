from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from tests.toys.repertoires import write_repertoires

Call = Callable[..., tuple[int, str, str]]


def write_part(cohort: RepertoireDataset, path: Path) -> Path:
    write_repertoires(path, [each.sequences for each in cohort], cohort.metadata, cohort.repertoire_ids)
    return path


@pytest.mark.slow
def test_join_gives_the_cohort_again_and_other_commands_take_it(
    cohort_factory: Callable[..., RepertoireDataset], tmp_path: Path, deeprc: Call
) -> None:
    whole = cohort_factory(20, 20)
    parts = [write_part(whole[:7], tmp_path / "1.h5"), write_part(whole[7:], tmp_path / "2.h5")]
    joined = tmp_path / "cohort.h5"
    assert deeprc("join", *parts, "-o", joined) == (0, f"20 repertoires of 2 containers\nWrote {joined}\n", "")
    cohort = open_dataset(joined)
    assert [each.digest() for each in cohort] == [each.digest() for each in whole]
    pd.testing.assert_frame_equal(cohort.metadata, whole.metadata)
    code, out, _ = deeprc("info", joined)
    assert code == 0
    assert "2 containers: 1.h5, 2.h5" in out
    runs = [tmp_path / "run", tmp_path / "again"]
    for container, run in zip((whole.container.path, joined), runs, strict=True):
        command = ("train", container, "--target", "status", "--folds", "3", "--output", run)
        assert deeprc(*command, "n_updates=2", "evaluate_every=1", "n_sequences=10")[0] == 0
    tables = [(run / "predictions.tsv").read_text() for run in runs]
    assert tables[0] == tables[1]


def test_join_refuses_duplicate_repertoires_and_its_own_input_as_output_in_one_line(
    cohort_factory: Callable[..., RepertoireDataset], tmp_path: Path, deeprc: Call
) -> None:
    whole = cohort_factory(6, 20)
    part = write_part(whole[:2], tmp_path / "1.h5")
    code, out, err = deeprc("join", whole.container.path, part, "-o", tmp_path / "cohort.h5")
    assert (code, out) == (2, "")
    assert err == f"Error: {part}: repertoire 'rep.0' is also in {whole.container.path}\n"
    code, _, err = deeprc("join", whole.container.path, part, "-o", part)
    assert (code, err) == (2, f"Error: {part}: is one of the containers to join; choose another --output\n")
    assert open_dataset(part).repertoire_ids.tolist() == ["rep.0", "rep.1"]
