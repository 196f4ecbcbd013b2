"""Where a run comes from: the commands that make it again, its settings, versions, and sizes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from deeprc.config import Config, setting_text
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.documents import read_json, validate
from deeprc.errors import InputError
from deeprc.evaluation.splits import NEW, SPLITS
from deeprc.interpretation.report.page import DASH, Cell, Column, Table, number, swatch, text
from deeprc.runs.judged import SIDE_NAMES, Judged
from deeprc.runs.run import Run, RunSettings
from deeprc.tasks import Task

__all__ = [
    "cohort_facts",
    "read_environment",
    "settings_table",
    "split_table",
    "train_command",
    "versions_table",
]


def train_command(settings: RunSettings, output: str) -> str:
    """Return the command that trains such a run again, quoted for a POSIX shell."""
    words = ["deeprc", "train", settings.cohort]
    words += [f"{name}={setting_text(value)}" for name, value in settings.config.changes().items()]
    for target in settings.targets:
        words += ["--target", target]
    words += ["--folds", str(settings.folds), "--fold", str(settings.fold)]
    if settings.validation_fold is not None:
        words += ["--validation-fold", str(settings.validation_fold)]
    if settings.group_by is not None:
        words += ["--group-by", settings.group_by]
    words += ["--seed", str(settings.seed), "--device", settings.device, "--output", output]
    return shlex.join(words)


def settings_table(settings: RunSettings) -> Table | None:
    """Return the settings that differ from the default preset; None where none does."""
    default = Config()
    rows = [
        [text(name), text(setting_text(own)), text(setting_text(default.value(name)))]
        for name, own in settings.config.changes().items()
    ]
    columns = [Column("Setting", False), Column("This run", False), Column("Default", False)]
    return Table("settings", "Settings that differ from the default", columns, rows) if rows else None


def cohort_facts(dataset: RepertoireDataset) -> list[tuple[str, str]]:
    """Return what the container holds, as terms and what they are."""
    container, n = dataset.container, dataset.n_sequences
    genes = [name[0].upper() for name in container.sequences.genes]
    facts = [
        ("File", str(container.path)),
        ("Made", f"by {container.created_by} from {container.source}"),
        ("Repertoires", f"{len(dataset):,}"),
        ("Sequences", f"{int(n.sum()):,}" + _spread(n)),
        ("Genes", f"{' and '.join(genes)} genes of the sequences are known" if genes else "not known"),
    ]
    if container.simulation is not None:
        facts.append(("Simulated", "yes: the signal is under “Everything the container holds”"))
    return facts


def _spread(n: np.ndarray[Any, np.dtype[np.int64]]) -> str:
    if len(n) == 0:
        return ""
    return f"; per repertoire {int(n.min()):,} to {int(n.max()):,}, median {float(np.median(n)):,.0f}"


def split_table(
    judged: Judged,
    tasks: Sequence[Task],
    n_sequences: np.ndarray[Any, np.dtype[np.int64]],
    places: Mapping[str, Mapping[str, int]],
) -> Table:
    """Return how many repertoires of each class, and sequences, are on each side; for `places` see `class_places`."""
    columns = [Column("Side", False), Column("Repertoires"), Column("Sequences")]
    several = len(tasks) > 1
    counted = []
    for i, task in enumerate(tasks):
        prefix = f"{task.column}: " if several else ""
        if task.kind == "regression":
            columns.append(Column(f"{prefix}with a value"))
            counted.append(~np.isnan(judged.labels[:, i]))
            continue
        columns += [Column(swatch(places[task.name][name]) + (prefix + name)) for name in task.class_names]
        counted += [judged.labels[:, i] == c for c in range(len(task.class_names))]
        columns.append(Column(f"{prefix}no label"))
        counted.append(np.isnan(judged.labels[:, i]))
    rows = []
    for side in (*SPLITS, NEW):
        on = judged.rows(side)
        if on.any() or side != NEW:
            counts: list[Cell] = [number(int((on & which).sum()), ",d") for which in counted]
            rows.append(
                [text(SIDE_NAMES[side]), number(int(on.sum()), ",d"), number(int(n_sequences[on].sum()), ",d"), *counts]
            )
    return Table("sizes", "Repertoires on each side of the split", columns, rows)


def read_environment(run: Run) -> dict[str, Any]:
    """Return what `environment.json` says; nothing where it is missing or damaged."""
    try:
        file = Path(run.path) / "environment.json"
        found: _Environment = validate(read_json(file), _Environment, str(file))
    except InputError:
        return {}
    return vars(found)


@dataclass(frozen=True)
class _Environment:
    """What `deeprc.runs.run.environment` writes."""

    python: str
    platform: str
    packages: dict[str, str | None]
    device: str
    accelerator: str | None
    threads: int


def versions_table(environment: dict[str, Any], now: dict[str, Any]) -> Table:
    """Return versions and machine, when the run was trained and when the report was made."""
    flat = [
        {**{k: v for k, v in each.items() if k != "packages"}, **each.get("packages", {})}
        for each in (environment, now)
    ]
    names = list(dict.fromkeys([*flat[0], *flat[1]]))
    rows = [[text(name), *(text(_shown(each.get(name))) for each in flat)] for name in names]
    columns = [Column("What", False), Column("Training", False), Column("This report", False)]
    return Table("versions", "Versions and machine", columns, rows)


def _shown(value: Any) -> str:
    return DASH if value is None or (isinstance(value, float) and pd.isna(value)) else str(value)
