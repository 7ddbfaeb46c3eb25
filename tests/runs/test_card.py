"""The model card: a head that a YAML reader takes, and nothing that the run does not say."""

import hashlib
import json
from pathlib import Path

import pytest
from cli_tools import TINY, fit_tiny, must_do, write_npz

from splitpu.runs.card import card_of, plain
from splitpu.runs.folder import RunFolder


def head_of(card: str) -> dict[str, object]:
    """Every value is JSON, which YAML reads."""
    _, head, _ = card.split("---\n", 2)
    return {line.partition(": ")[0]: json.loads(line.partition(": ")[2]) for line in head.strip().splitlines()}


def test_a_tested_run(tmp_path: Path) -> None:
    run = fit_tiny(tmp_path)
    must_do("card", run)
    card, result = (run / "README.md").read_text(), json.loads((run / "result.json").read_text())
    head = head_of(card)
    assert head["library_name"] == "splitpu" and head["pipeline_tag"] == "tabular-classification"
    measured = head["model-index"][0]["results"][0]["metrics"]  # type: ignore[index]
    accuracy = next(one["value"] for one in measured if one["type"] == "accuracy")
    assert accuracy == pytest.approx(result["models"][-1]["test"]["accuracy"], abs=1e-4)
    assert (
        "On 40 test rows" in card
        and str(tmp_path) not in card
        and hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest() in card
    )


def test_an_untested_run_says_what_is_estimated_and_what_is_not_known(tmp_path: Path) -> None:
    data = write_npz(tmp_path / "rows_<b>.npz", X_test=None, y_test=None, truth=None)
    must_do("fit", data, "--method", "nnpu", "--prior", 0.5, "--out", tmp_path / "run", "--quiet", *TINY)
    card = card_of(RunFolder(tmp_path / "run"))
    assert "Nothing is known" in card and "model-index" not in head_of(card)
    assert plain("rows_<b>.npz") in card and "<b>" not in card.replace("\\<b\\>", "")
    held = ["--set", "selection.held_out=0.3", "--set", "selection.criterion=none"]
    must_do("fit", data, "--method", "nnpu", "--prior", 0.5, "--out", tmp_path / "held", "--quiet", *TINY, *held)
    assert "Estimated from labelled and unlabelled rows" in card_of(RunFolder(tmp_path / "held"))
    must_do("card", tmp_path / "held", tmp_path / "card.md")
    assert (tmp_path / "card.md").exists() and not (tmp_path / "held" / "README.md").exists()
