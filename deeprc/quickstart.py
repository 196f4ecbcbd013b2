"""The quick start: all steps on a small simulated cohort, from repertoire files to a trained model and its report."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from deeprc.config import load_config
from deeprc.datasets.dataset import open_dataset
from deeprc.datasets.preprocessing import preprocess
from deeprc.datasets.simulation import Cohort, load_recipe, write_airr
from deeprc.documents import read_json
from deeprc.files import check_new_folder, write_text
from deeprc.interpretation.attention import iterate_attention
from deeprc.interpretation.attention_files import make_heads_path, write_attention
from deeprc.interpretation.cohort_ranking import best_sequences
from deeprc.interpretation.ranking import Ranking
from deeprc.interpretation.report import REPORT_NEEDS, write_report
from deeprc.runs.experiment import TrainingProgress, train_run
from deeprc.runs.run import Run

__all__ = ["N_UPDATES", "TOP", "run_quickstart"]

N_UPDATES = 300
TOP = 100
_OVERRIDES = (f"n_updates={N_UPDATES}",)


def run_quickstart(
    output: str | os.PathLike[str],
    *,
    cohort: Cohort | None = None,
    say: Callable[[str], None] = lambda _: None,
    progress: TrainingProgress | None = None,
) -> dict[str, Any]:
    """Simulate a cohort, preprocess it, train, evaluate, rank the test sequences, and write a report.

    Parameters
    ----------
    output
        Folder for all files. It must not exist, or must be empty.
    cohort
        Cohort to simulate. None takes the recipe `quickstart`, which needs less than a minute on two cores, without
        compilation.
    say
        Function that gets a line of text before each step.
    progress
        Function that gets the progress of the training; see `train_run`.

    Returns
    -------
    The content of `summary.json`: `test_auc`; `witnesses_in_top_100`, the number of sequences with the motif among the
    100 test sequences that contribute most to the positive class; `seconds`; and the names of the written files.

    Raises
    ------
    InputError
        If the folder is not empty or cannot be written.
    """
    started = time.monotonic()
    folder, cohort = Path(output), cohort or load_recipe("quickstart")[0]
    (signal,) = cohort.motif_signals
    motif = signal.motifs[0].pattern
    check_new_folder(folder)
    say(
        f"1. Simulate {cohort.n_repertoires} repertoires of {cohort.sizes.mean:g} sequences;"
        f" in half of them {signal.witness_rate:.1%} of the sequences carry the motif {motif}."
    )
    sheet = write_airr(cohort, folder)
    container = folder / "cohort.h5"
    say(_format_step(2, "preprocess", f"{folder}/repertoires", "--metadata", sheet, "--output", container))
    preprocess([folder / "repertoires"], sheet, container)
    say(_format_step(3, "train", container, "--target", "status", "--output", f"{folder}/run", *_OVERRIDES))
    config = load_config("deeprc", _OVERRIDES)
    run = train_run(container, folder / "run", targets=["status"], config=config, seed=cohort.seed, progress=progress)
    metrics = read_json(run.path / "metrics.json")
    say(_format_step(4, "attention", f"{folder}/run", container, "-o", f"{folder}/attention.tsv", "--top", TOP))
    top = _find_best_sequences(run, container, folder / "attention.tsv")
    top["carries_motif"] = top["junction_aa"].str.contains(motif, regex=False)
    write_text(folder / "top_sequences.tsv", top.to_csv(sep="\t", index=False))
    files = _write_report(run, container, say) | {
        "repertoire files": folder / "repertoires",
        "metadata sheet": sheet,
        "container": container,
        "run directory": run.path,
        "predictions": run.path / "predictions.tsv",
        f"the {TOP} sequences of each repertoire that contribute most": folder / "attention.tsv",
        "how many sequences have 90% of the attention": make_heads_path(folder / "attention.tsv"),
        "test sequences that contribute most to the positive class": folder / "top_sequences.tsv",
    }
    summary = {
        "test_auc": metrics["test"]["status"]["auc"],
        "witnesses_in_top_100": int(top["carries_motif"].sum()),
        "seconds": round(time.monotonic() - started, 1),
        "motif": motif,
        "files": {name: str(path) for name, path in files.items()},
    }
    write_text(folder / "summary.json", json.dumps(summary, indent=1) + "\n")
    return summary


def _format_step(number: int, *words: object) -> str:
    """Return a command as a numbered line, quoted for a POSIX shell."""
    return f"{number}. {shlex.join(['deeprc', *map(str, words)])}"


def _write_report(run: Run, container: Path, say: Callable[[str], None]) -> dict[str, Path]:
    """Write the report, if its packages are installed; return its path, by what the summary calls it."""
    if not all(find_spec(name) for name in REPORT_NEEDS):
        say("5. No report: it needs pip install 'deeprc[interpret]'")
        return {}
    path = container.parent / "report.html"
    say(_format_step(5, "report", f"{container.parent}/run", container, "-o", path))
    write_report(run, open_dataset(container), path)
    return {"report, to open in a browser": path}


def _find_best_sequences(run: Run, container: Path, table: Path) -> pd.DataFrame:
    """Write the top sequences of every repertoire; return the `TOP` test sequences with the largest contribution."""
    dataset = open_dataset(container)
    write_attention(table, iterate_attention(run.model, dataset, top=TOP))
    test = [i for i, part in enumerate(run.split_of(dataset)) if part == "test"]
    return best_sequences(iterate_attention(run.model, dataset[test]), TOP, Ranking("contribution"))
