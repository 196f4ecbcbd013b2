"""Speed of the simulation by background, compared with a Python loop over sequences and with the disk.

python benchmarks/simulate.py [--sequences 2000000] [--pool FILE]

"with signal" implants SF(d)EN into 0.1% of the sequences. The loop draws the residues of each sequence with numpy and
joins them to text. "container" writes a cohort of repertoires of 300,000 sequences; "bytes" writes as many bytes twice,
like the container.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from common import report
from torch import device

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.simulation import (
    Background,
    Cohort,
    GermlineBackground,
    IndependentBackground,
    LstmBackground,
    Motif,
    MotifSignal,
    SequencePool,
    Sizes,
    write_container,
)
from deeprc.datasets.simulation.background import RESIDUE_WEIGHTS
from deeprc.datasets.simulation.implanter import Implanter

_KEY = 12345
_SIZE = 300_000
_SIGNAL = MotifSignal((Motif("SF(d)EN"),), witness_rate=0.001)


@click.command()
@click.option("--sequences", default=2_000_000, help="Number of sequences of each background; a tenth for the LSTM.")
@click.option("--pool", type=click.Path(path_type=Path), help="Real sequences.")
@click.option("--repertoires", default=40, help="Number of repertoires of the container.")
def main(sequences: int, pool: Path | None, repertoires: int) -> None:
    """Measure sequences per second."""
    backgrounds: dict[str, Background] = {"independent": IndependentBackground(), "germline": GermlineBackground()}
    if pool is not None:
        backgrounds["real sequences"] = SequencePool(pool)
    backgrounds["LSTM"] = LstmBackground()
    table: list[dict[str, Any]] = [_measure_row("a loop", sequences // 20, _draw_in_loop)]
    for name, background in backgrounds.items():
        n = sequences // 10 if name == "LSTM" else sequences
        table.append(_measure_row(name, n, _make_draw(background)))
        table.append(_measure_row(f"{name}, with signal", n, _make_draw(background, Implanter([_SIGNAL]))))
    for row in table:
        row["times_loop"] = row["million_per_s"] / table[0]["million_per_s"]
    with tempfile.TemporaryDirectory() as folder:
        table += _time_writing(Path(folder), repertoires)
    report("simulate", table, device("cpu"))


def _measure_row(name: str, n: int, function: Callable[[int], object]) -> dict[str, Any]:
    function(min(n, 1000))  # compilation and reading of files
    started = time.perf_counter()
    function(n)
    seconds = time.perf_counter() - started
    return {"what": name, "sequences": n, "seconds": seconds, "million_per_s": n / seconds / 1e6}


def _make_draw(background: Background, implanter: Implanter | None = None) -> Callable[[int], None]:
    """Return a function that draws n sequences, and implants a signal if there is an implanter."""

    def draw(n: int) -> None:
        for start in range(0, n, _SIZE):
            rows = np.arange(start, min(start + _SIZE, n))
            drawn = background.draw(_KEY, rows)
            if implanter is not None:
                implanter.implant(_KEY, rows, drawn.residues, drawn.lengths, [True])

    return draw


def _draw_in_loop(n: int) -> list[str]:
    rng = np.random.default_rng(0)
    letters, weights = list(AMINO_ACIDS), np.array([RESIDUE_WEIGHTS[letter] for letter in AMINO_ACIDS]) / 65536
    return ["".join(rng.choice(letters, max(round(rng.normal(14.5, 1.8)), 1), p=weights)) for _ in range(n)]


def _time_writing(folder: Path, repertoires: int) -> list[dict[str, Any]]:
    cohort = Cohort(repertoires, Sizes(_SIZE), signals=(_SIGNAL,))
    started = time.perf_counter()
    write_container(cohort, folder / "cohort.h5")
    seconds = time.perf_counter() - started
    size = (folder / "cohort.h5").stat().st_size
    block = np.zeros(1 << 24, np.uint8)
    started = time.perf_counter()
    for name in "ab":
        with (folder / name).open("wb") as file:
            for _ in range(size // len(block)):
                block.tofile(file)
    raw = time.perf_counter() - started
    n = repertoires * _SIZE
    return [
        {
            "what": what,
            "sequences": n,
            "seconds": elapsed,
            "million_per_s": n / elapsed / 1e6,
            "mb_per_s": size / elapsed / 1e6,
        }
        for what, elapsed in (("container", seconds), ("bytes", raw))
    ]


if __name__ == "__main__":
    main()
