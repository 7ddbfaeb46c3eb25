"""Our kernels against what they stand for: run on a GPU, or without one in Triton's interpreter."""

from dataclasses import replace
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

from splitpu.config.schema import StudentConfig, ViewsConfig
from splitpu.data.preprocessing import Preprocessing
from splitpu.engine.stage import Batch
from splitpu.kernels import (
    batch_norm_triton as norm_relu_triton,
)
from splitpu.kernels import (
    convolution as thin_convolution,
)
from splitpu.kernels import (
    convolution_triton as strided_gradient_triton,
)
from splitpu.kernels import (
    dispatch as trial,
)
from splitpu.kernels import (
    loss_terms as consistency,
)
from splitpu.kernels import (
    loss_terms as logit_terms,
)
from splitpu.kernels.dispatch import allow_kernels
from splitpu.losses import (
    feature_consistency,
    generalised_jensen_shannon,
    low_level_consistency,
    nnpu_risk,
    prediction_consistency,
    soft_cross_entropy,
    upu_risk,
)
from splitpu.methods import student_loss as student_task
from splitpu.methods.context import Teacher
from splitpu.networks.build import build_network
from splitpu.views import Views

EXTREME = torch.tensor([0.0, 1e-4, -30.0, 30.0, 90.0, -90.0, 300.0, -300.0, 17.0, -17.0])


def logits(count: int, device: str) -> Tensor:
    """Ordinary ones, and some at which careless arithmetic breaks."""
    drawn = torch.randn(count, generator=torch.Generator().manual_seed(count)) * 3
    drawn[: len(EXTREME)] = EXTREME
    return drawn[torch.randperm(count, generator=torch.Generator().manual_seed(1))].to(device)


def gradient_of(total: Tensor, *of: Tensor) -> list[Tensor]:
    return [one.cpu().double() for one in torch.autograd.grad(total, of)]


