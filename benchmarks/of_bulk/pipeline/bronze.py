"""Visits as JSON lines."""

from __future__ import annotations

from of_bulk.visits import COLUMNS
from sluice.declare import Source

VISITS = Source(name="visits_raw", schema=COLUMNS, comment="Visits as they were delivered.")
