"""A trained model in one file: it predicts as the run, tells nothing of single donors, and may come from a stranger."""

from __future__ import annotations

import gc
import json
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

import deeprc
from deeprc.cli import main
from deeprc.config import load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.evaluation.splits import SplitOptions
from deeprc.runs import bundle
from deeprc.runs.run import Run
from tests.toys.clone_cohorts import draw_repertoires, write_repertoires

pytestmark = pytest.mark.slow  # what its tests share takes seconds to train

SITES = np.where(np.arange(120) < 110, "elsewhere", "of one person")
CONFIG = load_config("deeprc", ["n_updates=10", "evaluate_every=5", "n_kernels=4"])


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> RepertoireDataset:
    labels = np.arange(120) % 2
    path = tmp_path_factory.mktemp("secret place") / "cohort.h5"
    metadata = pd.DataFrame({"status": np.where(labels, "ill", "well"), "site": SITES})
    ids = [f"donor-{number:03d}" for number in range(120)]
    return write_repertoires(path, draw_repertoires(3, labels), metadata=metadata, ids=ids)


@pytest.fixture(scope="module")
def run(cohort: RepertoireDataset, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("runs") / "run"
    return deeprc.train(cohort.container.path, folder, targets="status=ill", config=CONFIG, device="cpu")


@pytest.fixture(scope="module")
def packed(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packed") / "model.deeprc"
    assert deeprc.pack(run.path, path).keys() == set(bundle.MAX_BYTES)
    return path


def contents_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_packed_model_warns_that_it_cannot_recognise_its_training_repertoires(
    packed: Path, cohort: RepertoireDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    warning = (
        "A packed model cannot recognise its training repertoires. If this is its training cohort, its predictions and "
        "metrics are too good."
    )
    texts = [each["text"] for each in deeprc.evaluate(packed, cohort, device="cpu")["warnings"]]
    assert warning in texts
    assert any("control methods need the training repertoires, which a packed" in text for text in texts)
    given = ["predict", packed, cohort.container.path, "-o", tmp_path / "p.tsv", "--device", "cpu"]
    with pytest.raises(SystemExit):
        main(list(map(str, given)))
    assert f"Warning: {warning}" in capsys.readouterr().err


def test_a_packed_model_predicts_as_its_run(run: Run, packed: Path, cohort: RepertoireDataset) -> None:
    held_out = cohort.select(run.splits["test"])
    loaded = deeprc.load(packed, device="cpu")
    expected, found = run.predict(held_out), loaded.predict(held_out)
    assert set(found["split"]) == {"new"}
    same = ["repertoire_id", "target", "label", "probability", "called_class"]
    pd.testing.assert_frame_equal(found[same], expected[same])
    np.testing.assert_allclose(found["shift"], expected["shift"], rtol=0.02)  # from rounded numbers
    assert repr(loaded).splitlines()[0] == f"Run('{packed}')"
    assert "repertoires" not in repr(loaded).split("test  ")[0]
    assert loaded.clones().equals(run.clones())
    assert {"composition", "clones"} <= set(loaded.model.network.branches.names)


def test_a_packed_model_has_no_data_of_single_donors(run: Run, packed: Path, cohort: RepertoireDataset) -> None:
    contents = contents_of(packed)
    together = b"\n".join(contents.values())
    for text in ("donor-", "secret place", str(run.path), *run.identities.values(), run.settings.fingerprint):
        assert text.encode() not in together, text
    carriers = pd.concat([each.to_frame() for each in cohort]).groupby("junction_aa")["repertoire_id"].nunique()
    private = set(carriers.index[carriers == 1])
    assert len(private) > 1000
    assert not private & set(deeprc.load(packed, device="cpu").clones()["junction_aa"])
    assert json.loads(contents["splits.json"]) == {"train": [], "validation": [], "test": [], "digests": {}}
    assert run.model.network.branches is not None
    assert len(run.model.network.branches.identities) > 0


def test_no_number_is_of_a_single_repertoire(run: Run, packed: Path) -> None:
    """With distances and exact moments, a repertoire could be recognised."""
    summary, whole = (
        json.loads(text) for text in (contents_of(packed)["shift.json"], (run.path / "shift.json").read_text())
    )
    assert len(whole["distances"]) == 96
    assert summary["distances"] == []
    assert all(len(each) != 96 for each in summary.values() if isinstance(each, list))
    np.testing.assert_allclose(summary["centre"], whole["centre"], rtol=5e-4)
    assert summary["centre"] != whole["centre"]
    assert all(float(f"{each:.3e}") == each for name in ("centre", "spread", "error") for each in summary[name])


@pytest.mark.parametrize("validation_fold", [None, 0])
def test_a_single_test_donor_is_not_named_in_a_packed_model(
    cohort: RepertoireDataset, validation_fold: int | None, tmp_path: Path
) -> None:
    """A validation fold of 0 is not the test fold then, which is 0 if nothing else is said."""
    run = deeprc.train(
        cohort.container.path,
        tmp_path / "run",
        targets="status=ill",
        config=load_config("deeprc", ["n_updates=1", "n_kernels=4", "composition=false", "clones=false"]),
        split=SplitOptions(test="site=of one person", validation_fold=validation_fold),
        device="cpu",
    )
    assert "of one person" in (run.path / "config.yaml").read_text()
    deeprc.pack(run.path, tmp_path / "model.deeprc")
    assert b"of one person" not in b"".join(contents_of(tmp_path / "model.deeprc").values())
    assert deeprc.load(tmp_path / "model.deeprc", device="cpu").settings.split_options.test == "site=(removed)"
    assert deeprc.load(tmp_path / "model.deeprc", device="cpu").predict(cohort[:3])["probability"].notna().all()


@pytest.mark.parametrize(
    "recorded", [r"C:\Users\jane.doe\study\cohort.h5", r"\\server\jane.doe\cohort.h5", "C:cohort.h5"]
)
def test_no_folder_of_another_system_is_told(run: Run, recorded: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run.path, folder)
    settings = yaml.safe_load((folder / "config.yaml").read_text())
    (folder / "config.yaml").write_text(yaml.safe_dump({**settings, "cohort": recorded}, sort_keys=False))
    deeprc.pack(folder, tmp_path / "model.deeprc")
    contents = contents_of(tmp_path / "model.deeprc")
    assert b"jane.doe" not in b"".join(contents.values())
    assert yaml.safe_load(contents["config.yaml"])["cohort"] == "cohort.h5"
    assert "- Cohort: `cohort.h5`\n" in contents["MODEL_CARD.md"].decode()


def test_clones_of_a_run_without_donors_are_warned_of(
    run: Run, packed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert "each found in at least two\nrepertoires" in contents_of(packed)["MODEL_CARD.md"].decode()
    with caplog.at_level("WARNING"):
        deeprc.pack(run.path, tmp_path / "model.deeprc")
    assert "a stored clone may be of one donor with several samples" in caplog.text


@pytest.mark.parametrize("match", ["cluster 3", "any residue at position 7", "up to 2 substitutions"])
def test_clones_of_groups_are_warned_of(run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture, match: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run.path, folder)
    clones = pd.read_csv(folder / "clones.tsv", sep="\t")
    assert set(clones["match"]) <= {"exact", "one substitution"}
    with caplog.at_level("WARNING"):
        deeprc.pack(folder, tmp_path / "model.deeprc")
        clones.loc[clones.index[:1], "match"] = "expanded"
        clones.to_csv(folder / "clones.tsv", sep="\t", index=False)
        deeprc.pack(folder, tmp_path / "model.deeprc")
        assert "may be of one donor alone" not in caplog.text
        clones.loc[clones.index[:1], "match"] = match
        clones.to_csv(folder / "clones.tsv", sep="\t", index=False)
        deeprc.pack(folder, tmp_path / "model.deeprc")
    assert "may be of one donor alone, because they match in groups: 1" in caplog.text


def test_the_card_says_what_it_is(run: Run, packed: Path, tmp_path: Path) -> None:
    card = contents_of(packed)["MODEL_CARD.md"].decode()
    assert card.startswith("# status=ill: a model of deeprc\n\n- status=ill, binary: ill against well\n")
    assert "- Repertoires: train 72, validation 24, test 24\n" in card
    assert "- test: status=ill: AUC " in card
    (tmp_path / "notes.md").write_text("Blood of adults.\n")
    deeprc.pack(run.path, tmp_path / "noted.deeprc", notes=tmp_path / "notes.md")
    assert (
        "## Notes of the author\n\nBlood of adults.\n"
        in contents_of(tmp_path / "noted.deeprc")["MODEL_CARD.md"].decode()
    )


def test_the_same_contents_give_the_same_bytes_and_no_other_file_is_replaced(
    run: Run, packed: Path, tmp_path: Path
) -> None:
    contents = contents_of(packed)
    del contents["bundle.json"]
    bundle.write_bundle(tmp_path / "again.deeprc", contents)
    assert (tmp_path / "again.deeprc").read_bytes() == packed.read_bytes()
    deeprc.pack(run.path, tmp_path / "again.deeprc")
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "mine.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(InputError, match=r"; an estimator that was saved in Python has its own method `load`$"):
        deeprc.load(tmp_path / "mine.safetensors")
    with pytest.raises(InputError, match=r"mine\.txt: is neither a run directory nor an intact file"):
        deeprc.pack(run.path, tmp_path / "mine.txt")
    assert (tmp_path / "mine.txt").read_text() == "mine"
    with pytest.raises(InputError, match="expected a run directory"):
        deeprc.pack(packed, tmp_path / "other.deeprc")


def test_commands_take_it_in_the_place_of_a_run(
    run: Run, packed: Path, cohort: RepertoireDataset, tmp_path: Path
) -> None:
    container = str(cohort.container.path)
    for words in (
        ["pack", str(run.path), "-o", str(tmp_path / "m.deeprc")],
        ["predict", str(tmp_path / "m.deeprc"), container, "-o", str(tmp_path / "predictions.tsv")],
        ["evaluate", str(tmp_path / "m.deeprc"), container],
        ["attention", str(tmp_path / "m.deeprc"), container, "-o", str(tmp_path / "a.tsv"), "--top", "3"],
        ["report", str(tmp_path / "m.deeprc"), container, "-o", str(tmp_path / "report.html"), "--top", "5"],
    ):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert end.value.code == 0, words
    assert len(pd.read_csv(tmp_path / "predictions.tsv", sep="\t")) == 120
    with pytest.raises(InputError, match="is a run, whose report needs a CONTAINER"):
        deeprc.report(packed, output=tmp_path / "report.html")


def rewrite(path: Path, packed: Path, change: Callable[[zipfile.ZipFile, dict[str, bytes]], None]) -> Path:
    """Write another zip with the contents of a bundle after a change, which may write members of its own."""
    contents = contents_of(packed)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        change(archive, contents)
        for name, data in contents.items():
            archive.writestr(name, data)
    return path


def add(name: str, data: bytes = b"x", mode: int = 0) -> Callable[[zipfile.ZipFile, dict[str, bytes]], None]:
    def change(archive: zipfile.ZipFile, contents: dict[str, bytes]) -> None:
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        contents.pop(name, None)
        archive.writestr(info, data, zipfile.ZIP_DEFLATED)

    return change


def put(name: str, data: bytes | None) -> Callable[[zipfile.ZipFile, dict[str, bytes]], None]:
    def change(_: zipfile.ZipFile, contents: dict[str, bytes]) -> None:
        contents.pop(name)
        if data is not None:
            contents[name] = data

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (add("../evil.txt"), r"holds '\.\./evil\.txt'; a bundle has only bundle\.json, config"),
        (add("/etc/passwd"), "holds '/etc/passwd'; a bundle has only"),
        (add("model.py"), "holds 'model.py'; a bundle has only"),
        (
            add("x" * 65_500),
            r"\(expected a zip file that ends with a directory of at most 65,536 bytes",
        ),
        (add("checkpoint/state.pkl"), "a bundle has only"),
        (add("config.yaml", b"/etc/passwd", stat.S_IFLNK | 0o777), r"config\.yaml: is not a regular file"),
        (add("shift.json", bytes(65 << 20)), r"shift\.json: is too large; expected at most 67,108,864 bytes"),
        (add("bundle.json", bytes(1 << 17)), r"bundle\.json: is too large"),
        (put("metrics.json", b"{}"), r"metrics\.json: is damaged: its content is not what bundle\.json says"),
        (put("metrics.json", None), r"'metrics\.json': is missing, in the bundle or in its bundle\.json"),
        (put("model.safetensors", None), "'model.safetensors': is missing"),
        (put("bundle.json", None), r"has no bundle\.json"),
        (put("bundle.json", b"{"), "bundle.json"),
        (put("bundle.json", b"[]"), "bundle.json"),
        (put("bundle.json", b"\xff"), "is neither a run directory nor an intact file"),
        (put("bundle.json", b'{"format": "x", "version": 9, "deeprc": "1", "files": {}}'), "expected format"),
    ],
)
def test_a_file_of_a_stranger(
    packed: Path, tmp_path: Path, change: Callable[[zipfile.ZipFile, dict[str, bytes]], None], message: str
) -> None:
    path = rewrite(tmp_path / "bad.deeprc", packed, change)
    with pytest.raises(InputError, match=message) as error:
        deeprc.load(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)
    assert [each.name for each in tmp_path.iterdir()] == ["bad.deeprc"]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_is_there_twice(packed: Path, tmp_path: Path) -> None:
    def change(archive: zipfile.ZipFile, contents: dict[str, bytes]) -> None:
        archive.writestr("config.yaml", contents["config.yaml"])

    with pytest.raises(InputError, match=r"holds config\.yaml twice"):
        deeprc.load(rewrite(tmp_path / "bad.deeprc", packed, change))


def test_a_size_that_is_not_true(packed: Path, tmp_path: Path) -> None:
    """The directory of the zip says 5 bytes where there are many."""
    path = rewrite(tmp_path / "bad.deeprc", packed, add("shift.json", b"12345"))
    data = path.read_bytes()
    path.write_bytes(data.replace(b"12345", b"12340", 1))
    with pytest.raises(InputError, match=r"shift\.json: is damaged|nor an intact file"):
        deeprc.load(path)


def test_a_long_name_is_cut_in_the_message(packed: Path, tmp_path: Path) -> None:
    """The first member says that its name has 65,000 bytes."""
    data = bytearray(packed.read_bytes())
    data[26:28] = (65_000).to_bytes(2, "little")
    (tmp_path / "bad.deeprc").write_bytes(data)
    with pytest.raises(InputError, match=r"nor an intact file of .* \(File name in directory") as error:
        deeprc.load(tmp_path / "bad.deeprc")
    assert len(str(error.value)) < len(str(tmp_path)) + 300
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("keep", [0.2, 0.9, 0.999])
def test_a_file_that_was_cut_short(packed: Path, tmp_path: Path, keep: float) -> None:
    data = packed.read_bytes()
    (tmp_path / "cut.deeprc").write_bytes(data[: int(keep * len(data))])
    with pytest.raises(InputError, match=r"cut\.deeprc: is neither a run directory nor an intact file of"):
        deeprc.load(tmp_path / "cut.deeprc")


@pytest.mark.parametrize(
    ("name", "read"), [("clones.tsv", Run.clones), ("shift.json", Run.summaries)], ids=["clones", "shift"]
)
def test_errors_in_files_read_later_name_the_bundle(
    packed: Path, tmp_path: Path, name: str, read: Callable[[Run], object]
) -> None:
    contents = contents_of(packed)
    del contents["bundle.json"]
    contents[name] = b"{"
    bundle.write_bundle(tmp_path / "other.deeprc", contents)
    loaded = deeprc.load(tmp_path / "other.deeprc", device="cpu")
    with pytest.raises(InputError) as error:
        read(loaded)
    assert str(error.value).startswith(str(tmp_path / "other.deeprc" / name))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of temporary files, which is empty."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("shift.json", "is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("metrics.json", "is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("clones.tsv", "expected a column 'junction_aa', found '{'"),
    ],
)
def test_a_damaged_run_is_not_packed(run: Run, tmp_path: Path, name: str, message: str) -> None:
    folder = shutil.copytree(run.path, tmp_path / "run")
    (folder / name).write_text("{")
    with pytest.raises(InputError) as error:
        deeprc.pack(folder, tmp_path / "model.deeprc")
    assert str(error.value) == f"{folder / name}: {message}"
    assert [each.name for each in tmp_path.iterdir()] == ["run"]


def test_its_copy_lives_as_long_as_the_run(packed: Path, temporary: Path) -> None:
    loaded = deeprc.load(packed, device="cpu")
    other = replace(loaded, splits={})
    assert [loaded.path] == list(temporary.iterdir())
    del loaded
    gc.collect()
    assert other.path.is_dir()
    del other
    gc.collect()
    assert not list(temporary.iterdir())


def test_nothing_is_left_of_what_cannot_be_loaded(
    packed: Path, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = contents_of(packed)
    del contents["bundle.json"]
    bundle.write_bundle(tmp_path / "other.deeprc", contents | {"config.yaml": b"{}"})
    cut = tmp_path / "cut.deeprc"
    cut.write_bytes(packed.read_bytes()[:-100])
    for path in (tmp_path / "other.deeprc", cut):
        with pytest.raises(InputError, match=path.name):
            deeprc.load(path, device="cpu")
        assert not list(temporary.iterdir())
    monkeypatch.setattr(tempfile, "tempdir", "/dev/full/nowhere")
    with pytest.raises(InputError, match=r"model\.deeprc: cannot be unpacked into /dev/full/nowhere: Not a directory"):
        deeprc.load(packed, device="cpu")


def test_a_full_disk_is_no_damaged_file(packed: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = tempfile.mkdtemp

    def make_full(prefix: str) -> str:
        folder = make(prefix=prefix)
        (Path(folder) / "model.safetensors").symlink_to("/dev/full")
        return folder

    monkeypatch.setattr(tempfile, "mkdtemp", make_full)
    message = r"model\.deeprc: model\.safetensors: cannot be unpacked into .*: No space left on device"
    with pytest.raises(InputError, match=message):
        deeprc.load(packed, device="cpu")
    assert not list(temporary.iterdir())


def test_errors_inside_a_bundle_name_the_bundle(packed: Path, tmp_path: Path) -> None:
    contents = contents_of(packed)
    del contents["bundle.json"]
    contents["config.yaml"] = contents["config.yaml"].replace(b"n_kernels: 4", b"n_kernels: 5")
    bundle.write_bundle(tmp_path / "other.deeprc", contents)
    with pytest.raises(InputError, match=r"other\.deeprc/model\.safetensors: does not fit config\.yaml") as error:
        deeprc.load(tmp_path / "other.deeprc")
    assert str(error.value).startswith(str(tmp_path))


def test_a_report_names_the_packed_file(packed: Path, cohort: RepertoireDataset, tmp_path: Path) -> None:
    trained = deeprc.load(packed, device="cpu")
    assert trained.source == packed
    page = trained.report(cohort, output=tmp_path / "report.html", top=5).path.read_text()
    assert str(trained.path) not in page
    assert f"deeprc report &#39;{packed}" in page or f"deeprc report {packed} " in page
    assert "deeprc train cohort.h5" in page
    assert f"--output {packed.with_suffix('')}" in page
