"""The two-column table of the original DeepRC: `amino_acid templates`."""

from __future__ import annotations

from deeprc.datasets.readers.layout import Header, Layout

__all__ = ["OriginalDeepRCReader"]


class OriginalDeepRCReader:
    """Tables with `amino_acid` and `templates` but no `frame_type`, which would make them immunoSEQ's."""

    name = "deeprc"
    recognised_by = "amino_acid, templates (no frame_type)"

    def layout(self, header: Header) -> Layout | None:
        """Return the two columns."""
        sequence, count = header.find("amino_acid"), header.find("templates")
        if sequence is None or count is None or header.find("frame_type") is not None:
            return None
        return Layout(sequence, counts=(count,))
