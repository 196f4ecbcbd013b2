"""The table of clones that go with a class, against plain counts of donors and scipy."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from deeprc.associations import associate_clones
from deeprc.associations.columns import compute_generation_probabilities
from deeprc.associations.donors_by_class import find_donors_by_class
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.interpretation.figures import draw_volcano_figure
from tests.toys.clone_cohorts import Clone, write_repertoires
from tests.toys.donor_clones import N_DONORS, SIGNAL, private, write_donor_cohort


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    return write_donor_cohort(tmp_path_factory.mktemp("clones") / "cohort.h5")


def row_of(table: pd.DataFrame, clone: Clone) -> pd.Series:
    found = table[(table["junction_aa"] == clone[0]) & (table["v_call"] == clone[1]) & (table["j_call"] == clone[2])]
    assert len(found) == 1
    return found.iloc[0]


@pytest.mark.slow
def test_donors_are_counted(cohort: RepertoireDataset) -> None:
    found = associate_clones(cohort, "status=ill", group_by="subject")
    assert found.class_sizes == {"healthy": 21, "ill": 21}
    assert found.notes == (
        "left out: 1 donor with a label but no sequences",
        "in several classes, once in each: 1 donor; prefer q_permutation, which knows who they are; to compare donors "
        "with themselves, give their column to `stratify`, too",
    )
    table = found.table
    assert table["junction_aa"].tolist() == [SIGNAL[0]]
    row = row_of(table, SIGNAL)
    contingency = [[16, 1], [5, 20]]
    assert (row["class"], row["carriers:ill"], row["carriers:healthy"]) == ("ill", 16, 1)
    assert row["p_value"] == pytest.approx(stats.fisher_exact(contingency, alternative="greater").pvalue)
    by_scipy = stats.contingency.odds_ratio(contingency)
    interval = by_scipy.confidence_interval()
    expected = [by_scipy.statistic, interval.low, interval.high]
    np.testing.assert_allclose(row[["odds_ratio", "odds_ratio_low", "odds_ratio_high"]].tolist(), expected)
    # Of the clones that two donors carry, only these two could reach 0.001; the common one could for both classes.
    assert found.n_tested == 4
    assert row["q_value"] == pytest.approx(4 * row["p_value"])
    assert row["q_permutation"] == pytest.approx(1 / 101)


@pytest.mark.slow
def test_neighbours_have_a_test_of_their_own(cohort: RepertoireDataset) -> None:
    row = row_of(associate_clones(cohort, "status=ill", group_by="subject", n_permutations=0).table, SIGNAL)
    # Three healthy donors carry the junction with another J gene; those of another V family do not count.
    assert (row["metaclone_carriers:ill"], row["metaclone_carriers:healthy"]) == (20, 4)
    expected = stats.fisher_exact([[4, 3], [1, 17]], alternative="greater").pvalue
    assert row["p_neighbours"] == row["q_neighbours"] == pytest.approx(expected)
    assert row["metaclone_odds_ratio"] == pytest.approx(stats.contingency.odds_ratio([[20, 4], [1, 17]]).statistic)
    assert "q_permutation" not in row.index


@pytest.mark.slow
def test_without_group_by_each_repertoire_counts_and_a_note_says_so(cohort: RepertoireDataset) -> None:
    found = associate_clones(cohort, "status=ill", n_permutations=0)
    row = row_of(found.table, SIGNAL)
    assert (row["carriers:ill"], row["carriers:healthy"]) == (15 + 5 + 1, 1)
    assert found.class_sizes == {"healthy": 41, "ill": 41}
    assert found.notes == (
        "left out: 2 donors with a label but no sequences",
        "p-values are too small: the 82 repertoires come from 41 donors, but each repertoire counts as a donor; use "
        "`group_by` to count donors",
    )


def test_strata_are_compared_separately_and_then_combined(cohort: RepertoireDataset) -> None:
    table = associate_clones(cohort, "status=ill", group_by="subject", stratify=["sex"], classes=["ill"]).table
    row = row_of(table, SIGNAL)
    donors = np.array([*range(N_DONORS), 42, 42])  # the last one is in both classes
    is_ill = (donors < 20) | (np.arange(42) == 40)
    carries = (donors < 15) | (donors == 20) | (np.arange(42) == 40)
    upper = lower = 0.0
    distribution = np.ones(1)
    for woman in (True, False):
        own = (donors % 4 < 2) == woman
        ill, n, n_all = int((own & is_ill).sum()), int((own & carries).sum()), int(own.sum())
        a = int((own & carries & is_ill).sum())
        upper += a * (n_all - ill - n + a) / n_all
        lower += (n - a) * (ill - a) / n_all
        distribution = np.convolve(distribution, stats.hypergeom(n_all, ill, n).pmf(np.arange(n + 1)))
    assert row["odds_ratio_stratified"] == pytest.approx(upper / lower)
    assert row["p_value_stratified"] == pytest.approx(distribution[16:].sum())
    assert row["p_value"] == pytest.approx(stats.fisher_exact([[16, 1], [5, 20]], alternative="greater").pvalue)
    assert row["q_value"] == pytest.approx(2 * row["p_value_stratified"])


def test_donors_in_both_classes_are_compared_with_themselves(tmp_path: Path) -> None:
    """Nine donors have a clone in their first repertoire only, one in the second only, two in both: McNemar's test."""
    rng = np.random.default_rng(4)
    repertoires = []
    for donor in range(14):
        first = [*private(rng), *([SIGNAL] if donor < 9 or donor in (10, 11) else [])]
        repertoires += [first, [*private(rng), *([SIGNAL] if 9 <= donor < 12 else [])]]
    sheet = pd.DataFrame({"cell": ["CD4", "CD8"] * 14, "donor": np.repeat(np.arange(14), 2)})
    dataset = write_repertoires(tmp_path / "c.h5", repertoires, metadata=sheet)
    found = associate_clones(dataset, "cell=CD4", group_by="donor", stratify=["donor"], max_p=0.05)
    row = row_of(found.table, SIGNAL)
    assert (row["carriers:CD4"], row["carriers:CD8"]) == (11, 3)
    assert row["p_value_stratified"] == pytest.approx(stats.binomtest(9, 10, alternative="greater").pvalue)
    assert row["odds_ratio_stratified"] == 9.0
    donors = find_donors_by_class(dataset, "cell=CD4", group_by="donor")
    labels = donors.permute(20, np.random.default_rng(0)).reshape(14, 2, 21)
    assert (labels.sum(axis=1) == 1).all()


