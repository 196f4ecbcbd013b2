"""Loggers that receive numbers and histograms at each evaluation, for programs such as TensorBoard.

Letters: n sequences of all validation repertoires, H heads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from deeprc.errors import InputError

__all__ = ["LOGGERS", "Logger", "TensorBoardLogger", "check_logger", "make_attention_histograms", "open_logger"]

LOGGERS = ("tensorboard",)
"""Allowed values of `logger`."""

_FOLDER = "tensorboard"
_TAGS = {
    "train_loss": "loss/training",
    "validation_loss": "loss/validation",
    "validation_auc": "auc/validation",
    "seconds": "time/seconds",
}


class Logger(Protocol):
    """A receiver of results after each evaluation; it must neither change the training nor draw random numbers."""

    def log(self, update: int, scalars: Mapping[str, float], histograms: Mapping[str, NDArray[np.float32]]) -> None:
        """Log numbers, and the values of histograms, (n,), by name, after this many updates."""

    def close(self) -> None:
        """Write results that are not yet on the disk."""


class TensorBoardLogger:
    """A logger that writes event files of TensorBoard.

    Parameters
    ----------
    folder
        Folder of the files; existing files of an interrupted run are kept.
    update
        Number of updates made before. Results of later updates in the folder are no longer shown.
    """

    def __init__(self, folder: Path, *, update: int = 0) -> None:
        check_logger("tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder), purge_step=update + 1)

    def log(self, update: int, scalars: Mapping[str, float], histograms: Mapping[str, NDArray[np.float32]]) -> None:
        """Log results as `Logger.log` does; they are on the disk when this returns."""
        for name, value in scalars.items():
            self._writer.add_scalar(_TAGS.get(name, name), value, update)
        for name, values in histograms.items():
            if len(values):
                self._writer.add_histogram(name, values, update)
        self._writer.flush()

    def close(self) -> None:
        """Close the file as `Logger.close` does."""
        self._writer.close()


def check_logger(name: str | None) -> None:
    """Raise InputError if there is no such logger or its package is not installed; None means no logger."""
    if name is None:
        return
    if name not in LOGGERS:
        raise InputError(f"`logger`: expected {' or '.join(LOGGERS)}, found {name!r}")
    if find_spec("tensorboard") is None:
        raise InputError("`logger=tensorboard` needs tensorboard: pip install 'deeprc[tensorboard]'")


@contextmanager
def open_logger(name: str | None, run: Path, *, update: int) -> Iterator[Logger | None]:
    """Yield the logger of a run directory, and close it at the end.

    Parameters
    ----------
    name
        Name of the logger, one of `LOGGERS`; None yields None.
    run
        Path of the run directory.
    update
        Number of updates that the training has made.
    """
    if name is None:
        yield None
        return
    check_logger(name)
    logger = TensorBoardLogger(run / _FOLDER, update=update)
    try:
        yield logger
    finally:
        logger.close()


def make_attention_histograms(
    logits: NDArray[np.float32], weights: NDArray[np.float64]
) -> dict[str, NDArray[np.float32]]:
    """Return the logits of each head, and the logarithms to base 10 of its weights that are not 0, by name.

    Logits and weights, (n, H) each, are from `Trainer.compute_validation_attention`. The names are those in
    TensorBoard: `attention_logit/head_1`, ...
    """
    histograms: dict[str, NDArray[np.float32]] = {}
    for head in range(logits.shape[1]):
        weight = weights[:, head]
        histograms[f"attention_logit/head_{head + 1}"] = logits[:, head]
        histograms[f"log10_attention_weight/head_{head + 1}"] = np.log10(weight[weight > 0]).astype(np.float32)
    return histograms
