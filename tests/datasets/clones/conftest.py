"""A cohort for the searches for clones that differ by one residue."""

from __future__ import annotations

import pytest

from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.simulation import Cohort, GermlineBackground, Sizes, write_container


@pytest.fixture(scope="session")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    """Repertoires whose sequences often differ by one residue: loops of 1 or 2 residues."""
    path = tmp_path_factory.mktemp("similar_clones") / "c.h5"
    write_container(Cohort(5, Sizes(300, 100, 50), GermlineBackground(1, 2)), path)
    return open_dataset(path)
