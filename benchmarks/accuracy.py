"""Accuracy of DeepRC and other methods on the same folds of simulated cohorts, whose true signals are known.

python benchmarks/accuracy.py [--recipes simulated-3,lstm-*] [--scale 0.04] [--seeds 3] [--preset deeprc] [KEY=VALUE]

Every seed draws a cohort, its five folds and the initial weights of the network. DeepRC trains on three folds, uses one
for early stopping and is tested on one, like `deeprc train`. The other methods learn from the first four, with settings
of the preset `quick` that are chosen on inner folds. `--methods ensemble` is an ensemble of four networks, each with
another of the four folds for early stopping. Each job that has ended is a file in `--output`. So the same call
continues where it stopped, and a call with other options uses the jobs that it shares with earlier calls.
"""

from __future__ import annotations

import fnmatch
import logging
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import torch
from accuracy_cohorts import N_FOLDS, Cohorts, Source
from accuracy_intervals import mean_interval
from accuracy_jobs import JUDGED, METHODS, Entry, Results, count_kmers, entries_of, measure
from accuracy_looks import check_seeds, record_look
from accuracy_ranking import MEASURES
from common import report

from deeprc.benchmarking.methods import split_names
from deeprc.cli.flags import name_flags
from deeprc.config import Config, NetworkConfig, TrainingConfig, load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.simulation import load_recipe
from deeprc.datasets.simulation.cohort import Cohort
from deeprc.datasets.simulation.recipe import recipes
from deeprc.device import resolve_device
from deeprc.errors import InputError, Terminated
from deeprc.files import write_text

_KNOWN = "known-motif"
_WITHOUT_KMERS = ("deeprc", "ensemble", "public-clones", "v-genes", "diversity", _KNOWN, "known-recipe")
_HIDDEN = ("entry", "tested", "members")  # columns that results.tsv does not have
_ON_REQUEST = ("ensemble", "gapped", "public-clones", "v-genes", "stack")
_logger = logging.getLogger(__name__)


class _Unusable(click.ClickException):
    """An error in the arguments: it is shown as one line with exit code 2, as in `deeprc`."""

    exit_code = 2


