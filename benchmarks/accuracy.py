"""Accuracy of DeepRC and other methods on the same folds of simulated cohorts, whose true signals are known.

python benchmarks/accuracy.py [--recipes simulated-3,lstm-*] [--scale 0.04] [--seeds 3] [--preset deeprc] [KEY=VALUE]

Every seed draws a cohort, its five folds and the initial weights of the network. DeepRC trains on three folds, uses one
for early stopping and is tested on one, like `deeprc train`. The other methods learn from the first four, with settings
of the preset `quick` that are chosen on inner folds. `--methods ensemble` is an ensemble of four networks, each with
another of the four folds for early stopping. Each job that has ended is a file in `--output`. A training of `deeprc` or
`ensemble` also has a checkpoint there. So the same call continues where it stopped, and a call with other options uses
the jobs that it shares with earlier calls.
`--scheduler ADDRESS` gives the jobs to a Dask cluster, those of all seeds and folds of a recipe at once. So `--output`
must have room for the containers of all seeds, at a path where the workers find it.
"""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import fields
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import click
import pandas as pd
import torch
from accuracy_cohorts import N_FOLDS, Cohorts, Source
from accuracy_jobs import METHODS, Entry, Job, count_kmers, list_entries, measure, measure_job
from accuracy_looks import NAMES_OF_RESERVED, check_seeds, record_look
from accuracy_results import Results
from accuracy_tables import KNOWN, show, summarise, tell

from deeprc.benchmarking.methods import split_names
from deeprc.cli.flags import name_flags
from deeprc.config import Config, NetworkConfig, TrainingConfig, load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.simulation import load_recipe
from deeprc.datasets.simulation.cohort import Cohort
from deeprc.datasets.simulation.recipe import list_recipes
from deeprc.device import resolve_device
from deeprc.errors import InputError
from deeprc.jobs import HERE, Workers, check_scheduler, get_result, run_jobs

