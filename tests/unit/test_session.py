"""Py4J asks the JVM once for each package, class and static method."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from sluice.session import keep_java_lookups

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def asked(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the JVM is asked, as Py4J sends it."""
    from py4j.protocol import MEMORY_COMMAND_NAME

    client, sent = spark._jvm._gateway_client, []  # type: ignore[union-attr]
    send = client.send_command

    def send_and_note(command: str, *arguments: Any, **named: Any) -> Any:
        # What another test left may be collected just now, of which the JVM is told, too.
        if not command.startswith(MEMORY_COMMAND_NAME):
            sent.append(command)
        return send(command, *arguments, **named)

    monkeypatch.setattr(client, "send_command", send_and_note)
    yield sent


def test_a_name_is_asked_for_once(spark: SparkSession, asked: list[str]) -> None:
    def name_several() -> tuple[Any, ...]:
        jvm: Any = spark._jvm
        return (
            getattr(jvm, "org.apache.spark.sql.functions").col,
            jvm.PythonUtils.toSeq,
            jvm.java.util.Map.Entry,
            jvm.java.lang.Math.abs,
        )

    first = name_several()
    asked.clear()
    assert name_several() == first and asked == []
    assert first[-1](-3) == 3


def test_the_value_of_a_static_field_is_asked_for_each_time(spark: SparkSession, asked: list[str]) -> None:
    jvm: Any = spark._jvm
    numbers = jvm.java.lang.Integer
    asked.clear()
    assert [numbers.MAX_VALUE, numbers.MAX_VALUE] == [2**31 - 1] * 2
    assert len(asked) == 2


def test_a_name_that_there_is_not_is_refused_each_time(spark: SparkSession) -> None:
    from py4j.protocol import Py4JError

    jvm: Any = spark._jvm
    for _ in range(2):
        with pytest.raises(Py4JError, match="no_such_method"):
            _ = jvm.java.lang.Math.no_such_method


def test_keeping_twice_is_keeping_once(spark: SparkSession) -> None:
    from py4j.java_gateway import JVMView

    before = JVMView.__getattr__
    keep_java_lookups()
    assert JVMView.__getattr__ is before
