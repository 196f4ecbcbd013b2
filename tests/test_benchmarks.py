"""The benchmarks run and print what their README says; how fast anything is, they do not test."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "benchmarks"
COMMON = {"kernels", "ratio"}
TIMES = COMMON | {"ours_ms", "dense_ms", "million_sequences_per_s"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "options", "columns", "limit"),
    [
        ("embedding", ["--drawn", "500"], TIMES | {"passes", "billion_additions_per_s"}, "matrix_product"),
        ("training_step", ["--repertoires", "4"], TIMES | {"top_fraction", "draw_ms", "optimiser_ms"}, "copy"),
        ("inference", [], TIMES | {"top_fraction"}, "copy"),
        ("memory", ["--rows", "3000"], COMMON | {"case", "ours_mb", "dense_mb"}, "preprocess_bytes_per_row"),
        ("whole_repertoires", [], COMMON | {"choice", "seconds", "mb"}, "rows"),
        ("larger_than_memory", ["--repertoires", "16"], COMMON | {"way", "ms", "cpu_ratio", "mb_read"}, "rows"),
    ],
)
def test_each_benchmark_prints_a_table_and_a_json_line(
    name: str, options: list[str], columns: set[str], limit: str
) -> None:
    if name in ("memory", "whole_repertoires", "larger_than_memory") and not Path("/proc/self/clear_refs").exists():
        pytest.skip("needs Linux")
    brief = [] if name == "memory" else ["--seconds", "0.05"]
    command = [sys.executable, str(FOLDER / f"{name}.py"), "--device", "cpu", "--kernels", "8", "--sequences", "2000"]
    output = subprocess.run([*command, *brief, *options], check=True, capture_output=True, text=True).stdout
    result = json.loads(output.splitlines()[-1])
    assert result["benchmark"] == name
    assert result["machine"]["cpu"]
    assert any(key.startswith(limit) for key in result)
    for row in result["rows"]:
        assert columns <= row.keys()
        assert row["kernels"] == 8
        assert row["ratio"] > 0
    assert all(column in output.splitlines()[0] for column in columns)


@pytest.mark.long
def test_the_layers_are_compared_in_one_run() -> None:
    command = [sys.executable, str(FOLDER / "hopfield.py"), "--device", "cpu", "--keys", "1000", "--seconds", "0.05"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = json.loads(output.splitlines()[-1])["rows"]
    assert len(rows) == 16
    assert all(row["ratio_multihead_attention"] > 0 for row in rows)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "options", "title"),
    [
        ("preprocess", ["--rows", "300"], "preprocess, export"),
        ("preprocess", ["--rows", "300", "--layout", "two-columns", "--plain"], "preprocess, two-columns"),
        ("cohort_scale", ["--repertoires", "4", "--sequences", "300"], "cohort_scale"),
        ("simulate", ["--sequences", "20000", "--repertoires", "1"], "simulate"),
        ("opening", ["--sequences", "2000", "--repertoires", "3"], "opening"),
    ],
)
def test_reading_and_simulating_are_measured(name: str, options: list[str], title: str) -> None:
    command = [sys.executable, str(FOLDER / f"{name}.py"), *options]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result = json.loads(output.splitlines()[-1])
    assert result["benchmark"] == title
    assert all(row["seconds"] > 0 for row in result["rows"])


@pytest.mark.long
def test_the_benchmark_of_the_known_motif_prints_its_auc() -> None:
    overrides = ["sizes.mean=500", "sizes.sd=0", "sizes.minimum=1", "witness_rate=0.05"]
    command = [
        sys.executable,
        str(FOLDER / "known_motif.py"),
        "--recipe",
        "simulated-0",
        "--scale",
        "0.008",
        *overrides,
    ]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    (row,) = json.loads(output.splitlines()[-1])["rows"]
    assert (row["repertoires"], row["sequences"], row["paper_binary"]) == (40, 20_000, 1)
    assert row["binary"] > 0.99


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("attention", "--sequences 2000"),
        ("kmers", "--sequences 20000 --vectorizer-sequences 5000 --repertoires 60 --trained 40 --values 50"),
        ("clones", "--repertoires 4 --sequences 2000 --share 3000"),
        ("logistic", "--rows 20 --columns 2000 --penalties 3 --repeats 1 --updates 50"),
        ("logistic_mil", "--repertoires 8 --sequences 200 --epochs 2 --restarts 2"),
    ],
)
def test_ways_to_the_same_numbers_are_measured(name: str, options: str) -> None:
    command = [sys.executable, str(FOLDER / f"{name}.py"), *options.split()]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result = json.loads(output.splitlines()[-1])
    assert result["benchmark"] == name
    assert all(row["seconds"] > 0 for row in result["rows"] if "seconds" in row)
    assert result["rows"]
