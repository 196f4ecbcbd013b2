"""Seeds that are kept for reports: whoever uses them says why, and every look at them is listed.

Defaults were chosen by the test AUC of seeds 0 to 2. A figure of these seeds is too good, by how much nobody knows. So
the figures of reports come from seeds that no choice has seen. Once a choice has seen them, too, they are spent.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from deeprc import __version__
from deeprc.errors import InputError
from deeprc.files import write_text

__all__ = ["KEPT_SEEDS", "LOOKS", "check_seeds", "record_look"]

KEPT_SEEDS = range(100, 103)
"""Seeds for reports alone."""

LOOKS = Path(__file__).with_name("looks.tsv")
"""The list of looks: `date`, `version`, `cohorts`, `seeds`, `methods`, `options`, `reason`."""

_HEADER = "date\tversion\tcohorts\tseeds\tmethods\toptions\treason\n"


def check_seeds(seeds: Sequence[int], reason: str | None) -> None:
    """Check that kept seeds are used with a reason, and other seeds without one.

    Raises
    ------
    InputError
        If they are not.
    """
    kept = [seed for seed in seeds if seed in KEPT_SEEDS]
    names = f"{KEPT_SEEDS[0]} to {KEPT_SEEDS[-1]}"
    if kept and not (reason and reason.strip()):
        raise InputError(f"--seeds {kept[0]}: {names} are kept for reports; say with --look for which one")
    if reason is not None and not kept:
        raise InputError(f"--look {reason!r}: expected some of the seeds {names}, which are kept for reports")


def record_look(
    cohorts: Sequence[str], seeds: Sequence[int], methods: Sequence[str], options: Sequence[str], reason: str
) -> None:
    """Add a line to `LOOKS`. It is written before anything is measured, so that a look that fails is listed, too."""
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
    write_text(LOOKS, (LOOKS.read_text(encoding="utf-8") if LOOKS.exists() else _HEADER) + line + "\n")