def test_a_donor_without_sequences_in_a_class_is_not_in_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    sheet = pd.DataFrame({"y": [0, 1, 0, 1], "donor": ["a", "a", "b", "c"]})
    donors = find_donors_by_class(
        write_repertoires(tmp_path / "c.h5", [private(rng), [], private(rng), private(rng)], metadata=sheet),
        "y",
        group_by="donor",
    )
    assert donors.codes[donors.unit_of[[0, 2, 3]]].tolist() == [0, 0, 1]
    assert donors.notes == ("left out: 1 donor with a label but no sequences",)


def test_permutations_stay_within_strata_and_sizes(cohort: RepertoireDataset) -> None:
    donors = find_donors_by_class(cohort, "status=ill", group_by="subject", stratify=["sex"])
    labels = donors.permute(50, np.random.default_rng(0))
    np.testing.assert_array_equal(labels[:, 0], donors.codes)
    for stratum in (0, 1):
        own = donors.strata == stratum
        np.testing.assert_array_equal(labels[own].sum(axis=0), donors.codes[own].sum())
    assert len(np.unique(labels, axis=1).T) == 51


def test_strata_of_one_class_and_missing_values_are_told_of(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    sheet = pd.DataFrame({"y": [0, 1] * 8, "batch": ["a"] * 12 + [None] * 2 + ["b", "c"], "own": list("xy" * 8)})
    dataset = write_repertoires(tmp_path / "c.h5", [private(rng) for _ in range(16)], metadata=sheet)
    donors = find_donors_by_class(dataset, "y", stratify=["batch"])
    strata = pd.factorize(donors.strata[donors.unit_of])[0]
    assert strata.tolist() == [0] * 12 + [1] * 2 + [2, 3]
    note = "2 donors of 16 in strata of one class only, which the test by strata cannot use"
    assert donors.notes == (note,)
    with pytest.raises(InputError, match="`stratify`: expected strata with donors of two classes, found none"):
        find_donors_by_class(dataset, "y", stratify=["own"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"stratify": ["hla"]}, "no column 'hla' for `stratify`"),
        ({"group_by": "donor"}, "no column 'donor' for `group_by`"),
        ({"group_by": "statsu"}, "no column 'statsu' for `group_by`; did you mean 'status'? Columns: "),
        ({"classes": ["il"]}, "`classes='il'`: expected healthy or ill; did you mean 'ill'?"),
        ({"max_p": 0.0}, "`max_p=0.0`: expected a number above 0, up to 1"),
        ({"n_permutations": -1}, "`n_permutations=-1`: expected 0 to 1,000,000"),
        ({"n_permutations": 10**30}, f"`n_permutations={10**30}`: expected 0 to 1,000,000"),
    ],
)
def test_a_bad_parameter_is_named(cohort: RepertoireDataset, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as error:
        associate_clones(cohort, "status=ill", **arguments)  # type: ignore[arg-type]
    assert message in str(error.value)


def test_a_number_is_no_class(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    dataset = write_repertoires(
        tmp_path / "c.h5", [private(rng) for _ in range(6)], metadata=pd.DataFrame({"age": range(6)})
    )
    with pytest.raises(InputError, match="is a number; expected classes, such as age>NUMBER"):
        associate_clones(dataset, "age:regression")


def test_three_classes_are_each_compared_with_the_others(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    repertoires = [[*private(rng), *([SIGNAL] if number % 3 == 1 else [])] for number in range(30)]
    dataset = write_repertoires(tmp_path / "c.h5", repertoires, metadata=pd.DataFrame({"y": list("abc") * 10}))
    table = associate_clones(dataset, "y:multiclass").table
    row = row_of(table, SIGNAL)
    assert (row["class"], row["carriers:a"], row["carriers:b"], row["carriers:c"]) == ("b", 0, 10, 0)
    assert row["p_value"] == pytest.approx(stats.fisher_exact([[10, 0], [0, 20]], alternative="greater").pvalue)
    assert row["odds_ratio"] == np.inf


def test_without_associated_clones_the_table_is_empty(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    dataset = write_repertoires(
        tmp_path / "c.h5", [private(rng) for _ in range(6)], metadata=pd.DataFrame({"y": [0, 1] * 3})
    )
    found = associate_clones(dataset, "y")
    assert len(found.table) == found.n_tested == 0
    assert found.to_lines()[-1].startswith("tests: none, because no clone has enough carriers for a p-value")
    assert "carriers:1" in found.table
    assert draw_volcano_figure(found.table, ["0", "1"]).axes


def test_a_volcano_plot_has_both_axes_of_the_same_test() -> None:
    table = pd.DataFrame(
        {"class": "ill", "odds_ratio": [8.0, 1.0], "p_value": [0.1, 1.0], "q_value": [0.2, 1.0]}
    ).assign(odds_ratio_stratified=[2.0, np.inf], p_value_stratified=[0.01, 0.001])
    for columns, ratios, powers, kind in (
        (["odds_ratio", "p_value"], [8.0, 1.0], [1.0, 0.0], ""),
        (
            ["odds_ratio", "p_value", "odds_ratio_stratified", "p_value_stratified"],
            [2.0, 2.0**1.15],
            [2.0, 3.0],
            "stratified ",
        ),
    ):
        (axis,) = draw_volcano_figure(table[["class", "q_value", *columns]], ["healthy", "ill"]).axes
        places = np.concatenate([np.asarray(each.get_offsets()) for each in axis.collections])
        places = places[np.argsort(places[:, 1] * (1 if kind else -1))]
        np.testing.assert_allclose(2 ** places[:, 0], ratios)
        np.testing.assert_allclose(places[:, 1], powers, atol=1e-12)
        legend = axis.get_legend() or axis.figure.legends[0]
        labels = [text.get_text() for text in legend.get_texts()]
        assert ("infinite odds ratio" in labels) == bool(kind)  # the only infinite one is stratified
        assert axis.get_xlabel() == f"{kind}odds ratio (healthy on the left, ill on the right)"
        assert axis.get_ylabel() == f"-log10 of the {kind}p-value"


def test_a_model_gives_generation_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for righor: a table of probabilities by junction and genes."""
    segments = [SimpleNamespace(name=name) for name in ("TRBV7-9*01", "TRBV7-9*02", "TRBV7-2*01", "TRBV70*01")]
    asked = []

    def pgen(query: tuple[str, list[SimpleNamespace], list[SimpleNamespace]]) -> SimpleNamespace:
        asked.append((query[0], [each.name for each in query[1]], len(query[2])))
        return SimpleNamespace(likelihood=0.01)

    model = SimpleNamespace(v_segments=segments, j_segments=segments[:1], pgen=pgen, get_norm_productive=lambda: 0.25)
    amino_acid = SimpleNamespace(from_string=lambda text: text)
    module = SimpleNamespace(load_model=lambda species, chain: model, AminoAcid=amino_acid, __spec__=object())
    monkeypatch.setitem(sys.modules, "righor", module)
    clones = pd.DataFrame(
        {"junction_aa": ["CAAF", "CDDF", "CEEF"], "v_call": ["TRBV7-9", "TRBV7", ""]}, index=[4, 7, 9]
    )
    found = compute_generation_probabilities(clones)
    assert found is not None
    assert found.to_dict() == {4: 0.04, 7: 0.04, 9: 0.04}
    names = [each.name for each in segments]
    assert sorted(asked) == [("CAAF", names[:2], 1), ("CDDF", names[:3], 1), ("CEEF", names, 1)]
    assert compute_generation_probabilities(clones[["junction_aa"]]) is None
    assert compute_generation_probabilities(clones.assign(v_call="TRGV1")) is None


def test_a_usual_junction_is_more_probable_than_a_strange_one_for_righor() -> None:
    pytest.importorskip("righor")
    clones = pd.DataFrame(
        {"junction_aa": ["CASSLGGYEQYF", "CASSWWWWWWWWYEQYF"], "v_call": "TRBV7-9", "j_call": "TRBJ2-7"}
    )
    found = compute_generation_probabilities(clones)
    assert found is not None
    assert 1e-9 < found[0] < 1e-3
    assert found[1] < 1e-4 * found[0]


def test_donors_that_cannot_exchange_their_labels_are_told(tmp_path: Path) -> None:
    """Whose repertoires are all larger has another class: no permutation changes anything."""
    rng = np.random.default_rng(0)
    repertoires = [private(rng, 300 if donor < 10 else 10) + ([SIGNAL] if donor < 10 else []) for donor in range(20)]
    metadata = pd.DataFrame({"status": ["ill"] * 10 + ["healthy"] * 10})
    found = associate_clones(write_repertoires(tmp_path / "c.h5", repertoires, metadata=metadata), "status=ill")
    assert found.table["q_permutation"].tolist() == [1.0]
    assert found.table["p_value"].iloc[0] < 1e-4
    assert found.notes[-1].startswith("permutations: 20 of 20 donors always keep their label, because no donor of")


def test_the_order_of_repertoires_does_not_matter(cohort: RepertoireDataset) -> None:
    rng = np.random.default_rng(0)
    expected = find_donors_by_class(cohort, "status=ill", group_by="subject")
    order = rng.permutation(len(cohort))
    found = find_donors_by_class(cohort[order], "status=ill", group_by="subject")
    np.testing.assert_array_equal(found.unit_of, expected.unit_of)
    for name in ("codes", "donors", "sizes", "strata"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    permuted = (each.permute(3, np.random.default_rng(1)) for each in (found, expected))
    np.testing.assert_array_equal(*permuted)


def test_equal_repertoires_of_several_donors_keep_their_order(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    shared = private(rng)
    repertoires = [shared, private(rng), shared, private(rng), private(rng), private(rng)]
    sheet = pd.DataFrame({"y": [0, 0, 0, 1, 1, 1], "donor": ["a", "a", "b", "b", "c", "c"]})
    dataset = write_repertoires(tmp_path / "c.h5", repertoires, metadata=sheet)
    found = [
        find_donors_by_class(dataset[order], "y", group_by="donor")
        for order in ([0, 1, 2, 3, 4, 5], [2, 5, 0, 3, 1, 4])
    ]
    np.testing.assert_array_equal(*(each.unit_of for each in found))
