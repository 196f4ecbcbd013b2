"""Figures of a run, made from plain tables with matplotlib, for files and as SVG for a page.

`deeprc.interpretation.plotting` makes the tables from a run and a cohort.
"""

from deeprc.drawing import save_figure
from deeprc.interpretation.figures.attended import draw_attention_figure, draw_gene_figure, draw_metastable_figure
from deeprc.interpretation.figures.clones import draw_volcano_figure
from deeprc.interpretation.figures.inline import render_svg
from deeprc.interpretation.figures.predicted import (
    draw_calibration_figure,
    draw_precision_recall_figure,
    draw_regression_figure,
    draw_roc_figure,
)
from deeprc.interpretation.figures.residues import (
    compute_logo_top,
    draw_kernels_figure,
    draw_logo_figure,
    draw_logos_figure,
    draw_sequence_figure,
)
from deeprc.interpretation.figures.training import draw_history_figure

__all__ = [
    "compute_logo_top",
    "draw_attention_figure",
    "draw_calibration_figure",
    "draw_gene_figure",
    "draw_history_figure",
    "draw_kernels_figure",
    "draw_logo_figure",
    "draw_logos_figure",
    "draw_metastable_figure",
    "draw_precision_recall_figure",
    "draw_regression_figure",
    "draw_roc_figure",
    "draw_sequence_figure",
    "draw_volcano_figure",
    "render_svg",
    "save_figure",
]
