"""Letters outside ASCII in capitals and small letters: the search of bytes folds only ASCII, and a needle may be written in any case."""

from __future__ import annotations


def fold_letter_case(data: bytes) -> bytes:
    """A text in the small letters of `str.casefold`. Bytes that are no UTF-8, such as a part of a letter cut off, stay as they are."""
    return data.decode("utf-8", "surrogateescape").casefold().encode("utf-8", "surrogateescape")


def fold_cased_text(value: bytes | int) -> bytes | None:
    """The small letters of a needle. None if it has no letters outside ASCII that have a case, or is no text."""
    if isinstance(value, int) or value.isascii():
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    cased = any(not letter.isascii() and (letter.lower() != letter or letter.upper() != letter) for letter in text)
    return text.casefold().encode() if cased else None
