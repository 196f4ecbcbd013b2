"""Memory of inference and of preprocessing; slow, so run it with `pytest -m slow`."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.sequences import Sequences
from tests.conftest import random_sequences, write_cohort

GIGABYTE = 1024**3


@pytest.mark.long
def test_a_million_sequences_in_under_two_gigabytes(cohort: RepertoireDataset, tmp_path: Path) -> None:
    n, rng = 1_000_000, np.random.default_rng(0)
    lengths = rng.integers(8, 22, n)
    table = Sequences.counted_once(rng.integers(0, 20, lengths.sum(), dtype=np.uint8), compute_offsets(lengths))
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


def write_readable_cohort(folder: Path) -> tuple[Path, list[str]]:
    """Write 60 repertoires from which both branches learn something, and return the clones that go with cases."""
    rng = np.random.default_rng(0)
    public = random_sequences(rng, 10, 12, 15)
    repertoires = []
    for number in range(60):
        sequences = random_sequences(rng, 100, 10, 16)
        if number % 2:
            sequences[::10] = [text[:2] + "WWHW" + text[2:] for text in sequences[::10]]
            sequences += [text for text in public if rng.random() < 0.5]
        repertoires.append(sequences)
    status = pd.DataFrame({"status": np.where(np.arange(60) % 2, "case", "healthy")})
    write_cohort(folder / "cohort.h5", repertoires, status)
    return folder / "cohort.h5", public


def write_large(path: Path, n: int, first: list[str]) -> None:
    """Write a container of one repertoire of n sequences, which begins with these."""
    rng, known = np.random.default_rng(1), Sequences.encode(first)
    lengths = np.concatenate([np.diff(known.offsets), rng.integers(10, 17, n - len(first))])
    residues = rng.integers(0, 20, lengths.sum(), dtype=np.uint8)
    residues[: len(known.residues)] = known.residues
    genes = Categorical(rng.integers(0, 3, n).astype(np.uint16), ("", "TRBV1", "TRBV2"))
    with ContainerWriter(path) as writer:
        writer.append("large", Sequences(residues, compute_offsets(lengths), np.ones(n, np.uint32), v_call=genes))
        writer.finish(pd.DataFrame({"status": ["case"]}), source="a test")


def run_and_measure(*arguments: str) -> float:
    """Run `deeprc` in a process and return its peak memory in GiB; pages of files that it maps count, too."""
    process = subprocess.Popen([sys.executable, "-m", "deeprc", *arguments], stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss * 1024 / GIGABYTE


@pytest.mark.long
def test_ten_million_sequences_stream_through_all_branches(tmp_path: Path) -> None:
    """A sequence takes some numbers and a residue none: 1.3 and 1.6 GiB, of which the container has 0.25."""
    cohort, public = write_readable_cohort(tmp_path)
    write_large(tmp_path / "large.h5", 10_000_000, public)
    run = tmp_path / "run"
    run_and_measure(
        "train", str(cohort), "--target", "status", "--output", str(run), "n_updates=50", "evaluate_every=25"
    )
    variation = json.loads((run / "metrics.json").read_text())["test"]["status"]["variation"][0]["shares"]
    assert variation["composition"] > 0.1
    assert variation["clones"] > 0.1
    for command, more in (("predict", ()), ("attention", ("--top", "100", "--by", "contribution"))):
        table = tmp_path / f"{command}.tsv"
        peak = run_and_measure(command, str(run), str(tmp_path / "large.h5"), "-o", str(table), *more)
        assert peak < 2, f"{command}: {peak:.2f} GiB"
    found = pd.read_csv(table, sep="\t")
    retrieved = found[found["through_clones"] > 0]
    assert 2 <= len(retrieved) <= 10
    assert set(retrieved["junction_aa"]) <= set(public)
    assert retrieved.index.tolist() == list(range(len(retrieved)))  # they add most


@pytest.mark.long
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
