"""Rows of repertoire files as tables of pandas, which tests compare with expected ones."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from deeprc.datasets.readers import RawRows, Reader, match_reader, read_header, read_rows


def read_repertoire(path: str | os.PathLike[str], *, reader: Reader | None = None) -> pd.DataFrame:
    """Read one repertoire file, whatever its format; see `to_frame` for the columns of the result."""
    header = read_header(Path(path))
    return to_frame(read_rows(header, match_reader(header, reader).layout))


def read_with_format(path: Path) -> tuple[str, RawRows]:
    """Return the name of the format by which a file is recognised, and its rows."""
    header = read_header(path)
    reader, layout, _ = match_reader(header)
    return reader.name, read_rows(header, layout)


def to_frame(rows: RawRows) -> pd.DataFrame:
    """Return rows as a table.

    Returns
    -------
    pandas.DataFrame
        `junction_aa` (text; "" if missing), `duplicate_count` (uint32), `count_source` (category: the column of the
        count, `COUNT_ONE` or `COUNT_CELLS`), `count_rounded` (bool), `status` (uint8, a `Status`), and, if the file has
        them, `v_call`, `j_call`, `repertoire_id`, `locus` and `cell_id` (category; "" if missing).
    """
    text = rows.sequences.letters.tobytes().decode("latin-1")
    bounds = rows.sequences.offsets.tolist()
    sequences = [text[start:stop] for start, stop in pairwise(bounds)]
    columns = {
        "junction_aa": pd.Series(sequences, dtype=object),
        "duplicate_count": rows.counts,
        "count_source": pd.Categorical.from_codes(rows.count_source, pd.Index(rows.count_sources)),
        "count_rounded": rows.count_rounded,
        "status": rows.status,
    }
    names = {"repertoire": "repertoire_id", "cell": "cell_id"}
    for name in ("v_call", "j_call", "repertoire", "locus", "cell"):
        column = getattr(rows, name)
        if column is not None:
            values, index = np.unique(np.array(column.vocabulary, object), return_inverse=True)
            columns[names.get(name, name)] = pd.Categorical.from_codes(index[column.codes], pd.Index(values))
    return pd.DataFrame(columns)
