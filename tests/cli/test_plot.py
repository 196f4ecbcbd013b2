"""`deeprc plot`: what each kind needs, where its numbers come from, and the file."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deeprc.cli import main
from deeprc.cli.plot import KINDS as KINDS_OF_COMMAND
from deeprc.config import load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.evaluation.splits import SplitOptions
from deeprc.interpretation.figures import draw_roc_figure
from deeprc.interpretation.plotting import KINDS, FigureOptions, find_drawn_classes, make_figure
from deeprc.runs.experiment import train_run
from deeprc.runs.run import Run, load_run
from tests.conftest import write_cohort

pytestmark = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is missing")
SMALL = ["n_updates=20", "evaluate_every=10", "n_kernels=8", "kernel_size=4", "n_sequences=40"]
SMALL += ["composition=false", "clones=false"]  # no figure here is of a branch
TARGETS = ["--target", "status", "--target", "grade:multiclass", "--target", "age:regression"]
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def folder(cohort: RepertoireDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a target of each kind."""
    folder = tmp_path_factory.mktemp("plot") / "run"
    with pytest.raises(SystemExit) as end:
        main(["train", str(cohort.container.path), *TARGETS, "--output", str(folder), "--folds", "3", *SMALL])
    assert not end.value.code
    return folder


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return load_run(folder, device="cpu")


@pytest.mark.parametrize(
    "arguments",
    [
        ["roc", "--target", "status"],
        ["precision-recall", "--target", "grade=high"],
        ["calibration", "--target", "status"],
        ["regression"],
        ["history"],
        ["network"],
    ],
)
def test_figures_of_a_run_alone(folder: Path, tmp_path: Path, deeprc: Command, arguments: list[str]) -> None:
    kind, *options = arguments
    code, out, err = deeprc("plot", kind, folder, "-o", tmp_path / "a.svg", *options)
    assert (code, err) == (0, "")
    assert out == f"Wrote {tmp_path / 'a.svg'}\n"
    assert (tmp_path / "a.svg").read_bytes().startswith(b"<?xml")


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["png", "pdf"])
def test_figures_of_a_cohort(
    folder: Path, cohort: RepertoireDataset, tmp_path: Path, deeprc: Command, ending: str
) -> None:
    path = tmp_path / f"a.{ending}"
    code, _, err = deeprc("plot", "genes", folder, cohort.container.path, "-o", path)
    assert code == 0, err
    assert "INFO" not in err  # of fontTools
    assert path.read_bytes().startswith({"png": b"\x89PNG", "pdf": b"%PDF"}[ending])


