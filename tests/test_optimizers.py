"""Optimisers without torch's compiler: the same updates and states as torch's own."""

import sys

import pytest
import torch
from torch import Tensor
from torch.optim import Optimizer

from deeprc.optimizers import LBFGS, Adam

PAIRS = [(Adam, torch.optim.Adam), (LBFGS, torch.optim.LBFGS)]


def make_updates(kind: type[Optimizer], n: int) -> tuple[Tensor, Optimizer]:
    """Minimise a product of powers from the same start; return the point after n updates, and the optimiser."""
    point = torch.tensor([0.5, -2.0, 3.0], requires_grad=True)
    optimizer = kind([point], lr=0.1)  # type: ignore[call-arg]

    def compute_loss() -> float:
        optimizer.zero_grad()
        loss = (point.square() * torch.tensor([1.0, 2.0, 5.0])).sum() + point.prod()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item()

    for _ in range(n):
        optimizer.step(compute_loss)
    return point.detach(), optimizer


@pytest.mark.parametrize(("own", "of_torch"), PAIRS)
def test_updates_and_states_are_those_of_torch_and_need_no_compiler(
    own: type[Optimizer], of_torch: type[Optimizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, torch_optimizer = make_updates(of_torch, 5)
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)  # now importing the compiler is an error
    point, optimizer = make_updates(own, 5)
    assert point.tolist() == expected.tolist() != [0.5, -2.0, 3.0]
    state = optimizer.state_dict()
    optimizer.load_state_dict(state)
    monkeypatch.undo()
    (values,), (torch_values,) = state["state"].values(), torch_optimizer.state_dict()["state"].values()
    assert values.keys() == torch_values.keys()
    for name, value in values.items():
        torch.testing.assert_close(value, torch_values[name], rtol=0, atol=0)
