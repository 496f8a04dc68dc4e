"""A checkpoint belongs to one flow and is given up only for a reason that is told."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.conftest import settings_at

from sluice.errors import LakeTooNew, UsageError
from sluice.flows.checkpoints import current
from sluice.runs import lakeformat


def test_a_flow_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    first = current(str(tmp_path), "gold_day", {"a": "1"}, "code")
    again = current(str(tmp_path), "gold_day", {"a": "1"}, "code")
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
    first = current(str(tmp_path), "gold_day", {"a": "1"}, "code")
    fresh = current(str(tmp_path), "gold_day", inputs, fingerprint)
    assert fresh.rebased == reason
    assert fresh.identity != first.identity and not Path(first.path).exists()


def test_a_lost_checkpoint_is_noticed_and_has_another_identity(tmp_path: Path) -> None:
    first = current(str(tmp_path), "gold_day", {"a": "1"})
    shutil.rmtree(first.path)
    fresh = current(str(tmp_path), "gold_day", {"a": "1"})
    assert fresh.rebased == "its checkpoint was lost" and fresh.identity != first.identity


def test_a_checkpoint_of_another_flow_is_refused_with_the_remedy(tmp_path: Path) -> None:
    current(str(tmp_path), "gold_day", {"a": "1"})
    with pytest.raises(UsageError, match=r"belongs to the flow 'gold_day', not to 'gold_week'\. Move it away"):
        current(str(tmp_path), "gold_week", {"a": "1"})


def test_a_lake_of_a_newer_sluice_is_refused(tmp_path: Path) -> None:
    settings = settings_at(tmp_path)
    place = Path(settings.bookkeeping("gym")) / "lake.json"
    place.parent.mkdir(parents=True)
    lakeformat.check(settings, "gym")
    lakeformat.mark(settings, "gym")
    lakeformat.check(settings, "gym")
    place.write_text('{"format": 99}')
    with pytest.raises(LakeTooNew, match="has format 99"):
        lakeformat.check(settings, "gym")
