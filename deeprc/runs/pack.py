"""Packing of a trained model into one file to share, without data of single donors (`deeprc pack`).

The file has a model card: the targets of the model, its training, its performance and its limits.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np

from deeprc.documents import read_text
from deeprc.errors import InputError
from deeprc.evaluation.caution import read_cautions
from deeprc.evaluation.splits import PARTS
from deeprc.files import check_output_path, read_limited
from deeprc.runs.bundle import CARD, MAX_BYTES, unpack_bundle, write_bundle
from deeprc.runs.metrics import read_metrics
from deeprc.runs.run import Run, load_run
from deeprc.runs.run_text import describe_metrics, describe_task
from deeprc.settings import format_setting
from deeprc.shift.training_reference import REFERENCE_FILE, Reference, read_reference
from deeprc.training.checkpoint import load_tensors, save_tensors
from deeprc.versions import package_version

__all__ = ["pack_run"]

_MAX_NOTES = 1 << 18
_COPIED_FILES = ("metrics.json", "clones.tsv")
_DIGITS = 4  # number of digits that are kept in the summary of the training repertoires
_logger = logging.getLogger(__name__)
_LIMITS = """\
- This model is for research only. Do not use it for diagnosis or treatment decisions.
- It was trained on repertoires of one cohort. Other chains, ways of sequencing and populations may differ. `deeprc
  predict` writes how far a new repertoire is from the training repertoires (column `shift`). Do not trust predictions
  with a shift above 1.
- Probabilities are calibrated only for cohorts in which the target is as frequent as in the training cohort.
- The metrics below were measured on the training cohort. Measure the model on a cohort of your own (`deeprc evaluate`)
  before you rely on it."""

_HOLDS = """\
The file holds the configuration, the weights, the metrics, summary statistics of the training repertoires (means,
variances and ranges over repertoires, rounded), and the clones that the model stores, each found in at least two
{carriers}. Those with the match `any residue at position`, `cluster` or `up to ... substitutions` in `clones.tsv` are
an exception: their group was found in at least two {carriers}, but the junction itself may be of one alone. The file
does not hold ids, labels, predictions, numbers, digests or hashes of single repertoires, or paths.

The packed model cannot recognise its training repertoires. Predictions for them look better than they should.

The file is a zip of data. Nothing in it is executed. Its digests show damage, but they are not a signature."""


def pack_run(
    run: str | os.PathLike[str], output: str | os.PathLike[str], *, notes: str | os.PathLike[str] | None = None
) -> dict[str, int]:
    """Write a trained model into one file, which can be used like a run directory; `deeprc.pack` is this function.

    The file has the configuration, the weights, the metrics, the clones that the model stores, the summary of the
    training repertoires (`shift.json`, rounded) and a model card. Each clone was found in at least two donors, or in
    two repertoires if the run was trained without `group_by`. Wildcard clones, members of clusters and similar clones
    are an exception: their junctions may be of one donor alone. The file has no ids, no labels, no digests and no
    hashes of repertoires, no number of a single repertoire, no predictions and no paths.

    Parameters
    ----------
    run
        Path of a run directory.
    output
        Path of the file, by convention with the ending `.deeprc`. An existing bundle is replaced.
    notes
        Path of a text in Markdown about the cohort and the intended use, which becomes part of the model card.

    Returns
    -------
    The size of each file in the bundle, in bytes.

    Raises
    ------
    InputError
        If the run cannot be used, or the file cannot be written or is not a bundle.
    """
    folder, target = Path(run), Path(output)
    if not folder.is_dir():
        raise InputError(f"{folder}: expected a run directory")
    check_output_path(target)
    if target.exists():
        unpack_bundle(target)  # raises an error if the file is anything but a bundle, so that it is not replaced
    trained = _remove_paths(load_run(folder, device="cpu"))
    text = "" if notes is None else read_text(Path(notes), limit=_MAX_NOTES)
    options = trained.settings.split_options
    options = replace(options, test=_remove_value(options.test))
    settings = replace(trained.settings, fingerprint="", split_columns={}, device="auto", split_options=options)
    _warn_of_clones_of_one_donor(trained, folder)
    contents = {
        CARD: _make_model_card(trained, text).encode(),
        "config.yaml": settings.to_yaml().encode(),
        "model.safetensors": _anonymise_weights(trained),
        "splits.json": json.dumps({**{part: [] for part in PARTS}, "digests": {}}).encode() + b"\n",
    }
    for name in _COPIED_FILES:
        if (folder / name).exists():
            contents[name] = read_limited(folder / name, limit=MAX_BYTES[name], expected="a file of a run")
    reference = read_reference(folder)
    if reference is not None:
        contents[REFERENCE_FILE] = _anonymise_reference(reference)
    write_bundle(target, contents)
    return {name: len(data) for name, data in contents.items()}


def _warn_of_clones_of_one_donor(run: Run, folder: Path) -> None:
    """Warn if stored clones of a run may be of one donor alone."""
    clones = run.clones()
    if len(clones) and run.group_by is None:
        _logger.warning(
            "%s: was trained without `group_by`: a stored clone may be of one donor with several samples",
            folder,
        )
    n_of_groups = 0 if clones.empty else int((~clones["match"].isin(["exact", "one substitution", "expanded"])).sum())
    if n_of_groups:
        _logger.warning(
            "%s: stored clones whose junction may be of one donor alone, because they match in groups: %s",
            folder,
            f"{n_of_groups:,}",
        )


def _remove_value(test: str | None) -> str | None:
    """Return `COLUMN=VALUE` without the value, which may name a donor.

    The column stays, because it says that the test repertoires are of no fold: `validation_fold` may equal `fold` then.
    """
    return None if test is None else f"{test.partition('=')[0]}=(removed)"


def _remove_paths(run: Run) -> Run:
    """Return the run without the folders of its cohort and of its encoder's weights: their file names stay."""
    settings, weights = run.settings, run.settings.config.network.embedding_weights
    network = replace(settings.config.network, embedding_weights=None if weights is None else _remove_folder(weights))
    config = replace(settings.config, network=network)
    return replace(run, settings=replace(settings, cohort=_remove_folder(settings.cohort), config=config))


