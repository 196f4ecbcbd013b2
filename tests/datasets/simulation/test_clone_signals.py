"""Signals of public clones: who carries which, where they lie, and what the truth says of them."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy import stats

from deeprc.cli.simulate import simulate
from deeprc.datasets.alphabet import compute_offsets, decode_many, encode_many
from deeprc.datasets.dataset import open_dataset
from deeprc.datasets.provenance import read_simulation
from deeprc.datasets.sequences import Sequences
from deeprc.datasets.simulation import (
    CarrierTable,
    CloneSignal,
    Cohort,
    DiffuseSignal,
    GermlineBackground,
    IndependentBackground,
    LstmBackground,
    Motif,
    MotifSignal,
    SimulatedDataset,
    Sizes,
    load_recipe,
    write_airr,
    write_container,
)
from deeprc.datasets.simulation.clone_signal import ClonePools
from deeprc.datasets.simulation.recipe import cohort_from_mapping, cohort_to_mapping
from deeprc.datasets.summary import render_summary, summarise
from deeprc.errors import InputError

LOOPS = GermlineBackground(shortest_loop=8, longest_loop=12)  # hardly a junction is drawn twice
POOL = CloneSignal(40, burden=6, other_burden=1)
SMALL = Cohort(60, Sizes(200, 30, 100), LOOPS, (POOL,), seed=2)


def receptors(table: Sequences) -> list[tuple[str, str, str]]:
    assert table.v_call is not None
    assert table.j_call is not None
    junctions = decode_many(table.residues, compute_offsets(table.lengths))
    return list(zip(junctions, table.v_call.names(), table.j_call.names(), strict=True))


def pool_of(cohort: Cohort) -> list[tuple[str, str, str]]:
    assert cohort.clone_pools is not None
    return receptors(cohort.clone_pools.clones)


def test_a_repertoire_holds_its_clones_once_and_the_truth_names_them() -> None:
    pool = pool_of(SMALL)
    assert len({junction for junction, _, _ in pool}) == len(pool) == 40
    for index in range(10):
        table, truth = SMALL.draw(index)
        found = receptors(table)
        witnesses = np.flatnonzero(truth.signal)
        assert [found[row] for row in witnesses] == [pool[clone] for clone in truth.motif[witnesses]]
        assert len(set(truth.motif[witnesses].tolist())) == len(witnesses)
        assert sum(receptor in set(pool) for receptor in found) == len(witnesses)
        assert [SMALL.patterns[clone] for clone in truth.motif[witnesses]] == [found[row][0] for row in witnesses]
        assert not truth.start[witnesses].any()


@pytest.mark.slow
def test_burdens_are_those_of_the_classes() -> None:
    cohort = replace(SMALL, n_repertoires=2000, sizes=Sizes(60))
    carried = {True: [], False: []}
    for index in range(2000):
        carries = cohort.find_carried_signals(index)
        assert carries == [cohort.is_positive(index)]
        assert cohort.clone_pools is not None
        carried[carries[0]].append(len(cohort.clone_pools.draw_clones(index, 60, carries).rows))
    for carries, burden in ((True, 6), (False, 1)):
        assert stats.ttest_1samp(carried[carries], burden).pvalue > 1e-6
    assert np.var(carried[True]) > 1.3 * np.mean(carried[True])  # donors differ, more than by chance


def test_incidence_is_skewed_as_asked() -> None:
    counts = {}
    for sd in (0.0, 1.0):
        signal = CloneSignal(100, burden=10, incidence_sd=sd, burden_sd=0.0)
        found = [signal.draw_clones(7, index, True) for index in range(3000)]
        counts[sd] = np.bincount(np.concatenate(found), minlength=100)
    assert stats.chisquare(counts[0.0]).pvalue > 1e-6
    assert 0.7 < np.log(counts[1.0]).std() < 1.3


def test_any_rows_alone_are_those_of_the_whole_repertoire() -> None:
    for index in (0, 1, 5):
        whole, truth = SMALL.draw(index)
        rows = np.array([150, 3, 77, 3, *np.flatnonzero(truth.signal)])
        rows = rows[rows < len(whole.lengths)]
        some, of_some = SMALL.draw(index, rows)
        assert receptors(some) == [receptors(whole)[row] for row in rows]
        assert of_some.signal.tolist() == truth.signal[rows].tolist()
        assert of_some.motif.tolist() == truth.motif[rows].tolist()
        lengths, _ = SMALL.draw_lengths_and_counts(index)
        assert lengths.tolist() == whole.lengths.tolist()


def test_a_cohort_of_another_size_has_the_same_repertoires() -> None:
    other = replace(SMALL, n_repertoires=7)
    assert [receptors(other.draw(i)[0]) for i in range(7)] == [receptors(SMALL.draw(i)[0]) for i in range(7)]


def test_only_sequences_that_carry_a_clone_change() -> None:
    plain = replace(SMALL, signals=())
    for index in range(4):
        before, (after, truth) = receptors(plain.draw(index)[0]), SMALL.draw(index)
        changed = [row for row, each in enumerate(receptors(after)) if each != before[row]]
        assert changed == np.flatnonzero(truth.signal).tolist()


def test_a_variant_has_one_substitution_between_the_ends() -> None:
    cohort = replace(SMALL, signals=(replace(POOL, burden=30, variant_rate=0.5),), n_repertoires=40)
    pool = pool_of(cohort)
    exact = total = 0
    for index in range(40):
        table, truth = cohort.draw(index)
        found = receptors(table)
        for row in np.flatnonzero(truth.signal):
            (junction, *genes), (clone, *of_clone) = found[row], pool[truth.motif[row]]
            assert genes == of_clone
            assert len(junction) == len(clone)
            differences = [i for i in range(len(clone)) if junction[i] != clone[i]]
            assert len(differences) <= 1
            assert not {0, len(clone) - 1} & set(differences)
            exact += not differences
            total += 1
    assert stats.binomtest(exact, total, 0.5).pvalue > 1e-6


def test_a_junction_without_an_inside_has_no_variant(tmp_path: Path) -> None:
    (tmp_path / "table.tsv").write_text("sample\tstatus\tuniques\tV|CF|J\tV|CAF|J\na\t1\t5\t1\t1\n")
    table = CarrierTable(tmp_path / "table.tsv", minimum=1, variant_rate=1.0)
    carried = ClonePools([table], IndependentBackground(), [0]).draw_clones(0, 5, [True])
    first, second = decode_many(carried.sequences.residues, compute_offsets(carried.sequences.lengths))
    assert first == "CF"
    assert second[::2] == "CF"
    assert second != "CAF"


def test_clones_beside_motifs() -> None:
    signals = (MotifSignal((Motif("WHWC"), Motif("MMM")), 0.1, name="motif"), POOL)
    cohort = replace(SMALL, signals=signals)
    alone = replace(SMALL, signals=signals[:1])
    index = next(i for i in range(60) if cohort.is_positive(i))
    table, truth = cohort.draw(index)
    _, of_motif = alone.draw(index)
    clones = truth.signal == 2
    assert clones.sum() > 0
    assert (truth.signal[~clones] == of_motif.signal[~clones]).all()
    assert cohort.patterns[:2] == ["WHWC", "MMM"]
    junctions = [junction for junction, _, _ in receptors(table)]
    assert [cohort.patterns[i] for i in truth.motif[clones]] == [junctions[row] for row in np.flatnonzero(clones)]


def test_more_clones_than_sequences() -> None:
    cohort = Cohort(2, Sizes(3), LOOPS, (CloneSignal(40, burden=40, other_burden=40, burden_sd=0, incidence_sd=0),))
    table, truth = cohort.draw(0)
    assert truth.signal.tolist() == [1, 1, 1]
    assert set(receptors(table)) <= set(pool_of(cohort))


def test_a_background_with_too_few_sequences() -> None:
    few = IndependentBackground(1, 0)
    with pytest.raises(InputError, match="signal 'clones': the background has only 20 different junctions"):
        Cohort(2, background=few, signals=(CloneSignal(40, 1),)).draw(0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_clones": 0}, "n_clones: expected 1 to 30,000, found 0"),
        ({"burden": 41}, "burden: expected 0 to n_clones, found 41"),
        ({"other_burden": -1}, "other_burden: expected 0 to n_clones"),
        ({"incidence_sd": 6}, "incidence_sd: expected 0 to 5"),
        ({"variant_rate": 1.5}, "variant_rate: expected 0 to 1, found 1.5"),
        ({"prevalence": -0.5}, "prevalence: expected 0 to 1"),
    ],
)
def test_values_out_of_range_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(POOL, **options)


# A test part with another burden.


@pytest.mark.slow
def test_the_test_part_has_its_own_burden() -> None:
    signal = CloneSignal(200, burden=40, other_burden=5.6, test_burden=5, burden_sd=0.2)
    cohort = Cohort(1200, Sizes(210), LOOPS, (signal,), test_share=0.5, seed=1)
    assert cohort.clone_pools is not None
    found: dict[tuple[str, str], list[int]] = {}
    for index, row in cohort.metadata().iterrows():
        is_test = row["part"] == "test"
        carried = cohort.clone_pools.draw_clones(index, 210, cohort.find_carried_signals(index), is_test=is_test)
        found.setdefault((row["part"], row["status"]), []).append(len(carried.rows))
    assert {place: len(numbers) for place, numbers in found.items()} == dict.fromkeys(found, 300)
    expected = {
        ("train", "positive"): 40,
        ("train", "negative"): 5.6,
        ("test", "positive"): 5,
        ("test", "negative"): 5.6 * 5 / 40,
    }
    for place, burden in expected.items():
        sd = np.std(found[place]) / np.sqrt(300)
        assert np.mean(found[place]) == pytest.approx(burden, abs=5 * sd), place


def test_another_burden_in_the_test_part_changes_no_training_repertoire() -> None:
    cohort = replace(SMALL, test_share=0.25, signals=(replace(POOL, test_burden=1),))
    plain = replace(cohort, signals=(POOL,))
    parts = cohort.metadata()["part"].tolist()
    assert parts.count("test") == 14  # 7 of 30 in each class
    differ = dict.fromkeys(parts, 0)
    for index, part in enumerate(parts):
        differ[part] += cohort.draw(index)[0].decode() != plain.draw(index)[0].decode()
    assert differ["train"] == 0
    assert differ["test"] >= 7
    first = cohort.draw(0)[1].signal.sum()  # what is drawn agrees with the sheet
    assert first == len(cohort.clone_pools.draw_clones(0, cohort.size(0), cohort.find_carried_signals(0)).rows)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test_burden": 5}, "a test_burden needs a test_share above 0"),
        ({"test_burden": 41}, "test_burden: expected 0 to n_clones, found 41"),
        ({"test_burden": 5, "burden": 0}, "a test_burden needs a burden above 0"),
    ],
)
def test_an_invalid_test_burden_is_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(SMALL, signals=(replace(POOL, **options),))


# Signals that exclude each other.


def test_exclusive_signals() -> None:
    signals = (
        MotifSignal((Motif("WHWC"),), 0.1, prevalence=0.25, name="a"),
        replace(POOL, prevalence=0.5, name="b"),
        MotifSignal((Motif("MMM"),), 0.1, status="negative", prevalence=0.5, name="c"),
    )
    cohort = Cohort(4000, Sizes(50), LOOPS, signals, exclusive=True)
    found = np.array([cohort.find_carried_signals(i) for i in range(4000)])
    positive = np.array([cohort.is_positive(i) for i in range(4000)])
    assert (found[positive][:, :2].sum(axis=1) <= 1).all()
    assert not found[positive][:, 2].any()
    assert not found[~positive][:, :2].any()
    for column, share in ((0, 0.25), (1, 0.5)):
        assert stats.binomtest(int(found[positive][:, column].sum()), int(positive.sum()), share).pvalue > 1e-6
    assert stats.binomtest(int(found[~positive][:, 2].sum()), int((~positive).sum()), 0.5).pvalue > 1e-6
    with pytest.raises(InputError, match="prevalences of the positive class sum to more than 1"):
        replace(cohort, signals=(*signals, replace(POOL, prevalence=0.5, name="d")))


# A table of carriers.

TABLE = """sample\tstatus\tuniques\tTCRBV05-01*01|CASSLAF|TCRBJ01-01*01\tTCRBV28|CASSWWF|TCRBJ02-07
s1\t1\t1000\t1\t0
s2\t0\t400\t0\t0
s3\ttrue\t2000\t1\t1
s4\tFalse\t80\t0\t1
"""


@pytest.fixture
def table(tmp_path: Path) -> CarrierTable:
    (tmp_path / "carriers.tsv").write_text(TABLE)
    return CarrierTable(tmp_path / "carriers.tsv", depth=0.1, minimum=20)


def test_a_table_says_class_size_name_and_clones(table: CarrierTable) -> None:
    cohort = Cohort(4, background=LOOPS, signals=(table,))
    sheet = cohort.metadata()
    assert sheet["repertoire_id"].tolist() == ["s1", "s2", "s3", "s4"]
    assert sheet["status"].tolist() == ["positive", "negative", "positive", "negative"]
    assert cohort.all_sizes.tolist() == [100, 40, 200, 20]
    clones = [("CASSLAF", "TRBV5-1", "TRBJ1-1"), ("CASSWWF", "TRBV28", "TRBJ2-7")]
    for index, carried in enumerate([[0], [], [0, 1], [1]]):
        drawn, truth = cohort.draw(index)
        found = receptors(drawn)
        witnesses = np.flatnonzero(truth.signal)
        assert sorted(truth.motif[witnesses].tolist()) == carried
        assert {found[row] for row in witnesses} == {clones[clone] for clone in carried}
    assert replace(cohort, n_repertoires=2).metadata().equals(sheet[:2])


def test_a_table_where_the_background_has_no_genes(table: CarrierTable) -> None:
    drawn, truth = Cohort(4, background=IndependentBackground(), signals=(table,)).draw(2)
    assert drawn.v_call is None
    junctions = decode_many(drawn.residues, compute_offsets(drawn.lengths))
    assert {junctions[row] for row in np.flatnonzero(truth.signal)} == {"CASSLAF", "CASSWWF"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("s2\t", "../s2\t", r"sample: expected names of letters, .*; found '../s2'"),
        ("s2\t", "/tmp/s2\t", r"sample: expected names of letters, .*; found '/tmp/s2'"),
        ("s2\t", ".s2\t", r"sample: expected names of letters"),
        ("s2\t0\t", "s2\tmaybe\t", "s2: status: expected 1 or 0, true or false, positive or negative, found 'maybe'"),
        ("\t400\t", "\tmany\t", "s2: uniques: expected 0 to 1,000,000,000, found 'many'"),
        ("80\t0\t1", "80\t0\t2", "s4: .*CASSWWF.*: expected 0 or 1, found 2"),
        ("uniques", "size", "no column 'uniques'; "),
        ("CASSLAF", "CASS1AF", "expected V gene.junction.J gene"),
        ("|TCRBJ02-07", "", "expected V gene.junction.J gene"),
        ("\nsample", "\nsample", ""),
    ],
)
def test_tables_that_cannot_be_used(table: CarrierTable, old: str, new: str, message: str) -> None:
    if not message:
        table.path.write_text("sample\tstatus\tuniques\ns1\t1\t10\n")
        message = "expected 1 to 30,000 columns whose names are V gene.junction.J gene, found 0"
    else:
        table.path.write_text(TABLE.replace(old, new))
    with pytest.raises(InputError, match=message) as caught:
        Cohort(4 if old != "\nsample" else 1, background=LOOPS, signals=(table,)).draw(0)
    assert str(table.path) in str(caught.value)


def test_sizes_and_numbers_of_motifs_have_limits(table: CarrierTable) -> None:
    table.path.write_text(TABLE.replace("2000", "2000000"))
    cohort = Cohort(4, background=LOOPS, signals=(replace(table, depth=1000.0),))
    with pytest.raises(InputError, match="s3: expected at most 100,000,000 sequences, found 1000 x 2000000"):
        cohort.size(2)
    many = MotifSignal((Motif("WHW"),) * 2501, 0.1)
    with pytest.raises(InputError, match="at most 2,500 motifs in total, found 2,501"):
        Cohort(2, background=LOOPS, signals=(many,))


def test_more_repertoires_than_rows_of_the_table_are_refused(table: CarrierTable) -> None:
    with pytest.raises(InputError, match=r"expected at most 4, the number of rows of .*, found 5$"):
        Cohort(5, background=LOOPS, signals=(table,))


@pytest.mark.long
def test_the_real_table_gives_its_statuses_sizes_and_clones(real_data: Path) -> None:
    path = real_data / "emerson2017" / "featureDetect.1e-4.CMV.sampleFeatures.tsv"
    cohort, _ = load_recipe("cmv-like", carriers=path)
    raw = pd.read_csv(path, sep="\t")
    sheet = cohort.metadata()
    assert sheet["repertoire_id"].tolist() == raw["sample"].tolist()
    assert (sheet["status"] == "positive").tolist() == (raw["status"] == 1).tolist()
    assert cohort.all_sizes[0] == round(0.15 * raw["uniques"][0])
    index = int(raw["uniques"].argmin())
    assert cohort.all_sizes[index] == 500
    drawn, truth = cohort.draw(index)
    row = raw.iloc[index, 3:]
    expected = sorted(name.split("|")[1] for name in row.index[row == 1])
    junctions = decode_many(drawn.residues, compute_offsets(drawn.lengths))
    assert sorted(junctions[i] for i in np.flatnonzero(truth.signal)) == expected


# Recipes and files.


@pytest.mark.parametrize(("name", "pool"), [("clones-5", 650), ("clones-20", 650), ("clones-100", 1550)])
def test_the_challenges_public_sequences(name: str, pool: int) -> None:
    burden = int(name.removeprefix("clones-"))
    cohort, _ = load_recipe(name)
    (signal,) = cohort.signals
    assert isinstance(signal, CloneSignal)
    assert (cohort.n_repertoires, cohort.sizes, cohort.label_noise) == (800, Sizes(25_000), 0.2)
    assert sum(cohort.is_positive(index) for index in range(800)) == 400
    assert (signal.n_clones, signal.burden, cohort.background) == (pool, burden, LstmBackground())


@pytest.mark.parametrize("burden", [5, 20])
def test_the_challenges_shift_between_training_and_test(burden: int) -> None:
    cohort, _ = load_recipe(f"clones-40-{burden}")
    (signal,) = cohort.signals
    assert isinstance(signal, CloneSignal)
    assert (signal.n_clones, signal.burden, signal.test_burden) == (650, 40, burden)
    assert (cohort.sizes, cohort.label_noise, cohort.background) == (Sizes(25_000), 0.2, LstmBackground())
    counts = Counter((cohort.is_of_test_part(index), cohort.is_positive(index)) for index in range(1000))
    assert counts == {(False, True): 400, (False, False): 400, (True, True): 100, (True, False): 100}


def test_a_mapping_makes_the_same_cohort_again(table: CarrierTable) -> None:
    signals = (MotifSignal((Motif("WHWC"),), 0.1), replace(POOL, name="pool"), replace(table, name="table"))
    cohort = Cohort(3, background=LOOPS, signals=signals)
    mapping = cohort_to_mapping(cohort)
    assert [signal["kind"] for signal in mapping["signals"]] == ["motifs", "clones", "carriers"]
    assert cohort_from_mapping(mapping) == cohort


def test_the_command_line_takes_the_table(table: CarrierTable, tmp_path: Path) -> None:
    output = tmp_path / "cohort.h5"
    options = ["n_repertoires=4", "signals.0.minimum=20", "background={kind: germline}", "--carriers", str(table.path)]
    result = CliRunner().invoke(simulate, ["cmv-like", "-o", str(output), *options])
    assert result.exit_code == 0, result.output
    dataset = open_dataset(output)
    assert dataset.metadata["repertoire_id"].tolist() == ["s1", "s2", "s3", "s4"]
    witness = dataset[2].witness
    assert witness is not None
    assert int((witness == 1).sum()) == 2
    without = CliRunner().invoke(simulate, ["cmv-like", "-o", str(output)])
    assert "this recipe needs a table of who carries which clone: `carriers=FILE`" in str(without.exception)
    wrong = CliRunner().invoke(simulate, ["quickstart", "-o", str(output), "--carriers", str(table.path)])
    assert "`carriers`: the recipe has no signal of kind carriers" in str(wrong.exception)


def test_airr_files_name_the_clones_of_witnesses(tmp_path: Path) -> None:
    cohort = replace(SMALL, n_repertoires=2)
    write_airr(cohort, tmp_path / "airr")
    write_container(cohort, tmp_path / "cohort.h5")
    index = next(i for i in range(2) if cohort.is_positive(i))
    _, truth = cohort.draw(index)
    rows = pd.read_csv(tmp_path / "airr" / "repertoires" / f"repertoire_{index + 1:05d}.tsv.gz", sep="\t")
    told = rows[rows["signal"] == "clones"]
    assert told.index.tolist() == np.flatnonzero(truth.signal).tolist()
    assert (told["motif"] == told["junction_aa"]).all()
    assert (told["motif_start"] == 1).all()
    stored = open_dataset(tmp_path / "cohort.h5")[index]
    made = SimulatedDataset(cohort)[index]
    assert stored.sequences.decode() == made.sequences.decode()
    assert stored.witness is not None
    assert stored.witness.tolist() == truth.signal.tolist()
    residues, _ = encode_many(told["junction_aa"].tolist())
    assert len(residues)


def test_info_describes_every_kind_of_signal(table: CarrierTable, tmp_path: Path) -> None:
    signals = (
        MotifSignal((Motif("WHWC"),), 0.1, name="motif"),
        replace(POOL, name="pool"),
        replace(table, name="table"),
        DiffuseSignal(0.3),
    )
    cohort = Cohort(3, background=LOOPS, signals=signals)
    write_container(cohort, tmp_path / "cohort.h5", recipe=cohort_to_mapping(cohort))
    text = render_summary(summarise(open_dataset(tmp_path / "cohort.h5")))
    assert "WHWC in 10% of the sequences of positive repertoires" in text
    assert "on average 6 of 40 clones in positive repertoires, 1 in others" in text
    assert f"clones in the repertoires that {table.path} names" in text
    assert "preference for 3-mers and genes in positive repertoires, strength 0.3" in text


@pytest.mark.parametrize(
    ("signal", "message"),
    [
        ({"kind": "prions"}, "kind: expected one of motifs, clones, carriers, diffuse, found 'prions'"),
        ({"kind": ["clones"]}, "kind: expected one of motifs"),
        ({"kind": "clones", "name": "a", "status": "positive"}, "n_clones: expected"),
        ({"kind": "carriers", "name": "a", "path": 3}, "path: expected text"),
    ],
)
def test_invalid_signals_in_a_container_are_refused(signal: dict[str, object], message: str) -> None:
    text = json.dumps({"background": {"kind": "lstm"}, "seed": 0, "signals": [signal]})
    with pytest.raises(ValueError, match=message):
        read_simulation(text)
