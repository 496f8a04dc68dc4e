"""What is wrong with declarations only beside each other: names that are declared twice or name nothing, inputs that may not be read, layouts.

Where several sources go into one bronze table (`into`), also checks that they agree in what its records must have in common.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sluice.declare.cdc.change_log import is_truncate_log
from sluice.declare.datasets.computed import TemporaryView
from sluice.declare.datasets.dataset import AnyDataset, Dataset
from sluice.declare.datasets.tables import Table
from sluice.declare.expansion import DeclarationsByKind, Declared
from sluice.declare.ingest.field_names import is_reserved_column
from sluice.declare.ingest.source import Source
from sluice.declare.pipeline import Pipeline, parse_duration
from sluice.declare.sql.schema import parse_column_types, split_schema_declaration
from sluice.declare.table_layout import Layout
from sluice.errors import nearest_name_hint
from sluice.flow_counts import ALERT_COUNTS
from sluice.pipeline_records import name_quarantine

DeclaredByName = Mapping[str, Source | Dataset[Any]]


def find_duplicate_names(declared: Sequence[Declared]) -> Iterator[str]:
    """Yields the mistake of each name that is declared twice."""
    seen: dict[str, Declared] = {}
    for item in declared:
        first = seen.setdefault(item.name, item)
        if first is not item and (same := first.serves or item.serves):
            yield f"'{item.name}' is the name of a table that '{same}' keeps for itself; give the other declaration another name."
        elif first is not item:
            call_sites = "; ".join(one.declared_at for one in (first, item) if one.declared_at)
            yield (
                f"two declarations are named '{item.name}'{f' ({call_sites})' if call_sites else ''}. The names of all layers are one set: "
                "give one of them another name."
            )


def find_names_of_kept_tables(declared: Iterable[Declared], pipeline: str) -> Iterator[str]:
    """Yields the mistake of each declaration that has the name of a stream's late rows or of a quarantine."""
    by_name = {item.name: item for item in declared}
    yield from _find_names_of_late_tables(by_name)
    for item in by_name.values():
        if item.kind.sets_rows_aside and name_quarantine(item.name) in by_name:
            yield (
                f"'{name_quarantine(item.name)}' is the table in which Sluice keeps the rows that {item.mention} sets aside; give the other "
                f"declaration another name. To read those rows: sluice quarantine show {pipeline} {item.name}"
            )


def _find_names_of_late_tables(by_name: Mapping[str, Declared]) -> Iterator[str]:
    for stream in by_name.values():
        if stream.late in by_name:
            yield f"'{stream.late}' is the table in which '{stream.name}' keeps late rows; give the other declaration another name."


def find_layout_mistakes(pipeline: Pipeline, declared: DeclaredByName) -> Iterator[str]:
    """Yields what is wrong with declared layouts, as sentences. declared: the stored declarations by name."""
    for name, item in declared.items():
        if item.layout is not None:
            readers = sorted(one.name for one in declared.values() if name in one.streamed_reads)
            yield from (
                f"{item.mention}: {mistake}" for mistake in _find_layout_mistakes_of(pipeline, item, item.layout, readers)
            )


def _find_layout_mistakes_of(
    pipeline: Pipeline, item: Source | Dataset[Any], layout: Layout, readers: list[str]
) -> Iterator[str]:
    if isinstance(item, Source):
        yield from _find_source_mistakes(item, layout)
    if not layout.change_feed and readers:
        yield f"layout.change_feed is False, but '{readers[0]}' follows the table's changes by its feed. Leave it out, or let nothing read the table."
    retain = layout.retain or pipeline.retain
    if layout.retain and pipeline.deadline and parse_duration(layout.retain) < parse_duration(pipeline.deadline):
        yield (
            f"layout.retain ('{layout.retain}') is shorter than the deadline= of the pipeline ('{pipeline.deadline}'): until its end, a run "
            f"reads the version that a table had at its start."
        )
    if layout.keep_log and not layout.retain and parse_duration(layout.keep_log) < parse_duration(retain):
        yield (
            f"layout.keep_log ('{layout.keep_log}') is shorter than the retain= of the pipeline ('{retain}'); a log says which files are kept."
        )
    waits = pipeline.vacuum_waits
    if layout.keep_log and waits and readers and parse_duration(layout.keep_log) < parse_duration(waits):
        yield (
            f"layout.keep_log ('{layout.keep_log}') is shorter than the vacuum_waits= of the pipeline ('{waits}'): '{readers[0]}' may be "
            f"that far behind, and continues from the log."
        )


