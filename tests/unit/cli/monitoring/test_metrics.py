"""`sluice metrics`: Prometheus' text format, every metric once, no label that names a file or a person."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.commands import use_roots_of

from sluice.cli import main
from sluice.cli.monitoring import metrics, standing
from sluice.cli.monitoring.metrics import METRICS, PipelineNumbers, format_metrics
from sluice.erasure.request_record import ErasureRequest, RequestEvent
from sluice.errors import DeclarationError, SluiceError
from sluice.pipeline_records import PipelineRecords
from sluice.runs import run_ledger
from sluice.settings import Settings

AT = datetime(2026, 11, 21, 2, tzinfo=UTC)
SAID = AT.isoformat()
LINE = re.compile(r'sluice_([a-z_]+)\{((?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*)\} (-?[0-9.]+(?:e[+-]?[0-9]+)?)')


def row(flow: str, stage: str, **said: Any) -> dict[str, Any]:
    names = ("quarantined", "dropped", "suppressed", "rescued", "late", "rows_in", "rows_out", "seconds")
    times = {"started_at": AT, "ended_at": AT + timedelta(seconds=30)}
    return {
        **dict.fromkeys(names),
        "flow": flow,
        "stage": stage,
        "spark": {},
        "stream": {},
        "run": "r",
        "state": "done",
        **times,
        **said,
    }


STREAM = {"batches": 2, "computing_seconds": 1.25, "longest_batch_seconds": 0.75} | {
    "state_rows": 7,
    "state_bytes": 700,
    "watermark_lag_seconds": 60,
}
NUMBERS = PipelineNumbers(
    "gym",
    {
        "tables": [{"layer": "silver", "table": "bpm", "rows": 29, "files": 2, "bytes": 4100, "version": 3}],
        "flows": [{"layer": "silver", "table": "bpm", "deliveries": 2, "versions": None, "seconds_behind": 60}],
        "freshness": [{"table": "bpm", "age_seconds": 3600, "late": True}],
        "runs": [{"stage": "silver", "state": "failed"}],
        "missed": [{"file": "ada-lovelace.json"}],
        "adds_up": True,
        "problems": [],
    },
    [
        row("bpm", "silver", quarantined=2, rows_in=30, rows_out=29, seconds=4.5, stream=STREAM | {"state_rows": 90}),
        row("bpm", "silver", quarantined=1, late=4, rows_in=30, version_before=3, version_after=3, run="r1", state="failed"),
        row(
            "bpm",
            "silver",
            quarantined=1,
            late=4,
            version_before=3,
            version_after=4,
            spark={"task_seconds": 1.5},
            stream=STREAM,
            run="r2",
            state="failed",
        ),
        row("hours", "silver", run="r2", stage_cpu_seconds=21.5),
    ],
    [
        ErasureRequest("r1", SAID, SAID, "certified", "user_id", (), history=(RequestEvent(SAID, "certified"),)),
        ErasureRequest("r2", SAID, SAID, "received", "user_id", ()),
    ],
    AT + timedelta(hours=1),
)


def parse(text: str) -> dict[str, dict[str, float]]:
    """By metric, numbers by labels. Raises AssertionError where a line is none of the format."""
    found: dict[str, dict[str, float]] = {}
    described: list[str] = []
    for line in text.splitlines():
        if line.startswith("#"):
            described += [line.split()[2].removeprefix("sluice_")] if line.startswith("# TYPE") else []
            continue
        match = LINE.fullmatch(line)
        assert match and match[1] == described[-1], line
        assert match[2] not in found.setdefault(match[1], {}), "a series comes once"
        found[match[1]][match[2]] = float(match[3])
    assert len(described) == len(set(described)), "a metric is described once"
    return found


def test_every_metric_has_its_numbers() -> None:
    found = parse(format_metrics([NUMBERS]))
    assert found.keys() == {metric.name for metric in METRICS} | {"pipeline_readable"}
    assert found["table_rows"] == {'pipeline="gym",layer="silver",table="bpm"': 29}
    assert found["lag_seconds"] == {'pipeline="gym",layer="silver",table="bpm"': 60}
    assert found["rows_apart_total"] == {
        'pipeline="gym",table="bpm",what="quarantined"': 3,
        'pipeline="gym",table="bpm",what="late"': 4,
    }
    assert found["stage_seconds"] == {'pipeline="gym",stage="silver"': 30}
    assert found["stage_cpu_seconds"] == {'pipeline="gym",stage="silver"': 21.5}
    assert found["stage_failed"] == {'pipeline="gym",stage="silver"': 1}
    assert found["stage_runs_total"] == {
        'pipeline="gym",stage="silver",state="done"': 1,
        'pipeline="gym",stage="silver",state="failed"': 2,
    }
    table = 'pipeline="gym",table="bpm"'
    sums = {"rows_in_total": 30, "rows_out_total": 29, "flow_seconds_total": 4.5, "stream_batches_total": 4}
    latest = {
        "stream_state_rows": 7,
        "stream_state_bytes": 700,
        "watermark_lag_seconds": 60,
        "stream_longest_batch_seconds": 0.75,
    }
    assert {name: found[name] for name in sums | latest} == {name: {table: number} for name, number in (sums | latest).items()}
    assert found["stream_seconds_total"] == {'pipeline="gym",table="bpm",step="computing"': 2.5}
    assert found["certificate_age_seconds"] == {'pipeline="gym"': 3600}
    assert found["erasure_requests"] == {'pipeline="gym",state="certified"': 1, 'pipeline="gym",state="received"': 1}
    assert found["files_missed"] == {'pipeline="gym"': 1} and "lovelace" not in format_metrics([NUMBERS])


def test_a_table_that_is_there_twice_is_one_series() -> None:
    """A table that moved to the restricted root, and whose old files are still in the lake."""
    twice = [*NUMBERS.state["tables"], {**NUMBERS.state["tables"][0], "rows": 30}]
    found = parse(format_metrics([replace(NUMBERS, state={**NUMBERS.state, "tables": twice})]))
    assert list(found["table_rows"].values()) == [30]


def test_a_pipeline_that_cannot_be_read_does_not_keep_the_others_from_being_written(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_roots_of(monkeypatch, settings)
    real = metrics.compute_status

    def damaged(records: PipelineRecords) -> dict[str, Any]:
        if records.pipeline == "gym":
            raise SluiceError("its log is damaged")
        return real(records)

    monkeypatch.setattr(metrics, "compute_status", damaged)
    with pytest.raises(SystemExit) as ended:
        main(["metrics"])
    said = capsys.readouterr()
    assert ended.value.code == 0 and "gym: its log is damaged" in said.err
    shown = parse(said.out)
    assert shown["pipeline_readable"]['pipeline="gym"'] == 0 and shown["pipeline_readable"]['pipeline="italy"'] == 1
    assert 'pipeline="gym"' not in shown["records_add_up"]


def test_what_cannot_be_found_out_has_no_number(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(settings: Settings, name: str) -> None:
        raise DeclarationError("silver.py, line 3: it does not load")

    monkeypatch.setattr(standing, "load_declaration_graph", broken)
    found = parse(format_metrics([metrics.collect_numbers(PipelineRecords(settings, "gym"))]))
    assert not {"records_add_up", "files_missed"} & found.keys()
    assert found["status_problems"] == {'pipeline="gym"': 1}


def test_two_pipelines_share_a_metric_and_a_strange_name_is_escaped() -> None:
    strange = replace(NUMBERS, pipeline='a"b\\c\nd')
    found = parse(format_metrics([NUMBERS, strange]))
    assert set(found["records_add_up"]) == {'pipeline="gym"', 'pipeline="a\\"b\\\\c\\nd"'}


def test_a_lake_without_anything_has_numbers_too_and_a_file_is_written_whole(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use_roots_of(monkeypatch, settings)
    done = {"run": "one", "pipeline": "gym", "stage": "gold", "flow": "device_day", "state": "done"}
    run_ledger.append_run_rows(
        PipelineRecords(settings, "gym"), [{**done, "started_at": AT, "ended_at": AT, "mode": "increment"}]
    )
    with pytest.raises(SystemExit) as ended:
        main(["metrics"])
    assert ended.value.code == 0
    shown = parse(capsys.readouterr().out)
    assert {'pipeline="gym"', 'pipeline="italy"'} <= set(shown["records_add_up"])
    assert shown["stage_end_timestamp_seconds"] == {'pipeline="gym",stage="gold"': AT.timestamp()}
    with pytest.raises(SystemExit) as ended:
        main(["metrics", "gym", "--to", str(tmp_path / "gym.prom")])
    assert ended.value.code == 0 and 'pipeline="italy"' not in (tmp_path / "gym.prom").read_text()
