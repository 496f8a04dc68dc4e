"""Delivered text that is printed moves no cursor and forges no line. What Python prints beside a command's own words holds no value."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import ROOT

from sluice.cli.printing import escaping_console, print_rows
from sluice.printable import count_noun, escape_keeping_lines, escape_to_one_line
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


CANARY = "SSN-078-05"
PROGRAM = f"""
import logging, threading, warnings
from sluice.printable import library_texts_withheld

def say():
    try:
        int("{CANARY}")
    except ValueError:
        logging.getLogger("py4j.clientserver").exception("failed with %s", "{CANARY}")
        logging.getLogger("pipelines.gym").exception("three files were late")
    warnings.warn("not understood: {CANARY}")
    thread = threading.Thread(target=lambda: int("{CANARY}"))
    thread.start()
    thread.join()

    class Careless:
        def __del__(self):
            int("{CANARY}")

    Careless()

with library_texts_withheld():
    say()
print("afterwards", logging.getLogger("py4j").makeRecord("py4j", 40, "", 0, "%s", ("whole",), None).getMessage())
"""


@pytest.mark.parametrize("debug", ["", "1"])
def test_libraries_records_warnings_and_errors_of_threads_are_shown_without_their_text(debug: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", PROGRAM], capture_output=True, text=True, check=True, env={"SLUICE_DEBUG": debug}
    )
    assert done.stdout == "afterwards whole\n"
    if debug:
        assert done.stderr.count(CANARY) > 4
        return
    assert CANARY not in done.stderr
    for said in (
        "py4j.clientserver: (not shown: it may quote rows) ValueError",
        "three files were late ValueError",
        "UserWarning (not shown",
        "ValueError in thread",
        "ValueError where nobody could catch it",
    ):
        assert said in done.stderr, (said, done.stderr)


@pytest.mark.parametrize(
    ("number", "words", "text"),
    [
        (1, ("row", "is", "are"), "1 row is"),
        (0, ("row", "is", "are"), "0 rows are"),
        (2, ("small file",), "2 small files"),
        (1, ("delivery", "was", "were"), "1 delivery was"),
        (1234, ("delivery",), "1,234 deliveries"),
        (3, ("key",), "3 keys"),
        (2, ("process",), "2 processes"),
    ],
)
def test_a_count_of_one_has_a_noun_and_a_verb_in_the_singular(number: int, words: tuple[str, ...], text: str) -> None:
    assert count_noun(number, *words) == text


COUNTED = ("rows", "files", "tables", "deliveries", "versions", "records", "keys", "changes", "readers", "entries", "requests")


def test_no_text_of_the_engine_joins_a_number_and_a_plural_by_itself() -> None:
    """A literal that begins with a plural, after a value. Where the number cannot be one, or is no whole number, the text is listed."""
    found = set()
    for file in sorted((ROOT / "include" / "sluice").rglob("*.py")):
        for text in (node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.JoinedStr)):
            for value, after in pairwise(text.values):
                said = after.value if isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant) else ""
                if re.match(rf" (?:{'|'.join(COUNTED)})\b", str(said)):
                    found.add(f"{ast.unparse(value.value)}{str(said)[:30]}")
    assert {one for one in found if not one.startswith(("match_number", "'CSV' if"))} == {
        "MOST_ENTRIES rows of quarantine at once. N",  # thousands
        "files files, ",  # a mean
    }
