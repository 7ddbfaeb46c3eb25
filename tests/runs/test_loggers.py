"""Loggers hear every epoch under its stage, and the figures of the result."""

from pathlib import Path
from typing import Any

import pytest
from cli_tools import TINY, must_do, must_refuse, run_cli, write_npz

from splitpu.engine.stage import EpochRecord
from splitpu.runs import run as loggers
from splitpu.runs.run import EpochLogger, _as_key

ASKED = ["--method", "nnpu", "--prior", 0.5, "--quiet", *TINY]


def test_one_observer_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, float, int]] = []
    closed: list[bool] = []

    def toy(run: Path) -> EpochLogger:
        return EpochLogger(lambda *news: sent.append(news), lambda: closed.append(True))

    monkeypatch.setitem(loggers._MAKERS, "json", toy)  # of a name that can be imported
    must_do("fit", write_npz(tmp_path / "rows.npz"), "--out", tmp_path / "run", "--log", "json", *ASKED)
    assert [step for name, _, step in sent if name == "base/loss"] == [1, 2] and closed == [True]
    assert any(name == "result/nnPU/accuracy" and 0 <= value <= 1 for name, value, _ in sent)


def test_an_agreement_is_sent_where_there_is_one() -> None:
    sent: dict[str, Any] = {}
    logger = EpochLogger(lambda name, value, step: sent.update({name: (value, step)}))
    logger.epoch_done(EpochRecord("split", 3, 5, 0.1, 1e-3, {"loss": 0.5}, agreement=0.9))
    assert sent["split/agreement"] == (0.9, 3) and sent["split/loss"] == (0.5, 3)


def test_what_is_no_logger_or_not_installed_is_refused_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, words = write_npz(tmp_path / "rows.npz"), ["--out", tmp_path / "run", *ASKED]
    must_refuse(
        capsys, "fit", data, "--log", "notebook", *words, saying="not a logger: choose from tensorboard, mlflow"
    )
    must_refuse(capsys, "fit", data, "--log", "mlflow", "--seeds", "0,1", *words, saying="mlflow|one run")
    monkeypatch.setattr(loggers, "find_spec", lambda name: None)
    must_refuse(capsys, "fit", data, "--log", "tensorboard", *words, saying=r"splitpu\[tensorboard\]")
    assert not (tmp_path / "run").exists()


def test_tensorboard_files_hold_the_epochs(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="no TensorBoard here: it comes with the extra tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    must_do("fit", write_npz(tmp_path / "rows.npz"), "--out", tmp_path / "run", "--log", "tensorboard", *ASKED)
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("base/loss")] == [1, 2]


def test_a_logger_that_cannot_begin_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(run: Path) -> EpochLogger:
        raise OSError("the server does not answer\nand more")

    monkeypatch.setitem(loggers._MAKERS, "json", broken)
    words = [write_npz(tmp_path / "rows.npz"), "--out", tmp_path / "run", "--log", "json", *ASKED]
    code, _, said = run_cli(capsys, "fit", *words)
    assert code == 2 and said.endswith("splitpu: --log json cannot begin: the server does not answer\n")


def test_mlflow_holds_the_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="no MLflow here: it comes with the extra mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # as it is set for whoever says nothing; to be forgotten
    monkeypatch.chdir(tmp_path)
    must_do("fit", write_npz(tmp_path / "rows.npz"), "--out", tmp_path / "run", "--log", "mlflow", *ASKED)
    (found,) = mlflow.MlflowClient().search_runs(["0"])
    assert [one.step for one in mlflow.MlflowClient().get_metric_history(found.info.run_id, "base/loss")] == [1, 2]
    assert found.info.status == "FINISHED"


def test_as_key_in_short() -> None:
    assert _as_key("shipped: kernel, wide") == "shipped-kernel-wide"