def _remove_folder(path: str) -> str:
    """Return the name of a file without its folder; the path may have been recorded by another operating system."""
    return PureWindowsPath(path).name  # it splits at / and at \


def _anonymise_reference(reference: Reference) -> bytes:
    """Return the summary of the training repertoires without data of single repertoires, and with rounded numbers.

    From the distance of each repertoire and exact moments, the owner of a repertoire could find out whether it was in
    the training.
    """
    return json.dumps(_round_values(replace(reference, distances=()).to_dict()), indent=1).encode() + b"\n"


def _round_values(value: Any) -> Any:
    """Return a JSON value in which numbers are rounded to few digits."""
    if isinstance(value, dict):
        return {name: _round_values(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_round_values(entry) for entry in value]
    return float(np.format_float_scientific(value, _DIGITS - 1)) if isinstance(value, float) else value


def _anonymise_weights(run: Run) -> bytes:
    """Return the file of the weights without the data that branches keep of single training repertoires.

    These data are digests, sizes and cross-fitted scores. They would show which repertoires were in the training, and
    hint at their labels. They are not needed for new repertoires.
    """
    tensors, state = load_tensors(run.path / "model.safetensors")
    if "branches" in state:
        state["branches"]["digests"] = []
        for name in ("branches.known_sizes", "branches.known_scores"):
            tensors[name] = tensors[name][:0]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.safetensors"
        save_tensors(file, tensors, state)
        return read_limited(file, limit=MAX_BYTES[file.name], expected="weights")


def _make_model_card(run: Run, notes: str) -> str:
    """Return the model card of a run in Markdown, with the notes of its author; its settings must name no folder."""
    parts = [
        f"# {', '.join(task.name for task in run.tasks)}: a model of deeprc",
        "\n".join(f"- {describe_task(task)}" for task in run.tasks),
        *([f"## Notes of the author\n\n{notes.strip()}"] if notes.strip() else []),
        "## Use\n\nInstall deeprc as its README says. Then:\n\n"
        "```sh\ndeeprc predict THIS_FILE cohort.h5 -o predictions.tsv\n```",
        "## Intended use and limits\n\n" + _LIMITS,
        "## Training\n\n" + "\n".join(_describe_training(run)),
        "## Metrics\n\n" + "\n".join(_describe_metrics(run)),
        "## What this file holds\n\n" + _HOLDS.format(carriers="donors" if run.group_by else "repertoires"),
    ]
    return "\n\n".join(parts) + "\n"


def _describe_training(run: Run) -> Iterator[str]:
    """Yield the lines about cohort, split, settings, size and warnings of a training."""
    sizes = ", ".join(f"{part} {len(run.splits[part]):,}" for part in PARTS)
    changes = run.settings.config.changes()
    network = run.model.network
    branches = () if network.branches is None else network.branches.names
    yield f"- Cohort: `{run.settings.cohort}`"
    yield f"- Repertoires: {sizes}"
    kept_together = f"with the same {run.group_by!r}" if run.group_by else "none"
    yield f"- Repertoires that stay in one part of the split: {kept_together}; seed {run.settings.seed}"
    yield f"- Changed settings: {' '.join(f'{name}={format_setting(v)}' for name, v in changes.items()) or 'none'}"
    n_weights = sum(parameter.numel() for parameter in network.parameters())
    yield f"- Weights: {n_weights:,}; branches besides the attention: {', '.join(branches) or 'none'}"
    yield f"- deeprc {package_version('deeprc') or 'unknown'}"
    warnings = Counter(caution.name or "other" for caution in read_cautions(run.path) if caution.level == "warning")
    listed = ", ".join(f"{name} ({n})" if n > 1 else name for name, n in warnings.items())
    yield f"- Warnings during training, by kind: {listed or 'none'}"


def _describe_metrics(run: Run) -> Iterator[str]:
    metrics = read_metrics(run.path) if (run.path / "metrics.json").exists() else {}
    lines = [
        f"- {part}: {line}"
        for part in ("test", "validation")
        for line in describe_metrics(metrics.get(part, {}), run.tasks)
    ]
    yield from lines or ["- none were measured"]
