"""`sluice report`: one page that needs nothing else, names no file and nobody, and shows every table, run and rule."""

from __future__ import annotations

import re
import stat
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from sluice.cli import main
from sluice.cli.monitoring import report
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.erasure import request_events, request_record
from sluice.erasure.proof import chain
from sluice.errors import UsageError
from sluice.lake.pipeline_lake import PipelineLake
from sluice.pipeline_records import PipelineRecords
from sluice.runs import run_ledger
from sluice.runs.run_ledger import WHOLE_STAGE
from sluice.runs.status import lineage_pictures
from sluice.settings import Settings

AT = datetime(2026, 11, 21, 2, tzinfo=UTC)

pytestmark = pytest.mark.usefixtures("root_folders")


class Page(HTMLParser):
    """What a page shows and refers to. Raises AssertionError where a tag is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.ids: set[str] = set()
        self.refers: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == [], self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.refers += [value or "" for name, value in attrs if name in {"src", "href", "srcset", "data", "action"}]
        self.ids |= {value or "" for name, value in attrs if name == "id"}
        self.open += [] if tag in {"meta", "br"} else [tag]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.refers += [value or "" for name, value in attrs if name in {"src", "href"}]

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, (tag, self.open[-3:])
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    @property
    def shown(self) -> str:
        return " ".join(" ".join(self.text).split())


def row(run: str, stage: str, flow: str, after: int, **said: Any) -> dict[str, Any]:
    common = {"run": run, "pipeline": "gym", "stage": stage, "mode": "increment", "flow": flow, "state": "done", "note": ""}
    at = AT + timedelta(minutes=after)
    times = {"started_at": at, "ended_at": at + timedelta(seconds=30), "seconds": 4.0}
    return {**common, **times, **said}


def render(settings: Settings, rows: list[dict[str, Any]]) -> Page:
    if rows:
        run_ledger.append_run_rows(PipelineRecords(settings, "gym"), rows)
    return Page(report.render_report(PipelineLake(settings, load_declaration_graph(settings, "gym"))))


def test_a_lake_without_anything_has_a_page_with_every_declared_table(settings: Settings) -> None:
    page = render(settings, [])
    graph = load_declaration_graph(settings, "gym")
    for name in (*graph.stored, *graph.computed):
        assert name[:24] in page.shown
    assert "no table yet" in page.shown and "computed when read" in page.shown and "into gym_visits" in page.shown


def test_runs_rules_upkeep_and_failures_are_shown(settings: Settings) -> None:
    found = {"known_device": 3}
    whole = {
        "of_a_member": {"met": False, "count": 7, "text": "7 rows have no member"},
        "declared_no_more": {"met": False, "count": 1, "text": ""},
    }
    page = render(
        settings,
        [
            row("first", "silver", "heart_rate", 0, rules=found, quarantined=3, rows_out=90, inserted=90),
            row("first", "silver", "completed_workouts", 0, table_rules=whole),
            row("second", "silver", "heart_rate", 60, rules={}, late=2, rows_out=4, updated=4),
            row("second", "optimize", "heart_rate", 61, version_before=1, version_after=2, note="9 files > 1"),
            row(
                "second",
                "gold",
                "device_day",
                62,
                state="failed",
                recomputed="full: a change of 'heart_rate' can touch any row",
                failure="DIVIDE_BY_ZERO",
            ),
        ],
    )
    for text in ("known_device", "9 files > 1", "on the whole table", "can touch any row", "last run failed", "device_day"):
        assert text in page.shown, text
    assert "heart_rate 3 2" in page.shown, "rows that went another way"
    assert "declared_no_more" not in page.shown, "a rule that is declared no more is not met by nobody"
    assert "device_day (DIVIDE_BY_ZERO)" in page.shown and "has not gone well since" in page.shown
    for text in (
        "rows quarantined 3 in all",
        "rows late 2 in all",
        "rows that did not meet a rule 3 in all",
        "rows written 94 in all",
    ):
        assert text in page.shown, text
    assert "second, 2026-11-21 03:00:00: 2 rows late" in page.shown, "a bar says of which run it is"
    assert "rows dropped" not in page.shown, "what is always zero is not drawn"


def test_a_retry_counts_what_it_counts_again_once_and_what_another_table_did_before(settings: Settings) -> None:
    rules = {"known_device": 5}
    page = render(
        settings,
        [
            row("af-1", "silver", "workouts", 0, rows_out=1000, version_before=1, version_after=2),
            row("af-1", "silver", "heart_rate", 0, state="failed", quarantined=5, rules=rules, version_before=3, version_after=3),
            row("af-1", "silver", "heart_rate", 5, state="failed", quarantined=5, rules=rules, version_before=3, version_after=3),
            row("af-1", "silver", "heart_rate", 10, quarantined=5, rules=rules, rows_out=95, version_before=3, version_after=4),
        ],
    )
    for text in ("rows quarantined 5 in all", "rows written 1,095 in all", "rows that did not meet a rule 5 in all"):
        assert text in page.shown, text
    assert "heart_rate 5" in page.shown and "known_device 5 5" in page.shown


def test_what_all_attempts_refused_is_shown_once(settings: Settings) -> None:
    refused = {"state": "failed", "rules": {"known_device": 5}, "version_before": 3, "version_after": 3}
    page = render(settings, [row("af-1", "silver", "heart_rate", minute, **refused) for minute in (0, 5, 10)])
    assert "known_device 5 5" in page.shown


def test_deliveries_that_several_tables_wait_for_count_once(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = {"workouts": 3, "bpm": 3, "heart_rate": 2, "readings": 4}
    real = report.compute_status

    def stand(records: PipelineRecords) -> dict[str, Any]:
        state = real(records)
        return state | {"flows": [flow | {"deliveries": waiting.get(flow["table"], 0)} for flow in state["flows"]]}

    monkeypatch.setattr(report, "compute_status", stand)
    assert "deliveries waiting 9" in render(settings, []).shown


def test_records_that_cannot_be_judged_do_not_add_up(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    real = report.compute_status
    monkeypatch.setattr(report, "compute_status", lambda records: real(records) | {"adds_up": None})
    assert "records not known" in render(settings, []).shown


def test_a_failure_that_a_later_run_got_over_is_said_to_be_over(settings: Settings) -> None:
    failed = row("first", "gold", "device_day", 0, state="failed", failure="full disk")
    page = render(settings, [failed, row("second", "silver", "heart_rate", 60)])
    assert "has not gone well since" in page.shown
    page = render(settings, [row("third", "gold", "device_day", 120)])
    assert "device_day (full disk). The stage went well since" in page.shown


def test_a_stage_that_failed_as_a_whole_is_over_when_it_went_well_as_a_whole(settings: Settings) -> None:
    failed = row("first", "gold", WHOLE_STAGE, 0, state="failed", failure="DamagedLog")
    page = render(settings, [failed, row("second", "gold", "device_day", 60), row("second", "silver", "heart_rate", 60)])
    assert f"{WHOLE_STAGE} (DamagedLog)" in page.shown and "has not gone well since" in page.shown
    assert "The stage went well since" in render(settings, [row("third", "gold", WHOLE_STAGE, 120)]).shown


def test_what_is_no_table_is_over_when_anything_of_its_stage_went_well_whatever_the_clock_says(settings: Settings) -> None:
    failed = row("first", "bronze", "landing", 100, state="failed", failure="UsageError")
    assert "has not gone well since" in render(settings, [failed]).shown
    assert "The stage went well since" in render(settings, [row("second", "bronze", "readings", 0)]).shown


def test_a_retry_that_has_the_run_s_id_gets_over_a_failure(settings: Settings) -> None:
    failed = row("af-1", "gold", "device_day", 0, state="failed", failure="full disk")
    beside = row("af-1", "gold", "heart_rate", 0)
    assert "has not gone well since" in render(settings, [failed, beside]).shown, "done in the attempt that failed"
    assert "The stage went well since" in render(settings, [row("af-1", "gold", "device_day", 5)]).shown


def test_other_tables_of_the_stage_get_nothing_over(settings: Settings) -> None:
    failed = [row("first", "verify", name, 0, state="failed", failure="RuleNotMet") for name in ("device_day", "heart_rate")]
    page = render(settings, [*failed, row("second", "verify", "device_day", 60)])
    assert "has not gone well since" in page.shown, "heart_rate was not compared again"


def test_costs_sizes_and_what_upkeep_bought_are_shown(settings: Settings) -> None:
    asked = {"files_before": 12.4, "files_after": 1.0, "bytes_before": 1_200_000, "bytes_after": 1_100_000}
    files = {"files": 9, "bytes": 5_000_000}
    page = render(
        settings,
        [
            row("first", "silver", "heart_rate", 0, stage_cpu_seconds=20.5, spark={"cpu_seconds": 4.5}, steps={"writing": 1.0}),
            row("first", "silver", "gym_visits", 0, stage_cpu_seconds=20.5, table_files=files),
            row("first", "gold", "device_day", 1, stage_cpu_seconds=10.0),
            row("second", "optimize", "heart_rate", 60, questions={"time": asked}, table_files={"files": 1, "bytes": 4_000_000}),
        ],
    )
    assert "CPU seconds 30 in all" in page.shown, "once for each stage, however many tables it has"
    assert "files of all tables 10 now" in page.shown and "size of all tables 9.0 MB now" in page.shown
    assert "heart_rate time 1 12.4 1.0 1.2 MB 1.1 MB" in page.shown


def test_requests_and_certificates_are_shown_by_ids(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    stamps = {"logical": {"verdict": "PASS"}, "physical": {"verdict": "DUE"}}
    record = {
        "number": 7,
        "request": "0a1b",
        "issued_at": "2026-11-20T10:00:00+00:00",
        "stamps": stamps,
        "verdict": "INCONCLUSIVE",
    }
    issued = [chain.Certificate(Path("0a1b-7.json"), record)]
    monkeypatch.setattr(chain, "read_certificates", lambda records: issued)
    at = AT.isoformat()
    asked = request_record.ErasureRequest("0a1b", at, at, request_events.LOGICALLY, "user_id", (), physical_due_at=at)
    monkeypatch.setattr(request_record, "list_erasure_requests", lambda records: [asked])
    page = render(settings, [])
    assert "0a1b logically erased 2026-11-21 02:00:00" in page.shown
    assert "7 0a1b 2026-11-20 10:00:00 PASS DUE INCONCLUSIVE" in page.shown

    def fail(records: PipelineRecords) -> list[chain.Certificate]:
        raise UsageError("0a1b-7.json is no certificate")

    monkeypatch.setattr(chain, "read_certificates", fail)
    assert "A certificate cannot be read" in render(settings, []).shown


def test_what_a_table_costs_is_not_said_again_of_its_quarantine(settings: Settings) -> None:
    records = PipelineRecords(settings, "gym")
    for layer in ("silver", "quarantine"):
        write_deltalake(records.table_path(layer, "heart_rate"), pa.table({"device_id": [1]}))
    page = render(settings, [row("r", "silver", "heart_rate", 0, spark={"cpu_seconds": 4.5}, steps={"writing": 1.0})])
    assert len(re.findall(r" 4\.0 4\.5 4\.5", page.shown)) == 1


def test_a_table_shows_how_old_its_data_is_and_its_last_versions(settings: Settings) -> None:
    graph = load_declaration_graph(settings, "gym")
    path = PipelineLake(settings, graph).path("heart_rate")
    for number in range(7):
        write_deltalake(path, pa.table({"device_id": [number]}), mode="append")
    page = Page(report.render_report(PipelineLake(settings, graph), datetime.now(UTC) + timedelta(hours=3)))
    assert re.search(r"7 rows data 3 h( 0 min)? old", page.shown), page.shown
    assert re.search(r"6 \S+ \S+ WRITE delta-rs 5 ", page.shown) and not re.search(r" 1 \S+ \S+ WRITE delta-rs", page.shown)


def test_a_page_refers_to_nothing_and_obeys_nothing(settings: Settings) -> None:
    """What a name or a note says is text, whoever wrote it."""
    evil = "<script>alert(1)</script>"
    page = render(settings, [row("first", "optimize", "heart_rate", 0, version_before=1, version_after=2, note=evil)])
    assert {name[:1] for name in page.refers} == {"#"} and {name[1:] for name in page.refers} <= page.ids
    assert evil in page.shown
    text = report.render_report(PipelineLake(settings, load_declaration_graph(settings, "gym")))
    assert "<script" not in text and "http" not in text and "@import" not in text and "url(" not in text
    assert len(text) < 200_000


def test_a_page_names_no_file_that_was_delivered(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may be called like a person."""
    real = report.compute_status
    missed = [{"delivery": 3, "source": "events", "file": "ada-lovelace.json", "reason": "ada-lovelace.json is locked"}]
    monkeypatch.setattr(report, "compute_status", lambda records: real(records) | {"missed": missed})
    page = render(settings, [])
    assert "lovelace" not in page.shown and "1 file could not be read" in page.shown


def test_the_file_is_its_owners_and_its_path_is_said(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = tmp_path / "gym.html"
    with pytest.raises(SystemExit) as ended:
        main(["report", "gym", "--to", str(wanted)])
    assert ended.value.code == 0 and capsys.readouterr().out.strip() == str(wanted)
    assert stat.S_IMODE(wanted.stat().st_mode) == 0o600 and Page(wanted.read_text()).shown.startswith("gym: report of")
    with pytest.raises(SystemExit) as ended:
        main(["report", "--to", str(wanted)])
    assert ended.value.code == 2


def test_what_is_read_stands_left_of_what_reads_it_and_no_node_on_another(settings: Settings) -> None:
    picture = lineage_pictures.draw_lineage(load_declaration_graph(settings, "gym"))
    assert len({(node.x, node.y) for node in picture.nodes.values()}) == len(picture.nodes)
    assert picture.edges
    for read, name in picture.edges:
        assert picture.nodes[read].x + lineage_pictures.WIDTH < picture.nodes[name].x, (read, name)
    wide, high = picture.size
    assert all(
        node.x + lineage_pictures.WIDTH <= wide and node.y + lineage_pictures.HEIGHT <= high for node in picture.nodes.values()
    )
