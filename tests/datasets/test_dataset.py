"""`RepertoireDataset`: distinct ids give distinct bags, and scikit-learn indexes it like an array."""

import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor

import h5py
import numba
import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, cross_val_predict, cross_val_score
from sklearn.utils import _safe_indexing

from deeprc.datasets.container_file import update_checksum
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from tests.toys.repertoires import make_sequences, write_repertoires

# The ids differ only after the last dot, where the published loader cut them, and are in no order.
BAGS = {
    "b.2": ["CASSF", "CAF"],
    "b.1": ["CW"],
    "a.tsv": ["CAA", "CAK", "CAL"],
    "a.csv": ["CSS"],
    "a": ["CWW"],
    "b.10": ["CYY", "CYF"],
}


@pytest.fixture
def dataset(tmp_path):
    repertoires = [make_sequences(texts, range(1, len(texts) + 1)) for texts in BAGS.values()]
    ids = list(BAGS)
    return write_repertoires(tmp_path / "c.h5", repertoires, {"id": ids, "y": [0, 1, 0, 1, 0, 1]}, ids)


def bags(dataset):
    return {repertoire.repertoire_id: repertoire.sequences.decode() for repertoire in dataset}


def test_distinct_ids_give_distinct_bags(dataset):
    assert bags(dataset) == BAGS
    for position, repertoire_id in enumerate(BAGS):
        assert dataset[position].repertoire_id == repertoire_id
        assert dataset[position].metadata["id"] == repertoire_id
        assert dataset.select([repertoire_id])[0].sequences.decode() == BAGS[repertoire_id]


def test_length_shape_ids_and_sizes(dataset):
    assert len(dataset) == 6
    assert dataset.shape == (6,)
    assert dataset.repertoire_ids.tolist() == list(BAGS)
    assert dataset.n_sequences.tolist() == [2, 1, 3, 1, 1, 2]


@pytest.mark.parametrize(
    ("key", "positions"),
    [
        (slice(None, None, -1), [5, 4, 3, 2, 1, 0]),
        ([4, 0, 0], [4, 0, 0]),
        (np.array([True, False, False, False, False, True]), [0, 5]),
        ([False, True, False, False, False, False], [1]),
        (np.array([-1]), [5]),
        ([], []),
        ((np.array([2, 1]), ...), [2, 1]),
    ],
)
def test_a_key_gives_a_view_in_its_order(dataset, key, positions):
    view = dataset[key]
    ids = [list(BAGS)[i] for i in positions]
    assert isinstance(view, RepertoireDataset)
    assert view.container is dataset.container
    assert view.repertoire_ids.tolist() == ids
    assert view.metadata["id"].tolist() == ids
    assert [repertoire.repertoire_id for repertoire in view] == ids


def test_a_view_of_a_view(dataset):
    assert dataset[[5, 3, 1]][[2, 0]].repertoire_ids.tolist() == ["b.1", "b.10"]


def test_out_of_range_is_an_index_error(dataset):
    with pytest.raises(IndexError):
        dataset[6]
    with pytest.raises(IndexError):
        dataset[[6]]


def test_an_id_is_no_position(dataset):
    with pytest.raises(
        TypeError, match=r"found the text 'a\.csv'; .* cohort\[cohort\.repertoire_ids == 'a\.csv'\]\[0\]"
    ):
        dataset["a.csv"]
    assert dataset[dataset.repertoire_ids == "a.csv"][0].repertoire_id == "a.csv"  # as the message says


def test_one_repertoire(dataset):
    repertoire = dataset[-1]
    assert len(repertoire) == 2
    assert repertoire.offsets.tolist() == [0, 3, 6]
    assert repertoire.lengths.tolist() == [3, 3]
    assert repertoire.counts.tolist() == [1, 2]
    frame = repertoire.to_frame([1])
    assert frame.to_dict("records") == [
        {"repertoire_id": "b.10", "sequence_id": 2, "junction_aa": "CYF", "duplicate_count": 2}
    ]


