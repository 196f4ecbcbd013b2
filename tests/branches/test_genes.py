"""Genes that a container writes in another way than the training repertoires did."""

from __future__ import annotations

import pytest

from deeprc.branches.genes import check_some_genes_known
from deeprc.errors import InputError


def test_some_known_names_are_enough() -> None:
    check_some_genes_known("a.h5", "v_call", ["", "TRBV2", "TRBV9"], ["", "TRBV9", "TRBV30"])
    check_some_genes_known("a.h5", "v_call", [""], ["TRBV30"])  # the branch knows no gene


@pytest.mark.parametrize(("found", "example"), [(["", "TRBV2*01"], "'TRBV2*01'"), ([""], "none")])
def test_names_that_are_all_unknown_are_refused(found: list[str], example: str) -> None:
    with pytest.raises(InputError) as refused:
        check_some_genes_known("a.h5", "v_call", ["TRBV9", "TRBV2"], found)
    expected = "expected genes named as in training, such as 'TRBV2'"
    assert str(refused.value) == f"a.h5: v_call: {expected}, found {example}"
