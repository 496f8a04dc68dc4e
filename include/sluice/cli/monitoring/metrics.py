"""`sluice metrics`: numbers of pipelines in Prometheus' text format, from the lake's own records, without a JVM.

The command writes a file, after each run or by a timer, for the text-file collector of Prometheus' node exporter; or `--serve` answers requests
over HTTP (`metrics_server.py`). Labels are names of pipelines, tables, stages, states and steps; no value of a
cell, no file, nobody.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from sluice.cli.monitoring.metrics_server import MetricsServer, serve_until_signal
from sluice.cli.monitoring.status import compute_status
from sluice.cli.name_lookup import select_pipelines
from sluice.cli.printing import OnePipeline
from sluice.durable_files import write_text_durably
from sluice.erasure.request_record import ErasureRequest, list_erasure_requests
from sluice.errors import SluiceError, UsageError
from sluice.flow_counts import ALERT_COUNTS
from sluice.flows.progress.stream_numbers import STREAM_SECONDS
from sluice.locations import Location
from sluice.pipeline_records import PipelineRecords
from sluice.printable import escape_keeping_lines
from sluice.record_states import DONE, FAILED
from sluice.runs import run_ledger
from sluice.runs.run_ledger import STAGE_CPU, Row
from sluice.settings import Settings

Sample = tuple[Mapping[str, str], float]
"""A value with its labels; the label of the pipeline is added later."""


@dataclass(frozen=True)
class PipelineNumbers:
    """The records of a pipeline from which its metrics are made. state: as `sluice status --json` prints it."""

    pipeline: str
    state: Mapping[str, Any]
    runs: Sequence[Row]
    requests: Sequence[ErasureRequest]
    now: datetime


@dataclass(frozen=True)
class Metric:
    """A metric: its name without `sluice_`, its help text, the function that makes its samples of one pipeline, and its kind."""

    name: str
    about: str
    samples: Callable[[PipelineNumbers], Iterable[Sample]]
    kind: str = "gauge"


def _of_tables(number: str) -> Callable[[PipelineNumbers], Iterator[Sample]]:
    def samples(found: PipelineNumbers) -> Iterator[Sample]:
        # A table that moved between the lake and the restricted root is there twice, and a series may come once.
        tables = {(table["layer"], run_ledger.sql_name(table)): table[number] for table in found.state["tables"]}
        for (layer, name), amount in tables.items():
            if amount is not None:
                yield {"layer": layer, "table": name}, amount

    return samples


def _of_flows(number: str) -> Callable[[PipelineNumbers], Iterator[Sample]]:
    def samples(found: PipelineNumbers) -> Iterator[Sample]:
        for flow in found.state["flows"]:
            yield {"layer": flow["layer"], "table": flow["table"]}, flow[number] or 0

    return samples


def _age_of_data(found: PipelineNumbers) -> Iterator[Sample]:
    for table in found.state["freshness"]:
        if table["age_seconds"] is not None:
            yield {"table": table["table"]}, table["age_seconds"]


def _late_tables(found: PipelineNumbers) -> Iterator[Sample]:
    for table in found.state["freshness"]:
        yield {"table": table["table"]}, int(bool(table["late"]))


def _rows_apart(found: PipelineNumbers) -> Iterator[Sample]:
    counted: Counter[tuple[str, str]] = Counter()
    for row in filter(run_ledger.has_committed, found.runs):
        for name in (*ALERT_COUNTS, "late"):
            counted[row["flow"], name] += row[name] or 0
    for (table, name), number in sorted(counted.items()):
        if number:
            yield {"table": table, "what": name}, number


def _last_rows_by_stage(found: PipelineNumbers) -> dict[str, Row]:
    return {row["stage"]: row for row in found.runs}


def _stage_seconds(found: PipelineNumbers) -> Iterator[Sample]:
    for stage, row in _last_rows_by_stage(found).items():
        yield {"stage": stage}, (row["ended_at"] - row["started_at"]).total_seconds()


def _stage_cpu_seconds(found: PipelineNumbers) -> Iterator[Sample]:
    for stage, row in _last_rows_by_stage(found).items():
        if row[STAGE_CPU] is not None:
            yield {"stage": stage}, row[STAGE_CPU]


def _stage_ends(found: PipelineNumbers) -> Iterator[Sample]:
    for stage, row in _last_rows_by_stage(found).items():
        yield {"stage": stage}, row["ended_at"].timestamp()


def _failed_stages(found: PipelineNumbers) -> Iterator[Sample]:
    for run in found.state["runs"]:
        yield {"stage": run["stage"]}, int(run["state"] == FAILED)


def _summed_by_table(number: Callable[[Row], float | None]) -> Callable[[PipelineNumbers], Iterator[Sample]]:
    """number: what a row of the run ledger adds for its table."""

    def samples(found: PipelineNumbers) -> Iterator[Sample]:
        counted: Counter[str] = Counter()
        for row in found.runs:
            counted[row["flow"]] += number(row) or 0  # type: ignore[assignment]
        for table, sum_ in sorted(counted.items()):
            if sum_:
                yield {"table": table}, round(sum_, 2)

    return samples


def _rows_moved(name: str) -> Callable[[PipelineNumbers], Iterator[Sample]]:
    return _summed_by_table(lambda row: row[name] if run_ledger.has_committed(row) else 0)


def _stream_seconds(found: PipelineNumbers) -> Iterator[Sample]:
    for step in STREAM_SECONDS.values():
        samples = _summed_by_table(lambda row, step=step: row["stream"].get(step))  # type: ignore[misc]
        for labels, number in samples(found):
            yield {**labels, "step": step.removesuffix("_seconds")}, number


def _of_latest_stream(number: str) -> Callable[[PipelineNumbers], Iterator[Sample]]:
    """Makes a function that yields the value of one number after the last batch of each stream that reports it."""

    def samples(found: PipelineNumbers) -> Iterator[Sample]:
        latest = {row["flow"]: row["stream"][number] for row in found.runs if number in row["stream"]}
        for table, amount in sorted(latest.items()):
            yield {"table": table}, amount

    return samples


def _runs_of_stages(found: PipelineNumbers) -> Iterator[Sample]:
    """A run of a stage counts as failed if one of its flows failed."""
    failed: dict[tuple[str, Any, str], bool] = {}
    for row in found.runs:
        run = (row["run"], row["started_at"], row["stage"])
        failed[run] = failed.get(run, False) or row["state"] == FAILED
    counted = Counter((stage, FAILED if wrong else DONE) for (_, _, stage), wrong in failed.items())
    for (stage, state), number in sorted(counted.items()):
        yield {"stage": stage, "state": state}, number


def _requests_by_state(found: PipelineNumbers) -> Iterator[Sample]:
    for state, number in sorted(Counter(one.shown_state for one in found.requests).items()):
        yield {"state": state}, number


def _certificate_age(found: PipelineNumbers) -> Iterator[Sample]:
    issued = [at for one in found.requests for at in one.certified_at]
    if issued:
        yield {}, (found.now - max(issued)).total_seconds()


def _count_missed_files(found: PipelineNumbers) -> Iterator[Sample]:
    if found.state["missed"] is not None:
        yield {}, len(found.state["missed"])


def _records_add_up(found: PipelineNumbers) -> Iterator[Sample]:
    if found.state["adds_up"] is not None:
        yield {}, int(found.state["adds_up"])


METRICS = (
    Metric("table_rows", "Rows of a table.", _of_tables("rows")),
    Metric("table_files", "Files of a table's latest version.", _of_tables("files")),
    Metric("table_bytes", "Bytes of the files of a table's latest version.", _of_tables("bytes")),
    Metric("table_version", "A table's latest version.", _of_tables("version")),
    Metric("lag_deliveries", "Deliveries that a flow has not taken yet.", _of_flows("deliveries")),
    Metric("lag_versions", "Versions of its inputs that a flow has not taken yet.", _of_flows("versions")),
    Metric("lag_seconds", "Seconds that the oldest delivery or version has waited for a flow.", _of_flows("seconds_behind")),
    Metric("data_age_seconds", "Age of a published table's latest data.", _age_of_data),
    Metric("table_late", "1 if the latest data of a published table is older than its target.", _late_tables),
    Metric("rows_apart_total", "Rows that were quarantined, dropped, suppressed, rescued or late.", _rows_apart, "counter"),
    Metric("stage_seconds", "Seconds of the last run of a stage.", _stage_seconds),
    Metric("stage_cpu_seconds", "CPU seconds of the last run of a stage, of its process and its JVM.", _stage_cpu_seconds),
    Metric("stage_end_timestamp_seconds", "Time at which the last run of a stage ended.", _stage_ends),
    Metric("stage_failed", "1 if the last run of a stage failed.", _failed_stages),
    Metric("stage_runs_total", "Runs of a stage that did something, by how they ended.", _runs_of_stages, "counter"),
    Metric("rows_in_total", "Rows that a table's flow has taken.", _rows_moved("rows_in"), "counter"),
    Metric("rows_out_total", "Rows that a table's flow has written or removed.", _rows_moved("rows_out"), "counter"),
    Metric("flow_seconds_total", "Seconds that a table's flow has taken.", _summed_by_table(lambda row: row["seconds"]), "counter"),
    Metric("task_seconds_total", "Seconds of Spark's tasks for a flow.", _summed_by_table(lambda row: row["spark"].get("task_seconds")), "counter"),
    Metric("stream_batches_total", "Batches of a flow's stream.", _summed_by_table(lambda row: row["stream"].get("batches")), "counter"),
    Metric("stream_seconds_total", "Seconds of a stream's batches, by step.", _stream_seconds, "counter"),
    Metric("stream_longest_batch_seconds", "Seconds of the longest batch in the last run that had one.", _of_latest_stream("longest_batch_seconds")),
    Metric("stream_state_rows", "Rows of a stream's state after its last batch.", _of_latest_stream("state_rows")),
    Metric("stream_state_bytes", "Bytes of a stream's state in memory after its last batch.", _of_latest_stream("state_bytes")),
    Metric("watermark_lag_seconds", "Seconds from the watermark to the start of the last batch.", _of_latest_stream("watermark_lag_seconds")),
    Metric("files_missed", "Delivered files that could not be read.", _count_missed_files),
    Metric("records_add_up", "1 if every delivered record is accounted for.", _records_add_up),
    Metric("status_problems", "Parts of a pipeline's state that could not be found out.", lambda found: [({}, len(found.state["problems"]))]),
    Metric("erasure_requests", "Requests to erase people, by state.", _requests_by_state),
    Metric("certificate_age_seconds", "Age of the last certificate of an erasure.", _certificate_age),
)  # fmt: skip
"""Every metric, in the order in which they are written. A new one is an entry here."""


def metrics(
    pipeline: OnePipeline = None,
    to: Annotated[
        Location | None, typer.Option("--to", help="The file to write, whole or not at all; otherwise standard output.")
    ] = None,
    serve: Annotated[
        int | None,
        typer.Option("--serve", metavar="PORT", min=0, max=65535, help="Answer GET /metrics on this port until SIGTERM."),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="The address for --serve. It asks for no password.")] = "127.0.0.1",
) -> None:
    """Write numbers of lag, freshness, rows, durations and erasures in Prometheus' text format."""
    if to is not None and serve is not None:
        raise UsageError("--to and --serve exclude each other: --to writes a file once, --serve answers until it is ended.")
    settings = Settings.current()
    if serve is not None:
        _serve_metrics(settings, pipeline, host, serve)
        return
    text = compose_metrics(settings, pipeline)
    if to is None:
        print(text, end="", flush=True)
    else:
        write_text_durably(to, text)


