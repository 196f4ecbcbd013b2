"""Seeds that are reserved for reports: they are used only with a reason, and every use (look) is listed.

Defaults were chosen by the test AUC of seeds 0 to 2. So results of these seeds are too good, by an unknown amount.
Results in reports come from seeds that had no influence on any choice. If a choice uses them, they cannot be used for
reports any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from deeprc import __version__
from deeprc.errors import InputError

__all__ = ["LOOKS", "NAMES_OF_RESERVED", "RESERVED_SEEDS", "check_seeds", "record_look"]

RESERVED_SEEDS = range(100, 106)
"""Seeds that are used only for reports."""

NAMES_OF_RESERVED = f"{RESERVED_SEEDS[0]} to {RESERVED_SEEDS[-1]}"
"""These seeds, in words."""

LOOKS = Path(__file__).with_name("looks.tsv")
"""File with the list of looks: `date`, `version`, `cohorts`, `seeds`, `methods`, `options`, `reason`."""

_HEADER = "date\tversion\tcohorts\tseeds\tmethods\toptions\treason\n"


def check_seeds(seeds: Sequence[int], reason: str | None) -> None:
    """Check that reserved seeds are used with a reason, and other seeds without one.

    Raises
    ------
    InputError
        If this is not so.
    """
    reserved = [seed for seed in seeds if seed in RESERVED_SEEDS]
    if reserved and not (reason and reason.strip()):
        raise InputError(
            f"--seeds {reserved[0]}: {NAMES_OF_RESERVED} are reserved for reports; say with --look for which one"
        )
    if reason is not None and not reserved:
        raise InputError(
            f"--look {reason!r}: expected some of the seeds {NAMES_OF_RESERVED}, which are reserved for reports"
        )


def record_look(
    cohorts: Sequence[str], seeds: Sequence[int], methods: Sequence[str], options: Sequence[str], reason: str
) -> None:
    """Add a line to `LOOKS`, before anything is measured, so that a look that fails is also listed."""
    fields = [
        date.today().isoformat(),
        __version__,
        ",".join(dict.fromkeys(cohorts)),
        ",".join(map(str, seeds)),
        ",".join(methods),
        " ".join(options),
        reason,
    ]
    line = "\t".join(" ".join(field.split()) for field in fields)
    with LOOKS.open("a", encoding="utf-8") as file:  # several programs may add lines at the same time
        file.write(("" if file.tell() else _HEADER) + line + "\n")
