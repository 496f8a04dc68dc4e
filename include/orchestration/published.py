"""Tables that other DAGs wait for. Each has an asset, with an event for new data only, which carries the table's version.

In a DAG that uses `gym.device_day`:

    with DAG("report", schedule=[published("gym", "device_day")], ...):
        new_version("gym", "device_day") >> write_the_report()
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException, Asset, BaseOperator

from orchestration import alerts
from sluice.declare.pipeline import parse_duration
from sluice.pipeline_records import QUARANTINE, PipelineRecords
from sluice.settings import Settings

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from sluice.lake.commit_history import LatestData

LOOKED_AT = 50
"""How many of the newest events are read."""


def published(pipeline: str, table: str) -> Asset:
    """The asset of a published table. Its events' extra: table, version (of the latest commit with data) and rows."""
    return Asset(f"sluice://{pipeline}/{table}")


def new_version(pipeline: str, table: str, **options: Any) -> NewVersionOperator:
    """A task that skips what follows it if the table's version already started an earlier successful run of this DAG."""
    return NewVersionOperator(pipeline=pipeline, table=table, **{"task_id": f"new_version_of_{table}", **options})


@dataclass(frozen=True)
class DataVersion:
    """What a published table's log shows of its latest data, and the table's number of rows."""

    data: LatestData
    rows: int | None


def find_latest_data_version(records: PipelineRecords, table: str) -> DataVersion | None:
    """The latest version with data by the table's log, read without a JVM; None if the table does not exist."""
    from sluice.lake import commit_history  # not at the top: it loads deltalake, and Airflow parses this module
    from sluice.runs import run_ledger

    found = [
        entry for entry in run_ledger.list_pipeline_tables(records) if entry["table"] == table and entry["layer"] != QUARANTINE
    ]
    data = commit_history.find_latest_data(found[0]["path"]) if found else None
    return DataVersion(data, found[0]["rows"]) if data else None


class PublishOperator(BaseOperator):
    """Announces a table's new version; is skipped if the latest version was announced already.

    It reads the table's log, not what this run's tasks report, so the next run announces a version that a failed run made.
    freshness: how old the latest data may be before an alert is sent, such as "36 hours"; also how long a new table may stay without data.
    Returns the event's extra.
    """

    def __init__(self, *, pipeline: str, table: str, freshness: str | None = None, **options: Any) -> None:
        self.asset = published(pipeline, table)
        super().__init__(inlets=[self.asset], outlets=[self.asset], **options)
        self.pipeline = pipeline
        self.table = table
        self.freshness = freshness

    def execute(self, context: Context) -> dict[str, Any]:
        """Read the table's log and set the event. Raises AirflowSkipException if there is nothing to announce."""
        found = find_latest_data_version(PipelineRecords(Settings.current(), self.pipeline), self.table)
        if found is None:
            raise AirflowSkipException(f"There is no table {self.pipeline}.{self.table} yet.")
        version = found.data.version
        age = datetime.now(UTC) - found.data.since if found.data.since else None
        if self.freshness and age and age > parse_duration(self.freshness):
            alerts.alert_stale_table(self.pipeline, self.table, age, self.freshness)
        if version is None:
            raise AirflowSkipException(f"There is no data in {self.pipeline}.{self.table} yet.")
        if [_version_of_event(event) for event in _latest_asset_events(context["inlet_events"][self.asset], 1)] == [version]:
            raise AirflowSkipException(f"{self.pipeline}.{self.table} still has the version {version}.")
        extra: dict[str, Any] = {"table": f"{self.pipeline}.{self.table}", "version": version, "rows": found.rows}
        context["outlet_events"][self.asset].extra = extra
        return extra


class NewVersionOperator(BaseOperator):
    """Skips what follows if no version of the table is new to this DAG; see `new_version`. Returns the version.

    A run that no event started, such as a triggered one, always continues.
    """

    def __init__(self, *, pipeline: str, table: str, **options: Any) -> None:
        self.asset = published(pipeline, table)
        super().__init__(inlets=[self.asset], **options)

    def execute(self, context: Context) -> int | None:
        """Compare versions. Raises AirflowSkipException."""
        here = {
            version
            for event in _triggering_asset_events(context, self.asset.uri)
            if (version := _version_of_event(event)) is not None
        }
        if not here:
            return None
        run = context["dag_run"]
        for event in _latest_asset_events(context["inlet_events"][self.asset], LOOKED_AT):
            others = [one for one in _dag_runs_started_by(event) if one.dag_id == run.dag_id and one.run_id != run.run_id]
            if any(str(getattr(one.state, "value", one.state)) == "success" for one in others):
                here -= {_version_of_event(event)}
        if not here:
            raise AirflowSkipException(f"{self.asset.uri} has no version that this DAG has not used.")
        return max(here)


def _latest_asset_events(events: Any, count: int) -> list[Any]:
    if hasattr(events, "ascending"):  # Airflow 3 asks its server, which need not send them all
        return list(events.ascending(False).limit(count))
    return list(events)[-count:]


def _triggering_asset_events(context: Any, uri: str) -> Iterable[Any]:
    by_asset = context.get("triggering_asset_events") or context.get("triggering_dataset_events") or {}
    return [event for asset in by_asset if getattr(asset, "uri", asset) == uri for event in by_asset[asset]]


def _version_of_event(event: Any) -> int | None:
    return (event.extra or {}).get("version")


def _dag_runs_started_by(event: Any) -> Iterable[Any]:
    return getattr(event, "created_dagruns", None) or ()