def test_stored_predictions_that_were_cut_are_refused(folder: Path, tmp_path: Path) -> None:
    cut = tmp_path / "run"
    cut.mkdir()
    for name in ("config.yaml", "splits.json"):
        (cut / name).write_bytes((folder / name).read_bytes())
    lines = (folder / "predictions.tsv").read_text().splitlines(keepends=True)
    (cut / "predictions.tsv").write_text("".join(lines[: len(lines) // 2]))
    with pytest.raises(InputError, match=r"predictions\.tsv: expected the \d+ repertoires of splits\.json"):
        make_figure("roc", cut, options=FigureOptions(target="status"))


def test_predictions_are_the_runs_or_made_anew(folder: Path, cohort: RepertoireDataset) -> None:
    options = FigureOptions(target="status")
    kept = make_figure("roc", folder, options=options).axes[0].get_legend().get_texts()
    anew = (
        make_figure("roc", folder, cohort.container.path, FigureOptions(target="status"), device="cpu")
        .axes[0]
        .get_legend()
    )
    assert [text.get_text() for text in anew.get_texts()] == [text.get_text() for text in kept]
    auc = json.loads((folder / "metrics.json").read_text())["test"]["status"]["auc"]
    assert f"AUC {auc:.3f}" in kept[0].get_text()


def test_a_repertoire_alone(folder: Path, cohort: RepertoireDataset) -> None:
    path = cohort.container.path
    figure = make_figure("attention", folder, path, FigureOptions(repertoire="rep.1"), device="cpu")
    assert next(iter(figure.axes[0].get_legend().get_texts())).get_text() == "case (1 repertoires)"
    with pytest.raises(InputError, match=r"cohort\.h5: no repertoire 'rep\.99'"):
        make_figure("attention", folder, path, FigureOptions(repertoire="rep.99"), device="cpu")


def test_classes_of_each_kind_of_target(run: Run, cohort: RepertoireDataset) -> None:
    status, grade, age = run.tasks
    metadata = cohort.metadata.set_index(pd.Index(cohort.repertoire_ids))
    found = find_drawn_classes(run.model, cohort, status)[0]
    assert found == metadata["status"].to_dict()
    assert list(dict.fromkeys(found.values())) == ["healthy", "case"]  # in their order, as in the report
    assert find_drawn_classes(run.model, cohort, grade)[0] == metadata["grade"].to_dict()
    assert list(dict.fromkeys(find_drawn_classes(run.model, cohort, grade)[0].values())) == ["high", "low", "mid"]
    halves = find_drawn_classes(run.model, cohort, age)[0]
    known = metadata["age"].dropna()
    assert set(halves) == set(known.index)
    middle = float(np.median(known))
    assert halves == {i: f"age {'above' if value > middle else 'up to'} {middle:g}" for i, value in known.items()}


def test_metastable_sizes_by_another_target(folder: Path, cohort: RepertoireDataset) -> None:
    figure = make_figure("metastable", folder, cohort.container.path, FigureOptions(target="grade"), device="cpu")
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["high", "low", "mid"]


@pytest.mark.parametrize("kind", ["attention", "metastable", "genes", "sequences"])
def test_a_repertoire_without_sequences(folder: Path, cohort: RepertoireDataset, tmp_path: Path, kind: str) -> None:
    other = write_cohort(tmp_path / "other.h5", [[], ["CAWWHWF"]], cohort.metadata.head(2)).container.path
    with pytest.raises(InputError, match=r"other\.h5: the repertoire 'rep\.0' has no sequences"):
        make_figure(kind, folder, other, FigureOptions(repertoire="rep.0"), device="cpu")


@pytest.mark.slow
def test_top_sequences_of_a_class(run: Run, folder: Path, cohort: RepertoireDataset) -> None:
    from deeprc.interpretation.attributions import attribute
    from deeprc.interpretation.survey import survey_cohort

    options = FigureOptions(target="status", class_name="healthy")
    figure = make_figure("sequences", folder, cohort.container.path, options, device="cpu")
    top = survey_cohort(run.model, cohort, top=20).top["status: healthy"].table
    rows: dict[int, str] = {}
    for text in figure.axes[0].texts:
        rows[int(text.get_position()[1])] = rows.get(int(text.get_position()[1]), "") + text.get_text()
    assert list(rows.values()) == top["junction_aa"].tolist()
    found = attribute(run.model, cohort, top, output=0)
    strongest = np.nanmax(np.abs(found.residues))
    assert figure.axes[1].texts[0].get_text() == f"\u2212{strongest:.2g}"
    axis = make_figure("kernels", folder, cohort.container.path, options, device="cpu").axes[0]
    assert axis.get_ylabel() == "mean contribution to status: healthy"
    assert len(axis.patches) == 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["roc"], "expected one target (--target): status, grade=high, grade=low, grade=mid"),
        (["roc", "--target", "age"], "the predictions have no target 'age' with classes; choose one of "),
        (["attention"], "attention needs the cohort: deeprc plot attention {run} COHORT"),
        (["logos"], "logos needs the cohort"),
        (["history", "{cohort}"], "history needs no cohort"),
        (["history", "--target", "status"], "history has no --target"),
        (["roc", "--class", "case"], "roc has no --class"),
        (["genes", "{cohort}", "--field", "j_call"], "the cohort has no j_call"),
        (["attention", "{cohort}", "--target", "sex"], "no target 'sex'; its targets: status, grade, age"),
        (
            ["sequences", "{cohort}", "--class", "ill"],
            "no class 'ill': expected one of status: case, status: healthy, grade: high",
        ),
        (
            ["curves"],
            "holds no benchmark (no benchmark.yaml) and no cross-validation (no cv.yaml); expected a folder of "
            "`deeprc benchmark` or `deeprc cv`",
        ),
    ],
)
def test_plot_explains_in_one_line_why_it_cannot_draw(
    folder: Path, cohort: RepertoireDataset, tmp_path: Path, deeprc: Command, arguments: list[str], message: str
) -> None:
    names = {"run": folder, "cohort": cohort.container.path}
    kind, *rest = (argument.format(**names) for argument in arguments)
    code, _, err = deeprc("plot", kind, folder, "-o", tmp_path / "a.png", "--device", "cpu", *rest)
    assert code == 2
    assert message.format(**names) in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_checked_before_anything_is_computed(folder: Path, tmp_path: Path, deeprc: Command) -> None:
    code, _, err = deeprc("plot", "roc", tmp_path / "no-run", "-o", tmp_path / "a.gif")
    assert (code, "a.gif: expected a name that ends in .png, .svg or .pdf" in err) == (2, True)
    code, _, err = deeprc("plot", "roc", tmp_path / "no-run", "-o", tmp_path / "a.png")
    assert (code, "no-run: no such file or folder" in err) == (2, True)


