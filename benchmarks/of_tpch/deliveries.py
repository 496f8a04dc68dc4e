"""What is delivered: the generated tables, then refreshes that insert and delete orders with their lines and correct customers.

The generator is tpchgen-cli (PyPI, Apache-2.0), which is fetched into a folder of its own. Refreshes are made here, by checksums of keys
instead of random numbers: the same each time. A new order is an old one under a key that TPC-H leaves free: of 32 keys it uses the first 8.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import duckdb

from of_tpch.tables import TABLES, KeptTable

GENERATOR = "tpchgen-cli==4.0.0"
SHARE = 0.001
"""The part of the orders that a refresh inserts, the part that it deletes, and the part of the customers that it corrects."""
MOST_REFRESHES = 3
"""So many new orders fit between two keys."""


def generate_tables(scale: str, folder: Path) -> None:
    """The eight tables as Parquet files, by tpchgen-cli: the one on the PATH, otherwise one that is fetched."""
    generator = shutil.which("tpchgen-cli") or _fetch_generator(folder / "generator")
    command = [generator, "parquet", "--scale-factor", scale, "--quiet", "--no-progress", "--output-dir", str(folder / "tables")]
    subprocess.run(command, check=True)


def _fetch_generator(folder: Path) -> str:
    pip = [sys.executable, "-m", "pip"] if importlib.util.find_spec("pip") else ["uv", "pip"]
    # What is in the way on the path of modules is not the generator's.
    subprocess.run([*pip, "install", "--quiet", "--target", str(folder), GENERATOR], check=True)
    return str(folder / "bin" / "tpchgen-cli")


class Deliveries:
    """All that is delivered, delivery after delivery. The state of the tables is kept to choose what the next refresh changes."""

    def __init__(self, generated: Path) -> None:
        """Read the generated tables."""
        self.database = duckdb.connect()
        for table in TABLES:
            self.database.execute(f"CREATE TABLE {table.name} AS SELECT * FROM '{generated / table.name}.parquet'")
        self.database.execute("CREATE TABLE old_orders AS SELECT * FROM orders")
        self.database.execute("CREATE TABLE old_lineitem AS SELECT * FROM lineitem")

    def write(self, number: int, folder: Path) -> dict[str, int]:
        """Write a delivery as a Parquet file for each feed that has something; how many changes each has. 0 is the first load."""
        folder.mkdir(parents=True)
        changes: Mapping[str, str]
        if number == 0:
            changes = {table.name: f"SELECT *, 'upsert' AS change, 0::INT AS changed FROM {table.name}" for table in TABLES}
        else:
            changes = self._refresh(number)
        counts = {}
        for name, query in changes.items():
            self.database.execute(f"COPY ({query}) TO '{folder / name}.parquet' (FORMAT parquet)")
            counts[name] = self._count(query)
        return counts

    def _refresh(self, number: int) -> Mapping[str, str]:
        """Change the tables; the changes, as a query by table."""
        orders, customers = (max(1, round(SHARE * self._count(f"FROM {name}"))) for name in ("orders", "customer"))
        self._choose("gone", "o_orderkey", "orders", orders, number)
        self._choose("copied", "o_orderkey", "old_orders", orders, number)
        self._choose("corrected", "c_custkey", "customer", customers, number)
        step = 8 * number
        self.database.execute(f"""
            CREATE OR REPLACE TABLE new_orders AS
                SELECT * REPLACE (o_orderkey + {step} AS o_orderkey) FROM old_orders SEMI JOIN copied USING (o_orderkey);
            CREATE OR REPLACE TABLE new_lineitem AS
                SELECT * REPLACE (l_orderkey + {step} AS l_orderkey)
                FROM old_lineitem WHERE l_orderkey IN (SELECT o_orderkey FROM copied);
            CREATE OR REPLACE TABLE gone_lineitem AS
                SELECT l_orderkey, l_linenumber FROM lineitem WHERE l_orderkey IN (SELECT o_orderkey FROM gone);
            DELETE FROM lineitem WHERE l_orderkey IN (SELECT o_orderkey FROM gone);
            DELETE FROM orders WHERE o_orderkey IN (SELECT o_orderkey FROM gone);
            INSERT INTO orders FROM new_orders;
            INSERT INTO lineitem FROM new_lineitem;
            UPDATE customer SET
                c_acctbal = c_acctbal + 100,
                c_mktsegment = CASE c_mktsegment WHEN 'BUILDING' THEN 'MACHINERY' ELSE 'BUILDING' END
            WHERE c_custkey IN (SELECT c_custkey FROM corrected);
        """)
        upserts = {
            "orders": "FROM new_orders",
            "lineitem": "FROM new_lineitem",
            "customer": "FROM customer SEMI JOIN corrected USING (c_custkey)",
        }
        kept = {table.name: table for table in TABLES}
        deletes = {"orders": "gone", "lineitem": "gone_lineitem"}
        return {
            name: f"SELECT *, 'upsert' AS change, {number}::INT AS changed {rows}"
            + (f" UNION ALL BY NAME {_select_deletes(kept[name], deletes[name], number)}" if name in deletes else "")
            for name, rows in upserts.items()
        }

    def _choose(self, chosen: str, key: str, table: str, rows: int, number: int) -> None:
        order = f"md5('{chosen} {number} ' || {key})"
        self.database.execute(f"CREATE OR REPLACE TABLE {chosen} AS SELECT {key} FROM {table} ORDER BY {order} LIMIT {rows}")

    def _count(self, query: str) -> int:
        ((rows,),) = self.database.execute(f"SELECT count(*) FROM ({query})").fetchall()
        return int(rows)


def _select_deletes(table: KeptTable, gone: str, number: int) -> str:
    """Of a row that goes, its key comes alone."""
    return f"SELECT {', '.join(table.keys)}, 'delete' AS change, {number}::INT AS changed FROM {gone}"


def land_delivery(made: Path, landing: Path) -> None:
    """Put a delivery's files into the landing folder, each at once and whole."""
    for file in sorted(made.glob("*.parquet")):
        folder = landing / "tpch" / f"{file.stem}_feed"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / ".coming")
        (folder / ".coming").rename(folder / f"{int(made.name):04d}.parquet")
