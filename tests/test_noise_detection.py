"""Noise among the labels: found by penalised regression, and by gradients that disagree with the others."""

import pytest
import torch
from torch.nn import functional

from splitpu.errors import InputError
from splitpu.networks.build import build_network
from splitpu.reproduce.figures import coherence, first_convolution_gradients, penalised_regression_suspicion


def test_penalised_regression_finds_planted_noise() -> None:
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(600) % 2 == 0
    features = torch.randn(600, 20, generator=generator)
    features[:, 0] += 4 * truth.float()
    noisy = torch.zeros(600, dtype=torch.bool)
    noisy[torch.randperm(600, generator=generator)[:60]] = True
    suspicion = penalised_regression_suspicion(features, truth ^ noisy)
    suspected = suspicion.argsort(descending=True)[:60]
    assert noisy[suspected].float().mean() > 0.85
    again = penalised_regression_suspicion(features, truth ^ noisy)
    assert torch.equal(suspicion, again)


def test_gradients_of_single_samples() -> None:
    torch.manual_seed(0)
    network = build_network("cnn-small", (8, 8, 1)).eval()
    inputs, targets = torch.randn(3, 1, 8, 8), torch.tensor([True, False, True])
    found = first_convolution_gradients(network, inputs, targets)
    weight = network.first[0].weight
    for number in range(3):
        logit = network(inputs[number : number + 1]).logit
        loss = functional.binary_cross_entropy_with_logits(logit, targets[number : number + 1].float())
        (alone,) = torch.autograd.grad(loss, weight)
        torch.testing.assert_close(found[number], alone, rtol=1e-4, atol=1e-6)
    with pytest.raises(InputError, match="no plain convolution"):
        first_convolution_gradients(build_network("mlp", (4,)), torch.zeros(2, 4), targets[:2])


def test_coherence_is_low_for_the_one_that_disagrees() -> None:
    gradients = torch.ones(10, 1, 1, 2, 2)
    gradients[3] *= -1
    assert coherence(gradients).argmin() == 3
