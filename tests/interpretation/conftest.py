"""Networks that interpretation is tried on."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

import pytest
import torch

from deeprc.config import load_config
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.evaluation.splits import SplitOptions, make_split
from deeprc.interpretation.report import antigens, cv_report, page_figures
from deeprc.interpretation.report.page import Figure
from deeprc.runs.experiment import train_run
from deeprc.runs.run import Run
from deeprc.task_labels import encode_labels, set_label_scale
from deeprc.tasks import parse_tasks
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.log_abundance import replace_log_abundance
from deeprc.training.model import TrainedModel
from deeprc.training.trainer import Trainer

RunFactory = Callable[..., Run]
ModelFactory = Callable[..., TrainedModel]

ATTENTION_ONLY = ("composition=false", "clones=false")  # most tests here are about attention


def stir_weights(model: TrainedModel, amount: float) -> None:
    """Add random numbers to the weights of a network."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter.add_(amount * torch.randn(parameter.shape, generator=generator))


@pytest.fixture(scope="session")
def run_factory(tmp_path_factory: pytest.TempPathFactory) -> RunFactory:
    """Train on a cohort for a few updates into a run directory; where the model is enough, ask `model_factory`.

    The networks have no branches besides the attention, unless a setting says so.
    """

    def make(
        dataset: RepertoireDataset, *settings: str, targets: tuple[str, ...] = ("status=case",), stir: float = 0.0
    ) -> Run:
        config = load_config("deeprc", ["n_sequences=50", "evaluate_every=10", *ATTENTION_ONLY, *settings])
        folder = tmp_path_factory.mktemp("runs") / "run"
        run = train_run(dataset.container.path, folder, targets=targets, config=config, device="cpu")
        stir_weights(run.model, stir)
        return run

    return make


@pytest.fixture(scope="session")
def model_factory() -> ModelFactory:
    """Train on a cohort for two updates, without a run directory, and stir the weights."""

    def make(
        dataset: RepertoireDataset, *settings: str, targets: tuple[str, ...] = ("status=case",), stir: float = 0.0
    ) -> TrainedModel:
        config = load_config("deeprc", ["n_updates=2", "n_sequences=50", *ATTENTION_ONLY, *settings])
        tasks = parse_tasks(targets, dataset.metadata)
        labels = encode_labels(tasks, dataset.metadata)
        split = make_split(dataset.metadata, tasks, SplitOptions(), seed=0)
        train, validation = (
            LabelledRepertoires(dataset[part], labels[part]) for part in (split.train, split.validation)
        )
        tasks = set_label_scale(tasks, train.labels)
        config = replace_log_abundance(config, [train.dataset, validation.dataset])
        trainer = Trainer(config, tasks, train, validation, seed=0, device=torch.device("cpu"))
        trainer.fit()
        trainer.network.requires_grad_(True)  # as in a loaded network
        model = trainer.make_model()
        stir_weights(model, stir)
        return model

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
    settings = ["n_updates=200", "evaluate_every=50", "learning_rate=5e-3", "n_sequences=100", "n_kernels=16"]
    return run_factory(motif_cohort, "seeded_start=0", "batch_size=8", *settings)
