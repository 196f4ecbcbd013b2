"""Files that the workers of a Dask cluster read give the same container."""

from pathlib import Path

import pytest

from deeprc.datasets.preprocessing import preprocess
from deeprc.errors import InputError


def run(cohort, **options):
    return preprocess(Path("files"), Path("metadata.tsv"), Path("cohort.h5"), **options)


@pytest.mark.long
def test_a_cluster_writes_the_same_container(cohort, cluster, monkeypatch):
    monkeypatch.chdir(cohort)  # the workers have another working directory
    here = run(cohort)
    one = (cohort / "cohort.h5").read_bytes()
    seen = []
    there = run(cohort, scheduler=cluster, progress=lambda done, total: seen.append((done, total)))
    assert (cohort / "cohort.h5").read_bytes() == one
    assert there.to_dict() == here.to_dict()
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_without_a_scheduler_nothing_is_read(cohort, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.chdir(cohort)
    with pytest.raises(InputError, match=r"^`scheduler=tcp://127.0.0.1:1`: cannot be reached: .*Connection refused"):
        run(cohort, scheduler="tcp://127.0.0.1:1")
    assert not (cohort / "cohort.h5").exists()
