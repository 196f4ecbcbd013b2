"""Figures as files, and as elements of a page."""

import importlib.util
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from deeprc.drawing import INK, check_figure_path, save_figure
from deeprc.errors import InputError
from deeprc.interpretation import figures
from deeprc.interpretation.figures import render_svg
from deeprc.interpretation.figures.inline import _apply_page_theme, _make_id_prefix

pytestmark = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is missing")


def predictions() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    label = np.arange(40) % 2
    split = np.where(np.arange(40) < 20, "train", "test")
    return pd.DataFrame({"split": split, "target": "t", "label": label, "probability": rng.random(40)})


def history() -> pd.DataFrame:
    return pd.DataFrame({"update": [1, 2], "train_loss": [2.0, 1.0], "validation_loss": [2.0, 1.5]})


def curves() -> pd.DataFrame:
    return pd.DataFrame({"repertoire_id": ["a", "a", "b", "b"], "share": [0.1, 1.0] * 2, "attention": [0.5, 1.0] * 2})


def heads() -> pd.DataFrame:
    return pd.DataFrame({"repertoire_id": ["a", "b"], "head": 1, "n_sequences": 100, "metastable_size": [5, 50]})


def genes() -> pd.DataFrame:
    return pd.DataFrame({"field": "v_call", "name": ["V1", "V2 <&>"], "all": [0.5, 0.5], "attended": [0.2, 0.8]})


def motif() -> Any:
    return SimpleNamespace(pattern="L[DE]", information=np.eye(20)[[9, 2]])


FIGURES: dict[str, Callable[[], Any]] = {
    "roc": lambda: figures.draw_roc_figure(predictions()),
    "precision-recall": lambda: figures.draw_precision_recall_figure(predictions()),
    "calibration": lambda: figures.draw_calibration_figure(predictions()),
    "regression": lambda: figures.draw_regression_figure(predictions().assign(prediction=lambda table: table["label"])),
    "history": lambda: figures.draw_history_figure(history()),
    "metastable": lambda: figures.draw_metastable_figure(heads(), {"a": "A $x$", "b": "_B"}),
    "attention": lambda: figures.draw_attention_figure(curves(), {"a": "A", "b": "B"}),
    "genes": lambda: figures.draw_gene_figure(genes()),
    "logos": lambda: figures.draw_logos_figure([motif(), motif()]),
    "kernels": lambda: figures.draw_kernels_figure([[0.5, -0.25, 0.1]]),
    "sequences": lambda: figures.draw_sequence_figure(["CASF"], [[0.1, -0.2, 0.3, 0]]),
}
if importlib.util.find_spec("logomaker") is None:
    del FIGURES["logos"]


