"""Digests of the results of the main commands on a small cohort, to show that a change of the code changes no result.

    python benchmarks/digests.py --output before.json   # before a change of the code
    python benchmarks/digests.py --compare before.json  # after it; the exit code is 1 if a digest differs

Numbers depend on the processor and on the versions of torch and numpy, so compare on one machine.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tempfile
from pathlib import Path

import click
import common  # noqa: F401 (its import prepares the process)
import pandas as pd
import torch

import deeprc
from deeprc.datasets.simulation import load_recipe, write_airr
from deeprc.interpretation.attention import iterate_attention
from deeprc.interpretation.attention_files import write_attention

_COHORT = ["n_repertoires=120", "sizes.mean=400"]
_SETTINGS = ["n_updates=60", "evaluate_every=20", "n_sequences=300", "gene_units=2"]
_METHODS = ("logistic", "svm-minmax", "knn-jaccard", "public-clones", "v-gene-usage")


@click.command()
@click.option("--output", type=click.Path(path_type=Path), help="Write the digests here.")
@click.option("--compare", type=click.Path(path_type=Path, exists=True), help="Compare with the digests in this file.")
def main(output: Path | None, compare: Path | None) -> None:
    """Print a digest for each result."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        found = compute_digests(Path(folder))
    expected = json.loads(compare.read_text()) if compare else found
    for name, digest in found.items():
        click.echo(f"{name:<24} {digest}{'' if expected.get(name) == digest else '   CHANGED'}")
    if output:
        output.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(expected != found)


def compute_digests(folder: Path) -> dict[str, str]:
    """Return a digest of the content of each result."""
    cohort, _ = load_recipe("quickstart", _COHORT)
    write_airr(cohort, folder / "files")
    deeprc.preprocess([folder / "files" / "repertoires"], folder / "files" / "metadata.tsv", folder / "c.h5")
    dataset = deeprc.open(folder / "c.h5")
    found = {
        "preprocess": _hash_texts("".join(repertoire.digest() for repertoire in dataset), dataset.metadata.to_csv())
    }
    config = deeprc.load_config("deeprc", _SETTINGS)
    run = deeprc.train(folder / "c.h5", folder / "run", targets=["status=positive"], config=config, device="cpu")
    for name in ("predictions.tsv", "history.tsv", "seeds.tsv"):
        table = pd.read_csv(folder / "run" / name, sep="\t", dtype=str)
        found[f"train {name}"] = _hash_texts(table.drop(columns="seconds", errors="ignore").to_csv())
    state = run.model.network.state_dict()
    found["train weights"] = _hash_texts(*(state[name].numpy().tobytes().hex() for name in sorted(state)))
    write_attention(folder / "attention.tsv", iterate_attention(run.model, dataset), max_sequences=200)
    found["attention"] = _hash_texts((folder / "attention.tsv").read_text())
    deeprc.benchmark(
        folder / "c.h5",
        target="status=positive",
        methods=dict.fromkeys(_METHODS),
        output=folder / "b",
        options=deeprc.BenchmarkOptions(folds=3, preset="quick"),
    )
    found["benchmark"] = _hash_texts((folder / "b" / "predictions.tsv").read_text())
    deeprc.report(folder / "run", folder / "c.h5", output=folder / "report.html", top=50)
    page = re.sub("<svg.*?</svg>", "", (folder / "report.html").read_text(), flags=re.DOTALL)
    found["report"] = _hash_texts(page.replace(str(folder), ""))
    return found


def _hash_texts(*texts: str) -> str:
    return hashlib.blake2b("\n".join(texts).encode(), digest_size=12).hexdigest()


if __name__ == "__main__":
    main()
