"""The options of the CSV dialect: each is defined once, and all code that reads, writes or scans rows gets all of them."""

from __future__ import annotations

from dataclasses import asdict, fields, replace

import pytest

import residue
from sluice.autoload.options import build_autoload_source
from sluice.declare import KafkaSource, Source
from sluice.declare.ingest.file_formats import CsvDialect
from sluice.errors import DeclarationError

OTHER = CsvDialect(delimiter=";", quote="'", header=False, encoding="latin-1")
OPTIONS = {one.name: getattr(OTHER, one.name) for one in fields(CsvDialect)}


def test_each_option_is_an_argument_of_a_source_which_carries_the_whole() -> None:
    source = Source(name="orders", format="csv", **OPTIONS)
    assert source.dialect == source.row_dialect == OTHER
    assert type(source.dialect) is CsvDialect, "and nothing else of the source"
    assert replace(source, format="json").row_dialect is None
    assert Source(name="orders").dialect == CsvDialect()


def test_each_option_is_one_of_autoload() -> None:
    assert build_autoload_source("orders", "in", "csv", OPTIONS).dialect == OTHER


def test_no_option_has_the_name_of_something_else_of_a_source() -> None:
    """One of the two would silently take the other's place."""
    others = {name for one in Source.__mro__ if one is not CsvDialect for name in vars(one).get("__annotations__", {})}
    assert "comment" in others and not others & {*OPTIONS}


def test_no_option_is_one_of_a_topic() -> None:
    for name, value in OTHER.list_changed_options().items():
        with pytest.raises(DeclarationError, match=f"{name} is an option of files"):
            KafkaSource(name="t", servers="h:1", topics=("t",), **{name: value})


def test_the_scan_knows_each_option_and_refuses_others() -> None:
    assert asdict(residue.TextDialect(**asdict(OTHER))) == asdict(OTHER)
    assert {one.name: one.default for one in fields(residue.TextDialect)} | {"delimiter": ","} == asdict(CsvDialect())
    with pytest.raises(TypeError, match="comment"):
        residue.TextDialect(**{"comment": "#"})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one character"):
        residue.TextDialect(delimiter="||")
    with pytest.raises(LookupError):
        residue.TextDialect(encoding="latin-one")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (CsvDialect(delimiter="||"), "delimiter and quote are one character each."),
        (CsvDialect(quote=""), "delimiter and quote are one character each."),
        (CsvDialect(encoding="latin-one"), "unknown encoding 'latin-one'."),
        (OTHER, None),
    ],
)
def test_a_wrong_option_is_told_in_a_sentence(said: CsvDialect, told: str | None) -> None:
    assert said.find_dialect_mistake() == told
    if told:
        with pytest.raises(DeclarationError, match=f"^Source 'orders': {told}$"):
            Source(name="orders", format="csv", **asdict(said))


def test_a_source_is_written_as_it_was_before_its_dialect_was_a_thing_of_its_own() -> None:
    """A transform that names a source has the source's repr in its fingerprint: another order would make its table stale."""
    written = repr(Source(name="orders", format="csv", **OPTIONS))
    assert written.startswith(
        "Source(name='orders', format='csv', path='orders', comment='', pattern='*', multi_line=False, "
        "delimiter=';', quote=\"'\", header=False, encoding='latin-1', "
    )
    assert " path_columns=True, most_bytes=10000000000," in written


def test_only_what_is_not_as_it_is_by_itself_is_listed() -> None:
    assert CsvDialect(delimiter="\t").list_changed_options() == {"delimiter": "\t"}
    assert OTHER.list_changed_options() == {"delimiter": ";", "quote": "'", "header": False, "encoding": "latin-1"}
