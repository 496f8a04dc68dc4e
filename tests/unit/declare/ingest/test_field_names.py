"""Fields that begin with an underscore are rescued, whatever their names, unless the source names them; and the user is told."""

from __future__ import annotations

import ast
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import sluice
from sluice.declare import Pipeline, Source
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.declare.assembly.kept_fields import suggest_kept_fields
from sluice.declare.ingest.field_names import is_reserved_column
from sluice.errors import DeclarationError
from sluice.ingest import delivery_tables, formats
from sluice.ingest.schema_evolution import SourceColumns, find_held_back_fields, newly_held_back_fields
from sluice.ingest.values import types
from sluice.pipeline_records import PipelineRecords
from sluice.runs import run_ledger
from sluice.runs.status.books import PipelineBooks, find_rescued_fields

if TYPE_CHECKING:
    from sluice.settings import Settings

PIPELINE = Pipeline(name="odd", description="Odd names.", owner="t", layers=("pipelines.odd.bronze",))
TAKEN = ["_anonymised", "_subject", "_metadata", "_change_type", "_Commit_Version", "_commit_timestamp", "_delivery", "_problem"]
RECORD = {"id": "1", **dict.fromkeys(TAKEN, "x"), "_mine": "y"}
S = pa.string()


def read(
    folder: Path, source: Source, schema: pa.Schema, path: dict[str, str] | None = None
) -> tuple[dict[str, Any], pa.Schema, Any]:
    """A row with RECORD in the source's format: the row, its columns as they have grown, and what was new."""
    file = folder / "file"
    if source.format == "parquet":
        pyarrow.parquet.write_table(pa.table({name: [value] for name, value in RECORD.items()}), file)
    elif source.format == "csv":
        file.write_text(f"{','.join(RECORD)}\n{','.join(RECORD.values())}\n")
    else:
        file.write_text(json.dumps(RECORD))
    (block,) = formats.read_file_records(source, file, schema, path or {})
    grown = types.grow_schema(schema, block.news, source)
    (again,) = formats.read_file_records(source, file, grown, path or {})
    (row,) = again.rows.to_pylist()
    return row, grown, again.news


@pytest.mark.parametrize("format_", ["json", "csv", "parquet"])
def test_a_field_with_an_underscore_is_rescued_unless_it_is_a_column_by_name(tmp_path: Path, format_: Any) -> None:
    source = Source(name="s", format=format_, infer_types=False)
    row, grown, news = read(tmp_path, source, pa.schema([]), {"_in_path": "z", "day": "7"})
    assert set(grown.names) == {"id", "day"}
    assert json.loads(row["_rescued_data"]) == {**dict.fromkeys(TAKEN, "x"), "_mine": "y", "_in_path": "z"}
    assert set(find_held_back_fields(SourceColumns(source, grown, settled=True), news)) == {*TAKEN, "_mine", "_in_path"}
    row, grown, news = read(tmp_path, source, pa.schema([("_mine", S)]))
    assert row["_mine"] == "y" and grown.names == ["_mine", "id"]
    assert set(json.loads(row["_rescued_data"])) == set(TAKEN)
    assert set(find_held_back_fields(SourceColumns(source, grown, settled=True), news)) == set(TAKEN)


def test_what_the_declaration_rescues_is_not_told_and_what_grows_within_a_named_one_grows(tmp_path: Path) -> None:
    schema = pa.schema([("_a", pa.struct([("b", S)]))])
    file = tmp_path / "file"
    file.write_text('{"_a": {"b": "x", "c": "y", "_d": "z"}, "_e": 1}')
    rescuing = Source(name="s", schema="_a STRUCT<b: STRING>")
    for source, grows in ((rescuing, False), (Source(name="s"), True)):
        (block,) = formats.read_file_records(source, file, schema, {})
        grown = types.grow_schema(schema, block.news, source) if grows else schema
        assert [field.name for field in grown.field("_a").type] == (["b", "c", "_d"] if grows else ["b"])
        assert find_held_back_fields(SourceColumns(source, grown, settled=True), block.news) == (
            {"_e": "bigint"} if grows else {}
        )


