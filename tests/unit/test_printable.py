"""Delivered text that is printed moves no cursor and forges no line."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.cli.printing import escaping_console, print_rows
from sluice.printable import escape_keeping_lines, escape_to_one_line
from sluice.runs.summary import format_text_table

FORGED = "a.json\n7  readings  good.json  ingested\x1b[2J\x1b]0;owned\x07\r\u202e\x9b31m"


def _obeyed(text: str) -> set[str]:
    """The signs of a text, but for newlines, that are no letters, marks, numbers, punctuation, symbols or spaces."""
    return {sign for sign in text.replace("\n", "") if sign != " " and unicodedata.category(sign)[0] in "CZ"}


@given(st.text())
def test_no_sign_that_a_terminal_obeys_is_printed(text: str) -> None:
    assert not _obeyed(escape_to_one_line(text))
    assert "\n" not in escape_to_one_line(text)
    assert not _obeyed(escape_keeping_lines(text))
    assert escape_keeping_lines(text).count("\n") == text.count("\n")


def test_readable_text_is_printed_as_it_is() -> None:
    assert escape_to_one_line("Übersicht 2026, день ☕.json") == "Übersicht 2026, день ☕.json"
    assert escape_to_one_line("a\tb\x1b") == r"a\tb\x1b"


def test_a_file_name_forges_no_line_of_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"delivery": 6, "file": FORGED, "record": FORGED.encode()}], ("delivery", "file", "record", FORGED), FORGED)
    printed = capsys.readouterr().out
    assert not _obeyed(printed)
    assert len(printed.strip().splitlines()) == 4, "the title has two lines, then the header, then one row"


def test_a_message_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    escaping_console().print(f"Line 3: {FORGED}", soft_wrap=True)
    assert not _obeyed(capsys.readouterr().out)


def test_the_summary_of_a_run_has_a_line_a_flow() -> None:
    text = format_text_table([("readings", FORGED)], ("table", "note"))
    assert not _obeyed(text)
    assert len(text.splitlines()) == 3
