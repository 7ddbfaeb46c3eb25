"""The report: safe whatever the names are, whole in itself, and there for every shape a run can take.

The report's drawings: charts of anything are well-formed and stay on the paper, and pixels become PNG files.
"""

import dataclasses
import io
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from browser import find_browser, screenshot, visit
from fake_report import fake_report, vector_samples
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import UndefinedError
from PIL import Image

import splitpu
from splitpu.errors import InputError
from splitpu.evaluation.judgement import Curve, counted_curves
from splitpu.report.charts import (
    Labels,
    Mark,
    Series,
    decades_axis,
    encode_png,
    histogram,
    line_chart,
    round_axis,
    share_bar,
    span_of,
    stacked_bar,
)
from splitpu.report.contents import (
    MISSING,
    NO_BREAK,
    ReportData,
    RoundReport,
    Sample,
    count,
    decimal,
    percent,
    probability,
    shorten,
    writable,
)
from splitpu.report.render import _words_for, advice, called_positive, render, render_page, render_seeds, write_report
from splitpu.reproduce.summary import Block, Charts, Grid, Heading, Paragraph, Part, Pictures

HOSTILE = (
    "</title></script></style><script>alert(1)</script><img src=x onerror='alert(2)'>\"&\x00\ud800\u202e" + "w" * 300
)
VOID_TAGS = {"meta", "link", "img", "br"}


