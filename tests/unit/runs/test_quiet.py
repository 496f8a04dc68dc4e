"""A pipeline is quiet as long as nothing has changed of all that a run looks at; every single change is a reason to start Spark."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.conftest import settings_at

from sluice.lake.clone_registry import register_shallow_clone
from sluice.locations import locate
from sluice.own_records import LINEAGE_EVENTS
from sluice.pipeline_records import PipelineRecords
from sluice.runs import quiet
from sluice.runs.lease import holder
from sluice.runs.quiet import QuietMark
from sluice.settings import Settings

NOW = datetime(2026, 1, 2, 3, tzinfo=UTC)
FILES = (
    "checkout/include/pipelines/shop/silver.py",
    "checkout/include/pipelines/shop/rules.csv",
    "checkout/environments/dev.toml",
    "secrets/pseudonym.key",
    "landing/shop/sales/1.csv",
    "landing/shop/export/_delta_log/0.json",
    "landing/shop/export/part-0.parquet",
    "lake/shop/_sluice/deliveries/_delta_log/0.json",
    "lake/shop/_sluice/checkpoints/silver_sale/flow.json",
    "lake/shop/_sluice/aging/sales.json",
    "lake/shop/_sluice/erasure_requests/0a1b.json",
    "lake/shop/bronze/sales/_delta_log/0.json",
    "restricted/shop/silver/secret/_delta_log/0.json",
    "vault/shop/0a1b.json",
)
CERTIFIED = {
    "request": "0a1b",
    "received_at": "2026-01-01T00:00:00+00:00",
    "due_at": "2026-01-31T00:00:00+00:00",
    "state": "certified",
    "domain": "customer",
    "pseudonyms": [],
    "subjects": [],
    "history": [{"state": "lifted", "at": "2026-01-01T00:00:00+00:00", "note": ""}],
}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(CERTIFIED) if "requests" in name else name)
    (tmp_path / "lake/shop/_sluice").chmod(0o700)  # as whoever takes the lease leaves it
    return replace(settings_at(tmp_path), root=tmp_path / "checkout")


def mark_quiet(settings: Settings, until: datetime | None = NOW + timedelta(days=1)) -> None:
    records = PipelineRecords(settings, "shop")
    inputs, lake = quiet.digest_run_inputs(records), quiet.digest_lake(records)
    quiet.write_quiet_mark(records, QuietMark("r1", NOW, ("bronze",), inputs, lake, until))
    time.sleep(0.02)  # what is changed next has another time, though the clock of files may tick each 10 ms only


def is_quiet(settings: Settings, now: datetime = NOW) -> bool:
    return quiet.find_quiet_mark(PipelineRecords(settings, "shop"), now) is not None


def test_a_mark_that_a_clock_ahead_of_now_has_left_is_not_believed(settings: Settings) -> None:
    mark_quiet(settings)
    assert is_quiet(settings)
    assert not is_quiet(settings, NOW - timedelta(seconds=1))


def grow(path: Path) -> None:
    path.write_text(path.read_text() + " ")


def rewrite_with_size_and_time(path: Path) -> None:
    before = path.stat()
    path.write_bytes(bytes(reversed(path.read_bytes())))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def take_rights(path: Path) -> None:
    path.chmod(0)


def remove(path: Path) -> None:
    path.unlink()


def add_another(path: Path) -> None:
    path.with_name("another.json").touch()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("change", [grow, rewrite_with_size_and_time, take_rights, remove, add_another])
def test_any_file_that_changes_ends_the_quiet(
    settings: Settings, tmp_path: Path, change: Callable[[Path], None], name: str
) -> None:
    mark_quiet(settings)
    assert is_quiet(settings)
    change(tmp_path / name)
    assert not is_quiet(settings)


def test_events_that_a_stage_writes_do_not_end_the_quiet(settings: Settings, tmp_path: Path) -> None:
    mark_quiet(settings)
    events = tmp_path / "lake/shop/_sluice" / LINEAGE_EVENTS.name / "events.jsonl"
    events.parent.mkdir()
    events.write_text("{}")
    assert is_quiet(settings)


def test_removing_a_shallow_clone_ends_the_quiet(settings: Settings, tmp_path: Path) -> None:
    """VACUUM waited for it, and has something to do now."""
    register_shallow_clone(PipelineRecords(settings, "shop"), "r1", str(tmp_path / "dev"))
    (tmp_path / "dev/shop").mkdir(parents=True)
    mark_quiet(settings)
    (tmp_path / "dev/shop/written_by_its_user").touch()
    assert is_quiet(settings), "what lies in a clone concerns no run"
    shutil.rmtree(tmp_path / "dev")
    assert not is_quiet(settings)


def test_what_cannot_be_compared_is_never_quiet(settings: Settings, tmp_path: Path) -> None:
    mark_quiet(settings)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = tmp_path / "landing/shop/sales/link"
    link.symlink_to(elsewhere)
    with pytest.raises(quiet.NotComparable):
        quiet.digest_run_inputs(PipelineRecords(settings, "shop"))
    assert not is_quiet(settings)
    link.unlink()
    mark_quiet(settings)
    (tmp_path / "lake/shop/_sluice/quiet.json").write_text("{")
    assert not is_quiet(settings), "a mark that is cut says nothing"


def test_of_a_folder_that_runs_list_in_part_only_that_part_is_compared(settings: Settings, bucket_url: str) -> None:
    settings = replace(settings, landing=locate(f"{bucket_url}/landing"))
    shop, records = settings.landing / "shop", PipelineRecords(settings, "shop")
    for name in ("deep/grows/b.json", "deep/other/b.json", "told/b.json", "top.json"):
        (shop / name).write_bytes(b"{}")
    after = {str(shop / "deep" / "grows"): "b.json", str(shop / "told"): None}
    lake = quiet.digest_lake(records)

    def mark() -> None:
        inputs = quiet.digest_run_inputs(records, after)
        quiet.write_quiet_mark(records, QuietMark("r1", NOW, (), inputs, lake, NOW + timedelta(days=1), listed_after=after))

    mark()
    assert is_quiet(settings)
    for left_out in ("deep/grows/a.json", "told/c.json"):
        (shop / left_out).write_bytes(b"{}")
        assert is_quiet(settings), left_out
    for name in ("deep/grows/c.json", "deep/other/a.json", "deep/new/a.json", "new/a.json", "another.json", "top.json"):
        (shop / name).write_bytes(b"[1]")
        assert not is_quiet(settings), name
        mark()
        assert is_quiet(settings)


def test_secrets_as_kubernetes_mounts_them_are_compared_by_where_their_links_lead(settings: Settings) -> None:
    def mount(version: str) -> None:
        (settings.secrets / version).mkdir()
        (settings.secrets / version / "broker").write_text("s")
        (settings.secrets / "..data").unlink(missing_ok=True)
        (settings.secrets / "..data").symlink_to(version)

    mount("..2026_01")
    (settings.secrets / "broker").symlink_to("..data/broker")
    mark_quiet(settings)
    assert is_quiet(settings)
    (settings.secrets / "..2026_01" / "broker").write_text("t")
    assert not is_quiet(settings)
    mark_quiet(settings)
    mount("..2026_02")
    assert not is_quiet(settings)


def test_it_ends_with_its_time_with_other_settings_and_with_an_unmarked_end(settings: Settings, tmp_path: Path) -> None:
    mark_quiet(settings)
    assert is_quiet(settings, NOW + timedelta(hours=23))
    assert not is_quiet(settings, NOW + timedelta(days=1))
    assert not is_quiet(replace(settings, retain="1 days"))
    mark_quiet(settings, until=None)
    assert not is_quiet(settings)


def test_a_lease_that_was_not_given_up_ends_it(settings: Settings) -> None:
    """Who was killed while he held it may have left files; who holds it writes."""
    mark_quiet(settings)
    books = Path(PipelineRecords(settings, "shop").bookkeeping())
    mine = holder.write_lease_description(books, "r2")
    assert not is_quiet(settings)
    holder.write_lease_end(books, mine)
    assert is_quiet(settings)


def test_a_library_that_is_not_installed_as_a_package_stops_nothing(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "_LIBRARIES", ("no-such-package",))
    mark_quiet(settings)
    assert is_quiet(settings)


def test_a_request_that_comes_due_ends_it_though_no_file_changes(settings: Settings, tmp_path: Path) -> None:
    erased = [{"state": "logically erased", "at": "2026-01-01T00:00:00+00:00", "note": ""}]
    told = {**CERTIFIED, "state": "logically erased", "history": erased, "physical_due_at": "2026-01-02T12:00:00+00:00"}
    (tmp_path / "lake/shop/_sluice/erasure_requests/0a1b.json").write_text(json.dumps(told))
    mark_quiet(settings)
    assert is_quiet(settings)
    assert not is_quiet(settings, NOW + timedelta(hours=12))


def test_data_files_records_of_runs_the_lease_and_compiled_code_are_no_reason(settings: Settings, tmp_path: Path) -> None:
    mark_quiet(settings)
    for name in (
        "lake/shop/bronze/sales/part-0.parquet",
        "lake/shop/_sluice/runs/_delta_log/0.json",
        "lake/shop/_sluice/lease.json",
        "checkout/include/pipelines/shop/__pycache__/silver.pyc",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert is_quiet(settings)
