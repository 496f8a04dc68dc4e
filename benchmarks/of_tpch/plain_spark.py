"""The contestant without an engine: one Spark driver that merges new files into Delta tables, and overwrites the 22 views.

    python -m of_tpch.plain_spark LANDING TO

It knows by a list of names which files it has merged, so with nothing new it starts no Spark.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from of_tpch.queries import list_queries
from of_tpch.tables import TABLES, KeptTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MERGED = "merged.txt"


def merge_files(spark: SparkSession, table: KeptTable, files: list[str], path: Path) -> None:
    """Bring a table up to date with files of its feed, of which no two have changes of one key."""
    from delta.tables import DeltaTable

    changes = spark.read.parquet(*files)
    if not path.exists():
        changes.select(*table.column_names).write.format("delta").save(str(path))
        return
    same = " AND ".join(f"t.{key} = s.{key}" for key in table.keys)
    merging = DeltaTable.forPath(spark, str(path)).alias("t").merge(changes.alias("s"), same)
    columns = {name: f"s.{name}" for name in table.column_names}
    gone = "s.change = 'delete'"
    merging = merging.whenMatchedDelete(gone).whenMatchedUpdate(set=columns)  # type: ignore[arg-type]
    merging.whenNotMatchedInsert(f"NOT {gone}", values=columns).execute()  # type: ignore[arg-type]


def main() -> None:
    """Merge what is new, and make all views anew."""
    landing, to = Path(sys.argv[1]), Path(sys.argv[2])
    to.mkdir(parents=True, exist_ok=True)
    merged = set((to / MERGED).read_text().splitlines()) if (to / MERGED).exists() else set()
    there = {table: sorted(map(str, (landing / "tpch" / table.feed).glob("*.parquet"))) for table in TABLES}
    new = {table: [file for file in files if file not in merged] for table, files in there.items()}
    if not any(new.values()):
        return
    from sluice.session import start_spark_session
    from sluice.settings import Settings

    spark = start_spark_session(Settings.current(), "plain")
    for table, files in new.items():
        if files:
            merge_files(spark, table, files, to / table.name)
        spark.read.format("delta").load(str(to / table.name)).createOrReplaceTempView(table.name)
    for query in list_queries():
        rows = spark.sql(query.sql)
        rows.write.format("delta").mode("overwrite").save(str(to / query.name))
    (to / MERGED).write_text("\n".join(file for files in there.values() for file in files))


if __name__ == "__main__":
    main()
