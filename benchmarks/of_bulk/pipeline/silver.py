"""A row for each visit, by its latest delivery."""

from __future__ import annotations

from sluice.declare import auto_cdc

VISITS = auto_cdc("visits", reads="visits_raw", keys=("id",), sequence_by="at", comment="Visits, one row each.")
