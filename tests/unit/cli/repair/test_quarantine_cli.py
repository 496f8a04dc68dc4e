"""`sluice quarantine` and `sluice ledger` as far as they need no Spark: ids, what is shown, and wrong use."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.commands import call_command, use_roots_of

from sluice.ingest import delivery_tables
from sluice.pipeline_records import PipelineRecords
from sluice.settings import Settings

Call = Callable[..., tuple[int, Any, str]]
AT = datetime(2026, 11, 20, tzinfo=UTC)
SECRET = "anna-schmidt-4711"


@pytest.fixture
def lake(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A lake of gym with a file and two rows in quarantine, and their deliveries."""
    records = PipelineRecords(settings, "gym")
    use_roots_of(monkeypatch, settings)
    rows = [
        {"_delivery": 1, "_file": "a", "_row": None, "reasons": ["the file holds NUL bytes"], "content": b"\0"},
        {"_delivery": 2, "_file": "b", "_row": 3, "reasons": ["the line is no JSON object"], "record": SECRET},
        {"_delivery": 2, "_file": "b", "_row": 9, "reasons": ["the line is no JSON object"], "record": SECRET},
    ]
    schema = pa.schema([
        *(pa.field(name, pa.int64()) for name in ("_delivery", "_row")),
        pa.field("_file", pa.string()),
        pa.field("reasons", pa.list_(pa.string())),
        pa.field("record", pa.string()),
        pa.field("content", pa.binary()),
        pa.field("quarantined_at", pa.timestamp("us", tz="UTC")),
        *(pa.field(name, pa.string()) for name in ("made", "rules_version")),
    ])
    write_deltalake(records.table_path("quarantine", "readings"), pa.Table.from_pylist(rows, schema=schema))
    events = [("a", "delivered"), ("b", "delivered"), ("c", "existing"), ("a", "cleaned"), ("d", "delivered")]
    deliveries = [
        {"delivery": number, "source": "readings", "file": file, "event": event} for number, (file, event) in enumerate(events, 1)
    ]
    delivery_tables.append_delivery_ledger_rows(records.delivery_ledger, deliveries, delivery_tables.DELIVERIES, "run")
    common = {"source": "readings", "recorded_at": AT, "run": "run1", "batch": 4}
    outcomes = [
        {"delivery": 1, "file": "a", "state": "quarantined", "read": 1, "rows": 0, "quarantined": 1, **common},
        {"delivery": 2, "file": "b", "state": "ingested", "read": 12, "rows": 9, "quarantined": 2, "discarded": 1, **common},
    ]
    delivery_tables.append_delivery_ledger_rows(records.outcome_ledger, outcomes, delivery_tables.OUTCOMES, "run")
    return settings


@pytest.fixture
def call(lake: Settings, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command in this process: exit code, its JSON or its text, standard error."""

    def run(*arguments: str) -> tuple[int, Any, str]:
        code, out, err = call_command(capsys, *arguments)
        return code, json.loads(out.splitlines()[-1]) if "--json" in arguments and out else out, err

    return run


def test_the_list_gives_the_ids_that_the_other_commands_take(call: Call) -> None:
    _, out, _ = call("quarantine", "list", "gym", "--ids", "--json")
    assert [(row["id"], row["what"], row["rows"]) for row in out["ids"]] == [
        ("readings/2", "rows", 2),
        ("readings/1", "the whole file", 1),
    ]


def test_show_takes_a_table_a_delivery_or_a_row_and_holds_back_what_is_in_it(call: Call) -> None:
    for name, ids in (
        ("readings", ["readings/2/3", "readings/2/9", "readings/1"]),
        ("readings/2", ["readings/2/3", "readings/2/9"]),
        ("readings/2/9", ["readings/2/9"]),
        ("readings/7", []),
    ):
        code, out, _ = call("quarantine", "show", "gym", name, "--json")
        assert (code, [row["id"] for row in out["rows"]]) == (0, ids)
        assert SECRET not in json.dumps(out)
    assert SECRET in call("quarantine", "show", "gym", "readings/2", "--raw")[1]
    assert SECRET not in call("quarantine", "show", "gym", "readings/2")[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("replay", "gym"), "--all TABLE"),
        (("replay", "gym", "readings/1", "--all", "readings"), "--all TABLE"),
        (("replay", "gym", "readings"), "'readings' is no id"),
        (("replay", "gym", "reading/1"), "'readings'"),
        (("replay", "gym", "--all", "device_day"), "No table 'device_day'"),
        (("discard", "gym", "readings/1"), "--reason is missing"),
        (("discard", "gym", "readings/1", "--reason", "  "), "--reason is missing"),
        (("show", "gym", "readings/x"), "is no id"),
        (
            ("discard", "gym", "heart_rate/2/2", "--reason", "x"),
            "'heart_rate' is a table, no source: its rows stay in bronze, and every run that folds them checks them again. Correct the "
            "transform or the rule, then: sluice quarantine replay gym --all heart_rate. Only rows in a source's quarantine can be",
        ),
    ],
)
def test_wrong_use_is_answered_before_spark_starts(call: Call, arguments: tuple[str, ...], said: str) -> None:
    code, _, err = call("quarantine", *arguments)
    assert code == 2
    assert said in err
    assert not call("runs", "gym", "--json")[1]["runs"]


def test_the_ledger_says_of_each_delivery_where_its_records_went(call: Call) -> None:
    _, out, _ = call("ledger", "gym", "--json")
    rows = {row["delivery"]: row for row in out["deliveries"]}
    assert {number: row["state"] for number, row in rows.items()} == {
        1: "quarantined",
        2: "ingested",
        3: "existing",
        4: "cleaned",
        5: "waiting",
    }
    counted = {name: rows[2][name] for name in ("read", "rows", "quarantined", "discarded", "batch", "ingest_run")}
    assert counted == {"read": 12, "rows": 9, "quarantined": 2, "discarded": 1, "batch": 4, "ingest_run": "run1"}
    assert [row["file"] for row in call("ledger", "gym", "--state", "cleaned", "--json")[1]["deliveries"]] == ["a"]
    assert "12" in call("ledger", "gym", "--state", "ingested")[1]
