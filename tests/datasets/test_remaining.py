"""Repertoires without some of their sequences: all that is left, in its order, and nothing else."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest

from deeprc.datasets.clones.distinct import count_distinct_clones
from deeprc.datasets.clones.shared import find_shared_clones
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.in_memory import from_frame
from deeprc.datasets.remaining import RemainingDataset
from deeprc.datasets.simulation import SimulatedDataset, load_recipe

LEFT_OUT = [np.array([0, 3, 4]), np.array([], np.int64), np.arange(5)]


@pytest.fixture(params=["stored", "simulated"])
def whole(request: pytest.FixtureRequest) -> RepertoireDataset:
    if request.param == "simulated":
        sizes = ["n_repertoires=3", "sizes.mean=5", "sizes.sd=0", "sizes.minimum=1", "background={kind: germline}"]
        return SimulatedDataset(load_recipe("simulated-0", sizes, seed=1)[0])
    columns = {
        "repertoire_id": np.repeat(["a", "b", "c"], 5),
        "junction_aa": [f"CA{letter * length}F" for length in (1, 2, 3) for letter in "SRKLM"],
        "v_call": ["TRBV2", "TRBV3-1", "TRBV5-1", "TRBV9", "TRBV2"] * 3,
        "duplicate_count": range(1, 16),
        "age": np.repeat([30, 40, 50], 5),
    }
    return from_frame(pd.DataFrame(columns))


def test_the_others_are_left_in_their_order(whole: RepertoireDataset) -> None:
    remaining = RemainingDataset(whole, LEFT_OUT)
    assert remaining.n_sequences.tolist() == [2, 5, 0]
    assert remaining.repertoire_ids.tolist() == whole.repertoire_ids.tolist()
    assert remaining.metadata.equals(whole.metadata)
    for repertoire, original, left_out in zip(remaining, whole, LEFT_OUT, strict=True):
        expected = original.to_frame(np.setdiff1d(np.arange(5), left_out)).drop(columns="sequence_id")
        assert repertoire.to_frame().drop(columns="sequence_id").equals(expected)
        assert repertoire.metadata == original.metadata
        assert repertoire.lengths.tolist() == expected["junction_aa"].str.len().tolist()


def test_slices_and_copies_leave_out_the_same(whole: RepertoireDataset) -> None:
    remaining = RemainingDataset(whole[[2, 0]], [LEFT_OUT[2], LEFT_OUT[0]])
    last = remaining[[1]]
    assert last.n_sequences.tolist() == [2]
    assert last[0].sequences.decode() == [whole[0].sequences.decode()[i] for i in (1, 2)]
    assert [len(part) for part in remaining.map_repertoires(lambda part: part.sequences)] == [0, 2]
    assert [part.sequences.decode() for part in pickle.loads(pickle.dumps(remaining))] == [
        [],
        last[0].sequences.decode(),
    ]


@pytest.mark.parametrize("fields", [[], ["v_call"]])
def test_clones_of_what_remains(whole: RepertoireDataset, fields: list[str]) -> None:
    remaining = RemainingDataset(whole, LEFT_OUT)
    assert remaining.gene_fields == remaining[:0].gene_fields == whole.gene_fields
    assert remaining.take_clones(np.array([5, 0])).decode() == [
        remaining[1].sequences.decode()[3],
        remaining[0].sequences.decode()[0],
    ]
    counts = find_shared_clones(remaining, fields).count_by_repertoire()
    assert count_distinct_clones(remaining, fields).tolist() == counts.tolist()
    nothing = RemainingDataset(whole, [np.arange(5)] * 3)
    assert nothing.gene_fields == []
    assert len(find_shared_clones(nothing)) == 0
