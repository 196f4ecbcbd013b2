import base64
import hashlib
import io
import json
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from deeprc.benchmarking.harness import benchmark
from deeprc.benchmarking.options import BenchmarkOptions
from deeprc.cli import main
from deeprc.config import load_config
from deeprc.datasets.alphabet import encode_many
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.sequences import Sequences
from deeprc.drawing import CLASS_COLOURS
from deeprc.errors import InputError
from deeprc.interpretation.report import run_report, write_benchmark_report, write_report
from deeprc.interpretation.report.benchmark_report import _format_command, _format_lead
from deeprc.interpretation.report.origin import format_train_command
from deeprc.interpretation.report.page import DASH, make_number_cell
from deeprc.interpretation.survey import survey_cohort
from deeprc.runs.run import Run
from deeprc.runs.run_text import _format_classes, _format_metrics
from deeprc.tasks import Task

TOP = 60
VOID = {"meta", "input", "br", "hr", "img", "link"}


class Page(HTMLParser):
    """What a page holds: tags with attributes, ids, headings, text, and rows of tables by the table's id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.headings: list[tuple[int, str]] = []
        self.text = ""
        self.rows: dict[str, list[list[str]]] = {}
        self.table = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append((int(tag[1]), ""))
        if tag == "div" and dict(attrs).get("class") == "table":
            self.table = str(dict(attrs)["id"])
            self.rows[self.table] = []
        if tag == "tr":
            self.rows[self.table].append([])
        if tag in ("td", "th"):
            self.rows[self.table][-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.text += data
        if self.headings and self.open and re.fullmatch("h[1-6]", self.open[-1]):
            self.headings[-1] = (self.headings[-1][0], self.headings[-1][1] + data)
        if {"td", "th"} & set(self.open):
            self.rows[self.table][-1][-1] += data.strip("\n")

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def words(self) -> str:
        return " ".join(self.text.split())


@pytest.fixture(scope="module")
def path(trained: Run, motif_cohort: RepertoireDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("report") / "report.html"
    write_report(trained, motif_cohort, target, top=TOP)
    return target


@pytest.fixture(scope="module")
def source(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(source: str) -> Page:
    return Page(source)


def check_soundness(page: Page) -> None:
    """Ids are unique, references resolve, headings descend in order, nothing is loaded."""
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.tags:
        for key in ("href", "aria-labelledby"):
            for reference in (attributes.get(key) or "").split():
                if key == "href":
                    assert reference.startswith(("#", "data:text/tab-separated-values"))
                    reference = reference.removeprefix("#")
                assert reference in ids or reference.startswith("data:")
        for value in attributes.values():
            for reference in re.findall(r"url\(#([^)]+)\)", value or ""):
                assert reference in ids
        assert "src" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
    assert not {"link", "iframe", "object", "img"} & {tag for tag, _ in page.tags}
    levels = [level for level, _ in page.headings]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert all(text.strip() for _, text in page.headings)


def test_page_is_sound(page: Page) -> None:
    check_soundness(page)
    assert [text for level, text in page.headings if level == 2] == [
        "Summary",
        "What was trained, and on which data",
        "Is the cohort what it seems?",
        "How good is it?",
        "Training",
        "Does it need the sequences?",
        "Where does the network look?",
        "Which sequences contribute most to which class?",
        "Which motifs?",
        "To reproduce",
    ]


def test_page_runs_its_own_script_only(source: str, page: Page) -> None:
    scripts = re.findall(r"<script>(.*?)</script>", source, re.DOTALL)
    assert len(scripts) == len(page.of("script")) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    policy = next(meta["content"] for meta in page.of("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    assert f"script-src 'sha256-{digest}'" in policy
    assert "eval(" not in scripts[0]
    assert "innerHTML" not in scripts[0]
    outside = set(re.findall(r"https?://[^\s\"'<]+", source))
    assert outside <= {"http://www.w3.org/2000/svg"}


def test_numbers_are_those_of_evaluate(page: Page, trained: Run, motif_cohort: RepertoireDataset) -> None:
    metrics = trained.evaluate(motif_cohort)
    rows = {row[0]: row for row in page.rows["metrics-1"][1:]}
    chosen_by = "validation (used for choosing)"
    for side, name in (("train", "training"), ("validation", chosen_by), ("test", "test")):
        found = metrics[side]["status=case"]
        limits = found.get("auc_ci")  # the model has seen the others
        assert (limits is None) == (side != "test")
        interval = DASH if limits is None else f"{limits[0]:.3f} to {limits[1]:.3f}"
        assert rows[name][1:4] == [str(found["n"]), f"{found['auc']:.3f}", interval]
        names = ("brier", "brier_base_rate", "calibration_error", "loss", "loss_base_rate")
        assert rows[name][-5:] == [f"{found[measure]:.3f}" for measure in names]
    assert list(rows) == ["test", chosen_by, "training"]  # the one that counts comes first
    assert page.rows["sizes"][1:] == [
        [name, str(sum(splits)), f"{sequences:,}", *map(str, splits), "0"]
        for name, splits, sequences in _sizes(trained, motif_cohort)
    ]


def _sizes(run: Run, dataset: RepertoireDataset) -> list[tuple[str, list[int], int]]:
    table = dataset.metadata.assign(n=dataset.n_sequences, split=run.split_of(dataset))
    found = []
    for side, name in (("train", "training"), ("validation", "validation"), ("test", "test")):
        own = table[table["split"] == side]
        counts = [int((own["status"] == status).sum()) for status in ("healthy", "case")]
        found.append((name, counts, int(own["n"].sum())))
    return found


def test_sequences_are_those_of_the_survey(page: Page, trained: Run, motif_cohort: RepertoireDataset) -> None:
    found = survey_cohort(trained.model, motif_cohort, top=TOP)
    for place, direction in enumerate(found.directions, start=1):
        top = found.top[direction.name].table
        rows = page.rows[f"sequences-{place}"]
        assert rows[0][:5] == ["Sequence", "Contribution", "q", "Response", "V gene"]
        assert [row[0] for row in rows[1:]] == top["junction_aa"].tolist()
        shown = [float(row[1].replace(",", "")) for row in rows[1:]]
        assert shown == pytest.approx((direction.sign * top["contribution"]).tolist(), abs=0.006)
        responses = direction.sign * top["response"]
        assert {row[2] for row in rows[1:]} == {"1.00"}  # nearly all patients have repertoires in training
        assert [row[3] for row in rows[1:]] == [make_number_cell(value, ",.2f").text for value in responses]
        links = [link for link in page.of("a") if link.get("download") == f"sequences-{place}-{direction.name}.tsv"]
        saved = base64.b64decode(str(links[0]["href"]).partition("base64,")[2]).decode()
        table = pd.read_csv(io.StringIO(saved), sep="\t", keep_default_na=False)
        assert table["junction_aa"].tolist() == top["junction_aa"].tolist()
        np.testing.assert_allclose(table["contribution"], top["contribution"], rtol=1e-8)
        status = motif_cohort.metadata["status"].set_axis(motif_cohort.repertoire_ids)
        assert table["repertoire_class"].tolist() == top["repertoire_id"].map(status).tolist()


def test_first_motif_is_the_implanted_one(page: Page) -> None:
    assert "First motif for case" in page.words
    assert page.rows["motifs-1"][1][0] == "WWHW"
    assert "WWHW: It is not shown to be associated with the class (p" in page.words


def test_there_is_a_way_to_make_it_again(page: Page, trained: Run, path: Path) -> None:
    assert format_train_command(trained.settings, str(trained.path)) in page.words
    assert f"-o {path} --top {TOP}" in page.words
    assert trained.settings.fingerprint in page.words
    environment = json.loads((trained.path / "environment.json").read_text())
    versions = {row[0]: row[1] for row in page.rows["versions"]}
    assert versions["torch"] == environment["packages"]["torch"]
    assert "embedding: convolution" in page.words


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["n_updates=7", "learning_rate=0.00001", "patience=null", "standardise=false", "abundance=log1p"],
        ["beta=0.5", "embedding=lstm", "l1=1e-7"],
    ],
)
def test_train_command_gives_the_same_settings(trained: Run, overrides: list[str]) -> None:
    split_options = replace(trained.settings.split_options, group_by="patient id; rm", test="my site=b")
    settings = replace(
        trained.settings,
        cohort="/data/my cohort.h5",
        targets=("T cell=CD4+", "age:regression@0.5"),
        split_options=split_options,
        config=load_config("deeprc", overrides),
    )
    assert "--validation-fold" not in format_train_command(settings, "runs/a b")
    assert "--no-sketches" not in format_train_command(settings, "runs/a b")
    assert "--no-sketches" in format_train_command(settings, "runs/a b", has_sketches=False)
    on_first_fold = replace(settings, split_options=replace(split_options, validation_fold=0))
    words = shlex.split(format_train_command(on_first_fold, "runs/a b"))
    assert words[:3] == ["deeprc", "train", "/data/my cohort.h5"]
    given = words[3 : words.index("--target")]
    assert len(given) == len(settings.config.changes())
    assert load_config("deeprc", given) == settings.config
    options = words[words.index("--target") :]
    assert options[:4] == ["--target", "T cell=CD4+", "--target", "age:regression@0.5"]
    assert options[options.index("--group-by") + 1] == "patient id; rm"
    assert options[options.index("--validation-fold") + 1] == "0"
    assert options[options.index("--test") + 1] == "my site=b"
    assert options[options.index("--output") + 1] == "runs/a b"


@pytest.mark.slow
def test_text_of_users_is_harmless(tmp_path: Path, run_factory: Callable[..., Run]) -> None:
    rng = np.random.default_rng(0)
    evil = ["<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "a&amp;b'"]
    with ContainerWriter(tmp_path / "evil.h5") as writer:
        for i in range(18):
            junctions = ["C" + "".join(rng.choice(list("ADEFGHIKLW"), 8)) + "F" for _ in range(30)]
            residues, offsets = encode_many(junctions)
            name = evil[i] if i < len(evil) else f"rep.{i}"
            writer.append(name, Sequences(residues, offsets, np.ones(30, np.uint32)))
        label = np.where(np.arange(18) % 2, "<b>case</b>", "<i>none</i>")
        patient = [f"<u>{i // 2}</u>" for i in range(18)]
        writer.finish(pd.DataFrame({"a<b": label, "patient_id": patient}), source="<script>2</script>")
    dataset = open_dataset(tmp_path / "evil.h5")
    run = run_factory(dataset, "n_updates=20", "n_kernels=4", "kernel_size=4", targets=("a<b=<b>case</b>",))
    write_report(run, dataset, tmp_path / "<evil>.html", top=40)
    page = Page((tmp_path / "<evil>.html").read_text(encoding="utf-8"))
    check_soundness(page)
    assert len(page.of("script")) == 1
    assert not {"u", "i", "img"} & {tag for tag, _ in page.tags}
    assert "<script>2</script>" in page.words
    assert "<b>case</b>" in page.words
    assert "6 values of 'patient_id' have repertoires in more than one part" in page.words
    assert "has no v_call; the usage of V genes cannot be compared" in page.words
    assert "The cohort has no V or J genes to compare." in page.words


@pytest.mark.slow
def test_each_target_has_its_own_metrics(
    tmp_path: Path, cohort: RepertoireDataset, run_factory: Callable[..., Run]
) -> None:
    targets = ("grade:multiclass", "age:regression")
    run = run_factory(cohort, "n_updates=20", "n_kernels=4", "kernel_size=4", targets=targets)
    write_report(run, cohort, tmp_path / "report.html", top=20)
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    check_soundness(page)
    assert page.rows["metrics-1"][0][2:8:2] == ["AUC high", "AUC low", "AUC mid"]
    assert page.rows["metrics-2"][0][::2] == ["Split", "r²", "Spearman", "Mean error"]
    assert page.rows["metrics-2"][0][3] == "95% interval of r²"
    found = run.evaluate(cohort)["test"]["age"]
    assert page.rows["metrics-2"][1][:3:2] == ["test", make_number_cell(found["r2"]).text]
    assert page.rows["metrics-2"][1][6] == f"{found['mae']:.3g}"
    low, high = found["r2_ci"]
    assert page.rows["metrics-2"][1][3] == f"{make_number_cell(low).text} to {make_number_cell(high).text}"
    models = ["The network", "Repertoire size", "V gene usage"]
    assert "Column status determines the target, so" in page.words  # which says the age
    assert [row[0] for row in page.rows["controls-1"][1:]] == models
    assert [row[0] for row in page.rows["controls-5"][1:]] == models
    assert page.rows["controls-5"][0][1] == "r²"
    assert page.rows["sequences-4"][0].count("age") == 1
    assert page.rows["sequences-1"][0].count("Class") == 1
    headings = [text for level, text in page.headings if level == 3 and text.startswith("For ")]
    assert headings[:5] == ["For grade: high", "For grade: low", "For grade: mid", "For age: higher", "For age: lower"]
    check_classes(page, cohort)
    source = (tmp_path / "report.html").read_text(encoding="utf-8")
    terms, items = (re.findall(rf"<{tag}(?: class=.*?)?>(.*?)</{tag}>", source, re.DOTALL) for tag in ("dt", "li"))
    for lines in (terms, items):
        assert len(lines) == len(set(lines))  # none is said twice without saying of what
    assert "Answer for grade: high against not high" in page.words
    for parted in ("by class of grade", "by age"):
        assert f"(each point is a repertoire), {parted}. " in page.words
    known = cohort.metadata["age"].dropna()
    assert all(f"age {word} {known.median():g} (" in source for word in ("above", "up to"))


def test_a_class_has_one_colour_in_all_tables(source: str) -> None:
    marked = re.findall(r'<span class="swatch class-(\d)" aria-hidden="true"></span>(?:For )?(\w+)', source)
    assert {(name, place) for place, name in marked} == {("healthy", "0"), ("case", "1")}
    assert len(marked) > 20
    for place, colour in enumerate(CLASS_COLOURS):
        assert f".class-{place} {{ --class: {colour}; }}" in source
    for table, place in (("sequences-1", 1), ("sequences-2", 0)):
        assert re.search(rf'<div class="class-{place}">\s*<div class="table" id="{table}">', source)
    assert "The AUC is the probability that a random case repertoire gets a higher score than a random healthy one" in (
        " ".join(source.split())
    )
    assert "first class" not in source


@pytest.mark.slow
def test_a_page_about_a_number_does_not_speak_of_classes(
    tmp_path: Path, cohort: RepertoireDataset, run_factory: Callable[..., Run]
) -> None:
    run = run_factory(cohort, "n_updates=10", "n_kernels=4", "kernel_size=4", targets=("age:regression",))
    write_report(run, cohort, tmp_path / "report.html", top=10)
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    check_soundness(page)
    for word in ("The AUC is", "log-odds"):
        assert word not in page.words
    config = " ".join((run.path / "config.yaml").read_text(encoding="utf-8").split())
    assert config in page.words
    assert re.findall(r".{0,80}class.{0,40}", page.words.replace(config, "").lower()) == []
    assert "r² is the share of the variance that the prediction explains" in page.words
    assert "Which sequences contribute most to which direction?" in page.words
    assert page.rows["controls-1"][0][1] == "r²"
    assert [row[0] for row in page.rows["controls-1"][1:]][-1] == "V gene usage"  # status and grade say the age
    assert page.rows["sequences-1"][0].count("age") == 1
    n = sum(side == "test" for side in run.split_of(cohort[cohort.metadata["age"].notna().to_numpy().nonzero()[0]]))
    assert f"Only {n} test repertoires. With so few, r² may be anything from" in page.words


def check_classes(page: Page, cohort: RepertoireDataset) -> None:
    """A column holds the labels of the direction's own target: Class of grade (three directions), age of age (two)."""
    metadata = cohort.metadata.set_index(pd.Index(cohort.repertoire_ids))
    labels = {"grade": metadata["grade"], "age": metadata["age"].map("{:g}".format, na_action="ignore")}
    seen = 0
    for place, target in enumerate(["grade"] * 3 + ["age"] * 2, start=1):
        heading = "age" if target == "age" else "Class"
        header, *rows = page.rows.get(f"sequences-{place}", [["Repertoire", heading]])
        for row in rows:
            label = labels[target][row[header.index("Repertoire")]]
            assert row[header.index(heading)] == ("" if pd.isna(label) else label)
        seen += len(rows)
    assert seen >= 60


