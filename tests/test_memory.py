"""Memory of inference and of preprocessing; slow, so run it with `pytest -m slow`."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deeprc.datasets.alphabet import offsets_of
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.sequences import Sequences

GIGABYTE = 1024**3


@pytest.mark.slow
def test_a_million_sequences_in_under_two_gigabytes(cohort: RepertoireDataset, tmp_path: Path) -> None:
    n, rng = 1_000_000, np.random.default_rng(0)
    lengths = rng.integers(8, 22, n)
    table = Sequences.counted_once(rng.integers(0, 20, lengths.sum(), dtype=np.uint8), offsets_of(lengths))
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


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
def test_preprocessing_holds_few_bytes_per_row() -> None:
    """Of a file of a million rows: its text, residues, counts and places, each a few times, and nothing per residue."""
    n = 1_000_000
    script = Path(__file__).parent.parent / "benchmarks" / "memory.py"
    command = [sys.executable, str(script), "--rows", str(n), "--worker", "preprocess", "ours", "0"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    peak, size = json.loads(output.splitlines()[-1])
    assert size > 15 * n
    assert peak / n < 320, f"{peak / n:.0f} bytes per row"
