"""The real reports: however often one looks, the tables end equal, and what was wrong on the way is in quarantine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Lakehouse, settings_at

from pipelines.italy import maker
from sluice.declare.loading import load
from sluice.runs import ledger

FIVE = ("2020-03-07T152204Z", "2020-04-20T213017Z", "2020-05-11T160642Z", "2020-07-12T150416Z", None)
THREE = ("2020-04-20T213017Z", "2020-07-12T150416Z", None)
MISTAKE = date(2020, 2, 23)
PROVENANCE = ("_delivery", "_row")


@dataclass(frozen=True)
class Landed:
    """What is there after all landings."""

    lake: Lakehouse
    days: list[dict[str, Any]]
    quarantined_files: int
    quarantined_rows: int

    def table(self, name: str) -> list[tuple[Any, ...]]:
        """A table on the 190 days that every way of looking has, without provenance."""
        rows = ledger.rows(self.lake.settings, "italy", name)
        kept = [row for row in rows if row.get("report_date") != MISTAKE and row.get("iso_week") != 8]
        return sorted((tuple(v for k, v in sorted(row.items()) if k not in PROVENANCE) for row in kept), key=repr)


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory, spark: Any, deliveries_of_italy: Path) -> Callable[..., Landed]:
    """Land up to each cut, running the layers after each; once for each list of cuts."""
    known: dict[tuple[str | None, ...], Landed] = {}

    def land(*cuts: str | None) -> Landed:
        if cuts not in known:
            settings = settings_at(tmp_path_factory.mktemp("italy"))
            lake = Lakehouse(settings, spark, load(settings, "italy"))
            for cut in cuts:
                maker.land(settings.landing / "italy", settings.truth / "italy", from_path=deliveries_of_italy, until=cut)
                lake.run()
            states = [row["state"] for row in lake.outcomes()]
            rows = len(lake.rows("regional_reports_quarantine")) - states.count("quarantined")
            days = ledger.rows(settings, "italy", "region_day")
            known[cuts] = Landed(lake, days, states.count("quarantined"), rows + len(lake.rows("region_day_quarantine")))
        return known[cuts]

    return land


def test_five_landings_show_everything(landed: Callable[..., Landed]) -> None:
    seen = landed(*FIVE)
    assert len(seen.days) == 4011
    assert len({row["report_date"] for row in seen.days}) == 191
    assert sum(1 for row in seen.days if row["new_cases"] is not None and row["new_cases"] < 0) == 13
    assert (seen.quarantined_files, seen.quarantined_rows) == (1, 2)


def test_all_at_once_only_the_last_content_is_seen(landed: Callable[..., Landed]) -> None:
    seen = landed(None)
    assert len(seen.days) == 3990
    assert len({row["report_date"] for row in seen.days}) == 190
    assert (seen.quarantined_files, seen.quarantined_rows) == (0, 0)


@pytest.mark.parametrize("table", ["region_day", "national_day", "region_week"])
def test_however_often_one_looks_the_tables_are_equal(landed: Callable[..., Landed], table: str) -> None:
    five, three, once = (landed(*cuts).table(table) for cuts in (FIVE, THREE, (None,)))
    assert len(five) > 180
    assert five == once
    assert three == once


@pytest.mark.slow
def test_instant_by_instant(landed: Callable[..., Landed], deliveries_of_italy: Path) -> None:
    from pipelines.italy.histories import open_history

    instants = sorted({event.instant for event in open_history(deliveries_of_italy).events})
    seen = landed(*instants)
    assert (len(instants), len(seen.days), seen.quarantined_files, seen.quarantined_rows) == (220, 4011, 1, 2)
    for table in ("region_day", "national_day", "region_week"):
        assert seen.table(table) == landed(None).table(table)
