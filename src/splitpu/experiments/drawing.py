"""Line charts over something that is not epochs."""

from collections.abc import Sequence

from splitpu.report.charts import Mark, Series, line_chart


def setting_chart(
    series: Sequence[Series], description: str, *, x_label: str, y_label: str, level: Mark | None = None
) -> str:
    """Draw lines over a setting or a measured value.

    The report's charts count epochs: they write whole numbers along the lower axis, so x comes in percent where it is
    a share; and the page's pointer would call x an epoch, so the drawing is taken out of its reach.
    """
    drawing = line_chart(series, description=description, x_label=x_label, y_label=y_label, level=level)
    before, mark, rest = drawing.partition(' data-frame="')
    return before + rest.partition('"')[2] if mark else drawing
