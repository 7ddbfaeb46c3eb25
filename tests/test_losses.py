"""What holds for every loss: right gradients, finite at the edges of floating point, no value read by the host."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from loss_tools import Q, Z, gradient, leaf, tensor
from torch import Tensor

from splitpu.errors import InputError
from splitpu.losses import (
    feature_consistency,
    generalised_jensen_shannon,
    low_level_consistency,
    nnpu_risk,
    nt_xent,
    prediction_consistency,
    sigmoid_loss,
    soft_cross_entropy,
    upu_risk,
)

EXTREME = [-1e4, -200.0, -90.0, -17.0, 0.0, 17.0, 90.0, 200.0, 1e4]
Loss = Callable[[Tensor, Tensor], Tensor]  # of two vectors of the same size, the first of which is moved
EVERY_LOSS: dict[str, Loss] = {
    "sigmoid": lambda a, b: sigmoid_loss(a, +1).sum() + sigmoid_loss(b, -1).sum(),
    "upu": lambda a, b: upu_risk(a, b, 0.4).objective,
    "nnpu": lambda a, b: nnpu_risk(a, b, 0.4).objective,
    "nnpu stepping back": lambda a, b: nnpu_risk(a + 3, b - 6, 0.9).objective,
    "js": lambda a, b: generalised_jensen_shannon(a, torch.sigmoid(b), 0.7),
    "js weighted": lambda a, b: generalised_jensen_shannon(a, torch.sigmoid(b), 0.3, weight=b.abs()),
    "ce": lambda a, b: soft_cross_entropy(a, torch.sigmoid(b)),
    "ce weighted": lambda a, b: soft_cross_entropy(a, torch.sigmoid(b), weight=b.abs()),
    "low level": low_level_consistency,
    "prediction": lambda a, b: prediction_consistency(b, a),
    "confident prediction": lambda a, b: prediction_consistency(b, a, confidence=0.7),
    "contrastive": lambda a, b: nt_xent(a[:, None] * b, a[:, None] + b, 0.5),
    "decoupled contrastive": lambda a, b: nt_xent(a[:, None] * b, a[:, None] + b, 0.5, decoupled=True),
    "feature": lambda a, b: feature_consistency(a[:, None] * b, a[:, None] + b, b[:, None] + b, b[:, None] * b),
}
every_loss = pytest.mark.parametrize("loss", EVERY_LOSS.values(), ids=EVERY_LOSS)


@every_loss
def test_gradcheck(loss: Loss) -> None:
    moved, fixed = leaf([-2.1, 0.2, 0.9, 1.4]), tensor([-1.2, 0.4, 2.0, -0.6])
    assert torch.autograd.gradcheck(lambda a: loss(a, fixed), (moved,))


@every_loss
def test_extreme_logits_give_finite_values_and_gradients(loss: Loss) -> None:
    pairs = np.array([(a, b) for a in EXTREME for b in EXTREME])
    moved, other = leaf(pairs[:, 0], torch.float32), leaf(pairs[:, 1], torch.float32)
    value = loss(moved, other)
    assert value.isfinite()
    (by_moved, by_other) = gradient(value, moved, other)
    assert by_moved is not None and by_moved.isfinite().all()
    assert by_other is None or by_other.isfinite().all()


@every_loss
def test_arithmetic_is_float32_unless_the_input_is_float64(loss: Loss) -> None:
    rounded = tensor(Z, torch.bfloat16), torch.sign(tensor(Z + 0.1)).bfloat16()  # signs: made labels are exact enough
    assert loss(tensor(Z), tensor(Q)).dtype == torch.float64
    assert loss(tensor(Z, torch.float32), tensor(Q, torch.float32)).dtype == torch.float32
    moved = rounded[0].clone().requires_grad_()
    value = loss(moved, rounded[1])
    assert value.dtype == torch.float32
    (by_moved,) = gradient(value, moved)
    assert by_moved is not None and by_moved.dtype == torch.bfloat16 and by_moved.isfinite().all()
    # Only what the test itself computes in bfloat16 (labels, feature products) may differ.
    assert value.item() == pytest.approx(loss(rounded[0].float(), rounded[1].float()).item(), rel=2e-2, abs=2e-3)


def test_bfloat16_logits_lose_nothing_further() -> None:
    z, q = tensor(Z, torch.bfloat16), tensor(Q, torch.bfloat16)
    pairs = [
        (nnpu_risk(z, q, 0.4).objective, nnpu_risk(z.float(), q.float(), 0.4).objective),
        (generalised_jensen_shannon(z, q, 0.7), generalised_jensen_shannon(z.float(), q.float(), 0.7)),
        (soft_cross_entropy(z, q), soft_cross_entropy(z.float(), q.float())),
        (low_level_consistency(z, q), low_level_consistency(z.float(), q.float())),
        (prediction_consistency(z, q), prediction_consistency(z.float(), q.float())),
        (feature_consistency(*[z[:, None] * q] * 4), feature_consistency(*[(z[:, None] * q).float()] * 4)),
        (sigmoid_loss(z, 1), sigmoid_loss(z.float(), 1)),
    ]
    for narrow, wide in pairs:
        assert narrow.dtype == torch.float32 and torch.equal(narrow, wide)


@every_loss
def test_autocast_changes_nothing(loss: Loss) -> None:
    z, other = tensor(Z, torch.float32), tensor(Q, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = loss(z, other)
    assert inside.dtype == torch.float32 and torch.equal(inside, loss(z, other))


@every_loss
def test_an_empty_batch_costs_nothing_and_can_be_differentiated(loss: Loss) -> None:
    moved = torch.zeros(0, requires_grad=True)
    value = loss(moved, torch.zeros(0))
    assert value.shape == () and value.item() == 0 and value.requires_grad
    (by_moved,) = gradient(value, moved)
    assert by_moved is not None and by_moved.shape == (0,)


@every_loss
def test_no_value_reaches_the_host(loss: Loss) -> None:
    """Tensors on the meta device have no values: reading one, or branching on one, raises."""
    moved = torch.zeros(5, device="meta", requires_grad=True)
    value = loss(moved, torch.zeros(5, device="meta"))
    value.backward()
    assert value.device.type == "meta" and moved.grad is not None


@pytest.mark.parametrize("shape", [(), (4, 1), (1, 4), (2, 2)])
def test_logits_are_one_a_sample(shape: tuple[int, ...]) -> None:
    bad, good = torch.zeros(shape), torch.zeros(4)
    for call in (
        lambda: sigmoid_loss(bad, +1),
        lambda: upu_risk(bad, good, 0.5),
        lambda: upu_risk(good, bad, 0.5),
        lambda: nnpu_risk(bad, good, 0.5),
        lambda: nnpu_risk(good, bad, 0.5),
        lambda: generalised_jensen_shannon(bad, bad, 0.5),
        lambda: soft_cross_entropy(bad, bad),
        lambda: prediction_consistency(bad, bad),
    ):
        with pytest.raises(InputError, match=r"one logit per sample, shape \(B,\)"):
            call()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@every_loss
def test_capture_in_a_cuda_graph(loss: Loss) -> None:
    moved = tensor(Z, torch.float32).cuda().requires_grad_()
    other = tensor(Q, torch.float32).cuda()

    def step() -> tuple[Tensor, Tensor]:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            value = loss(moved, other)
        return value, torch.autograd.grad(value, moved)[0]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        moved.neg_()  # a replay must follow its inputs, through either branch
    graph.replay()
    for replayed, eager in zip(captured, step(), strict=True):
        torch.testing.assert_close(replayed, eager)
