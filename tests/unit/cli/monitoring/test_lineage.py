"""`sluice lineage` and the report's columns: what a column comes from and what uses it; names that are wrong; JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.commands import ask_command, use_roots_of

from sluice.cli.monitoring import report
from sluice.column_origins import Origin, TableOrigins, TracedColumn
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.lake.pipeline_lake import PipelineLake
from sluice.pipeline_records import PipelineRecords
from sluice.runs.status.column_lineage_record import write_column_lineage
from sluice.settings import Settings


@pytest.fixture(autouse=True)
def traced(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> PipelineRecords:
    use_roots_of(monkeypatch, settings)
    records = PipelineRecords(settings, "gym")
    Path(records.bookkeeping()).mkdir(parents=True)
    beats = TracedColumn("beats", "int", (Origin("heart_rate_bronze", "bpm", "identity"),), treated="round")
    known = {
        "heart_rate": TableOrigins("heart_rate", "m", (beats, TracedColumn("time", "timestamp"))),
        "device_day": TableOrigins(
            "device_day",
            "m",
            (TracedColumn("mean", "double", (Origin("heart_rate", "beats", "aggregation"),)),),
            (Origin("heart_rate", "time", "group by"),),
        ),
    }
    write_column_lineage(records, known)
    return records


def ask(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    return ask_command(capsys, "lineage", *arguments, code=code)


def test_a_column_says_what_it_comes_from_and_what_uses_it(capsys: pytest.CaptureFixture[str]) -> None:
    said = json.loads(ask(capsys, "gym.heart_rate.beats", "--json"))
    assert said["columns"] == [
        {
            "column": "beats",
            "type": "int",
            "treated": "round",
            "comes_from": ["heart_rate_bronze.bpm (identity)"],
            "first_from": ["heart_rate_bronze.bpm"],
            "used_by": ["device_day.mean (aggregation)"],
        }
    ]
    time = json.loads(ask(capsys, "gym.heart_rate.time", "--json"))["columns"][0]
    assert time["used_by"] == ["rows of device_day (group by)"]


def test_a_table_shows_all_its_columns_and_goes_back_to_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    said = json.loads(ask(capsys, "gym.device_day", "--json"))
    assert said["columns"][0]["first_from"] == ["heart_rate_bronze.bpm"]
    assert said["rows_by"] == ["heart_rate.time (group by)"]
    shown = ask(capsys, "gym.device_day")
    assert "gym.device_day" in shown and "which rows it has: heart_rate.time (group by)" in shown


@pytest.mark.parametrize(
    ("of", "says"),
    [
        ("gym.device_dya", "no table 'device_dya'. Did you mean 'device_day'"),
        ("gym.heart_rate.beat", "no column 'beat'. Did you mean 'beats'"),
        ("gymm.heart_rate", "no pipeline 'gymm'"),
        ("gym", "names no table"),
    ],
)
def test_a_wrong_name_is_told_the_nearest(capsys: pytest.CaptureFixture[str], of: str, says: str) -> None:
    assert says in ask(capsys, of, code=2)


def test_before_the_first_run_nothing_is_known(capsys: pytest.CaptureFixture[str], traced: PipelineRecords) -> None:
    Path(traced.bookkeeping("column_lineage.json")).unlink()
    assert "Run: sluice run gym" in ask(capsys, "gym.heart_rate", code=2)


def test_the_report_links_a_table_to_its_columns(settings: Settings) -> None:
    page = report.render_report(PipelineLake(settings, load_declaration_graph(settings, "gym")))
    assert '<a href="#table-heart_rate">' in page and 'id="table-heart_rate">' in page
    assert page.count('aria-label="columns of ') == 2, "a picture for each table of which something is known"
    assert "heart_rate_bronze.bpm (identity)" in page and "treated: round" in page and "rows of device_day (group by)" in page
