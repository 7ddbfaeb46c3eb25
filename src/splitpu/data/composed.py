"""Text that looks the same is the same: an umlaut may be one character, or a letter and its dots."""

import unicodedata


def composed(text: str) -> str:
    """Every letter in one character with its marks, as keyboards write it; file systems and archives may part them.

    >>> composed("Mu\\u0308ller") == "M\\xfcller"
    True
    """
    return text if text.isascii() else unicodedata.normalize("NFC", text)
