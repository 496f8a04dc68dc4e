"""The contestant that courses teach: a spark-submit for each layer, all settings as they come, every table of gold made anew.

spark-submit course.py LAYER LANDING TO
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from of_bulk.visits import BY_DEVICE, COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def append_new_files(spark: SparkSession, landing: str, to: str) -> None:
    """Bronze: the files that the checkpoint does not know."""
    files = spark.readStream.schema(COLUMNS).json(landing)
    writing = files.writeStream.format("delta").option("checkpointLocation", f"{to}/of_bronze").trigger(availableNow=True)
    writing.start(f"{to}/visits_raw").awaitTermination()


def merge_new_rows(spark: SparkSession, _: str, to: str) -> None:
    """Silver: the latest row of each key."""
    from delta.tables import DeltaTable
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    def merge_rows(rows: DataFrame, _: int) -> None:
        latest = F.row_number().over(Window.partitionBy("id").orderBy(F.desc("at")))
        rows = rows.withColumn("_latest", latest).where("_latest = 1").drop("_latest")
        if not DeltaTable.isDeltaTable(spark, f"{to}/visits"):
            rows.write.format("delta").save(f"{to}/visits")
            return
        merging = DeltaTable.forPath(spark, f"{to}/visits").alias("t").merge(rows.alias("s"), "t.id = s.id")
        merging.whenMatchedUpdateAll("s.at >= t.at").whenNotMatchedInsertAll().execute()

    came = spark.readStream.format("delta").load(f"{to}/visits_raw").writeStream.foreachBatch(merge_rows)
    came.option("checkpointLocation", f"{to}/of_silver").trigger(availableNow=True).start().awaitTermination()


def make_gold_anew(spark: SparkSession, _: str, to: str) -> None:
    """Gold: all of it."""
    spark.read.format("delta").load(f"{to}/visits").createOrReplaceTempView("visits")
    spark.sql(BY_DEVICE).write.format("delta").mode("overwrite").save(f"{to}/device_day")


LAYERS = {"bronze": append_new_files, "silver": merge_new_rows, "gold": make_gold_anew}


def main() -> None:
    """Bring one layer up to date."""
    from pyspark.sql import SparkSession

    layer, landing, to = sys.argv[1:]
    LAYERS[layer](SparkSession.builder.getOrCreate(), landing, to)


if __name__ == "__main__":
    main()
