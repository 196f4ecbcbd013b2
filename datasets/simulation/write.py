"""Write simulated cohorts to the disk: as a container, or as AIRR files and a sheet."""

from __future__ import annotations

import gzip
import io
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deeprc.available_memory import count_available_bytes
from deeprc.datasets.airr_tables import add_required_fields, format_tsv
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.genes import infer_locus
from deeprc.datasets.sequences import Sequences
from deeprc.datasets.simulation.cohort import Cohort
from deeprc.datasets.simulation.implanter import Implants
from deeprc.errors import InputError
from deeprc.files import check_new_folder, name_write_errors
from deeprc.hidden_folders import temporary_folder
from deeprc.progress import CountFunction, track

__all__ = ["check_airr_folder", "write_airr", "write_container"]

_BYTES_IN_MEMORY = 100  # of a simulated sequence, about
_BYTES_IN_CONTAINER = 25  # at least: count, offset, and a dozen residues
_BYTES_IN_TABLE = 5  # at least, compressed
_GIGABYTE = 1e9
_N_DRAWN = 1000  # number of repertoires whose sizes tell how large a cohort is


def write_container(
    cohort: Cohort,
    path: str | os.PathLike[str],
    *,
    recipe: Mapping[str, Any] | None = None,
    progress: CountFunction | None = None,
) -> None:
    """Write a cohort to a container; `/witness` holds the truth, and the attribute `simulation` the recipe.

    Raises
    ------
    InputError
        If the container cannot be written, or the cohort is too large for the disk or the memory.
    """
    _check_room(cohort, Path(path), _BYTES_IN_CONTAINER)
    cohort.draw(0, np.arange(1))  # an error of the simulation is raised here, not as one of the container
    with name_write_errors(Path(path)), ContainerWriter(path) as writer:
        for index in track(range(cohort.n_repertoires), "simulating repertoires", cohort.n_repertoires):
            writer.append(cohort.repertoire_id(index), cohort.draw(index)[0])
            if progress is not None:
                progress(index + 1, cohort.n_repertoires)
        writer.finish(cohort.metadata(), source=f"simulated: {cohort.name}", simulation=recipe)


def write_airr(cohort: Cohort, folder: Path, *, progress: CountFunction | None = None) -> Path:
    """Write a cohort as AIRR Rearrangement files into a new or empty folder; after an error, nothing is left there.

    `repertoires/<repertoire_id>.tsv.gz` have the columns of AIRR and, of witnesses, the truth: `signal`, its name,
    `motif`, the pattern, and `motif_start`, from 1 in the junction.

    Returns
    -------
    The path of the sheet, `metadata.tsv`.

    Raises
    ------
    InputError
        If the folder is not empty or cannot be written, or if the cohort is too large for the disk or the memory.
    """
    check_airr_folder(folder)
    _check_room(cohort, folder, _BYTES_IN_TABLE)
    cohort.draw(0, np.arange(1))  # an error of the simulation is raised here, not as one of the folder
    real_folder = Path(os.path.realpath(folder))
    with name_write_errors(folder), ExitStack() as stack:
        real_folder.parent.mkdir(parents=True, exist_ok=True)
        hidden = stack.enter_context(temporary_folder(real_folder))
        unfinished = hidden / "cohort"  # made inside, because the hidden folders are for their owner only
        (unfinished / "repertoires").mkdir(parents=True)
        for index in track(range(cohort.n_repertoires), "writing repertoire files", cohort.n_repertoires):
            name = cohort.repertoire_id(index)
            table = _make_airr_table(cohort, name, *cohort.draw(index))
            packed = io.BytesIO()
            with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=4, mtime=0) as file:
                file.write(format_tsv(table, has_header=True))
            (unfinished / "repertoires" / f"{name}.tsv.gz").write_bytes(packed.getvalue())
            if progress is not None:
                progress(index + 1, cohort.n_repertoires)
        rows = cohort.metadata()
        rows.insert(1, "filename", [f"{name}.tsv.gz" for name in rows["repertoire_id"]])
        text = rows.to_csv(sep="\t", index=False, lineterminator="\n")
        (unfinished / "metadata.tsv").write_text(text, encoding="utf-8")
        if real_folder.exists():
            real_folder.rmdir()  # it is empty
        unfinished.rename(real_folder)
    return folder / "metadata.tsv"


def _check_room(cohort: Cohort, path: Path, bytes_per_sequence: int) -> None:
    """Refuse a cohort that is too large for the disk of a path, or has a repertoire too large for the memory."""
    sizes = [cohort.size(index) for index in range(min(cohort.n_repertoires, _N_DRAWN))]
    total, largest = round(sum(sizes) / len(sizes) * cohort.n_repertoires), max(sizes)
    folder = next(parent for parent in Path(os.path.realpath(path)).parents if parent.exists())
    on_disk, free = total * bytes_per_sequence / _GIGABYTE, shutil.disk_usage(folder).free / _GIGABYTE
    if on_disk > free:
        needed = f"about {total:,} sequences need at least {on_disk:,.1f} GB on the disk, which has {free:,.1f} GB free"
        raise InputError(f"{path}: the cohort is too large: {needed}; expected a smaller n_repertoires or sizes.mean")
    in_memory, available = largest * _BYTES_IN_MEMORY / _GIGABYTE, (count_available_bytes() or np.inf) / _GIGABYTE
    if in_memory > available:
        needed = f"{largest:,} sequences need about {in_memory:,.1f} GB of memory; {available:,.1f} GB are free"
        raise InputError(f"{path}: a repertoire is too large: {needed}; expected a smaller sizes.mean")


def check_airr_folder(folder: Path) -> None:
    """Refuse a folder that is not empty, or cannot be made.

    Raises
    ------
    InputError
        If it exists and is not empty, or cannot be made or written to.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: exists and is not empty; expected a new folder")
    check_new_folder(folder)


def _make_airr_table(cohort: Cohort, name: str, table: Sequences, implants: Implants) -> pa.Table:
    """Return the sequences of one repertoire as a table with AIRR field names and the truth about witnesses."""
    n = len(table)
    columns = {"sequence_id": pa.array([f"{name}.{row + 1}" for row in range(n)]), "productive": pa.repeat("T", n)}
    for field, calls in table.genes.items():
        columns[field] = _decode_names(calls.codes, calls.vocabulary)
    if table.j_call is not None:
        columns["locus"] = _decode_names(table.j_call.codes, [infer_locus(gene) for gene in table.j_call.vocabulary])
    columns["junction_aa"] = pa.array(table.decode(), pa.string())
    columns["duplicate_count"] = pa.array(table.counts)
    witness = implants.signal > 0
    columns["signal"] = _decode_names(implants.signal, ["", *(signal.name for signal in cohort.signals)])
    columns["motif"] = _decode_names(implants.motif, cohort.patterns, known=witness)
    columns["motif_start"] = pa.array(implants.start + 1, mask=~witness)
    return add_required_fields(pa.table(columns))


def _decode_names(
    codes: NDArray[np.integer[Any]], names: Sequence[str], known: NDArray[np.bool_] | None = None
) -> pa.StringArray:
    """Return the name of each code, (n,); null where `known` is False."""
    indices = pa.array(codes.astype(np.int64), mask=None if known is None else ~known)
    return pa.DictionaryArray.from_arrays(indices, pa.array(list(names), pa.string())).dictionary_decode()
