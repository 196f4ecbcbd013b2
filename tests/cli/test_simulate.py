import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import open_dataset
from deeprc.datasets.simulation import SimulatedDataset, list_recipes, load_recipe, lstm_training, write
from deeprc.runs.run import load_run

Run = Callable[..., tuple[int, str, str]]
SMALL = ["n_repertoires=4", "sizes={mean: 20}", "witness_rate=0.3"]


def test_the_list_shows_every_recipe(deeprc: Run) -> None:
    code, out, err = deeprc("simulate", "--list")
    assert (code, err) == (0, "")
    assert [line.split(maxsplit=1) for line in out.splitlines()] == [
        [name, what] for name, what in list_recipes().items()
    ]
    assert len({line.index(what) for line, what in zip(out.splitlines(), list_recipes().values(), strict=True)}) == 1


def test_help_shows_the_options_and_the_examples(deeprc: Run) -> None:
    code, out, _ = deeprc("simulate", "--help")
    assert code == 0
    for text in ("--output", "--as-airr", "--seed", "--scale", "--background", "--list", "train-lstm"):
        assert text in out
    assert "simulate" in deeprc("--help")[1]
    assert "--hidden" in deeprc("simulate", "train-lstm", "--help")[1]


def test_a_run_writes_the_recipes_cohort(deeprc: Run, tmp_path: Path) -> None:
    code, out, err = deeprc("simulate", "simulated-0", "-o", tmp_path / "c.h5", *SMALL)
    assert code == 0
    assert out == f"Wrote 4 repertoires of 80 sequences to {tmp_path}/c.h5\n"
    assert "Traceback" not in err
    dataset, expected = open_dataset(tmp_path / "c.h5"), SimulatedDataset(load_recipe("simulated-0", SMALL)[0])
    assert [each.digest() for each in dataset] == [each.digest() for each in expected]
    assert dataset.metadata["status"].tolist() == expected.metadata["status"].tolist()
    assert dataset.container.simulation == load_recipe("simulated-0", SMALL)[1]
    assert [path.name for path in tmp_path.iterdir()] == ["c.h5"]


def test_options_may_stand_anywhere(deeprc: Run, tmp_path: Path) -> None:
    assert deeprc("simulate", "-o", tmp_path / "a.h5", "simulated-0", *SMALL)[0] == 0
    assert deeprc("simulate", "simulated-0", *SMALL, "--seed", 0, "--output", tmp_path / "b.h5")[0] == 0
    assert [each.digest() for each in open_dataset(tmp_path / "a.h5")] == [
        each.digest() for each in open_dataset(tmp_path / "b.h5")
    ]


def test_another_seed_is_another_cohort_and_the_same_is_the_same(deeprc: Run, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 2), ("c", 1)):
        assert deeprc("simulate", "simulated-0", "-o", tmp_path / f"{name}.h5", "--seed", seed, *SMALL)[0] == 0
    a, b, c = ([each.digest() for each in open_dataset(tmp_path / f"{name}.h5")] for name in "abc")
    assert not set(a) & set(b)
    assert a == c
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "c.h5").read_bytes()


def test_scale_leaves_out_the_last_repertoires(deeprc: Run, tmp_path: Path) -> None:
    assert deeprc("simulate", "simulated-0", "-o", tmp_path / "whole.h5", *SMALL)[0] == 0
    assert deeprc("simulate", "simulated-0", "-o", tmp_path / "half.h5", "--scale", 0.5, *SMALL)[0] == 0
    whole, half = open_dataset(tmp_path / "whole.h5"), open_dataset(tmp_path / "half.h5")
    assert [each.digest() for each in half] == [each.digest() for each in whole[:2]]


def test_as_airr_alone_and_beside_a_container(deeprc: Run, tmp_path: Path) -> None:
    code, out, _ = deeprc("simulate", "quickstart", "--as-airr", tmp_path / "airr", *SMALL)
    assert code == 0
    assert out == f"Wrote 4 repertoires to {tmp_path}/airr/repertoires, and {tmp_path}/airr/metadata.tsv\n"
    sheet = pd.read_csv(tmp_path / "airr" / "metadata.tsv", sep="\t")
    assert deeprc("simulate", "quickstart", "--as-airr", tmp_path / "b", "-o", tmp_path / "b.h5", *SMALL)[0] == 0
    dataset = open_dataset(tmp_path / "b.h5")
    assert dataset.repertoire_ids.tolist() == sheet["repertoire_id"].tolist()
    for folder in ("airr", "b"):
        table = pd.read_csv(tmp_path / folder / "repertoires" / sheet["filename"][2], sep="\t")
        assert table["junction_aa"].tolist() == dataset[2].sequences.decode()


