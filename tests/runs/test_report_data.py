"""What the report says of a real run: the columns that its model goes by, and records as their owner wrote them."""

import re
from pathlib import Path

import numpy as np
import pytest
from cli_tools import must_do
from table_tools import rows_of, write_csv

from splitpu.learners.learner_networks import AverageNetwork, KernelNetwork, LinearNetwork
from splitpu.runs import report_data


def section(run: Path, anchor: str) -> str:
    page = (run / "report.html").read_text(encoding="utf-8")
    found = re.findall(f'<section id="{anchor}".*?</section>', page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", found[0]).split()) if found else ""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = rows_of(160)
    for number, row in enumerate(rows):
        row["noise"] = f"{number * 37 % 101}.50"  # written so, and of no use
    return write_csv(tmp_path_factory.mktemp("table") / "patients.csv", rows)


def fit(table: Path, out: Path, *more: str) -> Path:
    must_do("fit", table, "--label", "s", "--ignore", "id", "--prior", 0.5, "--out", out, "--quiet", *more)
    return out


def test_a_network_is_asked_what_it_goes_by_and_records_are_the_users(table: Path, tmp_path: Path) -> None:
    run = fit(table, tmp_path / "run", "--method", "nnpu", "--set", "base.epochs=30", "--set", "engine.threads=1")
    said = section(run, "importance")
    values = {name: float(re.findall(rf"\b{name} ([\d.]+)", said)[0]) for name in ("age", "ward", "noise")}
    assert max(values["age"], values["ward"]) > 3 * values["noise"], values
    assert "160 rows" in said and re.search(r"in \d+\.\d s\.", said)
    likeliest = section(run, "samples")
    assert "Likeliest positives" in likeliest and "Teacher" not in likeliest
    assert re.search(r"noise \d+\.50", likeliest) and "ward north" in likeliest and "ward = " not in likeliest
    assert section(run, "outcome").count("of the final model, ") == 0  # no rows to judge by


def test_a_linear_learner_tells_its_weights(table: Path, tmp_path: Path) -> None:
    run = fit(table, tmp_path / "run", "--set", "learner=logistic", "--rounds", "0")
    said = section(run, "importance")
    assert "which is linear" in said and float(re.findall(r"\bage ([\d.]+)", said)[0]) > 0  # older, so likelier
    assert re.search(r"ward = (south|east) \N{MINUS SIGN}", said)
    outcome = section(run, "outcome")
    assert "ROC curve of the final model, estimated" in outcome and "Precision over recall of the final" in outcome


def test_weights_of_learners_are_those_of_their_mean() -> None:
    first, second = (LinearNetwork(2).filled(weight=weight) for weight in ([1.0, 0.0], [0.0, -2.0]))
    mean = AverageNetwork([first, second]).filled(slope=[2.0, 1.0], share=[0.5, 0.5], offset=[0.0, 0.0])
    np.testing.assert_allclose(mean.linear_weights(), [1.0, -1.0])
    assert KernelNetwork(2, 3).linear_weights() is None
    assert AverageNetwork([first, KernelNetwork(2, 3)]).linear_weights() is None


def test_a_table_that_is_very_large_or_gone_is_not_read_again(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_data, "LARGEST_TABLE", 10)
    run = fit(table, tmp_path / "run", "--method", "nnpu", "--set", "base.epochs=2", "--set", "engine.threads=1")
    assert "ward = " in section(run, "samples")  # the numbers that the model has seen
