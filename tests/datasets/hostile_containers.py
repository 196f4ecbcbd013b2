"""Containers as a hostile stranger would make them; run as a program, it opens many of them and notes what happened.

`python hostile_containers.py COHORT RUN FOLDER KIND FIRST LAST STEP ...` writes a line of JSON per case into
`FOLDER/results`, before the next case begins, so that a crash is the case after the last line.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

Change = Callable[[h5py.File], None]

_SEQUENCES = ("residues", "sequence_offsets", "counts", "v_call")
_ALL = (*_SEQUENCES, "repertoire_offsets", "repertoire_ids", "metadata/status", "metadata/age")
_TEXTS = ("format", "alphabet", "created_by", "source", "preprocessing", "simulation", "checksum")
_NUMBERS = (0, 1, 5, 19, 20, 21, 255, 256, 65_535, 2**31, 2**32 - 1, 2**62, 2**63 - 1, -1, -4, -(10**10), -(2**63))
_JSON = (
    "",
    "null",
    "[]",
    "3",
    "{}",
    '{"rows_read": 1}',
    '{"rows_read": "x", "dropped": 3}',
    "[" * 100_000,
    "1" * 5_000,
)

_PREPROCESSING = {
    "rows_read": 3,
    "kept": 2,
    "dropped": {"no_sequence": 1},
    "counts_from": {"(one)": 2},
    "counts_rounded": 0,
    "counts_capped": 0,
    "rows_without_file": ["a"],
    "files_without_row": [],
    "repertoires": [{"repertoire_id": "rep.0", "file": "a.tsv"}],
    "relabelled": [{"metadata": "m.tsv"}],
}
_SIGNAL = {"name": "s", "status": "case", "motifs": [{"pattern": "WWHW"}], "witness_rate": 0.1}
_SIMULATION = {"background": {"kind": "independent"}, "seed": 0, "signals": [_SIGNAL]}
_VALUES = (10**400, float("inf"), 2**64, None, "\x1b]0;x\x07", [], {"x": []})


def _places(body: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where the parts of a document are."""
    if place:
        yield place
    for key in body if isinstance(body, dict) else range(len(body)) if isinstance(body, list) else ():
        yield from _places(body[key], (*place, key))


def _with(body: Any, place: tuple[Any, ...], value: Any) -> Any:
    """Return a document with another value at a place."""
    copy = json.loads(json.dumps(body))
    part = copy
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    return copy


def _replace(name: str, values: Any, **options: Any) -> Change:
    def change(file: h5py.File) -> None:
        attributes = {key: file[name].attrs[key] for key in file[name].attrs}
        new = values(file) if callable(values) else values
        del file[name]
        file.create_dataset(name, data=new, **options)
        for key, value in attributes.items():
            file[name].attrs.create(key, value, dtype=getattr(value, "dtype", None))

    return change


def _set(name: str, at: int, value: int) -> Change:
    def change(file: h5py.File) -> None:
        kind = np.iinfo(file[name].dtype)
        file[name][at] = np.array(value % 2**64, np.uint64).astype(kind.dtype)

    return change


def _shift(file: h5py.File) -> None:
    offsets = file["sequence_offsets"][:]
    offsets[3:-3] += 2_000_000_000
    file["sequence_offsets"][:] = offsets


def _link(name: str, link: Any) -> Change:
    def change(file: h5py.File) -> None:
        del file[name]
        file[name] = link

    return change


def _attribute(place: str, name: str, value: Any) -> Change:
    def change(file: h5py.File) -> None:
        thing = file[place]
        if value is None:
            thing.attrs.pop(name, None)
        else:
            thing.attrs[name] = value

    return change


def _circle(name: str) -> Change:
    def change(file: h5py.File) -> None:
        del file[name]
        file[name], file["further"] = h5py.SoftLink("/further"), h5py.SoftLink(f"/{name}")

    return change


def _create(name: str, create: Callable[[int], dict[str, Any]]) -> Change:
    """Return a change that makes a dataset anew; `create` gets the number of its values."""

    def change(file: h5py.File) -> None:
        n = len(file[name])
        del file[name]
        file.create_dataset(name, **create(n))

    return change


def _virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout(shape=file["counts"].shape, dtype=np.uint32)
    layout[:] = h5py.VirtualSource("/etc/passwd", "counts", shape=file["counts"].shape)
    del file["counts"]
    file.create_virtual_dataset("counts", layout)


def _elsewhere(file: h5py.File) -> None:
    n = len(file["counts"])
    del file["counts"]
    file.create_dataset("counts", shape=(n,), dtype=np.uint32, external=[("/etc/passwd", 0, 4 * n)])


