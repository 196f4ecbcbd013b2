import base64
import hashlib
import io
import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deeprc.cli import main
from deeprc.config import load_config
from deeprc.datasets.alphabet import encode_many
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.sequences import SequenceTable
from deeprc.errors import InputError
from deeprc.evaluation.harness import benchmark
from deeprc.evaluation.metrics import auc_interval
from deeprc.evaluation.run import Run
from deeprc.interpretation.report import run_report, write_benchmark_report, write_report
from deeprc.interpretation.report.cautions import cautions
from deeprc.interpretation.report.controls import compare_controls
from deeprc.interpretation.report.judged import Contrast, Judged, judge
from deeprc.interpretation.report.origin import changed_settings, train_command
from deeprc.interpretation.report.page import Cell, check_report_output, number, render
from deeprc.interpretation.report.sequences import coloured
from deeprc.interpretation.survey import survey

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
        "What was trained on what",
        "How good is it?",
        "Training",
        "Does it need the sequences?",
        "Where does the network look?",
        "Which sequences speak for which class?",
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
    for side, name in (("train", "training"), ("validation", "validation"), ("test", "test")):
        found = metrics[side]["status=case"]
        low, high = found["auc_ci"]
        assert rows[name][1:4] == [str(found["n"]), f"{found['auc']:.3f}", f"{low:.3f} to {high:.3f}"]
        assert rows[name][-1] == f"{found['loss']:.3f}"
    assert list(rows) == ["test", "validation", "training"]  # the one that counts comes first
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
    found = survey(trained, motif_cohort, top=TOP)
    for place, side in enumerate(found.sides, start=1):
        top = found.top[side.name]
        rows = page.rows[f"sequences-{place}"]
        assert rows[0][:4] == ["Sequence", "Contribution", "Response", "V gene"]
        assert [row[0] for row in rows[1:]] == top["junction_aa"].tolist()
        shown = [float(row[1].replace(",", "")) for row in rows[1:]]
        assert shown == pytest.approx((side.sign * top["contribution"]).tolist(), abs=0.006)
        assert [row[2] for row in rows[1:]] == [number(side.sign * value, ",.2f").text for value in top["response"]]
        links = [link for link in page.of("a") if link.get("download") == f"sequences-{side.name}.tsv"]
        saved = base64.b64decode(str(links[0]["href"]).partition("base64,")[2]).decode()
        table = pd.read_csv(io.StringIO(saved), sep="\t", keep_default_na=False)
        assert table["junction_aa"].tolist() == top["junction_aa"].tolist()
        np.testing.assert_allclose(table["contribution"], top["contribution"], rtol=1e-8)
        status = motif_cohort.metadata["status"].set_axis(motif_cohort.repertoire_ids)
        assert table["repertoire_class"].tolist() == top["repertoire_id"].map(status).tolist()


def test_first_motif_is_the_implanted_one(page: Page) -> None:
    assert "First motif for case" in page.words
    assert page.rows["motifs-1"][1][0] == "WWHW"
    assert "WWHW, in " in page.words


def test_there_is_a_way_to_make_it_again(page: Page, trained: Run, path: Path) -> None:
    assert train_command(trained.settings, str(trained.path)) in page.words
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
    settings = replace(
        trained.settings,
        cohort="/data/my cohort.h5",
        targets=("T cell=CD4+", "age:regression@0.5"),
        group_by="patient id; rm",
        config=load_config("deeprc", overrides),
    )
    words = shlex.split(train_command(settings, "runs/a b"))
    assert words[:3] == ["deeprc", "train", "/data/my cohort.h5"]
    given = words[3 : words.index("--target")]
    assert len(given) == len(changed_settings(settings))
    assert load_config("deeprc", given) == settings.config
    options = words[words.index("--target") :]
    assert options[:4] == ["--target", "T cell=CD4+", "--target", "age:regression@0.5"]
    assert options[options.index("--group-by") + 1] == "patient id; rm"
    assert options[options.index("--output") + 1] == "runs/a b"


