"""`splitpu card`: a model card of a finished run, in the form that the Hugging Face Hub reads: a head of YAML between
two lines of dashes, then Markdown. What the run itself says is all that stands there; nothing is measured again."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from splitpu.methods.registry import find_method
from splitpu.model import WEIGHTS, Model
from splitpu.prior.estimate import prior_in_words
from splitpu.report.contents import environment
from splitpu.runs.folder import RunFolder
from splitpu.utils.files import check_place, write_text
from splitpu.utils.reading import Guarded

CARD = "README.md"  # as the Hub expects it beside the weights
_TASKS = {"images": "image-classification", "vectors": "tabular-classification"}
_FIGURES = ("accuracy", "f1", "roc_auc", "average_precision", "precision", "recall")
_MEANING = re.compile(r"([\\`*_\[\]<>|#])")


def plain(words: object) -> str:
    """Words from the data, which are neither Markdown nor HTML.

    >>> plain("a_b <script>")
    'a\\\\_b \\\\<script\\\\>'
    """
    return _MEANING.sub(r"\\\1", " ".join(str(words).split()))


def card_of(folder: RunFolder) -> str:
    """The card of a finished run."""
    result, model = folder.read_result(), Model.load(folder.path)
    final = next(one for one in reversed(result["models"]) if one["model"] == result["final"])
    method, data = find_method(result["method"]), Path(re.split("[,:;] ", result["data"])[0]).name
    figures = _figures(result, final)
    measured = {
        "task": {"type": "other", "name": "PU learning"},
        "dataset": {"name": data, "type": data},
        "metrics": [
            {"type": name, "value": round(value, 4), "name": f"{name}{' (estimated)' * bool(interval)}"}
            for name, value, interval in figures
        ],
    }
    head = {
        "library_name": "splitpu",
        "tags": ["positive-unlabelled-learning", "pu-learning", result["method"]],
        "pipeline_tag": _TASKS.get(model.preprocessing.kind, "other"),
        "metrics": [name for name, *_ in figures],
        "model-index": [{"name": folder.path.name, "results": [measured]}] if figures else [],
    }
    template = environment().overlay(autoescape=False).get_template("card.md")
    return template.render(
        head={name: json.dumps(value) for name, value in head.items() if value},  # YAML reads JSON
        title=plain(folder.path.name),
        method=method,
        result=result,
        data=plain(data),
        figures=figures,
        tested=bool(result["test_rows"]),
        prior=prior_in_words(result["prior"], result["prior_interval"], result["prior_source"]),
        classes=[plain(one) for one in model.classes],
        kind=(inputs := model.inputs or {}).get("kind", model.preprocessing.kind),
        columns=[plain(column["name"]) for column in inputs.get("columns", ())],
        shape=" x ".join(map(str, model.preprocessing.shape)),
        warnings=[plain(one) for one in result["warnings"]],
        notes=[] if result["test_rows"] else [plain(one) for one in result.get("figures_notes", ())],
        weights=Guarded(folder.path / WEIGHTS).checksum(),
    )


def _figures(result: Mapping[str, Any], final: Mapping[str, Any]) -> list[tuple[str, float, str]]:
    """Name, value and interval of every figure: of the test rows, or else estimated from P and U."""
    if result["test_rows"]:
        return [(name, final["test"][name], "") for name in _FIGURES if final["test"].get(name) is not None]
    found = result.get("figures") or {}
    known = [(name, found[name]) for name in _FIGURES if name in found and found[name]["value"] is not None]
    return [(name, one["value"], f"{one['low']:.3f} to {one['high']:.3f}") for name, one in known]


def write_card(run: str, out: Path | None) -> Path:
    """Write the card beside the model, or where it is wanted."""
    folder = RunFolder.find_trained(run)
    path = folder.path / CARD if out is None else out
    check_place(path)
    write_text(path, card_of(folder))
    return path
