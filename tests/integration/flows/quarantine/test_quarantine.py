"""What is in quarantine: judged again, put where it belongs, once, or discarded, and the ledger adds up all the time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.conftest import Lakehouse, copied_lakehouse, settings_at
from tests.few_rows import append_delivery

from sluice.declare import Pipeline, Source, expect_or_quarantine, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.erasure import aging, requests
from sluice.errors import UsageError
from sluice.flows.quarantine import readmission, settlement
from sluice.flows.silver import fold
from sluice.lake import commit_history, small_writes
from sluice.lake.commit_marks import find_version_origins
from sluice.lake.flow_report import FlowReport
from sluice.open_tables import open_delta_table
from sluice.quality import verdicts
from sluice.runs.repair.quarantine_run import parse_quarantine_entry, parse_quarantine_selection
from sluice.runs.status import reconciliation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

SILVER = __name__.rsplit(".", 1)[-1]
PIPELINE = Pipeline(name="shop", description="A shop.", owner="tests", layers=("pipelines.shop.bronze", __name__))
SCHEMA = "id BIGINT, name STRING"
CSV = Source(name="orders", format="csv", schema=SCHEMA)
MISQUOTED = replace(CSV, quote="'")
JSON = Source(name="orders", schema=SCHEMA)
Shop = Callable[..., Lakehouse]


@table(reads="orders", keys="id")
@expect_or_quarantine("named", "name IS NOT NULL")
def order(orders: DataFrame) -> DataFrame:
    """An order."""
    return orders.select("id", "name")


@pytest.fixture
def shop(settings: Settings, spark: SparkSession) -> Shop:
    return lambda *declared: Lakehouse(settings, spark, build_declaration_graph(PIPELINE, declared))


@pytest.fixture(scope="module")
def misquoted(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lakehouse:
    """A file whose second and last row are in bronze, the last in the quarantine of silver. Two more fit by `CSV`; the third never does."""
    lake = Lakehouse(
        settings_at(tmp_path_factory.mktemp("misquoted")), spark, build_declaration_graph(PIPELINE, [MISQUOTED, order])
    )
    lake.land("orders/1.csv", 'id,name\n1,"a, b"\n2,c\n3\n4,"d, e"\n5,\n')
    lake.run()
    assert aside(lake) == [(1, 0, '1,"a, b"'), (1, 2, "3"), (1, 3, '4,"d, e"')]
    assert [row[:2] for row in aside(lake, "order")] == [(1, 4)]
    return lake


@pytest.fixture
def begun(misquoted: Lakehouse, tmp_path: Path) -> Shop:
    """A copy of it, in which these are declared from now on."""

    def declare(*declared: Any, pipeline: Pipeline = PIPELINE) -> Lakehouse:
        lake = copied_lakehouse(misquoted, tmp_path)
        lake.graph = build_declaration_graph(pipeline, declared)
        return lake

    return declare


def replay(lake: Lakehouse, name: str, *ids: str) -> FlowReport:
    """Does what `sluice quarantine replay` does, without the lease."""
    report = FlowReport(flow=name, layer="bronze")
    entries = [parse_quarantine_entry(one)[1] for one in ids] if ids else None
    readmission.replay_quarantined_entries(lake.workspace(), name, entries, report)
    return report


def discard(lake: Lakehouse, name: str, *ids: str) -> FlowReport:
    report = FlowReport(flow=name, layer="bronze")
    readmission.discard_quarantined_entries(
        lake.workspace(), name, [parse_quarantine_entry(one)[1] for one in ids], "discarded by me: a test", report
    )
    return report


def aside(lake: Lakehouse, name: str = "orders") -> list[tuple[Any, ...]]:
    return lake.rows(f"{name}_quarantine", "_delivery", "_row", "record")


def adds_up(lake: Lakehouse) -> bool:
    """Whether every delivery's records are where the ledger says, counted from the tables."""
    for row in lake.outcomes():
        assert row["read"] == row["rows"] + row["quarantined"] + row["suppressed"] + (row["discarded"] or 0), row
    return all(account.adds_up for account in reconciliation.reconcile_deliveries(lake.lake))


