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

__all__ = ["LOGGERS", "Logger", "TensorBoardLogger", "attention_histograms", "check_logger", "open_logger"]

LOGGERS = ("tensorboard",)
"""The values of `logger`."""

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
        """Write what is not written yet."""


class TensorBoardLogger:
    """Writes TensorBoard's event files.

    Parameters
    ----------
    folder
        Folder of the files; files of an interrupted run stay.
    update
        Number of updates made before. Results of later updates in the folder are no longer shown.
    """

    def __init__(self, folder: Path, *, update: int = 0) -> None:
        check_logger("tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder), purge_step=update + 1)

    def log(self, update: int, scalars: Mapping[str, float], histograms: Mapping[str, NDArray[np.float32]]) -> None:
        """See `Logger.log`; the results are on the disk when this returns."""
        for name, value in scalars.items():
            self._writer.add_scalar(_TAGS.get(name, name), value, update)
        for name, values in histograms.items():
            if len(values):
                self._writer.add_histogram(name, values, update)
        self._writer.flush()

    def close(self) -> None:
        """See `Logger.close`."""
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
    """Give the logger of a run directory, and close it at the end.

    Parameters
    ----------
    name
        One of `LOGGERS`; None gives None.
    run
        The run directory.
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


def attention_histograms(logits: NDArray[np.float32], weights: NDArray[np.float64]) -> dict[str, NDArray[np.float32]]:
    """Return per head the logits, and the logarithms to base 10 of the weights that are not 0.

    Both (n, H), see `Trainer.validation_attention`; the names are TensorBoard's: `attention_logit/head_1`, ...
    """
    histograms: dict[str, NDArray[np.float32]] = {}
    for head in range(logits.shape[1]):
        weight = weights[:, head]
        histograms[f"attention_logit/head_{head + 1}"] = logits[:, head]
        histograms[f"log10_attention_weight/head_{head + 1}"] = np.log10(weight[weight > 0]).astype(np.float32)
    return histograms
