"""Lines of the code are recorded for transforms, and for nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException

from sluice.call_sites import call_sites_recorded
from sluice.declare import F, materialized_view
from sluice.error_conditions import explain_refused_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@materialized_view(reads="numbers", keys="id")
def halves(numbers: DataFrame) -> DataFrame:
    """Adds an array to a number, which no type allows."""
    return numbers.select((F.col("id") + F.array(F.lit("x"))).alias("id"))


def _find_line(text: str) -> int:
    return next(at for at, line in enumerate(Path(__file__).read_text().splitlines(), 1) if text in line)


def test_an_error_in_a_transform_names_its_line(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException) as raised:
        halves(spark.range(1))
    assert f"{__file__}:{_find_line('numbers.select')}" in explain_refused_query(raised.value)


def test_only_operations_within_are_recorded(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    column, client = F.col("a"), spark._jvm._gateway_client  # type: ignore[union-attr]
    sent: list[str] = []
    send = client.send_command

    def send_and_note(command: str, *arguments: Any, **named: Any) -> Any:
        if not command.startswith("m"):  # of what is collected just now
            sent.append(command)
        return send(command, *arguments, **named)

    monkeypatch.setattr(client, "send_command", send_and_note)
    _ = ~column
    alone = len(sent)
    with call_sites_recorded():
        _ = ~column
    assert len(sent) - alone >= alone + 3, "the session, the line, and to forget it"