def test_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, trained: Run, motif_cohort: RepertoireDataset, tmp_path: Path
) -> None:
    monkeypatch.setattr(run_report, "find_spec", lambda name: None if name == "logomaker" else object())
    with pytest.raises(InputError, match=r"the report needs logomaker: pip install 'deeprc\[interpret\]'"):
        write_report(trained, motif_cohort, tmp_path / "report.html")


@pytest.fixture(scope="module")
def compared(cohort: RepertoireDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared") / "results"
    methods, options = ["knn-minmax", "repertoire-size", "v-gene-usage"], BenchmarkOptions(folds=3)
    with pytest.MonkeyPatch.context() as patch:  # the page draws these pictures anew
        patch.setattr("deeprc.benchmarking.result.draw_curves", lambda *_: None)
        patch.setattr("deeprc.benchmarking.result.BenchmarkResult._draw_reliability", lambda *_: None)
        benchmark(cohort, target="status=case", methods=methods, output=folder, options=options)
    return folder


@pytest.mark.slow
def test_the_report_of_a_benchmark_has_the_numbers_of_its_files(compared: Path, tmp_path: Path) -> None:
    write_benchmark_report(compared, tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    check_soundness(page)
    comparison = pd.read_csv(compared / "comparison.tsv", sep="\t").set_index("method")
    rows = page.rows["methods"]
    assert [row[0] for row in rows[1:]] == ["KNN (MinMax)", "Repertoire size", "V gene usage"]
    assert [row[1] for row in rows[1:]] == ["method", "control", "control"]
    for row, (_, known) in zip(rows[1:], comparison.iterrows(), strict=True):
        assert row[2] == f"{known['auc_mean']:.3f} ± {known['auc_sd']:.3f}"
        assert row[3] == f"{known['ci_low']:.3f} to {known['ci_high']:.3f}"
    assert rows[1][4] == "best"
    notes = " ".join((compared / "table.md").read_text().split())
    verdict = next(line for line in page.words.split(". ") if "control" in line.lower())
    assert verdict.split()[0] in notes
    assert "What the control methods say" in [text for _, text in page.headings]
    assert "--target status=case --methods knn-minmax,repertoire-size,v-gene-usage" in page.words
    assert len(page.of("svg")) == 2
    judged = pd.read_csv(compared / "probabilities.tsv", sep="\t")
    labels = dict(zip(comparison.index, [row[0] for row in rows[1:]], strict=True))
    columns = ["brier", "brier_base_rate", "log_loss", "log_loss_base_rate", "calibration_error"]
    expected = [[labels[row["method"]], *(f"{row[name]:.3f}" for name in columns)] for _, row in judged.iterrows()]
    assert [[row[0], *row[2:]] for row in page.rows["probability-measures"][1:]] == expected
    assert "Use `group_by='patient_id'`." in page.words  # in Python; a command names its option


def test_merged_classes_are_called_by_both_names() -> None:
    """A target such as 's=b,c vs a': c alone is not the positive class, in the benchmark's page and in a run's text."""
    header = {"target": "s", "n_folds": 3, "n_repertoires": 9, "n_positive": 4, "classes": ["a", "b", "c"]}
    found: Any = SimpleNamespace(header={**header, "positive_class": "b or c"}, methods=[])
    assert "for the same 9 repertoires, 4 of them b or c, in 3 folds" in _format_lead(found)
    task = Task("s", "s", "binary", ("a", "b", "c"), n_positive=2, drops_others=True)
    assert _format_classes(task) == ": b or c against a"
    number = Task("age", "age", "regression")
    text = _format_metrics(number, {"r2": 0.5, "r2_ci": [-0.1, 0.8], "mae": 3.0, "n": 12})
    assert text == "age: r2 0.500 (95% interval -0.100 to 0.800), MAE 3.000, on 12 repertoires"


def test_the_command_of_a_benchmark_with_folds_of_a_file_takes_them_from_its_folder() -> None:
    header = {"target": "s", "asked": ["logistic"], "preset": "quick", "n_folds": 4, "group_by": None, "seed": 0}
    assert "--folds 4 " in _format_command(header, "out")
    again = _format_command({**header, "folds_file": True}, "out")
    assert again.endswith("--folds out/folds.tsv --seed 0 --output out-again")


def test_benchmark_that_has_not_ended(compared: Path, tmp_path: Path) -> None:
    folder = tmp_path / "begun"
    folder.mkdir()
    with pytest.raises(InputError, match=r"holds no benchmark"):
        write_benchmark_report(folder, tmp_path / "report.html")
    (folder / "benchmark.yaml").write_text((compared / "benchmark.yaml").read_text())
    with pytest.raises(InputError, match=r"the benchmark has not ended \(no comparison.tsv\)"):
        write_benchmark_report(folder, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "column", "value", "message"),
    [
        ("settings.tsv", "settings", "x", r"settings\.tsv: column 'settings', row 2: is not JSON"),
        ("settings.tsv", "settings", "[1]", r"settings\.tsv: column 'settings', row 2: expected names and values"),
        (
            "comparison.tsv",
            "method",
            "x",
            r"comparison\.tsv: expected each method of .*, found none of 1",
        ),
        ("predictions.tsv", "fold", "7", r"predictions\.tsv: method '.*', repertoire '.*': two methods give .* folds"),
    ],
)
def test_a_damaged_table_of_a_benchmark_is_named(
    compared: Path, tmp_path: Path, name: str, column: str, value: str, message: str
) -> None:
    folder = shutil.copytree(compared, tmp_path / "damaged")
    table = pd.read_csv(folder / name, sep="\t", dtype=str)
    table.loc[0, column] = value
    table.to_csv(folder / name, sep="\t", index=False)
    with pytest.raises(InputError, match=message):
        write_benchmark_report(folder, tmp_path / "report.html")


def test_the_command_refuses_what_has_no_report_and_opens_the_page(
    compared: Path,
    trained: Run,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    cohort: RepertoireDataset,
    monkeypatch: pytest.MonkeyPatch,
    no_figures: None,
) -> None:
    target = tmp_path / "report.html"
    launched: list[str] = []
    monkeypatch.setattr("click.launch", launched.append)
    for arguments, message in (
        ([compared, cohort.container.path], "the report of a benchmark takes no CONTAINER"),
        ([trained.path], "is a run, whose report needs a CONTAINER"),
        ([cohort.container.path], f"{cohort.container.path}: is a container; expected a run before it"),
        ([tmp_path], "is neither a run (no config.yaml), nor a cross-validation (no cv.yaml), nor a benchmark"),
        ([tmp_path, cohort.container.path], "is not a run directory"),
    ):
        with pytest.raises(SystemExit) as end:
            main(["report", *map(str, arguments), "-o", str(target)])
        assert end.value.code == 2
        assert message in capsys.readouterr().err
        assert not target.exists()
    with pytest.raises(SystemExit) as end:
        main(["report", str(compared), "-o", str(target)])
    assert not end.value.code
    assert capsys.readouterr().out == f"Wrote {target}\n"
    assert launched == []
    with pytest.raises(SystemExit):
        main(["report", str(compared), "-o", str(target), "--open"])
    assert launched == [str(target)]
    assert "Use --group-by 'patient_id'." in Page(target.read_text(encoding="utf-8")).words
