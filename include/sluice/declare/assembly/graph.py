"""A pipeline's declarations together: what reads what, in which layer, in which order. Mistakes raise errors before any data is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any

from sluice.declare.assembly import kept_fields
from sluice.declare.assembly.mistakes import (
    find_duplicate_names,
    find_input_mistakes,
    find_layout_mistakes,
    find_names_of_kept_tables,
    find_rule_mistakes,
    find_shared_table_mistakes,
)
from sluice.declare.datasets.computed import TemporaryView, View, find_role_view_mistakes
from sluice.declare.datasets.dataset import AnyDataset
from sluice.declare.datasets.materialized_views import MaterializedView
from sluice.declare.datasets.tables import Table
from sluice.declare.datasets.windowed import Windowed
from sluice.declare.erasure import identifiers, subject_checks, subject_types, unreachable_places
from sluice.declare.erasure.identifiers import ErasureRequests, Link
from sluice.declare.expansion import DeclarationsByKind, Declared, expand_declarations, resolve_computed_views
from sluice.declare.ingest.source import Source
from sluice.declare.pipeline import Pipeline
from sluice.declare.privacy.treat import AS_TEXT, Canonical, Hmac
from sluice.errors import DeclarationError, UsageError, nearest_name_hint

PSEUDONYM = "pseudonym"
"""The domain of the values that `treat.hmac` stores instead of identifiers."""


@dataclass(frozen=True)
class Graph:
    """The checked declarations of one pipeline. stored: those with a table, by name, every input before its readers.

    computed: the @views; they are not stored, so iteration leaves them out. links: which identifiers belong to which person. asking:
    the declarations of rows that request an erasure. unstored: the temporary views. forms: by domain, the form in which its identifiers
    are compared, if it is not text.
    """

    pipeline: Pipeline
    stored: Mapping[str, Source | AnyDataset]
    computed: Mapping[str, View[Any]] = field(default_factory=dict)
    links: tuple[Link, ...] = ()
    asking: tuple[ErasureRequests, ...] = ()
    unstored: Mapping[str, TemporaryView] = field(default_factory=dict)
    forms: Mapping[str, Canonical] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Source | AnyDataset]:
        yield from self.stored.values()

    def __getitem__(self, name: str) -> Source | AnyDataset:
        """The declaration of that name. Raises UsageError with the nearest name."""
        if name in self.stored:
            return self.stored[name]
        if name in self.computed:
            raise UsageError(
                f"'{name}' of pipeline '{self.pipeline.name}' is a @view: computed when it is read, it has no table."
            )
        known = [declared.name for declared in self]
        raise UsageError(f"Pipeline '{self.pipeline.name}' has no table '{name}'.{nearest_name_hint(name, known)}")

    @cached_property
    def _by_kind(self) -> DeclarationsByKind:
        return DeclarationsByKind(self)

    @cached_property
    def sources(self) -> Mapping[str, Source]:
        """The file sources and topics."""
        return {one.name: one for one in self._by_kind.sources}

    @cached_property
    def datasets(self) -> Mapping[str, AnyDataset]:
        """Every stored declaration except the sources."""
        return {one.name: one for one in self._by_kind.datasets}

    @cached_property
    def tables(self) -> Mapping[str, Table[Any]]:
        """The tables declared with @table."""
        return {one.name: one for one in self._by_kind.tables}

    @cached_property
    def views(self) -> Mapping[str, MaterializedView[Any]]:
        """The views declared with @materialized_view."""
        return {one.name: one for one in self._by_kind.views}

    @cached_property
    def streams(self) -> Mapping[str, Windowed[Any]]:
        """The streams declared with @windowed."""
        return {one.name: one for one in self._by_kind.streams}

    def feeding(self, name: str) -> tuple[Source, ...]:
        """The sources whose records go into a source's bronze table: first the source it is named after, then the others."""
        table = self.sources[name].table
        return (self.sources[table], *(source for source in self.sources.values() if source.into == table))

    def sharing(self, declared: Source | AnyDataset) -> tuple[Source | AnyDataset, ...]:
        """All declarations whose rows are in this one's table: for a source all that feed the table, else the declaration alone."""
        return self.feeding(declared.name) if declared.name in self.sources else (declared,)

    def table_of(self, name: str) -> str:
        """The table that a declaration's flow writes: its own, or that of the source it goes into. Raises UsageError as `[]` does."""
        return self[name].table

    def layer(self, declared: Source | AnyDataset) -> str:
        """The layer's name: that of the module that declares it; for a source, the lowest."""
        return declared.find_layer_module(self.pipeline.layers).rsplit(".", 1)[-1]

    def flow_name(self, declared: Source | AnyDataset) -> str:
        """The name of a declaration's flow in checkpoints, commits and reports. A source's does not depend on its layer's name."""
        return declared.name_flow(self.layer(declared))

    def domain(self, declared: Source | AnyDataset) -> str | None:
        """The kind of identifier that a table's subject is: its source's domain. None if the source has no subject."""
        return (self.sources[declared.folded_source].domain or None) if declared.folded_source else None

    def domains(self) -> list[str]:
        """All kinds of identifiers by which a person's erasure can be requested."""
        found = {source.domain for source in self.sources.values() if source.domain}
        found |= {domain for link in self.links for _, domain in (link.person, link.identifier)}
        found |= {domain for source in self.sources.values() for _, domain in source.also_subjects}
        return sorted(found | ({PSEUDONYM} if found and self.pseudonyms() else set()))

    def canonical(self, domain: str) -> Canonical:
        """The form in which identifiers of a domain are compared. A former name of a domain has the form of that domain."""
        former = (self.forms[one] for one in self.forms if domain in self.former(one))
        return self.forms[domain] if domain in self.forms else next(former, AS_TEXT)

    def pseudonyms(self) -> list[tuple[str, Hmac]]:
        """The treatments that make pseudonyms, each with the name of its table."""
        return [(one.name, how) for one in self for how in one.treatments.values() if isinstance(how, Hmac)]

    def changing_hands(self) -> frozenset[str]:
        """The domains whose identifiers belong to one person only for a time."""
        return frozenset(link.identifier[1] for link in self.links if link.since)

    def former(self, domain: str) -> frozenset[str]:
        """The former names of a domain: before sources had `domain`, erased people were listed under the name of the subject column."""
        domains = {source.domain for source in self.sources.values()}
        return frozenset(one.subject for one in self.sources.values() if one.domain == domain and one.subject) - domains

    def in_layer(self, layer: str) -> list[Source | AnyDataset]:
        """The declarations of a layer, inputs before readers."""
        return [declared for declared in self if self.layer(declared) == layer]

    def kept_for(self, name: str) -> tuple[str, ...]:
        """The names of the tables that Sluice keeps for a declared one: the logs of an `auto_cdc`."""
        return tuple(table.name for table in self.tables.values() if table.serves == name)

    def find_asked_columns(self, name: str) -> tuple[str, ...]:
        """The columns by which queries select a table's rows: as declared, else the keys of the views that read it, else its own."""
        declared = self[name]
        readers = [key for view in self.views.values() if name in view.reads for key in view.keys]
        return tuple(dict.fromkeys(declared.asked_by or readers or declared.keys))

    def below(self, name: str) -> set[str]:
        """The names of everything that reads `name`, directly or through others; for a source, what reads the table it goes into."""
        found: set[str] = set()
        read = self.table_of(name)
        for dataset in self.datasets.values():
            if set(dataset.reads) & ({read} | found):
                found.add(dataset.name)
        return found


