"""Time, memory and disk of `deeprc preprocess` for the CMV cohort, extrapolated from generated exports to 785 files.

python benchmarks/cohort_scale.py [--repertoires 40] [--sequences 300000]

The files have the layout of the cohort's export (see exports.py), packed with gzip. Time and disk grow with the number
of repertoires, so they are multiplied. Memory does not grow, so it is measured twice, with a quarter of the files and
with all.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import click
import pandas as pd
from common import report
from exports import write_export
from torch import device

WHOLE_COHORT = 785


@click.command()
@click.option("--repertoires", default=40, help="Number of repertoires to generate.")
@click.option("--sequences", default=300_000, help="Number of rows of each repertoire.")
@click.option("--jobs", default=2, help="Number of worker processes.")
def main(repertoires: int, sequences: int, jobs: int) -> None:
    """Generate and preprocess files, and extrapolate time, memory and disk."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "exports").mkdir()
        paths = [folder / "exports" / f"HIP{number:05d}.tsv.gz" for number in range(repertoires)]
        with ProcessPoolExecutor(jobs) as pool:
            text = sum(pool.map(write_export, paths, [sequences] * repertoires, range(repertoires)))
        packed = sum(path.stat().st_size for path in paths)
        table = []
        for part in (max(repertoires // 4, 1), repertoires):
            seconds, memory, size = _preprocess(folder, paths[:part], jobs)
            whole = WHOLE_COHORT / part
            table.append(
                {
                    "repertoires": part,
                    "seconds": seconds,
                    "rows_per_s": part * sequences / seconds,
                    "container_mb": size / 1e6,
                    "largest_process_mb": memory / 1e6,
                    f"minutes_for_{WHOLE_COHORT}": whole * seconds / 60,
                    f"container_gb_for_{WHOLE_COHORT}": whole * size / 1e9,
                    f"while_writing_gb_for_{WHOLE_COHORT}": 2 * whole * size / 1e9,
                }
            )
    scale = WHOLE_COHORT / repertoires / 1e9
    report("cohort_scale", table, device("cpu"), text_gb_for_785=scale * text, gzip_gb_for_785=scale * packed)


def _preprocess(folder: Path, paths: list[Path], jobs: int) -> tuple[float, int, int]:
    """Return the seconds, the peak memory of the largest process, and the size of the container in bytes."""
    sheet = pd.DataFrame({"sample_name": [path.name.split(".")[0] for path in paths]})
    sheet["cmv"] = ["+" if number % 2 else "-" for number in range(len(paths))]
    sheet.to_csv(folder / "sheet.tsv", sep="\t", index=False)
    options = ["--metadata", "sheet.tsv", "--output", "cohort.h5", "--jobs", str(jobs), "--allow-missing"]
    program = (
        "import resource as r, sys\n"
        "from deeprc.cli import main\n"
        "try: main()\n"
        "finally:\n"
        "    peak = max(r.getrusage(who).ru_maxrss for who in (r.RUSAGE_SELF, r.RUSAGE_CHILDREN))\n"
        "    print('peak', peak, file=sys.stderr)\n"
    )
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", program, "preprocess", *map(str, paths), *options],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    seconds = time.perf_counter() - started
    kilobytes = int(re.findall(r"peak (\d+)", done.stderr)[-1])
    unit = 1 if sys.platform == "darwin" else 1024  # unit of ru_maxrss in bytes
    return seconds, unit * kilobytes, (folder / "cohort.h5").stat().st_size


if __name__ == "__main__":
    main()
