"""The command `deeprc simulate`: cohorts with implanted signals, and the LSTM for some of them."""

from __future__ import annotations

from pathlib import Path

import click

from deeprc.errors import InputError

__all__ = ["simulate"]

_COHORT = "cohort"


class _Group(click.Group):
    """A group of commands whose first argument may also be a recipe."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ("-h", "--help")):
            args = [_COHORT, *args]
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "RECIPE|FILE.yaml -o COHORT.h5 [OPTIONS] [KEY=VALUE]...")
        formatter.write_usage(ctx.command_path, "--list")
        formatter.write_usage(ctx.command_path, "train-lstm BACKGROUND -o MODEL.safetensors [OPTIONS]")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.commands[_COHORT].format_options(ctx, formatter)


@click.group(cls=_Group)
def simulate() -> None:
    """Simulate a cohort whose repertoires of one class carry an implanted signal.

    RECIPE is the name of a recipe (--list shows them, among them the cohorts of the paper) or a YAML file like theirs;
    KEY=VALUE changes a value of it. The container also stores which sequences carry the signal.

    \b
    Examples:
      deeprc simulate simulated-4 -o cohort.h5 --scale 0.01
      deeprc simulate simulated-0 -o cohort.h5 n_repertoires=200 sizes.mean=10000 sizes.sd=0 witness_rate=0.005
      deeprc simulate implanted-om-1 -o cohort.h5 --background real_cohort.h5
    """


@simulate.command(_COHORT, hidden=True)
@click.argument("recipe", required=False, metavar="RECIPE|FILE.yaml")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The container to write.")
@click.option(
    "--as-airr",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Also write the cohort as AIRR files with a metadata sheet.",
)
@click.option("--seed", type=int, help="Seed of every random choice.  [default: that of the recipe, or 0]")
@click.option("--scale", type=float, default=1.0, show_default=True, help="Factor for the number of repertoires.")
@click.option(
    "--background",
    type=click.Path(path_type=Path),
    help="Real sequences for a recipe that needs them: a container, a table or a list of sequences.",
)
@click.option("--carriers", type=click.Path(path_type=Path), help="A table of repertoires and their clones (cmv-like).")
@click.option("--list", "show", is_flag=True, help="List the recipes that come with deeprc.")
def cohort(
    recipe: str | None,
    overrides: tuple[str, ...],
    output: Path | None,
    as_airr: Path | None,
    seed: int | None,
    scale: float,
    background: Path | None,
    carriers: Path | None,
    show: bool,
) -> None:
    """Simulate a cohort."""
    from deeprc.datasets.preprocessing import check_container_output
    from deeprc.datasets.simulation import list_recipes, load_recipe, write_airr, write_container
    from deeprc.datasets.simulation.write import check_airr_folder

    if show:
        width = max(map(len, list_recipes()))
        for name, description in list_recipes().items():
            click.echo(f"{name:{width}}  {description}")
        return
    if recipe is None or (output is None and as_airr is None):
        raise InputError("expected a recipe (`deeprc simulate --list` shows them) and --output, or --as-airr, or both")
    if output is not None:
        check_container_output(output)
        if background is not None and output.exists() and background.exists() and output.samefile(background):
            raise InputError(f"{output}: is the file of --background; the simulated cohort needs another one")
    if as_airr is not None:
        check_airr_folder(as_airr)
    simulated, mapping = load_recipe(
        recipe, overrides, seed=seed, scale=scale, background=background, carriers=carriers
    )
    if output is not None:
        write_container(simulated, output, recipe=mapping)
        n = int(simulated.all_sizes.sum())
        click.echo(f"Wrote {simulated.n_repertoires} repertoires of {n:,} sequences to {output}")
    if as_airr is not None:  # last: if the folder exists, the command cannot be repeated
        sheet = write_airr(simulated, as_airr)
        click.echo(f"Wrote {simulated.n_repertoires} repertoires to {as_airr}/repertoires, and {sheet}")


@simulate.command("train-lstm")
@click.argument("background", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The model to write.")
@click.option("--hidden", type=int, default=96, show_default=True, help="Number of hidden units, a multiple of 16.")
@click.option("--epochs", type=int, default=3, show_default=True, help="Number of passes over the sequences.")
@click.option("--limit", type=int, help="Number of sequences to learn from, the first ones.  [default: all]")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of every random choice.")
def train_lstm(background: Path, output: Path, hidden: int, epochs: int, limit: int | None, seed: int) -> None:
    """Train an LSTM to generate sequences like those of BACKGROUND: a container, a table or a list.

    A recipe uses the model with `background.path=MODEL.safetensors`.
    """
    from deeprc.datasets.simulation.lstm_training import train_lstm as train

    train(
        background,
        output,
        hidden=hidden,
        epochs=epochs,
        limit=limit,
        seed=seed,
        progress=lambda epoch, loss: click.echo(f"epoch {epoch}: {loss:.4f} nats per residue, held out"),
    )
    click.echo(f"Wrote {output}")