def build_declaration_graph(
    pipeline: Pipeline, declared: Iterable[Declared], links: Iterable[Link] = (), asking: Iterable[ErasureRequests] = ()
) -> Graph:
    """Checks declarations against each other. Raises DeclarationError with all mistakes, one per line."""
    given = DeclarationsByKind(declared)
    _refuse_mistakes(pipeline, find_duplicate_names(tuple(given)))  # else one of the two would seem to read the other's inputs
    _refuse_circular_reads(pipeline, given)
    everything = expand_declarations(given)
    stored, computed, unstored = DeclarationsByKind(everything), given.computed, given.unstored
    sources = {item.name: item for item in stored.sources}
    shared = find_shared_table_mistakes(sources, frozenset(item.name for item in everything) - frozenset(sources))
    wrong_inputs = find_input_mistakes(everything, given)
    mistakes = [
        *find_duplicate_names([*everything, *unstored, *computed]),
        *find_names_of_kept_tables([*everything, *unstored, *computed], pipeline.name),
        *kept_fields.find_reserved_column_mistakes(sources.values()),
        *shared,
        *wrong_inputs,
        *_find_layer_mistakes(pipeline, [*stored.datasets, *computed]),
    ]
    _refuse_mistakes(pipeline, mistakes)
    ordered = _order_stored_declarations(pipeline, everything)
    complete: dict[str, Source | AnyDataset] = {}
    for item in ordered:
        inherited = frozenset[str]().union(*(complete[name].private for name in item.reads))
        complete[item.name] = item.add_personal_columns(inherited)
    shown = {name for name, item in complete.items() if not item.serves}
    unknown = [name for name in pipeline.publishes if name not in shown]
    if unknown and unknown[0] in {view.name for view in computed}:
        raise DeclarationError(
            f"Pipeline '{pipeline.name}': publishes the @view '{unknown[0]}', which has no versions. Publish what it reads, or "
            "make it a @materialized_view."
        )
    if unknown:
        raise DeclarationError(f"Pipeline '{pipeline.name}': publishes '{unknown[0]}'.{nearest_name_hint(unknown[0], shown)}")
    own = {item.name: item.personal for item in everything}
    whose = subject_checks.SubjectDeclarations(tuple(links), tuple(asking), complete, {view.name: view for view in unstored}, own)
    seen = _complete_computed_views(computed, complete)
    mistakes = [
        *find_rule_mistakes(pipeline, complete),
        *subject_checks.find_subject_mistakes(whose),
        *unreachable_places.find_personal_column_mistakes(complete),
        *find_layout_mistakes(pipeline, complete),
    ]
    mistakes += [*_find_role_mistakes(pipeline, given, seen, complete), *subject_checks.find_lifetime_mistakes(complete)]
    mistakes += subject_checks.find_other_subject_mistakes(complete)
    mistakes += subject_types.find_subject_type_mistakes(complete, whose.links)
    mistakes += identifiers.find_canonical_form_mistakes(pipeline, complete, whose.links)
    _refuse_mistakes(pipeline, mistakes)
    return Graph(
        pipeline=pipeline,
        stored={one.name: one for one in sorted(complete.values(), key=lambda one: one.kind.order)},
        computed=seen,
        links=whose.links,
        asking=whose.asking,
        unstored=whose.unstored,
        forms=identifiers.canonical_forms_by_domain(pipeline, complete, whose.links),
    )


