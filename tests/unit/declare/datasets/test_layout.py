"""Declared layout: what does not fit a table is said when it is declared, and what is not declared changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sluice.declare import Layout, table
from sluice.declare.assembly.fingerprint import compute_declaration_fingerprint
from sluice.errors import DeclarationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def visits(sales: DataFrame) -> DataFrame:
    """A visit."""
    return sales


def declare(layout: Layout | None, personal: str | tuple[str, ...] = ()) -> Any:
    return table(reads="sales", keys="id", layout=layout, personal=personal)(visits)


@pytest.mark.parametrize(
    ("options", "personal", "said"),
    [
        ({"statistics": "email"}, "email", "layout.statistics names the personal column 'email'"),
        ({"statistics": "EMAIL"}, "email", "personal column"),
        ({"retain": "3 days"}, "email", "goes by the retain= of its pipeline"),
        ({"retain": "60 days", "keep_log": "40 days"}, (), "shorter than layout.retain"),
    ],
)
def test_what_does_not_fit_a_table_is_refused(options: dict[str, str], personal: str, said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        declare(Layout(**options), personal)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"retain": "soon"}, {"keep_log": "P3D"}, {"statistics": ("a", "a")}, {"statistics": (1,)}])
def test_what_is_no_interval_and_no_columns_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError, match="Layout"):
        Layout(**options)


def test_a_layout_is_no_part_of_the_fingerprint() -> None:
    """How files are kept changes no row: a table that gets a layout is not made anew."""
    said = Layout(retain="14 days", keep_log="60 days", statistics="id")
    assert compute_declaration_fingerprint(declare(said)) == compute_declaration_fingerprint(declare(None))
    assert said.statistics_columns == ("id",)
