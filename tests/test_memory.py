"""Memory of inference; slow, so run it with `pytest -m slow`."""

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.sequences import SequenceTable

GIGABYTE = 1024**3


@pytest.mark.slow
def test_a_million_sequences_in_under_two_gigabytes(cohort: RepertoireDataset, tmp_path: Path) -> None:
    n, rng = 1_000_000, np.random.default_rng(0)
    lengths = rng.integers(8, 22, n)
    table = SequenceTable(rng.integers(0, 20, lengths.sum(), dtype=np.uint8), lengths, np.ones(n, np.uint32))
    with ContainerWriter(tmp_path / "large.h5") as writer:
        writer.append("large", table)
        writer.finish(pd.DataFrame({"status": ["case"]}), source="a test")
    run = str(tmp_path / "run")
    train = ["train", str(cohort.container.path), "--target", "status", "--output", run, "n_updates=2", "n_kernels=64"]
    subprocess.run([sys.executable, "-m", "deeprc", *train], check=True, capture_output=True)
    for command in ("predict", "attention"):
        arguments = [command, run, str(tmp_path / "large.h5"), "-o", str(tmp_path / f"{command}.tsv")]
        subprocess.run([sys.executable, "-m", "deeprc", *arguments], check=True, capture_output=True)
    weights = pd.read_csv(tmp_path / "attention.tsv", sep="\t", usecols=["attention_weight"])["attention_weight"]
    assert len(weights) == n
    assert weights.sum() == pytest.approx(1, abs=1e-6)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    assert peak < 2 * GIGABYTE, f"{peak / GIGABYTE:.2f} GiB"