def newest_origins(lake: Lakehouse, *paths: str) -> list[str]:
    """The deliveries that the newest version of each table comes from."""
    origins = [find_version_origins(path, lambda _: None) for path in paths]
    return [str(of_table[max(of_table)]) for of_table in origins]


def test_rows_that_fit_after_the_declaration_was_corrected_go_to_bronze_once(begun: Shop) -> None:
    lake = begun(CSV, order)
    replay(lake, "orders", "orders/1/3")
    assert lake.rows("orders", "id", "_row") == [(2, 1), (4, 3), (5, 4)], "one by its id"
    assert aside(lake) == [(1, 0, '1,"a, b"'), (1, 2, "3")]
    assert adds_up(lake)
    replay(lake, "orders", "orders/1")
    assert lake.rows("orders", "id", "name", "_delivery", "_row", "_file") == [
        (1, "a, b", 1, 0, "1.csv"),
        (2, "c", 1, 1, "1.csv"),
        (4, "d, e", 1, 3, "1.csv"),
        (5, None, 1, 4, "1.csv"),
    ]
    assert aside(lake) == [(1, 2, "3")]
    assert adds_up(lake)
    assert newest_origins(lake, lake.workspace().path("orders"), lake.workspace().quarantine("orders")) == ["1", "1"]
    before = lake.versions()
    replay(lake, "orders", "orders/1")
    assert lake.versions() == before, "what still does not fit stays, and no commit says so"
    lake.run(SILVER)
    assert lake.rows("order", "id", "name") == [(1, "a, b"), (2, "c"), (4, "d, e")], "silver hears of it"
    assert not list((lake.settings.landing.parent / "lake" / "shop" / "_sluice").glob("staging/*"))


