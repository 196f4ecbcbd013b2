"""The command `deeprc clones`: clones that are associated with a class."""

from __future__ import annotations

from pathlib import Path

import click

from deeprc.cli.options import table_output_option

__all__ = ["clones"]


@click.command()
@click.argument("container", type=click.Path(path_type=Path))
@click.option("--target", required=True, help="The classes to compare, as in `deeprc train`: 'CMV=+'.")
@table_output_option
@click.option(
    "--group-by",
    metavar="COLUMN",
    help="The column that names the donor of each repertoire. Donors are counted, not repertoires.",
)
@click.option(
    "--stratify",
    multiple=True,
    metavar="COLUMN",
    help="Compare donors with equal values in this column, such as an HLA allele, sex or batch. The option may be given"
    " several times.",
)
@click.option(
    "--class",
    "classes",
    multiple=True,
    metavar="NAME",
    help="List the clones of this class only. The option may be given several times.  [default: all classes]",
)
@click.option(
    "--max-p",
    type=click.FloatRange(0, 1, min_open=True),
    default=1e-3,
    show_default=True,
    help="The largest p-value of a row. Clones with too few carriers to reach it are not tested.",
)
@click.option(
    "--permutations",
    "n_permutations",
    type=click.IntRange(0),
    default=100,
    show_default=True,
    help="Number of permutations of the labels between donors; 0 leaves out the column 'q_permutation'.",
)
@click.option("--plot", metavar="FILE", help="Draw a volcano plot of the table as .png, .svg or .pdf.")
def clones(
    container: Path,
    target: str,
    output: Path,
    group_by: str | None,
    stratify: tuple[str, ...],
    classes: tuple[str, ...],
    max_p: float,
    n_permutations: int,
    plot: str | None,
) -> None:
    """List the clones (junction, V gene, J gene) that donors of one class carry more often than the other donors do.

    FILE has for each clone the number of carriers in each class, the odds ratio with its 95% interval, and the p-value
    of Fisher's exact test. With --stratify, the test is the Cochran-Mantel-Haenszel test.

    There are two false discovery rates: "q_value" (by Benjamini and Hochberg), and "q_permutation" (by permuting labels
    among donors with similar numbers of sequences). Use "q_permutation" if one class has larger repertoires.

    Columns with "metaclone" in their name count a clone together with its neighbours (one substitution, the same V
    family); "p_neighbours" tests the neighbours alone.

    \b
    Examples:
      deeprc clones cohort.h5 --target 'CMV=+' --group-by subject_id -o associated_clones.tsv --plot volcano.png
      deeprc clones cohort.h5 --target 'CMV=+' --stratify 'hla_A*02' --stratify sex -o associated_clones.tsv
    """
    from deeprc.associations import COLUMNS, associate_clones
    from deeprc.datasets.dataset import open_dataset
    from deeprc.drawing import check_figure_path, save_figure
    from deeprc.files import check_table_output, write_text
    from deeprc.interpretation.figures.clones import draw_volcano_figure

    check_table_output(output, COLUMNS)
    if plot is not None:
        check_figure_path(plot)
    associations = associate_clones(
        open_dataset(container),
        target,
        group_by=group_by,
        stratify=stratify,
        classes=classes,
        max_p=max_p,
        n_permutations=n_permutations,
    )
    for line in associations.to_lines():
        click.echo(line)
    write_text(output, associations.table.to_csv(sep="\t", index=False, float_format="%.6g", lineterminator="\n"))
    click.echo(f"Wrote {len(associations.table):,} rows to {output}")
    if plot is not None:
        save_figure(draw_volcano_figure(associations.table, list(associations.class_sizes)), plot)
        click.echo(f"Wrote {plot}")
