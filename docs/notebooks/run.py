"""Run the notebooks and store their outputs: `python docs/notebooks/run.py` (needs nbclient and ipykernel)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbclient
import nbformat

HERE = Path(__file__).parent


def execute(source: Path, folder: Path) -> nbformat.NotebookNode:
    """Return a notebook with the outputs of its cells, which run in a folder; the folder is not named in them."""
    notebook = nbformat.read(source, as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(notebook, timeout=900, resources=resources, record_timing=False).execute()
    text = nbformat.writes(notebook).replace(f"{folder.resolve()}/", "")
    return nbformat.reads(text, as_version=4)


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:] or sorted(HERE.glob("*.ipynb"))):
        with tempfile.TemporaryDirectory() as place:
            nbformat.write(execute(path, Path(place)), path)