def _huge(name: str) -> Change:
    def change(file: h5py.File) -> None:
        dtype = file[name].dtype
        del file[name]
        file.create_dataset(name, shape=(2**42,), dtype=dtype, chunks=(2**20,), fillvalue=None)

    return change


def _undeclared(name: str) -> Change:
    def change(file: h5py.File) -> None:
        dtype = file[name].dtype
        del file[name]
        file.create_dataset(name, shape=(2**40,), dtype=dtype)  # nothing of it is in the file

    return change


def hostile_changes() -> Iterator[tuple[str, Change]]:
    """Yield every field's hostile values, with a name."""
    for name in _ALL:
        for value in _NUMBERS if name not in ("repertoire_ids", "metadata/status", "metadata/age") else ():
            for at in (0, 7, -1):
                yield f"{name}[{at}] = {value}", _set(name, at, value)
        yield f"{name} missing", lambda file, name=name: file.__delitem__(name)
        for dtype in ("f4", "f8", "u8", ">i8", "i1", "?", "c16", "S5"):
            yield f"{name} as {dtype}", _replace(name, lambda file, n=name, d=dtype: np.ones(len(file[n]), d))
        yield f"{name} empty", _replace(name, lambda file, n=name: np.zeros(0, file[n].dtype))
        yield f"{name} shorter", _replace(name, lambda file, n=name: file[n][:-1])
        yield f"{name} longer", _replace(name, lambda file, n=name: np.concatenate([file[n][:], file[n][:1]]))
        yield f"{name} of two dimensions", _replace(name, lambda file, n=name: file[n][:].reshape(1, -1))
        yield f"{name} one number", _replace(name, 3)
        yield f"{name} compressed", _replace(name, lambda file, n=name: file[n][:], compression="gzip")
        yield f"{name} as text", _replace(name, lambda file, n=name: ["x"] * len(file[n]))
        yield f"{name} is a link", _link(name, h5py.SoftLink("/counts"))
        yield f"{name} is elsewhere", _link(name, h5py.ExternalLink("/etc/passwd", "/counts"))
        yield f"{name} is in a circle of links", _circle(name)
        yield (
            f"{name} as text of any length",
            _create(name, lambda n: {"data": ["x"] * n, "dtype": h5py.string_dtype()}),
        )
        yield f"{name} of pairs", _create(name, lambda n: {"data": np.zeros(n, [("a", "i4"), ("b", "f8")])})
        yield f"{name} of lists", _create(name, lambda n: {"shape": (n,), "dtype": h5py.vlen_dtype("i4")})
        yield f"{name} has no space", _create(name, lambda n: {"data": h5py.Empty("u4")})
        yield f"{name} is a group", lambda file, name=name: (file.__delitem__(name), file.create_group(name))[1]
        yield f"{name} of terabytes", _huge(name)
        yield f"{name} of terabytes that are not there", _undeclared(name)
    for name in _TEXTS:
        for value in (None, 3, 2.5, "text", np.bytes_(b"\xff\xfe"), np.arange(4), np.bytes_(b"x" * 200_000)):
            yield f"@{name} = {value!r:.30}", _attribute("/", name, value)
    for name in ("preprocessing", "simulation"):
        for text in _JSON:
            yield f"@{name} = {text:.30}", _attribute("/", name, np.bytes_(text.encode() or b"\0"))
    for name, report in (("preprocessing", _PREPROCESSING), ("simulation", _SIMULATION)):
        for place in _places(report):
            for value in _VALUES:
                text = json.dumps(_with(report, place, value))
                yield f"@{name}: {place} = {value!r:.30}", _attribute("/", name, np.bytes_(text.encode()))
    for value in (None, 0, 1, 3, -1, 2**63 - 1, 2.0, "2", np.arange(3)):
        yield f"@version = {value!r}", _attribute("/", "version", value)
    for value in (None, 3, "V", np.array([b"V1"]), np.array([b"V1", b"V1", b"V2"]), np.array([b"\xff"] * 3)):
        yield f"v_call@vocabulary = {value!r:.40}", _attribute("v_call", "vocabulary", value)
    for value in (None, 3, "status", np.array([b"status"]), np.array([b"status", b"status"]), np.array([b"a", b"b"])):
        yield f"metadata@columns = {value!r:.40}", _attribute("metadata", "columns", value)
        yield f"metadata/age@name = {value!r:.40}", _attribute("metadata/age", "name", value)
    ids = "repertoire_ids"
    yield "the same id twice", _replace(ids, lambda file: file[ids][:][[0, 0, *range(2, len(file[ids]))]])
    yield "an empty id", _replace(ids, lambda file: np.array([b"", *file[ids][1:]]))
    yield "an id that is not UTF-8", _replace(ids, lambda file: np.array([b"\xff\xfe", *file[ids][1:]]))
    yield (
        "numbers that are not finite",
        _replace("metadata/age", lambda file: np.full(len(file["metadata/age"]), np.inf)),
    )
    yield "offsets shifted by 2e9", _shift
    yield "all residues 255", _replace("residues", lambda file: np.full(len(file["residues"]), 255, np.uint8))
    yield "one long sequence", _replace("sequence_offsets", lambda f: np.array([0, *f["sequence_offsets"][-300:]]))
    yield "values of another file", _virtual
    yield "values in another file", _elsewhere
    yield "a group in itself", lambda file: file.__setitem__("metadata/metadata", file["metadata"])
    yield "more than a container has", lambda file: file.__setitem__("further", np.arange(4))


