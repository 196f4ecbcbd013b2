"""The command `deeprc predict`: predictions for a cohort."""

from __future__ import annotations

from pathlib import Path

import click

from deeprc.cli.options import device_option

__all__ = ["predict"]


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.argument("container")
@click.option("-o", "--output", required=True, metavar="FILE", help="The table to write (TSV).")
@click.option(
    "--abstain",
    is_flag=True,
    help="Leave predictions empty if shift is above 1, as in 5% of the training repertoires.",
)
@device_option
def predict(runs: tuple[str, ...], container: str, output: str, abstain: bool, device: str) -> None:
    """Predict the targets of RUN for every repertoire of CONTAINER, in the container's order.

    The table has the columns repertoire_id, split, target, label, probability, positive_class and called_class, the
    predicted class. The split says how RUN used a repertoire: train, validation or test, or "new" if RUN has not seen
    it. The predicted class depends on a cutoff of the probability, chosen on the validation repertoires.

    For test and new repertoires, shift is the distance from the training repertoires. If it is above 1, as in 5% of the
    training repertoires, shift_reason says what is unusual (depth, genes, lengths, residues, ...). resembles names a
    training repertoire that shares far more sequences with this one than chance explains.

    RUN is a run directory or a file of `deeprc pack`. Several runs predict together, as an ensemble: the prediction is
    the mean of their outputs (log-odds, or the numbers of a regression). If a repertoire was in the training fold of
    any run, its split is train; otherwise, if it was in the validation fold of any run, its split is validation. So
    train the runs with the same --fold and --seed, and each with another --validation-fold.

    \b
    Examples:
      deeprc predict runs/cmv new_cohort.h5 -o predictions.tsv
      deeprc predict cmv.deeprc new_cohort.h5 -o predictions.tsv
      deeprc predict runs/cmv-1 runs/cmv-2 runs/cmv-3 new_cohort.h5 -o predictions.tsv
    """
    from deeprc.datasets.dataset import open_dataset
    from deeprc.files import check_table_output
    from deeprc.runs.ensemble import load_ensemble
    from deeprc.runs.run import save_predictions

    check_table_output(Path(output), ["repertoire_id", "split", "target", "label", "probability"])
    trained = load_ensemble(runs, device=device)
    dataset = open_dataset(container)
    table = trained.predict(dataset, abstain=abstain)
    save_predictions(Path(output), table)
    empty = int(table[[name for name in ("probability", "prediction") if name in table]].isna().all(axis=1).sum())
    left = f", {empty} of them left empty" if abstain else ""
    click.echo(f"Wrote {len(table)} predictions for {len(dataset)} repertoires to {output}{left}")
