"""Training, predictions and attention on a container that names parts are those on the copy, to the last bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import load_file

from deeprc.config import load_config
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import open_dataset
from deeprc.datasets.joining import join
from deeprc.datasets.sequences import Sequences
from deeprc.evaluation.splits import SplitOptions
from deeprc.interpretation.attention import iterate_attention
from deeprc.interpretation.attention_files import write_attention
from deeprc.interpretation.survey import survey_cohort
from deeprc.runs.experiment import train_run
from tests.conftest import random_sequences

V_GENES = ("", "TRBV2", "TRBV5-1", "TRBV9")
# residue_permutation moves residues within the arrays of a batch, so it must not depend on where they lie
CONFIG = [
    "n_updates=30",
    "evaluate_every=10",
    "n_kernels=8",
    "n_sequences=50",
    "gene_units=2",
    "residue_permutation=0.1",
]


def write_parts(folder: Path) -> list[Path]:
    """Write three parts of a cohort with a motif and public clones, each with its genes in another order."""
    rng = np.random.default_rng(0)
    public = random_sequences(rng, 6)
    parts = []
    for part, size in enumerate((19, 24, 21)):
        names = tuple(rng.permutation(V_GENES).tolist())
        parts.append(folder / f"{part}.h5")
        with ContainerWriter(parts[-1]) as writer:
            for number in range(size):
                texts = random_sequences(rng, 80 + int(rng.integers(0, 9)))
                if number % 2:
                    texts = [text[:2] + "WWHW" + text[2:] if at % 8 == 0 else text for at, text in enumerate(texts)]
                    texts += public
                own, n = Sequences.encode(texts), len(texts)
                calls = Categorical(rng.integers(0, len(names), n).astype(np.uint16), names)
                counts = rng.geometric(0.4, n).astype(np.uint32)
                writer.append(f"{part}.{number}", Sequences(own.residues, own.offsets, counts, v_call=calls))
            sheet = pd.DataFrame({"status": ["case" if number % 2 else "healthy" for number in range(size)]})
            writer.finish(sheet, source="a test")
    return parts


@pytest.mark.long
def test_a_run_on_parts_is_that_on_the_copy(tmp_path: Path) -> None:
    parts = write_parts(tmp_path)
    join(parts, tmp_path / "linked.h5", link=True)
    join(parts, tmp_path / "copied.h5")
    usage = []
    for kind in ("linked", "copied"):
        cohort = open_dataset(tmp_path / f"{kind}.h5")
        given = {"targets": "status=case", "config": load_config("deeprc", CONFIG), "device": "cpu"}
        run = train_run(cohort.container.path, tmp_path / kind, split=SplitOptions(folds=4), **given)
        write_attention(tmp_path / kind / "attention.tsv", iterate_attention(run.model, cohort))
        usage.append(survey_cohort(run.model, cohort).genes)
    pd.testing.assert_frame_equal(*usage, check_exact=True)
    for name in (
        "predictions.tsv",
        "metrics.json",
        "splits.json",
        "seeds.tsv",
        "clones.tsv",
        "composition.tsv",
        "shift.json",
        "attention.tsv",
    ):
        assert (tmp_path / "linked" / name).read_bytes() == (tmp_path / "copied" / name).read_bytes()
    mine, theirs = (load_file(tmp_path / kind / "model.safetensors") for kind in ("linked", "copied"))
    assert mine.keys() == theirs.keys()
    for name, values in theirs.items():
        assert mine[name].numpy().tobytes() == values.numpy().tobytes()
    assert len(pd.read_csv(tmp_path / "linked" / "clones.tsv", sep="\t")) > 0
