"""Which results of the searches for clones are used."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from deeprc.branches.clones_results import SearchResult, select_results


def test_a_result_that_may_be_useful_counts_only_if_none_is_useful() -> None:
    def make_result(output: int, *, is_useful: bool, may_be_useful: bool) -> SearchResult:
        return cast(
            "SearchResult",
            SimpleNamespace(
                search=SimpleNamespace(output=output),
                is_useful=lambda: is_useful,
                may_be_useful=lambda: may_be_useful,
            ),
        )

    useful = make_result(0, is_useful=True, may_be_useful=True)
    weak = make_result(1, is_useful=False, may_be_useful=True)
    useless = make_result(2, is_useful=False, may_be_useful=False)
    assert select_results([useful, weak, useless]) == ([useful], False)
    assert select_results([weak, useless]) == ([weak], True)
    assert select_results([useless]) == ([], True)
