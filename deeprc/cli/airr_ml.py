"""The command `deeprc airr-ml`: the interface of the AIRR-ML-25 challenge."""

from __future__ import annotations

from typing import Any

import click

from deeprc.cli.options import seed_option

__all__ = ["airr_ml"]

_SEVERAL = "--test_dirs"


class _Command(click.Command):
    """A command that takes several values after one `--test_dirs`, like the template of the challenge."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat the option before each of its values, because click expects one value per option."""
        repeated: list[str] = []
        taking = False
        for index, argument in enumerate(args):
            if argument.startswith(_SEVERAL + "="):
                taking = True
                repeated.append(argument)
            elif argument == _SEVERAL:
                taking = True
                if index + 1 == len(args) or args[index + 1].startswith("-"):
                    raise click.BadOptionUsage(_SEVERAL, f"Option {_SEVERAL!r} requires an argument.", ctx)
            elif taking and not argument.startswith("-"):
                repeated += [_SEVERAL, argument]
            else:
                taking = False
                repeated.append(argument)
        return super().parse_args(ctx, repeated)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "--train_dir DIR --test_dirs DIR... --out_dir DIR [OPTIONS]")


@click.command("airr-ml", cls=_Command)
@click.option(
    "--train_dir",
    required=True,
    metavar="DIR",
    help="The training folder: one TSV file per repertoire, and metadata.csv with the labels.",
)
@click.option(
    _SEVERAL,
    "test_dirs",
    required=True,
    multiple=True,
    metavar="DIR...",
    help="One or several folders with repertoires to predict.",
)
@click.option(
    "--out_dir",
    "output",
    required=True,
    metavar="DIR",
    help="The folder for the tables; it is created if it does not exist.",
)
@click.option("--n_jobs", type=int, default=1, show_default=True, help="Number of cores to use; -1: all cores.")
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="Where DeepRC computes."
)
@click.option(
    "--method",
    type=click.Choice(["auto", "stack", "gapped-logistic", "logistic", "public-clones", "deeprc"]),
    default="auto",
    show_default=True,
    help="The method; auto is the stack, a weighted combination of several methods.",
)
@click.option("--locus", help="The chain to keep (TRB, IGH, ...) if files hold several.")
@click.option(
    "--group-by",
    metavar="COLUMN",
    help="A column of the training folder's metadata.csv. Repertoires with the same value, such as one donor's, stay "
    "together in inner folds.",
)
@seed_option
def airr_ml(
    train_dir: str,
    test_dirs: tuple[str, ...],
    output: str,
    n_jobs: int,
    device: str,
    method: str,
    locus: str | None,
    group_by: str | None,
    seed: int,
) -> None:
    """Predict with the interface of the AIRR-ML-25 challenge.

    The command trains on one folder, predicts others, and writes three tables. TRAIN_test_predictions.tsv has the
    predictions. TRAIN_important_sequences.tsv has the 50,000 sequences that are most associated with the positive
    label. TRAIN_evidence.tsv says by which method and evidence each of them was chosen.

    \b
    Example:
      deeprc airr-ml --train_dir train_1 --test_dirs test_1_1 test_1_2 --out_dir results --n_jobs 4
    """
    from deeprc.airr_ml import predict_immune_states

    options: dict[str, Any] = {"method": method, "locus": locus, "group_by": group_by, "seed": seed}
    paths = predict_immune_states(train_dir, test_dirs, output, n_jobs=n_jobs, device=device, **options)
    for path in paths:
        click.echo(f"Wrote {path}")
