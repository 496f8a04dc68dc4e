"""A person in another person's record: what is refused, and a landed file whose fields are emptied, with the rest as it came."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from sluice.declare import Pipeline, Source, table
from sluice.declare.assembly import subjects
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.errors import DeclarationError
from sluice.ingest.landing import rewriting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PIPELINE = Pipeline(name="code", description="d", owner="o", layers=("code.bronze", __name__))


def _commits(**more: Any) -> Source:
    return Source(**{"name": "commits", "subject": "author", "also_subjects": ("committer",), **more})


def _table(**more: Any) -> Any:
    def commit(commits: DataFrame) -> DataFrame:
        """A commit."""
        return commits

    return table(**{"reads": "commits", "keys": "sha", "subject": "author", **more})(commit)


@pytest.mark.parametrize(
    ("source", "kept", "why"),
    [
        ({"subject": None, "also_subjects": (("committer", "mail"),)}, {"subject": None}, "no column says whose the record is"),
        ({"also_subjects": ("author",)}, {}, "which is its subject"),
        ({"also_subjects": ("who.name",)}, {}, "a field within a column"),
        ({"format": "text", "subject": "value"}, {}, "its records have no fields"),
        ({"schema": "sha STRING, author STRING"}, {}, "no column of its schema"),
        ({"schema": "sha STRING, author STRING, committer STRING NOT NULL"}, {}, "which is NOT NULL"),
        ({}, {"keys": ("sha", "committer")}, "a key of table 'commit'"),
        ({}, {"sequence_by": "committer"}, "the sequence_by of table 'commit'"),
        ({}, {"subject": "committer"}, "the subject of table 'commit'"),
        ({}, {"schema": "sha STRING, author STRING, committer STRING NOT NULL"}, "a NOT NULL column of table 'commit'"),
    ],
)
def test_a_cell_that_may_not_become_null_is_refused(source: dict[str, Any], kept: dict[str, Any], why: str) -> None:
    with pytest.raises(DeclarationError, match=re.escape(why)):
        build_declaration_graph(PIPELINE, [_commits(**source), _table(**kept)])


def test_whose_the_other_cells_are() -> None:
    made = build_declaration_graph(
        PIPELINE, [_commits(also_subjects=("committer", ("reviewer", "login")), domain="mail"), _table()]
    )
    assert subjects.find_other_subject_columns(made, made.sources["commits"]) == {"committer": "mail", "reviewer": "login"}
    assert subjects.find_other_subject_columns(made, made.tables["commit"]) == {"committer": "mail", "reviewer": "login"}
    assert made.domains() == ["login", "mail"]
    assert made.sources["commits"].private == made.tables["commit"].private == {"author", "committer", "reviewer"}, (
        "no statistics"
    )
    with pytest.raises(DeclarationError, match="also_subjects takes columns, or pairs"):
        _commits(also_subjects=(("a", "b", "c"),))


def _written(source: Source, path: Path, gone: set[int], emptied: dict[int, set[str]]) -> bytes:
    target = path.with_name("target")
    target.unlink(missing_ok=True)
    rewriting.write_without_records(source, path, path.name, gone, target, emptied)
    return target.read_bytes()


def test_json_fields_become_null_and_all_else_stays_as_it_came(tmp_path: Path) -> None:
    lines = [
        b'{"sha": 1.50, "committer" : "ada" , "x": {"committer": "bo"}, "Committer": ["a\\u00e4]}", 1e400]}\n',
        b'  {"committer":"ada","n":123456789012345678901234567890}\r\n',
        b'{"sha": 3, "committer": "ada"}',
    ]
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"".join(lines)))
    found = gzip.decompress(_written(_commits(), path, {2}, {0: {"committer"}, 1: {"committer", "sha"}}))
    assert found == (
        b'{"sha": 1.50, "committer" : null , "x": {"committer": "bo"}, "Committer": null}\n'
        b'  {"committer":null,"n":123456789012345678901234567890}\r\n'
    )
    document = tmp_path / "a.json"
    document.write_bytes(b'[{"sha": 1, "committer": "ada"}, {"sha": 2, "committer": "bo"}]')
    made = _written(_commits(multi_line=True), document, set(), {0: {"committer"}})
    assert made == b'{"sha": 1, "committer": null}\n{"sha": 2, "committer": "bo"}\n'


def test_csv_fields_become_empty(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes('sha;"committer ";text\r\n1;ada;"a ""b""; c"\r\n2;"ada";d\r\n3;bo;\u00e9'.encode("latin-1"))
    source = _commits(format="csv", delimiter=";", encoding="latin-1")
    found = _written(source, path, set(), {0: {"committer"}, 1: {"COMMITTER"}}).decode("latin-1")
    assert found == 'sha;"committer ";text\r\n1;;"a ""b""; c"\r\n2;;d\r\n3;bo;\u00e9'
    path.write_bytes(b"1,ada\n2,bo\n")
    bare = _commits(format="csv", header=False, schema="author STRING, committer STRING")
    assert _written(bare, path, {1}, {0: {"committer"}}) == b"1,\n"


def test_parquet_cells_become_null_and_leave_the_dictionary(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    names = pa.array(["ada-4711", "bo", "ada-4711", "bo"]).dictionary_encode()
    parquet.write_table(pa.table({"sha": [1, 2, 3, 4], "committer": names}), path, row_group_size=3)
    found = _written(_commits(format="parquet"), path, {1}, {0: {"committer"}, 2: {"committer"}})
    assert b"ada-4711" not in found
    rows = parquet.read_table(pa.BufferReader(found))
    assert rows.to_pylist() == [{"sha": 1, "committer": None}, {"sha": 3, "committer": None}, {"sha": 4, "committer": "bo"}]
