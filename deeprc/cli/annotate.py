"""The command `deeprc annotate`: sequences with known antigens."""

from __future__ import annotations

from pathlib import Path

import click

from deeprc.cli.options import host_option, table_output_option

__all__ = ["annotate"]


@click.command()
@click.argument("table", type=click.Path(path_type=Path))
@click.option(
    "--database",
    "databases",
    required=True,
    multiple=True,
    metavar="FILE",
    help="VDJdb, McPAS-TCR, an export of receptors from the IEDB, or a table with the columns 'junction_aa', 'v_call'"
    " and 'antigen_organism', 'antigen' or 'epitope'. The option may be given several times.",
)
@table_output_option
@click.option(
    "--cohort",
    metavar="COHORT.h5",
    help="The cohort that TABLE comes from. It is used to estimate how many sequences match by chance.",
)
@host_option
def annotate(table: Path, databases: tuple[str, ...], output: Path, cohort: str | None, host: str | None) -> None:
    """Find the sequences of TABLE that are receptors with a known antigen.

    TABLE is a TSV with a column "junction_aa" and, if known, "v_call", such as those of `deeprc attention`,
    `deeprc clones` and `deeprc quickstart`. The output has five more columns about the best entries of
    the databases: how well they match the sequence (exact or one substitution, the same V gene or not), their organism,
    antigen and epitope, and their number.

    A second table, NAME.organisms.tsv, has the number of matches for each organism. With --cohort, it also tests
    whether more sequences match than expected by chance. Chance is measured on clones of the cohort with the same V
    gene, length and number of carriers. These must be equal, because public clones match databases more often than
    other clones, whatever they recognise.

    \b
    Example:
      deeprc annotate associated_clones.tsv --database vdjdb.txt --cohort cohort.h5 -o annotated.tsv
    """
    from deeprc.datasets.dataset import open_dataset
    from deeprc.errors import InputError
    from deeprc.files import check_table_output, write_text
    from deeprc.specificity import ADDED_COLUMNS, annotate_sequences, read_databases, read_sequences

    check_table_output(output, ADDED_COLUMNS)
    organisms_path = output.with_name(f"{output.name.removesuffix('.gz').removesuffix('.tsv')}.organisms.tsv")
    check_table_output(organisms_path, ("antigen_organism", "n_exact"))
    sequences = read_sequences(table)
    known = read_databases(databases, host=host)
    compared = None if cohort is None else open_dataset(cohort)
    try:
        annotation = annotate_sequences(sequences, known, cohort=compared)
    except InputError as error:
        raise InputError(f"{table}: {error}") from error
    for path, content in ((output, annotation.table), (organisms_path, annotation.organisms)):
        write_text(path, content.to_csv(sep="\t", index=False, lineterminator="\n"))
    for line in annotation.to_lines():
        click.echo(line)
    click.echo(f"Wrote {output} and {organisms_path}")
