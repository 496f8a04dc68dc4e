"""How the columns with statistics stand in a table's properties."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sluice.table_properties import format_statistics_columns, parse_statistics_columns

NAMES = st.text(
    st.characters(blacklist_characters=" ,;{}()\n\t=."), min_size=1
)  # what Delta allows; a dot is the path to a field


def test_only_a_name_that_is_no_plain_one_is_quoted() -> None:
    assert format_statistics_columns(["id", "größe", "a-b", "a.o'x", "a`b"]) == "id,`größe`,`a-b`,a.`o'x`,`a``b`"


@given(st.lists(NAMES.filter(lambda name: name == name.strip())))
def test_what_is_written_is_read(names: list[str]) -> None:
    assert parse_statistics_columns(format_statistics_columns(names)) == names


def test_what_others_wrote_is_read() -> None:
    assert parse_statistics_columns(" id , `a`,b.c,") == ["id", "a", "b.c"]
    assert parse_statistics_columns("") == []
