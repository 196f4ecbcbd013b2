"""What a seed gives stays what it is: a recipe makes the same cohort with any version."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from deeprc.datasets.simulation import Cohort, load_recipe

SMALL = ("n_repertoires=4", "sizes={mean: 300, sd: 50, minimum: 10}")
ALL = (
    "background={kind: germline}",
    "counts={exponent: 2.2}",
    "signals=[{name: a, motifs: [LDRW, {pattern: 'S(d)Z-N', noise: 0.2}], witness_rate: 0.2, prevalence: 0.7, "
    "position: imgt, imgt_positions: {'108': 0.5}}, {name: b, motifs: [{pattern: WHW, substitutions: [0, 1, 0]}], "
    "witness_rate: 0.1, status: negative, position: centre}]",
    "batch={association: 0.5, size_factor: 0.7, gene_shift: {v_genes: [TRBV28], strength: 0.2}}",
    "label_noise=0.2",
    "seed=3",
)


def digest(cohort: Cohort) -> str:
    content = hashlib.sha256(cohort.metadata().to_csv(index=False).encode())
    for number in range(cohort.n_repertoires):
        table, implants = cohort.draw(number)
        columns = [table.residues, table.lengths, table.counts, *implants]
        genes = ["|".join(calls.names()) for calls in (table.v_call, table.j_call) if calls is not None]
        content.update("|".join(genes).encode())
        for column in columns:
            content.update(np.ascontiguousarray(column).astype("<i8").tobytes())
    return content.hexdigest()[:16]


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    path = tmp_path / "pool.txt"
    path.write_text("".join(f"CASS{a}{b}GNYEQYF\n" for a in "ACDEFGHIKLMNPQRSTVWY" for b in "ACDEFGHIKLMNPQRSTVWY"))
    return path


@pytest.mark.parametrize(
    ("name", "overrides", "expected"),
    [
        ("simulated-4", SMALL, "802c2fb1c4909418"),
        ("simulated-15", SMALL, "3d3d8cc14ff2cda0"),
        ("quickstart", SMALL, "9b618604e4bece4f"),
        ("implanted-mm-1", SMALL, "912d3d0bd946ab54"),
        ("simulated-0", (*SMALL, *ALL), "8df7b1338cf6be26"),
    ],
)
def test_a_seed_gives_the_pinned_sequences(name: str, overrides: tuple[str, ...], expected: str, pool: Path) -> None:
    background = pool if name.startswith("implanted") else None
    assert digest(load_recipe(name, overrides, background=background)[0]) == expected
