"""Recognise numbers where a table should have names: in its header, or as V or J genes."""

from __future__ import annotations

import re

__all__ = ["is_number"]

_NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?", re.ASCII)


def is_number(text: str) -> bool:
    """Return whether a text is a number as tables write it: `7`, `-0.5`, `.5`, `1.`, `2e-7`, or `0,5` in other locales.

    Texts with separators of thousands, such as `1,234,567`, and words such as `inf` are none.
    """
    return _NUMBER.fullmatch(text) is not None
