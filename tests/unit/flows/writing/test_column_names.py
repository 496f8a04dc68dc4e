"""Names that a transform's columns may not have, since their values would be lost or could not be written."""

from __future__ import annotations

import pytest

from sluice.declare import table
from sluice.errors import DeclarationError
from sluice.flows.writing.targets import check_column_names


@table(reads="orders", keys="id")
def order(orders: object) -> object:
    """An order."""
    return orders


@pytest.mark.parametrize("name", ["_failed_rules", "_NULL_RULES", "_operation"])
def test_a_name_that_sluice_gives_is_refused(name: str) -> None:
    with pytest.raises(DeclarationError, match=f"Table 'order' makes a column '{name}', which is Sluice's"):
        check_column_names(order, ["id", name])


def test_a_name_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(DeclarationError, match="makes a column 'a`b'"):
        check_column_names(order, ["a`b"])
    with pytest.raises(DeclarationError, match=r"makes a column 'a\.b'"):
        check_column_names(order, ["a.b"], signs="`.")
    check_column_names(order, ["id", "a.b", "Failed rules", "_file"])
