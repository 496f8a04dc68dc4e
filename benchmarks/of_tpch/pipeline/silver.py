"""The tables, as their feeds leave them."""

from __future__ import annotations

from of_tpch.tables import TABLES
from sluice.declare import auto_cdc

KEPT = [
    auto_cdc(
        table.name,
        reads=table.feed,
        keys=table.keys,
        sequence_by="changed",
        apply_as_deletes="change = 'delete'",
        except_column_list=("change", "changed"),
        comment=f"The table {table.name}.",
    )
    for table in TABLES
]
