"""From repertoire files and a metadata sheet to a container: `deeprc preprocess` as a function."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from operator import index
from pathlib import Path

from deeprc.datasets.cleaning import Cleaning, Merge
from deeprc.datasets.container import is_container
from deeprc.datasets.container_check import MAX_LENGTH
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.genes import LOCI
from deeprc.datasets.matching import find_files
from deeprc.datasets.metadata import Metadata, read_metadata
from deeprc.datasets.plan import Plan, describe_missing, listed, plan_readings
from deeprc.datasets.readers import choose_reader
from deeprc.datasets.reading import Reading, note_failure, read_file, read_files
from deeprc.datasets.report import PreprocessingReport, RepertoireReport
from deeprc.errors import InputError, group_errors
from deeprc.files import check_place, name_write_errors

__all__ = ["preprocess"]

_LOGGER = logging.getLogger(__name__)

Progress = Callable[[int, int], None]


def preprocess(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    metadata: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    reader_format: str = "auto",
    id_column: str | None = None,
    sequence_column: str | None = None,
    count_column: str | None = None,
    v_column: str | None = None,
    j_column: str | None = None,
    split_by: str | None = None,
    locus: str | None = None,
    merge: Merge = "genes",
    allow_missing: bool = False,
    skip_bad_files: bool = False,
    jobs: int | None = 1,
    min_length: int = 1,
    max_length: int = 50,
    progress: Progress | None = None,
) -> PreprocessingReport:
    """Read a cohort's repertoire files and write them to one container.

    Productive, in-frame sequences made of the 20 amino acids are kept; rows with the same junction and genes are
    merged. Repertoires are in the order of the metadata sheet, those of one table together. The container appears when
    it is complete, or not at all; it does not depend on `jobs`. After an interrupt, or an error when much was done, a
    second call with the same arguments goes on with the first file that was not done.

    Parameters
    ----------
    sources
        Repertoire files and folders of them, packed or plain.
    metadata
        The metadata sheet: TSV, CSV or XLSX.
    output
        The container to write; an existing file is replaced at the end.
    reader_format
        One of `deeprc.datasets.readers.FORMATS`; "auto" recognises each file by its header.
    id_column
        The sheet's column of repertoire ids; None finds it.
    sequence_column, count_column, v_column, j_column
        The columns of any other table: sequences, counts, names of V and J genes.
    split_by
        The files' column that names the repertoire of each row. None: a file that belongs to no row of the sheet is
        split by the column that its format has for this. "none": each file is one repertoire.
    locus
        The chain to keep, an AIRR locus (TRB, IGH, ...); None: the only one there is, a mixture is an error.
    merge
        Which rows are one sequence; see `deeprc.datasets.cleaning.Merge`.
    allow_missing
        Leave out rows without a file, files without a row and repertoires without a kept sequence, with a
        warning; otherwise they are an error.
    skip_bad_files
        Leave out files that cannot be read, with a warning.
    jobs
        Worker processes, None: one per core, fewer where there is little to read. More than 1 needs an importable main
        module, as always with `multiprocessing`.
    min_length, max_length
        Shortest and longest sequence kept, in residues.
    progress
        Called after each file with the number done and the number of all.

    Raises
    ------
    InputError
        If anything that was given cannot be used; the message names it, and no container is written.
    """
    output, sheet_path = Path(output), Path(metadata)
    jobs = None if jobs is None else index(jobs)
    min_length, max_length = index(min_length), index(max_length)
    _check_options(output, jobs, min_length, max_length, locus)
    columns = {"count_column": count_column, "v_column": v_column, "j_column": j_column}
    reader = choose_reader(reader_format, sequence_column=sequence_column, **columns)
    found = find_files(sources, exclude=sheet_path)
    sheet = read_metadata(sheet_path, id_column=id_column, files=found.tables)
    files = found.with_named(sheet.files)
    cleaning = Cleaning(min_length, max_length, locus, merge)
    plan = plan_readings(sheet, files, reader, cleaning, split_by=split_by, skip_bad_files=skip_bad_files)
    _report_unmatched(sheet, plan, allow_missing)
    writer = ContainerWriter(output, resumable=True)
    with _say_what_is_kept(writer), name_write_errors(output), writer:
        done = _write_repertoires(writer, plan.readings, jobs, allow_missing, skip_bad_files, progress)
        kept = [each for each in done.repertoires if each.kept]
        if done.skipped and not done.repertoires:
            raise InputError("no file can be read: " + "\n".join(group_errors(done.skipped)))
        if not kept:
            raise InputError(f"{sheet_path}: none of its repertoires has a sequence that is kept")
        report = PreprocessingReport(
            tuple(done.repertoires),
            rows_without_file=plan.missing,
            files_without_row=tuple(file.name for file in plan.left),
            repertoires_without_row={file.name: names for file, names in plan.unknown.items()},
            skipped_files={**plan.skipped, **done.skipped},
            cleaning=cleaning,
        )
        row_of = {name: row for row, name in enumerate(sheet.repertoire_ids)}
        writer.finish(
            sheet.table.iloc[[row_of[each.repertoire_id] for each in kept]].reset_index(drop=True),
            source=f"{len(kept)} repertoires and the metadata sheet {sheet_path.name}",
            preprocessing=report.to_dict(),
        )
    return report


@contextmanager
def _say_what_is_kept(writer: ContainerWriter) -> Generator[None, None, None]:
    try:
        yield
    except BaseException:
        if writer.checkpoints and writer.kept_in.exists():
            message = "%s: not written; %s keeps what was read, for a call that reads the same; it may be deleted"
            _LOGGER.warning(message, writer.path, writer.kept_in)
        raise


def _check_options(output: Path, jobs: int | None, min_length: int, max_length: int, locus: str | None) -> None:
    check_place(output)
    if output.exists() and not is_container(output):
        raise InputError(f"{output}: exists and is no container; choose another `output`")
    if jobs is not None and jobs < 1:
        raise InputError(f"`jobs`: expected at least 1, found {jobs}")
    if not 1 <= min_length <= max_length <= MAX_LENGTH:
        raise InputError(
            f"expected 1 <= `min_length` <= `max_length` <= {MAX_LENGTH}, found {min_length} and {max_length}"
        )
    if locus is not None and locus not in LOCI:
        raise InputError(f"`locus`: expected one of {', '.join(LOCI)}, found {locus!r}")


def _report_unmatched(sheet: Metadata, plan: Plan, allow_missing: bool) -> None:
    """Raise or log that rows have no file and files have no row."""
    parts = []
    if plan.missing:
        parts.append(f"{sheet.path}: {describe_missing(sheet, plan.missing)}")
    if plan.left:
        names = [file.name for file in plan.left]
        parts.append(f"no row of {sheet.path} for {listed(names, 'file', 'files')}")
    for file, unknown in plan.unknown.items():
        parts.append(f"no row of {sheet.path} for {listed(unknown, 'repertoire', 'repertoires')} of {file.name}")
    if len(plan.missing) == len(sheet.repertoire_ids):
        raise InputError("; ".join(parts) + ". Not one file matches: is `id_column` right?")
    if plan.skipped and not plan.readings:
        raise InputError("no file can be read: " + "\n".join(group_errors(plan.skipped)))
    if parts and not allow_missing:
        raise InputError("; ".join(parts) + ". Give what is missing, or leave these out with `allow_missing`")
    for part in parts:
        _LOGGER.warning("%s: left out", part)
    for message in group_errors(plan.skipped):
        _LOGGER.warning("%s: skipped", message)


@dataclass
class _Done:
    repertoires: list[RepertoireReport] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)


def _write_repertoires(
    writer: ContainerWriter,
    readings: Sequence[Reading],
    jobs: int | None,
    allow_missing: bool,
    skip_bad_files: bool,
    progress: Progress | None,
) -> _Done:
    done = _Done()
    start = _resume(writer, readings, done, allow_missing, skip_bad_files)
    loci: dict[str, str] = {}
    for each in done.repertoires:
        _check_loci(loci, each)
    if progress is not None and start:
        progress(start, len(readings))
    with closing(read_files(readings[start:], jobs, read_file)) as results:
        for number, (reading, result) in enumerate(zip(readings[start:], results, strict=True), start=start + 1):
            if result.error is not None:
                if not skip_bad_files:
                    raise InputError(result.error)
                if note_failure(done.skipped, reading, result.error):
                    _LOGGER.warning("%s: skipped", result.error)
            reports = []
            for repertoire_id, cleaned in result.repertoires:
                report = RepertoireReport.of(
                    repertoire_id, reading.path.name, reading.format, cleaned, reading.cleaning.locus
                )
                _check_loci(loci, report)
                reports.append(report)
                if report.kept:
                    writer.append(repertoire_id, cleaned.sequences)
                else:
                    _report_empty(reading.path, report, allow_missing)
            done.repertoires += reports
            note = {"reading": result.key, "reports": [each.to_dict() for each in reports], "error": result.error}
            writer.checkpoint(note)
            if progress is not None:
                progress(number, len(readings))
    return done


def _resume(
    writer: ContainerWriter, readings: Sequence[Reading], done: _Done, allow_missing: bool, skip_bad_files: bool
) -> int:
    """Take over what an interrupted call did of the same files in the same way; return how many readings that are."""
    start = 0
    for reading, note in zip(readings, writer.checkpoints, strict=False):
        if note.get("reading") != reading.key():
            break
        reports = [RepertoireReport.from_dict(each) for each in note["reports"]]
        if not allow_missing and any(not each.kept for each in reports):
            break
        if note["error"] is not None:
            if not skip_bad_files:
                break
            if note_failure(done.skipped, reading, note["error"]):
                _LOGGER.warning("%s: skipped", note["error"])
        done.repertoires += reports
        start += 1
    writer.rewind(start)
    if start:
        _LOGGER.warning("%s: goes on after %d of %d readings, done before", writer.path, start, len(readings))
    return start


def _check_loci(seen: dict[str, str], report: RepertoireReport) -> None:
    """Refuse a mixture of chains: which one is meant, only the user knows."""
    if report.locus is not None:
        return
    for locus in report.loci:
        if locus:
            seen.setdefault(locus, report.repertoire_id)
    if len(seen) > 1:
        found = " and ".join(f"{locus} (repertoire {name!r})" for locus, name in sorted(seen.items()))
        raise InputError(f"the files hold several chains, {found}; choose one with `locus`")


def _report_empty(path: Path, report: RepertoireReport, allow_missing: bool) -> None:
    reasons = ", ".join(f"{reason} {n}" for reason, n in report.dropped.items() if n)
    message = f"{path}: none of the {report.rows_read} rows of repertoire {report.repertoire_id!r} is kept"
    message += f" ({reasons})" if reasons else ""
    if report.rows_read and report.dropped.get("empty") == report.rows_read:
        message += "; are the sequences in another column? Name it with `sequence_column`"
    if not allow_missing:
        raise InputError(f"{message}. `allow_missing` leaves such repertoires out")
    _LOGGER.warning("%s: left out", message)