@click.command()
@click.option("--recipes", "recipe_names", multiple=True, help="Names or patterns.  [default: simulated-*]")
@click.option("--container", type=click.Path(path_type=Path), help="A container, instead of recipes.")
@click.option("--target", help="Target of the container: COLUMN or COLUMN=CLASS.")
@click.option("--group", help="Column of the container; repertoires with equal values are in one fold.")
@click.option(
    "--test", help="COLUMN=VALUE of the container: test on the repertoires with this value instead of a fold."
)
@click.option("--scale", default=0.04, show_default=True, help="Factor for the numbers of repertoires of recipes.")
@click.option(
    "--seeds", default="1", show_default=True, help="Number of seeds, from 0; or a list: 0,4 (4, is seed 4 alone)."
)
@click.option("--look", metavar="REASON", help="Report for which seeds 100 to 102 are used; looks.tsv lists it.")
@click.option("--folds", default="0", show_default=True, help="Indices of the test folds among 5: a list, or all.")
@click.option("--preset", "presets", multiple=True, default=("deeprc",), show_default=True, help="Preset of DeepRC.")
@click.option(
    "--methods", multiple=True, help=f"Some of {', '.join(METHODS)}.  [default: all but {', '.join(_ON_REQUEST)}]"
)
@click.option("--background", type=click.Path(path_type=Path), help="Real sequences, for recipes that need them.")
@click.option("--device", "device_name", default="auto", show_default=True, help="auto, cpu, cuda ...")
@click.option("--virtual/--stored", default=None, help="Make sequences when they are read.  [default: virtual on CUDA]")
@click.option("--keep", is_flag=True, help="Keep the containers that were written.")
@click.option(
    "--output", default="accuracy", show_default=True, type=click.Path(path_type=Path), help="Folder for results."
)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
def main(
    recipe_names: tuple[str, ...],
    container: Path | None,
    target: str | None,
    group: str | None,
    test: str | None,
    scale: float,
    seeds: str,
    look: str | None,
    folds: str,
    presets: tuple[str, ...],
    methods: tuple[str, ...],
    background: Path | None,
    device_name: str,
    virtual: bool | None,
    keep: bool,
    output: Path,
    overrides: tuple[str, ...],
) -> None:
    """Train, test and compare. Options with several names may be repeated, or be a list with commas."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    try:
        device = resolve_device(device_name)
        of_recipe, of_config = _split_overrides(overrides)
        configs = _configs(presets, of_config)
        numbers = _seeds(seeds)
        check_seeds(numbers, look)
        if container is None:
            if target or group or test:
                raise InputError("--target, --group and --test are for a --container; recipes have the target status")
            names = _recipe_names(recipe_names)
            sources = [_of_recipe(name, of_recipe, seed, scale, background) for name in names for seed in numbers]
        else:
            _check_container_alone(recipe_names, of_recipe, background, target)
            assert target is not None
            name = container.stem
            sources = [Source(name, seed, target, group, test, path=container) for seed in numbers]
        cohorts = Cohorts(output / "cohort", virtual=device.type == "cuda" if virtual is None else virtual, keep=keep)
        work = _Work(Results(output / "jobs"), cohorts, device, _methods(methods), configs, _folds(folds))
        if look is not None:
            record_look([source.name for source in sources], numbers, work.methods, [*presets, *overrides], look)
        output.mkdir(parents=True, exist_ok=True)
        found = work.run(sources)
    except InputError as error:
        raise _Unusable(name_flags(str(error))) from error
    _tell(found, output, device)
    if work.failures:
        raise click.ClickException(f"{work.failures} jobs failed; the same call tries them again")


class _Work:
    """The execution of all jobs that have no outcome yet, cohort by cohort."""

    def __init__(
        self,
        results: Results,
        cohorts: Cohorts,
        device: torch.device,
        methods: Sequence[str],
        configs: Mapping[str, Config],
        folds: Sequence[int],
    ) -> None:
        self.results, self.cohorts, self.device = results, cohorts, device
        self.methods, self.configs, self.folds = methods, configs, folds
        self.failures = 0

    def run(self, sources: Sequence[Source]) -> pd.DataFrame:
        """Return a table with a row per job, see `measure`; the table of each recipe is shown when it is finished."""
        rows: list[dict[str, Any]] = []
        for number, source in enumerate(sources):
            rows += self._of_cohort(source)
            last = number + 1 == len(sources) or sources[number + 1].name != source.name
            done = [row for row in rows if row["cohort"] == source.name]
            if last and done:
                _show(_summary(pd.DataFrame(done)))
        if not rows:
            raise InputError("nothing was measured")
        return pd.DataFrame(rows)

    def _of_cohort(self, source: Source) -> list[dict[str, Any]]:
        entries, left_out = entries_of(source, self.methods, self.configs)
        for name, reason in left_out.items():
            click.echo(f"{source.name}: {name} is left out: {reason}", err=True)
        places = [(entry, fold) for fold in self.folds for entry in entries]
        known = {(entry.name, fold): self._known(entry, source, fold) for entry, fold in places}
        waiting = [(entry, fold) for entry, fold in places if known[entry.name, fold] is None]
        if waiting:
            with self.cohorts.opened(source) as dataset:
                if any(not entry.name.startswith(_WITHOUT_KMERS) for entry, _ in waiting):
                    click.echo(f"{source.name} seed {source.seed}: 4-mers: {count_kmers(dataset):.1f} s", err=True)
                for entry, fold in waiting:
                    known[entry.name, fold] = self._measured(entry, source, dataset, fold)
        return [
            row
            for entry, fold in places
            if (found := known[entry.name, fold])
            for row in _with_members({**_place(entry, source, fold), "method": entry.label, **found})
        ]

    def _known(self, entry: Entry, source: Source, fold: int) -> dict[str, Any] | None:
        found = self.results.get(_place(entry, source, fold), entry.key(source, fold, self.device))
        # older versions did not store the predictions from which the interval of a container is computed
        return None if found is not None and source.path is not None and "tested" not in found else found

    def _measured(self, entry: Entry, source: Source, dataset: RepertoireDataset, fold: int) -> dict[str, Any] | None:
        title = f"{source.name} seed {source.seed} fold {fold} {entry.label}"
        try:
            outcome = measure(entry, source, dataset, fold, self.device)
        except Terminated:
            raise
        except Exception as error:  # the other jobs continue
            self.failures += 1
            _logger.debug("%s", traceback.format_exc())
            click.echo(f"{title}: failed: {' '.join(f'{type(error).__name__}: {error}'.split())}", err=True)
            return None
        self.results.put(_place(entry, source, fold), entry.key(source, fold, self.device), outcome)
        click.echo(f"{title}: AUC {outcome['auc']:.4f}, {outcome['seconds']:.1f} s", err=True)
        return outcome


def _with_members(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the row of the table, and for a stack also a row for each member."""
    shared = {name: row[name] for name in ("cohort", "seed", "fold", "n_train", "n_positive", "n_negative")}
    tested = row.get("tested")
    rows = [row]
    for name, found in row.get("members", {}).items():
        title = {"entry": f"{row['entry']}/{name}", "method": f"{row['method']}: {name}"}
        measured = {key: value for key, value in found.items() if key not in ("test_auc", "scores")}
        if tested is not None:
            measured["tested"] = {**tested, "score": found["scores"]}
        rows.append({**shared, **title, **measured, "validation_auc": found["auc"], "auc": found["test_auc"]})
    return rows


