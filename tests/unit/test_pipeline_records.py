from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sluice.errors import UsageError
from sluice.pipeline_records import PipelineRecords, list_pipeline_records
from sluice.settings import Settings


def test_all_that_is_recorded_of_a_pipeline_lies_below_its_own_folders(settings: Settings) -> None:
    gym = PipelineRecords(settings, "gym")
    lake, apart = f"{settings.lake}/gym", f"{settings.restricted}/gym"
    assert gym.landing == settings.landing / "gym"
    assert gym.table_path("silver", "visit") == f"{lake}/silver/visit"
    assert gym.quarantine("visit", restricted=True) == f"{apart}/quarantine/visit"
    assert (gym.bookkeeping(), gym.run_ledger) == (f"{lake}/_sluice", f"{lake}/_sluice/runs")
    assert gym.bookkeeping(restricted=True) == f"{apart}/_sluice"
    assert gym.checkpoints("silver_visit") == f"{lake}/_sluice/checkpoints/silver_visit"
    assert gym.stop_request("r1") == Path(lake) / "_sluice" / "stop_requests" / "r1"


def test_records_are_a_value(settings: Settings) -> None:
    gym = PipelineRecords(settings, "gym")
    assert len({gym, replace(gym), replace(gym, pipeline="italy")}) == 2


def test_records_of_known_pipelines() -> None:
    settings = Settings.current()
    assert PipelineRecords.of_known(settings, "gym") in list_pipeline_records(settings)
    with pytest.raises(UsageError, match=r"There is no pipeline 'gim'.*'gym'"):
        PipelineRecords.of_known(settings, "gim")
