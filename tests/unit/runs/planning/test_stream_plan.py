"""What plan and status say about a stream with state, without a JVM: continues, nothing to do, starts over, refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from sluice.declare import F, Pipeline, Source, Watermark, table, windowed
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.errors import DeclarationError
from sluice.flows.progress import checkpoints, stream_starts
from sluice.lake import log
from sluice.lake.pipeline_lake import PipelineLake
from sluice.pipeline_stages import RESTORE
from sluice.runs.planning import plan
from sluice.runs.planning.steps import FAIL, FOLLOW, NOTHING, START_OVER, PlannedStep
from sluice.runs.status import lag
from sluice.runs.status.books import PipelineBooks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sluice.settings import Settings

PIPELINE = Pipeline(name="ward", description="A ward.", owner="tests", layers=("ward.bronze", __name__))
LAYER = __name__.rsplit(".", 1)[-1]


@table(reads="pulses", keys="at")
def pulse(pulses: DataFrame) -> DataFrame:
    """Heart rates."""
    return pulses


@windowed(reads="pulse", keys="start", watermark=Watermark("at", "10 minutes"))
def ten_minutes(pulse: DataFrame) -> DataFrame:
    """Windows."""
    return pulse.groupBy(F.window("at", "10 minutes")).count()


WARD = build_declaration_graph(PIPELINE, [Source(name="pulses"), pulse, ten_minutes])


def step(settings: Settings, mode: str = "increment") -> PlannedStep:
    found = plan.plan_run(PipelineLake(settings, WARD), mode, tables=["ten_minutes"] if mode == "refresh" else ())
    return next(one for one in found.steps if one.table == "ten_minutes")


def checkpoint(settings: Settings, read: int, code: str = "") -> Path:
    """The checkpoint of a stream that has read so many versions of its input."""
    _, folder = PipelineBooks(settings, WARD).flow_checkpoints(ten_minutes)
    path = PipelineLake(settings, WARD).path("pulse")
    made = checkpoints.open_checkpoint(
        folder, f"{LAYER}_ten_minutes", {"pulse": log.read_table_id(path)}, code or stream_starts.stream_fingerprint(ten_minutes)
    )
    for name in ("offsets", "commits"):
        (Path(made.path) / name).mkdir(exist_ok=True)
    (Path(made.path) / "metadata").write_text('{"id": "a"}')
    offset = {"reservoirId": log.read_table_id(path), "reservoirVersion": read, "index": -1, "isStartingVersion": False}
    (Path(made.path) / "offsets" / "0").write_text("v1\n" + json.dumps({"batchWatermarkMs": 0}) + "\n" + json.dumps(offset))
    (Path(made.path) / "commits" / "0").write_text("v1\n{}")
    write_deltalake(PipelineLake(settings, WARD).path("ten_minutes"), pa.table({"start": [1]}))
    return Path(folder)


@pytest.fixture
def rows(settings: Settings) -> str:
    """Where the stream's input lies, with two versions."""
    return append_two_rows(PipelineLake(settings, WARD).path("pulse"))


def append_two_rows(path: str) -> str:
    for at in (1, 2):
        write_deltalake(path, pa.table({"at": [at]}), mode="append")
    return path


def test_before_its_input_is_there(settings: Settings) -> None:
    assert (step(settings).does, step(settings).why) == (NOTHING, "its input 'pulse' has no row yet")


def test_a_first_run_then_nothing_then_what_was_added(settings: Settings, rows: str) -> None:
    assert (step(settings).does, step(settings).why) == (START_OVER, "first run")
    checkpoint(settings, read=2)
    assert step(settings).does == NOTHING
    write_deltalake(rows, pa.table({"at": [3]}), mode="append")
    assert (step(settings).does, step(settings).why) == (FOLLOW, "rows added to pulse")
    flow = next(flow for flow in lag.measure_pipeline_lag(PipelineBooks(settings, WARD)) if flow.table == "ten_minutes")
    assert (flow.versions, flow.stuck, flow.anew) == (1, None, None)
    assert (step(settings, "refresh").does, step(settings, "refresh").why) == (START_OVER, "refresh")


@pytest.mark.parametrize("what", ["transform", "reset", "lost", "cut", "emptied", "restored", "merged back", "made anew", "gone"])
def test_a_stream_that_cannot_go_on_is_not_made_anew_by_itself(settings: Settings, rows: str, what: str) -> None:
    folder = checkpoint(settings, read=2, code="earlier code" if what == "transform" else "")
    if what == "reset":
        checkpoints.reset_checkpoint(str(folder), f"{LAYER}_ten_minutes")
    elif what == "lost":
        (folder / "flow.json").unlink()
    elif what == "cut":
        (offsets,) = folder.glob("*/offsets/0")
        offsets.write_text("v1\n{")
    elif what == "emptied":
        memory = json.loads((folder / "flow.json").read_text())
        for name in ("offsets", "commits"):
            shutil.rmtree(folder / memory["identity"] / name)
    elif what == "gone":
        shutil.rmtree(PipelineLake(settings, WARD).path("ten_minutes"))
    elif what == "restored":
        DeltaTable(rows).restore(0)
    elif what == "merged back":
        note = CommitProperties(custom_metadata={"userMetadata": json.dumps({"sluice": 1, "mode": RESTORE})})
        write_deltalake(rows, pa.table({"at": [1]}), mode="append", commit_properties=note)
    elif what == "made anew":
        shutil.rmtree(rows)
        append_two_rows(rows)
    found = step(settings)
    assert found.does == FAIL and "--mode refresh --table ten_minutes" in found.why
    assert step(settings, "refresh").does == START_OVER


def test_after_an_erasure_it_starts_over_by_itself(settings: Settings, rows: str) -> None:
    folder = checkpoint(settings, read=2)
    checkpoints.reset_checkpoint(str(folder), f"{LAYER}_ten_minutes", stream_starts.ERASED)
    assert (step(settings).does, step(settings).why) == (START_OVER, stream_starts.ERASED)


def test_its_late_table_has_a_name_of_its_own() -> None:
    late = table(reads="pulses", keys="at", name="ten_minutes_late")(lambda pulses: pulses)
    object.__setattr__(late, "declared_in", __name__)
    with pytest.raises(DeclarationError, match="'ten_minutes_late' is the table in which 'ten_minutes' keeps late rows"):
        build_declaration_graph(PIPELINE, [Source(name="pulses"), pulse, ten_minutes, late])
