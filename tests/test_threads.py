"""Linear algebra on one thread."""

from __future__ import annotations

import threadpoolctl

from deeprc import threads
from deeprc.threads import limit_blas_threads


def blas_threads() -> set[int]:
    return {each["num_threads"] for each in threadpoolctl.threadpool_info() if each["user_api"] == "blas"}


def test_linear_algebra_has_one_thread_inside_and_as_many_as_before_outside() -> None:
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        assert blas_threads() == {2}
        with limit_blas_threads():
            assert blas_threads() == {1}
            with limit_blas_threads():
                assert blas_threads() == {1}
            assert blas_threads() == {1}
        assert blas_threads() == {2}


def test_libraries_are_looked_for_once() -> None:
    with limit_blas_threads():
        pass
    before = threads._get_controller()
    with limit_blas_threads():
        assert threads._get_controller() is before
