"""Which deliveries a table's versions come from, by the notes on its commits and on those of its inputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, write_deltalake

from sluice.lake.commit_marks import MOST_RANGES, find_version_origins, merge_into_ranges


class Lake:
    """Tables whose commits have notes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def commit(self, name: str, **note: Any) -> None:
        metadata = CommitProperties(custom_metadata={"userMetadata": json.dumps({"sluice": 1, **note})})
        write_deltalake(str(self.folder / name), pa.table({"a": [1]}), mode="append", commit_properties=metadata)

    def told(self, name: str) -> list[str]:
        found = find_version_origins(str(self.folder / name), lambda one: str(self.folder / one))
        return [str(found[version]) for version in sorted(found)]


def ranges(*deliveries: int) -> dict[str, Any]:
    return {"deliveries": {"count": len(deliveries), "ranges": merge_into_ranges(deliveries)}}


def test_a_view_has_what_came_into_its_inputs_since_its_version_before(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.commit("sale", **ranges(1, 2, 7))
    lake.commit("town", **ranges(3))
    lake.commit("of_town", inputs={"sale": 0, "town": 0})
    lake.commit("of_land", inputs={"of_town": 0})
    lake.commit("sale", **ranges(8))
    lake.commit("sale", flow="optimize")
    lake.commit("of_town", inputs={"sale": 2, "town": 0})
    lake.commit("of_land", inputs={"of_town": 1})
    lake.commit("of_town", inputs={"sale": 2, "town": 0}, mode="refresh")
    assert lake.told("sale") == ["1 to 2, 7", "8", ""]
    assert lake.told("of_town") == ["1 to 3, 7", "8", "1 to 3, 7 to 8"]
    assert lake.told("of_land") == ["1 to 3, 7", "8"]


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.commit("old", deliveries={"first": 1, "last": 9, "count": 4})
    lake.commit("gone_input", inputs={"gone": 3})
    lake.commit("view", inputs={"old": 0, "gone": 3})
    assert lake.told("old") == ["within 1 to 9"]
    assert lake.told("gone_input") == ["earlier ones"]
    assert lake.told("view") == ["within 1 to 9 and earlier ones"]


def test_a_mark_stays_small() -> None:
    scattered = merge_into_ranges([*range(0, 4000, 4), 5000])
    assert len(scattered) == MOST_RANGES and scattered[0][0] == 0 and scattered[-1] == (5000, 5000)
    assert all(any(first <= number <= last for first, last in scattered) for number in range(0, 4000, 4))
