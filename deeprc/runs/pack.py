"""Packing of a trained model into one file to share, without data of single donors (`deeprc pack`)."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from dataclasses import replace
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np

from deeprc.documents import read_text
from deeprc.errors import InputError
from deeprc.evaluation.splits import PARTS
from deeprc.files import check_output_path, read_limited
from deeprc.runs.bundle import CARD, MAX_BYTES, unpack_bundle, write_bundle
from deeprc.runs.model_card import make_model_card
from deeprc.runs.run import Run, load_run
from deeprc.shift.training_reference import REFERENCE_FILE, Reference, read_reference
from deeprc.training.checkpoint import load_tensors, save_tensors

__all__ = ["pack_run"]

_MAX_NOTES = 1 << 18
_COPIED_FILES = ("metrics.json", "clones.tsv")
_DIGITS = 4  # number of digits that are kept in the summary of the training repertoires
_logger = logging.getLogger(__name__)


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
        CARD: make_model_card(trained, text).encode(),
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
