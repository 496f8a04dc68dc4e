"""The contestant without Spark: DuckDB reads all files that ever came, and makes the 8 tables and the 22 views anew in a database.

python -m of_tpch.in_duckdb LANDING TO
"""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb

from of_tpch.queries import list_queries
from of_tpch.tables import TABLES

DATABASE = "tpch.duckdb"


def main() -> None:
    """Make all of it."""
    landing, to = Path(sys.argv[1]), Path(sys.argv[2])
    to.mkdir(parents=True, exist_ok=True)
    (to / DATABASE).unlink(missing_ok=True)
    with duckdb.connect(str(to / DATABASE)) as database:
        for table in TABLES:
            database.execute(f"""
                CREATE TABLE {table.name} AS
                SELECT {", ".join(table.column_names)}
                FROM '{landing / "tpch" / table.feed}/*.parquet'
                QUALIFY row_number() OVER (PARTITION BY {", ".join(table.keys)} ORDER BY changed DESC) = 1 AND change <> 'delete'
            """)
        for query in list_queries():
            database.execute(f"CREATE TABLE {query.name} AS {query.sql}")


if __name__ == "__main__":
    main()