def test_text_of_users_is_harmless(tmp_path: Path, run_factory: Callable[..., Run]) -> None:
    rng = np.random.default_rng(0)
    evil = ["<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "a&amp;b'"]
    with ContainerWriter(tmp_path / "evil.h5") as writer:
        for i in range(18):
            junctions = ["C" + "".join(rng.choice(list("ADEFGHIKLW"), 8)) + "F" for _ in range(30)]
            residues, offsets = encode_many(junctions)
            name = evil[i] if i < len(evil) else f"rep.{i}"
            writer.append(name, SequenceTable(residues, np.diff(offsets), np.ones(30, np.uint32)))
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
    assert "6 values of “patient_id” have repertoires on more than one side" in page.words
    assert "has no v_call; the usage of V genes cannot be compared" in page.words
    assert "The cohort has no V or J genes to compare." in page.words


def test_several_targets(tmp_path: Path, cohort: RepertoireDataset, run_factory: Callable[..., Run]) -> None:
    targets = ("grade:multiclass", "age:regression")
    run = run_factory(cohort, "n_updates=20", "n_kernels=4", "kernel_size=4", targets=targets)
    write_report(run, cohort, tmp_path / "report.html", top=20)
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    check_soundness(page)
    assert page.rows["metrics-1"][0][2:8:2] == ["AUC high", "AUC low", "AUC mid"]
    assert page.rows["metrics-2"][0] == ["Side", "Repertoires", "r²", "Mean error"]
    found = run.evaluate(cohort)["test"]["age"]
    assert page.rows["metrics-2"][1] == ["test", str(found["n"]), number(found["r2"]).text, f"{found['mae']:.3g}"]
    assert [row[0] for row in page.rows["controls-1"][1:]] == ["The network", "Repertoire size", "V gene usage"]
    sides = [text for level, text in page.headings if level == 3 and text.startswith("For ")]
    assert sides[:5] == ["For grade: high", "For grade: low", "For grade: mid", "For age: higher", "For age: lower"]


def test_cohort_that_the_run_has_not_seen(
    tmp_path: Path, trained: Run, cohort_factory: Callable[..., RepertoireDataset]
) -> None:
    other = cohort_factory(20, 60, seed=77)
    outputs = trained.outputs(other).double().numpy()
    judged = judge(trained, other, outputs)
    assert judged.side == "new"
    assert compare_controls(other, judged)[0].reasons == [
        "No control could be compared: the cohort has no labelled training repertoire of this run."
    ]
    texts = _texts(trained, judged, metadata=other.metadata)
    assert any(
        "None of this cohort's repertoires took part" in text and "20 of them have the id" in text for text in texts
    )


def _texts(run: Run, judged: Judged, **changed: pd.DataFrame) -> list[str]:
    tables = {
        "metadata": pd.DataFrame({"x": np.zeros(len(judged.ids))}),
        "heads": pd.DataFrame({"head": [1], "n_sequences": [1000], "metastable_size": [3]}),
        "history": pd.DataFrame({"update": [10, 20, 30], "validation_loss": [0.5, 0.4, 0.6]}),
    }
    return [each.text for each in cautions(run, judged, [], **{**tables, **changed})]


def _judged(split: list[str], label: list[float], score: list[float]) -> Judged:
    """Return a judgement of one contrast from its scores."""
    known, scores = np.array(label), np.array(score)
    side = "test" if "test" in split else None
    contrast = Contrast("t", "t", "ill", "well", 0, known, scores, 1 / (1 + np.exp(-scores)))
    ids = np.array([f"r{i}" for i in range(len(split))], dtype=object)
    return Judged(ids, np.array(split, dtype=object), known[:, None], {}, pd.DataFrame(), [contrast], [], side)


def _sides(n: int, *, train: float = 1, validation: float = 1, test: float = 1) -> Judged:
    """Return n repertoires of each class on each side, of which this share is ranked right; the others are tied."""
    split, label, score = [], [], []
    for side, right in (("train", train), ("validation", validation), ("test", test)):
        split += [side] * (2 * n)
        label += [1.0] * n + [0.0] * n
        score += [1.0 if i < right * n else 0.0 for i in range(n)] + [0.0] * n
    return _judged(split, label, score)


def test_nothing_to_warn_of(trained: Run) -> None:
    assert _texts(trained, _sides(20)) == []


def test_few_repertoires(trained: Run) -> None:
    (text,) = _texts(trained, _sides(8))
    low, _ = auc_interval(1.0, 8, 8)
    assert text == f"Only 8 test repertoires of the smaller class: the AUC may be anything from {low:.3f} to 1.000."


def test_chance_comes_first(trained: Run) -> None:
    texts = _texts(trained, _sides(8, validation=0.25, test=0))
    assert texts[0].startswith("The network cannot be told from chance: its AUC is 0.500, with a 95% interval from")
    assert texts[1].startswith("Only 8 test repertoires")
    assert texts[2].startswith("The AUC is 1.000 on training and 0.625 on validation repertoires")


def test_nothing_to_judge_by(trained: Run) -> None:
    judged = _judged(["train"] * 4, [1.0, 1, 0, 0], [1.0, 1, 0, 0])
    assert _texts(trained, judged)[0].startswith("This cohort has no labelled repertoire that the network has not")
    judged = _judged(["train"] * 4 + ["test"] * 2, [1.0, 1, 0, 0, 1, 1], [1.0, 1, 0, 0, 1, 1])
    assert _texts(trained, judged)[0].startswith("The test repertoires are of one class: there is no AUC")


def test_subjects_on_several_sides(trained: Run) -> None:
    judged = _sides(20)
    metadata = pd.DataFrame({"donor": ["same"] * 120})
    (text,) = _texts(trained, judged, metadata=metadata)
    assert text.startswith("1 value of “donor” has repertoires on more than one side of the split")
    metadata = pd.DataFrame({"donor": np.repeat(["a", "b", "c"], 40)})
    assert _texts(trained, judged, metadata=metadata) == []


def test_broad_attention(trained: Run) -> None:
    heads = pd.DataFrame({"head": [1, 1], "n_sequences": [1000, 10], "metastable_size": [200, 2]})
    (text,) = _texts(trained, _sides(20), heads=heads)
    assert text.startswith("Attention is broad: half of the repertoires need more than 20% of their sequences")
    (text,) = _texts(trained, _sides(20), heads=heads.assign(metastable_size=[900, 6]))
    assert text.startswith("Attention is very broad: half of the repertoires need more than 75%")
    two_heads = pd.concat([heads, heads.assign(head=2, metastable_size=1)])  # one of them is focused
    assert _texts(trained, _sides(20), heads=two_heads) == []


def test_training_that_was_cut_off(trained: Run) -> None:
    last = trained.settings.config.training.n_updates
    history = pd.DataFrame({"update": [last // 2, last], "validation_loss": [0.5, 0.4]})
    (text,) = _texts(trained, _sides(20), history=history)
    assert text.startswith(f"Training ended at its limit of {last:,} updates")
    history["validation_loss"] = [0.4, 0.5]
    assert _texts(trained, _sides(20), history=history) == []


def test_control_that_is_as_good(trained: Run, motif_cohort: RepertoireDataset) -> None:
    judged = judge(trained, motif_cohort, trained.outputs(motif_cohort).double().numpy())
    (controls,) = compare_controls(motif_cohort, judged)
    assert list(controls.aucs) == ["network", "size", "v-genes"]
    assert controls.aucs["network"] == pytest.approx(judged.metrics["test"]["status=case"]["auc"])
    assert controls.reaching == []
    contrast = replace(judged.contrasts[0], score=np.zeros(len(motif_cohort)))
    (controls,) = compare_controls(motif_cohort, replace(judged, contrasts=[contrast]))
    assert set(controls.reaching) <= {"size", "v-genes"}
    assert controls.aucs["network"] == 0.5
    reached = [name for name, auc in controls.aucs.items() if auc >= 0.5 and name != "network"]
    assert set(reached) <= set(controls.reaching)
    for name in controls.reaching:
        assert "receptor sequences add anything" in controls.sentence(name)


def test_residues_are_shaded_by_their_share_of_the_strongest() -> None:
    html = coloured("CAWF", np.array([1.0, -0.5, 0.2, 0.1, np.nan]))
    assert html == (
        '<span class="residues"><span class="f3" title="+1">C</span><span class="a2" title="-0.5">A</span>'
        '<span class="f1" title="+0.2">W</span><span title="+0.1">F</span></span>'
    )
    assert coloured("CF", np.zeros(2)).count("class=") == 1
    assert coloured("<>", None) == '<span class="residues">&lt;&gt;</span>'


def test_missing_numbers_are_dashes() -> None:
    assert number(float("nan")) == Cell("\N{EN DASH}", None)
    assert number(-0.5, ".1f") == Cell("\N{MINUS SIGN}0.5", -0.5)


def test_only_reports_are_replaced(tmp_path: Path, path: Path) -> None:
    check_report_output(path)
    check_report_output(tmp_path / "new.html")
    (tmp_path / "mine.html").write_text("<html></html>")
    (tmp_path / "data.bin").write_bytes(b"\xff\xfe\x00")
    for name in ("mine.html", "data.bin"):
        with pytest.raises(InputError, match="exists and is no report of deeprc; choose another --output"):
            check_report_output(tmp_path / name)
    with pytest.raises(InputError, match="is a folder"):
        check_report_output(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        check_report_output(tmp_path / "no" / "report.html")


def test_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, trained: Run, motif_cohort: RepertoireDataset, tmp_path: Path
) -> None:
    monkeypatch.setattr(run_report, "find_spec", lambda name: None if name == "captum" else object())
    with pytest.raises(InputError, match=r"the report needs captum: pip install 'deeprc\[interpret\]'"):
        write_report(trained, motif_cohort, tmp_path / "report.html")


def test_undefined_names_are_errors() -> None:
    with pytest.raises(Exception, match="undefined"):
        render("report.html.j2", title="x")


@pytest.fixture(scope="module")
def compared(cohort: RepertoireDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared") / "results"
    benchmark(
        cohort, target="status=case", methods=["knn-minmax", "repertoire-size", "v-gene-usage"], folds=3, output=folder
    )
    return folder


def test_benchmark(compared: Path, tmp_path: Path) -> None:
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
    assert "What the controls say" in [text for _, text in page.headings]
    assert "--target status=case --methods knn-minmax,repertoire-size,v-gene-usage" in page.words
    assert len(page.of("svg")) == 1


def test_benchmark_that_has_not_ended(compared: Path, tmp_path: Path) -> None:
    folder = tmp_path / "begun"
    folder.mkdir()
    with pytest.raises(InputError, match=r"holds no benchmark"):
        write_benchmark_report(folder, tmp_path / "report.html")
    (folder / "benchmark.yaml").write_text((compared / "benchmark.yaml").read_text())
    with pytest.raises(InputError, match=r"the benchmark has not ended \(no comparison.tsv\)"):
        write_benchmark_report(folder, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_command(
    compared: Path, trained: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], cohort: RepertoireDataset
) -> None:
    target = tmp_path / "report.html"
    for arguments, message in (
        ([compared, cohort.container.path], "holds a benchmark, whose report takes no CONTAINER"),
        ([trained.path], "is a run, whose report needs a CONTAINER"),
        ([tmp_path], "is neither a run (no config.yaml) nor a benchmark (no benchmark.yaml)"),
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