def flip_bits(data: bytes, seed: int) -> bytes:
    """Return a file with one, two or eight of its bits altered, or a piece of it overwritten."""
    draw, altered = random.Random(seed), bytearray(data)
    for _ in range(draw.choice([1, 1, 2, 8])):
        altered[draw.randrange(len(altered))] ^= 1 << draw.randrange(8)
    if draw.random() < 0.2:
        start = draw.randrange(len(altered))
        altered[start : start + 16] = draw.randbytes(len(altered[start : start + 16]))
    return bytes(altered)


def write_case(cohort: Path, target: Path, kind: str, number: int) -> str:
    """Write the hostile container of a number, and return what was done; "flip" alters bits, "set" fields.

    Every second time that a field is set the file gets a checksum that fits.
    """
    from deeprc.datasets.container_file import update_checksum

    if kind == "flip":
        target.write_bytes(flip_bits(cohort.read_bytes(), number))
        return f"bits altered, seed {number}"
    changes = list(hostile_changes())
    name, change = changes[number // 2 % len(changes)]
    shutil.copyfile(cohort, target)
    refused = contextlib.suppress(OSError, ValueError, OverflowError)  # what h5py itself does not write
    with h5py.File(target, "r+") as file, refused:
        change(file)
    if number % 2 == 0:
        return f"{name}, with the old checksum"
    with contextlib.suppress(Exception):  # what cannot be sealed
        update_checksum(target)
    return f"{name}, sealed"


def run_commands(target: Path, run: Path, folder: Path) -> list[tuple[str, int, str, str]]:
    """Return of each command its name, exit code, the digest of what it wrote, and what it said."""
    from deeprc.cli import main
    from deeprc.datasets.container import Container
    from deeprc.errors import InputError

    commands = {"info": ["info", str(target), "--json"]}
    try:
        Container(target)
    except InputError:
        pass  # the same door for all commands, so one of them is enough
    else:
        commands["predict"] = ["predict", str(run), str(target), "-o", str(folder / "out.tsv")]
        commands["attention"] = ["attention", str(run), str(target), "-o", str(folder / "out.tsv"), "--top", "3"]
    results = []
    for name, arguments in commands.items():
        (folder / "out.tsv").unlink(missing_ok=True)
        out, err, code = io.StringIO(), io.StringIO(), 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main(arguments)
            except SystemExit as end:
                code = int(end.code or 0)
            except BaseException as error:  # a traceback, on the command line
                code, _ = -1, err.write(f"{type(error).__name__}: {error}")
        written = (folder / "out.tsv").read_bytes() if (folder / "out.tsv").exists() else b""
        digest = hashlib.sha256(out.getvalue().encode() + written).hexdigest()
        results.append((name, code, digest, err.getvalue()))
    return results


def _main(cohort: Path, run: Path, folder: Path, work: list[tuple[str, range]]) -> None:
    target = folder / "c.h5"
    with (folder / "results").open("a") as file:
        shutil.copyfile(cohort, target)
        file.write(json.dumps({"what": "unaltered", "results": run_commands(target, run, folder)}) + "\n")
        for kind, number in [(kind, number) for kind, numbers in work for number in numbers]:
            what = write_case(cohort, target, kind, number)
            file.write(json.dumps({"what": what, "results": run_commands(target, run, folder)}) + "\n")
            file.flush()
            shutil.rmtree(folder / "c.h5.cache", ignore_errors=True)


if __name__ == "__main__":
    given = sys.argv[1:]
    pieces = [given[i : i + 4] for i in range(3, len(given), 4)]
    _main(*map(Path, given[:3]), [(kind, range(*map(int, numbers))) for kind, *numbers in pieces])
