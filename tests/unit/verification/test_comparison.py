"""A large table is verified in parts that are stable when it grows."""

from __future__ import annotations

import pytest

from sluice.verification import comparison
from sluice.verification.comparison import MOST_ROWS, TablePart, list_table_parts, parse_table_part


@pytest.mark.parametrize(
    ("rows", "made_of", "count"),
    [
        (0, 0, 1),
        (MOST_ROWS, MOST_ROWS, 1),
        (MOST_ROWS + 1, 0, 2),
        (5, MOST_ROWS * 3, 4),  # a small view of much
        (1, MOST_ROWS * 3, 1),  # which has no parts
        (MOST_ROWS * 5, 0, 8),
        (MOST_ROWS * 10_000, 0, 64),
    ],
)
def test_there_are_as_many_parts_as_the_rows_ask_for(rows: int, made_of: int, count: int) -> None:
    found = list_table_parts(rows, made_of)
    assert found == [TablePart(number, count) for number in range(1, count + 1)]


def test_a_part_holds_the_parts_that_it_is_divided_into_later() -> None:
    for number in range(1, 9):
        assert [coarse.number for coarse in list_table_parts(MOST_ROWS * 2, 0) if coarse.holds(TablePart(number, 8))] == [
            (number - 1) % 2 + 1
        ]
    assert not TablePart(1, 8).holds(TablePart(1, 2)), "it is a quarter of it"


def test_a_part_is_said_in_the_ledger_and_understood_again() -> None:
    assert parse_table_part(str(TablePart(3, 8))) == TablePart(3, 8)
    assert parse_table_part(None) is parse_table_part("all") is None
    assert comparison.parse_table_part("1/1") == TablePart(1, 1)


def test_parts_cover_another_together() -> None:
    eighths = list_table_parts(MOST_ROWS * 5, 0)
    assert comparison.do_parts_cover(eighths, comparison.WHOLE) and not comparison.do_parts_cover(eighths[1:], comparison.WHOLE)
    assert comparison.do_parts_cover([TablePart(1, 2), *eighths[1::2]], comparison.WHOLE), "of different sizes"
    assert comparison.do_parts_cover([comparison.WHOLE], TablePart(3, 8))
    assert not comparison.do_parts_cover([], comparison.WHOLE)
