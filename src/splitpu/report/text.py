"""Words and numbers as the page writes them; the only door through which names from the data enter it."""

import html
import math
import re

NO_BREAK = "\N{NO-BREAK SPACE}"
MISSING = "\N{EN DASH}"
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]")


def escape(text: object) -> str:
    """Make any text safe between tags and inside quoted attributes; names from the data are not to be trusted.

    >>> escape('<script>"')
    '&lt;script&gt;&quot;'
    """
    # File names may carry lone surrogates, which UTF-8 cannot write, and control characters, which XML forbids.
    writable = str(text).encode("utf-8", "replace").decode("utf-8")
    return html.escape(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", writable), quote=True)


def name(text: object) -> str:
    """Escape a name and isolate its writing direction, so that a right-to-left mark cannot turn the page around it."""
    return f"<bdi>{escape(text)}</bdi>"


def shorten(text: str, longest: int) -> str:
    """Cut a text that has no room.

    >>> shorten("prediction", 6)
    'predi…'
    """
    return text if len(text) <= longest else text[: longest - 1] + "…"


def percent(share: float, decimals: int = 1) -> str:
    """Write a share as a percentage.

    >>> percent(0.3984).replace(NO_BREAK, " ")
    '39.8 %'
    """
    return f"{100 * share:.{decimals}f}{NO_BREAK}%" if math.isfinite(share) else MISSING


def count(number: int, thing: str = "") -> str:
    """Write a number of things, with its plural.

    >>> count(35880), count(1, "round").replace(NO_BREAK, " ")
    ('35,880', '1 round')
    """
    if not thing:
        return f"{number:,}"
    return f"{number:,}{NO_BREAK}{thing}{'' if number == 1 else 's'}"


def decimal(number: float, digits: int = 3) -> str:
    """Write a number to a few significant digits.

    >>> decimal(0.123456), decimal(float("nan")) == MISSING
    ('0.123', True)
    """
    return f"{number:.{digits}g}".replace("-", "\N{MINUS SIGN}") if math.isfinite(number) else MISSING


def probability(number: float) -> str:
    """Write a probability; rounding never turns an almost certain one into a certain one.

    >>> probability(0.9999), probability(0.5), probability(1.0)
    ('>0.999', '0.500', '1.000')
    """
    if not math.isfinite(number):
        return MISSING
    if 0.9995 <= number < 1:
        return ">0.999"
    if 0 < number < 0.0005:
        return "<0.001"
    return f"{number:.3f}"


def facts(pairs: list[tuple[str, str]]) -> str:
    """Lay out named facts as a description list."""
    rows = "".join(f"<div><dt>{escape(label)}</dt><dd>{name(value)}</dd></div>" for label, value in pairs)
    return f'<dl class="facts">{rows}</dl>'
