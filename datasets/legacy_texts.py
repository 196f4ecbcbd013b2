"""The texts of a container of version 1, read by a process of their own.

Version 1 stored text of variable length, whose heaps the HDF5 library reads without checking them: a damaged one hangs
or crashes the process that reads it. So another process reads them, with limits on its time and memory. This module
imports nothing of deeprc but its errors, since its start is what the reading costs.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from deeprc.errors import InputError

__all__ = ["read_legacy_texts"]

_SECONDS = 60
_BYTES = 4 << 30
"""Address space of the process, beside what the file itself takes."""

# `python -c` looks for modules in the working directory first, which may hold a stranger's files.
_PROGRAM = (
    "import sys; sys.path[:] = [entry for entry in sys.path if entry];"
    "from deeprc.datasets.legacy_texts import _main; _main(sys.argv[1])"
)


def read_legacy_texts(path: Path) -> dict[str, Any]:
    """Return all texts of a container of version 1.

    Returns
    -------
    A dictionary from the place of a dataset to its texts, and from `place@name` to the text, or list of texts, of an
    attribute; the root's place is "".

    Raises
    ------
    InputError
        If they cannot be read.
    """
    folders = os.pathsep.join(entry for entry in sys.path if os.path.isabs(entry))
    environment = {**os.environ, "PYTHONPATH": folders, "OPENBLAS_NUM_THREADS": "1"}  # threads take address space
    command = [sys.executable, "-c", _PROGRAM, str(path)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_SECONDS, env=environment, check=False)
        if done.returncode == 0:
            texts: dict[str, Any] = json.loads(done.stdout)
            return texts
    except subprocess.TimeoutExpired:
        pass
    raise InputError(f"{path}: the container is damaged: the texts of its version 1 cannot be read")


def _main(path: str) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # Windows; or a lower limit is set already
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_BYTES + Path(path).stat().st_size,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    texts: dict[str, Any] = {}
    with h5py.File(path, "r") as file:
        places = {"": file, "metadata": file["metadata"]}
        places |= {name: thing for name, thing in file.items() if isinstance(thing, h5py.Dataset)}
        places |= {f"metadata/{name}": thing for name, thing in file["metadata"].items()}
        for place, thing in places.items():
            for name in thing.attrs:
                value = thing.attrs[name]
                if isinstance(value, str):
                    texts[f"{place}@{name}"] = value
                elif isinstance(value, np.ndarray) and value.dtype.kind == "O":
                    texts[f"{place}@{name}"] = [str(each) for each in value]
            if isinstance(thing, h5py.Dataset) and h5py.check_string_dtype(thing.dtype) is not None:
                texts[place] = thing.asstr()[:].tolist()
    json.dump(texts, sys.stdout)
