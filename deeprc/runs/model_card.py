"""The model card of a packed model: its targets, its training, its performance and its limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from deeprc.evaluation.caution import read_cautions
from deeprc.evaluation.splits import PARTS
from deeprc.runs.metrics import read_metrics
from deeprc.runs.run import Run
from deeprc.runs.run_text import describe_metrics, describe_task
from deeprc.settings import format_setting
from deeprc.versions import package_version

__all__ = ["make_model_card"]

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


def make_model_card(run: Run, notes: str = "") -> str:
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
