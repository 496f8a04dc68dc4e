"""No cell's value gets into a log or into the reason of a failure: every kind of conversion and constraint fails on a canary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import functions as F

from sluice import error_conditions
from sluice.runs.failures import describe_error_without_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CANARY = "[SSN_078_05]"
"""In brackets and capitals, as Spark writes its conditions."""

QUERIES = (
    "CAST(v AS INT)",
    "CAST(v AS DATE)",
    "CAST(v AS TIMESTAMP)",
    "CAST(v AS DECIMAL(5, 2))",
    "CAST(v AS BOOLEAN)",
    "CAST(v AS INTERVAL DAY)",
    "to_date(v, 'yyyy')",
    "to_number(v, '999')",
    "to_binary(v, 'hex')",
    "from_json(v, 'a INT', map('mode', 'FAILFAST'))",
    "from_csv(v, 'a INT', map('mode', 'FAILFAST'))",
    "parse_json(v)",
    "url_decode('%' || v)",
    "map_from_arrays(array(v, v), array(1, 1))",
    "raise_error(v)",
    "assert_true(false, v)",
)


def failures(spark: SparkSession, folder: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What fails on a row that holds the canary, by what it is."""
    rows = spark.createDataFrame([(CANARY, 1)], "v STRING, i INT")
    for query in QUERIES:
        yield query, rows.selectExpr(f"{query} AS x").collect
    strict, loose = str(folder / "strict"), str(folder / "loose")
    spark.sql(f"CREATE TABLE delta.`{strict}` (v STRING, i INT NOT NULL) USING delta")
    spark.sql(f"ALTER TABLE delta.`{strict}` ADD CONSTRAINT short CHECK (length(v) < 3)")
    spark.sql(f"CREATE TABLE delta.`{loose}` (v STRING, i INT) USING delta")
    rows.write.format("delta").mode("append").save(loose)
    spark.read.format("delta").load(loose).createOrReplaceTempView("canaries")

    number = F.udf(lambda text: int(text), "int")
    arrow = pa.table({"v": [CANARY], "i": pa.array([1], pa.int32())})
    yield "Python", rows.select(number("v")).collect
    yield "CHECK", lambda: rows.write.format("delta").mode("append").save(strict)
    yield "NOT NULL", lambda: spark.sql(f"INSERT INTO delta.`{strict}` SELECT v, NULL FROM canaries")
    yield "a new CHECK", lambda: spark.sql(f"ALTER TABLE delta.`{loose}` ADD CONSTRAINT short CHECK (length(v) < 3)")
    yield (
        "a MERGE's cast",
        lambda: spark.sql(
            f"MERGE INTO delta.`{strict}` t USING canaries s ON t.i = s.i WHEN NOT MATCHED THEN INSERT (v, i) VALUES ('a', s.v)"
        ),
    )
    yield "replaceWhere", lambda: rows.write.format("delta").mode("overwrite").option("replaceWhere", "v = 'a'").save(loose)
    yield "a literal", lambda: spark.sql(f"SELECT '{CANARY}' + array(1)")
    yield "a stream", lambda: streamed(spark, loose, folder / "checkpoint")
    yield "delta-rs: CHECK", lambda: write_deltalake(strict, arrow, mode="append")
    yield "delta-rs: a new CHECK", lambda: DeltaTable(loose).alter.add_constraint({"short": "length(v) < 3"})
    yield "delta-rs: type", lambda: write_deltalake(loose, arrow.set_column(1, "i", pa.array([CANARY])), mode="append")


def streamed(spark: SparkSession, table: str, checkpoint: Path) -> None:
    query = (
        spark.readStream
        .format("delta")
        .load(table)
        .writeStream.foreachBatch(lambda rows, _: rows.select(F.col("v").cast("int")).collect())
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


@contextmanager
def printed_by_spark(spark: SparkSession, folder: Path) -> Iterator[Callable[[], str]]:
    """What Spark's loggers print, which also goes to a file here, with the layouts that spark_jobs/conf/log4j2.properties sets."""
    log4j: Any = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    context = log4j.LogManager.getContext(False)
    configured = context.getConfiguration()
    assert configured.getConfigurationSource().getLocation().endswith("spark_jobs/conf/log4j2.properties")
    added, paths = [], []
    for logger in configured.getLoggers().values():
        for name in list(logger.getAppenders()):
            path = folder / f"{name}-{len(paths)}.log"
            made = log4j.core.appender.FileAppender.newBuilder()
            made.setName(f"test-{len(paths)}")
            made.withFileName(str(path))
            made.setLayout(logger.getAppenders()[name].getLayout())
            appender = made.build()
            appender.start()
            logger.addAppender(appender, None, None)
            added.append((logger, appender))
            paths.append(path)
    context.updateLoggers()
    try:
        yield lambda: "".join(path.read_text() for path in paths)
    finally:
        for logger, appender in added:
            logger.removeAppender(appender.getName())
            appender.stop()
        context.updateLoggers()


def test_no_log_and_no_reason_holds_what_could_not_be_converted_or_breaks_a_constraint(
    spark: SparkSession, tmp_path: Path
) -> None:
    held: dict[str, str] = {}
    with printed_by_spark(spark, tmp_path) as printed:
        for what, fails in failures(spark, tmp_path):
            with pytest.raises(Exception) as raised:
                fails()
            why = describe_error_without_values(raised.value)
            held[what] = str(raised.value)
            assert "SSN" not in why, (what, why)
            assert "SSN" not in printed(), (what, printed())
        log = printed()
    # The search would find it: most errors hold it, and the loggers said something of each that a task met.
    assert sum(CANARY in text for text in held.values()) > 10
    assert "ERROR Executor: Exception in task" in log and "SparkNumberFormatException: [CAST_INVALID_INPUT]" in log
    assert "WARN TaskSetManager: Lost task" in log and "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES" in log
    assert "(not shown: it may quote rows)" in log


def test_whoever_reaches_a_port_of_the_session_must_know_its_secret(spark: SparkSession) -> None:
    environment: Any = spark._jvm.org.apache.spark.SparkEnv.get()  # type: ignore[union-attr]
    assert environment.securityManager().isAuthenticationEnabled()
    assert len(environment.securityManager().getSecretKey()) >= 32


def test_the_reason_names_the_condition_and_the_call_site(spark: SparkSession) -> None:
    with pytest.raises(Exception) as raised:
        spark.range(1).select(F.col("id") + F.array(F.lit(CANARY)))
    why = describe_error_without_values(raised.value)
    assert "DATATYPE_MISMATCH" in why and "SSN" not in why
    # Spark knows the line of Python until the JVM has compiled its calls by reflection, as it has in a session of many tests.
    assert ", at " not in why or "test_values_in_logs.py:" in why
    with pytest.raises(Exception) as raised:
        spark.range(1).select("ix")
    assert "`ix`" in describe_error_without_values(raised.value) and "`id`" in describe_error_without_values(raised.value), (
        "names of columns are no values"
    )


def test_a_word_in_brackets_is_a_condition_only_where_spark_or_delta_define_it() -> None:
    assert error_conditions.last_error_condition(f"[CAST_INVALID_INPUT] The value '{CANARY}'") == "CAST_INVALID_INPUT"
    assert (
        error_conditions.last_error_condition("[A] [UNRESOLVED_COLUMN.WITH_SUGGESTION] no [SSN.X]")
        == "UNRESOLVED_COLUMN.WITH_SUGGESTION"
    )
    assert error_conditions.last_error_condition(CANARY) is None