_WITHOUT_KMERS = ("deeprc", "ensemble", "public-clones", "v-genes", "diversity", KNOWN, "known-recipe")
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
@click.option(
    "--look", metavar="REASON", help=f"Report for which seeds {NAMES_OF_RESERVED} are used; looks.tsv lists it."
)
@click.option("--folds", default="0", show_default=True, help="Indices of the test folds among 5: a list, or all.")
@click.option("--preset", "presets", multiple=True, default=("deeprc",), show_default=True, help="Preset of DeepRC.")
@click.option(
    "--methods", multiple=True, help=f"Some of {', '.join(METHODS)}.  [default: all but {', '.join(_ON_REQUEST)}]"
)
@click.option("--background", type=click.Path(path_type=Path), help="Real sequences, for recipes that need them.")
@click.option("--device", "device_name", default="auto", show_default=True, help="auto, cpu, cuda ...")
@click.option("--scheduler", metavar="ADDRESS", help="Run the jobs on the Dask cluster with this scheduler.")
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
    scheduler: str | None,
    virtual: bool | None,
    keep: bool,
    output: Path,
    overrides: tuple[str, ...],
) -> None:
    """Train, test and compare. Options with several names may be repeated, or be a list with commas."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    try:
        if scheduler is not None:
            check_scheduler(scheduler)
        on_workers = scheduler is not None and device_name != "auto"
        device = torch.device(device_name) if on_workers else resolve_device(device_name)
        of_recipe, of_config = _split_overrides(overrides)
        configs = _load_configs(presets, of_config)
        numbers = _parse_seeds(seeds)
        check_seeds(numbers, look)
        if container is None:
            if target or group or test:
                raise InputError("--target, --group and --test are for a --container; recipes have the target status")
            names = _parse_recipe_names(recipe_names)
            sources = [_make_source(name, of_recipe, seed, scale, background) for name in names for seed in numbers]
        else:
            _check_container_alone(recipe_names, of_recipe, background, target)
            assert target is not None
            name = container.stem
            sources = [Source(name, seed, target, group, test, path=container.absolute()) for seed in numbers]
        cohorts = Cohorts(
            output.absolute() / "cohort", virtual=device.type == "cuda" if virtual is None else virtual, keep=keep
        )
        workers = HERE if scheduler is None else Workers(scheduler=scheduler, modules=Path(__file__).parent.absolute())
        work = _Work(
            Results(output.absolute() / "jobs"),
            cohorts,
            device,
            workers,
            _parse_methods(methods),
            configs,
            _parse_folds(folds),
        )
        if look is not None:
            record_look([source.name for source in sources], numbers, work.methods, [*presets, *overrides], look)
        output.mkdir(parents=True, exist_ok=True)
        found = work.run(sources)
    except InputError as error:
        raise _Unusable(name_flags(str(error))) from error
    tell(found, output, device if scheduler is None else torch.device("cpu"))
    if work.failures:
        raise click.ClickException(f"{work.failures} jobs failed; the same call tries them again")


class _Work:
    """The execution of all jobs without an outcome, cohort by cohort; on a cluster, all seeds of a recipe at once."""

    def __init__(
        self,
        results: Results,
        cohorts: Cohorts,
        device: torch.device,
        workers: Workers,
        methods: Sequence[str],
        configs: Mapping[str, Config],
        folds: Sequence[int],
    ) -> None:
        self.results, self.cohorts, self.device, self.workers = results, cohorts, device, workers
        self.methods, self.configs, self.folds = methods, configs, folds
        self.failures = 0

    def run(self, sources: Sequence[Source]) -> pd.DataFrame:
        """Return a table with a row per job, see `measure`; the table of each recipe is shown when it is finished."""
        rows: list[dict[str, Any]] = []
        for _, same in groupby(sources, key=lambda source: source.name):
            of_recipe = list(same)
            together = [[job] for job in of_recipe] if self.workers.scheduler is None else [of_recipe]
            done = [row for some in together for row in self._measure_cohorts(some)]
            if done:
                show(summarise(pd.DataFrame(done)))
            rows += done
        if not rows:
            raise InputError("nothing was measured")
        return pd.DataFrame(rows)

    def _measure_cohorts(self, sources: Sequence[Source]) -> list[dict[str, Any]]:
        """Return the rows of the table for some cohorts; only results that are not stored yet are measured."""
        places = [(source, entry, fold) for source in sources for entry, fold in self._list_measurements(source)]
        known = [self._load_result(entry, source, fold) for source, entry, fold in places]
        waiting = [index for index, outcome in enumerate(known) if outcome is None]
        needed = list({places[index][0].seed: places[index][0] for index in waiting}.values())
        with self.cohorts.open_cohort(needed) as datasets:
            by_seed = {source.seed: dataset for source, dataset in zip(needed, datasets, strict=True)}
            jobs = []
            for index in waiting:
                source, entry, fold = places[index]
                container, place = self.cohorts.place(source), _make_result_place(entry, source, fold)
                checkpoints = self.results.locate_checkpoints(place, entry.key(source, fold, self.device))
                jobs.append(Job(index, entry, source, fold, str(self.device), container, checkpoints))
            for source in needed:
                if self._needs_kmers([job for job in jobs if job.source is source]):
                    seconds = count_kmers(by_seed[source.seed])
                    click.echo(f"{source.name} seed {source.seed}: 4-mers: {seconds:.1f} s", err=True)
            for job, outcome in self._measure_job(jobs, by_seed):
                known[job.index] = outcome
        return [
            row
            for (source, entry, fold), found in zip(places, known, strict=True)
            if found
            for row in _add_member_rows({**_make_result_place(entry, source, fold), "method": entry.label, **found})
        ]

    def _needs_kmers(self, jobs: Sequence[Job]) -> bool:
        """Return whether 4-mers are counted here: those of a cohort without a container cannot be sent to workers."""
        can_be_used = self.workers.scheduler is None or jobs[0].container is not None
        return can_be_used and any(not job.entry.name.startswith(_WITHOUT_KMERS) for job in jobs)

    def _list_measurements(self, source: Source) -> list[tuple[Entry, int]]:
        """Return each pair of a method and a fold that is measured on a cohort."""
        entries, left_out = list_entries(source, self.methods, self.configs)
        for name, reason in left_out.items():
            click.echo(f"{source.name}: {name} is left out: {reason}", err=True)
        return [(entry, fold) for fold in self.folds for entry in entries]

    def _load_result(self, entry: Entry, source: Source, fold: int) -> dict[str, Any] | None:
        found = self.results.get(_make_result_place(entry, source, fold), entry.key(source, fold, self.device))
        # older versions did not store the predictions from which the interval of a container is computed
        return None if found is not None and source.path is not None and "tested" not in found else found

    def _measure_job(
        self, jobs: Sequence[Job], datasets: Mapping[int, RepertoireDataset]
    ) -> Iterator[tuple[Job, dict[str, Any] | None]]:
        """Yield the jobs when they have ended, with their outcomes, which are stored; None if a job has failed."""
        is_here = self.workers.scheduler is None
        function = partial(_measure_here, datasets, self.device) if is_here else measure_job
        with closing(run_jobs(function, jobs, self.workers, hint="the same call goes on with the other jobs")) as ended:
            for job, future in ended:
                yield job, self._store_outcome(job, future)

    def _store_outcome(self, job: Job, future: Future[dict[str, Any]]) -> dict[str, Any] | None:
        """Store the outcome of a job that has ended, and print it; return None if the job has failed."""
        entry, source, fold = job.entry, job.source, job.fold
        title = f"{source.name} seed {source.seed} fold {fold} {entry.label}"
        place, key = _make_result_place(entry, source, fold), entry.key(source, fold, self.device)
        try:
            outcome = get_result(future, title)
        except Exception as error:  # the other jobs continue
            self.failures += 1
            self.results.forget_checkpoints(place, key)
            _logger.debug("%s", title, exc_info=True)
            text = str(error).removeprefix(f"{title}: ")
            click.echo(f"{title}: failed: {' '.join(f'{type(error).__name__}: {text}'.split())}", err=True)
            return None
        self.results.put(place, key, outcome)
        click.echo(f"{title}: AUC {outcome['auc']:.4f}, {outcome['seconds']:.1f} s", err=True)
        return outcome


def _measure_here(datasets: Mapping[int, RepertoireDataset], device: torch.device, job: Job) -> dict[str, Any]:
    return measure(job.entry, job.source, datasets[job.source.seed], job.fold, device, job.checkpoints)


def _add_member_rows(row: dict[str, Any]) -> list[dict[str, Any]]:
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


def _make_result_place(entry: Entry, source: Source, fold: int) -> dict[str, Any]:
    """Return the values that name the folder of a result: cohort, seed, fold and method."""
    return {"cohort": source.name, "seed": source.seed, "fold": fold, "entry": entry.name}


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


def _load_configs(presets: Sequence[str], overrides: Sequence[str]) -> dict[str, Config]:
    """Return DeepRC's configurations, by their names in tables."""
    configs: dict[str, Config] = {}
    for preset in dict.fromkeys(split_names(presets)):
        name = Path(preset).stem if preset.endswith((".yaml", ".yml")) else preset
        if name in configs:
            raise InputError(f"--preset {preset}: expected a name of its own, {name!r} is another one's")
        configs[name] = load_config(preset, overrides)
    return configs


