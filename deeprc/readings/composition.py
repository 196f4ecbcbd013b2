"""To be written."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.dataset import Repertoire
from deeprc.nn.readings import Reading

__all__ = ["CompositionReading"]


class CompositionReading(Reading):
    """To be written."""

    name: ClassVar[str] = "composition"

    def contributions(self, repertoire: Repertoire) -> NDArray[np.float64]:
        """See `Reading`."""
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """See `Reading`."""
        raise NotImplementedError

    @classmethod
    def from_description(cls, description: Any, n_outputs: int, where: str) -> CompositionReading:
        """See `Reading`."""
        raise NotImplementedError

    def check(self, where: str) -> None:
        """See `Reading`."""
