"""What rows are called, as text."""


def row_name(name: object) -> str:
    """A name as text; arrays of bytes, as HDF5 and older programs write them, hold it in UTF-8.

    >>> row_name(b"r\\xc3\\xb6ntgen"), row_name("b"), row_name(7)
    ('röntgen', 'b', '7')
    """
    return name.decode("utf-8", errors="backslashreplace") if isinstance(name, bytes) else str(name)
