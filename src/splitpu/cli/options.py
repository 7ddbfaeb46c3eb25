"""Kinds of options that several commands share."""

from collections.abc import Sequence
from typing import Annotated, Literal

from cyclopts import Parameter, Token


def _whole_number(_: object, tokens: Sequence[Token]) -> int:
    return int(tokens[0].value)  # cyclopts itself would round 1.5 to 2


Whole = Annotated[int | None, Parameter(converter=_whole_number)]
Seed = Annotated[int, Parameter(converter=_whole_number)]
Flag = Annotated[bool, Parameter(negative=(), show_default=False)]
Words = Annotated[list[str] | None, Parameter(negative=(), consume_multiple=True)]
Settings = Annotated[list[str] | None, Parameter(name="--set", negative=(), consume_multiple=False)]
Calibration = Literal["temperature", "platt", "isotonic"]