def _complete_computed_views(views: Sequence[View[Any]], stored: Mapping[str, Source | AnyDataset]) -> dict[str, View[Any]]:
    """The computed views by name, each after those it reads, with the personal columns of what they read."""
    by_name = {view.name: view for view in views}
    found: dict[str, View[Any]] = {}
    for view in resolve_computed_views(by_name, by_name):
        inherited = _inherited_personal_columns(view, found, stored)
        found[view.name] = replace(view, personal=tuple(sorted({*view.personal, *inherited})))
    return found


def _inherited_personal_columns(
    view: View[Any], computed: Mapping[str, View[Any]], stored: Mapping[str, Source | AnyDataset]
) -> frozenset[str]:
    """The personal columns of what a computed view reads. computed: the views that come before it."""
    return frozenset().union(*(computed[name].personal if name in computed else stored[name].private for name in view.reads))


def _find_role_mistakes(
    pipeline: Pipeline, given: DeclarationsByKind, computed: Mapping[str, View[Any]], stored: Mapping[str, Any]
) -> Iterator[str]:
    """Yields the mistakes in what roles may see, and in what reads role views."""
    for view in computed.values():
        yield from find_role_view_mistakes(pipeline, view, _inherited_personal_columns(view, computed, stored))
    for item in given.queries:
        for name in (name for name in item.reads if name in computed and computed[name].role):
            yield f"{item.mention} reads '{name}', which is the view of a role. Read {computed[name].reads[0]}."


def _refuse_mistakes(pipeline: Pipeline, mistakes: Iterable[str]) -> None:
    """Raises DeclarationError with all mistakes, each once, one per line."""
    if found := dict.fromkeys(mistakes):
        raise DeclarationError("\n".join(f"Pipeline '{pipeline.name}': {mistake}" for mistake in found))


def _find_layer_mistakes(pipeline: Pipeline, declared: Sequence[AnyDataset | View[Any]]) -> Iterator[str]:
    for item in declared:
        if item.module not in pipeline.layers[1:]:
            yield f"{item.mention} is declared in '{item.module}', which is not a layer above the sources' layer: {pipeline.layers[1:]}."


def _refuse_circular_reads(pipeline: Pipeline, given: DeclarationsByKind) -> None:
    """Raises for a circle through computed views. The ordering below no longer has them, and would report a table that reads itself."""
    _sort_topologically(pipeline, {item.name: item.reads for item in given.queries})


def _order_stored_declarations(pipeline: Pipeline, declared: list[Source | AnyDataset]) -> list[Source | AnyDataset]:
    by_name = {item.name: item for item in declared}
    edges = {item.name: (item.into,) if item.into else item.reads for item in declared}
    return [by_name[name] for name in _sort_topologically(pipeline, edges)]


def _sort_topologically(pipeline: Pipeline, edges: Mapping[str, tuple[str, ...]]) -> list[str]:
    try:
        return list(TopologicalSorter(edges).static_order())
    except CycleError as error:
        raise DeclarationError(
            f"Pipeline '{pipeline.name}': tables read each other in a circle: {' > '.join(error.args[1])}."
        ) from None