def test_real_sequences_are_given_as_a_file(deeprc: Run, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("CASSYYYYF\nCASSYYYYYYF\n")
    arguments = ("simulate", "implanted-om-1", "-o", tmp_path / "c.h5", "--background", tmp_path / "list.txt")
    assert deeprc(*arguments, "n_repertoires=2", "sizes.mean=10", "witness_rate=0")[0] == 0
    sequences = [text for repertoire in open_dataset(tmp_path / "c.h5") for text in repertoire.sequences.decode()]
    assert sorted(sequences) == ["CASSYYYYF"] * 10 + ["CASSYYYYYYF"] * 10


def test_a_command_that_was_interrupted_between_its_outputs_can_be_run_again(
    deeprc: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["simulate", "simulated-0", "--as-airr", tmp_path / "airr", "-o", tmp_path / "c.h5", *SMALL]
    written = []

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for part in ("deeprc.datasets.simulation.write_airr", "deeprc.datasets.simulation.write._make_airr_table"):
        with monkeypatch.context() as patched:
            patched.setattr(part, interrupt)
            assert deeprc(*command)[0] == 130
        written.append((tmp_path / "c.h5").read_bytes())
        assert [path.name for path in tmp_path.iterdir()] == ["c.h5"]
    with monkeypatch.context() as patched:
        patched.setattr(ContainerWriter, "append", interrupt)
        assert deeprc(*command)[0] == 130
    assert deeprc(*command)[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["airr", "c.h5"]
    assert {*written, (tmp_path / "c.h5").read_bytes()} == {written[0]}


def test_a_file_of_ones_own(deeprc: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("{n_repertoires: 2, sizes: {mean: 3}}")
    assert deeprc("simulate", tmp_path / "mine.yaml", "-o", tmp_path / "c.h5")[0] == 0
    assert open_dataset(tmp_path / "c.h5").n_sequences.tolist() == [3, 3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["simulatd-0", "-o", "c.h5"], "no recipe 'simulatd-0'; did you mean"),
        (["simulated-0"], "expected a recipe .* and --output, or --as-airr, or both"),
        ([], "expected a recipe"),
        (["-o", "c.h5"], "expected a recipe"),
        (["simulated-0", "-o", "c.h5", "n_repertoire=3"], "n_repertoire: no such key; did you mean 'n_repertoires'?"),
        (["simulated-0", "-o", "c.h5", "sizes.mean=x"], "sizes.mean: expected a number, found 'x'"),
        (["simulated-0", "-o", "c.h5", "sizes.mean=.nan"], "sizes: expected"),
        (["quickstart", "-o", "c.h5", "sizes.mean=1e9"], "sizes: expected a mean of 1 to 100,000,000, .* found 1e.09"),
        (
            ["quickstart", "-o", "c.h5", "n_repertoires=100000", "sizes.mean=1e8"],
            "c.h5: the cohort is too large: about 10,000,000,000,000 sequences need at least 250,000.0 GB on the disk",
        ),
        (
            ["quickstart", "--as-airr", "airr", "n_repertoires=100000", "sizes.mean=1e8"],
            "airr: the cohort is too large: about 10,000,000,000,000 sequences need at least 50,000.0 GB on the disk",
        ),
        (["simulated-0", "-o", "c.h5", "--scale", "0"], "--scale: expected more than 0, found 0"),
        (["simulated-0", "-o", "c.h5", "--scale", "inf"], "--scale: expected"),
        (["simulated-0", "-o", "none/c.h5", *SMALL], "the folder .*none does not exist"),
        (["simulated-0", "--as-airr", "airr", "-o", "none/c.h5", *SMALL], "the folder .*none does not exist"),
        (["implanted-om-1", "-o", "c.h5"], "background.path: this recipe needs real sequences: --background FILE"),
        (["implanted-om-1", "-o", "c.h5", "--background", "none.tsv"], "none.tsv"),
        (["implanted-om-1", "--as-airr", "airr", "--background", "none.tsv"], "none.tsv"),
        (["mine.yaml", "-o", "c.h5"], "mine.yaml: no such file"),
        (["simulated-0", "--as-airr", "airr", *SMALL, "gene_shift={v_genes: [TRBV28], strength: 1}"], "no V genes"),
        (["train-lstm", "none.tsv", "-o", "m.safetensors"], "none.tsv"),
    ],
)
def test_errors_are_one_line_and_leave_nothing(
    deeprc: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = deeprc("simulate", *arguments)
    assert code == 2
    assert out == ""
    lines = [line for line in err.splitlines() if line]
    assert len(lines) == 1
    assert lines[0].startswith("Error: ")
    assert re.search(message, lines[0])
    assert [path.name for path in tmp_path.iterdir()] == []


def test_a_repertoire_that_does_not_fit_into_the_memory_is_refused(
    deeprc: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "count_available_bytes", lambda: 9_000)
    code, _, err = deeprc("simulate", "quickstart", "-o", tmp_path / "c.h5", "n_repertoires=2", "sizes.mean=100")
    assert code == 2
    assert "c.h5: a repertoire is too large: 100 sequences need about 0.0 GB of memory; 0.0 GB are" in err
    monkeypatch.setattr(write, "count_available_bytes", lambda: 10_000)
    assert deeprc("simulate", "quickstart", "-o", tmp_path / "c.h5", "n_repertoires=2", "sizes.mean=100")[0] == 0


def test_an_existing_file_that_is_no_container_is_left_alone(deeprc: Run, tmp_path: Path) -> None:
    (tmp_path / "thesis.h5").write_text("mine")
    code, _, err = deeprc("simulate", "simulated-0", "-o", tmp_path / "thesis.h5", *SMALL)
    assert (code, err) == (2, f"Error: {tmp_path}/thesis.h5: exists and is not a container; choose another --output\n")
    code, _, err = deeprc("simulate", "simulated-0", "-o", tmp_path, *SMALL)
    assert (code, err) == (2, f"Error: {tmp_path}: is a folder; expected the name of a file to write\n")
    assert (tmp_path / "thesis.h5").read_text() == "mine"
    code, _, err = deeprc("simulate", "simulated-0", "--as-airr", tmp_path, *SMALL)
    assert code == 2
    assert "exists and is not empty" in err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.h5"]


def test_a_container_is_replaced(deeprc: Run, tmp_path: Path) -> None:
    for n in (4, 2):
        assert deeprc("simulate", "simulated-0", "-o", tmp_path / "c.h5", *SMALL, f"n_repertoires={n}")[0] == 0
        assert len(open_dataset(tmp_path / "c.h5")) == n


def test_the_background_is_not_replaced_by_the_cohort(deeprc: Run, tmp_path: Path) -> None:
    path = tmp_path / "real.h5"
    deeprc("simulate", "simulated-0", "-o", path, *SMALL)
    before = path.read_bytes()
    code, _, err = deeprc("simulate", "implanted-om-1", "-o", path, "--background", path)
    assert (code, err) == (
        2,
        f"Error: {path}: is the file of --background; the simulated cohort needs another one\n",
    )
    assert path.read_bytes() == before


def test_train_lstm_is_given_its_options(deeprc: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def train(background: Path, output: Path, *, progress: Callable[[int, float], None], **options: object) -> None:
        seen.extend([background, output, options])
        progress(1, 2.34567)

    monkeypatch.setattr(lstm_training, "train_lstm", train)
    code, out, _ = deeprc("simulate", "train-lstm", "b.tsv", "-o", tmp_path / "m", "--hidden", 8, "--seed", 5)
    assert code == 0
    assert seen == [Path("b.tsv"), tmp_path / "m", {"hidden": 8, "epochs": 3, "limit": None, "seed": 5}]
    assert "epoch 1: 2.3457" in out
    assert out.endswith(f"Wrote {tmp_path}/m\n")


@pytest.mark.slow
def test_the_test_part_of_a_cohort_is_tested(deeprc: Run, tmp_path: Path) -> None:
    cohort, run = tmp_path / "shift.h5", tmp_path / "run"
    small = ["n_repertoires=60", "sizes.mean=30", "background={kind: germline}", "signals=[]"]
    assert deeprc("simulate", "clones-40-5", "-o", cohort, *small)[0] == 0
    brief = ["n_updates=2", "evaluate_every=1", "n_sequences=10", "composition=false", "clones=false"]
    code, _, errors = deeprc("train", cohort, "--target", "status", "--test", "part=test", "--output", run, *brief)
    assert code == 0, errors
    predictions = pd.read_csv(run / "predictions.tsv", sep="\t")
    tested = set(predictions.loc[predictions["split"] == "test", "repertoire_id"])
    sheet = open_dataset(cohort).metadata
    assert tested == set(sheet.loc[sheet["part"] == "test", "repertoire_id"])
    assert len(tested) == 12
    assert load_run(run).settings.split_options.test == "part=test"
    code, _, errors = deeprc("train", cohort, "--target", "status", "--test", "part=new", "--output", tmp_path / "b")
    assert (code, errors.strip()) == (
        2,
        f"Error: {cohort}: --test part=new: no repertoire has this value; part has test (12), train (48)",
    )
    assert not (tmp_path / "b").exists()
