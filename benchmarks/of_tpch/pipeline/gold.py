"""The queries of this run. TPCH_RECOMPUTE says `recompute` of all of them."""

from __future__ import annotations

import os
from typing import cast

from of_tpch.queries import list_queries
from sluice.declare import materialized_view
from sluice.declare.datasets.materialized_views import Recompute

RECOMPUTE = "TPCH_RECOMPUTE"

VIEWS = [
    materialized_view(
        name=query.name,
        reads=query.reads,
        keys=query.keys,
        sql=query.sql,
        recompute=cast(Recompute, os.environ.get(RECOMPUTE, "auto")),
        comment=query.title,
    )
    for query in list_queries()
]
