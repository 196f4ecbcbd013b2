"""Training repertoires are recognised by their junctions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from deeprc.datasets.sequences import Sequences
from deeprc.errors import InputError
from deeprc.shift.sketches import Sketches, read_sketches, write_sketches
from deeprc.training.checkpoint import load_tensors, save_tensors
from tests.toys.shift_cohorts import Recipe, draw_repertoire, write_repertoires


@pytest.fixture(scope="module")
def drawn() -> dict[str, Sequences]:
    rng = np.random.default_rng(1)
    return {f"p{i}": draw_repertoire(rng, Recipe(depth=3000)) for i in range(12)}


@pytest.fixture(scope="module")
def sketches(drawn: dict[str, Sequences], tmp_path_factory: pytest.TempPathFactory) -> Sketches:
    return Sketches.of(write_repertoires(tmp_path_factory.mktemp("training") / "cohort.h5", drawn))


def test_a_repertoire_is_recognised_in_another_processing(
    sketches: Sketches, drawn: dict[str, Sequences], tmp_path: Path
) -> None:
    rng = np.random.default_rng(2)
    own = drawn["p3"]
    order = rng.permutation(len(own))
    mixed = Sequences.concatenate([drawn["p5"].take(order[:300]), draw_repertoire(rng, Recipe(depth=1000))])
    new = {
        "another order": own.take(order),
        "without counts": replace(own, counts=np.ones(len(own), np.uint32)),
        "without genes": Sequences(own.residues, own.offsets, own.counts),
        "a tenth": own.take(order[: len(own) // 10]),
        "contaminated": mixed,
        "another donor": draw_repertoire(rng, Recipe(depth=3000)),
    }
    genes = {name: each for name, each in new.items() if name != "without genes"}
    found = sketches.find_copies(write_repertoires(tmp_path / "new.h5", genes))
    found += sketches.find_copies(write_repertoires(tmp_path / "bare.h5", {"without genes": new["without genes"]}))
    of = dict(zip([*genes, "without genes"], found, strict=True))
    for name in ("another order", "without counts", "without genes", "a tenth"):
        copy = of[name]
        assert copy is not None
        assert (copy.repertoire_id, copy.overlap) == ("p3", 1.0)
    assert of["contaminated"] is not None
    assert of["contaminated"].repertoire_id == "p5"
    assert 0.1 < of["contaminated"].overlap < 0.45
    assert of["another donor"] is None


def test_sketches_are_read_as_they_were_written(sketches: Sketches, tmp_path: Path) -> None:
    assert read_sketches(tmp_path) is None
    write_sketches(tmp_path, sketches)
    again = read_sketches(tmp_path)
    assert again is not None
    assert (again.repertoire_ids, again.is_sampled, again.typical_overlap) == (
        sketches.repertoire_ids, sketches.is_sampled, sketches.typical_overlap,
    )  # fmt: skip
    for one, other in zip(again.hashes, sketches.hashes, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (tmp_path / "sketches.safetensors").stat().st_size < 12 * 1024 * 8 + 2000


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("offsets", torch.tensor([0, 1]), "expected hashes and offsets of 12 repertoires"),
        ("offsets", torch.arange(13), "expected rising positions"),
        ("hashes", torch.zeros(12 * 1024, dtype=torch.int64), "expected different hashes in rising order"),
        ("hashes", torch.zeros(3), "expected hashes and offsets"),
    ],
)
def test_damaged_sketches_are_refused(
    sketches: Sketches, tmp_path: Path, name: str, tensor: torch.Tensor, message: str
) -> None:
    write_sketches(tmp_path, sketches)
    tensors, state = load_tensors(tmp_path / "sketches.safetensors")
    save_tensors(tmp_path / "sketches.safetensors", {**tensors, name: tensor}, state)
    with pytest.raises(InputError, match=message):
        read_sketches(tmp_path)


@pytest.mark.parametrize(
    ("n", "is_sampled", "message"),
    [
        (0, [], "and at least one repertoire"),
        (1, [True], "expected at least one hash of each repertoire that is sampled"),
    ],
)
def test_sketches_of_nobody_and_empty_samples_are_refused(
    sketches: Sketches, tmp_path: Path, n: int, is_sampled: list[bool], message: str
) -> None:
    write_sketches(tmp_path, sketches)
    _, state = load_tensors(tmp_path / "sketches.safetensors")
    empty = {"hashes": torch.zeros(0, dtype=torch.int64), "offsets": torch.zeros(n + 1, dtype=torch.int64)}
    changed = {**state, "repertoire_ids": ["r"] * n, "is_sampled": is_sampled}
    save_tensors(tmp_path / "sketches.safetensors", empty, changed)
    with pytest.raises(InputError, match=message):
        read_sketches(tmp_path)