def _serve_metrics(settings: Settings, pipeline: str | None, host: str, port: int) -> None:
    select_pipelines(settings, pipeline)  # a wrong name is an error now, not at each request
    try:
        server = MetricsServer(host, port, lambda: compose_metrics(settings, pipeline))
    except OSError as error:
        raise UsageError(f"Nothing can listen on {host}, port {port}: {error.strerror}. --serve 0 takes any port.") from None
    print(f"sluice: {server.url}, until SIGTERM or Ctrl-C", flush=True)
    serve_until_signal(server)


def compose_metrics(settings: Settings, pipeline: str | None) -> str:
    """The metrics of one pipeline or of all, as text. Errors of unreadable pipelines go to standard error."""
    found, unreadable = [], []
    for name in select_pipelines(settings, pipeline):
        try:
            found.append(collect_numbers(PipelineRecords(settings, name)))
        except SluiceError as error:
            unreadable.append(name)
            print(escape_keeping_lines(f"sluice: {name}: {error}"), file=sys.stderr, flush=True)
    return format_metrics(found, unreadable)


def format_metrics(found: Sequence[PipelineNumbers], unreadable: Sequence[str] = ()) -> str:
    """All metrics of some pipelines in Prometheus' text format, version 0.0.4: metrics without a sample are left out.

    unreadable: the pipelines whose records could not be read. Their only metric is sluice_pipeline_readable, with 0.
    """
    lines = [
        "# HELP sluice_pipeline_readable 1 if a pipeline's records could be read.",
        "# TYPE sluice_pipeline_readable gauge",
    ]
    readable = {**{one.pipeline: 1 for one in found}, **dict.fromkeys(unreadable, 0)}
    lines += [f"sluice_pipeline_readable{{{_format_labels({'pipeline': name})}}} {number}" for name, number in readable.items()]
    for metric in METRICS:
        samples = [({"pipeline": one.pipeline, **labels}, number) for one in found for labels, number in metric.samples(one)]
        if samples:
            lines += [f"# HELP sluice_{metric.name} {metric.about}", f"# TYPE sluice_{metric.name} {metric.kind}"]
            lines += [f"sluice_{metric.name}{{{_format_labels(labels)}}} {number}" for labels, number in samples]
    return "".join(f"{line}\n" for line in lines)


def collect_numbers(records: PipelineRecords) -> PipelineNumbers:
    """Returns what the metrics say of a pipeline, as it is now."""
    requests = list_erasure_requests(records)
    return PipelineNumbers(
        records.pipeline, compute_status(records), run_ledger.read_run_ledger(records), requests, datetime.now(UTC)
    )


def _format_labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escape_label(value)}"' for name, value in labels.items())


def _escape_label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
