"""A feed of changes for each table."""

from __future__ import annotations

from of_tpch.tables import FEED_COLUMNS, TABLES
from sluice.declare import Source

FEEDS = [
    Source(name=table.feed, format="parquet", schema=f"{table.columns}, {FEED_COLUMNS}", comment=f"Changes of {table.name}.")
    for table in TABLES
]
