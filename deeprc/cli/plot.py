"""The command `deeprc plot`: single figures."""

from __future__ import annotations

import click

from deeprc.cli.options import device_option
from deeprc.cli.paths import expand_runs, split_runs_and_container

__all__ = ["KINDS", "plot"]

KINDS = (
    *("cohort", "roc", "precision-recall", "calibration", "regression", "network", "history", "curves"),
    *("metastable", "attention", "genes", "logos", "kernels", "sequences"),
)
"""Names of the figures, in the order of the help."""


@click.command()
@click.argument("kind", type=click.Choice(KINDS), metavar="KIND")
@click.argument("paths", nargs=-1, required=True, metavar="RUN... [CONTAINER] | CONTAINER")
@click.option("-o", "--output", required=True, metavar="FILE", help="The picture to write: .png, .svg or .pdf.")
@click.option("--target", help="The target to draw if there are several; COLUMN=CLASS for one of several classes.")
@click.option("--repertoire", metavar="ID", help="Draw only this repertoire.")
@click.option(
    "--class", "class_name", metavar="NAME", help="The class whose sequences are drawn.  [default: the positive class]"
)
@click.option("--field", type=click.Choice(["v_call", "j_call"]), help="The genes to draw.  [default: v_call]")
@device_option
def plot(
    kind: str,
    paths: tuple[str, ...],
    output: str,
    device: str,
    **options: str | None,
) -> None:
    """Draw one figure of RUN, or of a container, as PNG, SVG or PDF.

    \b
    From CONTAINER alone, before any training:
      cohort       sizes, lengths, genes, and maps of the repertoires, by the classes of --target
    \b
    From the predictions of RUN, or from new predictions if CONTAINER is given:
      roc, precision-recall, calibration   how good a target's predictions are
      regression                           predicted against true numbers
    From RUN alone:
      network      the parts of the network and their sizes
      history      losses and AUC during the training
      curves       ROC and precision-recall curves of the test folds; RUN is a folder of `deeprc cv` or
                   `deeprc benchmark`
    From RUN and CONTAINER:
      metastable   how many sequences hold 90% of the attention
      attention    how attention gathers on few sequences
      genes        genes of attended and of all sequences (--field)
      logos        motifs of the top sequences of a class (--class)
      kernels      what each kernel adds
      sequences    the top sequences, residues coloured by what they add

    Several runs, or a folder of runs, predict together, as in `deeprc predict`. The figures roc, precision-recall,
    calibration and regression then need CONTAINER, with new repertoires. (For a cross-validation of its own
    repertoires, draw curves.) The figures history, kernels and network take one run only.

    \b
    Examples:
      deeprc plot cohort cohort.h5 --target 'CMV=+' -o cohort.png
      deeprc plot roc runs/cmv -o roc.pdf
      deeprc plot curves runs/cmv-cv -o curves.pdf
      deeprc plot logos runs/cmv cohort.h5 --class + -o motifs.svg
    """
    from deeprc.drawing import check_figure_path, save_figure
    from deeprc.interpretation.plotting import FigureOptions, make_figure

    check_figure_path(output)
    runs, container = split_runs_and_container(paths)
    folders = runs if kind == "curves" else expand_runs(runs)
    figure = make_figure(kind, folders, container, FigureOptions(**options), device=device)
    save_figure(figure, output)
    click.echo(f"Wrote {output}")
