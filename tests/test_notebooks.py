"""The notebooks in docs/ run, and their stored outputs name no place of their making."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def load(path: Path) -> Any:
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def kinds_of(cell: Any) -> list[list[str]]:
    """Return of which kinds the outputs of a cell are."""
    return [sorted(output.get("data", ["stream"])) for output in cell.get("outputs", [])]


def headings_of(cell: Any) -> list[str]:
    """Return the headings of the tables among the outputs of a cell, without numbers."""
    html = ["".join(output.get("data", {}).get("text/html", "")) for output in cell.get("outputs", [])]
    found = [text for each in html if "<iframe" not in each for text in re.findall("<th[^>]*>([^<]*)</th>", each)]
    return [re.sub(r"[\d.,]+", "#", text) for text in found]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs(path: Path) -> None:
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not any(output["output_type"] == "error" for output in outputs)
    told = "".join(line for output in outputs if output.get("name") == "stderr" for line in output["text"])
    if path.stem == "a-real-cohort":
        assert "They may be copies, or samples of one donor" in told  # what is wrong with that cohort
    else:
        assert told == ""
    assert "Warning" not in told  # of Python
    assert sum("text/html" in output.get("data", {}) for output in outputs) >= 3
    assert not re.search(r"/(tmp|home|root|work|Users)/", path.read_text())


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    if path.stem == "a-real-cohort" and "DEEPRC_REAL_DATA" not in os.environ:
        pytest.skip("DEEPRC_REAL_DATA is not set")
    executed = load(FOLDER / "run.py").execute(path, tmp_path)
    stored = json.loads(path.read_text())
    assert [kinds_of(cell) for cell in executed.cells] == [kinds_of(cell) for cell in stored["cells"]]
    assert [headings_of(cell) for cell in executed.cells] == [headings_of(cell) for cell in stored["cells"]]


def test_a_notebook_as_a_page() -> None:
    outputs = [
        {"output_type": "stream", "text": ["one\n", "two"]},
        {"output_type": "display_data", "data": {"text/html": ["<b>", "x</b>"], "text/plain": "X"}},
        {"output_type": "display_data", "data": {"image/png": "AAAA", "text/plain": "<Figure>"}},
        {"output_type": "execute_result", "data": {"text/plain": "7"}},
    ]
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "text"]},
        {"cell_type": "code", "source": "f(1)", "outputs": outputs},
    ]
    page = load(FOLDER.parent / "notebook_pages.py").notebook_to_markdown(json.dumps({"cells": cells}))
    fence = "`" * 12
    assert page.split("\n\n") == [
        "# Title\ntext",
        f"{fence}python\nf(1)\n{fence}",
        f"{fence}text\none\ntwo\n{fence}",
        f'{fence}{{raw}} html\n<div class="notebook-output"><b>x</b></div>\n{fence}',
        f'{fence}{{raw}} html\n<img alt="&lt;Figure&gt;" src="data:image/png;base64,AAAA"/>\n{fence}',
        f"{fence}text\n7\n{fence}\n",
    ]
