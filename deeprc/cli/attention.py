"""`deeprc attention`."""

from __future__ import annotations

from pathlib import Path

import click

from deeprc.cli.progress import bar

__all__ = ["attention"]


@click.command()
@click.argument("run")
@click.argument("container")
@click.option("-o", "--output", required=True, metavar="FILE", help="The table to write (TSV; gzip if it ends in .gz).")
@click.option("--top", type=click.IntRange(1), help="Only the N sequences of highest weight of each repertoire.")
@click.option("--repertoire", "repertoires", multiple=True, metavar="ID", help="Only this repertoire; repeatable.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1 ...")
def attention(
    run: str, container: str, output: str, top: int | None, repertoires: tuple[str, ...], device: str
) -> None:
    """Write the attention of RUN on every sequence of CONTAINER.

    AIRR columns, then attention_weight (the softmax over the whole repertoire: sums to 1), attention_rank and
    attention_logit (comparable between repertoires); per head where there are several.

    \b
    Example:
      deeprc attention runs/cmv cohort.h5 -o attention.tsv.gz --top 100
    """
    from deeprc.datasets.dataset import open_dataset
    from deeprc.evaluation.run import load_run
    from deeprc.files import check_table_output
    from deeprc.interpretation.attention import iterate_attention, write_attention

    check_table_output(Path(output), ["repertoire_id", "junction_aa", "attention_weight", "attention_rank"])
    trained = load_run(run, device=device)
    dataset = open_dataset(container)
    if repertoires:
        dataset = dataset.select(repertoires)
    n = write_attention(output, iterate_attention(trained, dataset, bar(range(len(dataset)), "repertoire"), top=top))
    click.echo(f"Wrote {n} sequences of {len(dataset)} repertoires to {output}")
