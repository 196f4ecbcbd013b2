import numpy as np
import pytest
import torch

from deeprc.nn.network import DeepRC
from deeprc.training.averaging import AveragedNetwork


def shifted(network: DeepRC) -> np.ndarray:
    """Add 1 to every weight and return those of the queries."""
    with torch.no_grad():
        for weight in network.parameters():
            weight += 1
    return network.pooling.queries.detach().numpy().copy()


@pytest.mark.parametrize("decay", [0.5, 0.99])
def test_the_average_is_the_exponential_one_that_warms_up(decay: float) -> None:
    network = DeepRC(n_kernels=4, standardise=True)
    average = AveragedNetwork(network, decay)
    expected = network.pooling.queries.detach().numpy().copy()
    for t in range(30):
        kept = min(decay, (1 + t) / (10 + t))
        expected = kept * expected + (1 - kept) * shifted(network)
        average.update()
    np.testing.assert_allclose(average.network.pooling.queries.numpy(), expected, rtol=1e-5)
    assert not np.allclose(expected, network.pooling.queries.detach().numpy())


def test_moments_are_averaged_and_counts_copied() -> None:
    network = DeepRC(n_kernels=4, standardise=True)
    average = AveragedNetwork(network, 0.99)
    standardisation, averaged = network.output_network[0], average.network.output_network[0]
    standardisation.set_moments(torch.full((3, 4), 2.0))
    average.update()
    torch.testing.assert_close(averaged.mean, torch.full((4,), 1.8))  # 0.9 of the way from 0
    assert int(averaged.updates) == int(standardisation.updates) == 100


def test_without_decay_there_is_one_network() -> None:
    network = DeepRC(n_kernels=4)
    average = AveragedNetwork(network, 0.0)
    average.update()
    assert average.network is network
    assert average.collect_tensors() == {}


def test_a_restored_average_goes_on_as_before() -> None:
    network = DeepRC(n_kernels=4)
    averages = [AveragedNetwork(network, 0.99) for _ in range(2)]
    for t in range(6):
        shifted(network)
        averages[0].update()
        if t == 2:
            averages[1].restore({name: tensor.clone() for name, tensor in averages[0].collect_tensors().items()})
        elif t > 2:
            averages[1].update()
    for name, tensor in averages[0].collect_tensors().items():
        assert torch.equal(averages[1].collect_tensors()[name], tensor), name


def test_a_restart_is_the_network_as_it_is() -> None:
    network = DeepRC(n_kernels=4)
    average = AveragedNetwork(network, 0.99)
    queries = shifted(network)
    average.restart()
    np.testing.assert_array_equal(average.network.pooling.queries.numpy(), queries)
