"""`sluice report`: one page that needs nothing else, names no file and nobody, and shows every table, run and rule."""

from __future__ import annotations

import json
import re
import stat
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from sluice.cli import main
from sluice.cli.monitoring import report
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.pipeline_records import PipelineRecords
from sluice.runs import ledger
from sluice.runs.status import lineage
from sluice.settings import Settings

AT = datetime(2026, 11, 21, 2, tzinfo=UTC)

pytestmark = pytest.mark.usefixtures("places")


class Page(HTMLParser):
    """What a page shows and refers to. Raises AssertionError where a tag is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.refers: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == [], self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.refers += [value or "" for name, value in attrs if name in {"src", "href", "srcset", "data", "action"}]
        self.open += [] if tag in {"meta", "br", "path", "rect", "circle"} else [tag]

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
    objects = {name: said.pop(name, {}) for name in (*ledger.FLOW_OBJECTS, ledger.STAGE_STEPS)}
    common = {"run": run, "pipeline": "gym", "stage": stage, "mode": "increment", "flow": flow, "state": "done", "note": ""}
    at = AT + timedelta(minutes=after)
    times = {"started_at": at, "ended_at": at + timedelta(seconds=30), "seconds": 4.0}
    return {**common, **times, **{name: json.dumps(value) for name, value in objects.items()}, **said}


def render(settings: Settings, rows: list[dict[str, Any]]) -> Page:
    if rows:
        ledger.append_run_rows(PipelineRecords(settings, "gym"), rows)
    return Page(report.render_report(settings, load_declaration_graph(settings, "gym")))


def test_a_lake_without_anything_has_a_page_with_every_declared_table(settings: Settings) -> None:
    page = render(settings, [])
    graph = load_declaration_graph(settings, "gym")
    for name in (*graph.stored, *graph.computed):
        assert name[:24] in page.shown
    assert "no table yet" in page.shown and "computed when read" in page.shown and "into gym_visits" in page.shown


def test_runs_rules_upkeep_and_failures_are_shown(settings: Settings) -> None:
    found = {"known_device": 3}
    whole = {"enough": {"met": False, "count": 7, "text": "7 rows, fewer than 10"}}
    page = render(
        settings,
        [
            row("first", "silver", "heart_rate", 0, rules=found, quarantined=3, rows_out=90, inserted=90, table_rules=whole),
            row("second", "silver", "heart_rate", 60, rules={}, late=2, rows_out=4, updated=4),
            row("second", "optimize", "heart_rate", 61, version_before=1, version_after=2, note="9 files > 1"),
            row(
                "second", "gold", "device_day", 62, state="failed", recomputed="full: a change of 'heart_rate' can touch any row"
            ),
        ],
    )
    for text in ("known_device", "9 files > 1", "on the whole table", "can touch any row", "last run failed", "device_day"):
        assert text in page.shown, text
    assert re.search(r"heart_rate 3 2 [▁▂▃▄▅▆▇█]+", page.shown), "rows that went another way, with their trend"


def test_a_page_refers_to_nothing_and_obeys_nothing(settings: Settings) -> None:
    """What a name or a note says is text, whoever wrote it."""
    evil = "<script>alert(1)</script>"
    page = render(settings, [row("first", "optimize", "heart_rate", 0, version_before=1, version_after=2, note=evil)])
    assert page.refers == [] and evil in page.shown
    text = report.render_report(settings, load_declaration_graph(settings, "gym"))
    assert "<script" not in text and "http" not in text and "@import" not in text and "url(" not in text
    assert len(text) < 200_000


def test_a_page_names_no_file_that_was_delivered(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may be called like a person."""
    real = report.compute_status
    missed = [{"delivery": 3, "source": "events", "file": "ada-lovelace.json", "reason": "ada-lovelace.json is locked"}]
    monkeypatch.setattr(report, "compute_status", lambda records: real(records) | {"missed": missed})
    page = render(settings, [])
    assert "lovelace" not in page.shown and "1 files could not be read" in page.shown


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
    picture = lineage.draw_lineage(load_declaration_graph(settings, "gym"))
    assert len({(node.x, node.y) for node in picture.nodes.values()}) == len(picture.nodes)
    assert picture.edges
    for read, name in picture.edges:
        assert picture.nodes[read].x + lineage.WIDTH < picture.nodes[name].x, (read, name)
    wide, high = picture.size
    assert all(node.x + lineage.WIDTH <= wide and node.y + lineage.HEIGHT <= high for node in picture.nodes.values())
