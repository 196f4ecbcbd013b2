"""The command `deeprc stack`: several methods in one prediction."""

from __future__ import annotations

from pathlib import Path

import click

from deeprc.cli.options import device_option, seed_option

__all__ = ["stack"]


@click.group()
def stack() -> None:
    """Combine DeepRC and other methods into one prediction. A method that improves it more gets a larger weight."""


@stack.command()
@click.argument("container")
@click.option("--target", required=True, metavar="TARGET", help="What to predict: two classes, as in `deeprc train`.")
@click.option("-o", "--output", required=True, metavar="FILE", help="The model to write (safetensors).")
@click.option(
    "--methods",
    "--members",
    "members",
    metavar="NAME,...",
    help="The methods that are combined, the members of the stack; see `deeprc benchmark --list`.  [default: those"
    " above]",
)
@click.option(
    "--group-by",
    metavar="COLUMN",
    help="Keep repertoires with the same value in this column, such as one donor's, together.",
)
@click.option(
    "--folds",
    type=click.IntRange(min=2),
    default=5,
    show_default=True,
    help="The number of folds.",
)
@click.option("--preset", default="quick", show_default=True, help="The search spaces, as in `deeprc benchmark`.")
@device_option
@seed_option
def fit(
    container: str,
    target: str,
    output: str,
    members: str | None,
    group_by: str | None,
    folds: int,
    preset: str,
    device: str,
    seed: int,
) -> None:
    """Fit a stack to the repertoires of CONTAINER that have a label.

    The members are deeprc, logistic, gapped-logistic, svm-minmax, public-clones, boosted and v-gene-usage. Each scores
    repertoires that it was not fitted to, and a logistic regression on these scores gives the weight of each member.

    \b
    Examples:
      deeprc stack fit cohort.h5 --target CMV --group-by subject_id -o cmv.safetensors
      deeprc stack predict cmv.safetensors new.h5 -o predictions.tsv
    """
    from deeprc.benchmarking.methods import split_names
    from deeprc.stacking.cohort import fit_stack
    from deeprc.stacking.stack import MEMBERS, Stack

    names = MEMBERS if members is None else split_names([members])
    model = Stack(members=list(names), preset=preset, n_folds=folds, device=device, seed=seed)
    fitted = fit_stack(container, target, output, group_by=group_by, stack=model)
    table = fitted.member_table().reset_index()
    click.echo(table.to_string(index=False, float_format="{:.3f}".format))
    click.echo(f"AUC of the stack in cross-validation: {fitted.auc_:.3f}")
    best = table.iloc[int(table["auc"].argmax())]
    if best["auc"] > fitted.auc_:
        click.echo(
            f"Note: {best['member']} alone has a higher AUC ({best['auc']:.3f}). With few repertoires this may be "
            "chance. `deeprc benchmark` compares both on test folds."
        )
    click.echo(f"Wrote {output}")


@stack.command(short_help="Predict repertoires with a fitted stack.")
@click.argument("model")
@click.argument("container")
@click.option("-o", "--output", required=True, metavar="FILE", help="The table to write (TSV).")
def predict(model: str, container: str, output: str) -> None:
    """Predict the repertoires of CONTAINER with MODEL, a file that `deeprc stack fit` wrote.

    The table has the columns "repertoire_id", "split", "target", "label", "probability", "positive_class", "log_odds",
    and for each member "contribution=MEMBER": what it adds to the log-odds of this repertoire. "split" is "train" if
    MODEL was fitted to the repertoire, otherwise "new". Judge MODEL by new repertoires only.

    Two columns of `deeprc predict` are absent: how far a repertoire is from those of training ("shift"), and the
    predicted class ("called_class"). A stack stores no summary of its training repertoires, and no cutoff.

    \b
    Example:
      deeprc stack predict cmv.safetensors new.h5 -o predictions.tsv
    """
    from deeprc.datasets.dataset import open_dataset
    from deeprc.files import check_table_output
    from deeprc.runs.run import save_predictions
    from deeprc.stacking.cohort import list_prediction_columns, predict_with_stack
    from deeprc.stacking.stack import Stack

    fitted = Stack.load(Path(model))
    check_table_output(Path(output), list_prediction_columns(fitted))
    table = predict_with_stack(fitted, open_dataset(container))
    save_predictions(Path(output), table)
    click.echo(f"Wrote predictions of {fitted.target_ or 'y'} for {len(table)} repertoires to {output}")
