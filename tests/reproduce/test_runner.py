"""The harness: what is run, skipped, left for later and taken up again, and a smoke run of everything.

Which stages units share, and that no worker stands and waits for another's while there is other work.
"""

import contextlib
import fcntl
import io
import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from experiment_tools import NAMES, made_up, units_of
from method_tools import LEARNERS, METHODS

from splitpu.cli import main
from splitpu.errors import Interrupted
from splitpu.reproduce import runner as harness
from splitpu.reproduce import unit_runs as running
from splitpu.reproduce.declared import experiments
from splitpu.reproduce.runner import Clock, UnitRun, UnitSchedule, run_units
from splitpu.reproduce.store import ResultStore
from splitpu.reproduce.unit_runs import Workplace
from splitpu.reproduce.units import Unit, shareable_stages, smoke_units
from splitpu.runs.grid import Grid, InTurn

Capture = pytest.CaptureFixture[str]
QUIET: list[str] = []


def told(lines: list[str]) -> Any:
    return lines.append


# -------------------------------------------------------------------------------------------------------------- harness


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path / "stages", "cpu")


def test_done_units_are_skipped_and_failing_ones_stop_nobody(
    tmp_path: Path, workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = units_of("main", recipe="paper", positives=[1000], seeds=[0, 1, 2])
    store, asked, said = ResultStore(tmp_path), [], list[str]()
    store.add(units[0], made_up(units[0], 90.0))

    def run(unit: Unit, *_: object) -> dict[str, Any]:
        asked.append(unit.seed)
        if unit.seed == 1:
            raise RuntimeError("out of luck")
        return made_up(unit, 91.0)

    monkeypatch.setattr(running, "run_unit", run)
    session = run_units(units, store, workplace, tell=told(said))
    assert asked == [1, 2] and [len(session.skipped), len(session.done), len(session.failed)] == [1, 1, 1]
    assert any("out of luck" in text for text in said)
    session = run_units(units, ResultStore(tmp_path), workplace, tell=told(said))
    assert asked == [1, 2, 1] and len(session.skipped) == 2


def test_units_of_another_process_are_left_to_it(
    tmp_path: Path, workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, ours, between = units_of("main", recipe="paper", positives=[1000], seeds=[0, 1, 2])
    store, said = ResultStore(tmp_path), list[str]()

    def run(unit: Unit, *_: object) -> dict[str, Any]:
        ResultStore(tmp_path).add(between, made_up(between, 92.0))  # the other process ends one meanwhile
        return made_up(unit, 91.0)

    monkeypatch.setattr(running, "run_unit", run)
    claim = UnitSchedule([theirs], Clock(None)).claim(UnitRun(0, theirs, workplace))
    assert claim is not None
    with claim:
        session = run_units([theirs, ours, between], store, workplace, tell=told(said))
    assert session.left == [0] and list(session.done) == [1] and session.skipped == [2]
    assert any(f"another process is at it: {theirs}" in text for text in said)
    session = run_units([theirs], store, workplace, tell=told(said))  # once the other has gone, it is anybody's
    assert list(session.done) == [0] and not list((workplace.cache / "claims").iterdir())


def test_results_that_could_not_be_kept_are_told_before_the_training(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "results").write_text("no folder")
    words = ["--results", str(tmp_path / "results"), "--cache", str(tmp_path / "cache")]
    assert main(["reproduce", "run", "competitors-digits", "--seeds", "0", "--method", "nnpu", *words]) == 2
    said = capsys.readouterr().err
    assert f"results cannot be kept in {tmp_path / 'results'}" in said and not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([""], "name an experiment, such as main"),
        (["main", "--method", ","], "--method ',' names nothing"),
        (["main", "--minutes", "nan"], "--minutes nan leaves no time"),
    ],
)
def test_what_names_nothing_is_no_success(words: list[str], sentence: str, capsys: Capture) -> None:
    assert main(["reproduce", "run", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_a_unit_that_would_not_fit_is_not_started(
    tmp_path: Path, workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = units_of("main", recipe="paper", positives=[1000], seeds=range(5))
    now = [0.0]

    def run(unit: Unit, *_: object) -> dict[str, Any]:
        now[0] += 100.0
        return made_up(unit, 90.0)

    monkeypatch.setattr(running, "run_unit", run)
    monkeypatch.setattr(harness.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(harness, "Clock", lambda minutes, fill: Clock(minutes, lambda: now[0], fill=fill))
    said: list[str] = []
    session = run_units(units, ResultStore(tmp_path), workplace, minutes=5, tell=told(said))
    assert list(session.done) == [0, 1] and session.left == [2, 3, 4]
    assert said[-1].endswith("3 are left. The same command goes on from here.")


def test_units_that_share_a_base_are_judged_by_their_like() -> None:
    now = [0.0]
    clock = Clock(5, lambda: now[0])
    one, two, *_ = units_of("rho", recipe="paper", positives=[1000], seeds=[0])
    (fresh, *_) = units_of("rho", recipe="paper", positives=[1000], seeds=[1])
    clock.took(one, 200.0)  # base and all
    clock.took(two, 50.0)
    now[0] = 200.0
    assert clock.fits(two) and not clock.fits(fresh)
    now[0] = 296.0
    assert not clock.fits(two)


def test_units_of_another_recipe_are_judged_by_how_good_guesses_were() -> None:
    now = [0.0]
    clock = Clock(5, lambda: now[0])
    (short,) = units_of("main", recipe="default", positives=[1000], seeds=[0])
    (long,) = units_of("main", recipe="record", positives=[1000], seeds=[0])
    clock.took(short, 2 * short.guessed_seconds)
    now[0] = 295.0 - 2 * long.guessed_seconds - 1
    assert clock.fits(long)
    now[0] += 2
    assert not clock.fits(long)


def test_where_time_is_to_be_filled_every_unit_is_started() -> None:
    now = [0.0]
    clock = Clock(5, lambda: now[0], fill=True)
    one, two, *_ = units_of("rho", recipe="paper", positives=[1000], seeds=[0])
    clock.took(one, 290.0)
    now[0] = 290.0
    assert clock.fits(two)
    now[0] = 296.0
    assert not clock.fits(two)


def test_an_interrupted_unit_goes_on_where_it_was(tmp_path: Path, workplace: Workplace, smoked: "Smoke") -> None:
    unit = next(u for u in smoke_units(experiments().values()) if u.experiment.name == "main")
    said: list[str] = []
    stops_in_the_student = lambda: any("round1.split" in text for text in said)  # noqa: E731
    session = run_units([unit], ResultStore(tmp_path), workplace, stop=stops_in_the_student, tell=told(said))
    assert session.left == [0] and not list(tmp_path.glob("*.jsonl"))
    again: list[str] = []
    session = run_units([unit], ResultStore(tmp_path), workplace, tell=told(again))
    assert list(session.done) == [0]
    assert {"    base: from the cache", "    round1.split: from the cache"} <= set(again)
    found = ResultStore(tmp_path).find(unit)
    assert found is not None and found["metrics"] == smoked.line("main")["metrics"]


def test_what_was_stopped_is_not_told_as_out_of_time(tmp_path: Path, workplace: Workplace) -> None:
    said: list[str] = []
    units = units_of("main", recipe="paper", positives=[1000], seeds=[0])
    session = run_units(units, ResultStore(tmp_path), workplace, stop=lambda: True, tell=told(said))
    assert len(session.left) == len(units) and said[0].startswith("stopped before the next unit: main / paper")


def test_interruption_is_no_failure(tmp_path: Path, workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object) -> dict[str, Any]:
        raise Interrupted("stopped during base")

    monkeypatch.setattr(running, "run_unit", run)
    units = units_of("main", recipe="paper", positives=[1000], seeds=[0, 1])
    session = run_units(units, ResultStore(tmp_path), workplace, tell=told(QUIET))
    assert len(session.left) == len(units) and not session.failed


# ---------------------------------------------------------------------------------------------------------------- smoke


TINY_AS_MAIN = {"base-epochs", "starts-busi"}  # they compare epochs or networks, and all tiny units have the same


@dataclass
class Smoke:
    """What `splitpu reproduce smoke` left behind."""

    folder: Path
    said: str
    code: int

    def line(self, name: str) -> dict[str, Any]:
        (text,) = (self.folder / "results" / f"{name}.jsonl").read_text().splitlines()
        line: dict[str, Any] = json.loads(text)
        return line

    def stages(self, name: str) -> list[str]:
        """What was said about the stages of an experiment's unit."""
        part = self.said.split(f"] {name} /")[1].split("\n[")[0]
        return re.findall(r"^    (\S+: (?:from the cache|\d+ epochs))", part, re.MULTILINE)


@pytest.fixture(scope="session")
def smoked(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Smoke:
    """Run once, even where several processes share the tests between them."""
    shared = tmp_path_factory.getbasetemp()
    folder = (shared.parent if hasattr(request.config, "workerinput") else shared) / "smoke"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "said").exists():
            code, said = smoke_into(folder)
            (folder / "said").write_text(f"{code}\n{said}")
    code, _, said = (folder / "said").read_text().partition("\n")
    return Smoke(folder, said, int(code))


def smoke_into(folder: Path) -> tuple[int, str]:
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patched, contextlib.redirect_stderr(said):
        kept = contextlib.nullcontext(str(folder))
        patched.setattr("splitpu.cli.experiments.tempfile.TemporaryDirectory", lambda **_: kept)
        code = main(["reproduce", "smoke"])
    return code, said.getvalue()


def test_smoke_runs_every_experiment(smoked: Smoke) -> None:
    assert smoked.code == 0, smoked.said
    assert {path.stem for path in (smoked.folder / "results").iterdir()} == set(NAMES) - TINY_AS_MAIN
    for same in smoke_units([experiments()[name] for name in TINY_AS_MAIN]):
        assert ResultStore(smoked.folder / "results").find(same) is not None
    line = smoked.line("main")
    wanted = "experiment recipe method positives setting seed accuracy base_accuracy metrics rounds config_hash commit"
    assert set(f"{wanted} device seconds stage_seconds versions date".split()) <= set(line)
    assert 0 <= line["accuracy"] <= 100 and line["accuracy"] == line["rounds"][-1]["accuracy"]
    assert set(line["rounds"][0]) >= {"accuracy", "easy", "hard", "noise", "split_epoch", "reached"}


def test_smoke_runs_every_method(smoked: Smoke) -> None:
    texts = [text for path in (smoked.folder / "results").iterdir() for text in path.read_text().splitlines()]
    assert {json.loads(text)["method"] for text in texts} == set(METHODS) - set(LEARNERS)
    (every,) = [one for one in smoke_units([experiments()["competitors"]]) if one.method == "dist-pu"]
    assert every.config.dist_pu.epochs == every.config.dist_pu.warmup_epochs == 2  # all its parts are tiny


def test_what_is_shared_is_trained_once(smoked: Smoke) -> None:
    said = {name: smoked.stages(name) for name in NAMES if name not in TINY_AS_MAIN}
    assert said["main"] == ["base: 2 epochs", "round1.split: 2 epochs", "round1.student: 2 epochs"]
    only_the_student = ["base: from the cache", "round1.split: from the cache", "round1.student: 2 epochs"]
    for name in ("easy-loss", "hard-loss", "consistency-scope", "rho", "alpha", "beta", "learning-of-noise"):
        assert said[name] == only_the_student, name
    assert said["early-stop"] == ["base: from the cache", "round1.student: 2 epochs"]
    assert said["tau"] == ["base: from the cache", "round1.split: 2 epochs", "round1.student: 2 epochs"]
    for name in ("spr", "cgh", "gallery"):  # one student is watched for all figures
        assert all("from the cache" in stage for stage in said[name])
    assert said["rounds"][:3] == [stage.replace("2 epochs", "from the cache") for stage in said["main"]]
    assert "base: 2 epochs" in said["base-upu"] and "base: 2 epochs" in said["recipe-choice"]
    assert said["record-choice"][:4] == ["warmup: 2 epochs", *said["main"]]


def test_four_rounds_in_one_line(smoked: Smoke) -> None:
    rounds = smoked.line("rounds")["rounds"]
    assert [r["round"] for r in rounds] == [1, 2, 3, 4]
    assert rounds[0]["accuracy"] == smoked.line("main")["accuracy"]


def test_watching_changes_nothing(smoked: Smoke) -> None:
    for name in ("learning-of-noise", "spr", "cgh", "gallery"):
        assert smoked.line(name)["metrics"] == smoked.line("main")["metrics"]


def test_series_of_the_figures(smoked: Smoke) -> None:
    tau = smoked.line("noise-by-tau")["series"]
    unlabelled = {easy + hard for easy, hard in zip(tau["easy"], tau["hard"], strict=True)}
    noisy = {easy + hard for easy, hard in zip(tau["noisy_easy"], tau["noisy_hard"], strict=True)}
    assert tau["epoch"] == [1, 2] and len(unlabelled) == len(noisy) == 1
    assert noisy.pop() / unlabelled.pop() == pytest.approx(tau["noise_all"])
    learned = smoked.line("learning-of-noise")["series"]
    noise = smoked.line("learning-of-noise")["rounds"][0]["noise"]["easy"]
    assert learned["noisy_size"] / (learned["noisy_size"] + learned["clean_size"]) == pytest.approx(noise)
    assert smoked.line("spr")["series"]["epoch"] == [2]
    cgh = smoked.line("cgh")["series"]
    assert sum(cgh["clean_share"]) == pytest.approx(1) and cgh["statistics"]["clean"]["count"] > 0
    gallery = smoked.line("gallery")["series"]
    assert len(gallery) == 4 and all(s["png"].startswith("data:image/png") for g in gallery.values() for s in g)
    choice = smoked.line("recipe-choice")
    assert set(choice["selection"]) == {"pu_accuracy", "nnpu_value", "pu_auc"} and choice["held_out_positives"] == 10


def test_smoke_is_rendered(smoked: Smoke) -> None:
    text, html = ((smoked.folder / "docs" / name).read_text() for name in ("RESULTS.md", "results.html"))
    assert f"{smoked.line('main')['accuracy']:.2f} (n = 1)" in text and f"{smoked.line('main')['accuracy']:.2f}" in html
    assert html.count("<img") == sum(len(group) for group in smoked.line("gallery")["series"].values())
    assert "nan" not in text.lower().split() and "None" not in text


def drawn(name: str, recipe: str = "default", *, positives: tuple[int, ...] = (1000,), seed: int = 0) -> list[Unit]:
    return units_of(name, recipe=recipe, positives=positives, seeds=[seed])


def stages(unit: Unit) -> list[str]:
    return list(shareable_stages(unit).values())


def test_students_that_differ_share_base_and_split() -> None:
    one, other = drawn("rho")[:2]
    assert stages(one)[:2] == stages(other)[:2]
    assert stages(one)[2] != stages(other)[2]


def test_splits_that_differ_share_the_base_alone() -> None:
    one, other = drawn("tau")[:2]
    assert stages(one)[0] == stages(other)[0]
    assert set(stages(one)[1:]).isdisjoint(stages(other)[1:])


def test_numbers_of_labels_share_the_warm_up_alone() -> None:
    one, other = drawn("main", "record", positives=(500, 1000))
    assert stages(one)[0] == stages(other)[0]
    assert set(stages(one)[1:]).isdisjoint(stages(other)[1:])


def test_seeds_recipes_and_held_out_rows_share_nothing() -> None:
    usual = stages(drawn("main")[0])
    for unit in (*drawn("main", seed=1), *drawn("main", "paper"), *drawn("recipe-choice")):
        assert set(usual).isdisjoint(stages(unit))


def test_a_watched_student_is_nobody_elses() -> None:
    figure, table = drawn("spr")[0], drawn("main")[0]
    assert stages(figure)[:2] == stages(table)[:2]
    assert stages(figure)[2] != stages(table)[2]


def scheduled(units: list[Unit]) -> tuple[UnitSchedule, list[UnitRun]]:
    runs = [UnitRun(number, unit, Workplace(Path("stages"))) for number, unit in enumerate(units)]
    return UnitSchedule(units, Clock(None)), runs


def test_whoever_shares_waits_until_the_stage_is_made() -> None:
    schedule, (first, second, third) = scheduled([*drawn("rho")[:2], *drawn("main", seed=1)])
    schedule.started(first)
    assert not schedule.is_ready(second)
    assert schedule.is_ready(third)
    for stage in ("base", "round1.split", "round1.split.again1"):
        schedule.reached(first, stage)
        assert not schedule.is_ready(second)
    schedule.reached(first, "round1.student")
    assert schedule.is_ready(second)
    schedule.started(second)
    schedule.ended(first, None)
    schedule.ended(second, None)
    assert all(map(schedule.is_ready, (first, second, third)))


def test_more_rounds_wait_for_the_student_of_the_first() -> None:
    schedule, (first, second, *_) = scheduled([*drawn("rounds"), *drawn("main")])
    schedule.started(first)
    schedule.reached(first, "round1.student")
    assert not schedule.is_ready(second)
    schedule.reached(first, "round2.split")
    assert schedule.is_ready(second)


@dataclass
class InThreads:
    """Several workers that ask the grid, as those of a cluster do."""

    workers: int

    def run(self, grid: Grid[Any]) -> None:
        with ThreadPoolExecutor(self.workers) as threads:
            for future in [threads.submit(InTurn().run, grid) for _ in range(self.workers)]:
                future.result()


def test_workers_take_up_a_unit_as_soon_as_what_it_shares_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first unit trains its student until the second, which shares its base and split, is under way."""
    units = [*drawn("rho")[:2], *drawn("main", seed=1)]
    begun = {str(unit): threading.Event() for unit in units}
    order: list[str] = []

    def run_unit(unit: Unit, workplace: Workplace, observer: Any, note: Any) -> dict[str, Any]:
        order.append(str(unit))
        begun[str(unit)].set()
        for name in ("base", "round1.split", "round1.student"):
            observer.stage_started(SimpleNamespace(name=name), 0)
            if unit is units[0] and name == "base":
                assert begun[str(units[2])].wait(20)
            if unit is units[0] and name == "round1.student":
                assert begun[str(units[1])].wait(20)
        return made_up(unit, 90.0)

    monkeypatch.setattr(running, "run_unit", run_unit)
    place, workers = Workplace(tmp_path / "stages", "cpu"), InThreads(2)
    session = run_units(units, ResultStore(tmp_path / "results"), place, tell=lambda text: None, executor=workers)
    assert len(session.done) == 3 and not session.failed
    assert order == [str(units[0]), str(units[2]), str(units[1])]


def test_a_worker_without_a_unit_that_is_ready_waits_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All units share a base: no worker begins one of them, only to stand still, before it is made."""
    units = drawn("rho")[:3]
    base_is_made = threading.Event()
    too_early: list[str] = []

    def run_unit(unit: Unit, workplace: Workplace, observer: Any, note: Any) -> dict[str, Any]:
        if unit is units[0]:
            time.sleep(0.2)  # in which the other workers look for something to do
            base_is_made.set()
        elif not base_is_made.is_set():
            too_early.append(str(unit))
        observer.stage_started(SimpleNamespace(name="round1.student"), 0)
        return made_up(unit, 90.0)

    monkeypatch.setattr(running, "run_unit", run_unit)
    place, workers = Workplace(tmp_path / "stages", "cpu"), InThreads(3)
    session = run_units(units, ResultStore(tmp_path / "results"), place, tell=lambda text: None, executor=workers)
    assert len(session.done) == 3 and not too_early
