"""Find counts and genes that a table lacks under the column names of its format, but has under those of other formats.

Tools rename and mix columns: a table with MiXCR's `aaSeqCDR3` may have TCRex' `TRBV_gene` and VDJtools' `count`. All of
them are read; the columns of a format itself are preferred.
"""

from __future__ import annotations

from dataclasses import replace

from deeprc.datasets.readers import mixcr
from deeprc.datasets.readers.layout import Header, Layout

__all__ = ["fill_missing_columns"]

_TEMPLATES = "templates"
_COUNTS = (
    "duplicate_count",
    "umi_count",
    _TEMPLATES,
    *mixcr.COUNTS,
    "Clones",
    "Umi.count",
    "count (templates/reads)",
    "count (templates)",
    "count",
    "copy",
    "consensus_count",
    "Read.count",
    "count (reads)",
    "reads",
)
_GENES = (
    "{}_call",
    *mixcr.GENES,
    "{}_gene",
    "{}_gene_ties",
    "{}_resolved",
    "{}GeneName",
    "{}GeneNameTies",
    "{}MaxResolved",
    "TRB{}_gene",
    "{}.name",
    "{}.gene",
    "{}",
    "{}_family",
    "{}FamilyName",
)


def fill_missing_columns(header: Header, layout: Layout) -> tuple[Layout, dict[str, str]]:
    """Return a layout with the counts and genes that it lacks, from columns of other formats.

    Returns
    -------
    layout
        Layout with one column for each of them that exists; if cells are counted, there are no counts.
    filled
        These columns, by what they hold.
    """
    candidates = {name: tuple(template.format(name[0]) for template in _GENES) for name in ("v_call", "j_call")}
    if layout.cell is None:
        candidates["counts"] = _COUNTS
    column_or_none = {name: header.find(*names) for name, names in candidates.items() if not getattr(layout, name)}
    filled = {name: column for name, column in column_or_none.items() if column is not None}
    columns = {name: (column,) for name, column in filled.items()}
    counts_templates = filled.get("counts", "").lower() == _TEMPLATES
    return replace(layout, **columns, negative_is_one=layout.negative_is_one or counts_templates), filled  # type: ignore[arg-type]