def _find_source_mistakes(source: Source, layout: Layout) -> Iterator[str]:
    if source.into:
        yield f"layout belongs to a table, and the records go into '{source.into}'. Declare it there."
    columns = split_schema_declaration(source.ddl, f"Source '{source.name}'").columns if source.ddl else ()
    for name in layout.statistics_columns:
        if is_reserved_column(name):
            yield f"layout.statistics names '{name}', which Sluice, Delta or Spark uses itself. Leave it out."
        elif columns and name not in columns:
            yield f"layout.statistics names '{name}', no column of its schema=.{nearest_name_hint(name, columns)}"


def find_input_mistakes(stored: list[Source | AnyDataset], given: DeclarationsByKind) -> list[str]:
    """Returns all mistakes, one per text. stored: the declarations, expanded; given: as they were declared."""
    return [*_find_stored_input_mistakes(stored, given), *_find_view_input_mistakes(stored, given)]


def _find_stored_input_mistakes(declared: list[Source | AnyDataset], given: DeclarationsByKind) -> Iterator[str]:
    """given: as declared; checks what a view reads through a computed view at that computed view."""
    kinds = {item.name: item for item in declared}
    computed = {item.name for item in given.computed}
    sources = {one.name: one for one in DeclarationsByKind(declared).sources}
    read_by = {item.name: item.reads for item in given.views}
    known = _readable_names(declared, given)
    for item in DeclarationsByKind(declared).datasets:
        for name in read_by.get(item.name, item.reads):
            read = kinds.get(name)
            if name in computed and not item.kind.reads_computed:
                yield f"{item.mention} reads the @view '{name}'; only a @materialized_view or another @view does."
            elif name not in computed:
                yield from _find_read_mistakes(item.mention, name, read, given.unstored, known)
            if read is not None and item.kind.may_read is not None and read.kind.name not in item.kind.may_read:
                yield f"{item.mention} reads '{name}'{item.kind.reads_others.format(read=read.kind.name)}"
            if not isinstance(item, Table) and name not in computed:
                yield from _find_replaced_record_mistakes(item.mention, read, sources)
        if isinstance(item, Table):
            yield from _find_table_source_mistakes(item, sources)


def _find_view_input_mistakes(declared: list[Source | AnyDataset], given: DeclarationsByKind) -> Iterator[str]:
    kinds = {item.name: item for item in declared}
    names = {view.name for view in given.computed}
    sources = {one.name: one for one in DeclarationsByKind(declared).sources}
    known = _readable_names(declared, given)
    for view in given.computed:
        for name in view.reads:
            if name not in names:
                yield from _find_read_mistakes(view.mention, name, kinds.get(name), given.unstored, known)
                yield from _find_replaced_record_mistakes(view.mention, kinds.get(name), sources)


def _find_read_mistakes(
    called: str, name: str, read: Source | AnyDataset | None, unstored: Sequence[TemporaryView], known: Iterable[str]
) -> Iterator[str]:
    """Yields what is wrong with reading this name, for any reader."""
    if read is None and name in {view.name for view in unstored}:
        yield f"{called} reads the temporary view '{name}'; only row-local declarations may, such as @table and auto_cdc."
    elif read is None:
        yield f"{called} reads '{name}', which is not declared.{nearest_name_hint(name, known)}"
    elif read.into:
        yield f"{called} reads '{name}', whose records go into '{read.into}': write reads='{read.into}'."


