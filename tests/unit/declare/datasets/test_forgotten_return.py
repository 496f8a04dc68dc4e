"""A transform that returns nothing is said so, by the name of its table."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.declare import materialized_view, table, temporary_view, view
from sluice.errors import DeclarationError

DECLARATIONS: dict[str, Any] = {
    "Table": table(name="a", reads="orders", keys="id"),
    "View": materialized_view(name="a", reads="orders", keys="id"),
    "Temporary view": temporary_view(name="a", reads="orders"),
}


@pytest.mark.parametrize(("kind", "declare"), [*DECLARATIONS.items(), ("View", view(name="a", reads="orders"))])
def test_a_forgotten_return_is_named(kind: str, declare: Any) -> None:
    def forgets(orders: Any) -> None:
        orders.select("id")

    class DataFrame:  # as in both of Spark's clients; the check must load neither
        def select(self, *_: str) -> DataFrame:
            return self

    said = f"^{kind} 'a': its function returned NoneType, not a DataFrame: is a `return` missing"
    with pytest.raises(DeclarationError, match=said):
        declare(forgets)(DataFrame())
    with pytest.raises(DeclarationError, match=f"^{kind} 'a': its function returned str, not a DataFrame.$"):
        declare(lambda orders: "orders")(DataFrame())
