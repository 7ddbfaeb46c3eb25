"""Words in, words out."""

from splitpu.utils.text import cell, composed, from_cell, html_table, listed, parse_numbers, parse_words, row_name


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


def test_composed_in_short() -> None:
    assert composed("Mu\u0308ller") == "M\xfcller"


def test_row_name_in_short() -> None:
    assert (row_name(b"r\xc3\xb6ntgen"), row_name("b"), row_name(7)) == ("röntgen", "b", "7")


def test_html_table_in_short() -> None:
    assert (
        html_table(["a"], [["<b>"], [0.25]])
        == "<table><tr><th>a</th></tr><tr><td>&lt;b&gt;</td></tr><tr><td>0.250</td></tr></table>"
    )