def _find_replaced_record_mistakes(called: str, read: Source | AnyDataset | None, sources: Mapping[str, Source]) -> Iterator[str]:
    """Yields what is wrong if a reader of bronze would count the records of replaced files too: only a table leaves them out."""
    if isinstance(read, Source) and not read.into and any(one.replaces_files for one in _list_feeding_sources(read, sources)):
        yield (
            f"{called} reads '{read.name}', whose bronze table keeps the replaced versions of files too (redelivery='replace'): "
            "read a @table of it."
        )


def _readable_names(declared: list[Source | AnyDataset], given: DeclarationsByKind) -> list[str]:
    """The names that a declaration may have meant."""
    stored = (item.name for item in declared if not item.serves)
    return [*stored, *(view.name for view in (*given.unstored, *given.computed))]


def _find_table_source_mistakes(table: Table[Any], sources: Mapping[str, Source]) -> Iterator[str]:
    source, owner = sources.get(table.reads[0]), table.mention
    if len(table.reads) != 1:
        yield f"{owner} reads {len(table.reads)} sources; a @table reads one."
    elif source is None:
        return
    elif source.subject and not table.subject and not is_truncate_log(table):
        yield f"{owner} reads '{source.name}', whose records have a subject: say which column of the table it is (subject=)."
    elif table.subject and not source.subject:
        yield f"{owner} has a subject, its source '{source.name}' has none: say which column it is there (subject=)."
    elif table.key_in_one_file and not _has_replacing_redelivery(source, sources):
        yield f"{owner} declares key_in_one_file, which needs a source with redelivery='replace'."


def _has_replacing_redelivery(source: Source, sources: Mapping[str, Source]) -> bool:
    """Whether every source of its table has redelivery "replace", by which the latest version of a file replaces earlier ones."""
    return all(one.replaces_files for one in _list_feeding_sources(source, sources))


def _list_feeding_sources(source: Source, sources: Mapping[str, Source]) -> list[Source]:
    """Returns the source of a bronze table and those that go into it."""
    return [source, *(item for item in sources.values() if item.into == source.name)]


def find_shared_table_mistakes(sources: Mapping[str, Source], others: frozenset[str]) -> Iterator[str]:
    """Yields what is wrong with sources that go into another source's table, one per line. others: declared names that are no sources."""
    for source in sources.values():
        if source.into is None:
            continue
        main = sources.get(source.into)
        if main is None and source.into in others:
            yield f"source '{source.name}' goes into '{source.into}', which is no source."
        elif main is None:
            yield f"source '{source.name}' goes into '{source.into}', which is not declared.{nearest_name_hint(source.into, sources)}"
        elif main.into is not None:
            yield f"source '{source.name}' goes into '{main.name}', which goes into '{main.into}' itself: write into='{main.into}'."
        else:
            yield from _find_source_differences(source, main)


def _find_source_differences(source: Source, main: Source) -> Iterator[str]:
    pair = f"source '{source.name}' goes into '{main.name}', so"
    if source.subject != main.subject:
        yield f"{pair} both need the same subject; it says {_quote_or_none(source.subject)}, '{main.name}' {_quote_or_none(main.subject)}."
    elif source.domain != main.domain:
        yield f"{pair} both need the same domain; it says {_quote_or_none(source.domain)}, '{main.name}' {_quote_or_none(main.domain)}."
    if source.subject_in != main.subject_in:
        yield f"{pair} both need the same subject_in; it says {_quote_or_none(source.subject_in)}, '{main.name}' {_quote_or_none(main.subject_in)}."
    if source.subject_at != main.subject_at:
        yield f"{pair} both need the same subject_at; it says {_quote_or_none(source.subject_at)}, '{main.name}' {_quote_or_none(main.subject_at)}."
    if source.private != main.private:
        column = min(source.private ^ main.private)
        yield f"{pair} both need the same personal columns; '{column}' is personal in only one of them."
    if source.dated_by != main.dated_by:
        yield f"{pair} both need the same dated_by; it says {_quote_or_none(source.dated_by)}, '{main.name}' {_quote_or_none(main.dated_by)}."
    if (source.ddl is None) != (main.ddl is None):
        yield f"{pair} both or neither must declare a schema; only '{(source if source.ddl else main).name}' has one."
    elif source.ddl and main.ddl and _lowercase_column_types(source.ddl) != _lowercase_column_types(main.ddl):
        names = {
            name for name, _ in set(_lowercase_column_types(source.ddl).items()) ^ set(_lowercase_column_types(main.ddl).items())
        }
        yield f"{pair} both need the same schema; column '{min(names)}' is not the same in both."
    elif source.infer_types != main.infer_types:
        yield f"{pair} both need the same infer_types."


