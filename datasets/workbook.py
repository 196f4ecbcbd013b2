"""XLSX files."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from deeprc.errors import InputError

if TYPE_CHECKING:
    from openpyxl.workbook import Workbook

__all__ = ["open_workbook"]


def open_workbook(path: Path) -> Workbook:
    """Open an XLSX file; formulas have the values that were saved with them.

    Raises
    ------
    InputError
        If it is missing, damaged, or has no sheet with cells.
    """
    import openpyxl  # its import takes longer than reading most sheets, which are text

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # openpyxl warns of styles and extensions that do not concern the values
            book = openpyxl.load_workbook(io.BytesIO(path.read_bytes()), data_only=True)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except Exception as error:  # openpyxl lets whatever it meets in a damaged file through
        raise InputError(f"{path}: cannot be read as XLSX: {error}") from error
    if not book.worksheets:
        raise InputError(f"{path}: the workbook has no sheet with cells")
    return book
