"""The tour: what it may empty, what it takes for equal, and that it fails where something is wrong."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from demonstrations import tour
from demonstrations.tour import clear_tour_folders, run_tour, write_tour_marker
from demonstrations.tour_report import (
    TourRun,
    compare_with_truth,
    print_quarantine_reasons,
    print_recompute_verdicts,
    print_rewritten_tables,
    print_rule_failures,
    print_sample_rows,
)
from orchestration.local import find_running_airflow
from sluice.errors import SluiceError, UsageError
from sluice.settings import Settings

if TYPE_CHECKING:
    from tests.checkout import Checkout

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]


@pytest.fixture
def console() -> Console:
    return Console(record=True, width=200, force_terminal=False)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    found = replace(
        Settings.current(),
        root=tmp_path,
        lake=str(tmp_path / "lake"),
        landing=tmp_path / "landing",
        restricted=tmp_path / "restricted",
        truth=tmp_path / "truth",
    )
    for folder in (Path(found.lake), found.landing, found.restricted, found.truth):
        (folder / "gym").mkdir(parents=True)
        (folder / "gym" / "file").write_text("x")
    return found


def test_a_lake_that_no_tour_made_is_kept(settings: Settings, console: Console) -> None:
    assert not clear_tour_folders(settings, console, "gym")
    write_tour_marker(settings, "gym", own=False)
    assert not clear_tour_folders(settings, console, "gym"), "having toured through it does not make it the tour's"
    assert (Path(settings.lake) / "gym" / "file").exists()


def test_an_untouched_tour_is_emptied(settings: Settings, console: Console) -> None:
    write_tour_marker(settings, "gym", own=True)
    assert clear_tour_folders(settings, console, "gym")
    assert not (Path(settings.lake) / "gym").exists() and not (settings.restricted / "gym").exists()
    assert "Emptied" in console.export_text()


@pytest.mark.parametrize("folder", ["lake", "landing", "restricted", "truth"])
def test_a_tour_that_somebody_used_since_is_kept(settings: Settings, console: Console, folder: str) -> None:
    write_tour_marker(settings, "gym", own=True)
    (settings.root / folder / "gym" / "mine").write_text("x")
    assert not clear_tour_folders(settings, console, "gym")
    assert (settings.root / folder / "gym" / "mine").exists()


def run(title: str, *flows: dict[str, Any]) -> TourRun:
    return TourRun(title, reports={"silver": {"flows": list(flows)}})


def test_rows_that_did_not_meet_a_rule_are_counted_by_table_rule_and_run(console: Console) -> None:
    first = {"flow": "heart_rate", "rules": {"positive": 1_022, "plausible": 3}, "null_rules": {"positive": 2}}
    again = {"flow": "heart_rate", "rules": {"plausible": 1}}
    print_rule_failures(
        console, [run("first days", first), run("one more day", again, {"flow": "bpm", "rules": {"positive": 1}})]
    )
    lines = console.export_text().splitlines()
    assert [line.split() for line in lines if line.startswith(("bpm", "heart_rate"))] == [
        ["bpm", "positive", "0", "1", "0"],
        ["heart_rate", "plausible", "3", "1", "0"],
        ["heart_rate", "positive", "1,022", "0", "2"],
    ]
    print_rule_failures(console, [run("nothing new", {"flow": "bpm"})])
    assert console.export_text().split()[-1] == "none"


def test_a_table_that_as_a_whole_does_not_meet_a_rule_after_the_last_run_is_named(console: Console) -> None:
    found = {
        "known_member": {"met": False, "count": 4, "text": "4 rows refer to nobody"},
        "one_row": {"met": True},
        "fresh": {"met": None},
    }
    print_rule_failures(
        console, [run("first days", {"flow": "visits", "table_rules": found}), run("last", {"flow": "bpm", "table_rules": found})]
    )
    assert [line for line in console.export_text().splitlines() if "does not meet" in line] == [
        "  bpm does not meet known_member: 4 rows refer to nobody"
    ]


def test_what_the_maker_wants_to_be_seen_is_printed_as_it_is(console: Console) -> None:
    print_sample_rows(console, "One member", [{"since": date(2026, 1, 1), "until": None, "city": "Łódź [of the lake]"}])
    assert "Łódź [of the lake]" in console.export_text(), "no markup"
    print_sample_rows(console, "One member", [])
    print_quarantine_reasons(console, [])
    assert console.export_text().split() == ["One", "member", "nothing", "In", "quarantine", "nothing"]
    print_quarantine_reasons(console, [{"table": "heart_rate", "reason": "positive", "rows": 1_022, "deliveries": 3}])
    assert console.export_text().splitlines()[-1].split() == ["heart_rate", "positive", "1,022", "3"]


def test_tables_that_were_rewritten_are_named_with_what_it_bought(console: Console) -> None:
    bought = "a question by time opens 3.0 > 1.0 files"
    rows = [
        {"stage": "optimize", "flow": "heart_rate", "decision": "yes: 3 files", "note": bought},
        {"stage": "optimize", "flow": "bpm", "decision": "no: each partition is one file", "note": None},
        {"stage": "vacuum", "flow": "bpm", "decision": "yes: in full", "note": None},
    ]
    print_rewritten_tables(console, rows)
    assert console.export_text().splitlines()[2:] == [f"  heart_rate: yes: 3 files; {bought}"]
    print_rewritten_tables(console, rows[1:])
    assert console.export_text().splitlines()[-1].startswith("none")


def test_what_was_compared_with_a_recompute_is_told_for_each_table(console: Console) -> None:
    flows = [
        {"flow": name, "rows_in": 1_022, "seconds": 0.31, "note": note} for name, note in (("bpm", "equal"), ("visits", "stale"))
    ]
    last = TourRun("nothing new", reports={"verify": {"flows": flows}}, seconds={"verify": 9.0})
    print_recompute_verdicts(console, last.compared())
    lines = [line.split() for line in console.export_text().splitlines()]
    assert lines[-2:] == [["bpm", "1,022", "0.3", "equal"], ["visits", "1,022", "0.3", "stale"]]
    assert "2 tables compared" in last.line("verify")
    assert "bpm: equal" in TourRun("a day", reports={"verify": {"flows": flows[:1]}}, seconds={"verify": 9.0}).line("verify")


A: dict[str, Any] = {"device_id": 1, "at": datetime(2026, 1, 1, tzinfo=UTC), "mean": 0.1 + 0.2, "note": None}
B: dict[str, Any] = {"device_id": 2, "at": datetime(2026, 1, 2, tzinfo=UTC), "mean": None, "note": "late"}


def test_equal_rows_in_any_order_and_form() -> None:
    told = [B, {**A, "at": "2026-01-01T01:00:00+01:00", "mean": 0.3}]
    found = [{**A, "at": datetime(2026, 1, 1), "another_column": 1}, B]
    assert compare_with_truth("t", told, found).equal
    assert compare_with_truth("t", [{"day": "2026-01-01"}], [{"day": date(2026, 1, 1)}]).equal
    assert compare_with_truth("t", [{"mean": 70}], [{"mean": 70.0}]).equal


@pytest.mark.parametrize(
    ("found", "missing", "surplus"),
    [
        ([A], 1, 0),
        ([A, B, B], 0, 1),
        ([A, {**B, "note": "Late"}], 1, 1),
        ([A, {**B, "mean": 0.0}], 1, 1),
        ([{**A, "mean": 0.300001}, B], 1, 1),
        ([{**A, "at": datetime(2026, 1, 1, 1, tzinfo=UTC)}, B], 1, 1),
    ],
)
def test_differences_are_counted(found: list[dict[str, Any]], missing: int, surplus: int) -> None:
    verdict = compare_with_truth("t", [A, B], found)
    assert (verdict.missing, verdict.surplus) == (missing, surplus)


@pytest.fixture
def toured(checkout: Checkout) -> Iterator[Settings]:
    yield checkout.settings
    for name in ("lake", "landing", "restricted", "truth", ".sluice/tours"):
        shutil.rmtree(checkout.settings.root / name, ignore_errors=True)


@pytest.mark.system
def test_tables_that_are_not_the_truth_fail_the_tour(toured: Settings, console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tour, "LEGS", (("first day", {"days": 1}), ("nothing new", None)))
    with pytest.raises(SluiceError) as failure:  # the stand-in writes no tables, and says it changed one each time
        run_tour(toured, console, "gym", None)
    text = console.export_text()
    assert "nothing new" in text and "missing" in text
    assert "had nothing to read and changed device_day" in str(failure.value)
    assert find_running_airflow(toured) is None


def test_wrong_use_shows_before_airflow_starts(toured: Settings, console: Console) -> None:
    with pytest.raises(UsageError, match="takes no --from"):
        run_tour(toured, console, "gym", Path("somewhere"))