def _quote_or_none(value: str | None) -> str:
    return f"'{value}'" if value else "none"


def _lowercase_column_types(ddl: str) -> dict[str, str]:
    """The columns of DDL text with their types, in lower case, since Delta ignores the case of names."""
    return {name.lower(): kind for name, kind in parse_column_types(ddl).items()}


def find_rule_mistakes(pipeline: Pipeline, declared: DeclaredByName) -> list[str]:
    """Returns all mistakes, one per text."""
    return [*_find_alert_mistakes(pipeline, declared), *_find_reference_mistakes(pipeline, declared)]


def _find_alert_mistakes(pipeline: Pipeline, declared: DeclaredByName) -> Iterator[str]:
    """Yields alerts on rules that no table has: such an alert would never be sent."""
    for named in pipeline.alert_when:
        name, _, rule = named.partition(".")
        if name not in declared:
            yield f"alert_when names the table '{name}'.{nearest_name_hint(name, declared)}"
            continue
        known = (*_rule_names(declared[name]), *ALERT_COUNTS)
        log = next((one for one in declared.values() if one.serves == name), None)
        if log is not None and rule in (*_rule_names(log), *ALERT_COUNTS):
            yield f"alert_when names '{named}'; the rows of its feed are judged in its change log: write '{log.name}.{rule}'."
        elif rule not in known:
            yield f"alert_when names '{named}'; '{name}' has no such rule.{nearest_name_hint(rule, known)}"


def _rule_names(item: Source | Dataset[Any]) -> list[str]:
    return [rule.name for rule in (*item.expectations, *item.table_expectations)]


def _find_reference_mistakes(pipeline: Pipeline, declared: DeclaredByName) -> Iterator[str]:
    for item in declared.values():
        for rule in item.table_expectations:
            if rule.refers_to is not None:
                yield from _find_referenced_table_mistakes(pipeline, declared, item, rule.name, rule.refers_to)


def _find_referenced_table_mistakes(
    pipeline: Pipeline, declared: DeclaredByName, item: Source | Dataset[Any], rule: str, refers_to: str
) -> Iterator[str]:
    owner, other = f"table '{item.name}', expectation '{rule}'", declared.get(refers_to)
    if other is None:
        yield f"{owner} refers to '{refers_to}', which is not declared.{nearest_name_hint(refers_to, declared)}"
    elif other.into:
        yield f"{owner} refers to '{refers_to}', whose records go into '{other.into}': write of='{other.into}'."
    elif _layer_position(pipeline, other) > _layer_position(pipeline, item):
        yield (
            f"{owner} refers to '{refers_to}', which is in a later layer and made only after it. "
            f"Let '{refers_to}' expect what it needs of '{item.name}', or refer to a table that it is made from."
        )


def _layer_position(pipeline: Pipeline, item: Source | Dataset[Any]) -> int:
    """The position of its layer, counted from the lowest. Another check refuses a declaration in no layer."""
    module = item.find_layer_module(pipeline.layers)
    return pipeline.layers.index(module) if module in pipeline.layers else 0
