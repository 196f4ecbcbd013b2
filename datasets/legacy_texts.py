"""Read text of variable length, by a separate process: that of containers of version 1, and of the original DeepRC.

The HDF5 library reads the heaps of such text without checking them: a damaged one hangs or crashes the process that
reads it. So another process reads them, with limits on its time and memory. This module imports nothing of deeprc
except its errors, because the start of the process takes most of the time.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from deeprc.errors import InputError

__all__ = ["read_texts_in_subprocess"]

_MAX_SECONDS = 60
_MAX_TEXT_BYTES = 64 << 20
"""Largest size of all texts in bytes, beside four times the file's size: a text may be stored once and named many
times."""

_TEXTS_PER_READ = 256
"""The number of texts of a dataset that are read at a time."""

_MAX_ERROR_BYTES = 4000
"""Number of bytes of the end of the error output of the process that are read."""

_MAX_MEMORY = 4 << 30
"""Address space of the process in bytes, beside the size of the file."""

# `python -c` looks for modules in the working directory first, which may hold a stranger's files.
_PROGRAM = (
    "import sys; sys.path[:] = [entry for entry in sys.path if entry];"
    "from deeprc.datasets.legacy_texts import _main; _main(*sys.argv[1:])"
)


def read_texts_in_subprocess(
    path: Path, locations: Mapping[str, tuple[int, int] | None] | None = None
) -> dict[str, Any]:
    """Return texts of an HDF5 file, read by a separate process.

    Parameters
    ----------
    path
        Path of the file.
    locations
        Range of rows to read of each dataset, by its location in the file; None for all its rows. If there are no
        locations, all texts of a container of version 1 are read.

    Returns
    -------
    A dictionary from the location of a dataset to its texts. For a container of version 1 also from `location@name` to
    the text, or list of texts, of an attribute; the root's location is "".

    Raises
    ------
    InputError
        If they cannot be read.
    """
    name = "its texts" if locations is not None else "the texts of its version 1"
    folders = os.pathsep.join(entry for entry in sys.path if os.path.isabs(entry))
    environment = {**os.environ, "PYTHONPATH": folders, "OPENBLAS_NUM_THREADS": "1"}  # threads take address space
    with tempfile.TemporaryFile() as error_output:
        command = [sys.executable, "-c", _PROGRAM, str(path), json.dumps(locations)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=error_output, env=environment) as process:
            written = _read_output(process, path, name)
        if process.returncode:
            error_output.seek(max(error_output.tell() - _MAX_ERROR_BYTES, 0))
            lines = error_output.read().decode(errors="replace").split("\n")[:-1]
            reason = lines[-1] if lines else "it crashes the HDF5 library"
            kind = "container" if locations is None else "file"
            raise InputError(f"{path}: the {kind} is damaged: {name} cannot be read: {reason[:200]}")
    texts: dict[str, Any] = {}
    for line in written.splitlines():
        location, value = json.loads(line)
        if isinstance(value, str):
            texts[location] = value
        else:
            texts.setdefault(location, []).extend(value)
    return texts


def _read_output(process: subprocess.Popen[bytes], path: Path, name: str) -> bytearray:
    """Return the output of a process until its end, if that comes within the limits; otherwise end the process."""
    assert process.stdout is not None
    limit = _MAX_TEXT_BYTES + 4 * path.stat().st_size
    written, expired = bytearray(), threading.Event()

    def expire() -> None:
        expired.set()
        process.kill()

    timer = threading.Timer(_MAX_SECONDS, expire)
    timer.start()
    try:
        while block := os.read(process.stdout.fileno(), 1 << 20):
            written += block
            if len(written) > limit:
                raise InputError(f"{path}: {name} have more than {limit >> 20:,} MB")
    except BaseException:
        process.kill()
        raise
    finally:
        timer.cancel()
    if expired.is_set():
        raise InputError(f"{path}: reading {name} took more than {_MAX_SECONDS} s")
    return written


def _main(path: str, locations: str) -> None:
    """Write texts of a container as JSON lines; this runs in a process of its own."""
    with contextlib.suppress(ImportError, ValueError, OSError):  # Windows; or a lower limit is set already
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY + Path(path).stat().st_size,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with h5py.File(path, "r") as file:
        chosen = json.loads(locations)
        if chosen is None:
            _write_version_1(file)
            return
        for location, rows in chosen.items():
            _write_dataset(location, file[location], rows)


def _write_version_1(file: h5py.File) -> None:
    """Write all texts of a container of version 1."""
    locations = {"": file, "metadata": file["metadata"]}
    locations |= {name: member for name, member in file.items() if isinstance(member, h5py.Dataset)}
    locations |= {f"metadata/{name}": member for name, member in file["metadata"].items()}
    for location, member in locations.items():
        for name in member.attrs:
            value = member.attrs[name]
            if isinstance(value, str):
                _write_texts(f"{location}@{name}", value)
            elif isinstance(value, np.ndarray) and value.dtype.kind == "O":
                _write_texts(f"{location}@{name}", [str(text) for text in value])
        if isinstance(member, h5py.Dataset) and h5py.check_string_dtype(member.dtype) is not None:
            _write_dataset(location, member, None)


def _write_dataset(location: str, dataset: h5py.Dataset, rows: list[int] | None) -> None:
    """Write the texts of a dataset of at most one dimension."""
    if dataset.shape == ():
        _write_texts(location, [dataset.asstr()[()]])
        return
    (n,) = dataset.shape
    first, end = rows or (0, n)
    _write_texts(location, [])
    for start in range(first, end, _TEXTS_PER_READ):
        _write_texts(location, dataset.asstr()[start : min(start + _TEXTS_PER_READ, end)].tolist())


def _write_texts(location: str, texts: str | list[str]) -> None:
    """Write texts at once, so that this process needs little memory if one text occurs many times."""
    sys.stdout.write(json.dumps([location, texts]) + "\n")
