"""Does once, on a handful of rows, what the jobs do, so that the JVM can archive the classes that they load.

Part of set-up (`make`), started with -XX:ArchiveClassesAtExit. A job that starts with it need not load and
verify those classes one by one. Knows nothing of Sluice. Argument: an empty folder to work in.
"""

import json
import sys
from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F


def merge(batch: DataFrame, target: str) -> None:
    """A micro-batch like those of silver and gold: parse, rank, join, merge."""
    spark = batch.sparkSession
    newest = Window.partitionBy("id").orderBy(F.col("at").desc())
    rows = batch.withColumn("n", F.row_number().over(newest)).where("n = 1").drop("n")
    present = spark.read.format("delta").load(target).groupBy("id").agg(F.max("at").alias("seen"))
    changed = rows.join(present, "id", "left").where("seen IS NULL OR seen <= at").drop("seen")
    table = DeltaTable.forPath(spark, target).alias("t")
    merged = table.merge(changed.alias("s"), "t.id = s.id")
    merged.whenMatchedUpdateAll("t.value IS DISTINCT FROM s.value").whenNotMatchedInsertAll().execute()


def main(folder: Path) -> None:
    """Bronze, silver, gold and upkeep in small."""
    spark = SparkSession.builder.appName("class archive").getOrCreate()
    bronze, silver = str(folder / "bronze"), str(folder / "silver")
    lines = [json.dumps({"id": i, "at": "2024-01-01 00:00:00", "value": i / 2}) for i in range(20)]
    (folder / "in.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (folder / "in.csv").write_text("id,at,value\n1,2024-01-01 00:00:00,1.5\n", encoding="utf-8")
    schema = "id BIGINT, at TIMESTAMP, value DOUBLE"
    for path in (bronze, silver):
        properties = "'delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'false'"
        spark.sql(f"CREATE TABLE delta.`{path}` ({schema}) USING delta TBLPROPERTIES ({properties})")
    rows = spark.read.schema(schema).json(str(folder / "in.jsonl"))
    rows = rows.unionByName(spark.read.csv(str(folder / "in.csv"), schema=schema, header=True))
    for turn in range(2):
        rows.write.format("delta").mode("append").option("txnAppId", "a").option("txnVersion", turn).save(bronze)
        stream = spark.readStream.format("delta").load(bronze).writeStream.trigger(availableNow=True)
        stream = stream.option("checkpointLocation", str(folder / "checkpoint"))
        stream.foreachBatch(lambda batch, _: merge(batch, silver)).start().awaitTermination()
    changes = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
    changes.load(silver).groupBy("_change_type").count().collect()
    DeltaTable.forPath(spark, silver).delete("id = 3")
    DeltaTable.forPath(spark, silver).optimize().executeZOrderBy("at")
    DeltaTable.forPath(spark, silver).vacuum(168)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