@pytest.fixture(scope="module", params=FIGURES)
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The same figure, drawn twice, under two names: but for these, the texts are equal."""
    first, second = (
        render_svg(FIGURES[request.param](), name=name, description="Says.") for name in ("one", "Two & more")
    )
    renamed = second.replace(_make_id_prefix("Two & more"), _make_id_prefix("one"))
    assert first == renamed.replace("Two &amp; more</title>", "one</title>")
    return first, second


def ids_of(text: str) -> list[str]:
    return [element.attrib["id"] for element in ElementTree.fromstring(text).iter() if "id" in element.attrib]


def test_two_figures_share_no_id_and_every_reference_is_met(pair: tuple[str, str]) -> None:
    both = [*ids_of(pair[0]), *ids_of(pair[1])]
    assert len(both) == len(set(both))
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", each) for each in both)
    for text in pair:
        own = set(ids_of(text))
        references = [*re.findall(r"url\(#([^)]+)\)", text), *re.findall(r'href="#([^"]+)"', text)]
        assert set(references) <= own
        assert text.count("url(") + text.count("href=") == len(references)
        assert len(own) == len(set(references)) + 2  # the others are title and description


def test_an_svg_figure_has_only_elements_that_a_page_may_hold(pair: tuple[str, str]) -> None:
    first, second = pair
    for unwanted in ("<?xml", "<!DOCTYPE", "<metadata", "<style", "<!--", "xlink", "dc:date", "DejaVu", "<image"):
        assert unwanted not in first
    assert first.startswith("<svg ")
    root = ElementTree.fromstring(second)
    assert root.attrib["role"] == "img"
    title, description = root[0], root[1]
    assert root.attrib["aria-labelledby"].split() == [title.attrib["id"], description.attrib["id"]]
    assert (title.text, description.text) == ("Two & more", "Says.")
    assert "width" not in root.attrib
    assert "height" not in root.attrib
    width = float(root.attrib["viewBox"].split()[2])
    assert f"max-width: {width / 72:.2f}in" in root.attrib["style"]


def test_an_svg_figure_takes_the_colours_of_its_page(pair: tuple[str, str]) -> None:
    text = pair[0].lower()
    assert INK not in text
    assert "currentcolor" in text
    fills = re.findall(r'style="[^"]*fill: (#[0-9a-f]{6}|[a-z]+)', text)
    assert {"#000000", "#ffffff", "black", "white"}.isdisjoint(fills)
    root = ElementTree.fromstring(pair[0])
    words = [element for element in root.iter() if element.tag.endswith("text")]
    assert words
    for word in words:
        assert "currentColor" in word.attrib["style"] or "--figure-muted" in word.attrib["style"]
        assert "font-size" in word.attrib["style"]


def test_fonts_as_older_versions_write_them() -> None:
    style = f"font: italic 700 9.5px 'DejaVu Sans', Arial; text-anchor: middle; fill: {INK}"
    assert _apply_page_theme(style) == "font-size: 9.5px; font-weight: 700; text-anchor: middle; fill: currentColor"
    assert _apply_page_theme("font: 9px 'DejaVu Sans Mono', monospace") == "font-size: 9px; font-family: monospace"


def test_text_stays_text_as_it_was_given() -> None:
    text = render_svg(FIGURES["metastable"](), name="m", description="d")
    assert ">A $x$</text>" in text
    assert ">_B</text>" in text
    assert ">V2 &lt;&amp;&gt;</text>" in render_svg(FIGURES["genes"](), name="g", description="d")


def test_names_that_differ_only_in_odd_letters_keep_apart() -> None:
    figure = FIGURES["kernels"]()
    names = ["a b", "a-b", "a/b", "δ", "β", "1", "-1", ""]
    ids = [set(ids_of(render_svg(figure, name=name, description="d"))) for name in names]
    assert len(set().union(*ids)) == sum(map(len, ids))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF"), ("PNG", b"\x89PNG")]
)
def test_files_are_the_same_each_time(tmp_path: Path, ending: str, magic: bytes) -> None:
    for name in ("a", "b", "a"):  # a is replaced
        save_figure(FIGURES["roc"](), tmp_path / f"{name}.{ending}")
    first, second = ((tmp_path / f"{name}.{ending}").read_bytes() for name in ("a", "b"))
    assert first == second
    assert first.startswith(magic)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_png_has_300_pixels_an_inch_and_stands_on_white(tmp_path: Path) -> None:
    from matplotlib.image import imread

    save_figure(FIGURES["roc"](), tmp_path / "a.png")
    save_figure(FIGURES["roc"](), tmp_path / "b.png", dpi=100)
    large, small = imread(tmp_path / "a.png"), imread(tmp_path / "b.png")
    assert large.shape[1] == pytest.approx(3 * small.shape[1], rel=0.02)
    assert (large[0, 0] == 1).all()


def test_a_file_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.gif: expected a name that ends in \.png, \.svg or \.pdf$"):
        save_figure(FIGURES["roc"](), tmp_path / "a.gif")
    with pytest.raises(InputError, match=r"the folder .*none does not exist"):
        check_figure_path(tmp_path / "none" / "a.png")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        check_figure_path(tmp_path / "folder.png")
    (tmp_path / "thesis.pdf").write_text("words")
    with pytest.raises(InputError, match="exists and is not a PDF file; choose another `output`"):
        check_figure_path(tmp_path / "thesis.pdf")
    assert (tmp_path / "thesis.pdf").read_text() == "words"
