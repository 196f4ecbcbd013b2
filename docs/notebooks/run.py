"""Run the notebooks and store their outputs: `python docs/notebooks/run.py [NOTEBOOK...]` (needs the extra `dev`).

A notebook runs in a folder of its own, in which the folders named by `DEEPRC_REAL_DATA` lie beside it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import nbclient
import nbformat

HERE = Path(__file__).parent


def execute(source: Path, folder: Path) -> nbformat.NotebookNode:
    """Return a notebook with the outputs of its cells, which run in a folder; the folder is not named in them."""
    notebook = nbformat.read(source, as_version=4)
    if data := os.environ.get("DEEPRC_REAL_DATA"):
        for part in Path(data).iterdir():
            (folder / part.name).symlink_to(part)
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(notebook, timeout=1800, resources=resources, record_timing=False).execute()
    for cell in notebook.cells:
        cell["outputs"] = [output for output in cell.get("outputs", []) if not _is_ended_bar(output)]
        if cell.cell_type != "code":
            del cell["outputs"]
    text = nbformat.writes(notebook).replace(f"{folder.resolve()}/", "")
    return nbformat.reads(text, as_version=4)


def _is_ended_bar(output: nbformat.NotebookNode) -> bool:
    """Return whether an output is the empty one that the bars of a computation leave."""
    return output.output_type == "display_data" and output.data.get("text/html") == ""


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:] or sorted(HERE.glob("*.ipynb"))):
        with tempfile.TemporaryDirectory() as place:
            nbformat.write(execute(path, Path(place)), path)