def test_rows_expire_by_the_declared_time_and_what_was_counted_of_them_stays(
    begun: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = begun(CSV, order, pipeline=replace(PIPELINE, keep_quarantine="90 days"))
    undeclared = replace(lake, graph=build_declaration_graph(PIPELINE, [CSV, order]))
    outcomes, versions = lake.outcomes(), lake.versions()
    assert aging.remove_old_rows_aside_or_late(lake.workspace(), datetime.now(UTC) + timedelta(days=89)) == []
    late = datetime.now(UTC) + timedelta(days=91)
    assert aging.remove_old_rows_aside_or_late(undeclared.workspace(), late) == [] and lake.versions() == versions, (
        "not declared: for ever"
    )
    # Killed after the first table's commit, before anything of it was recorded.
    merged = aging.delete_by_merge

    def dying(*given: Any) -> int:
        merged(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(aging, "delete_by_merge", dying)
    with pytest.raises(KeyboardInterrupt):
        aging.remove_old_rows_aside_or_late(lake.workspace(), late)
    monkeypatch.undo()
    (report,) = aging.remove_old_rows_aside_or_late(lake.workspace(), late)
    assert (report.flow, report.expired, report.notes) == ("order_quarantine", 1, ["1 row expired"])
    assert (aside(lake), aside(lake, "order")) == ([], [])
    assert aging.remove_old_rows_aside_or_late(lake.workspace(), late) == []
    assert lake.outcomes() == outcomes and adds_up(lake), "counted as before"
    with pytest.raises(UsageError, match="more than 90 days expire"):
        replay(lake, "orders", "orders/1/1")
    assert lake.run(SILVER)["order"].rows_out == 0 and lake.rows("order", "id") == [(2,)]
    notes = [commit["note"] for commit in commit_history.read_commit_history(lake.workspace().quarantine("orders"), 1)]
    assert notes[0]["flow"] == "erasure_orders_quarantine"


def test_the_files_of_quarantines_are_joined_as_those_of_tables(begun: Shop) -> None:
    lake = begun(MISQUOTED, order)
    for name in ("orders", "order"):
        path = lake.workspace().quarantine(name)
        rows = pa.table(open_delta_table(path).to_pyarrow_table())
        for _ in range(2):
            small_writes.append_few_rows(path, rows, None)
    before = {name: lake.rows(f"{name}_quarantine", "_delivery", "_row", "reasons") for name in ("orders", "order")}
    reports = lake.run("optimize")
    assert reports["orders_quarantine"].notes == ["3 files > 1"] and reports["order_quarantine"].notes == ["3 files > 1"]
    assert before == {name: lake.rows(f"{name}_quarantine", "_delivery", "_row", "reasons") for name in before}
    again = lake.run("optimize")
    for name in ("orders_quarantine", "order_quarantine"):
        assert not again[name].committed and again[name].decision == "no: no data came since the last rewrite"


@pytest.mark.thorough
def test_rows_of_files_without_a_header_are_replayed_only_if_a_schema_says_how_many_fields_they_have(shop: Shop) -> None:
    lake = shop(Source(name="orders", format="csv", header=False))
    lake.land("orders/1.csv", "1,a,x\n2,b,y\n3,c,z,extra\n4,d\n")
    lake.run("bronze")
    assert [row[2] for row in aside(lake)] == ["3,c,z,extra", "4,d"]
    before = lake.versions()
    (note,) = (one for one in replay(lake, "orders").notes if "no header" in one)
    assert note.startswith("2 rows stay") and lake.versions() == before
    lake = shop(Source(name="orders", format="csv", header=False, schema="_c0 BIGINT, _c1 STRING, _c2 STRING, _c3 STRING"))
    replay(lake, "orders")
    assert [row[2] for row in aside(lake)] == ["4,d"]


def test_a_file_that_was_refused_whole_is_taken_again_from_the_landing_folder_or_from_its_bytes(shop: Shop) -> None:
    wrong = shop(Source(name="orders", format="csv", schema=SCHEMA, delimiter=";"))
    wrong.land("orders/stays.csv", "id,name\n1,a\n")
    goes = wrong.land("orders/date=2026-01-01/goes.csv", "id,name\n2,b\n")
    changes = wrong.land("orders/changes.csv", "id,name\n3,c\n")
    wrong.run("bronze")
    assert len(aside(wrong)) == 3
    goes.unlink()
    changes.write_text("id,name\n4,d\n")
    right = shop(CSV)
    replay(right, "orders")
    assert right.rows("orders", "id", "_delivery") == [(1, 1), (2, 2), (3, 3)]
    assert right.rows("orders", "_file")[1] == ("date=2026-01-01/goes.csv",)
    assert aside(right) == []
    assert {row["state"] for row in right.outcomes()} == {"ingested"}
    assert adds_up(right)
    assert newest_origins(right, right.workspace().path("orders"), right.workspace().quarantine("orders")) == ["3", "3"]
    right.run("bronze")
    assert right.rows("orders", "id", "_delivery") == [(1, 1), (2, 2), (3, 3), (4, 4)], (
        "what the file is now is a delivery of its own"
    )


def test_a_refused_file_whose_size_is_not_known_any_more_is_taken_from_its_bytes(shop: Shop) -> None:
    """A delivery that was restored from its outcome lacks it, if the file was away or another one by then."""
    wrong = shop(Source(name="orders", format="csv", schema=SCHEMA, delimiter=";"))
    wrong.land("orders/restored.csv", "id,name\n1,a\n")
    wrong.run("bronze")
    open_delta_table(wrong.workspace().deliveries).update({"size": "NULL"})
    right = shop(CSV)
    replay(right, "orders")
    assert right.rows("orders", "id", "_delivery") == [(1, 1)] and aside(right) == []


@pytest.mark.thorough
def test_a_file_that_is_still_refused_stays_as_it_is(shop: Shop) -> None:
    lake = shop(CSV)
    lake.land("orders/nul.csv", b"id,name\n7,\0\n")
    lake.run()
    before = lake.versions()
    assert replay(lake, "orders", "orders/1").notes == ["1 still in quarantine"]
    assert lake.versions() == before


@pytest.mark.thorough
def test_json_lines_fit_some_at_a_time_when_the_schema_is_no_hindrance_and_too_many_ids_are_refused(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of a delivery's many lines are valid now: each keeps its own number."""
    lake = shop(JSON)
    lake.land("orders/1.jsonl", '{"id": 1}\n[2]\nx\n[4]\n')
    lake.land("orders/2.jsonl", "y\n")
    lake.run("bronze")
    assert aside(lake) == [(1, 1, "[2]"), (1, 2, "x"), (1, 3, "[4]"), (2, 0, "y")]
    for before, mended in (("[2]", '{"id": 2, "more": true}'), ("[4]", '{"id": 4}')):
        open_delta_table(lake.workspace().quarantine("orders")).update(
            {"record": f"'{mended}'"}, predicate=f"record = '{before}'"
        )
    monkeypatch.setattr(readmission, "MOST_RECORDS", 2)
    monkeypatch.setattr(readmission, "MOST_ENTRIES", 1)
    replay(lake, "orders")
    rows = lake.rows("orders", "id", "_delivery", "_row", "_rescued_data")
    assert [row[:3] for row in rows] == [(1, 1, 0), (2, 1, 1), (4, 1, 3)]
    assert json.loads(rows[1][3]) == {"more": True}
    assert aside(lake) == [(1, 2, "x"), (2, 0, "y")]
    assert (lake.outcomes()[0]["rows"], lake.outcomes()[0]["rescued"]) == (3, 1)
    assert adds_up(lake), "a delivery that is taken in two parts is counted once"
    with pytest.raises(UsageError, match=r"More than 1 rows of quarantine at once\. Name deliveries"):
        discard(lake, "orders", "orders/1", "orders/2")
    discard(lake, "orders", "orders/1")
    assert aside(lake) == [(2, 0, "y")]


@pytest.mark.thorough
def test_rows_of_silver_are_folded_again_when_its_rule_is_milder(begun: Shop) -> None:
    milder = table(reads="orders", keys="id")(expect_or_quarantine("known", "id IS NOT NULL")(_renamed(order)))
    lake = begun(MISQUOTED, milder)
    replay(lake, "order")
    assert lake.rows("order", "id", "name") == [(2, "c"), (5, None)]
    assert aside(lake, "order") == []


@pytest.mark.thorough
def test_a_corrected_file_puts_rows_of_other_files_where_the_rule_of_today_puts_them(shop: Shop) -> None:
    """The key's row went with its file, so the key is folded again from the files that stay, whose rows an earlier rule judged."""

    def declare(name: str, refused: str) -> Any:
        @table(name=name, reads="orders", keys="id", sequence_by="at")
        @expect_or_quarantine("allowed", f"name NOT IN ('{refused}', 'bad')")
        def order(orders: DataFrame) -> DataFrame:
            """An order."""
            return orders.select("id", "name", "at")

        return order

    dated = Source(name="orders", format="csv", schema="id BIGINT, name STRING, at BIGINT", redelivery="replace")
    lake = shop(dated, declare("stricter", ""), declare("milder", "x"))
    append_delivery(lake.workspace(), dated, 1, [(1, "x", 1), (2, "x", 1)])
    append_delivery(lake.workspace(), dated, 2, [(1, "y", 2), (3, "bad", 2)])
    lake.run(SILVER)
    assert lake.rows("milder", "id", "name") == [(1, "y")]
    assert lake.rows("stricter", "id", "name") == [(1, "y"), (2, "x")]
    lake.graph = build_declaration_graph(PIPELINE, [dated, declare("stricter", "x"), declare("milder", "")])
    append_delivery(lake.workspace(), dated, 3, [(4, "y", 2), (3, "bad", 2)], file="2.csv")
    lake.run(SILVER)
    for name in ("stricter", "milder"):
        kept = lake.rows(name, "id", "name")
        refused = [json.loads(row[0])["id"] for row in lake.rows(f"{name}_quarantine", "made")]
        assert ((1, "x") in kept) == (name == "milder")
        assert sorted([*(row[0] for row in kept), *refused]) == [1, 2, 3, 4], "each record is in one place"


def _renamed(declared: Any) -> Any:
    def order(orders: DataFrame) -> DataFrame:
        """An order."""
        return orders.select("id", "name")

    return order


def test_discarding_takes_rows_out_and_the_ledger_keeps_who_and_why(begun: Shop) -> None:
    lake = begun(MISQUOTED, order)
    lake.land("orders/2.csv", b"id,name\n7,\0\n")
    lake.run("bronze")
    discard(lake, "orders", "orders/1/0", "orders/1/3", "orders/2")
    assert aside(lake) == [(1, 2, "3")]
    one, two = lake.outcomes()
    assert (one["state"], one["rows"], one["quarantined"], one["discarded"]) == ("ingested", 2, 1, 2)
    assert (two["state"], two["rows"], two["quarantined"], two["discarded"]) == ("discarded", 0, 0, 1)
    assert one["reason"] == two["reason"] == "discarded by me: a test"
    assert adds_up(lake)
    lake.run(SILVER)
    assert lake.rows("order", "id") == [(2,)]
    with pytest.raises(UsageError, match=r"orders/2.*--ids"):
        discard(lake, "orders", "orders/2")


POINTS = [
    (settlement, "write_readmission_journal", True),
    (readmission.commits, "append_rows", True),
    (settlement.quarantine, "remove_quarantine_entries", True),
    (settlement.delivery_tables, "append_delivery_ledger_rows", True),
    (settlement, "write_readmission_journal", False),
    (readmission.commits, "append_rows", False),
    (settlement.quarantine, "remove_quarantine_entries", False),
    (settlement.delivery_tables, "append_delivery_ledger_rows", False),
]


def cases() -> list[Any]:
    """Every point, then a run or the replay again. In turn, so that `make test` has each commit once."""
    found = []
    for number, (module, function, after) in enumerate(POINTS):
        for then in ("run", "replay"):
            often = number < 4 and (number % 2 == 0) == (then == "run")
            name = f"{module.__name__.rsplit('.', 1)[1]}.{function}-{'after' if after else 'before'}-{then}"
            found.append(pytest.param(module, function, after, then, id=name, marks=() if often else pytest.mark.slow))
    return found


@pytest.mark.crash
@pytest.mark.parametrize(("module", "function", "after", "then"), cases())
def test_a_killed_replay_leaves_no_row_twice_and_none_missing(
    begun: Shop, monkeypatch: pytest.MonkeyPatch, module: Any, function: str, after: bool, then: str
) -> None:
    lake = begun(CSV, order)
    crash(monkeypatch, module, function, after)
    with pytest.raises(KeyboardInterrupt):
        replay(lake, "orders")
    monkeypatch.undo()
    if then == "run":
        lake.run("bronze")
    settlement.finish_interrupted_journals(lake.workspace())
    replay(lake, "orders")
    lake.run(SILVER)
    assert lake.rows("orders", "id", "_row") == [(1, 0), (2, 1), (4, 3), (5, 4)]
    assert aside(lake) == [(1, 2, "3")]
    assert lake.rows("order", "id") == [(1,), (2,), (4,)]
    assert [(row["rows"], row["quarantined"]) for row in lake.outcomes()] == [(4, 1)]
    assert adds_up(lake)
    assert list(settlement.read_unfinished_readmissions(lake.workspace())) == []


def crash(monkeypatch: pytest.MonkeyPatch, module: Any, function: str, after: bool) -> None:
    real = getattr(module, function)

    def crashing(*arguments: Any, **options: Any) -> None:
        if after:
            real(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, function, crashing)


def test_ids_that_are_none_are_wrong_use() -> None:
    declared = build_declaration_graph(PIPELINE, [CSV, order])
    for ids in (["orders"], ["orders/x"], ["/1"], ["orders/1/2/3"], ["orders/-1"]):
        with pytest.raises(UsageError, match="is no id"):
            parse_quarantine_selection(declared, ids)
    with pytest.raises(UsageError, match="'orders'"):
        parse_quarantine_selection(declared, ["order_s/1"])
    with pytest.raises(UsageError, match="--all TABLE"):
        parse_quarantine_selection(declared, [])
    assert [(one.table, one.entries) for one in parse_quarantine_selection(declared, ["orders/1", "order/2/3", "orders/1"])] == [
        ("orders", ((1, None),)),
        ("order", ((2, 3),)),
    ]


SOLD = Source(name="orders", schema="id BIGINT, name STRING, who STRING, at TIMESTAMP", subject="who")


def _sold(*rules: Any) -> Any:
    """A table whose transform renames, changes and makes two rows of one."""

    def order(orders: DataFrame) -> DataFrame:
        """An order."""
        return orders.selectExpr("id AS number", "upper(name) AS name", "who", "at", "explode(array('a', 'b')) AS copy")

    declared: Any = order
    for rule in rules:
        declared = rule(declared)
    return table(reads="orders", keys=("number", "copy"), subject="who")(declared)


NAMED, KNOWN = expect_or_quarantine("named", "name IS NOT NULL"), expect_or_quarantine("named", "name > 'A' OR name IS NULL")


@pytest.mark.slow
def test_what_silver_set_aside_is_kept_as_it_came_and_as_it_was_made_and_goes_with_its_subject(shop: Shop) -> None:
    lake = shop(SOLD, _sold(NAMED))
    lake.land(
        "orders/1.jsonl",
        '{"id": 1, "who": "ann", "vat": 7, "at": "2026-11-20T10:00:00.123456Z"}\n{"id": 2, "who": "bob", "name": "x"}\n{"id": 3, "who": "cat"}\n',
    )
    lake.run()
    columns = ("_delivery", "_row", "_file", "_subject", "reasons", "record", "made", "rules_version")
    found = lake.rows("order_quarantine", *columns)
    assert [row[:5] for row in found] == [
        (1, number, "1.jsonl", who, ["named"]) for number, who in ((0, "ann"), (2, "cat")) for _ in range(2)
    ]
    assert json.loads(found[0][5]) == {
        "id": 1,
        "who": "ann",
        "at": "2026-11-20T10:00:00.123456Z",
        "_rescued_data": '{"vat":7}',
    }
    assert {json.loads(row[6]).get("at") for row in found[:2]} == {"2026-11-20T10:00:00.123456Z"}, "whole, not to the millisecond"
    assert [json.loads(row[6])["copy"] for row in found[:2]] == ["a", "b"]
    assert {row[7] for row in found} == {verdicts.expectations_version(lake.graph.tables["order"].expectations)}
    requests.receive_erasure_request(lake.lake, ["ann"], "who")
    lake.run("propagate_deletions")
    assert {row[0] for row in lake.rows("order_quarantine", "_subject")} == {"cat"}


@pytest.mark.thorough
@pytest.mark.crash
@pytest.mark.parametrize(
    "rules", [pytest.param((KNOWN,), id="a milder rule"), pytest.param((), id="no rule", marks=pytest.mark.slow)]
)
def test_a_batch_that_is_tried_again_under_another_rule_leaves_no_row_on_both_sides(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, rules: tuple[Any, ...]
) -> None:
    lake = shop(SOLD, _sold(NAMED))
    lake.land("orders/1.jsonl", '{"id": 1, "who": "ann"}\n{"id": 2, "who": "bob", "name": "x"}\n')
    crash(monkeypatch, fold, "apply_merge_operations", False)
    with pytest.raises(KeyboardInterrupt):
        lake.run()
    monkeypatch.undo()
    assert len(aside(lake, "order")) == 2
    lake = shop(SOLD, _sold(*rules))
    lake.run(SILVER)
    assert [row[0] for row in lake.rows("order", "number")] == [1, 1, 2, 2]
    assert aside(lake, "order") == []
