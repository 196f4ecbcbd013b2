"""A written report: its path, and its page in a notebook."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

from deeprc.documents import read_text

__all__ = ["Report"]

_HEIGHT = 640  # height of the frame in pixels
_MAX_BYTES = 256 << 20


@dataclass(frozen=True)
class Report:
    """An HTML page that `deeprc.report` has written.

    Attributes
    ----------
    path
        Path of the file.
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
