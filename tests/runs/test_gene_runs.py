"""Runs of networks that read genes: saved with the names, and used on containers that number genes in another way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from deeprc.config import load_config
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.known_repertoires import identify_repertoires
from deeprc.errors import InputError
from deeprc.evaluation.splits import SplitOptions
from deeprc.interpretation.attention import attention_table
from deeprc.nn.genes import GeneNames
from deeprc.runs.experiment import resume_run, train_run
from deeprc.runs.run import Run, load_run
from deeprc.training.checkpoint import load_tensors, save_tensors
from tests.conftest import Killed, killing
from tests.toys.gene_repertoires import write_genes
from tests.toys.repertoires import write_repertoires

SMALL = load_config(
    "deeprc",
    [
        "n_updates=6",
        "evaluate_every=2",
        "n_kernels=8",
        "n_sequences=40",
        "gene_units=4",
        "composition=false",
        "clones=false",
    ],
)


def rewritten(dataset: RepertoireDataset, path: Path, *, new_names: dict[str, str] | None = None) -> RepertoireDataset:
    """Write the same repertoires with a V vocabulary in another order, some genes under other names."""
    known = dataset.container.sequences.v_call
    assert known is not None
    names = [(new_names or {}).get(name, name) for name in known.vocabulary]
    vocabulary = ("TRBV99", *sorted(set(names), reverse=True))
    new_codes = np.array([vocabulary.index(name) for name in names], np.uint16)
    repertoires = [
        replace(each.sequences, v_call=Categorical(new_codes[each.genes["v_call"].codes], vocabulary))
        for each in dataset
    ]
    return write_repertoires(path, repertoires, dataset.metadata, dataset.repertoire_ids)


def train(dataset: RepertoireDataset, folder: Path, **options: object) -> Run:
    path, settings = dataset.container.path, {"targets": "status=case", "split": SplitOptions(folds=3), "device": "cpu"}
    return train_run(path, folder, config=SMALL, **settings, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def run(cohort: RepertoireDataset, tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = train(cohort, tmp_path_factory.mktemp("runs") / "run")
    with torch.no_grad():
        run.model.network.gene_embedding.v_weight[0] = 0.5  # so that an unknown gene is not the others' mean
        save_tensors(
            run.path / "model.safetensors",
            run.model.network.state_dict(),
            {"genes": run.model.network.gene_names.to_mapping()},
        )
    return load_run(run.path, device="cpu")


def test_the_names_are_saved_with_the_weights(run: Run) -> None:
    _, saved = load_tensors(run.path / "model.safetensors")
    assert saved["genes"] == {"v_call": ["TRBV1", "TRBV2"], "j_call": []}
    assert run.model.network.gene_names == GeneNames(("TRBV1", "TRBV2"), ())
    assert yaml.safe_load((run.path / "config.yaml").read_text())["network"]["gene_units"] == 4


@pytest.mark.slow
def test_genes_are_told_by_their_names(run: Run, cohort: RepertoireDataset, tmp_path: Path) -> None:
    other = rewritten(cohort, tmp_path / "other.h5")
    assert other.container.sequences.v_call.vocabulary != cohort.container.sequences.v_call.vocabulary
    expected = run.model.compute_outputs(cohort)
    assert torch.equal(run.model.compute_outputs(other), expected)
    pd.testing.assert_frame_equal(attention_table(run.model, other, 3), attention_table(run.model, cohort, 3))
    renamed = rewritten(cohort, tmp_path / "renamed.h5", new_names={"TRBV1": "TRBV30"})
    missing = rewritten(cohort, tmp_path / "missing.h5", new_names={"TRBV1": ""})
    assert not torch.equal(run.model.compute_outputs(renamed), expected)
    assert torch.equal(run.model.compute_outputs(renamed), run.model.compute_outputs(missing))


def test_a_cohort_without_genes_is_refused_before_anything_is_written(
    run: Run, cohort: RepertoireDataset, tmp_path: Path
) -> None:
    repertoires = [each.sequences.with_genes({}) for each in cohort]
    without = write_repertoires(tmp_path / "none.h5", repertoires, cohort.metadata, cohort.repertoire_ids)
    with pytest.raises(InputError, match=r"gene_units: .*none.h5 has no v_call and no j_call"):
        run.predict(without)
    with pytest.raises(InputError, match=r"gene_units: .*none.h5 has no v_call and no j_call"):
        train(without, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_resumed_run_equals_an_uninterrupted_one(cohort: RepertoireDataset, tmp_path: Path) -> None:
    whole = train(cohort, tmp_path / "whole")
    with pytest.raises(Killed):
        train(cohort, tmp_path / "killed", progress=killing(5))
    other = rewritten(cohort, tmp_path / "other.h5", new_names={"TRBV1": "TRBV30"})
    with pytest.raises(InputError, match=r"its repertoires or labels have changed since .* was started"):
        resume_run(tmp_path / "killed", cohort=other.container.path)
    resumed = resume_run(tmp_path / "killed")
    for name in ("predictions.tsv", "metrics.json"):
        assert (resumed.path / name).read_bytes() == (whole.path / name).read_bytes()
    assert resumed.model.network.gene_names == whole.model.network.gene_names


@pytest.mark.slow
def test_runs_of_earlier_versions_load(cohort: RepertoireDataset, tmp_path: Path) -> None:
    config = load_config("deeprc", ["n_updates=2", "evaluate_every=2", "n_kernels=8"])
    run = train_run(cohort.container.path, tmp_path / "run", targets="status=case", config=config, device="cpu")
    body = yaml.safe_load((run.path / "config.yaml").read_text())
    del body["network"]["gene_units"]
    (run.path / "config.yaml").write_text(yaml.safe_dump(body))
    assert torch.equal(
        load_run(run.path, device="cpu").model.compute_outputs(cohort), run.model.compute_outputs(cohort)
    )


def test_weights_without_names_are_damaged(run: Run, tmp_path: Path) -> None:
    for file in run.path.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    save_tensors(tmp_path / "model.safetensors", run.model.network.state_dict(), {"update": 1})
    with pytest.raises(InputError, match=r"model.safetensors: does not fit config.yaml: has no names of genes"):
        load_run(tmp_path)


def test_a_repertoire_with_other_genes_is_known_unless_genes_alone_tell_repertoires_apart(
    run: Run, cohort: RepertoireDataset, tmp_path: Path
) -> None:
    renamed = rewritten(cohort, tmp_path / "renamed.h5", new_names={"TRBV1": "TRBV30"})
    assert run.split_of(renamed) == run.split_of(cohort)
    junctions = [["CASSF", "CASSW"]] * 4
    known = write_genes(tmp_path / "known.h5", junctions, [["V1", "V2"], ["V2", "V1"], ["V3", "V3"], ["V3", "V3"]])
    other = write_genes(tmp_path / "other.h5", junctions, [["V1", "V2"], ["V1", "V2"], ["V3", "V3"], ["V3", "V4"]])
    names = list(known.repertoire_ids)
    splits = {"train": names[:2], "validation": names[2:3], "test": names[3:]}
    of_known = replace(run, splits=splits, identities=dict(zip(names, identify_repertoires(known), strict=True)))
    assert of_known.split_of(known) == ["train", "train", "validation", "test"]
    assert of_known.split_of(other) == ["train", "new", "validation", "new"]
