import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import yaml

from deeprc import DeepRCClassifier
from deeprc.config import load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.sequences import Sequences
from deeprc.errors import InputError
from deeprc.evaluation.splits import SplitOptions
from deeprc.runs.experiment import train_run
from deeprc.training.log_abundance import replace_log_abundance
from tests.toys.repertoires import write_repertoires

CHANGES = {"n_updates": 2, "evaluate_every": 1, "n_sequences": 10, "abundance": "log"}


def make(path: Path, largest: Sequence[int]) -> RepertoireDataset:
    """Write repertoires r0, r1, ... whose largest counts are given, every other one positive."""
    rng = np.random.default_rng(0)
    residues = rng.integers(0, 20, (len(largest), 200)).astype(np.uint8)
    repertoires = [
        Sequences(own, 10 * np.arange(21), np.array([count, 1] * 10, np.uint32))
        for own, count in zip(residues, largest, strict=True)
    ]
    return write_repertoires(path, repertoires, {"y": np.arange(len(largest)) % 2})


@pytest.mark.slow
def test_train_replaces_abundance_log_if_all_counts_are_1(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cohort = make(tmp_path / "ones.h5", [1] * 12)
    with caplog.at_level(logging.WARNING):
        run = train_run(
            cohort.container.path,
            tmp_path / "run",
            targets="y",
            config=load_config("deeprc", CHANGES),
            split=SplitOptions(folds=3),
        )
    assert "abundance=none is used instead of abundance=log." in caplog.text
    assert yaml.safe_load((run.path / "config.yaml").read_text())["network"]["abundance"] == "none"


def test_a_log_that_hides_some_repertoires_is_refused(tmp_path: Path) -> None:
    cohort = make(tmp_path / "some.h5", [5, 4, 1, 3, 1, 2, 5, 5, 5, 5, 5, 5])
    message = r"abundance=log hides every residue of repertoires whose counts are all 1: 2 repertoires: r2, r4; leave"
    config = load_config("deeprc", CHANGES)
    with pytest.raises(InputError, match=message):
        replace_log_abundance(config, [cohort])
    with pytest.raises(InputError, match=message):
        DeepRCClassifier(overrides=CHANGES).fit(
            cohort[:8], cohort.metadata["y"][:8], X_validation=cohort[8:], y_validation=cohort.metadata["y"][8:]
        )
    for other in ("log1p", "none"):
        changed = load_config("deeprc", {**CHANGES, "abundance": other})
        assert replace_log_abundance(changed, [cohort]) is changed
    with pytest.raises(InputError, match="abundance=log hides every residue"):
        train_run(cohort.container.path, tmp_path / "run", targets="y", config=config, split=SplitOptions(folds=3))
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_predictions_of_repertoires_whose_counts_are_all_1_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cohort = make(tmp_path / "counts.h5", [3] * 12)
    run = train_run(
        cohort.container.path,
        tmp_path / "run",
        targets="y",
        config=load_config("deeprc", CHANGES),
        split=SplitOptions(folds=3),
    )
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        run.predict(make(tmp_path / "new.h5", [1, 2, 1]))
    assert "The prediction does not depend on the sequences of 2 repertoires: r0, r2: all their" in caplog.text