def _place(entry: Entry, source: Source, fold: int) -> dict[str, Any]:
    return {"cohort": source.name, "seed": source.seed, "fold": fold, "entry": entry.name}


def _summary(jobs: pd.DataFrame) -> pd.DataFrame:
    """Return a table by cohort and method: means over seeds and folds, intervals, and differences to known motif."""
    truth = jobs[jobs["entry"] == _KNOWN].set_index(["cohort", "seed", "fold"])["auc"]
    places = pd.MultiIndex.from_frame(jobs[["cohort", "seed", "fold"]])
    jobs = jobs.assign(to_known_motif=jobs["auc"].to_numpy() - truth.reindex(places).to_numpy(np.float64))
    rows = []
    for (cohort, _), part in jobs.groupby(["cohort", "entry"], sort=False):
        low, high = mean_interval(part)
        optional = (*MEASURES, *JUDGED, "seeded_kernels", "updates")  # columns that not every method has
        rows.append(
            {
                "cohort": cohort,
                "method": part["method"].iloc[0],
                "jobs": len(part),
                "auc": part["auc"].mean(),
                "sd": part["auc"].std(),
                "ci_low": low,
                "ci_high": high,
                "to_known_motif": part["to_known_motif"].mean(),
                **{name: part[name].astype(float).mean() if name in part else np.nan for name in optional},
                "seconds": part["seconds"].mean(),
            }
        )
    return pd.DataFrame(rows)


def _means(summary: pd.DataFrame) -> pd.DataFrame:
    """Return a table by method: means over cohorts, and the worst difference to the known motif with its cohort."""
    rows = []
    for method, part in summary.groupby("method", sort=False):
        differences = part.set_index("cohort")["to_known_motif"].dropna()
        rows.append(
            {
                "method": method,
                "cohorts": len(part),
                "auc": part["auc"].mean(),
                **{name: part[name].mean() for name in (*MEASURES[1:], *JUDGED)},
                "to_known_motif": differences.mean(),
                "worst_to_known_motif": differences.min(),
                "worst_cohort": None if differences.empty else differences.idxmin(),
                "seconds": part["seconds"].mean(),
                "longest_seconds": part["seconds"].max(),
            }
        )
    return pd.DataFrame(rows)


def _show(table: pd.DataFrame) -> None:
    click.echo(table.to_string(index=False, float_format=lambda value: f"{value:,.4g}"), err=True)


def _tell(jobs: pd.DataFrame, output: Path, device: torch.device) -> None:
    """Write `results.tsv` and `table.md`, and print the tables and their JSON lines."""
    summary = _summary(jobs)
    means = _means(summary)
    shown = jobs.drop(columns=[name for name in _HIDDEN if name in jobs])
    write_text(output / "results.tsv", shown.to_csv(sep="\t", index=False))
    write_text(output / "table.md", _markdown(summary) + "\n" + _markdown(means))
    report("accuracy", _plain(summary), device)
    report("accuracy, means over cohorts", _plain(means), device)


