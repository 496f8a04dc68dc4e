"""A checkpoint belongs to one flow and is abandoned only for a reason that is reported."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.conftest import settings_at

from sluice.errors import LakeTooNew, UsageError
from sluice.flows.progress import checkpoints, positions
from sluice.flows.progress.checkpoints import Checkpoint, open_checkpoint
from sluice.flows.progress.flow_memory import read_flow_memory
from sluice.pipeline_records import PipelineRecords
from sluice.runs.lease import lock

LINE = '{"sourceVersion":1,"reservoirId":"%s","reservoirVersion":3,"index":-1,"isStartingVersion":false}'


def begin(checkpoint: Checkpoint, batch: int = 0) -> None:
    """Writes what Spark writes at the beginning of a batch."""
    (Path(checkpoint.path) / "metadata").write_text('{"id":"a"}')
    _write(checkpoint, "offsets", batch, "v1\n{}\n" + LINE % "1")


def finish(checkpoint: Checkpoint, batches: int = 1) -> None:
    """Writes what Spark writes at the end of the first batch, or of several."""
    for batch in range(batches):
        begin(checkpoint, batch)
        _write(checkpoint, "commits", batch, "v1\n{}")


def _write(checkpoint: Checkpoint, kind: str, batch: int, content: str) -> None:
    file = Path(checkpoint.path) / kind / str(batch)
    file.parent.mkdir(exist_ok=True)
    file.write_text(content)


def test_a_flow_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    first = open_checkpoint(str(tmp_path / "flow"), "gold_day", {"a": "1"}, "code")
    finish(first)
    again = open_checkpoint(str(tmp_path / "flow"), "gold_day", {"a": "1"}, "code")
    assert (first.rebased, again.rebased) == ("first run", None)
    assert (first.path, first.identity) == (again.path, again.identity)


@pytest.mark.parametrize(
    ("inputs", "fingerprint", "reason"),
    [
        ({"a": "1", "b": "2"}, "code", "its list of inputs changed"),
        ({"a": "9"}, "code", "its input 'a' was made anew"),
        ({"a": "1"}, "other", "its transform changed"),
    ],
)
def test_what_breaks_continuity_gives_a_fresh_checkpoint(
    tmp_path: Path, inputs: dict[str, str], fingerprint: str, reason: str
) -> None:
    first = open_checkpoint(str(tmp_path / "flow"), "gold_day", {"a": "1"}, "code")
    fresh = open_checkpoint(str(tmp_path / "flow"), "gold_day", inputs, fingerprint)
    assert fresh.rebased == reason
    assert fresh.identity != first.identity and not Path(first.path).exists()


def test_a_lost_checkpoint_is_noticed_and_has_another_identity(tmp_path: Path) -> None:
    first = open_checkpoint(str(tmp_path / "flow"), "gold_day", {"a": "1"})
    shutil.rmtree(first.path)
    fresh = open_checkpoint(str(tmp_path / "flow"), "gold_day", {"a": "1"})
    assert fresh.rebased == "its checkpoint was lost" and fresh.identity != first.identity


def test_a_checkpoint_of_another_flow_is_refused_with_the_remedy(tmp_path: Path) -> None:
    open_checkpoint(str(tmp_path / "flow"), "gold_day", {"a": "1"})
    with pytest.raises(UsageError, match=r"belongs to the flow 'gold_day', not to 'gold_week'\. Move it away"):
        open_checkpoint(str(tmp_path / "flow"), "gold_week", {"a": "1"})


def test_a_lake_of_a_newer_sluice_is_refused(tmp_path: Path) -> None:
    settings = settings_at(tmp_path)
    records = PipelineRecords(settings, "gym")
    file = Path(records.bookkeeping()) / "lake.json"
    file.parent.mkdir(parents=True)
    lock.check_lake_format(records)
    lock.write_lake_format(records)
    lock.check_lake_format(records)
    file.write_text('{"format": 99}')
    with pytest.raises(LakeTooNew, match="has format 99"):
        lock.check_lake_format(records)


def test_a_full_first_batch_that_was_not_finished_is_full_again(tmp_path: Path) -> None:
    finish(open_checkpoint(str(tmp_path / "flow"), "gold_day", {"a": "1"}, "code"))
    killed = open_checkpoint(str(tmp_path / "flow"), "gold_day", {"a": "1"}, "other")
    begin(killed)
    again = open_checkpoint(str(tmp_path / "flow"), "gold_day", {"a": "1"}, "other")
    assert (again.identity, again.rebased) == (killed.identity, "its transform changed")
    finish(again)
    assert open_checkpoint(str(tmp_path / "flow"), "gold_day", {"a": "1"}, "other").rebased is None


def test_why_it_would_start_anew_is_told_and_nothing_is_made(tmp_path: Path) -> None:
    assert checkpoints.reason_to_rebase(str(tmp_path / "flow"), "gold_day", {"a": "1"}) == "first run"
    assert list(tmp_path.iterdir()) == []
    finish(open_checkpoint(str(tmp_path / "flow"), "gold_day", {"a": "1"}))
    assert checkpoints.reason_to_rebase(str(tmp_path / "flow"), "gold_day", {"a": "1"}) is None
    assert checkpoints.reason_to_rebase(str(tmp_path / "flow"), "gold_day", {"a": "2"}) == "its input 'a' was made anew"


def test_after_a_reset_a_flow_starts_anew_and_says_why(tmp_path: Path) -> None:
    first = open_checkpoint(str(tmp_path / "flow"), "gold_day", {"a": "1"})
    finish(first)
    checkpoints.reset_checkpoint(str(tmp_path / "flow"), "gold_day")
    assert not Path(first.path).exists()
    fresh = open_checkpoint(str(tmp_path / "flow"), "gold_day", {"a": "1"})
    assert fresh.rebased == "its checkpoint was reset" and fresh.identity != first.identity


def test_a_copy_of_a_checkpoint_and_a_link_to_it_are_refused(tmp_path: Path) -> None:
    open_checkpoint(str(tmp_path / "gold_day"), "gold_day", {"a": "1"})
    shutil.copytree(tmp_path / "gold_day", tmp_path / "gold_copy")
    with pytest.raises(UsageError, match=r"are one and the same.*Move away the one that is a copy"):
        open_checkpoint(str(tmp_path / "gold_day"), "gold_day", {"a": "1"})
    shutil.rmtree(tmp_path / "gold_copy")
    (tmp_path / "gold_link").symlink_to(tmp_path / "gold_day")
    with pytest.raises(UsageError, match="are one and the same"):
        open_checkpoint(str(tmp_path / "gold_day"), "gold_day", {"a": "1"})


def test_positions_in_a_table_that_is_no_input_are_refused(tmp_path: Path) -> None:
    first = open_checkpoint(str(tmp_path / "flow"), "gold_day", {"a": "1"})
    finish(first)
    offsets = Path(first.path) / "offsets"
    assert open_checkpoint(str(tmp_path / "flow"), "gold_day", {"a": "1"}).rebased is None
    (offsets / "0").write_text("v1\n{}\n" + LINE % "9")
    with pytest.raises(UsageError, match=r"positions in the Delta table 9, which is no input .* Move .* away"):
        open_checkpoint(str(tmp_path / "flow"), "gold_day", {"a": "1"})


SPOILT = {
    "metadata": "metadata",
    "the last offsets": "offsets/2",
    "the offsets before": "offsets/1",
    "the last commit": "commits/2",
}
HOW = {
    "missing": lambda file: file.unlink(),
    "empty": lambda file: file.write_bytes(b""),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-2]),
    "zeros": lambda file: file.write_bytes(b"\x00" * file.stat().st_size),
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("file", SPOILT)
def test_files_of_spark_that_are_lost_or_cut_are_named_and_the_flow_starts_anew(tmp_path: Path, file: str, how: str) -> None:
    first = open_checkpoint(str(tmp_path / "flow"), "gold_day", {"a": "1"})
    finish(first, batches=3)
    assert open_checkpoint(str(tmp_path / "flow"), "gold_day", {"a": "1"}).rebased is None
    HOW[how](Path(first.path) / SPOILT[file])
    if (file, how) == ("the last commit", "missing"):  # a batch that was not done, which comes again
        assert checkpoints.reason_to_rebase(str(tmp_path / "flow"), "gold_day", {"a": "1"}) is None
        return
    why = f"its checkpoint is damaged: {first.identity}/{SPOILT[file]} is "
    assert (checkpoints.reason_to_rebase(str(tmp_path / "flow"), "gold_day", {"a": "1"}) or "").startswith(why)
    fresh = open_checkpoint(str(tmp_path / "flow"), "gold_day", {"a": "1"})
    assert (fresh.rebased or "").startswith(why) and fresh.identity != first.identity


@pytest.mark.parametrize("gone", [("offsets",), ("commits",), ("offsets", "commits"), ("metadata", "offsets", "commits")])
def test_folders_of_spark_that_are_lost_make_the_flow_start_anew_under_another_identity(
    tmp_path: Path, gone: tuple[str, ...]
) -> None:
    first = open_checkpoint(str(tmp_path / "flow"), "gold_day", {"a": "1"})
    finish(first, batches=3)
    for name in gone:
        file = Path(first.path) / name
        file.unlink() if file.is_file() else shutil.rmtree(file)
    fresh = open_checkpoint(str(tmp_path / "flow"), "gold_day", {"a": "1"})
    assert fresh.rebased and fresh.identity != first.identity


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "\x00\x00"])
def test_a_flow_whose_own_file_is_garbled_starts_anew(tmp_path: Path, content: str) -> None:
    first = open_checkpoint(str(tmp_path / "flow"), "gold_day", {"a": "1"})
    finish(first)
    (tmp_path / "flow" / "flow.json").write_text(content)
    fresh = open_checkpoint(str(tmp_path / "flow"), "gold_day", {"a": "1"})
    assert fresh.rebased == "its checkpoint was lost" and fresh.identity != first.identity


@pytest.mark.parametrize("damage", [{"starts": {"a": None}}, {"followed": {"a": []}}, {"passed": {"a": "many"}}])
def test_a_version_that_is_no_number_costs_its_own_flow_its_checkpoint_and_no_other(
    tmp_path: Path, damage: dict[str, object]
) -> None:
    first, other = (open_checkpoint(str(tmp_path / name), name, {"a": "1"}) for name in ("gold_day", "gold_month"))
    finish(first)
    finish(other)
    file = tmp_path / "gold_day" / "flow.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | damage))
    assert open_checkpoint(str(tmp_path / "gold_month"), "gold_month", {"a": "1"}).identity == other.identity
    assert open_checkpoint(str(tmp_path / "gold_day"), "gold_day", {"a": "1"}).rebased == "its checkpoint was lost"


def test_an_input_that_has_no_row_yet_keeps_the_checkpoint_that_began_behind_it(tmp_path: Path) -> None:
    folder, inputs = str(tmp_path / "flow"), {"a": "1", "b": "2"}
    open_checkpoint(folder, "gold_day", inputs, "code")
    checkpoints.record_followed_versions(folder, "gold_day", {"a": 1, "b": 3})
    began = open_checkpoint(folder, "gold_day", inputs, "code")
    finish(began)  # a batch of the first input alone: the other one has no position in the offsets
    assert open_checkpoint(folder, "gold_day", inputs, "code").identity == began.identity
    checkpoints.record_followed_versions(folder, "gold_day", {"a": 1, "b": 4})
    assert open_checkpoint(folder, "gold_day", inputs, "code").identity != began.identity


def test_a_flow_that_went_on_without_its_stream_gets_a_checkpoint_that_begins_behind(tmp_path: Path) -> None:
    folder, inputs = str(tmp_path / "flow"), {"a": "1"}
    first = open_checkpoint(folder, "gold_day", inputs, "code")
    finish(first)
    checkpoints.record_followed_versions(folder, "gold_day", {"a": 2})  # no further than the stream was
    assert open_checkpoint(folder, "gold_day", inputs, "code").identity == first.identity
    checkpoints.record_followed_versions(folder, "gold_day", {"a": 7})
    assert checkpoints.reason_to_rebase(folder, "gold_day", inputs, "code") is None
    told = []

    def find_starts_past(versions: Mapping[str, int]) -> dict[str, int]:
        told.append(dict(versions))
        return {"a": 8}

    for _ in range(2):  # killed before its first batch, it begins there again, and not with everything
        fresh = open_checkpoint(folder, "gold_day", inputs, "code", find_starts_past=find_starts_past)
        assert (fresh.rebased, fresh.starts) == (None, {"a": 8}) and fresh.identity != first.identity
        assert not Path(first.path).exists()
    assert told == [{"a": 7}] * 2
    progress = positions.read_flow_progress(folder, "gold_day")
    assert progress is not None and progress.positions == {"a": positions.StreamPosition(8)} and progress.reason is None
    assert open_checkpoint(folder, "gold_day", inputs, "other").rebased == "its transform changed"
    memory = read_flow_memory(folder, "gold_day")
    assert memory is not None and memory.followed == {}
