"""Origin of a run: the commands that make it again, its settings, versions, and sizes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from deeprc.config import Config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.documents import MAX_YAML_BYTES, read_json, read_text, validate
from deeprc.errors import InputError
from deeprc.evaluation.splits import NEW, PARTS
from deeprc.interpretation.report.page import DASH, Cell, Column, Table, make_number_cell, make_swatch, make_text_cell
from deeprc.runs.performance import PART_NAMES, Performance
from deeprc.runs.predictor import Predictor
from deeprc.runs.run import Run, describe_environment
from deeprc.runs.run_settings import RunSettings
from deeprc.settings import format_setting
from deeprc.shift.sketches import SKETCHES_FILE
from deeprc.tasks import Task

__all__ = [
    "describe_origin",
    "format_adjust_options",
    "format_train_command",
    "list_cohort_facts",
    "make_sizes_table",
]


def describe_origin(
    predictor: Predictor,
    dataset: RepertoireDataset,
    output: Path,
    top: int,
    databases: Sequence[str],
    host: str | None,
) -> dict[str, Any]:
    """Return the content of the template about how model and report were made, and can be made again."""
    runs, members = predictor.runs, predictor.model.members
    names = [member.name if len(runs) > 1 else "" for member in members]
    settings = [_make_settings_table(member.config, i, names[i - 1]) for i, member in enumerate(members, start=1)]
    report_command = ""
    if runs:
        report_command = _format_report_command(runs, dataset, output, top) + _format_database_options(databases, host)
    now = describe_environment(members[0].device)
    return {
        "settings": [table for table in settings if table is not None],
        "train_commands": [
            format_train_command(run.settings, str(_choose_folder(run)), has_sketches=_has_sketches(run))
            for run in runs
        ],
        "report_command": report_command,
        "fingerprints": list(dict.fromkeys(run.settings.fingerprint for run in runs)),
        "versions": _make_versions_table({run.model.name: _read_environment(run) for run in runs}, now),
        "configs": _list_configurations(predictor),
    }


def _list_configurations(predictor: Predictor) -> list[tuple[str, str]]:
    """Return a title and the text of the configuration of each run, or of a model that was fitted in Python."""
    if not predictor.runs:
        configs = [member.config.to_mapping() for member in predictor.model.members]
        return [("The configuration", yaml.safe_dump(config, sort_keys=False)) for config in configs]
    several = len(predictor.runs) > 1
    titles = ["config.yaml" + (f" of {run.source}" if several else "") for run in predictor.runs]
    texts = [read_text(run.path / "config.yaml", limit=MAX_YAML_BYTES) for run in predictor.runs]
    return list(zip(titles, texts, strict=True))


def format_adjust_options(columns: Sequence[str]) -> list[str]:
    """Return the words of a command for the columns to adjust for; a name with a comma is in quotes."""
    names = [f'"{column.replace(chr(34), chr(34) * 2)}"' if "," in column else column for column in columns]
    return [word for name in names for word in ("--adjust-for", name)]


def _format_report_command(runs: Sequence[Run], dataset: RepertoireDataset, output: Path, top: int) -> str:
    folders = [str(run.source) for run in runs]
    words = ["deeprc", "report", *folders, str(dataset.container.path), "-o", str(output), "--top", str(top)]
    return shlex.join(words)


def _choose_folder(run: Run) -> Path:
    """Return the folder in which a run is trained again; for a packed run, a folder beside its file."""
    return run.path if run.bundle is None else run.source.with_suffix("")


def _format_database_options(databases: Sequence[str], host: str | None) -> str:
    words = [word for path in databases for word in ("--database", path)]
    if databases and host != "human":
        words += ["--host", host or "any"]
    return f" {shlex.join(words)}" if words else ""


def _has_sketches(run: Run) -> bool:
    """Return whether a run stores hashes of its training repertoires, which a packed run has lost."""
    return run.bundle is not None or (run.path / SKETCHES_FILE).exists()


def format_train_command(settings: RunSettings, output: str, *, has_sketches: bool = True) -> str:
    """Return the command that trains a run with these settings again, quoted for a POSIX shell."""
    options = settings.split_options
    words = ["deeprc", "train", settings.cohort]
    words += [f"{name}={format_setting(value)}" for name, value in settings.config.changes().items()]
    for target in settings.targets:
        words += ["--target", target]
    words += ["--folds", str(options.folds), "--fold", str(options.fold)]
    if options.validation_fold is not None:
        words += ["--validation-fold", str(options.validation_fold)]
    if options.test is not None:
        words += ["--test", options.test]
    if options.group_by is not None:
        words += ["--group-by", options.group_by]
    words += format_adjust_options(options.adjust_for)
    words += [] if has_sketches else ["--no-sketches"]
    words += ["--seed", str(settings.seed), "--device", settings.device, "--output", output]
    return shlex.join(words)


def _make_settings_table(config: Config, table_index: int = 1, name: str = "") -> Table | None:
    """Return the table of the settings that differ from the default preset; None if none differs.

    Parameters
    ----------
    config
        Configuration of a model.
    table_index
        Index of the table among those of all models, from 1.
    name
        Name of the model, if there are several.
    """
    default = Config()
    rows = [
        [
            make_text_cell(name_),
            make_text_cell(format_setting(setting)),
            make_text_cell(format_setting(default.value(name_))),
        ]
        for name_, setting in config.changes().items()
    ]
    columns = [
        Column("Setting", is_number=False),
        Column("This run", is_number=False),
        Column("Default", is_number=False),
    ]
    caption = "Settings that differ from the default" + (f": {name}" if name else "")
    table_id = "settings" if table_index == 1 else f"settings-{table_index}"
    return Table(table_id, caption, columns, rows) if rows else None


def list_cohort_facts(dataset: RepertoireDataset) -> list[tuple[str, str]]:
    """Return facts about the container, as pairs of a term and a text."""
    container, n = dataset.container, dataset.n_sequences
    genes = [name[0].upper() for name in dataset.gene_fields]
    facts = [
        ("File", str(container.path)),
        ("Made", f"by {container.created_by} from {container.source}"),
        ("Repertoires", f"{len(dataset):,}"),
        ("Sequences", f"{int(n.sum()):,}" + _describe_spread(n)),
        ("Genes", f"{' and '.join(genes)} genes of the sequences are known" if genes else "not known"),
    ]
    if container.simulation is not None:
        facts.append(("Simulated", "yes; the signal is described under “Everything the container holds”"))
    return facts


def _describe_spread(n: np.ndarray[Any, np.dtype[np.int64]]) -> str:
    if len(n) == 0:
        return ""
    return f"; per repertoire {int(n.min()):,} to {int(n.max()):,}, median {float(np.median(n)):,.0f}"


def make_sizes_table(
    performance: Performance,
    tasks: Sequence[Task],
    n_sequences: np.ndarray[Any, np.dtype[np.int64]],
    colours_by_target: Mapping[str, Mapping[str, int]],
) -> Table:
    """Return the table of repertoires by class, and of sequences, by part of the split.

    `colours_by_target` has the index of each class, see `index_classes`.
    """
    columns = [Column("Split", is_number=False), Column("Repertoires"), Column("Sequences")]
    several = len(tasks) > 1
    counted = []
    for i, task in enumerate(tasks):
        prefix = f"{task.column}: " if several else ""
        if task.kind == "regression":
            columns.append(Column(f"{prefix}with a value"))
            counted.append(~np.isnan(performance.labels[:, i]))
            continue
        columns += [
            Column(make_swatch(colours_by_target[task.name][name]) + (prefix + name)) for name in task.class_names
        ]
        counted += [performance.labels[:, i] == c for c in range(len(task.class_names))]
        columns.append(Column(f"{prefix}no label"))
        counted.append(np.isnan(performance.labels[:, i]))
    rows = []
    for part in (*PARTS, NEW):
        on = performance.is_in(part)
        if on.any() or part != NEW:
            counts: list[Cell] = [make_number_cell(int((on & has_label).sum()), ",d") for has_label in counted]
            rows.append(
                [
                    make_text_cell(PART_NAMES[part]),
                    make_number_cell(int(on.sum()), ",d"),
                    make_number_cell(int(n_sequences[on].sum()), ",d"),
                    *counts,
                ]
            )
    return Table("sizes", "Repertoires in each part of the split", columns, rows)


def _read_environment(run: Run) -> dict[str, Any]:
    """Return the content of `environment.json`; empty if it is missing or damaged."""
    try:
        file = Path(run.path) / "environment.json"
        environment: _Environment = validate(read_json(file), _Environment, str(file))
    except InputError:
        return {}
    return vars(environment)


@dataclass(frozen=True)
class _Environment:
    """The content of `environment.json`, see `deeprc.runs.run.describe_environment`."""

    python: str
    platform: str
    packages: dict[str, str | None]
    device: str
    accelerator: str | None
    threads: int


def _make_versions_table(trained: Mapping[str, dict[str, Any]], now: dict[str, Any]) -> Table:
    """Return the table of versions and machine, for the training of each run, by its name, and for the report."""
    columns_of_facts = [_flatten_environment(environment) for environment in (*trained.values(), now)]
    names = list(dict.fromkeys(name for facts in columns_of_facts for name in facts))
    rows = []
    for name in names:
        cells = [make_text_cell(_format_fact(facts.get(name))) for facts in columns_of_facts]
        rows.append([make_text_cell(name), *cells])
    run_headings = [f"Training of {name}" if len(trained) > 1 else "Training" for name in trained]
    columns = [
        Column("What", is_number=False),
        *(Column(heading, is_number=False) for heading in (*run_headings, "This report")),
    ]
    return Table("versions", "Versions and machine", columns, rows)


def _flatten_environment(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of an environment by name, with the version of each package as a fact."""
    facts = {name: value for name, value in environment.items() if name != "packages"}
    return {**facts, **environment.get("packages", {})}


def _format_fact(value: Any) -> str:
    return DASH if value is None or (isinstance(value, float) and pd.isna(value)) else str(value)
