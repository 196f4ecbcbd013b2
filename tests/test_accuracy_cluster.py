"""`benchmarks/accuracy.py` on a Dask cluster measures what it measures alone."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from deeprc.datasets.simulation import load_recipe
from deeprc.datasets.simulation.write import write_container
from tests.toys.dying_workers import kill_a_worker_that_computes

SMALL = ["n_repertoires=40", "sizes.mean=100", "sizes.sd=15", "sizes.minimum=1", "witness_rate=0.02"]


def test_a_cohort_that_was_used_can_be_sent(accuracy: Any, tmp_path: Path) -> None:
    simulated, mapping = load_recipe("mixed", SMALL[:-1], seed=3)
    write_container(simulated, tmp_path / "c.h5", recipe=mapping)
    of_recipe = accuracy.Source("mixed", 3, cohort=simulated, mapping=mapping)
    for source in (of_recipe, accuracy.Source("c", 3, path=tmp_path / "c.h5")):
        expected = source.digest, source.labels.tolist(), source.split(1).test.tolist()
        assert len(source.dataset[0]) > 0
        sent = pickle.loads(pickle.dumps(source))
        assert sent == source
        assert "dataset" not in vars(sent)
        assert (sent.digest, sent.labels.tolist(), sent.split(1).test.tolist()) == expected
        assert sent.dataset[5].sequences.decode() == source.dataset[5].sequences.decode()


def test_a_scheduler_that_cannot_be_reached(accuracy: Any, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    options = ["--scheduler", "tcp://127.0.0.1:1", "--output", str(tmp_path / "out")]
    result = CliRunner().invoke(accuracy.main, options)
    assert result.exit_code == 2
    assert "--scheduler tcp://127.0.0.1:1: cannot be reached" in result.output
    assert [*tmp_path.iterdir()] == []


@pytest.mark.long
def test_a_cluster_that_loses_a_worker_measures_the_same(accuracy: Any, cluster: str, tmp_path: Path) -> None:
    def measure(folder: str, *more: str) -> pd.DataFrame:
        options = ["--recipes", "simulated-0", "--scale", "1", "--device", "cpu", "--output", str(tmp_path / folder)]
        options += ["--methods", "deeprc,known-motif,svm,burden", "--seeds", "2", "--folds", "0,3", *more]
        brief = ["n_updates=4", "evaluate_every=2", "n_sequences=50"]
        result = CliRunner().invoke(accuracy.main, [*options, *SMALL, *brief])
        assert result.exit_code == 0, result.output
        return pd.read_csv(tmp_path / folder / "results.tsv", sep="\t")

    with kill_a_worker_that_computes(cluster):
        there = measure("there", "--scheduler", cluster)
    here, virtual = measure("here"), measure("virtual", "--virtual", "--scheduler", cluster)
    assert len(here) == 16
    exact = ["cohort", "seed", "fold", "method", "n_train", "n_positive", "n_negative"]
    for found in (there, virtual):
        pd.testing.assert_frame_equal(found[exact], here[exact])
        np.testing.assert_allclose(found["auc"], here["auc"], atol=1e-6)
    assert not (tmp_path / "there" / "cohort").exists()
    assert measure("there")["seconds"].tolist() == there["seconds"].tolist()  # nothing is measured again
