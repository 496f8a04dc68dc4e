"""A name is declared once in a pipeline, and a table that Sluice keeps for another has its name to itself."""

from __future__ import annotations

import pytest
from tests.unit.declare.conftest import LoadShop

from sluice.errors import DeclarationError

TABLE = "table(name='{0}', reads='orders', keys='id', sql='SELECT * FROM orders')"


def test_a_table_with_the_name_of_its_source_is_told_so_with_both_call_sites(load_shop: LoadShop) -> None:
    """It is no circle, although the table then seems to read itself."""
    said = r"two declarations are named 'orders' \(bronze.py, line 2; silver.py, line 2\). The names of all layers are one set"
    with pytest.raises(DeclarationError, match=said):
        load_shop(bronze="Source(name='orders')", silver=TABLE.format("orders"))


@pytest.mark.parametrize(
    ("silver", "owner"),
    [
        (f"{TABLE.format('sale')}\n{TABLE.format('sale_quarantine')}", "table 'sale'"),
        (TABLE.format("orders_quarantine"), "source 'orders'"),
        ("view(name='orders_quarantine', reads='orders', sql='SELECT * FROM orders')", "source 'orders'"),
        ("temporary_view(name='orders_quarantine', reads='orders', sql='SELECT * FROM orders')", "source 'orders'"),
        ("auto_cdc('orders_quarantine', reads='orders', keys='id', sequence_by='at')", "source 'orders'"),
        (
            f"auto_cdc('sale', reads='orders', keys='id', sequence_by='at')\n{TABLE.format('sale_changes_quarantine')}",
            "table 'sale'",
        ),
        (
            "@windowed(reads='orders', keys='id', output='complete')\ndef orders_quarantine(orders): return orders",
            "source 'orders'",
        ),
    ],
)
def test_the_name_of_a_quarantine_is_taken(load_shop: LoadShop, silver: str, owner: str) -> None:
    """VACUUM and erasures find the tables of a pipeline by name: of two, one would be passed over."""
    said = rf"_quarantine' is the table in which Sluice keeps the rows that {owner} sets aside.* sluice quarantine show shop "
    with pytest.raises(DeclarationError, match=said):
        load_shop(bronze="Source(name='orders')", silver=silver)


def test_a_view_sets_nothing_aside_and_takes_no_name(load_shop: LoadShop) -> None:
    gold = "view(name='{0}', reads='orders', sql='SELECT * FROM orders')"
    graph = load_shop(bronze="Source(name='orders')", gold=f"{gold.format('seen')}\n{gold.format('seen_quarantine')}")
    assert sorted(graph.computed) == ["seen", "seen_quarantine"]
