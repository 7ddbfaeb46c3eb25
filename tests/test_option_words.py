"""What the library says in Python's words is said in options on the command line."""

from pathlib import Path

import pytest
from cli_tools import must_refuse, write_npz

from splitpu.cli.options import as_options
from splitpu.cli.progress import BarDisplay, LineDisplay, ProgressDisplay


def test_advice_on_the_command_line_names_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_npz(tmp_path / "a.npz", X_test=None, y_test=None, truth=None)
    said = must_refuse(capsys, "fit", data, "--prior", "0.1", saying=r"^splitpu: --prior 0\.1 expects 8 positives")
    assert "--scenario case-control if" in said and "=" not in said


@pytest.mark.parametrize("display", [ProgressDisplay, LineDisplay, BarDisplay])
def test_notes_name_options_wherever_they_are_shown(
    display: type[ProgressDisplay], capsys: pytest.CaptureFixture[str]
) -> None:
    display().note("few are labelled:\n give prior=0.3")
    assert capsys.readouterr().err == "note: few are labelled: give --prior 0.3\n"


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("give it (prior='auto'), or", "give it (--prior auto), or"),
        ("raise it above prior=0.25.", "raise it above --prior 0.25."),
        ("use device='cuda:1'.", "use --device cuda:1."),
        ("/data/prior=0.3/x.csv is empty", "/data/prior=0.3/x.csv is empty"),
        ("a-prior=0.3.csv is empty", "a-prior=0.3.csv is empty"),
    ],
)
def test_only_arguments_are_translated(sentence: str, expected: str) -> None:
    assert as_options(sentence) == expected
