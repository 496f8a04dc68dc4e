"""Which folders of a store lose the former versions of objects when an erasure becomes physical."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from sluice.erasure import physical
from sluice.ingest.landing import rewriting
from sluice.locations import Location, locate
from sluice.pipeline_records import PipelineRecords

if TYPE_CHECKING:
    import pytest

    from sluice.erasure.request_record import ErasureRequest
    from sluice.lake.workspace import Workspace
    from sluice.settings import Settings


def test_former_versions_go_wherever_a_store_holds_rows_or_deliveries(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[str] = []

    def remove(root: Location, before: datetime, stop: object) -> int:
        assert before == datetime(2026, 11, 1, tzinfo=UTC)
        searched.append(str(root))
        return 1

    monkeypatch.setattr(physical, "remove_former_versions", remove)
    due = cast("list[ErasureRequest]", [SimpleNamespace(rows_left_at="2026-11-01T00:00:00+00:00")])
    roots = ("landing", "restricted", "released")
    on_store: dict[str, Any] = {name: locate(f"s3://bucket/{name}") for name in roots}
    left = settings.vault.parent / "rewriting" / "1.versions"
    left.parent.mkdir(parents=True)
    left.write_text('["s3://bucket/landing/gym/a/1.json"]')
    monkeypatch.setattr(rewriting, "remove_replaced_versions", lambda location: len([searched.append(str(location))]))
    (report,) = physical._remove_due_versions(_workspace(replace(settings, lake="s3://bucket/lake", **on_store)), due)
    rewritten = "s3://bucket/landing/gym/a/1.json"
    assert {*searched} == {*(f"s3://bucket/{name}/gym" for name in ("lake", *roots)), rewritten} and report.deleted == 5
    assert not left.exists()
    searched.clear()
    assert physical._remove_due_versions(_workspace(settings), due) == [] and not searched


def _workspace(settings: Settings) -> Workspace:
    records = PipelineRecords(settings, "gym")
    paths = SimpleNamespace(bookkeeping=lambda name: str(settings.vault.parent / name))
    found = SimpleNamespace(settings=settings, pipeline="gym", records=records, landing=records.landing, paths=paths)
    return cast("Workspace", found)
