"""The command `deeprc pack`: a trained model in one file."""

from __future__ import annotations

import click

__all__ = ["pack"]


@click.command()
@click.argument("run")
@click.option("-o", "--output", required=True, metavar="FILE", help="The file to write, such as cmv.deeprc.")
@click.option(
    "--notes",
    metavar="FILE",
    help="Markdown about the cohort and the intended use, which becomes part of the model card.",
)
def pack(run: str, output: str, notes: str | None) -> None:
    """Write the trained classifier RUN to one file, to share it or to keep it with a paper.

    `deeprc predict`, `evaluate`, `attention` and `report` take the file in place of a run. It holds the
    configuration, the weights, the metrics, summary statistics of the training repertoires, the public clones that the
    model stores, and a model card. It holds no ids, labels or predictions. The packed model cannot recognise its
    training repertoires.

    \b
    Examples:
      deeprc pack runs/cmv -o cmv.deeprc
      deeprc predict cmv.deeprc new_cohort.h5 -o predictions.tsv
      unzip -p cmv.deeprc MODEL_CARD.md
    """
    from deeprc.runs.pack import pack_run

    sizes = pack_run(run, output, notes=notes)
    click.echo(f"Wrote {output}: {', '.join(f'{name} ({size:,} bytes)' for name, size in sizes.items())}")