def _parse_recipe_names(texts: Sequence[str]) -> list[str]:
    known = list(list_recipes())
    names = []
    for text in split_names(texts) or ["simulated-*"]:
        found = fnmatch.filter(known, text) if set(text) & set("*?[") else [text]
        if not found:
            raise InputError(f"--recipes {text}: there is none; `deeprc simulate --list` shows all")
        names += found
    return list(dict.fromkeys(names))


def _make_source(name: str, overrides: Sequence[str], seed: int, scale: float, background: Path | None) -> Source:
    place = None if background is None else background.absolute()
    cohort, mapping = load_recipe(name, overrides, seed=seed, scale=scale, background=place)
    return Source(name, seed, test="part=test" if cohort.test_share else None, cohort=cohort, mapping=mapping)


def _check_container_alone(
    recipe_names: Sequence[str], of_recipe: Sequence[str], background: Path | None, target: str | None
) -> None:
    """Raise an error if options of recipes are given beside a container."""
    if recipe_names or background is not None:
        raise InputError("--container: takes the place of --recipes and --background")
    if of_recipe:
        raise InputError(f"{of_recipe[0]}: a key of recipes; a --container has its repertoires")
    if target is None:
        raise InputError("--container: expected a --target")


def _parse_methods(texts: Sequence[str]) -> list[str]:
    names = split_names(texts) or [name for name in METHODS if name not in _ON_REQUEST]
    for name in names:
        if name not in METHODS:
            raise InputError(f"--methods {name}: expected some of {', '.join(METHODS)}")
    return list(dict.fromkeys(names))


def _parse_seeds(text: str) -> list[int]:
    numbers = _parse_numbers("--seeds", text)
    return numbers if "," in text else list(range(numbers[0]))


def _parse_folds(text: str) -> list[int]:
    numbers = list(range(N_FOLDS)) if text == "all" else _parse_numbers("--folds", text)
    if max(numbers) >= N_FOLDS:
        raise InputError(f"--folds {text}: expected 0 to {N_FOLDS - 1}, or all")
    return numbers


def _parse_numbers(option: str, text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isascii() and part.isdigit() for part in parts):
        raise InputError(f"{option} {text}: expected whole numbers from 0, with commas between them")
    return list(dict.fromkeys(map(int, parts)))


if __name__ == "__main__":
    main()
