"""What becomes of a doubtful branch if the search finds motifs."""

from typing import Any

import pytest

from deeprc.branches.composition import CompositionBranch
from deeprc.config import load_config
from deeprc.nn.network import DeepRC
from deeprc.tasks import Task
from deeprc.training import network_start
from deeprc.training.enriched_motif import EnrichedMotif
from tests.conftest import motif

CONFIG = load_config("deeprc", {"branches_use_validation": False})
TASKS = [Task("status", "status", "binary", ("no", "yes")), Task("sex", "sex", "binary", ("f", "m"))]


@pytest.mark.parametrize(
    ("motifs", "is_doubtful", "is_kept"),
    [
        ([], True, True),
        ([motif("SFEN")], True, True),
        ([motif("SFEN"), motif("WHWM", output=1)], True, False),
        ([motif("SFEN"), motif("WHWM", output=1)], False, True),
    ],
)
def test_a_doubtful_branch_is_left_out_if_each_output_has_a_motif(
    motifs: list[EnrichedMotif], is_doubtful: bool, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attach(network: DeepRC, *_: object) -> None:
        network.attach_branches([CompositionBranch(2, {}, is_doubtful=is_doubtful)])

    monkeypatch.setattr(network_start, "learn_branches", attach)
    monkeypatch.setattr(network_start, "leave_out_clones", lambda network, fold: fold)
    monkeypatch.setattr(network_start, "find_confirmed_motifs", lambda *_, **__: motifs)
    monkeypatch.setattr(network_start, "describe_start_motifs", lambda *_: "")
    network, no_fold = DeepRC(n_outputs=2), Any
    found = network_start.fit_branches_and_find_motifs(network, CONFIG, TASKS, no_fold, no_fold, seed=0)
    assert found == motifs
    assert (network.branches is not None) == is_kept
