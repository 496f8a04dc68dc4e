"""The real reports: however often one looks, the tables end equal, and what was wrong on the way is in quarantine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Lakehouse, settings_at

from pipelines.italy import maker
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.pipeline_records import PipelineRecords
from sluice.runs import run_ledger

FIVE = ("2020-03-07T152204Z", "2020-04-20T213017Z", "2020-05-11T160642Z", "2020-07-12T150416Z", None)
THREE = ("2020-04-20T213017Z", "2020-07-12T150416Z", None)
MISTAKE = date(2020, 2, 23)
PROVENANCE = ("_delivery", "_row")
MADE = ("region_day", "national_day", "region_week", "region_7_days", "national_7_days")


@dataclass(frozen=True)
class Landed:
    """What is there after all landings."""

    lake: Lakehouse
    days: list[dict[str, Any]]
    quarantined_files: int
    quarantined_rows: int

    def table(self, name: str) -> list[tuple[Any, ...]]:
        """A table on the 190 days that every way of looking has, without provenance."""
        rows = run_ledger.read_table_rows(PipelineRecords(self.lake.settings, "italy"), name)
        touched = {MISTAKE + timedelta(days=after) for after in range(14 if name.endswith("_7_days") else 1)}
        kept = [row for row in rows if row.get("report_date") not in touched and row.get("iso_week") != 8]
        return sorted((tuple(v for k, v in sorted(row.items()) if k not in PROVENANCE) for row in kept), key=repr)


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory, spark: Any, deliveries_of_italy: Path) -> Callable[..., Landed]:
    """Land up to each cut, running the layers after each; once for each list of cuts."""
    known: dict[tuple[str | None, ...], Landed] = {}

    def land(*cuts: str | None) -> Landed:
        if cuts not in known:
            settings = settings_at(tmp_path_factory.mktemp("italy"))
            lake = Lakehouse(settings, spark, load_declaration_graph(settings, "italy"))
            for cut in cuts:
                maker.land(settings.landing / "italy", settings.truth / "italy", from_path=deliveries_of_italy, until=cut)
                lake.run()
            states = [row["state"] for row in lake.outcomes()]
            rows = len(lake.rows("regional_reports_quarantine")) - states.count("quarantined")
            days = run_ledger.read_table_rows(PipelineRecords(settings, "italy"), "region_day")
            known[cuts] = Landed(lake, days, states.count("quarantined"), rows + len(lake.rows("region_day_quarantine")))
        return known[cuts]

    return land


def test_five_landings_show_everything(landed: Callable[..., Landed]) -> None:
    seen = landed(*FIVE)
    assert len(seen.days) == 4011
    assert len({row["report_date"] for row in seen.days}) == 191
    assert sum(1 for row in seen.days if row["new_cases"] is not None and row["new_cases"] < 0) == 13
    assert (seen.quarantined_files, seen.quarantined_rows) == (1, 2)


@pytest.mark.thorough
def test_all_at_once_only_the_last_content_is_seen(landed: Callable[..., Landed]) -> None:
    seen = landed(None)
    assert len(seen.days) == 3990
    assert len({row["report_date"] for row in seen.days}) == 190
    assert (seen.quarantined_files, seen.quarantined_rows) == (0, 0)


@pytest.mark.parametrize("cuts", [FIVE, pytest.param(THREE, marks=pytest.mark.slow)], ids=["five", "three"])
@pytest.mark.parametrize("table", MADE)
def test_however_often_one_looks_the_tables_are_equal(
    landed: Callable[..., Landed], table: str, cuts: tuple[str | None, ...]
) -> None:
    often, once = (landed(*cuts).table(table), landed(None).table(table))
    assert len(often) >= 177, "the days of the table but for two weeks that a mistake touches"
    assert often == once


def test_seven_days_are_what_plain_python_makes_of_the_reports(landed: Callable[..., Landed]) -> None:
    """After five landings, each of which corrects earlier days: what was followed change by change equals what the reports alone give."""
    seen = landed(*FIVE)
    regions: defaultdict[str, dict[date, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    nation: dict[date, list[dict[str, Any]]] = defaultdict(list)
    for row in seen.days:
        regions[row["region_name"]][row["report_date"]].append(row)
        nation[row["report_date"]].append(row)
    by_region = [
        (day, name, *rest)
        for name, told in regions.items()
        for day, *rest in _seven_days({day: (_sum(rows, "new_cases"), _latest(rows)) for day, rows in told.items()})
    ]
    by_day = _seven_days({day: (_sum(rows, "new_cases"), _sum(rows, "deaths")) for day, rows in nation.items()})
    assert len(by_region) > 4000 and sorted(by_region, key=repr) == seen.lake.rows("region_7_days")
    assert len(by_day) == 191 and sorted(by_day, key=repr) == seen.lake.rows("national_7_days")


def _sum(rows: list[dict[str, Any]], count: str) -> int | None:
    return _added(row[count] for row in rows)


def _latest(rows: list[dict[str, Any]]) -> int:
    """The deaths of the report with the highest code."""
    return int(max(rows, key=lambda row: int(row["region_code"]))["deaths"])


def _added(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _seven_days(told: dict[date, tuple[int | None, int | None]]) -> list[tuple[Any, ...]]:
    """Of each day the reports of its seven days, their new cases, those of the week before, the difference, and the new deaths."""
    found = []
    for day, (_, deaths) in told.items():
        weeks = [[day - timedelta(days=ago) for ago in range(first, first + 7)] for first in (0, 7)]
        here, before = (_added(told[one][0] for one in week if one in told) for week in weeks)
        change = None if here is None or before is None else here - before
        then = told.get(day - timedelta(days=7), (None, None))[1]
        new_deaths = None if deaths is None or then is None else deaths - then
        found.append((day, sum(one in told for one in weeks[0]), here, before, change, new_deaths))
    return found


@pytest.mark.slow
def test_instant_by_instant(landed: Callable[..., Landed], deliveries_of_italy: Path) -> None:
    from pipelines.italy.histories import open_history

    instants = sorted({event.instant for event in open_history(deliveries_of_italy).events})
    seen = landed(*instants)
    assert (len(instants), len(seen.days), seen.quarantined_files, seen.quarantined_rows) == (220, 4011, 1, 2)
    for table in MADE:
        assert seen.table(table) == landed(None).table(table)
