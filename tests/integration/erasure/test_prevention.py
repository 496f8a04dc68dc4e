"""The lake of a whole run, from version 0 of every table: no personal data is where an erasure cannot reach it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.commands import use_roots_of
from tests.conftest import Lakehouse, settings_at
from tests.few_rows import append_delivery
from tests.uncontrolled_erasures import controls_left_out

from sluice import delta_log
from sluice.cli import main
from sluice.declare import Pipeline, Source, auto_cdc, expect_or_quarantine, materialized_view, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.erasure import prevention, requests
from sluice.erasure.vault import Identifier
from sluice.lake import log, table_frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LAYER = __name__.rpartition(".")[2]
# It bears the name of a pipeline that is there, by which the command line finds it.
PIPELINE = Pipeline(name="gym", description="A shop.", owner="tests", layers=("gym.bronze", __name__))
ORDERS = Source(name="orders", schema="id BIGINT, who STRING, email STRING, day DATE, spent INT", subject="who", personal="email")
PEOPLE = Source(name="people", schema="who STRING, email STRING, at INT", subject="who", personal="email")


@table(reads="orders", keys="id", sequence_by="spent", zorder_by="day", partition_by="day", subject="who")
@expect_or_quarantine("paid", "spent > 0")
def order(orders: DataFrame) -> DataFrame:
    """Orders."""
    return orders.select("id", "who", "email", "day", "spent")


person = auto_cdc("person", reads="people", keys="who", sequence_by="at", stored_as_scd_type=2, subject="who")


@materialized_view(reads="order", keys=("who", "day"), subject="who", recompute="keys")
def spending(order: DataFrame) -> DataFrame:
    """Of each day."""
    return order.groupBy("who", "email", "day").sum("spent").withColumnRenamed("sum(spent)", "spent")


def line(number: int, who: str, spent: int) -> str:
    return json.dumps({"id": number, "who": who, "email": f"{who}@example.org", "day": "2026-01-02", "spent": spent}) + "\n"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lakehouse:
    """After two deliveries, an update, a record aside, an erasure, OPTIMIZE and VACUUM."""
    lake = Lakehouse(
        settings_at(tmp_path_factory.mktemp("shop")),
        spark,
        build_declaration_graph(PIPELINE, [ORDERS, PEOPLE, order, person, spending]),
    )
    names = ("adalovelace", "bobsinclair", "evejohnson")
    first = [(number, who, f"{who}@example.org", date(2026, 1, 2), 5) for number, who in enumerate(names)]
    append_delivery(lake.workspace(), ORDERS, 1, first)
    append_delivery(lake.workspace(), PEOPLE, 1, [(who, f"{who}@5.org", 5) for who in names])
    lake.run(LAYER)
    other = line(20, names[0], 0).replace('"who"', '"Who"') + line(21, names[1], 0).replace('"who"', '"WHO"')
    lake.land("orders/7.jsonl", "".join(line(n, who, 7) for n, who in enumerate(names)) + line(9, names[1], 0) + other)
    told = ({"who": who, "email": f"{who}@7.org", "at": 7} for who in names)
    lake.land("people/7.jsonl", "".join(json.dumps(one) + "\n" for one in told))
    lake.run()
    requests.receive_erasure_request(lake.lake, [Identifier("who", names[0])])
    with controls_left_out():
        lake.run("propagate_deletions", "optimize", "vacuum")
    return lake


@pytest.mark.thorough
def test_every_log_of_the_lake_is_clean(shop: Lakehouse) -> None:
    assert "adalovelace" not in {who for (who,) in shop.rows("order", "who")} and len(shop.rows("person")) == 4
    rescued = {told for (told,) in shop.rows("orders", "_rescued_data")}
    assert rescued == {None, '{"WHO":"bobsinclair"}'}, (
        "whoever is in no column, since the name has other letters, is erased as well"
    )
    aside = table_frames.read_table(shop.spark, shop.workspace().quarantine("order")).collect()
    assert len(aside) == 2 and "adalovelace" not in str(aside), "nor in the quarantine of a table"
    assert [str(one) for one in prevention.inspect_lake_logs(shop.lake)] == []
    known = prevention.personal_columns_by_path(shop.lake)
    tables = {path for path in known if delta_log.is_delta_table(path)}
    assert len(tables) >= 9, "the check has looked at something"
    # By other means: no log has a name in clear, whatever part of it.
    for path in tables:
        for file in (Path(path) / "_delta_log").rglob("*"):
            if file.is_file() and file.suffix != ".parquet":
                assert not any(who in file.read_text(errors="ignore") for who in ("bobsinclair", "evejohnson")), file


@pytest.fixture
def declarations(shop: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from sluice.cli.running import plan

    use_roots_of(monkeypatch, shop.settings)
    monkeypatch.setattr(plan, "load_pipeline_lake", lambda settings, name: shop.lake)
    yield


def checked(capsys: pytest.CaptureFixture[str]) -> tuple[Any, str]:
    with pytest.raises(SystemExit) as ended:
        main(["check", "gym", "--tables"])
    return ended.value.code, capsys.readouterr().err


@pytest.mark.usefixtures("declarations")
def test_a_delete_by_value_is_found_by_the_command(
    shop: Lakehouse, spark: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert checked(capsys)[0] == 0
    where = f"{shop.settings.lake}/gym/by_hand"
    known = {**{name: "interval 30 days" for name in prevention.RETENTIONS}, prevention.STATISTICS: "spent"}
    said = ", ".join(f"'{name}' = '{value}'" for name, value in known.items())
    spark.conf.unset("spark.databricks.delta.commitInfo.userMetadata")
    spark.sql(f"CREATE TABLE delta.`{where}` (who STRING, spent INT) USING delta TBLPROPERTIES ({said})")
    spark.sql(f"INSERT INTO delta.`{where}` VALUES ('bobsinclair', 1), ('evejohnson', 2)")
    assert checked(capsys)[0] == 0
    spark.sql(f"DELETE FROM delta.`{where}` WHERE who = 'bobsinclair'")
    code, told = checked(capsys)
    assert code == 2 and "the condition of a DELETE names values of the personal column 'who'" in told
    assert "bobsinclair" not in told


@pytest.mark.thorough
def test_a_column_that_becomes_personal_leaves_statistics_with_the_next_run(settings: Any, spark: SparkSession) -> None:
    plain = replace(ORDERS, personal=())
    loose = replace(order, personal=(), own_personal=())
    lake = Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [plain, loose]))
    lake.land("orders/1.jsonl", line(1, "bobsinclair", 5))
    lake.run()
    path = lake.workspace().path("order")
    assert "email" in str(log.read_table_properties(path)[prevention.STATISTICS]).split(",")
    long = replace(PIPELINE, retain="40 days")
    lake.graph = build_declaration_graph(long, [ORDERS, order])
    lake.land("orders/2.jsonl", line(2, "evejohnson", 5))
    lake.run()
    assert "email" not in str(log.read_table_properties(path)[prevention.STATISTICS]).split(",")
    now = log.read_table_properties(path)
    assert [now[name] for name in prevention.RETENTIONS] == ["interval 40 days", "interval 47 days"], "and how long files stay"
    told = "\n".join(map(str, prevention.inspect_lake_logs(lake.lake)))
    assert "lowest and highest values of the personal column 'email'" in told, "what was written before is told"
    versions = lake.versions()
    lake.run()
    assert lake.versions() == versions
