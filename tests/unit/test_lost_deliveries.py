"""A ledger of deliveries that lost its last commits: nothing is read twice, and no number is given out again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.unit.test_discovery import A, Folder

from sluice.errors import SluiceError
from sluice.ingest import ledger
from sluice.ingest.deliveries import discovery, lost
from sluice.ingest.deliveries.discovery import DELIVERED, GONE


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Five deliveries in three commits, all but the last with an outcome."""
    found = Folder(tmp_path)
    for name in ("x", "y"):
        found.land(f"a/{name}", name)
    found.discover(A)
    found.land("a/x", "other")
    found.discover(A)
    (found.landing / "a" / "y").unlink()
    found.discover(A)
    found.judge(ledger.INGESTED, 1, 2, 3)
    found.judge(ledger.VANISHED, 4)
    return found


def lose(table: str, commits: int) -> None:
    """What a loss of power takes that comes before the disk has it: the last commits."""
    last = DeltaTable(table).version()
    for version in range(last - commits + 1, last + 1):
        (Path(table) / "_delta_log" / f"{version:020}.json").unlink()


def of_interest(rows: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    return [tuple(row[name] for name in ("delivery", "source", "file", "event", "modified_at", "sha256")) for row in rows]


@pytest.mark.parametrize("commits", [1, 2, 3])
def test_what_has_an_outcome_is_put_back_and_new_files_get_new_numbers(folder: Folder, commits: int) -> None:
    before = of_interest(folder.rows())
    lose(folder.deliveries, commits)
    known = discovery.latest(folder.deliveries, folder.outcomes)
    assert known.last == [3, 2, 0][commits - 1]
    assert lost.put_back([A], folder.landing, known, "run") == 4 - known.last
    assert of_interest(folder.rows()) == before
    assert folder.discover(A) == []
    folder.land("a/new")
    assert folder.discover(A) == [(DELIVERED, "new")] and folder.rows()[-1]["delivery"] == 5
    folder.land("a/y", "y")
    assert [event for event, _ in folder.discover(A)] == ["returned"], "its content is known"


def test_a_delivery_without_an_outcome_is_found_again(folder: Folder) -> None:
    folder.land("a/new")
    folder.discover(A)
    lose(folder.deliveries, 1)
    assert lost.put_back([A], folder.landing, discovery.latest(folder.deliveries, folder.outcomes), "run") == 0
    assert folder.discover(A) == [(DELIVERED, "new")]


def test_numbers_follow_the_highest_outcome_whatever_the_deliveries_say(folder: Folder) -> None:
    lose(folder.deliveries, 1)
    assert folder.discover(A) == [(GONE, "y")]
    assert [row["delivery"] for row in folder.rows()] == [1, 2, 3, 5]


def test_bronze_with_a_delivery_that_nothing_else_knows_is_refused(folder: Folder, tmp_path: Path) -> None:
    bronze = str(tmp_path / "lake" / "a")
    write_deltalake(bronze, pa.table({"_delivery": [1, 4]}))
    known = discovery.latest(folder.deliveries, folder.outcomes)
    lost.refuse_unknown(known, {"a": bronze, "never": str(tmp_path / "never")})
    write_deltalake(bronze, pa.table({"_delivery": [7]}), mode="append")
    with pytest.raises(
        SluiceError, match=r"'a' has rows of delivery 7, and the ledger knows none after 4: .* delete the rows with"
    ):
        lost.refuse_unknown(known, {"a": bronze})
