r"""Delivered text as it may be printed. A file's name, a field's name or a cell may hold what a terminal obeys, or a newline that forges a line.

What passes is what Unicode calls printable, and the space. Everything else is shown escaped, as Python writes it: `\x1b`, `\n`, `\u202e`.
"""

from __future__ import annotations


def escape_to_one_line(text: str) -> str:
    """The text in one line. For whatever came from outside: names of files and fields, records, cells."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else _escape_character(sign) for sign in text)


def escape_keeping_lines(text: str) -> str:
    """The text with the lines that it has. For a whole message of ours, before it reaches a terminal or a log."""
    return "\n".join(escape_to_one_line(line) for line in text.split("\n"))


def _escape_character(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")