def test_a_function_is_mapped_to_all_repertoires_in_their_order(dataset):
    view = dataset[[2, 0, 1]]
    found = list(view.map_repertoires(lambda repertoire: (repertoire.repertoire_id, len(repertoire))))
    assert found == list(zip(view.repertoire_ids, view.n_sequences, strict=True))
    assert list(dataset[[]].map_repertoires(len)) == []
    with pytest.raises(ZeroDivisionError):
        list(view.map_repertoires(lambda repertoire: 1 // 0))


def test_compiled_code_of_a_mapped_function_has_one_thread(dataset):
    before = numba.get_num_threads()
    assert set(dataset.map_repertoires(lambda repertoire: numba.get_num_threads())) == {1}
    assert numba.get_num_threads() == before


def test_select_names_what_is_not_there(dataset):
    with pytest.raises(InputError, match=r"c\.h5: no repertoire 'x' \(nor 1 others asked for\)"):
        dataset.select(["a", "x", "y"])


@pytest.mark.parametrize("rows", [np.array([3, 0]), [3, 0], np.arange(6) % 3 == 0])
def test_scikit_learn_indexes_it(dataset, rows):
    ids = np.asarray(list(BAGS))[rows].tolist()
    assert _safe_indexing(dataset, rows).repertoire_ids.tolist() == ids


def test_scikit_learn_splits_it(dataset):
    for train, test in KFold(3).split(dataset):
        assert sorted([*dataset[train].repertoire_ids, *dataset[test].repertoire_ids]) == sorted(BAGS)


class FirstResidue(ClassifierMixin, BaseEstimator):
    """Predicts whether the second residue of the first sequence is one of `letters`."""

    def __init__(self, letters="W"):
        self.letters = letters

    def fit(self, X, y):
        assert isinstance(X, RepertoireDataset)
        assert X.metadata["y"].tolist() == list(y)
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return np.array([int(repertoire.sequences.decode()[0][1] in self.letters) for repertoire in X])


def test_scikit_learn_cross_validates_and_searches_over_it(dataset):
    y = dataset.metadata["y"].to_numpy()
    folds = StratifiedKFold(3)
    # y = 1 for b.1 (CW), a.csv (CSS), b.10 (CYY); of the others, only `a` (CWW) has one of W, S, Y.
    assert cross_val_predict(FirstResidue("WSY"), dataset, y, cv=folds).tolist() == [0, 1, 0, 1, 1, 1]
    assert cross_val_score(FirstResidue("WSY"), dataset, y, cv=folds).mean() == pytest.approx(5 / 6)
    search = GridSearchCV(FirstResidue(), {"letters": ["A", "SY"]}, cv=folds).fit(dataset, y)
    assert search.best_params_ == {"letters": "SY"}


def test_a_pickle_holds_the_path_and_not_the_data(dataset):
    again = pickle.loads(pickle.dumps(dataset[[2, 0]]))
    assert bags(again) == {"a.tsv": BAGS["a.tsv"], "b.2": BAGS["b.2"]}
    assert len(pickle.dumps(dataset)) < 1000
    assert pickle.loads(pickle.dumps(dataset[1])).sequences.decode() == BAGS["b.1"]


def test_other_metadata_belong_to_a_view_and_its_views(dataset):
    view = dataset.with_metadata(pd.DataFrame({"z": np.arange(6)}))
    assert view.container is dataset.container  # so what is computed from the container is found again
    part = view[[4, 0]]
    assert part.metadata["z"].tolist() == [4, 0]
    assert [repertoire.metadata for repertoire in part] == [{"z": 4}, {"z": 0}]
    assert part.whole().metadata["z"].tolist() == [0, 1, 2, 3, 4, 5]
    assert part.concatenate(view[[1]]).metadata["z"].tolist() == [4, 0, 1]
    assert pickle.loads(pickle.dumps(part)).metadata["z"].tolist() == [4, 0]
    assert "z" not in dataset.metadata


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (pd.DataFrame({"z": np.arange(5)}), "metadata: expected a row for each of the 6 repertoires .*, found 5"),
        (pd.DataFrame(np.zeros((6, 3)), columns=["a", "z", "z"]), "metadata: two columns are called 'z'"),
    ],
)
def test_other_metadata_that_fit_no_cohort(dataset, metadata, message):
    with pytest.raises(InputError, match=message):
        dataset.with_metadata(metadata)


@pytest.mark.slow
def test_a_worker_process_opens_it(dataset):
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        assert executor.submit(RepertoireDataset.select, dataset, ["a"]).result()[0].sequences.decode() == ["CWW"]


def test_nothing_written_to_the_arrays_reaches_the_file(dataset):
    dataset[0].residues[:] = 0
    assert bags(RepertoireDataset(dataset.container.path)) == BAGS


def test_the_digest_is_of_the_content_alone(dataset, tmp_path):
    digests = [repertoire.digest() for repertoire in dataset]
    assert len(set(digests)) == len(dataset)
    assert digests == [repertoire.digest() for repertoire in RepertoireDataset(dataset.container.path)]
    changed = tmp_path / "changed.h5"
    changed.write_bytes(dataset.container.path.read_bytes())
    with h5py.File(changed, "r+") as file:
        file["counts"][0] += 1
    update_checksum(changed)
    again = [repertoire.digest() for repertoire in RepertoireDataset(changed)]
    assert again[0] != digests[0]
    assert again[1:] == digests[1:]
