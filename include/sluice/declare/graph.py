"""A pipeline's declarations together: who reads whom, in which layer, in which order. Wrong ones are errors here, before any data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from sluice.declare import into, rule_checks
from sluice.declare.change_log import of_truncates
from sluice.declare.expansion import Declared, expanded
from sluice.declare.pipeline import Pipeline
from sluice.declare.source import Source
from sluice.declare.tables import Dataset, MaterializedView, Table, TemporaryView, with_private
from sluice.errors import DeclarationError, UsageError, nearest
from sluice.settings import Settings

AnyDataset = Dataset[Any]


@dataclass(frozen=True)
class Graph:
    """Checked declarations of one pipeline. tables and views are in an order in which every input comes before its readers."""

    pipeline: Pipeline
    sources: Mapping[str, Source]
    tables: Mapping[str, Table[Any]]
    views: Mapping[str, MaterializedView[Any]]

    def __iter__(self) -> Iterator[Source | AnyDataset]:
        yield from self.sources.values()
        yield from self.tables.values()
        yield from self.views.values()

    def __getitem__(self, name: str) -> Source | AnyDataset:
        """The declaration of that name. Raises UsageError with the nearest name."""
        for declared in self:
            if declared.name == name:
                return declared
        known = [declared.name for declared in self]
        raise UsageError(f"Pipeline '{self.pipeline.name}' has no table '{name}'.{nearest(name, known)}")

    def feeding(self, name: str) -> tuple[Source, ...]:
        """The sources whose records are in the bronze table of a source: the one that it is named after first, then those that go into it."""
        table = self.sources[name].table
        return (self.sources[table], *(source for source in self.sources.values() if source.into == table))

    def table_of(self, name: str) -> str:
        """The table that a declaration's flow writes: its own, or that of the source that it goes into. Raises UsageError as `[]` does."""
        declared = self[name]
        return declared.table if isinstance(declared, Source) else name

    def location(self, settings: Settings, name: str) -> str:
        """Where the table of a declaration lies: in its layer, under the restricted root, or among the pipeline's own records."""
        declared, pipeline = self[name], self.pipeline.name
        restricted = isinstance(declared, Dataset) and declared.restricted
        if isinstance(declared, Dataset) and declared.place is not None:
            return settings.bookkeeping(pipeline, declared.place, restricted=restricted)
        return settings.table_path(pipeline, self.layer(declared), self.table_of(name), restricted=restricted)

    def layer(self, declared: Source | AnyDataset) -> str:
        """The layer's name: that of the module that declares it; of a source, the lowest."""
        module = self.pipeline.layers[0] if isinstance(declared, Source) else declared.module
        return module.rsplit(".", 1)[-1]

    def domain(self, declared: Source | AnyDataset) -> str | None:
        """What kind of identifier a table's subject is: the name of the subject's column in its source. None where it has no subject."""
        if isinstance(declared, Table):
            return self.sources[declared.reads[0]].subject
        return declared.subject if isinstance(declared, Source) else None

    def in_layer(self, layer: str) -> list[Source | AnyDataset]:
        """The declarations of a layer, inputs before readers."""
        return [declared for declared in self if self.layer(declared) == layer]

    def kept_for(self, name: str) -> tuple[str, ...]:
        """The names of the tables that Sluice keeps for a declared one: the logs of an `auto_cdc`."""
        return tuple(table.name for table in self.tables.values() if table.serves == name)

    def below(self, name: str) -> set[str]:
        """The names of everything that reads `name`, directly or through others; of a source, the table that its records go into."""
        found: set[str] = set()
        read = self.table_of(name)
        for dataset in (*self.tables.values(), *self.views.values()):
            if set(dataset.reads) & ({read} | found):
                found.add(dataset.name)
        return found


def graph(pipeline: Pipeline, declared: Iterable[Declared]) -> Graph:
    """Check declarations against each other. Raises DeclarationError with all mistakes, one a line."""
    given = list(declared)
    everything = expanded(given)
    sources = {item.name: item for item in everything if isinstance(item, Source)}
    shared = into.mistakes(sources, frozenset(item.name for item in everything) - frozenset(sources))
    unstored = [item for item in given if isinstance(item, TemporaryView)]
    inputs = _inputs(everything, [view.name for view in unstored])
    mistakes = [*_duplicates([*everything, *unstored]), *shared, *inputs, *_layers(pipeline, everything)]
    if mistakes:
        raise DeclarationError("\n".join(f"Pipeline '{pipeline.name}': {mistake}" for mistake in dict.fromkeys(mistakes)))
    ordered = _ordered(pipeline, everything)
    complete: dict[str, Source | AnyDataset] = {}
    for item in ordered:
        complete[item.name] = item if isinstance(item, Source) else _inheriting(item, complete)
    shown = {name for name, item in complete.items() if isinstance(item, Source) or not item.serves}
    unknown = [name for name in pipeline.publishes if name not in shown]
    if unknown:
        raise DeclarationError(f"Pipeline '{pipeline.name}': publishes '{unknown[0]}'.{nearest(unknown[0], shown)}")
    mistakes = rule_checks.mistakes(pipeline, complete)
    if mistakes:
        raise DeclarationError("\n".join(f"Pipeline '{pipeline.name}': {mistake}" for mistake in mistakes))
    return Graph(
        pipeline=pipeline,
        sources={n: d for n, d in complete.items() if isinstance(d, Source)},
        tables={n: d for n, d in complete.items() if isinstance(d, Table)},
        views={n: d for n, d in complete.items() if isinstance(d, MaterializedView)},
    )


