import numpy as np
import pytest

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.training.labelled_repertoires import LabelledRepertoires


def test_folds_are_joined_with_their_donors(cohort: RepertoireDataset) -> None:
    first = LabelledRepertoires(cohort[:2], np.array([[0.0], [1.0]]), np.array([5, 5]))
    second = LabelledRepertoires(cohort[2:5], np.array([[1.0], [np.nan], [0.0]]), np.array([7, 5, 8]))
    joined = LabelledRepertoires.join([first, second])
    assert list(joined.dataset.repertoire_ids) == list(cohort.repertoire_ids[:5])
    np.testing.assert_array_equal(joined.labels[:, 0], [0, 1, 1, np.nan, 0])
    assert joined.index_donors().tolist() == [0, 0, 1, 0, 2]
    alone = LabelledRepertoires.join(
        [LabelledRepertoires(first.dataset, first.labels), LabelledRepertoires(second.dataset, second.labels)]
    )
    assert alone.groups is None


def test_parts_of_which_only_some_have_donors_are_not_joined(cohort: RepertoireDataset) -> None:
    with_donors, without = (
        LabelledRepertoires(cohort[:2], np.zeros((2, 1)), np.array([0, 0])),
        LabelledRepertoires(cohort[2:4], np.zeros((2, 1))),
    )
    for parts in ([with_donors, without], [without, with_donors]):
        with pytest.raises(ValueError, match="groups: expected those of all 2 parts or of none, found 1"):
            LabelledRepertoires.join(parts)
