"""A made-up run, as rich as a real one, for tests of the report."""

import math
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from splitpu.report.contents import ReportData, RoundReport, Sample


def digit_samples(first: int, how_many: int, hard: bool) -> tuple[Sample, ...]:
    """Take digits as gallery samples, confident where they are easy."""
    random = np.random.default_rng(first)
    images = load_digits().images[first : first + how_many]
    probabilities = random.uniform(0.3, 0.7, (how_many, 2)) if hard else random.beta(0.05, 0.05, (how_many, 2)).round(6)
    return tuple(
        Sample(f"digits/{first + row:05d}", float(teacher), float(student), pixels=_as_pixels(image))
        for row, (image, (teacher, student)) in enumerate(zip(images, probabilities, strict=True))
    )


def vector_samples(how_many: int, features: int) -> tuple[Sample, ...]:
    """Make samples of named features."""
    random = np.random.default_rng(3)
    return tuple(
        Sample(
            f"row {row}",
            float(random.random()),
            float(random.random()),
            values=tuple((f"mean radius {feature}", float(random.normal())) for feature in range(features)),
        )
        for row in range(how_many)
    )


def fake_report(**changes: Any) -> ReportData:
    """Make a report of two rounds on digits; any field can be replaced."""
    random = np.random.default_rng(0)
    parts = [random.beta(0.35, 4, 24_000), random.beta(5, 0.4, 14_500), random.uniform(size=500)]
    fields: dict[str, Any] = {
        "title": "Even digits, 500 labelled",
        "asked": {
            "Data": "digits.npz",
            "Rows": "39,500 (8 x 8 x 1)",
            "Labelled": "500",
            "Unlabelled": "39,000",
            "Scenario": "case-control",
            "Prior": "0.385",
            "Network": "cnn13",
            "Preset": "default",
            "Seed": "0",
        },
        "figures": [
            _figures("base", 0.8951, 0.8702, 0.9514, 0.9342, 0.4102),
            _figures("round 1 student", 0.9267, 0.9055, 0.9731, 0.9613, 0.4011),
            _figures("round 2 student", 0.9358, 0.9171, 0.9779, 0.9598, 0.3984),
        ],
        "rounds": (
            RoundReport(
                1, 0.92, _rising(0.92, 9), 9, True, 35_912, 3_088, {"easy": 0.066, "hard": 0.344, "all": 0.088}
            ),
            RoundReport(
                2, 0.92, _rising(0.905, 20), 20, False, 35_295, 3_705, {"easy": 0.041, "hard": 0.281, "all": 0.064}
            ),
        ),
        "history": _history(),
        "probabilities": np.concatenate(parts),
        "prior": 0.385,
        "expected_positive_share": 0.385,
        "threshold": 0.47,
        "easiest": digit_samples(0, 16, hard=False),
        "hardest": digit_samples(100, 16, hard=True),
        "warnings": ("Round 2: the temporary network never reached tau = 0.92 in 20 epochs; raise split.max_epochs.",),
        "config_text": 'rounds = 2\nthreshold = "prior"\n\n[base]\nrisk = "nnpu"\nepochs = 50\n\n[split]\ntau = 0.92\n',
        "environment": {
            "splitpu": "0.1.0",
            "Python": "3.12.3",
            "torch": "2.13.0+cpu",
            "Device": "CPU, 2 cores",
            "Commit": "3f8e1d2c9b7a6f5e4d3c2b1a0f9e8d7c6b5a4f3e",
            "Seconds": "412.6",
        },
    }
    return ReportData(**(fields | changes))


def _as_pixels(image: np.ndarray) -> np.ndarray:
    return (255 * image / 16).astype(np.uint8)[:, :, None]


def _figures(model: str, *values: float) -> dict[str, Any]:
    names = ("accuracy", "f1", "roc_auc", "average_precision", "positive_rate")
    return {"model": model, **dict(zip(names, values, strict=True))}


def _rising(last: float, epochs: int) -> tuple[float, ...]:
    return tuple(
        0.55 + (last + 0.004 - 0.55) * (1 - math.exp(-3.5 * epoch / epochs)) / (1 - math.exp(-3.5))
        for epoch in range(1, epochs + 1)
    )


def _history() -> list[dict[str, Any]]:
    random = np.random.default_rng(1)
    lines: list[dict[str, Any]] = []
    plans = [
        ("base", 50, 50),
        ("round1.split", 9, 20),
        ("round1.student", 80, 80),
        ("round2.split", 20, 20),
        ("round2.student", 80, 80),
    ]
    for number, (stage, ran, planned) in enumerate(plans):
        names = ["loss"]
        if stage.endswith("student"):
            names += ["easy", "positive", "low", "prediction", "feature"]
        for epoch in range(1, ran + 1):
            fall = math.exp(-4 * epoch / planned)
            terms = {name: (0.1 + 0.4 * fall / (1 + number)) * (1 + 0.03 * random.normal()) for name in names}
            if "feature" in terms:
                terms["feature"] = -0.9 + 0.7 * fall
            rate = 1e-3 if stage.endswith("split") else 5e-4 * (1 + math.cos(math.pi * epoch / planned))
            lines.append(
                {"stage": stage, "epoch": epoch, "epochs": planned, "seconds": 1.2, "rate": rate, "terms": terms}
            )
    return lines
