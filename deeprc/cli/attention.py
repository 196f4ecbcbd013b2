"""The command `deeprc attention`: tables of attention and contributions."""

from __future__ import annotations

from pathlib import Path

import click

from deeprc.cli.options import device_option, scheduler_option, table_output_option
from deeprc.cli.paths import runs_and_container
from deeprc.cli.tables import format_heads
from deeprc.errors import InputError

__all__ = ["attention"]


@click.command()
@table_output_option
@click.option("--top", type=click.IntRange(1), help="Write only the N top sequences of each repertoire.")
@click.option("--top-overall", type=click.IntRange(1), help="Write only the N top sequences of the whole cohort.")
@click.option(
    "--by",
    type=click.Choice(["attention", "contribution", "response"]),
    help="The ranking of --top and --top-overall. attention: the attention weight with --top; the attention logit,"
    " which can be compared between repertoires, with --top-overall. contribution: what the sequence adds to the"
    " output. response: the output if the sequence had all the attention.  [default: contribution if the network"
    " has a branch `composition` or `clones`, else attention]",
)
@click.option(
    "--class",
    "class_name",
    metavar="NAME",
    help="The class of contributions and responses in --by: it says which sequences come first, and changes no number."
    "  [default: the positive class of the first target]",
)
@click.option(
    "--repertoire",
    "repertoires",
    multiple=True,
    metavar="ID",
    help="Write only this repertoire. The option may be given several times.",
)
@scheduler_option
@device_option
@runs_and_container
def attention(
    runs: tuple[str, ...],
    container: str,
    output: Path,
    top: int | None,
    top_overall: int | None,
    repertoires: tuple[str, ...],
    scheduler: str | None,
    device: str,
    by: str | None,
    class_name: str | None,
) -> None:
    """Write how much each sequence of CONTAINER contributes to the prediction of RUN, and its attention weight.

    FILE is an AIRR Rearrangement table. Its main columns are:

    \b
      contribution       what the sequence adds to the log-odds of the positive class (whatever --class is)
      through_BRANCH     the part of the contribution through each branch, if the network has several
      response           the log-odds if the sequence had all the attention
      attention_weight   its weight in the average over the repertoire; the weights sum to 1
      attention_rank     its rank by this weight
      attention_logit    its attention before the softmax, which is comparable between repertoires
      head               the attention head with the largest weight
      q_value            with --top-overall: the false discovery rate

    The false discovery rate is the share of chance findings among the sequences that rank as high in repertoires of the
    class. It is estimated from donors that RUN has not seen (test or new repertoires). The column is missing if
    CONTAINER has none of them, or with --repertoire.

    A second table, FILE with .heads.tsv in the place of .tsv, has a row for each repertoire and attention head. It says
    over how many sequences the head averages: "metastable_size" is the smallest number whose weights sum to 0.90, and
    "operating_class" goes from I (more than half of the repertoire) to IV (at most a thirty-second). The medians are
    printed.

    Several runs, or a folder of runs as in `deeprc predict`, give mean values. With --scheduler, the workers of a Dask
    cluster compute the tables, some repertoires at a time. Only "q_value" is computed on this machine.

    \b
    Examples:
      deeprc attention runs/cmv cohort.h5 -o attention.tsv.gz
      deeprc attention runs/cmv-1 runs/cmv-2 cohort.h5 -o attention.tsv.gz
      deeprc attention runs/cmv cohort.h5 -o cmv.tsv --top-overall 1000 --by contribution
    """
    from deeprc.datasets.dataset import open_dataset
    from deeprc.interpretation.attention import choose_default_ranking, iterate_attention
    from deeprc.interpretation.attention_files import check_attention_outputs, make_heads_path, write_attention
    from deeprc.interpretation.by_workers import iterate_attention_of_workers
    from deeprc.interpretation.directions import find_direction
    from deeprc.interpretation.ranking import Ranking
    from deeprc.interpretation.survey import make_false_discovery_reference
    from deeprc.jobs import Workers, check_scheduler
    from deeprc.runs.ensemble import load_ensemble
    from deeprc.runs.shares import DividedCohort

    _check_ranking_options(top, top_overall, by, class_name)
    check_attention_outputs(output)
    if scheduler is not None:
        check_scheduler(scheduler)
    predictor = load_ensemble(runs, device=device if scheduler is None else "cpu")
    model = predictor.model
    chosen = find_direction(model.tasks, class_name)
    ranking = Ranking(by or choose_default_ranking(model).by, chosen.output, chosen.sign)
    if class_name is not None and ranking.by == "attention":
        raise InputError("--class needs --by contribution or --by response: attention is the same for all classes")
    dataset = open_dataset(container)
    if repertoires:
        dataset = dataset.select(list(dict.fromkeys(repertoires)))
    if scheduler is None:
        tables = iterate_attention(model, dataset, top=top, ranking=ranking)
    else:
        cohort = DividedCohort(predictor, dataset, Workers(scheduler=scheduler), device)
        tables = iterate_attention_of_workers(cohort, top=top, ranking=ranking)
    reference = None
    if top_overall is not None and not repertoires:
        reference = make_false_discovery_reference(predictor, dataset, chosen, predictor.split_of(dataset))
    written = write_attention(output, tables, max_sequences=top_overall, ranking=ranking, reference=reference)
    if chosen.sign < 0:
        evidence = f"In {output}, negative contributions and responses are evidence for {chosen.name!r}"
        click.echo(f"{evidence}: --class changes the order of the rows only")
    for line in format_heads(written.heads):
        click.echo(line)
    click.echo(f"Wrote {written.n_sequences} sequences of {len(dataset)} repertoires to {output}")
    click.echo(f"Wrote {make_heads_path(output)}: how many sequences have 90% of the attention of each head")


def _check_ranking_options(top: int | None, top_overall: int | None, by: str | None, class_name: str | None) -> None:
    """Raise InputError if two rankings are asked for, or options of a ranking without one."""
    if top is not None and top_overall is not None:
        raise InputError("--top chooses sequences of each repertoire, --top-overall of the whole cohort: give only one")
    if top is None and top_overall is None and (by or class_name):
        raise InputError("--by and --class need --top or --top-overall, for which they choose the ranking")
