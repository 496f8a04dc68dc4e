"""Lines of the code are recorded for transforms, and for nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException

from sluice.call_sites import call_sites_recorded
from sluice.declare import F, auto_cdc, materialized_view, temporary_view
from sluice.declare.cdc.expanded_tables import expand_auto_cdc
from sluice.declare.expansion import compose_transforms
from sluice.error_conditions import explain_refused_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@materialized_view(reads="numbers", keys="id")
def halves(numbers: DataFrame) -> DataFrame:
    """Adds an array to a number, which no type allows."""
    return numbers.select((F.col("id") + F.array(F.lit("x"))).alias("id"))


@temporary_view(reads="numbers")
def people(numbers: DataFrame) -> DataFrame:
    """Does the same in the view that a change log reads."""
    return numbers.select(F.lit(1) + F.array(F.lit("x")))


def _find_line(text: str) -> int:
    return next(at for at, line in enumerate(Path(__file__).read_text().splitlines(), 1) if text in line)


def test_an_error_in_a_transform_names_its_line(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException) as raised:
        halves(spark.range(1))
    assert f"{__file__}:{_find_line('numbers.select')}" in explain_refused_query(raised.value)


@pytest.fixture
def sent(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests to the JVM."""
    client: Any = spark._jvm._gateway_client  # type: ignore[union-attr]
    found: list[str] = []
    send = client.send_command

    def send_and_note(command: str, *arguments: Any, **named: Any) -> Any:
        if not command.startswith("m"):  # of what is collected just now
            found.append(command)
        return send(command, *arguments, **named)

    monkeypatch.setattr(client, "send_command", send_and_note)
    return found


def test_only_operations_within_are_recorded(spark: SparkSession, sent: list[str]) -> None:
    column = F.col("a")
    sent.clear()
    _ = ~column
    alone = len(sent)
    with call_sites_recorded():
        _ = ~column
    assert len(sent) - alone >= alone + 3, "the session, the line, and to forget it"


@pytest.mark.parametrize("made", ["a change log", "its target"])
def test_operations_of_a_transform_that_the_engine_made_are_not_recorded(spark: SparkSession, sent: list[str], made: str) -> None:
    cdc = auto_cdc("members", reads="people", keys="id", sequence_by="at", apply_as_deletes="city = 'x'", stored_as_scd_type=2)
    log, target = expand_auto_cdc(cdc, {})
    rows = spark.createDataFrame([], "id INT, city STRING, at INT")
    dataset, given = (log, rows) if made == "a change log" else (target, log.shape(log.function(rows)))  # type: ignore[attr-defined]
    dataset(given)  # what PySpark asks only once
    counts = []
    for make in (dataset.function, dataset):
        sent.clear()
        make(given)
        counts.append(len(sent))
    assert counts[1] <= counts[0] + 2, "and nothing more"


def test_an_error_in_a_view_below_a_change_log_names_its_line(spark: SparkSession) -> None:
    cdc = auto_cdc("members", reads="people", keys="id", sequence_by="at")
    (log, _) = expand_auto_cdc(cdc, {})
    with pytest.raises(AnalysisException) as raised:
        compose_transforms([people], log.function)(spark.range(1))
    assert f"{__file__}:{_find_line('numbers.select(F.lit')}" in explain_refused_query(raised.value)
