"""Names in files of earlier versions, in which branches were called readings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

__all__ = ["update_name", "update_names"]

_Value = TypeVar("_Value")

_EARLIER_NAME = re.compile(r"(^|\.)readings(?=$|[._])")


def update_name(name: str) -> str:
    """Return today's name of a tensor, a field or a setting: `network.readings.gains` is `network.branches.gains`."""
    return _EARLIER_NAME.sub(r"\1branches", name)


def update_names(mapping: Mapping[str, _Value]) -> dict[str, _Value]:
    """Return a mapping with today's names; keys of a damaged file that are no text stay as they are."""
    return {update_name(name) if isinstance(name, str) else name: value for name, value in mapping.items()}
