"""The command `deeprc predict`: predictions for a cohort."""

from __future__ import annotations

from pathlib import Path

import click

from deeprc.cli.options import device_option, scheduler_option
from deeprc.cli.paths import runs_and_container

__all__ = ["predict"]


@click.command()
@click.option("-o", "--output", required=True, metavar="FILE", help="The table to write (TSV).")
@click.option(
    "--abstain",
    is_flag=True,
    help="Leave a prediction empty if its 'shift' is above 1, as in 5% of the training repertoires.",
)
@scheduler_option
@device_option
@runs_and_container
def predict(
    runs: tuple[str, ...], container: str, output: str, abstain: bool, scheduler: str | None, device: str
) -> None:
    """Predict the targets of RUN for every repertoire of CONTAINER, in the container's order.

    The table has the columns "repertoire_id", "split", "target", "label", "probability", "positive_class" and
    "called_class", the predicted class. "split" says how RUN used a repertoire: train, validation or test, or "new" if
    RUN has not seen it. The predicted class depends on a cutoff of the probability, which was chosen with the
    validation repertoires.

    For test and new repertoires, "shift" is the distance from the training repertoires. If it is above 1, as in 5% of
    the training repertoires, "shift_reason" says what is unusual (depth, genes, lengths, residues, ...). "resembles"
    names a training or validation repertoire that shares far more junctions with this one than expected by chance.

    RUN is a run directory, a file of `deeprc pack`, or a folder of several runs that were trained alike (`deeprc
    train --validation-fold all`, `deeprc cv`). Several runs predict together, as an ensemble: the prediction is the
    mean of their outputs (log-odds, or the predicted numbers of a numeric target). If a repertoire was in the
    training fold of any run, its split is train; otherwise, if it was in the validation fold of any run, its split is
    validation. So train the runs with the same --fold and --seed, but each with a different --validation-fold.

    With --scheduler, the workers of a Dask cluster compute the outputs, some repertoires at a time. Only "shift" is
    measured on this machine.

    \b
    Examples:
      deeprc predict runs/cmv new_cohort.h5 -o predictions.tsv
      deeprc predict cmv.deeprc new_cohort.h5 -o predictions.tsv
      deeprc predict runs/cmv-cv new_cohort.h5 -o predictions.tsv
      deeprc predict runs/cmv-1 runs/cmv-2 runs/cmv-3 new_cohort.h5 -o predictions.tsv
    """
    from deeprc.datasets.dataset import open_dataset
    from deeprc.errors import InputError
    from deeprc.files import check_table_output
    from deeprc.jobs import Workers, check_scheduler
    from deeprc.runs.ensemble import load_ensemble
    from deeprc.runs.run import save_predictions
    from deeprc.runs.shares import DividedCohort

    if Path(output).name == "predictions.tsv" and (Path(output).parent / "metrics.json").exists():
        raise InputError(
            f"{output}: holds the predictions of a run or a cross-validation, to which its metrics belong; choose a "
            "different output"
        )
    check_table_output(Path(output), ["repertoire_id", "split", "target", "label", "probability"])
    if scheduler is not None:
        check_scheduler(scheduler)
    trained = load_ensemble(runs, device=device if scheduler is None else "cpu")
    dataset = open_dataset(container)
    outputs = None
    if scheduler is not None:
        outputs = DividedCohort(trained, dataset, Workers(scheduler=scheduler), device).compute_outputs()
    table = trained.predict(dataset, abstain=abstain, outputs=outputs)
    save_predictions(Path(output), table)
    empty = int(table[[name for name in ("probability", "prediction") if name in table]].isna().all(axis=1).sum())
    empty_text = f", {empty} of them left empty" if abstain else ""
    click.echo(f"Wrote {len(table)} predictions for {len(dataset)} repertoires to {output}{empty_text}")
