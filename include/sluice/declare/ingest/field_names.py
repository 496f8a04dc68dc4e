"""Delivered fields that are no columns by themselves: which names are taken, which fields only a declaration makes columns, and where others are.

Sluice, Delta and Spark give their own columns names that begin with an underscore, and later versions will add more, so no list of them would
ever be complete. Therefore no such field becomes a column by itself. A declaration may keep one, unless its name is taken today.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sluice.table_properties import CHANGE_FEED_COLUMNS

if TYPE_CHECKING:
    from sluice.declare.ingest.source import Source

_IN_BRONZE = frozenset({"_delivery", "_file", "_row", "_ingested_at", "_rescued_data", "_anonymised"})
_BESIDE_BRONZE = frozenset({
    *("_problem", "_record", "_news", "_corrupt"),  # while records are read
    *(
        "_subject",
        "_pseudonym",
        "_suppressed_at",
        "_whose",
        "_told",
        "_erased_subject",
        "_erased_at",
    ),  # while people are looked for
    *("_failed_rules", "_null_rules"),  # while rows are judged
})
_OF_SPARK = frozenset({"_metadata", "_corrupt_record", "_tmp_metadata_row_index"})
_BEGINNINGS = ("_sluice_", "__delta_internal", "_databricks_internal")
_OWN = _IN_BRONZE | _BESIDE_BRONZE | _OF_SPARK | {*CHANGE_FEED_COLUMNS}
_UNNAMED = re.compile(r"_c\d+\Z")


def is_reserved_column(name: str) -> bool:
    """Whether Sluice, Delta or Spark uses the name itself, in whatever letter case: no delivered field can have such a column."""
    return name.lower() in _OWN or name.lower().startswith(_BEGINNINGS)


def becomes_column(source: Source, name: str) -> bool:
    """Whether an unknown field of that name becomes a column by itself. CSV without a header has names that Sluice gives: _c0, _c1."""
    return not name.startswith("_") or (source.format == "csv" and not source.header and _UNNAMED.match(name) is not None)


def delivered_columns(names: Iterable[str]) -> list[str]:
    """Of a bronze table's columns those that hold what was delivered."""
    return [name for name in names if not is_reserved_column(name)]


def rescued_text_expression(field: str, rescued: str = "`_rescued_data`") -> str:
    """The SQL expression that gives the text of a field in rescued data; NULL if it is not there. rescued: that data, as SQL.

    The field's own spelling comes before others, of which the first counts. Where the expression chooses rows to delete, its text gets into
    the table's history; `sluice.erasure.prevention` knows it there by its form.
    """
    named = field.replace("\\", "\\\\").replace("'", "\\'")
    own = f"get_json_object({rescued}, '$.{named}')"
    position = f"array_position(json_object_keys(lower({rescued})), '{named.lower()}')"
    other = f"get_json_object({rescued}, concat('$[\\'', get(json_object_keys({rescued}), {position} - 1), '\\']'))"
    return f"coalesce({own}, {other})"
