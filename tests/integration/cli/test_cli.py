"""The command line over a real lake: run, read, and what `check --plans` finds in query plans."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.commands import Call, call_command, use_roots_of
from tests.conftest import gym_at

from sluice.declare import F, Pipeline, Source, Window, expect, materialized_view, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.lake.pipeline_lake import PipelineLake
from sluice.pipeline_records import PipelineRecords
from sluice.runs import run_ledger
from sluice.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], lake: Settings) -> Call:
    return lambda *arguments: call_command(capsys, *arguments)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, gym_of_two_days: Path) -> Iterator[Settings]:
    """A gym of two days, landed and run by the command line."""
    folder = tmp_path_factory.mktemp("cli")
    gym_at(folder, gym_of_two_days)
    with pytest.MonkeyPatch.context() as patch:
        use_roots_of(patch, folder)
        yield Settings.current()


def as_json(out: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(out.splitlines()[-1])
    return loaded


def test_run_again_finds_nothing_new_and_one_run_has_all_stages(call: Call, lake: Settings) -> None:
    code, out, _ = call("run", "gym", "--json")
    reports = as_json(out)["reports"]
    assert code == 0
    stages = ["bronze", "silver", "gold", "propagate_deletions", "optimize", "vacuum", "verify"]
    assert [report["stage"] for report in reports] == stages
    assert len({report["run"] for report in reports}) == 1
    assert not any(report["committed"] for report in reports[:3])
    last = as_json(call("status", "gym", "--json")[1])["pipelines"][0]
    assert last["deliveries"] == {"ingested": 18}
    assert {run["state"] for run in last["runs"]} == {"done"}


def test_sql_reads_every_table_by_its_name(call: Call, lake: Settings) -> None:
    query = (
        "WITH days AS (SELECT device_id, readings FROM gym.device_day) SELECT sum(readings) AS readings, "
        "(SELECT count(*) FROM gym.heart_rate) AS rates, (SELECT count(*) FROM gym.heart_rate_quarantine) AS aside FROM days"
    )
    code, out, _ = call("sql", query, "--json")
    rows = {
        row["table"]: row["rows"]
        for row in run_ledger.list_pipeline_tables(PipelineRecords(lake, "gym"))
        if row["layer"] != "quarantine"
    }
    assert code == 0
    (row,) = as_json(out)["rows"]
    assert row["readings"] == row["rates"] == rows["heart_rate"] > 0


@pytest.mark.thorough
def test_sql_as_of_a_version_and_an_instant(call: Call) -> None:
    count = "SELECT count(*) AS n FROM gym.heart_rate"
    versions = as_json(call("history", "gym.heart_rate", "--json")[1])["versions"]
    made = next(version for version in versions if version["operation"] == "CREATE TABLE")
    assert as_json(call("sql", count, "--as-of", "0", "--json")[1])["rows"] == [{"n": 0}]
    assert as_json(call("sql", count, "--json")[1])["rows"][0]["n"] > 0, "an earlier --as-of must not stick"
    later = f"{versions[0]['at'].replace(' ', 'T')}.999999"
    assert as_json(call("sql", count, "--as-of", later, "--json")[1])["rows"][0]["n"] > 0
    for wrong in ("99", "2020-01-01", "yesterday"):
        assert call("sql", count, "--as-of", wrong)[0] == 2
    assert made["version"] == 0


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM gym.heart_rate",
        "DROP TABLE gym.heart_rate",
        "INSERT INTO gym.device_day SELECT * FROM gym.device_day",
        "WITH a AS (SELECT * FROM gym.device_day) INSERT INTO gym.device_day SELECT * FROM a",
        "FROM gym.device_day INSERT INTO gym.device_day SELECT *",
        "CREATE TABLE gym.copy USING delta AS SELECT 1 AS a",
        "SET spark.sql.ansi.enabled = false",
        "MERGE INTO gym.device_day t USING gym.device_day s ON false WHEN NOT MATCHED THEN INSERT *",
        "OPTIMIZE gym.device_day",
        "EXECUTE IMMEDIATE 'DROP SCHEMA gym CASCADE'",
    ],
)
def test_sql_only_reads(call: Call, lake: Settings, statement: str) -> None:
    before = run_ledger.list_pipeline_tables(PipelineRecords(lake, "gym"))
    code, _, err = call("sql", statement)
    assert code == 2
    assert "is no query" in err
    assert run_ledger.list_pipeline_tables(PipelineRecords(lake, "gym")) == before


@pytest.mark.parametrize(
    "statement",
    ["VALUES (1)", "DESCRIBE gym.device_day", "SHOW TABLES IN gym", "SELECT 1;", "/* why */ SELECT 1", "EXPLAIN SELECT 1"],
)
def test_sql_takes_all_that_asks(call: Call, statement: str) -> None:
    assert call("sql", statement)[0] == 0


@pytest.mark.parametrize(
    ("statement", "hint"),
    [
        ("SELECT * FROM gym.hart_rate", "Did you mean 'gym.heart_rate'?"),
        ("SELECT heartrat FROM gym.heart_rate", "heartrate"),
        ("SELEC 1", "SELEC"),
        ("SELECT 1; SELECT 2", "extra input"),
    ],
)
def test_sql_that_does_not_fit_is_wrong_use(call: Call, statement: str, hint: str) -> None:
    code, out, err = call("sql", statement)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert hint in err


def test_what_a_failed_query_read_is_not_shown(call: Call) -> None:
    code, _, err = call("sql", "SELECT cast(concat('secret', device_id) AS int) FROM gym.device_day")
    assert code == 1
    assert "CAST_INVALID_INPUT" in err
    assert "secret" not in err


def test_quarantine_shows_what_rows_hold_only_when_asked(call: Call) -> None:
    reasons = as_json(call("quarantine", "list", "gym", "--json")[1])["reasons"]
    assert {row["table"] for row in reasons} <= {
        *("readings", "heart_rate", "workouts", "bpm", "members_changes", "members_history_changes"),
    }
    assert reasons, "two days have some"
    name = reasons[0]["table"]
    assert "record" not in as_json(call("quarantine", "show", "gym", name, "--json")[1])["rows"][0]
    assert "record" in as_json(call("quarantine", "show", "gym", name, "--raw", "--json")[1])["rows"][0]
    assert "record" not in as_json(call("show", f"gym.{name}_quarantine", "--json")[1])["columns"]


def test_show_and_the_ledgers(call: Call) -> None:
    shown = as_json(call("show", "gym.device_day", "--limit", "3", "--json")[1])
    assert len(shown["rows"]) == 3
    assert shown["columns"][:2] == ["device_id", "date"]
    assert as_json(call("ledger", "gym", "--state", "ingested", "--json", "--limit", "4")[1])["total"] == 18
    assert as_json(call("runs", "gym", "--json")[1])["runs"][0]["stage"] == "verify"
    assert as_json(call("history", "gym", "--json")[1])["versions"]


def test_verify_compares_with_a_recompute(call: Call) -> None:
    code, out, _ = call("verify", "gym", "--table", "device_day", "--table", "members", "--json")
    found = as_json(out)
    assert code == 0 and found["equal"]
    assert [(one["table"], one["equal"], one["missing"] + one["surplus"] + one["different"]) for one in found["tables"]] == [
        ("device_day", True, 0),
        ("members", True, 0),
    ]
    code, _, error = call("verify", "gym", "--table", "readings")
    assert code == 2 and "'readings' is bronze" in error


def test_check_plans_says_what_a_change_makes_anew(call: Call) -> None:
    code, out, _ = call("check", "gym", "--plans", "--json")
    bounds = {(bound["view"], bound["input"]): bound["columns"] for bound in as_json(out)["plans"][0]["bounds"]}
    assert code == 0
    assert bounds == {
        ("completed_workouts", "workouts"): {"user_id": "user_id", "session_id": "session_id"},
        ("members", "members_changes"): {"user_id": "user_id"},
        ("members_history", "members_history_changes"): {"user_id": "user_id"},
        ("member_bins", "members"): {"gender": "gender", "city": "city", "state": "state"},
        ("workout_heart_rate", "heart_rate"): {"device_id": "device_id", "time": "time"},
        ("workout_heart_rate", "memberships"): {"device_id": "device_id"},
        ("workout_heart_rate", "completed_workouts"): {"session_id": "session_id"},
        ("workout_summary", "workout_heart_rate"): {"user_id": "user_id", "session_id": "session_id"},
        ("workout_summary", "members_history"): {"user_id": "user_id"},
        ("gym_stats", "visits"): {"mac_address": "mac_address", "gym": "gym", "date": "CAST(first_seen AS DATE)"},
        ("gym_stats", "memberships"): {"mac_address": "mac_address"},
        ("gym_stats", "completed_workouts"): {"user_id": "user_id"},
        ("device_day", "heart_rate"): {"device_id": "device_id", "date": "CAST(time AS DATE)"},
    }


rows = Source(name="rows", format="json", path="rows", schema="id BIGINT, at TIMESTAMP, value DOUBLE", comment="x")
headers = Source(name="headers", format="csv", path="headers", infer_types=False, comment="x")


@table(reads="rows", keys="id")
@expect("fits", "value > 0")
@expect("no_such", "valu > 0")
@expect("not_alone", "row_number() OVER (ORDER BY id) > 1")
@expect("clock", "at < now()")
def good(rows: DataFrame) -> DataFrame:
    return rows.select("id", "at", "value")


@table(reads="rows", keys="id")
def ordered(rows: DataFrame) -> DataFrame:
    return rows.select("id").orderBy("id")


@table(reads="rows", keys="id")
def grouped(rows: DataFrame) -> DataFrame:
    return rows.groupBy("id").count()


@table(reads="rows", keys="id")
def timed(rows: DataFrame) -> DataFrame:
    return rows.select("id", F.current_timestamp().alias("now"))


@table(reads="rows", keys="idd")
def keyless(rows: DataFrame) -> DataFrame:
    return rows.select("id")


@table(reads="rows", keys="id")
def raising(rows: DataFrame) -> DataFrame:
    raise KeyError("nothing there")


@table(reads="headers", keys="id")
def unknown(headers: DataFrame) -> DataFrame:
    return headers.select("id")


@materialized_view(reads="good", keys="id")
def latest(good: DataFrame) -> DataFrame:
    newest = F.row_number().over(Window.partitionBy("id").orderBy("at"))
    return good.withColumn("place", newest).where("place = 1").select("id", "value")


@materialized_view(reads=("good", "latest"), keys="total")
def total(good: DataFrame, latest: DataFrame) -> DataFrame:
    return good.agg(F.count("*").alias("total")).crossJoin(latest.agg(F.count("*").alias("others")))


@materialized_view(reads="ordered", keys="id")
def after(ordered: DataFrame) -> DataFrame:
    return ordered.groupBy("id").count()


def test_plans_finds_every_mistake_and_every_reach(spark: SparkSession, settings: Settings) -> None:
    from sluice.runs.planning.transforms import examine_transforms

    pipeline = Pipeline(name="shop", description="x", owner="x", layers=("shop.bronze", __name__))
    wrong = (ordered, grouped, timed, keyless, raising)
    found = examine_transforms(
        spark,
        PipelineLake(settings, build_declaration_graph(pipeline, [rows, headers, good, *wrong, unknown, latest, total, after])),
    )
    expected = {
        "'ordered'": "ORDER BY",
        "'grouped'": "an aggregate",
        "'timed'": "current_timestamp()",
        "'keyless'": "Did you mean 'id'?",
        "'raising'": "KeyError",
        "'no_such'": "Did you mean 'value'?",
        "'not_alone'": "a window function",
        "'clock'": "now()",
    }
    for name, what in expected.items():
        (mistake,) = [mistake for mistake in found.mistakes if name in mistake]
        assert what in mistake
        assert "\n" not in mistake
    assert len(found.mistakes) == len(expected)
    bounds = {(bound["view"], bound["input"]): bound["columns"] for bound in found.bounds}
    assert bounds == {("latest", "good"): {"id": "id"}, ("total", "good"): {}, ("total", "latest"): {}}
    assert any("headers" in note and "first delivery" in note for note in found.notes)
    assert {name for name in ("unknown", "after") if any(f"'{name}'" in note for note in found.notes)} == {"unknown", "after"}
    assert not Path(settings.lake).exists(), "nothing is written"
