"""Figures of a run, made from plain tables with matplotlib, for files and as SVG for a page.

`deeprc.interpretation.plotting` makes the tables from a run and a cohort.
"""

from deeprc.drawing import save_figure
from deeprc.interpretation.figures.attended import attention_figure, gene_figure, metastable_figure
from deeprc.interpretation.figures.clones import volcano_figure
from deeprc.interpretation.figures.inline import render_svg
from deeprc.interpretation.figures.predicted import (
    calibration_figure,
    precision_recall_figure,
    regression_figure,
    roc_figure,
)
from deeprc.interpretation.figures.residues import (
    compute_logo_top,
    kernels_figure,
    logo_figure,
    logos_figure,
    sequence_figure,
)
from deeprc.interpretation.figures.training import history_figure

__all__ = [
    "attention_figure",
    "calibration_figure",
    "compute_logo_top",
    "gene_figure",
    "history_figure",
    "kernels_figure",
    "logo_figure",
    "logos_figure",
    "metastable_figure",
    "precision_recall_figure",
    "regression_figure",
    "render_svg",
    "roc_figure",
    "save_figure",
    "sequence_figure",
    "volcano_figure",
]
