"""The operations of commits that change no row, by the names that Spark and delta-rs give them in a table's history."""

from __future__ import annotations

REPAIR = "SLUICE REPAIR"
"""The operation of a commit that replaces a lost one and changes nothing."""

WITHOUT_FILES = frozenset({
    REPAIR,
    "ADD COLUMN",
    "ADD COLUMNS",
    "ADD CONSTRAINT",
    "CHANGE COLUMN",
    "CHANGE COLUMNS",
    "CLUSTER BY",
    "CREATE TABLE",
    "DROP CONSTRAINT",
    "SET TBLPROPERTIES",
    "UNSET TBLPROPERTIES",
    "UPDATE FIELD METADATA",
    "UPDATE TABLE METADATA",
    "UPGRADE PROTOCOL",
    "VACUUM END",
    "VACUUM START",
})
"""They neither add nor remove a file."""

WITHOUT_ROWS = WITHOUT_FILES | {"OPTIMIZE", "REORG"}
"""They leave every row as it is, if perhaps in other files."""
