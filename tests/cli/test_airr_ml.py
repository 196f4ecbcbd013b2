from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.conftest import random_sequences

Deeprc = Callable[..., tuple[int, str, str]]
COLUMNS = ["ID", "dataset", "label_positive_probability", "junction_aa", "v_call", "j_call"]


def write(folder: Path, numbers: range, *, labels: bool) -> Path:
    folder.mkdir()
    for number in numbers:
        sequences = random_sequences(np.random.default_rng(number), 40)
        if number % 2:
            sequences[::8] = [text[:2] + "WWHW" + text[2:] for text in sequences[::8]]
        table = pd.DataFrame({"junction_aa": sequences, "v_call": "TRBV5-1", "j_call": ""})
        table.to_csv(folder / f"r{number}.tsv", sep="\t", index=False)
    if labels:
        lines = [f"r{number},r{number}.tsv,{bool(number % 2)}" for number in numbers]
        (folder / "metadata.csv").write_text("\n".join(["repertoire_id,filename,label_positive", *lines]))
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("airr")
    write(place / "train", range(20), labels=True)
    for name in "abc":
        write(place / name, range(ord(name), ord(name) + 4), labels=False)
    return place


def datasets(out: Path) -> list[str]:
    table = pd.read_csv(out / "train_test_predictions.tsv", sep="\t")
    assert table.columns.tolist() == COLUMNS
    return list(dict.fromkeys(table["dataset"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "order",
    [
        "--train_dir {t}/ --test_dirs {a} {b}/ {c} --out_dir {o} --n_jobs 1 --device cpu",
        "--test_dirs {a} {b} {c} --n_jobs 1 --out_dir {o} --train_dir {t}",
        "--test_dirs {a} --test_dirs {b} --train_dir {t} --test_dirs {c} --out_dir {o}",
        "--out_dir {o} --train_dir {t} --test_dirs {a} {b} --method logistic --test_dirs {c}",
        "--out_dir={o} --train_dir={t} --test_dirs={a} {b} --seed 3 --test_dirs {c}",
    ],
)
def test_both_tables_are_written_however_the_options_stand(
    place: Path, tmp_path: Path, deeprc: Deeprc, order: str
) -> None:
    out = tmp_path / "new" / "out"
    names = {"t": place / "train", "a": place / "a", "b": place / "b", "c": place / "c", "o": out}
    method = [] if "--method" in order else ["--method", "logistic"]
    code, text, _ = deeprc("airr-ml", *order.format(**names).split(), *method)
    assert code == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "train_evidence.tsv",
        "train_important_sequences.tsv",
        "train_test_predictions.tsv",
    ]
    assert datasets(out) == ["a", "b", "c"]
    assert text.splitlines() == [
        f"Wrote {out}/train_test_predictions.tsv",
        f"Wrote {out}/train_important_sequences.tsv",
        f"Wrote {out}/train_evidence.tsv",
    ]


@pytest.mark.slow
def test_the_files_to_the_letter(place: Path, tmp_path: Path, deeprc: Deeprc) -> None:
    arguments = ["--train_dir", place / "train", "--test_dirs", place / "a", "--out_dir", tmp_path]
    assert deeprc("airr-ml", *arguments, "--method", "logistic")[0] == 0
    lines = (tmp_path / "train_test_predictions.tsv").read_text().splitlines()
    assert lines[0].split("\t") == COLUMNS
    assert lines[1].split("\t")[:2] == ["r100", "a"]  # before r97 by name
    assert lines[1].split("\t")[3:] == ["-999.0"] * 3
    assert len(lines) == 5
    lines = (tmp_path / "train_important_sequences.tsv").read_text().splitlines()
    assert lines[0].split("\t") == COLUMNS
    assert lines[1].split("\t")[:3] == ["train_seq_top_1", "train", "-999.0"]
    assert "WWHW" in lines[1].split("\t")[3]
    assert lines[1].split("\t")[4:] == ["TRBV5-1", "-999.0"]  # a gene that is not known
    assert len(lines) == 20 * 40 + 1
    evidence = (tmp_path / "train_evidence.tsv").read_text().splitlines()
    assert evidence[0].split("\t") == ["ID", "junction_aa", "v_call", "j_call", "method", "evidence", "excess"]
    junction = lines[1].split("\t")[3]
    assert evidence[1].split("\t") == [
        "train_seq_top_1",
        junction,
        "TRBV5-1",
        "-999.0",
        "logistic",
        "coefficients",
        "1.0",
    ]
    assert len(evidence) == len(lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--train_dir {t} --test_dirs --out_dir {o}", "Option '--test_dirs' requires an argument"),
        ("--train_dir {t} --out_dir {o} --test_dirs", "Option '--test_dirs' requires an argument"),
        ("--train_dir {t} --out_dir {o}", "--test_dirs"),
        ("--test_dirs {t} --out_dir {o}", "--train_dir"),
        ("{t} --train_dir {t} --test_dirs {t} --out_dir {o}", "unexpected extra argument"),
        ("--train_dir {t} --test_dirs {t} {t}x --out_dir {o}", "no such folder"),
        ("--train_dir {t} --test_dirs {t} --out_dir {o} --device tpu", "--device"),
        ("--train_dir {t} --test_dirs {t} --out_dir {o} --n_jobs 0", "n_jobs"),
    ],
)
def test_what_is_wrong_is_said_before_training(
    place: Path, tmp_path: Path, deeprc: Deeprc, arguments: str, message: str
) -> None:
    code, _, errors = deeprc("airr-ml", *arguments.format(t=place / "train", o=tmp_path / "out").split())
    assert code == 2
    assert message in errors
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["train_test_predictions.tsv", "train_important_sequences.tsv"])
def test_other_files_are_not_replaced(place: Path, tmp_path: Path, deeprc: Deeprc, name: str) -> None:
    (tmp_path / name).write_text("precious\n")
    arguments = ["--train_dir", place / "train", "--test_dirs", place / "a", "--out_dir", tmp_path]
    code, _, errors = deeprc("airr-ml", *arguments)
    assert code == 2
    assert "exists and is not a table of this kind; choose another --out_dir" in errors
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "precious\n"


@pytest.mark.parametrize(
    ("sheet", "table"),
    [
        ("name,label_positive\na,1\nb,0\n", None),
        ("repertoire_id,label_positive\na,1\na,0\n", None),
        (None, "x\ty\n1\t2\n"),
        (None, "junction_aa\ttemplates\nCASSF\t-3\n"),
    ],
)
def test_messages_name_no_option_of_other_commands(
    tmp_path: Path, deeprc: Deeprc, sheet: str | None, table: str | None
) -> None:
    train = write(tmp_path / "train", range(4), labels=True)
    if sheet is not None:
        (train / "metadata.csv").write_text(sheet)
    if table is not None:
        (train / "r1.tsv").write_text(table)
    arguments = ["--train_dir", train, "--test_dirs", train, "--out_dir", tmp_path / "out", "--method", "logistic"]
    code, _, errors = deeprc("airr-ml", *arguments)
    assert code == 2
    assert errors.count("Error: ") == 1
    assert "--" not in errors
    assert not (tmp_path / "out").exists()


def test_the_help_shows_the_challenges_options(deeprc: Deeprc) -> None:
    code, text, _ = deeprc("airr-ml", "--help")
    assert code == 0
    assert "--train_dir DIR --test_dirs DIR... --out_dir DIR" in text