def _inheriting(dataset: AnyDataset, inputs: Mapping[str, Source | AnyDataset]) -> AnyDataset:
    private = frozenset().union(*(inputs[name].private for name in dataset.reads))
    return with_private(dataset, private)


def _duplicates(declared: Sequence[Source | AnyDataset | TemporaryView]) -> Iterator[str]:
    seen: dict[str, Source | AnyDataset | TemporaryView] = {}
    for item in declared:
        same = [one for one in (seen.get(item.name), item) if isinstance(one, Dataset) and one.serves]
        if item.name in seen and same:
            yield f"'{item.name}' is the name of what '{same[0].serves}' keeps for itself; give the other declaration another name."
        elif item.name in seen:
            yield f"two declarations are named '{item.name}'."
        seen[item.name] = item


def _called(dataset: AnyDataset) -> str:
    """How messages call a dataset: one that Sluice keeps, by what it is kept for."""
    return f"table '{dataset.serves or dataset.name}'"


def _inputs(declared: list[Source | AnyDataset], unstored: Sequence[str]) -> Iterator[str]:
    kinds = {item.name: item for item in declared}
    known = [*(item.name for item in declared if isinstance(item, Source) or not item.serves), *unstored]
    for item in declared:
        if isinstance(item, Source):
            continue
        for name in item.reads:
            read = kinds.get(name)
            if read is None and name in unstored:
                yield f"{_called(item)} reads the temporary view '{name}'; only what is made row by row does, as @table and auto_cdc."
            elif read is None:
                yield f"{_called(item)} reads '{name}', which is not declared.{nearest(name, known)}"
            elif isinstance(read, Source) and read.into:
                yield f"{_called(item)} reads '{name}', whose records go into '{read.into}': write reads='{read.into}'."
            elif isinstance(item, Table) and not isinstance(read, Source):
                yield f"{_called(item)} reads '{name}', which is no source; a @materialized_view reads tables and views."
        if isinstance(item, Table):
            yield from _of_source(item, kinds)


def _of_source(table: Table[Any], declared: Mapping[str, Source | AnyDataset]) -> Iterator[str]:
    source, called = declared.get(table.reads[0]), _called(table)
    if len(table.reads) != 1:
        yield f"{called} reads {len(table.reads)} sources; a @table reads one."
    elif isinstance(source, Source) and source.subject and not table.subject and not of_truncates(table):
        yield f"{called} reads '{source.name}', whose records have a subject: say which column of the table it is (subject=)."
    elif isinstance(source, Source) and table.subject and not source.subject:
        yield f"{called} has a subject, its source '{source.name}' has none: say which column it is there (subject=)."
    elif isinstance(source, Source) and table.key_in_one_file and not _replacing(source, declared):
        yield f"{called} declares key_in_one_file, which needs a source with redelivery='replace'."


def _replacing(source: Source, declared: Mapping[str, Source | AnyDataset]) -> bool:
    """Whether in every source of its table the latest version of a file takes the place of the earlier ones."""
    feeding = [source, *(item for item in declared.values() if isinstance(item, Source) and item.into == source.name)]
    return all(one.redelivery == "replace" for one in feeding)


def _layers(pipeline: Pipeline, declared: list[Source | AnyDataset]) -> Iterator[str]:
    for item in declared:
        if not isinstance(item, Source) and item.module not in pipeline.layers[1:]:
            yield f"{_called(item)} is declared in '{item.module}', which is no layer above the sources': {pipeline.layers[1:]}."


def _ordered(pipeline: Pipeline, declared: list[Source | AnyDataset]) -> list[Source | AnyDataset]:
    by_name = {item.name: item for item in declared}
    edges = {item.name: ((item.into,) if item.into else ()) if isinstance(item, Source) else item.reads for item in declared}
    try:
        return [by_name[name] for name in TopologicalSorter(edges).static_order()]
    except CycleError as error:
        raise DeclarationError(
            f"Pipeline '{pipeline.name}': tables read each other in a circle: {' > '.join(error.args[1])}."
        ) from None