class Tags(HTMLParser):
    """Reads a page as a browser would, and insists that every tag is closed where it was opened."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID_TAGS:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in {"script", "style"}:
            self.text += data


def read(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    tags.close()
    assert tags.open == []
    return tags


def plain(text: str) -> str:
    return re.sub(r"<[^>]+>", "", text).replace("\N{NO-BREAK SPACE}", " ")


def one_line(text: str) -> str:
    return " ".join(plain(text).split())


def section_of(report: ReportData, anchor: str) -> str:
    (found,) = re.findall(f'<section id="{anchor}".*?</section>', render(report), flags=re.DOTALL)
    return found


def headline(report: ReportData) -> str:
    (found,) = re.findall('<p class="answer">(.*?)</p>', render(report), flags=re.DOTALL)
    return found


def figures(rows: Sequence[Mapping[str, Any]]) -> str:
    return section_of(fake_report(figures=rows), "outcome")


def next_steps(report: ReportData) -> str:
    return section_of(report, "next")


def hostile_report() -> ReportData:
    values = ((HOSTILE, -1.5), ("b", math.nan))
    pixels = np.zeros((3, 2, 3), dtype=np.uint8)
    return fake_report(
        title=HOSTILE,
        asked={HOSTILE: HOSTILE},
        figures=[{"model": HOSTILE, HOSTILE: HOSTILE, "accuracy": 0.5}, {"model": "b", "accuracy": 0.6}],
        rounds=(RoundReport(1, 0.9, (0.5, 0.95), 2, True, 3, 1, {HOSTILE: 0.1}),),
        history=[{"stage": HOSTILE, "epoch": 1, "epochs": 1, "rate": 0.1, "terms": {HOSTILE: 0.1}}],
        easiest=(Sample(HOSTILE, 0.1, 0.2, pixels=pixels), Sample(HOSTILE, 0.1, 0.2, values=values)),
        hardest=(Sample(HOSTILE, 0.1, math.nan),),
        warnings=(HOSTILE,),
        config_text=HOSTILE,
        environment={HOSTILE: HOSTILE},
    )


REPORTS = {
    "images": fake_report(),
    "vectors": fake_report(easiest=vector_samples(3, 30), hardest=vector_samples(2, 3)),
    "hostile": hostile_report(),
    "no test set": fake_report(figures=[{"model": "base", "positive_rate": 0.4}]),
    "bare": fake_report(
        asked={},
        figures=[],
        rounds=(),
        history=[],
        probabilities=np.array([]),
        easiest=(),
        hardest=(),
        warnings=(),
        config_text="",
        environment={},
    ),
    "broken numbers": fake_report(
        probabilities=np.array([math.nan, 0.3, math.inf]),
        expected_positive_share=math.nan,
        threshold=math.nan,
        rounds=(RoundReport(1, 0.9, (math.nan,), 1, False, 0, 0, {"hard": math.nan}),),
        history=[{"stage": "base", "epoch": 1, "epochs": 9, "terms": {"loss": math.nan, "other": None}}],
    ),
}


@pytest.mark.parametrize("kind", REPORTS)
def test_every_report_is_well_formed(kind: str) -> None:
    page = render(REPORTS[kind])
    tags = read(page)
    sections = [attributes["id"] for tag, attributes in tags.seen if tag == "section"]
    assert sections == [
        "question",
        "outcome",
        "next",
        "split",
        "samples",
        "probabilities",
        *(["curves"] if REPORTS[kind].history else []),
        "configuration",
        "environment",
    ]
    for svg in re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL):
        assert ElementTree.fromstring(svg).get("aria-label")
    page.encode("utf-8")


@pytest.mark.parametrize("kind", REPORTS)
def test_nothing_is_loaded_from_anywhere(kind: str) -> None:
    page = render(REPORTS[kind])
    for _, attributes in read(page).seen:
        for address in (attributes.get(key) for key in ("src", "href", "srcset", "action", "xlink:href")):
            assert address is None or address.startswith(("data:", "#"))
    assert "http://" not in page
    assert "https://" not in page
    assert "url(" not in page
    assert "@import" not in page


def test_hostile_names_stay_text() -> None:
    tags = read(render(hostile_report()))
    assert [tag for tag, _ in tags.seen].count("script") == 1
    assert all(not key.startswith("on") for _, attributes in tags.seen for key in attributes)
    assert all(attributes["src"].startswith("data:") for tag, attributes in tags.seen if tag == "img")
    assert "<script>alert(1)</script>" in tags.text


# Keys of plain values that are ours, not the data's: without them there would be nothing to show.
OWN_KEYS = {"model", "accuracy", "stage", "epoch", "epochs", "rate", "terms", "name", "value", "low", "high", "share"}
OWN_KEYS |= {"promised", "estimated", "always_negative", "naive"}
OWN_KEYS |= {"learner", "auc", "auc_low", "auc_high", "seconds", "chosen", "gain_over_base"}


def poisoned(value: Any) -> Any:
    """The same with every text in it, and every name that is not ours, replaced by a hostile one."""
    if isinstance(value, str):
        return HOSTILE
    if isinstance(value, dict):
        return {key if key in OWN_KEYS else HOSTILE: poisoned(part) for key, part in value.items()}
    if isinstance(value, Curve):  # numbers
        return value
    if isinstance(value, tuple | list):
        return type(value)(map(poisoned, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **{name: poisoned(part) for name, part in vars(value).items()})
    return value


def must_stay_text(page: str) -> None:
    tags = read(page)
    assert [tag for tag, _ in tags.seen].count("script") == 1
    assert all(not key.startswith("on") for _, attributes in tags.seen for key in attributes)
    assert all(str(attributes["src"]).startswith("data:") for tag, attributes in tags.seen if tag == "img")
    assert "alert(1)" in tags.text and "\x00" not in page
    page.encode("utf-8")


JUDGED = {
    name: {"value": value, "low": value - 0.1, "high": value + 0.1, "always_negative": 0.5, "naive": None}
    for name, value in (("roc_auc", 0.9), ("lift@1000", 7.0))
}
LEARNERS = [
    {
        "learner": "forest",
        "auc": 0.87,
        "auc_low": 0.83,
        "auc_high": 0.9,
        "seconds": 4.4,
        "chosen": True,
        "gain_over_base": None,
    },
    {
        "learner": "split, forest",
        "auc": 0.85,
        "auc_low": 0.8,
        "auc_high": 0.9,
        "seconds": 13.1,
        "chosen": False,
        "gain_over_base": -0.02,
    },
]
FULL = fake_report(
    judged=JUDGED,
    judged_notes=["Out of fold."],
    learners=LEARNERS,
    easiest=(*vector_samples(1, 30), *fake_report().easiest),
    prior_table=[{"name": "km2", "value": 0.3, "low": 0.2, "high": 0.4}],
    reliability=[{"share": 1.0, "promised": 0.2, "estimated": 0.3}],
    reliability_rows="Rows.",
    curves=counted_curves(np.arange(300) % 3 == 0, np.sin(np.arange(300)) + (np.arange(300) % 3 == 0)),
    importance=(("age", 0.4), ("ward = north", -0.1)),
    importance_note="Weights.",
)
TEXTS = [
    field.name
    for field in dataclasses.fields(ReportData)
    if repr(poisoned(getattr(FULL, field.name))).count("alert(1)")
]


# Of what was judged the names are ours and the rest numbers.
@pytest.mark.parametrize("field", [name for name in TEXTS if name not in ("final", "judged", "curves")])
def test_no_field_can_bring_markup_into_the_page(field: str) -> None:
    changes = {field: poisoned(getattr(FULL, field))}
    if field == "method":  # which the page names only where there are no rounds
        changes |= {"rounds": (), "learners": ()}
    must_stay_text(render(dataclasses.replace(FULL, **changes)))


def test_a_model_of_any_name_may_be_the_final_one() -> None:
    must_stay_text(render(dataclasses.replace(FULL, final=HOSTILE, figures=poisoned(FULL.figures))))


@pytest.mark.parametrize("place", range(5))
def test_no_field_can_bring_markup_into_the_page_over_seeds(place: int) -> None:
    rows = [{"model": "base", "accuracy": "90 ± 1"}]
    fields: list[Any] = ["title", rows, rows, {"seed 0": "seed0/report.html"}, ["a warning"]]
    fields[place] = poisoned(fields[place])
    must_stay_text(render_seeds(*fields))


@pytest.mark.parametrize(
    "block",
    [
        Heading(HOSTILE),
        Paragraph(HOSTILE + "`" + HOSTILE + "`"),
        Grid([HOSTILE] * 2, [[HOSTILE, f"`{HOSTILE}`"]]),
        Charts([(HOSTILE, line_chart([Series(HOSTILE, [1], [1.0])] * 2, Labels(HOSTILE, HOSTILE, HOSTILE)))]),
        Pictures(HOSTILE, [("data:," + HOSTILE, HOSTILE)]),
    ],
    ids=lambda block: type(block).__name__,
)
def test_no_block_can_bring_markup_into_the_results(block: Block) -> None:
    parts = [Part(HOSTILE, HOSTILE, [block])]
    must_stay_text(render_page("results.html", title=HOSTILE, answer=HOSTILE, parts=parts))


def test_a_field_that_a_template_misspells_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        render_page("seeds.html", title="t", runs=None)


def test_every_template_is_part_of_the_package() -> None:
    package = Path(splitpu.__file__).parent
    listed = tomllib.loads((package.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = listed["tool"]["setuptools"]["package-data"]["splitpu"]
    packed = {path for pattern in patterns for path in package.glob(pattern)}
    templates = {path for path in (package / "report" / "templates").iterdir() if path.is_file()}
    assert templates and templates <= packed


def test_the_headline_answers_in_plain_words() -> None:
    report = fake_report(probabilities=np.repeat([0.1, 0.9], [602, 398]), expected_positive_share=0.385, threshold=0.5)
    assert plain(headline(report)) == (
        "After 2 rounds the student calls 39.8 % of the unlabelled positive (expected from the prior: 38.5 %). "
        "Accuracy on the test set rose from 89.5 % (base) to 93.6 %."
    )


def test_a_probability_at_the_threshold_is_not_called_positive() -> None:
    """The rule of scores.csv and of predict, which compare with nought what is 1/2 here."""
    assert called_positive(fake_report(probabilities=np.array([0.2, 0.5, 0.5, 0.9]), threshold=0.5)) == 0.25


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([("base", 0.9), ("student", 0.8)], "fell from 90.0 % (base) to 80.0 %."),
        ([("base", 0.9), ("student", 0.90001)], "stayed at 90.0 %."),
        ([("base", 0.9)], "Accuracy on the test set is 90.0 %."),
    ],
)
def test_the_headline_tells_rise_from_fall(rows: list[tuple[str, float]], words: str) -> None:
    report = fake_report(figures=[{"model": model, "accuracy": accuracy} for model, accuracy in rows])
    assert plain(headline(report)).endswith(words)


def test_without_test_figures_the_headline_claims_none() -> None:
    assert "test set" not in headline(REPORTS["no test set"])
    assert "Without a test set" in figures(REPORTS["no test set"].figures)


def test_the_page_says_what_to_do_next() -> None:
    with_figures, without = (next_steps(REPORTS[kind]) for kind in ("images", "no test set"))
    assert "split.csv" in with_figures and 'href="#samples"' in with_figures and "--copy-to" in with_figures
    assert "splitpu evaluate" not in with_figures and "splitpu evaluate RUN" in without
    assert "--copy-to" not in next_steps(REPORTS["vectors"])  # which is for images only
    assert "copy their files" in with_figures and "copy their files" not in next_steps(REPORTS["vectors"])


def test_without_a_prior_no_estimate_is_promised() -> None:
    promised = "from which they can be estimated"
    assert promised in next_steps(fake_report(figures=[])) and promised not in (
        steps := next_steps(fake_report(figures=[], prior=math.nan))
    )
    assert "splitpu evaluate RUN --test" in steps and promised not in next_steps(fake_report(figures=[], judged=JUDGED))


def test_figures_stand_beside_what_simpler_models_get() -> None:
    page = one_line(section_of(fake_report(judged=JUDGED, judged_notes=["Out of fold."]), "outcome"))
    assert "ROC AUC 0.900 0.800 to 1.000 0.500" in page and "Lift in the top 1,000 7.000" in page
    assert "Out of fold." in page and "Naive: the best single learner" not in page


def figure(value: float, low: float, high: float, always_negative: float) -> dict[str, float | None]:
    return {"value": value, "low": low, "high": high, "always_negative": always_negative, "naive": None}


GOOD = {"roc_auc": figure(0.9, 0.8, 0.95, 0.5), "accuracy": figure(0.9, 0.85, 0.95, 0.6)}
NOT_TAKEN = (RoundReport(1, 0.9, (0.95,), 14, True, 9, 1, taken=False),)
WORSE = [{"model": "base", "accuracy": 0.93}, {"model": "round 1 student", "accuracy": 0.9}]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        (
            {"judged": GOOD | {"roc_auc": figure(0.2, 0.1, 0.3, 0.5)}, "figures": []},
            ["Ask whether the labels are swapped"],
        ),
        (
            {"judged": GOOD | {"roc_auc": figure(0.4, 0.3, 0.49, 0.5)}},
            ["Do not trust this model yet"],
        ),  # may be bad luck
        ({"judged": GOOD | {"roc_auc": figure(0.55, 0.45, 0.65, 0.5)}}, ["Do not trust this model yet"]),
        ({"judged": GOOD | {"accuracy": figure(0.6, 0.5, 0.7, 0.62)}}, ["Do not go by the decisions"]),
        ({"figures": WORSE}, ["Use the base"]),
        ({"rounds": NOT_TAKEN, "figures": []}, ["Use the base"]),
        ({"judged": {}}, []),
    ],
)
def test_advice_follows_from_the_result(changes: dict[str, Any], said: list[str]) -> None:
    report = fake_report(**{"judged": GOOD, **changes})
    assert [what for what, _ in advice(report)] == said
    page = one_line(next_steps(report))
    assert all(what in page for what in said) and ("Use the base" in page) == ("Use the base" in said)


def test_advice_gives_its_reason_and_the_way_out() -> None:
    below = GOOD | {"accuracy": figure(0.5, 0.45, 0.55, 0.62)}
    ((_, reason),) = advice(fake_report(judged=below))
    assert plain(reason).startswith("accuracy 50.0 % is below the 62.0 % of calling everything negative")
    swapped = {"judged": {"roc_auc": figure(0.2, 0.1, 0.3, 0.5)}}
    assert "in those of --test 1 means positive" in advice(fake_report(**swapped))[0][1]
    assert "--positive-label" in advice(fake_report(**swapped, figures=[]))[0][1]
    ((_, reason),) = advice(fake_report(judged=GOOD, figures=WORSE))
    assert "fell from 93.0 % (base) to 90.0 %" in plain(reason) and "--rounds 0" in reason


def test_curves_are_drawn_with_their_bands() -> None:
    truth = np.arange(600) % 3 == 0
    curves = counted_curves(truth, np.random.default_rng(0).normal(size=600) + 2 * truth)
    outcome = section_of(fake_report(curves=curves, judged=JUDGED), "outcome")
    assert outcome.count('class="band s0"') == 2 and "counted on the test rows" in outcome
    assert "ROC curve" in outcome and "Precision over recall" in outcome and "other priors" not in outcome
    band = re.findall(r'class="band s0" d="M([^"]+)Z"', outcome)[0]
    heights = [float(point.split()[1]) for point in band.split("L")]
    half = len(heights) // 2
    assert len(heights) == 202 and all(
        low >= high for low, high in zip(heights[:half], heights[: half - 1 : -1], strict=True)
    )
    estimated = section_of(fake_report(curves=curves, figures=[]), "outcome")
    assert "estimated from labelled rows, unlabelled rows and the prior" in estimated and "other priors" in estimated
    assert 'class="band' not in section_of(fake_report(), "outcome")


def test_what_a_model_goes_by_is_shown_as_bars() -> None:
    report = fake_report(importance=(("age", 0.4), ("ward = north", -0.1)), importance_note="Weights.")
    section = section_of(report, "importance")
    assert "age 0.4" in one_line(section) and "ward = north \N{MINUS SIGN}0.1" in one_line(section)
    assert 'bar s0" style="width: 100.0%"' in section and 'bar s1" style="width: 25.0%"' in section
    assert 'id="importance"' not in render(fake_report())


def test_records_are_shown_as_they_were_written() -> None:
    sample = Sample("patient-7", 0.5, 0.6, values=(("ward", "north"), ("note", "long " * 50), ("age", 41.5)))
    section = section_of(fake_report(hardest=(sample,)), "samples")
    assert "ward north" in one_line(section) and "age 41.5" in one_line(section) and "…" in section


def test_learners_are_listed_and_no_empty_chart_is_left() -> None:
    rounds = (RoundReport(1, 0.9, (0.95,), 14, True, 9, 1, taken=False),)
    report = fake_report(learners=LEARNERS, final="base: forest", rounds=rounds, history=[])
    page = one_line(section_of(report, "learners"))
    assert (
        "forest 0.8700 0.8300 to 0.9000 4.4 yes" in page
        and "split, forest 0.8500 0.8000 to 0.9000 13.1 not taken" in page
    )
    assert "The model (forest), chosen out of fold, calls" in plain(headline(report))
    whole = render(report)
    assert 'id="curves"' not in whole and "temporary network" not in section_of(report, "split")
    assert "No student was taken" in section_of(report, "split") and 'id="learners"' not in render(fake_report())


@pytest.mark.parametrize(("expected", "met"), [(0.4, True), (0.3, False)])
def test_the_prior_is_met_where_as_many_are_called_positive_as_it_expects(expected: float, met: bool) -> None:
    close = np.repeat([0.499, 0.501], [600, 400])  # so close that the cut of another prior lies in the same place
    page = render(fake_report(probabilities=close, expected_positive_share=expected, threshold=0.5))
    assert ("where the prior is met" in page) == met


def test_broken_numbers_are_not_reported_as_figures() -> None:
    assert headline(REPORTS["broken numbers"]).startswith("After 1\N{NO-BREAK SPACE}round the student gave no probabil")
    assert "calls" not in headline(REPORTS["bare"])


def test_only_the_best_of_a_column_is_bold() -> None:
    rows = [
        {"model": "base", "accuracy": 0.9, "f1": 0.8, "roc_auc": 0.2, "positive_rate": 0.4},
        {"model": "student", "accuracy": 0.91, "f1": 0.8, "roc_auc": 0.1, "positive_rate": 0.5},
        {"model": "broken", "accuracy": math.nan},
    ]
    bold = re.findall(r"<strong>(.*?)</strong>", figures(rows))
    assert [plain(value) for value in bold] == ["0.2000", "91.00 %"]  # equal figures and rates have no best


def test_a_round_that_never_reached_tau_says_so() -> None:
    assert "never agreed with the teacher on more than" in render(fake_report()), "as much as tau is not enough"
    assert "split taken at epoch" in render(fake_report())
    assert "never agreed" not in render(fake_report(rounds=fake_report().rounds[:1]))


def test_members_and_attempts_are_drawn_with_their_kind_and_named_for_the_reader() -> None:
    stages = ["base", "base.member2", "round1.student", "round1.student.again1", "round2.student.member2.again2"]
    history = [{"stage": stage, "epoch": 1, "epochs": 1, "terms": {"loss": 1.0}} for stage in stages]
    page = render(fake_report(history=history)).replace("\N{NO-BREAK SPACE}", " ")
    assert re.findall(r"<h3><bdi>(.*?)</bdi></h3>", page) == ["Base", "Students"]
    assert "Base: 1 epoch<br>Base, member 2: 1 epoch" in page
    assert "Round 1: 1 epoch<br>Round 1, attempt 2: 1 epoch<br>Round 2, member 2, attempt 3: 1 epoch" in page


def test_a_resumed_epoch_counts_once() -> None:
    line = {"stage": "base", "epoch": 1, "epochs": 2, "terms": {"loss": 1.0}}
    page = render(fake_report(history=[line, {**line, "terms": {"loss": 2.0}}, {**line, "epoch": 2}]))
    assert 'data-x="1 2" data-y="2 1"' in page


def test_images_of_odd_channels_are_still_shown() -> None:
    samples = (Sample("spectral", 0.5, 0.5, pixels=np.zeros((4, 4, 7), np.uint8)),)
    assert "first channel" in render(fake_report(easiest=samples))


def test_the_file_is_replaced_in_one_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    write_report(path, fake_report())
    whole = path.read_text(encoding="utf-8")
    assert whole.startswith("<!DOCTYPE html>")

    def fail(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("splitpu.report.render.change", fail)
    with pytest.raises(KeyboardInterrupt):
        write_report(path, fake_report())
    assert path.read_text(encoding="utf-8") == whole
    assert list(tmp_path.iterdir()) == [path]


def test_a_browser_shows_the_page_without_complaint(tmp_path: Path) -> None:
    find_browser()
    page, image = tmp_path / "report.html", tmp_path / "report.png"
    write_report(page, fake_report())
    seen = visit(page, tmp_path / "profile")
    assert seen.console == ""
    assert "After 2&nbsp;rounds the student calls" in seen.dom
    assert 'id="tip"' in seen.dom  # our own script passed the policy and ran
    screenshot(page, tmp_path / "profile", image, 1200, 900)
    assert Image.open(image).size == (1200, 900)


@pytest.mark.parametrize("width", [375, 1200])
@pytest.mark.parametrize("kind", ["images", "vectors", "hostile"])
def test_no_screen_needs_sideways_scrolling(tmp_path: Path, kind: str, width: int) -> None:
    find_browser()
    write_report(tmp_path / "report.html", REPORTS[kind])
    (tmp_path / "frame.html").write_text(
        f'<iframe src="report.html" style="border:0;width:{width}px;height:800px" onload="'
        "document.title = 'width ' + this.contentDocument.documentElement.scrollWidth\"></iframe>"
    )
    seen = visit(tmp_path / "frame.html", tmp_path / "profile", "--allow-file-access-from-files")
    assert f"<title>width {width}</title>" in seen.dom
    assert seen.console == ""


NUMBERS = st.none() | st.floats(allow_nan=True, allow_infinity=True)


@pytest.mark.parametrize("at", [0.0, 0.3, 0.5, 0.7, 1.0])
def test_the_words_beside_a_mark_stay_inside_the_drawing(at: float) -> None:
    words = "threshold 0.5, where the prior is met"
    drawn = histogram(np.array([0.1, 0.9]), Labels("d", "x", "y"), marks=[Mark(at, words)])
    drawing = ElementTree.fromstring(drawn)
    (label,) = [text for text in drawing.iter() if text.text == words]
    width, length = float(drawing.attrib["viewBox"].split()[2]), 6.3 * len(words)
    left = float(label.attrib["x"]) - {"start": 0, "middle": length / 2, "end": length}[label.attrib["text-anchor"]]
    assert left >= 0 and left + length <= width + 0.1


def test_the_pointer_is_told_what_a_chart_runs_over() -> None:
    chart = line_chart([Series("a", [0.1, 0.9], [0.2, 0.8])], Labels("d", "probability", "y"))
    assert ElementTree.fromstring(chart).attrib["data-across"] == "probability"


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_png_is_read_back_as_written(channels: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, channels), dtype=np.uint8)
    decoded = np.asarray(Image.open(io.BytesIO(encode_png(pixels))))
    np.testing.assert_array_equal(decoded.reshape(pixels.shape), pixels)


def test_png_of_a_view_of_a_larger_array() -> None:
    pixels = np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3)[::2, ::-1]
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(encode_png(pixels)))), pixels)


@pytest.mark.parametrize(
    "pixels",
    [np.zeros((2, 2, 2), np.uint8), np.zeros((2, 2, 3)), np.zeros((2, 2), np.uint8), np.zeros((0, 2, 3), np.uint8)],
)
def test_png_refuses_what_it_cannot_hold(pixels: np.ndarray) -> None:
    with pytest.raises(InputError, match="which a PNG cannot hold"):
        encode_png(pixels)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(NUMBERS, max_size=8), max_size=4), NUMBERS, st.text(max_size=80))
def test_line_charts_of_anything_are_well_formed(
    lines: list[list[float | None]], level: float | None, name: str
) -> None:
    series = [Series(name, range(1, len(line) + 1), line) for line in lines]
    mark = None if level is None else Mark(level, name)
    svg = line_chart(series, Labels(name, name, name), level=mark, stop=mark)
    assert "nan" not in re.sub(r'(data-\w+|aria-label)="[^"]*"', "", svg) or "nan" in name
    ElementTree.fromstring(svg)


def test_a_gap_breaks_the_line_and_a_lone_point_is_a_dot() -> None:
    svg = line_chart([Series("a", range(1, 6), [1, 2, math.nan, 3, None])], Labels("d", "x", "y"))
    assert svg.count("<path") == 1
    assert svg.count("<circle") == 1


def test_long_names_are_cut_but_kept_whole_for_the_pointer() -> None:
    names = ["a" * 200, "b" * 200]
    svg = line_chart([Series(name, [1], [1.0]) for name in names], Labels("d", "x", "y" * 200))
    words = [text.text or "" for text in ElementTree.fromstring(svg).iter("text")]
    assert max(map(len, words)) < 70
    assert f"<title>{names[0]}</title>" in svg


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 1) | st.just(math.nan), max_size=30), NUMBERS, st.booleans())
def test_histograms_of_anything_are_well_formed(values: list[float], cut: float | None, logarithmic: bool) -> None:
    marks = [] if cut is None else [Mark(cut, "cut")]
    svg = histogram(np.array(values), Labels("d", "x", "y"), marks=marks, split_at=cut, logarithmic=logarithmic)
    rectangles = list(ElementTree.fromstring(svg).iter("rect"))
    assert all(
        float(rectangle.get("width", 0)) > 0 and float(rectangle.get("height", 0)) > 0 for rectangle in rectangles
    )


@pytest.mark.parametrize("parts", [[], [("a", 0), ("b", 0)], [("a", 1)], [("easy" * 50, 10**12), ("hard", 1)]])
def test_bars_of_anything_are_well_formed(parts: list[tuple[str, int]]) -> None:
    ElementTree.fromstring(stacked_bar(parts, description="d"))


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0, math.nan])
def test_share_bars_stay_on_the_paper(share: float) -> None:
    for line in ElementTree.fromstring(share_bar(share, share, description="d")).iter("line"):
        assert 0 < float(line.get("x1", "nan")) < 380


@given(st.lists(st.floats(), max_size=5) | st.lists(st.floats(99_999, 100_001), min_size=2, max_size=5))
def test_axes_cover_their_values_with_few_ticks(values: list[float]) -> None:
    low, high = span_of(values)
    axis = round_axis(low, high)
    slack = 1e-6 * (high - low)
    assert axis.low - slack <= low < high <= axis.high + slack
    assert 2 <= len(axis.ticks) <= 8
    assert len(set(axis.labels)) == len(axis.labels)


def test_words_for_in_short() -> None:
    assert (_words_for("round1.student.member3.again1"), _words_for("base.member2")) == (
        ("Students", "round 1, member 3, attempt 2"),
        ("Base", "base, member 2"),
    )


def test_writable_in_short() -> None:
    assert writable("a\x00b") == "a�b"


def test_shorten_in_short() -> None:
    assert shorten("prediction", 6) == "predi…"


def test_percent_in_short() -> None:
    assert percent(0.3984).replace(NO_BREAK, " ") == "39.8 %"


def test_count_in_short() -> None:
    assert (count(35880), count(1, "round").replace(NO_BREAK, " ")) == ("35,880", "1 round")


def test_decimal_in_short() -> None:
    assert (decimal(0.123456), decimal(float("nan")) == MISSING) == ("0.123", True)


def test_probability_in_short() -> None:
    assert (probability(0.9999), probability(0.5), probability(1.0)) == (">0.999", "0.500", "1.000")


def test_round_axis_in_short() -> None:
    assert round_axis(0.13, 0.92).labels == ("0.0", "0.2", "0.4", "0.6", "0.8", "1.0")
    assert round_axis(1, 7, whole=True, widen=False).ticks == (2.0, 4.0, 6.0)


def test_decades_axis_in_short() -> None:
    assert decades_axis(250).labels == ("1", "10", "100")
