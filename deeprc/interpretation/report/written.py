"""A report that was written: its path, and what a notebook shows of it."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

from deeprc.documents import read_text

__all__ = ["Report"]

_HEIGHT = 640  # pixels
_MAX_BYTES = 256 << 20


@dataclass(frozen=True)
class Report:
    """An HTML page that `deeprc.report` has written.

    Attributes
    ----------
    path
        The file.
    """

    path: Path

    def _repr_html_(self) -> str:
        """Return the page in a frame, in which only its own script runs."""
        page = escape(read_text(self.path, limit=_MAX_BYTES))
        style = "width:100%;border:1px solid currentColor"
        return (
            f'<p>{escape(str(self.path))}</p><iframe title="{escape(self.path.name)}" srcdoc="{page}" '
            f'sandbox="allow-scripts allow-downloads allow-popups" height="{_HEIGHT}" style="{style}"></iframe>'
        )
