import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from deeprc.datasets.alphabet import encode_many
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.container import Container
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import open_dataset
from deeprc.datasets.options import ReadingOptions
from deeprc.datasets.preprocessing import preprocess
from deeprc.datasets.sequences import Sequences
from deeprc.datasets.simulation import (
    Cohort,
    Counts,
    GermlineBackground,
    IndependentBackground,
    Motif,
    MotifSignal,
    SequencePool,
    Sizes,
    load_recipe,
    write_airr,
    write_container,
)
from deeprc.datasets.summary import render_summary, summarise
from deeprc.errors import InputError

SIGNALS = (
    MotifSignal((Motif("WHWH"), Motif("MM")), 0.2, name="first"),
    MotifSignal((Motif("LDR"),), 0.2, "imgt", {"107": 0.5}, status="negative", name="second"),
)
GERMLINE = Cohort(6, Sizes(50, 10, 20), GermlineBackground(), SIGNALS, Counts(1.5), label_noise=0.3, seed=4)


def assert_same_containers(a: Container, b: Container) -> None:
    assert a.repertoire_ids.tolist() == b.repertoire_ids.tolist()
    assert a.metadata["status"].tolist() == b.metadata["status"].tolist()
    assert a.repertoire_offsets.tolist() == b.repertoire_offsets.tolist()
    for name in ("residues", "offsets", "counts"):
        left, right = getattr(a.sequences, name), getattr(b.sequences, name)
        assert left.dtype == right.dtype
        assert left.tobytes() == right.tobytes(), name
    genes = [{name: calls.names().tolist() for name, calls in each.sequences.genes.items()} for each in (a, b)]
    assert genes[0] == genes[1]


def real_pool(folder: Path) -> SequencePool:
    """Write a container of sequences of which some lack a gene."""
    sequences = ["CASSF", "CASSLGF", "CAWWWF", "CASRRRF", "CSARF"]
    residues, offsets = encode_many(sequences)
    v = Categorical(np.array([0, 1, 2, 1, 0], np.uint16), ("", "TRBV19", "TRBV28"))
    j = Categorical(np.array([1, 1, 0, 1, 1], np.uint16), ("", "TRBJ2-7"))
    with ContainerWriter(folder / "real.h5") as writer:
        writer.append("r", Sequences(residues, offsets, np.ones(5, np.uint32), v, j))
        writer.finish(pd.DataFrame({"repertoire_id": ["r"]}), source="")
    return SequencePool(folder / "real.h5")


@pytest.mark.parametrize("background", ["germline", "independent", "real"])
def test_the_airr_files_read_back_are_the_container(tmp_path: Path, background: str) -> None:
    cohort = GERMLINE
    if background == "independent":
        cohort = replace(cohort, background=IndependentBackground(8, 4))
    elif background == "real":
        cohort = replace(cohort, background=real_pool(tmp_path))
    sheet = write_airr(cohort, tmp_path / "airr")
    write_container(cohort, tmp_path / "written.h5")
    report = preprocess(
        [tmp_path / "airr" / "repertoires"], sheet, tmp_path / "read.h5", options=ReadingOptions(merge="none")
    )
    assert report is not None
    written, read = Container(tmp_path / "written.h5"), Container(tmp_path / "read.h5")
    assert_same_containers(written, read)
    assert read.metadata["true_status"].tolist() == written.metadata["true_status"].tolist()


def table_of(folder: Path, name: str) -> pd.DataFrame:
    return pd.read_csv(folder / "repertoires" / f"{name}.tsv.gz", sep="\t", keep_default_na=False)


def test_the_airr_files_say_what_was_implanted_where(tmp_path: Path) -> None:
    sheet = pd.read_csv(write_airr(GERMLINE, tmp_path / "airr"), sep="\t")
    assert list(sheet) == ["repertoire_id", "filename", "status", "true_status", "carries_first", "carries_second"]
    assert sheet["filename"].tolist() == [f"{name}.tsv.gz" for name in sheet["repertoire_id"]]
    patterns = {"first": {"WHWH", "MM"}, "second": {"LDR"}}
    for number, row in sheet.iterrows():
        table = table_of(tmp_path / "airr", row["repertoire_id"])
        drawn, implants = GERMLINE.draw(int(str(number)))
        assert table["sequence_id"].tolist() == [f"{row['repertoire_id']}.{i + 1}" for i in range(len(table))]
        assert set(table["productive"]) == {"T"}
        assert set(table["locus"]) == {"TRB"}
        assert table["duplicate_count"].tolist() == drawn.counts.tolist()
        expected = "first" if row["carries_first"] else "second"
        assert row["carries_first"] == 1 - row["carries_second"] == int(row["true_status"] == "positive")
        witness = implants.signal > 0
        assert table["signal"].tolist() == [expected if each else "" for each in witness]
        assert set(table["motif"][witness]) == patterns[expected]
        for sequence, motif, start in zip(table["junction_aa"], table["motif"], table["motif_start"], strict=True):
            assert (motif == "") == (start == "")
            if motif:
                assert sequence[int(start) - 1 : int(start) - 1 + len(motif)] == motif


def test_the_first_residue_is_number_1(tmp_path: Path) -> None:
    cohort = Cohort(2, Sizes(5), IndependentBackground(2, 0), (MotifSignal((Motif("WH"),), 1.0),))
    write_airr(cohort, tmp_path / "airr")
    positive = 0 if cohort.is_positive(0) else 1
    table = table_of(tmp_path / "airr", cohort.repertoire_id(positive))
    assert (
        table[["junction_aa", "signal", "motif", "motif_start"]].to_numpy().tolist() == [["WH", "signal", "WH", 1]] * 5
    )
    other = table_of(tmp_path / "airr", cohort.repertoire_id(1 - positive))
    assert other[["signal", "motif", "motif_start"]].to_numpy().tolist() == [["", "", ""]] * 5