def test_csv_without_a_header_has_the_names_that_sluice_gives(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("1,a\n")
    source = Source(name="s", format="csv", header=False)
    (block,) = formats.read_file_records(source, file, pa.schema([]), {})
    assert types.grow_schema(pa.schema([]), block.news, source).names == ["_c0", "_c1"]
    named = Source(name="s", format="csv")
    assert types.grow_schema(pa.schema([]), block.news, named).names == []


@pytest.mark.parametrize("option", ["schema", "schema_hints"])
@pytest.mark.parametrize("name", TAKEN)
def test_a_declaration_cannot_keep_a_name_that_is_taken(option: str, name: str) -> None:
    said: dict[str, Any] = {option: f"id BIGINT COMMENT 'which, of all', {name} STRING"}
    with pytest.raises(
        DeclarationError, match=f"source 's': {option} names the column '{name}', which Sluice, Delta or Spark uses"
    ):
        build_declaration_graph(PIPELINE, [Source(name="s", **said)])
    build_declaration_graph(PIPELINE, [Source(name="s", **{option: "id BIGINT, _mine STRING, nested STRUCT<_file: STRING>"})])  # type: ignore[arg-type]


def test_no_more_columns_than_there_may_be_and_the_rest_is_rescued_and_told(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text(
        json.dumps({"first": {f"n{number}": number for number in range(2_000)}, **{f"k{n}": n for n in range(2_000)}})
    )
    source = Source(name="s", most_columns=50)
    (block,) = formats.read_file_records(source, file, pa.schema([]), {})
    grown = types.grow_schema(pa.schema([]), block.news, source)
    assert grown.names == ["first"] and grown.field("first").type.num_fields == 49
    assert types.grow_schema(grown, block.news, source) == grown
    (again,) = formats.read_file_records(source, file, grown, {})
    rescued = json.loads(again.rows["_rescued_data"][0].as_py())
    assert len(rescued) == 2_001 and len(rescued["first"]) == 2_000 - 49
    fields = find_held_back_fields(SourceColumns(source, grown, settled=True), again.news)
    assert len(fields) == 4_000 - 49 and fields["k7"] == fields["first.n49"] == "bigint"
    said = newly_held_back_fields({1: fields}, [])
    assert len(json.loads(said[1])) == 100
    (line,) = suggest_kept_fields(source, json.loads(said[1]))
    assert line.endswith("and 90 more (to keep: a higher most_columns of source 's', which is 50)")
    # What is there counts, what is declared stays: a table that has more grows no further.
    assert types.grow_schema(grown, pa.struct([("new", S)]), Source(name="s", most_columns=50)) == grown
    assert types.grow_schema(grown, pa.struct([("new", S)]), Source(name="s", most_columns=51)).names == ["first", "new"]


def test_a_field_is_told_once_and_with_the_line_that_keeps_it() -> None:
    found = {7: {"_id": "string", "_score": "double"}, 8: {"_id": "string", "_file": "string"}}
    said = newly_held_back_fields(found, ['{"_score": "double"}', None])
    assert said == {7: '{"_id": "string"}', 8: '{"_file": "string"}'}
    lines = list(suggest_kept_fields(Source(name="s"), {"_id": "string", "_score": "double", "_file": "string"}))
    assert lines == [
        "_id, _score (to keep: schema_hints=\"_id string, _score double\" of source 's')",
        "_file (Sluice, Delta or Spark uses the name itself; they stay in _rescued_data)",
    ]
    assert "schema=" in next(suggest_kept_fields(Source(name="s", schema="id INT"), {"_id": "string"}))


def test_every_name_that_is_put_beside_the_columns_of_bronze_is_taken() -> None:
    """In the modules through which frames of bronze pass with all their columns."""
    root = Path(sluice.__file__).parent
    passing = [
        "flows/bronze",
        "ingest/reading",
        "privacy",
        "flows/quarantine",
        "erasure/emptied_cells.py",
        "verification/recomputation.py",
    ]
    by_name = {name: [root / name] if name.endswith(".py") else [*(root / name).glob("*.py")] for name in passing}
    assert all(by_name.values()), "a folder that was renamed would give no files"
    files = [file for some in by_name.values() for file in some]
    found = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"`?_[a-z]\w*[a-z]`?", node.value):
                found.add(node.value.strip("`"))
    assert {"_delivery", "_problem", "_anonymised", "_whose", "_suppressed_at"} <= found
    # Of frames without the columns of bronze, of whole files that could not be read; and of an error of Spark.
    assert {name for name in found if not is_reserved_column(name)} == {"_reason", "_path", "_origin"}


def test_a_later_outcome_does_not_take_back_which_fields_a_delivery_had(settings: Settings) -> None:
    records = PipelineRecords(settings, "odd")
    delivery = {"delivery": 1, "source": "s", "file": "a", "event": "delivered"}
    delivery_tables.append_delivery_ledger_rows(records.delivery_ledger, [delivery], delivery_tables.DELIVERIES, "run")
    for minute, held_back in enumerate(['{"_id": "string"}', None, '{"_more": "bigint"}', None]):
        at = datetime(2026, 1, 1, 0, minute, tzinfo=UTC)
        outcome = {"delivery": 1, "source": "s", "file": "a", "state": "ingested", "recorded_at": at, "held_back": held_back}
        delivery_tables.append_delivery_ledger_rows(records.outcome_ledger, [outcome], delivery_tables.OUTCOMES, "run")
    (row,) = run_ledger.read_delivery_ledger(records)
    assert row["held_back"] == {"_id": "string", "_more": "bigint"}
    books = [
        PipelineBooks(settings, build_declaration_graph(PIPELINE, [Source(name="s", schema_hints=hints)]))
        for hints in (None, "_ID STRING")
    ]
    assert [set(one["fields"]) for found in books for one in find_rescued_fields(found)] == [{"_id", "_more"}, {"_more"}]
