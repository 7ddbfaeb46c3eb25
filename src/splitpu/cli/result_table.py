"""What a finished run says of itself. Nothing heavy is imported here: `splitpu info` only reads files."""

from typing import Any

from splitpu.cli.output import notes_in_report, print_facts, print_json, print_note, print_table
from splitpu.files import in_a_command
from splitpu.listening import worth_repeating
from splitpu.prior.resolve import prior_in_words
from splitpu.runs.folder import RunFolder


def show_result(folder: RunFolder, result: dict[str, Any], *, json: bool) -> None:
    """The figures of every model, the splits, and where everything is."""
    if json:
        print_json({"run": str(folder.path), "report": str(folder.report), **result})
        return
    rows = [{**model, **(model["test"] or {})} for model in result["models"]]
    tested = ["accuracy", "f1", "roc_auc", "average_precision"] if result["test_rows"] else []
    print_table(rows, ["model", *tested, "positive_rate_unlabelled"])
    if result["rounds"]:
        print_table(
            [{**r, "round": str(r["round"]), "noise": _noise(r["noise"])} for r in result["rounds"]],
            ["round", "easy", "hard", "agreement", *(["noise"] if result["rounds"][0]["noise"] else [])],
            title="split of the unlabelled",
        )
    print_facts(
        {
            "prior": _prior_in_words(result),
            "time": f"{result['seconds_total']:.1f} s of training on {result['device']}",
            **_final_model(result),
            "run": folder.path,
            **({"scores": folder.scores} if folder.scores.exists() else {}),
            **_hard_samples(folder, result),
            "report": folder.report,
            **notes_in_report(result["warnings"]),
        }
    )
    for warning in result["warnings"]:
        if worth_repeating(warning):
            print_note(warning)


def _final_model(result: dict[str, Any]) -> dict[str, str]:
    """Which model predicts, where it is not the last of the table."""
    final = result.get("final", result["models"][-1]["model"])
    return {} if final == result["models"][-1]["model"] else {"model": f"{final}, as no student after it was taken"}


def _hard_samples(folder: RunFolder, result: dict[str, Any]) -> dict[str, str]:
    """Where to find the samples that are worth a second look."""
    hard = result["rounds"][-1]["hard"] if result["rounds"] else 0
    if not hard:
        return {}
    samples = "sample" if hard == 1 else "samples"
    where = f"named in {folder.split} and shown in the report"
    return {"hard": f"{hard:,} unlabelled {samples}, {where}; splitpu hard {in_a_command(folder.path)} lists them"}


def _prior_in_words(result: dict[str, Any]) -> str:
    used = prior_in_words(result["prior"], result.get("prior_interval"), result.get("prior_source", "given"))
    expected = result["expected_positive_rate_unlabelled"]
    if expected is None:
        return used
    return f"{used} (expects {100 * expected:.1f} % positives among the unlabelled)"


def _noise(noise: dict[str, float] | None) -> str:
    return "-" if noise is None else ", ".join(f"{part} {100 * share:.1f} %" for part, share in noise.items())
