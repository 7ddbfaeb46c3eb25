"""Words in, words out."""

from splitpu.utils.text import cell, from_cell, listed, parse_numbers, parse_words


def test_parse_numbers_in_short() -> None:
    assert parse_numbers("0,1, 2", "--seeds") == (0, 1, 2)


def test_parse_words_in_short() -> None:
    assert parse_words("vpu, dan", "--method", "vpu") == ("vpu", "dan")


def test_listed_in_short() -> None:
    assert (listed(["a", "b"], repr), listed(range(9))) == ("'a', 'b'", "0, 1, 2, 3, 4, ...")


def test_cell_in_short() -> None:
    assert [cell(value) for value in ("=cmd()", "-5", "a.png", 0.5, "'=x")] == ["'=cmd()", "-5", "a.png", 0.5, "''=x"]


def test_from_cell_in_short() -> None:
    assert [from_cell(cell(name)) for name in ("=cmd()", "-5", "'=x", "'x")] == ["=cmd()", "-5", "'=x", "'x"]
