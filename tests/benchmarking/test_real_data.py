"""The whole job on 60 real repertoires; slow, and skipped without DEEPRC_REAL_DATA."""

from pathlib import Path

import numpy as np
import pytest

from deeprc.config import load_config
from deeprc.datasets.dataset import open_dataset
from deeprc.datasets.options import ReadingOptions
from deeprc.datasets.preprocessing import preprocess
from deeprc.evaluation.splits import SplitOptions
from deeprc.runs.experiment import train_run


@pytest.mark.long
def test_deeprc_tells_cd4_from_cd8_t_cells(real_data: Path, tmp_path: Path) -> None:
    folder = real_data / "covidtcrs"
    sheet = folder / "metadata_TRB_10umi_filter_MiXCR_to_VDJtools.txt"
    preprocess([folder], sheet, tmp_path / "tcells.h5", options=ReadingOptions(allow_missing=True))
    aucs = []
    for fold in range(5):
        run = train_run(
            tmp_path / "tcells.h5",
            tmp_path / f"fold{fold}",
            targets=["T-cell_type=cd4"],
            config=load_config("deeprc", ["n_updates=400"]),
            split=SplitOptions(fold=fold, group_by="study_patient_id"),
        )
        table = run.predict(open_dataset(tmp_path / "tcells.h5").select(run.splits["test"]))
        assert set(table["split"]) == {"test"}
        positive = table["label"] == 1
        score = table["probability"].to_numpy(np.float64)
        aucs.append(float((score[positive][:, None] > score[~positive]).mean()))
    assert np.mean(aucs) > 0.85, aucs