def close(found: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(found.detach().cpu().double(), expected.detach(), atol=1e-9, rtol=tolerance)


def compare_label_terms(device: str) -> None:
    """Every term and the gradient of each logit, in double precision."""
    for counts, rho, confidence in [((40, 7, 11), 0.7, 0.0), ((33, 12, 12), None, 0.9), ((20, 4, 0), 0.01, 0.0)]:
        easy, positives, consistent = counts
        logit = logits(easy + positives + 2 * consistent, device).requires_grad_()
        labels = torch.rand(50, generator=torch.Generator().manual_seed(0))
        labels[:4] = torch.tensor([0.0, 1.0, 1e-7, 1 - 1e-7])
        rows = torch.randint(0, 50, (easy,), generator=torch.Generator().manual_seed(2))
        rows[:4] = torch.arange(4)
        found = logit_terms.label_terms(
            logit, labels.to(device), rows.to(device), counts, rho=rho, confidence=confidence
        )
        exact = logit.detach().cpu().double().requires_grad_()
        parts = exact.split([easy, positives, consistent, consistent])
        target = labels[rows].double()
        if rho is None:
            easy_loss = soft_cross_entropy(parts[0], target)
        else:
            easy_loss = generalised_jensen_shannon(parts[0], target, rho)
        expected = {
            "easy": easy_loss,
            "positive": soft_cross_entropy(parts[1], torch.ones_like(parts[1])),
            "agreement": ((parts[0] > 0) == (target > 0.5)).double().mean(),
            "prediction": prediction_consistency(parts[2], parts[3], confidence=confidence),
        }
        for name, term in expected.items():
            close(found[name], term)
        weights = {"easy": 1.0, "positive": 0.5, "prediction": 0.3}
        (gradient,) = gradient_of(sum(w * found[name] for name, w in weights.items()), logit)
        (exact_gradient,) = gradient_of(sum(w * expected[name] for name, w in weights.items()), exact)
        close(gradient, exact_gradient, 1e-4)


def compare_pu_risks(device: str) -> None:
    """With the risk on negatives above and below its limit."""
    logit = logits(60, device)
    for shift in (-3.0, 0.0, 3.0):
        # Positives well placed and a population that looks negative: there nnPU steps back.
        moved = (logit + shift * torch.where(torch.arange(60, device=device) < 12, -1.0, 1.0)).requires_grad_()
        for beta, gamma in ((0.0, 1.0), (0.05, 0.7), (None, 1.0)):
            found, recall = logit_terms.pu_risk(moved, 12, 0.4, beta=beta, gamma=gamma)
            exact = moved.detach().cpu().double().requires_grad_()
            halves = exact[:12], exact[12:]
            nnpu = beta is not None
            expected = nnpu_risk(*halves, 0.4, beta=beta, gamma=gamma) if nnpu else upu_risk(*halves, 0.4)
            for name in ("objective", "value", "positive", "negative"):
                torch.testing.assert_close(
                    getattr(found, name).detach().cpu().double(), getattr(expected, name).detach(), atol=1e-6, rtol=1e-5
                )
            assert abs(float(recall) - float((exact[:12] > 0).double().mean())) < 1e-6
            close(*gradient_of(found.objective, moved), *gradient_of(expected.objective, exact), 1e-4)


def compare_low_level(device: str) -> None:
    """In both ways to come by the gradient, among what reaches the features from elsewhere."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(7, 5, 6, 6, generator=generator)
    teacher = torch.randn(4, 5, 6, 6, generator=generator)
    factors = torch.randn(5, 1, 1, generator=generator)
    exact = drawn.double().requires_grad_()
    elsewhere = (exact * factors.double()).square().mean()
    expected = low_level_consistency(exact[-4:], teacher.double())
    (exact_gradient,) = gradient_of(elsewhere + 0.3 * expected, exact)
    for layout in (torch.channels_last, torch.contiguous_format):
        for own in (False, True):
            leaf = drawn.to(device).to(memory_format=layout).requires_grad_()
            low = leaf * 1.0
            term = consistency.low_level_term(low, teacher.to(device).to(memory_format=layout), own_gradient=own)
            assert term is not None
            close(term, expected)
            found = gradient_of((low * factors.to(device)).square().mean() + 0.3 * term, leaf)[0]
            torch.testing.assert_close(found, exact_gradient, atol=1e-6, rtol=1e-4)
    assert consistency.low_level_term(low, teacher.to(device).permute(0, 1, 3, 2), own_gradient=False) is None


def compare_feature_term(device: str) -> None:
    """Vectors of no length among them."""
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(8, 37, generator=generator) for _ in range(2)]
    drawn[0][2], drawn[1][5] = 0.0, 0.0
    predicted, features = (one.to(device).requires_grad_() for one in drawn)
    found = consistency.feature_term(predicted, features)
    assert found is not None
    exact = [one.double().requires_grad_() for one in drawn]
    expected = feature_consistency(*exact[0].chunk(2), *exact[1].chunk(2))
    close(found, expected)
    gradient = gradient_of(2 * found, predicted)[0]
    torch.testing.assert_close(gradient, gradient_of(2 * expected, exact[0])[0], atol=1e-7, rtol=1e-4)


VIEWS = (
    ViewsConfig(),
    ViewsConfig(cutout=0.4, grey=0.4, jitter=0.6, saturation=0.9, hue=0.5),
    ViewsConfig(crop_padding=0.0, contrast=0.0, brightness=0.9),
    ViewsConfig(resized_crop=0.2, grey=0.2, jitter=0.8, hue=0.1),
    ViewsConfig(resized_crop=0.6, flip=False, cutout=0.3),
    ViewsConfig(flip=False, crop_padding=0.6, contrast=0.9, cutout=0.3),
    replace(ViewsConfig(crop_padding=0.0, flip=False), brightness=0.0, contrast=0.0, saturation=0.0, hue=0.0),
)


def compare_views(device: str) -> None:
    """The same draws, sample by sample."""
    with mock.patch("splitpu.views.fused_view_applies", return_value=True):  # also where there is no GPU
        _compare_views(device)


def _compare_views(device: str) -> None:
    random = np.random.default_rng(0)
    for shape, kind in [((5, 9, 7, 3), np.uint8), ((4, 8, 8, 1), np.uint8), ((3, 6, 5, 4), np.float32)]:
        rows = random.integers(0, 256, shape).astype(kind)
        raw = torch.from_numpy(rows).to(device)
        for config in VIEWS:
            fused, plain = (Views(Preprocessing.fit(rows), config, device, kernels=k) for k in (True, False))
            for name in ("weak", "strong"):
                found, expected = (
                    getattr(one, name)(raw, torch.Generator(device).manual_seed(4)) for one in (fused, plain)
                )
                torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)
                assert found.stride() == expected.stride()
            torch.testing.assert_close(fused.plain(raw), plain.plain(raw), atol=1e-5, rtol=1e-5)


def compare_patches(device: str) -> None:
    """Exactly: nothing is computed."""
    for shape, side, stride, padding in [((3, 3, 9, 8), 3, 1, 1), ((2, 1, 7, 7), 5, 2, 2), ((2, 4, 6, 5), 3, 2, 0)]:
        images = torch.randn(shape).bfloat16().float().to(device, memory_format=torch.channels_last)
        expected = thin_convolution._patches(images.bfloat16(), side, stride, padding)
        found = thin_convolution.fused_patches(images, side, stride, padding, torch.bfloat16)
        torch.testing.assert_close(found, expected, atol=0, rtol=0)


def compare_norm_outside_training(device: str) -> None:
    """With running statistics, something added, and the ReLU."""
    for channels, added in [(5, False), (96, True)]:
        layer = nn.BatchNorm2d(channels).eval()
        for tensor in (layer.weight.data, layer.bias.data, layer.running_mean):
            tensor.normal_()
        layer.running_var.uniform_(0.5, 2.0)
        batch, extra = (torch.randn(4, channels, 5, 6).to(memory_format=torch.channels_last) for _ in range(2))
        expected = layer(batch) + extra if added else layer(batch)
        layer.to(device)
        inputs = batch.to(device), layer, extra.to(device) if added else None
        found = norm_relu_triton.normalised_by_running(*inputs, relu=added)
        torch.testing.assert_close(found.cpu(), expected.relu() if added else expected, atol=1e-5, rtol=1e-5)


def compare_strided_gradient(device: str) -> None:
    """Of odd and even rows and columns, to the edges."""
    kind = torch.float32 if device == "cpu" else torch.bfloat16  # of which the interpreter has no products
    for inputs, outputs, rows, columns in [(96, 96, 6, 5), (24, 32, 3, 4)]:
        gradient, weight = torch.randn(3, outputs, rows, columns), torch.randn(outputs, inputs, 3, 3)
        gradient, weight = (one.to(kind, memory_format=torch.channels_last) for one in (gradient, weight))
        shape = (3, inputs, 2 * rows, 2 * columns)
        expected = nn.grad.conv2d_input(shape, weight.double(), gradient.double(), stride=2, padding=1)
        found = strided_gradient_triton.strided_gradient(gradient.to(device), weight.to(device)).cpu().double()
        torch.testing.assert_close(found / expected.abs().max(), expected / expected.abs().max(), atol=1e-2, rtol=0)
        assert found.shape == shape and found.is_contiguous(memory_format=torch.channels_last)


def attempt_everything(device: str) -> None:
    """What decides whether kernels are used says that they run, and draws nothing from anybody's generator."""
    before = torch.get_rng_state()
    for name, attempt in trial._FAMILIES.items():
        if name == "strided convolution" and device == "cpu":
            continue  # see above
        assert attempt(torch.empty(0, device=device).device), name
    assert torch.equal(torch.get_rng_state(), before)


def compare_student_steps(device: str) -> None:
    """Every term of a whole step and the gradient of every weight."""
    rows = np.random.default_rng(0).integers(0, 256, (30, 8, 8, 3)).astype(np.uint8)
    raw = torch.from_numpy(rows).to(device)
    configs = (StudentConfig(), StudentConfig(easy_loss="ce", hard_loss="nnpu"), StudentConfig(hard_loss="cross"))
    for config in (*configs, StudentConfig(consistency="all"), StudentConfig(consistency="all", label_views="strong")):
        third, found = "rest" if config.consistency == "all" else "consistent", []
        for fused in (True, False):
            torch.manual_seed(0)
            networks = [build_network("cnn-small", (8, 8, 3)).to(device) for _ in range(2)]
            networks = [one.to(memory_format=torch.channels_last) for one in networks]
            teacher = Teacher(networks[0].eval(), 0.1, torch.linspace(-3, 3, 30, device=device), "key")
            head = student_task.feature_predictor(networks[1].feature_dim).to(device)
            task = student_task.StudentTask(networks[1], head, teacher, 0.4, config)
            allow_kernels(task.module, fused)
            names = ("fused_terms_apply", "fused_consistency_applies")
            forced = mock.patch.multiple(student_task, **dict.fromkeys(names, lambda *_, fused=fused: fused))
            groups = {"positives": [0, 1, 2], "easy": [5, 7, 9, 11, 13], third: [20, 21, 22, 25]}
            numbers = {name: torch.tensor(group, device=device) for name, group in groups.items()}
            batch = {name: Batch(number, raw[number]) for name, number in numbers.items()}
            views_of_rows = Views(Preprocessing.fit(rows), ViewsConfig(), device)
            with torch.backends.cudnn.flags(allow_tf32=False), forced:  # also where there is no GPU
                terms = task.step(batch, views_of_rows, torch.Generator(device).manual_seed(3))
                terms["loss"].backward()
            found.append((terms, {name: p.grad for name, p in task.module.named_parameters()}))
        for one, other in zip(*found, strict=True):
            assert one.keys() == other.keys()
            for name, tensor in one.items():
                assert (tensor is None) == (other[name] is None), name
                if tensor is not None:
                    torch.testing.assert_close(tensor, other[name], atol=1e-5, rtol=1e-3, msg=name)


CASES = (
    compare_label_terms,
    compare_pu_risks,
    compare_low_level,
    compare_feature_term,
    compare_views,
    compare_patches,
    compare_norm_outside_training,
    compare_strided_gradient,
    compare_student_steps,
    attempt_everything,
)


def compare_all(device: str) -> None:
    """Every case, one after the other."""
    for case in CASES:
        case(device)
