"""The contestant without Spark and without Delta: a DuckDB database with a list of the files that it has.

python -m of_increments.in_duckdb LANDING DATABASE
"""

from __future__ import annotations

import sys
from pathlib import Path

from of_bulk.visits import BY_DEVICE, COLUMNS


def main() -> None:
    """Bring three tables up to date."""
    import duckdb

    landing, database = Path(sys.argv[1]), sys.argv[2]
    with duckdb.connect(database) as found:
        # As Spark and Sluice read them: a text with a Z is an instant.
        typed = COLUMNS.replace("TIMESTAMP", "TIMESTAMPTZ").replace("STRING", "VARCHAR")
        fields = dict(one.split() for one in typed.split(", "))
        types = ", ".join(f"'{name}': '{kind}'" for name, kind in fields.items())
        columns = ", ".join(f'"{name}" {kind}' for name, kind in fields.items())
        replaced = ", ".join(f'"{name}" = excluded."{name}"' for name in fields if name != "id")
        found.execute("CREATE TABLE IF NOT EXISTS files (name VARCHAR)")
        found.execute(f"CREATE TABLE IF NOT EXISTS visits_raw ({columns})")
        found.execute(f"CREATE TABLE IF NOT EXISTS visits ({columns.replace('BIGINT', 'BIGINT PRIMARY KEY', 1)})")
        known = {name for (name,) in found.execute("SELECT name FROM files").fetchall()}
        new = sorted(str(path) for path in landing.iterdir() if str(path) not in known)
        if not new:
            return
        found.execute("BEGIN")
        records = f"SELECT * FROM read_json($files, format = 'newline_delimited', columns = {{{types}}})"
        found.execute(f"CREATE TEMP TABLE came AS {records}", {"files": new})
        found.execute("INSERT INTO visits_raw FROM came")
        found.execute(
            'INSERT INTO visits FROM (FROM came QUALIFY row_number() OVER (PARTITION BY id ORDER BY "at" DESC) = 1)'
            f' ON CONFLICT DO UPDATE SET {replaced} WHERE excluded."at" >= visits."at"'
        )
        found.execute(f"CREATE OR REPLACE TABLE device_day AS {BY_DEVICE}")
        found.executemany("INSERT INTO files VALUES (?)", [[name] for name in new])
        found.execute("COMMIT")


if __name__ == "__main__":
    main()
