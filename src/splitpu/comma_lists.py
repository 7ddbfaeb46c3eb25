"""Lists as people write them in one word: names or numbers with commas between them."""

from splitpu.errors import InputError


def parse_numbers(text: str, option: str) -> tuple[int, ...]:
    """Read whole numbers with commas between them.

    >>> parse_numbers("0,1, 2", "--seeds")
    (0, 1, 2)
    """
    try:
        numbers = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 0:
        raise InputError(f"{option} {text!r} cannot be used; give whole numbers with commas, such as 0,1,2")
    return numbers


def parse_words(text: str, option: str, example: str) -> tuple[str, ...]:
    """Read names with commas between them; none at all is a variable that a script forgot to set.

    >>> parse_words("vpu, dan", "--method", "vpu")
    ('vpu', 'dan')
    """
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words:
        raise InputError(f"{option} {text!r} names nothing; give for example {example}")
    return words