def _plain(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows in which missing values are None, for JSON."""
    rows = table.to_dict("records")
    return [{str(name): None if pd.isna(value) else value for name, value in row.items()} for row in rows]


def _markdown(table: pd.DataFrame) -> str:
    shown = {name: [_cell(str(name), value) for value in table[name]] for name in table}
    lines = [" | ".join(map(str, shown)), " | ".join("---" for _ in shown)]
    lines += [" | ".join(row) for row in zip(*shown.values(), strict=True)]
    return "".join(f"| {line} |\n" for line in lines)


def _cell(name: str, value: Any) -> str:
    if pd.isna(value):
        return ""
    if not isinstance(value, float):
        return str(value)
    if "seconds" in name or name in ("updates", "seeded_kernels", "true_sequences"):
        return f"{value:,.1f}"
    return f"{value:+.3f}" if "known_motif" in name else f"{value:.3f}"


def _split_overrides(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the overrides of the recipe and those of DeepRC's configuration."""
    of_config = {
        name
        for section, kind in (("network", NetworkConfig), ("training", TrainingConfig))
        for field in fields(kind)
        for name in (field.name, f"{section}.{field.name}")
    }
    of_recipe = {"witness_rate", *(field.name for field in fields(Cohort))} - {"seed", "name"}
    parts: tuple[list[str], list[str]] = ([], [])
    for override in overrides:
        key, equals, _ = override.partition("=")
        if not equals:
            raise InputError(f"{override!r}: expected KEY=VALUE; several recipes are a list: --recipes A,B")
        if key == "seed":
            raise InputError("seed: --seeds says it, for the cohort and for training")
        if key in of_config:
            parts[1].append(override)
        elif key.partition(".")[0] in of_recipe:
            parts[0].append(override)
        else:
            raise InputError(f"{key}: a key neither of recipes ({', '.join(sorted(of_recipe))}) nor of configurations")
    return parts


def _configs(presets: Sequence[str], overrides: Sequence[str]) -> dict[str, Config]:
    """Return DeepRC's configurations, by their names in tables."""
    configs: dict[str, Config] = {}
    for preset in dict.fromkeys(split_names(presets)):
        name = Path(preset).stem if preset.endswith((".yaml", ".yml")) else preset
        if name in configs:
            raise InputError(f"--preset {preset}: expected a name of its own, {name!r} is another one's")
        configs[name] = load_config(preset, overrides)
    return configs


def _recipe_names(texts: Sequence[str]) -> list[str]:
    known = list(recipes())
    names = []
    for text in split_names(texts) or ["simulated-*"]:
        found = fnmatch.filter(known, text) if set(text) & set("*?[") else [text]
        if not found:
            raise InputError(f"--recipes {text}: there is none; `deeprc simulate --list` shows all")
        names += found
    return list(dict.fromkeys(names))


def _of_recipe(name: str, overrides: Sequence[str], seed: int, scale: float, background: Path | None) -> Source:
    place = None if background is None else background.absolute()
    cohort, mapping = load_recipe(name, overrides, seed=seed, scale=scale, background=place)
    return Source(name, seed, test="part=test" if cohort.test_share else None, cohort=cohort, mapping=mapping)


def _check_container_alone(
    recipe_names: Sequence[str], of_recipe: Sequence[str], background: Path | None, target: str | None
) -> None:
    if recipe_names or background is not None:
        raise InputError("--container: takes the place of --recipes and --background")
    if of_recipe:
        raise InputError(f"{of_recipe[0]}: a key of recipes; a --container has its repertoires")
    if target is None:
        raise InputError("--container: expected a --target")


def _methods(texts: Sequence[str]) -> list[str]:
    names = split_names(texts) or [name for name in METHODS if name not in _ON_REQUEST]
    for name in names:
        if name not in METHODS:
            raise InputError(f"--methods {name}: expected some of {', '.join(METHODS)}")
    return list(dict.fromkeys(names))


def _seeds(text: str) -> list[int]:
    numbers = _numbers("--seeds", text)
    return numbers if "," in text else list(range(numbers[0]))


def _folds(text: str) -> list[int]:
    numbers = list(range(N_FOLDS)) if text == "all" else _numbers("--folds", text)
    if max(numbers) >= N_FOLDS:
        raise InputError(f"--folds {text}: expected 0 to {N_FOLDS - 1}, or all")
    return numbers


def _numbers(option: str, text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isascii() and part.isdigit() for part in parts):
        raise InputError(f"{option} {text}: expected whole numbers from 0, with commas between them")
    return list(dict.fromkeys(map(int, parts)))


if __name__ == "__main__":
    main()
