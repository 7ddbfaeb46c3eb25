"""The report's drawings: charts of anything are well-formed and stay on the paper, and pixels become PNG files."""

import io
import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from splitpu.errors import InputError
from splitpu.report.charts import (
    Mark,
    Series,
    encode_png,
    histogram,
    line_chart,
    round_axis,
    share_bar,
    span_of,
    stacked_bar,
)

NUMBERS = st.none() | st.floats(allow_nan=True, allow_infinity=True)


@pytest.mark.parametrize("at", [0.0, 0.3, 0.5, 0.7, 1.0])
def test_the_words_beside_a_mark_stay_inside_the_drawing(at: float) -> None:
    words = "threshold 0.5, where the prior is met"
    drawn = histogram(np.array([0.1, 0.9]), description="d", x_label="x", y_label="y", marks=[Mark(at, words)])
    drawing = ElementTree.fromstring(drawn)
    (label,) = [text for text in drawing.iter() if text.text == words]
    width, length = float(drawing.attrib["viewBox"].split()[2]), 6.3 * len(words)
    left = float(label.attrib["x"]) - {"start": 0, "middle": length / 2, "end": length}[label.attrib["text-anchor"]]
    assert left >= 0 and left + length <= width + 0.1


def test_the_pointer_is_told_what_a_chart_runs_over() -> None:
    chart = line_chart([Series("a", [0.1, 0.9], [0.2, 0.8])], description="d", x_label="probability", y_label="y")
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
    svg = line_chart(series, description=name, x_label=name, y_label=name, level=mark, stop=mark)
    assert "nan" not in re.sub(r'(data-\w+|aria-label)="[^"]*"', "", svg) or "nan" in name
    ElementTree.fromstring(svg)


def test_a_gap_breaks_the_line_and_a_lone_point_is_a_dot() -> None:
    svg = line_chart([Series("a", range(1, 6), [1, 2, math.nan, 3, None])], description="d", x_label="x", y_label="y")
    assert svg.count("<path") == 1
    assert svg.count("<circle") == 1


def test_long_names_are_cut_but_kept_whole_for_the_pointer() -> None:
    names = ["a" * 200, "b" * 200]
    svg = line_chart([Series(name, [1], [1.0]) for name in names], description="d", x_label="x", y_label="y" * 200)
    words = [text.text or "" for text in ElementTree.fromstring(svg).iter("text")]
    assert max(map(len, words)) < 70
    assert f"<title>{names[0]}</title>" in svg


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 1) | st.just(math.nan), max_size=30), NUMBERS, st.booleans())
def test_histograms_of_anything_are_well_formed(values: list[float], cut: float | None, logarithmic: bool) -> None:
    marks = [] if cut is None else [Mark(cut, "cut")]
    svg = histogram(
        np.array(values), description="d", x_label="x", y_label="y", marks=marks, split_at=cut, logarithmic=logarithmic
    )
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
