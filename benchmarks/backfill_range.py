"""Compares a backfill of 31 days in one run with a backfill of one day: the ratio of their times, in one Spark session.

    .venv/bin/python benchmarks/backfill_range.py [--scale 0.2] [--rounds 3] [--days 31] [--short] [--write FILE]

Before each backfill the transform is changed, so that the backfill must write every row of its days.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from _options import BenchmarkOptions, PrintedLines
from pipelines.gym import maker
from pipelines.gym.trackers import FIRST_DAY
from sluice.declare.interval import Interval
from sluice.pipeline_records import PipelineRecords
from sluice.run_modes import REPLAY
from sluice.runs.job import JobRequest, run_recorded_stage
from sluice.settings import Settings

SHORT = {"scale": 0.02, "rounds": 1, "days": 7}


def time_backfill(settings: Settings, interval: Interval) -> float:
    """Seconds that a replay of the three layers takes."""
    started = time.monotonic()
    for stage in ("bronze", "silver", "gold"):
        run_recorded_stage(settings, JobRequest("gym", stage, REPLAY.name, interval=interval))
    return time.monotonic() - started


def change_every_silver_row(settings: Settings) -> None:
    """Make every row of silver differ from what the transform gives, as rows by earlier code do."""
    from delta.tables import DeltaTable
    from pyspark.sql import SparkSession

    session = SparkSession.active()
    DeltaTable.forPath(session, PipelineRecords(settings, "gym").table_path("silver", "heart_rate")).update(
        set={"heartrate": "heartrate + 1"}
    )


def main() -> None:
    """Land the days, take them, then time the two backfills in turn."""
    parser = BenchmarkOptions(__file__, __doc__, SHORT)
    parser.add_argument("--scale", type=float, default=0.2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--days", type=int, default=31)
    options = parser.read_options()
    said = PrintedLines()
    days = options.days
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        settings = replace(Settings.current(), lake=str(root / "lake"), landing=root / "landing", truth=root / "truth")
        maker.land(settings.landing / "gym", settings.truth / "gym", days=days, scale=options.scale)
        for stage in ("bronze", "silver", "gold"):
            run_recorded_stage(settings, JobRequest("gym", stage))
        first = FIRST_DAY.date()
        range_ = Interval.of_days(first, first + timedelta(days=days - 1))
        ratios = []
        for round_ in range(options.rounds + 1):
            change_every_silver_row(settings)
            one = time_backfill(settings, range_.days()[days // 2])
            change_every_silver_row(settings)
            whole = time_backfill(settings, range_)
            if round_:  # the first round warms the JVM up
                ratios.append(whole / one)
                said.add(f"round {round_}: one day {one:.1f} s, {days} days {whole:.1f} s, ratio {ratios[-1]:.2f}")
        said.add(f"{days} days as one run take {statistics.median(ratios):.2f} times one day (median of {len(ratios)})")
    parser.write_findings(options, "A backfill of many days as one run, beside one day", said.format())


if __name__ == "__main__":
    main()
