"""The picture of a network: the sizes of its parts."""

from __future__ import annotations

import pytest

from deeprc.config import NetworkConfig
from deeprc.interpretation.figures.network import draw_network_figure
from deeprc.tasks import Task

pytest.importorskip("matplotlib")

TASK = Task("CMV", "CMV", "binary", ("-", "+"))


def texts_of(config: NetworkConfig, branches: dict[str, list[str]], n_tasks: int = 1) -> str:
    (axis,) = draw_network_figure(config, [TASK] * n_tasks, branches).axes
    return "\n".join(text.get_text() for text in axis.texts)


def test_the_figure_names_the_parts_of_the_default_network() -> None:
    text = texts_of(NetworkConfig(), {"composition": ["k-mers", "counts"], "clones": []})
    for part in (
        "32 kernels of 9 residues",
        "2 SELU layers\nof 32 units",
        "softmax(0.177 q·k)",
        "linear\nCMV",
        "composition: k-mers, counts\nclones: stored clones that it carries\n",
    ):
        assert part in text
    assert text.count("32 numbers") == 2
    assert "V and J gene" not in text


def test_the_figure_names_other_encoders_genes_heads_and_layers() -> None:
    config = NetworkConfig(
        embedding="lstm", gene_units=4, n_heads=3, n_key_layers=0, learn_beta=True, n_output_layers=2, abundance="log"
    )
    text = texts_of(config, {}, n_tasks=6)
    for part in ("lstm, 32 units\nV and J gene: 4 each", "the values", "3 learned queries", "learned β", "log(count)"):
        assert part in text
    assert "40 numbers\nof each" in text
    assert "120 numbers\nof the" in text
    assert "2 layers, 32 units\nCMV\nCMV\nCMV\nand 3 more" in text
    assert "Branch" not in text
