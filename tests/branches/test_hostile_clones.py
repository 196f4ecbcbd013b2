"""Stored clones from files that a stranger made, or that do not fit the model."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from deeprc.branches import clones_check, clones_description
from deeprc.branches.clones import CloneBranch
from deeprc.branches.clones_memory import CLUSTER, EXPANDED
from deeprc.datasets.clones.neighbours import SUBSTITUTIONS, WILDCARD
from deeprc.errors import InputError
from tests.branches.test_clones import make_branch

MEMORY = {"output": 0, "direction": "up", "kind": "odds", "n_clones": 1}  # described
_NOT_WITHIN = "is_ball: expected wildcards within the clones, and substitutions of up to a quarter of them"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("offsets", lambda x: x.index_fill_(0, torch.tensor([0]), 1), "offsets: expected to rise from 0 to 20"),
        ("offsets", lambda x: x.index_fill_(0, torch.tensor([4]), 2**40), "offsets: expected to rise from 0 to 20"),
        ("offsets", lambda x: x.index_fill_(0, torch.tensor([2]), -5), "offsets: expected to rise from 0 to 20"),
        ("residues", lambda x: x.fill_(20), "residues: expected numbers from 0 to 19, found 20 to 20"),
        ("residues", lambda x: x.fill_(-1), "residues: expected numbers from 0 to 19"),
        ("v_call", lambda x: x.fill_(2), "v_call: expected numbers from 0 to 1"),
        ("j_call", lambda x: x.fill_(-1), "j_call: expected numbers from 0 to 1"),
        ("is_ball", lambda x: x.fill_(-1), "is_ball: expected numbers from 0 to"),
        ("is_ball", lambda x: x.fill_(2**40), "is_ball: expected numbers from 0 to"),
        ("is_ball", lambda x: x.fill_(WILDCARD + 5), _NOT_WITHIN),
        ("is_ball", lambda x: x.fill_(SUBSTITUTIONS + 2), _NOT_WITHIN),  # of five residues, at most one may differ
        ("is_ball", lambda x: x.fill_(EXPANDED - 1), _NOT_WITHIN),
        ("is_ball", lambda x: x.fill_(EXPANDED + 1), _NOT_WITHIN),
        ("is_ball", lambda x: x.fill_(CLUSTER + 4), "is_ball: expected numbers from 0 to"),
        ("is_ball", lambda x: x.fill_(CLUSTER - 1), _NOT_WITHIN),
        ("carriers", lambda x: x.fill_(-1), "carriers: expected numbers from 0"),
        ("tests", lambda x: x.fill_(float("nan")), "tests: expected numbers from 0 to 1"),
        ("evidence", lambda x: x.fill_(-1), "evidence: expected finite numbers, above 0 if the target has classes"),
        (
            "evidence",
            lambda x: x.fill_(float("inf")),
            "evidence: expected finite numbers, above 0 if the target has classes",
        ),
    ],
)
def test_numbers_that_a_stranger_made(name: str, change: Callable[[torch.Tensor], torch.Tensor], message: str) -> None:
    branch = make_branch()
    change(getattr(branch, name))
    with pytest.raises(InputError, match=f"^m: {message}") as error:
        branch.check("m")
    assert "\n" not in str(error.value)


def test_more_similar_clones_than_can_be_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    branch = make_branch()
    branch.is_ball.fill_(SUBSTITUTIONS + 1)
    monkeypatch.setattr(clones_check, "MAX_SIMILAR", 2)
    branch.check("m")  # two memories, with two clones each
    monkeypatch.setattr(clones_check, "MAX_SIMILAR", 1)
    with pytest.raises(InputError, match=r"^m: is_ball: expected at most 1 similar clones in a memory, found 2$"):
        branch.check("m")


def test_a_clone_that_is_there_twice() -> None:
    branch = make_branch()
    branch.residues[5:10] = branch.residues[:5]
    branch.check("m")  # one is matched with substitutions, the other exactly
    branch.is_ball[1] = branch.is_ball[0]
    with pytest.raises(InputError, match=r"^m: expected different clones in a memory, found one twice$"):
        branch.check("m")


def test_more_clones_than_a_file_may_have_are_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    make_branch()
    monkeypatch.setattr(clones_description, "_MAX_CLONES", 3)
    where = r"^the branch `clones` \(`clones: false` turns it off\)"
    with pytest.raises(InputError, match=f"{where}: memories: expected at most 3 clones, found 4$"):
        make_branch()
    monkeypatch.setattr(clones_description, "_MAX_CLONES", 4)
    monkeypatch.setattr(clones_description, "_MAX_RESIDUES", 19)
    with pytest.raises(InputError, match=f"{where}: n_residues: expected at most 19, found 20$"):
        make_branch()


def test_clones_longer_than_any_sequence() -> None:
    described = make_branch().describe()
    described["n_residues"] = 1000
    branch = CloneBranch.from_description(described, 3, "m")
    branch.offsets[1:] = 1000
    with pytest.raises(InputError, match="by at most 255 residues a clone"):
        branch.check("m")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"memories": []}, "memories: expected at least one"),
        ({"memories": 3}, "memories: expected a list, found 3"),
        ({"n_residues": 0}, "n_residues: expected 1 to"),
        ({"n_residues": 10**15}, "n_residues: expected 1 to"),
        ({"genes": {"d_call": []}}, "genes: expected some of v_call, j_call, found 'd_call'"),
        ({"genes": {"v_call": []}}, "genes: v_call: expected different names, found"),
        ({"genes": {"v_call": ["V1", "V2", "V1"]}}, "genes: v_call: expected different names, found .'V1', 'V2', 'V1'"),
        ({"genes": {"v_call": [f"V{i}" for i in range(65_537)]}}, "v_call: expected at most 65,536, found 65,537"),
        (
            {"memories": [{"output": 1, "direction": "up", "kind": "odds", "n_clones": 1}] * 21},
            "memories: expected at most 20 for each output and direction, found 21",
        ),
        ({"other": 1}, "no key 'other' is known here"),
        (
            {"memories": [{"output": 3, "direction": "up", "kind": "odds", "n_clones": 1}]},
            "expected one below 3, found 3",
        ),
        ({"memories": [{"output": -1, "direction": "up", "kind": "odds", "n_clones": 1}]}, "output: expected 0 to"),
        ({"memories": [{"output": 0, "direction": "x", "kind": "odds", "n_clones": 1}]}, "expected one of up, down"),
        (
            {"memories": [{"output": 0, "direction": "up", "kind": "odds", "n_clones": 10**9}]},
            "n_clones: expected 1 to",
        ),
        (
            {"memories": [{"output": 0, "direction": "up", "kind": "odds", "n_clones": 3 * 10**6}] * 2},
            "at most 4,000,000",
        ),
        ({"memories": [{**MEMORY, "levels": []}]}, "levels: expected 1 to 100, found 0"),
        ({"memories": [{**MEMORY, "levels": [{}] * 101}]}, "levels: expected 1 to 100, found 101"),
        ({"memories": [{**MEMORY, "levels": [{"weight": math.nan}]}]}, "weight: expected a finite number"),
        ({"memories": [{**MEMORY, "levels": [{"weight": -0.1}]}]}, "weight: expected 0 to 1, found -0.1"),
        ({"memories": [{**MEMORY, "levels": [{"weight": 1e308}]}]}, r"weight: expected 0 to 1, found 1e\+308"),
        ({"memories": [{**MEMORY, "levels": [{"threshold": -1.0}]}]}, "threshold: expected 0 to 2, found -1.0"),
        ({"memories": [{**MEMORY, "levels": [{"threshold": 2.5}]}]}, "threshold: expected 0 to 2, found 2.5"),
    ],
)
def test_descriptions_that_a_stranger_made(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        CloneBranch.from_description({**make_branch().describe(), **change}, 3, "m")


def test_evidence_of_another_kind_than_the_target_is_refused() -> None:
    """Read as rates, log-odds would be scores of another scale, without an error."""
    branch = make_branch()
    branch.check_targets([False, False, True], "m")
    with pytest.raises(
        InputError, match=r"^m: memories: kind: expected rate, because output 0 is a number, found odds$"
    ):
        branch.check_targets([True, False, True], "m")
    with pytest.raises(
        InputError, match=r"^m: memories: kind: expected odds, because output 2 is a class, found rate$"
    ):
        branch.check_targets([False, False, False], "m")
