"""The contestant without an engine: one Spark driver that streams the new files into bronze, merges them into silver, makes gold anew.

python -m of_bulk.plain_spark LANDING TO
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from of_bulk.visits import BY_DEVICE, COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main() -> None:
    """Bring three tables up to date."""
    from delta.tables import DeltaTable
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    from sluice.session import start_spark_session
    from sluice.settings import Settings

    landing, to = Path(sys.argv[1]), Path(sys.argv[2])
    bronze, silver, gold = (str(to / name) for name in ("visits_raw", "visits", "device_day"))
    spark = start_spark_session(Settings.current(), "plain")
    files = spark.readStream.schema(COLUMNS).json(str(landing / "bulk" / "visits_raw"))
    writing = files.writeStream.format("delta").option("checkpointLocation", str(to / "bronze")).trigger(availableNow=True)
    writing.start(bronze).awaitTermination()

    def merge_rows(rows: DataFrame, _: int) -> None:
        latest = F.row_number().over(Window.partitionBy("id").orderBy(F.desc("at")))
        rows = rows.withColumn("_latest", latest).where("_latest = 1").drop("_latest")
        if not Path(silver).exists():
            rows.write.format("delta").save(silver)
            return
        merging = DeltaTable.forPath(spark, silver).alias("t").merge(rows.alias("s"), "t.id = s.id")
        merging.whenMatchedUpdateAll("s.at >= t.at").whenNotMatchedInsertAll().execute()

    came = spark.readStream.format("delta").load(bronze).writeStream.foreachBatch(merge_rows)
    came.option("checkpointLocation", str(to / "silver")).trigger(availableNow=True).start().awaitTermination()
    spark.read.format("delta").load(silver).createOrReplaceTempView("visits")
    spark.sql(BY_DEVICE).write.format("delta").mode("overwrite").save(gold)


if __name__ == "__main__":
    main()
