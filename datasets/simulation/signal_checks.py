"""Checks of the parameters that all kinds of signal have: shares and names."""

from __future__ import annotations

from collections.abc import Sequence

from deeprc.documents import CONTROL_CHARACTERS
from deeprc.errors import InputError, quote

__all__ = ["check_names", "check_share"]


def check_share(signal_name: str, parameter: str, value: float) -> None:
    """Raise InputError unless the value of a signal's parameter is from 0 to 1."""
    if not 0 <= value <= 1:
        raise InputError(f"signal {signal_name!r}: {parameter}: expected 0 to 1, found {value}")


def check_names(cohort_name: str, signal_names: Sequence[str]) -> None:
    """Raise InputError if a container cannot hold the name of a cohort or of a signal, or if two signals have one name.

    Columns of the container have the names of signals.
    """
    for key, name in (("name", cohort_name), *(("signals: name", name) for name in signal_names)):
        if CONTROL_CHARACTERS.search(name) or name != name.encode(errors="replace").decode():
            raise InputError(f"{key}: expected text without control characters, found {quote(name)}")
    if len(set(signal_names)) < len(signal_names):
        raise InputError("signals: expected a different name for each")
