"""The picture of a table's columns: inputs on the left, the table in the middle, readers on the right, an edge for each value that goes on."""

from __future__ import annotations

from sluice.column_origins import Origin, TableOrigins, TracedColumn
from sluice.runs.status.lineage_pictures import COLUMN_HEIGHT, COLUMN_WIDTH, draw_column_lineage

BEAT = TableOrigins(
    "beat",
    "m",
    (
        TracedColumn("id", "int", (Origin("raw", "id", "identity"), Origin("raw", "part", "transformation"))),
        TracedColumn("at", "timestamp"),
    ),
    (Origin("raw", "at", "filter"),),
)
DAY = TableOrigins(
    "day", "m", (TracedColumn("beats", "int", (Origin("beat", "id", "aggregation"),)),), (Origin("beat", "at", "group by"),)
)
KNOWN = {"beat": BEAT, "day": DAY}


def test_columns_lie_between_what_they_come_from_and_what_is_made_of_them() -> None:
    picture = draw_column_lineage(KNOWN, BEAT)
    assert picture is not None
    positions = {box.shown: box.x for box in picture.boxes}
    assert positions.keys() == {"raw.id", "raw.part", "id", "at", "day.beats"}, (
        "what only chooses rows is no column of the picture"
    )
    assert positions["raw.id"] == positions["raw.part"] < positions["id"] == positions["at"] < positions["day.beats"]
    assert len(picture.curves) == 3
    assert len({(box.x, box.y) for box in picture.boxes}) == len(picture.boxes)
    assert all(box.x + COLUMN_WIDTH <= picture.size[0] and box.y + COLUMN_HEIGHT <= picture.size[1] for box in picture.boxes)


def test_a_table_of_which_nothing_is_known_has_no_picture() -> None:
    alone = TableOrigins("beat", "m", (TracedColumn("id", "int"),))
    assert draw_column_lineage({"beat": alone}, alone) is None


def test_long_names_are_cut() -> None:
    long = TableOrigins("t", "m", (TracedColumn("c" * 60, "int", (Origin("r" * 20, "d" * 40, "identity"),)),))
    picture = draw_column_lineage({}, long)
    assert picture is not None and {len(box.shown) for box in picture.boxes} == {32}