def test_a_cohort_without_signals_and_genes(tmp_path: Path) -> None:
    write_airr(Cohort(1, Sizes(3)), tmp_path / "airr")
    table = table_of(tmp_path / "airr", "repertoire_00001")
    known = ["sequence_id", "productive", "junction_aa", "duplicate_count", "signal", "motif", "motif_start"]
    required = ["v_call", "j_call", "sequence", "rev_comp", "d_call", "sequence_alignment", "germline_alignment"]
    required += ["junction", "v_cigar", "d_cigar", "j_cigar"]  # by the AIRR schema; they are empty
    assert list(table) == known + required
    assert (table[required] == "").all(axis=None)
    assert table["motif"].tolist() == ["", "", ""]


def test_the_same_cohort_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_airr(GERMLINE, tmp_path / name)
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert len(files) == 7
    assert all((tmp_path / "a" / path).read_bytes() == (tmp_path / "b" / path).read_bytes() for path in files)


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "airr").mkdir()
    (tmp_path / "airr" / "mine.txt").write_text("mine")
    for place in (tmp_path / "airr", tmp_path / "airr" / "mine.txt"):
        with pytest.raises(InputError, match=f"{place}: exists and is not empty; expected a new folder"):
            write_airr(GERMLINE, place)
    assert [path.name for path in tmp_path.rglob("*")] == ["airr", "mine.txt"]
    with pytest.raises(InputError, match=r"cannot be made, .*mine.txt is not a folder"):
        write_airr(GERMLINE, tmp_path / "airr" / "mine.txt" / "below")
    (tmp_path / "empty").mkdir()
    assert write_airr(GERMLINE, tmp_path / "empty").exists()


def test_the_recipe_in_the_container_makes_the_cohort_again(tmp_path: Path) -> None:
    overrides = [
        "n_repertoires=8",
        "sizes.mean=30",
        "counts.exponent=2",
        "signals.0.motifs=[{pattern: GL-N, noise: 0.1}]",
    ]
    cohort, recipe = load_recipe("quickstart", overrides, seed=7, scale=0.5)
    write_container(cohort, tmp_path / "cohort.h5", recipe=recipe)
    container = Container(tmp_path / "cohort.h5")
    assert container.source == "simulated: quickstart"
    assert container.simulation == json.loads(json.dumps(recipe))
    (tmp_path / "other name.yaml").write_text(yaml.safe_dump(container.simulation))
    again, _ = load_recipe(str(tmp_path / "other name.yaml"))
    assert again == cohort
    write_container(again, tmp_path / "again.h5", recipe=recipe)
    assert (tmp_path / "again.h5").read_bytes() == (tmp_path / "cohort.h5").read_bytes()


def test_progress_counts_the_repertoires(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    write_container(GERMLINE, tmp_path / "c.h5", progress=lambda *each: seen.append(each))
    write_airr(GERMLINE, tmp_path / "airr", progress=lambda *each: seen.append(each))
    assert seen == [(number + 1, 6) for number in range(6)] * 2


def test_a_failure_leaves_no_container(tmp_path: Path) -> None:
    def fail(done: int, _: int) -> None:
        if done == 3:
            raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match=r"c.h5: cannot be written: No space left on device"):
        write_container(GERMLINE, tmp_path / "c.h5", progress=fail)
    assert [*tmp_path.iterdir()] == []
    with pytest.raises(InputError, match=r"the folder .*none does not exist"):
        write_container(GERMLINE, tmp_path / "none" / "c.h5")


def test_a_failure_leaves_the_old_container(tmp_path: Path) -> None:
    write_container(GERMLINE, tmp_path / "c.h5")
    before = (tmp_path / "c.h5").read_bytes()

    def fail(*_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_container(replace(GERMLINE, seed=5), tmp_path / "c.h5", progress=fail)
    assert [path.name for path in tmp_path.iterdir()] == ["c.h5"]
    assert (tmp_path / "c.h5").read_bytes() == before


def test_a_cohort_that_cannot_be_made_leaves_no_folder_behind(tmp_path: Path) -> None:
    cohort = replace(GERMLINE, background=SequencePool(tmp_path / "none.tsv"))
    with pytest.raises(InputError, match=r"none\.tsv: no such file"):
        write_airr(cohort, tmp_path / "airr")
    assert [*tmp_path.iterdir()] == []


def test_a_summary_says_what_was_simulated(tmp_path: Path) -> None:
    cohort, recipe = load_recipe("quickstart", ["n_repertoires=4", "sizes.mean=50"], seed=7)
    write_container(cohort, tmp_path / "c.h5", recipe=recipe)
    text = render_summary(summarise(open_dataset(tmp_path / "c.h5")))
    assert text.splitlines()[-4:] == [
        "simulation",
        "  background  germline",
        "  seed        7",
        "  signal      LDRW in 1% of the sequences of positive repertoires",
    ]


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the validator's own
def test_the_files_are_valid_airr(tmp_path: Path) -> None:
    import airr  # it takes a second

    write_airr(GERMLINE, tmp_path / "airr")
    plain = tmp_path / "plain.tsv"
    for path in sorted((tmp_path / "airr" / "repertoires").iterdir())[:2]:
        plain.write_bytes(gzip.decompress(path.read_bytes()))
        assert airr.validate_rearrangement(str(plain))
    plain.write_text(plain.read_text().replace("v_call", "v"))
    assert not airr.validate_rearrangement(str(plain))
