"""Networks that interpretation is tried on."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

import pytest
import torch

from deeprc.config import load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.interpretation.report import antigens, cv_report, page_figures
from deeprc.interpretation.report.page import Figure
from deeprc.runs.experiment import train_run
from deeprc.runs.run import Run

RunFactory = Callable[..., Run]


@pytest.fixture(scope="session")
def run_factory(tmp_path_factory: pytest.TempPathFactory) -> RunFactory:
    """Train on a cohort for a few updates, or keep random weights; settings are the configuration's.

    The networks have no branches besides the attention, unless a setting says so: most tests here are about attention.
    """

    def make(
        dataset: RepertoireDataset, *settings: str, targets: tuple[str, ...] = ("status=case",), stir: float = 0.0
    ) -> Run:
        attention_only = ["composition=false", "clones=false"]
        config = load_config("deeprc", ["n_sequences=50", "evaluate_every=10", *attention_only, *settings])
        folder = tmp_path_factory.mktemp("runs") / "run"
        run = train_run(dataset.container.path, folder, targets=targets, config=config, device="cpu")
        if stir:
            generator = torch.Generator().manual_seed(1)
            with torch.no_grad():
                for parameter in run.model.network.parameters():
                    parameter.add_(stir * torch.randn(parameter.shape, generator=generator))
        return run

    return make


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages with the names and captions of their figures alone: drawing them takes half of the time of a page."""

    def name_figure(_: object, name: str, description: str, caption: str) -> Figure:
        return Figure(f"<p>{escape(name)}</p>", caption)

    for module in (antigens, cv_report, page_figures):
        monkeypatch.setattr(module, "render_figure", name_figure)


@pytest.fixture(scope="session")
def motif_cohort(cohort_factory: Callable[..., RepertoireDataset]) -> RepertoireDataset:
    """A cohort large enough for a network to learn its motif, WWHW, rather than its repertoires by heart."""
    return cohort_factory(100, 100, seed=4)


@pytest.fixture(scope="session")
def trained(run_factory: RunFactory, motif_cohort: RepertoireDataset) -> Run:
    """A run whose kernels have learned the motif of `motif_cohort` by themselves."""
    settings = ["n_updates=400", "n_sequences=100", "n_kernels=16", "batch_size=8"]
    return run_factory(motif_cohort, "seeded_start=0", *settings)
