"""Whether what declarations read is there, and of a kind that they may read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sluice.declare.cdc.change_log import of_truncates
from sluice.declare.datasets.computed import View
from sluice.declare.datasets.tables import Dataset, MaterializedView, Table, TemporaryView
from sluice.declare.datasets.windowed import Windowed
from sluice.declare.expansion.stored import Declared
from sluice.declare.ingest.source import Source
from sluice.errors import nearest

AnyDataset = Dataset[Any]


def mistakes(stored: list[Source | AnyDataset], given: Sequence[Declared]) -> list[str]:
    """All mistakes, one a text. stored: the declarations, expanded; given: as they were declared."""
    unstored = [item for item in given if isinstance(item, TemporaryView)]
    computed = [item for item in given if isinstance(item, View)]
    return [*_inputs(stored, unstored, given), *_inputs_of_views(stored, unstored, computed)]


def called(item: AnyDataset | View[Any]) -> str:
    """How messages call a declaration: a table that Sluice keeps, by what it is kept for."""
    return f"@view '{item.name}'" if isinstance(item, View) else f"table '{item.serves or item.name}'"


def _inputs(declared: list[Source | AnyDataset], unstored: Sequence[TemporaryView], given: Sequence[Declared]) -> Iterator[str]:
    """given: as declared; what a view reads through a computed one is looked at there."""
    kinds = {item.name: item for item in declared}
    computed = {item.name for item in given if isinstance(item, View)}
    read_by = {item.name: item.reads for item in given if isinstance(item, MaterializedView)}
    known = _known(declared, unstored, computed)
    for item in declared:
        if isinstance(item, Source):
            continue
        for name in read_by.get(item.name, item.reads):
            read = kinds.get(name)
            if name in computed and not isinstance(item, MaterializedView):
                yield f"{called(item)} reads the @view '{name}'; only a @materialized_view or another @view does."
            elif name not in computed:
                yield from _input(called(item), name, read, unstored, known)
            if isinstance(item, Table) and read is not None and not isinstance(read, Source):
                yield f"{called(item)} reads '{name}', which is no source; a @materialized_view reads tables and views."
            elif isinstance(item, Windowed) and isinstance(read, MaterializedView | Windowed):
                yield f"{called(item)} reads '{name}'; a @windowed reads sources and tables, whose rows mostly are only added."
        if isinstance(item, Table):
            yield from _of_source(item, kinds)


def _inputs_of_views(
    declared: list[Source | AnyDataset], unstored: Sequence[TemporaryView], views: Sequence[View[Any]]
) -> Iterator[str]:
    kinds = {item.name: item for item in declared}
    names = {view.name for view in views}
    known = _known(declared, unstored, names)
    for view in views:
        for name in view.reads:
            if name not in names:
                yield from _input(called(view), name, kinds.get(name), unstored, known)


def _input(
    called: str, name: str, read: Source | AnyDataset | None, unstored: Sequence[TemporaryView], known: Iterable[str]
) -> Iterator[str]:
    """What is wrong with reading this name, whoever does."""
    if read is None and name in {view.name for view in unstored}:
        yield f"{called} reads the temporary view '{name}'; only what is made row by row does, as @table and auto_cdc."
    elif read is None:
        yield f"{called} reads '{name}', which is not declared.{nearest(name, known)}"
    elif isinstance(read, Source) and read.into:
        yield f"{called} reads '{name}', whose records go into '{read.into}': write reads='{read.into}'."


def _known(declared: list[Source | AnyDataset], unstored: Sequence[TemporaryView], computed: Iterable[str]) -> list[str]:
    """The names that a declaration may have meant."""
    stored = (item.name for item in declared if isinstance(item, Source) or not item.serves)
    return [*stored, *(view.name for view in unstored), *computed]


def _of_source(table: Table[Any], declared: Mapping[str, Source | AnyDataset]) -> Iterator[str]:
    source, owner = declared.get(table.reads[0]), called(table)
    if len(table.reads) != 1:
        yield f"{owner} reads {len(table.reads)} sources; a @table reads one."
    elif isinstance(source, Source) and source.subject and not table.subject and not of_truncates(table):
        yield f"{owner} reads '{source.name}', whose records have a subject: say which column of the table it is (subject=)."
    elif isinstance(source, Source) and table.subject and not source.subject:
        yield f"{owner} has a subject, its source '{source.name}' has none: say which column it is there (subject=)."
    elif isinstance(source, Source) and table.key_in_one_file and not _replacing(source, declared):
        yield f"{owner} declares key_in_one_file, which needs a source with redelivery='replace'."


def _replacing(source: Source, declared: Mapping[str, Source | AnyDataset]) -> bool:
    """Whether in every source of its table the latest version of a file takes the place of the earlier ones."""
    feeding = [source, *(item for item in declared.values() if isinstance(item, Source) and item.into == source.name)]
    return all(one.redelivery == "replace" for one in feeding)