def test_a_packed_model_has_neither_predictions_nor_history(tmp_path: Path) -> None:
    packed = tmp_path / "model.deeprc"
    packed.touch()
    with pytest.raises(InputError) as error:
        make_figure("roc", packed)
    assert str(error.value) == f"{packed}: is a file; a packed model holds no predictions: give a CONTAINER, too"
    with pytest.raises(InputError, match=r"is a file; a packed model holds no history$"):
        make_figure("history", packed)


def test_a_damaged_table_is_said(folder: Path, tmp_path: Path) -> None:
    for name in ("config.yaml", "history.tsv"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(InputError, match=r"predictions\.tsv: no such file"):
        make_figure("roc", tmp_path)
    (tmp_path / "history.tsv").write_text("")
    with pytest.raises(InputError, match=r"history\.tsv: is not a table"):
        make_figure("history", tmp_path)
    with pytest.raises(InputError, match="no figure 'pie'; one of roc, "):
        make_figure("pie", tmp_path)


def test_help_names_every_kind(deeprc: Command) -> None:
    code, out, _ = deeprc("plot", "--help")
    assert code == 0
    assert all(kind in out for kind in KINDS)
    assert set(KINDS_OF_COMMAND) == set(KINDS)


def test_curves_of_a_benchmark(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    parts = [
        pd.DataFrame(
            {
                "method": method,
                "fold": np.arange(20) % 2,
                "repertoire_id": [f"{i:03}" for i in range(20)],
                "label": np.arange(20) // 2 % 2,
                "score": rng.normal(size=20),
                "probability": 0.5,
            }
        )
        for method in ("a", "b")
    ]
    pd.concat(parts).to_csv(tmp_path / "predictions.tsv", sep="\t", index=False)
    methods = {name: {"label": name.upper(), "kind": "method"} for name in ("a", "b", "failed")}
    header = {
        "format": "deeprc-benchmark",
        "version": 1,
        **dict.fromkeys(("content", "target", "group_by", "folds", "preset"), "x"),
        "seed": 0,
        "n_folds": 2,
        "asked": ["all"],
        "methods": methods,
    }
    (tmp_path / "benchmark.yaml").write_text(json.dumps(header))
    left, right = make_figure("curves", tmp_path).axes
    assert len(left.lines) == 3
    assert sorted(text.get_text().split()[-1] for text in right.get_legend().get_texts()) == ["A", "B", "chance"]
    with pytest.raises(InputError, match=r"a benchmark has one target, found `target=status`$"):
        make_figure("curves", tmp_path, options=FigureOptions(target="status"))


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--target", "status"]])
def test_a_cohort_before_training(
    cohort: RepertoireDataset, tmp_path: Path, deeprc: Command, options: list[str]
) -> None:
    code, _, err = deeprc("plot", "cohort", cohort.container.path, "-o", tmp_path / "a.svg", *options)
    assert (code, err) == (0, "")
    text = (tmp_path / "a.svg").read_text()
    assert "Repertoires with similar 3-mers are near" in text
    assert ("case: 15" in text) == bool(options)
    code, _, err = deeprc("plot", "cohort", cohort.container.path, "-o", tmp_path / "a.svg", "--class", "case")
    assert (code, err) == (2, "Error: cohort has no --class\n")


@pytest.mark.slow
def test_intervals_of_a_run_alone_know_its_donors(cohort: RepertoireDataset, tmp_path: Path) -> None:
    sheet = cohort.metadata.assign(subject_id=[f"person {i // 4}" for i in range(len(cohort))])
    donors = dict(zip(cohort.repertoire_ids, (np.arange(len(cohort)) // 4).tolist(), strict=True))
    own = write_cohort(tmp_path / "own.h5", [each.sequences.decode() for each in cohort], sheet).container.path
    split = SplitOptions(folds=3)
    train_run(own, tmp_path / "run", targets="status", split=split, config=load_config("deeprc", SMALL), device="cpu")
    stored = pd.read_csv(tmp_path / "run" / "predictions.tsv", sep="\t")
    assert stored["donor"].tolist() == [donors[name] for name in stored["repertoire_id"]]
    alone = make_figure("roc", tmp_path / "run").axes[0].get_legend().get_texts()[0].get_text()
    low, high = json.loads((tmp_path / "run" / "metrics.json").read_text())["test"]["status"]["auc_ci"]
    assert f"({low:.3f} to {high:.3f})" in alone
    without = draw_roc_figure(stored).axes[0].get_legend().get_texts()[0].get_text()
    assert without != alone  # these intervals are narrower
