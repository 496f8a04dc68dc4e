"""Finds whose rows are in a table, by kind of identifier (domain), as far as the declarations say, and the secrets that this takes.

A @table has its source's domain. A view has the subjects of everything it is made from. Its rows are identified by a column of the same
name, or by the view's own subject; without either, an erased person cannot be found in it.

Airflow's secret back end is asked for no other secrets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sluice.declare.assembly.graph import PSEUDONYM, Graph
from sluice.declare.datasets.dataset import AnyDataset
from sluice.declare.field_values import find_column_spelling
from sluice.declare.ingest.field_names import rescued_text_expression
from sluice.declare.ingest.source import Source
from sluice.declare.privacy.treat import Hmac
from sluice.declare.quoting import quote_identifier


@dataclass(frozen=True)
class TableSubjects:
    """columns: by column of the table, the domain of the identifiers in it. unknown: domains that no column identifies."""

    columns: tuple[tuple[str, str], ...] = ()
    unknown: frozenset[str] = frozenset()


def find_table_subjects(graph: Graph, dataset: AnyDataset, columns: list[str]) -> TableSubjects:
    """The subjects of a table with these columns."""
    hashed = _find_pseudonym_columns(graph, dataset, columns)
    if dataset.folded_source:
        domain = graph.domain(dataset)
        own_column = find_column_spelling(dataset.subject, columns) or dataset.subject
        return TableSubjects((*(((own_column, domain),) if domain and own_column else ()), *hashed))
    above = list(_walk_all_inputs(graph, dataset))
    treated = {name.lower() for one in (dataset, *above) for name in one.treatments}
    told = [(one, domain) for one in above if one.subject and (domain := graph.domain(one))]
    domains = {domain for _, domain in told}
    # A column with the subject somewhere inside it is not an identifier as a whole.
    known = {(find_column_spelling(one.subject, columns), domain) for one, domain in told if not one.subject_in}
    # A treated value is no longer an identifier: the suppression list holds the pseudonym of a pseudonymised one, and nothing of
    # others.
    found = {(column, domain) for column, domain in known if column and column.lower() not in treated}
    missing = domains - {domain for _, domain in found}
    own = find_column_spelling(dataset.subject, columns) or dataset.subject
    if own and len(missing) == 1 and own.lower() not in treated and own not in {column for column, _ in found}:
        found |= {(own, missing.pop())}
    return TableSubjects((*sorted(found), *hashed), frozenset(domains - {domain for _, domain in found}))


def find_subject_domains(graph: Graph, declared: Source | AnyDataset) -> frozenset[str]:
    """The domains of the people whose rows a table may have."""
    return frozenset(one.domain for one in (declared, *_walk_all_inputs(graph, declared))) - {""}


def find_other_subject_columns(graph: Graph, declared: Source | AnyDataset) -> dict[str, str]:
    """The columns that may hold another person, by domain: for bronze as declared, else every column of the same name."""
    made_of = [*graph.sharing(declared), *_walk_all_inputs(graph, declared)]
    treated = {name.lower() for one in made_of for name in one.treatments}
    return {column: domain for one in made_of for column, domain in one.also_subjects if column.lower() not in treated}


def find_free_text_columns(graph: Graph, declared: Source | AnyDataset) -> tuple[str, ...]:
    """The text columns, in a table or in what it is made from, that may name anybody."""
    made_of = (*graph.sharing(declared), *_walk_all_inputs(graph, declared))
    return tuple(dict.fromkeys(column for one in made_of for column in one.free_text))


def build_subject_expression(graph: Graph, declared: Source | AnyDataset, columns: Sequence[str]) -> str | None:
    """The SQL expression that gives a stored row's subject as text, for a table with these columns. None if no column identifies it.

    For bronze it also covers a subject that did not fit its column and so went to the rescued data. For a quarantine it is `_subject`.
    """
    if declared.subject is None:
        return None
    column = find_column_spelling(declared.subject, columns)
    if declared.subject_in:
        return f"CAST({declared.subject_in} AS STRING)" if column else None
    told = [f"CAST({quote_identifier(column)} AS STRING)"] if column else []
    if declared.name in graph.sources and "_rescued_data" in columns:
        told.append(rescued_text_expression(declared.subject))
    return f"coalesce({', '.join(told)})" if len(told) > 1 else "".join(told) or None


def subject_time_expression(declared: Source | AnyDataset) -> str | None:
    """The instant each row is about, as an SQL expression: it decides who owned an identifier that changes hands. None if undeclared."""
    return declared.subject_at


def _find_pseudonym_columns(graph: Graph, dataset: AnyDataset, columns: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The columns with pseudonyms, made by the table itself or by a table it is made from."""
    made = (dataset, *_walk_all_inputs(graph, dataset))
    names = {name.lower() for one in made for name, how in one.treatments.items() if isinstance(how, Hmac)}
    return tuple((name, PSEUDONYM) for name in sorted(columns) if name.lower() in names)


def _walk_all_inputs(graph: Graph, declared: Source | AnyDataset) -> Iterator[Source | AnyDataset]:
    """Everything that a table is made from, directly or through others."""
    for name in declared.reads:
        yield from graph.sharing(graph[name])
        yield from _walk_all_inputs(graph, graph[name])


SUPPRESSION_KEY = "suppression.key"
"""The secret that keys the suppression list."""
CERTIFICATE_KEY = "certificate.key"
"""The secret that seals certificates of erasures."""


def find_needed_secrets(graph: Graph) -> tuple[str, ...]:
    """The names of these secrets, sorted."""
    found: set[str] = set()
    for declared in graph:
        found |= {how.secret for how in declared.treatments.values() if isinstance(how, Hmac)}
        found |= set(declared.needed_secrets)
    if any(source.subject for source in graph.sources.values()):
        found |= {SUPPRESSION_KEY, CERTIFICATE_KEY}
    return tuple(sorted(found))
