"""Gives a pipeline's tables their names in a catalog after a stage, and says what it changed."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sluice.errors import SluiceError
from sluice.lake.pipeline_lake import load_pipeline_lake
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sluice.catalogs.registration import NameOutcome


def register_after_stage(records: PipelineRecords, stage: Stage) -> list[str]:
    """Registers what is new or changed, if a catalog is set and this is the stage for it. Returns lines for the report; none if nothing changed.

    A failure is a line too, and the next run tries again.
    """
    if records.settings.catalog is None or not stage.registers_names:
        return []
    from sluice.catalogs.catalog import CatalogFailed
    from sluice.catalogs.registration import register_pipeline

    try:
        outcomes = register_pipeline(load_pipeline_lake(records.settings, records.pipeline), _find_running_session())
    except (CatalogFailed, SluiceError) as error:
        return [f"catalog {records.settings.catalog}: it cannot be used now; the next run registers what is missing: {error}"]
    except Exception as error:  # whatever it is, the run has done its work
        return [
            f"catalog {records.settings.catalog}: it cannot be used now; the next run registers what is missing ({type(error).__name__})"
        ]
    return _describe_outcomes(records, outcomes)


def _describe_outcomes(records: PipelineRecords, outcomes: Iterable[NameOutcome]) -> list[str]:
    """Returns a line for each way in which names were changed, and one for each name that was refused."""
    from sluice.catalogs.registration import CHANGES

    found = list(outcomes)
    changed = [(state, [one.name for one in found if one.state == state]) for state in CHANGES]
    lines = [f"catalog {records.settings.catalog}: {state} {', '.join(names)}" for state, names in changed if names]
    refused = [one for one in found if one.state == "refused"]
    return lines + [
        f"catalog {records.settings.catalog}: {records.pipeline}.{one.name} was refused: {one.why}" for one in refused
    ]


def _find_running_session() -> SparkSession | None:
    """Returns the Spark session of this process; None if it has none, so that none starts."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()
