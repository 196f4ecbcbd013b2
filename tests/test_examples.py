"""The model in `examples/` predicts what it was made for."""

from __future__ import annotations

import zipfile
from pathlib import Path

from sklearn.metrics import roc_auc_score

import deeprc
from deeprc.datasets.simulation import SimulatedDataset, load_recipe

EXAMPLE = Path(__file__).parents[1] / "examples" / "quickstart.deeprc"


def test_the_example_finds_the_motif_in_new_repertoires() -> None:
    cohort, _ = load_recipe("quickstart", ["n_repertoires=24"], seed=1)
    found = deeprc.load(EXAMPLE, device="cpu").predict(SimulatedDataset(cohort))
    assert set(found["split"]) == {"new"}
    assert roc_auc_score(found["label"].astype(int), found["probability"]) > 0.95


def test_the_example_is_small_and_names_no_place_of_its_making() -> None:
    assert EXAMPLE.stat().st_size < 100_000
    with zipfile.ZipFile(EXAMPLE) as archive:
        for name in archive.namelist():
            for place in (b"/tmp", b"/home", b"/work", b"repertoire_000"):
                assert place not in archive.read(name), name
